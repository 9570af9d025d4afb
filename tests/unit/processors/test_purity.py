"""What a reducer must not do is found before it runs, while it runs, and by running it twice."""

import os
import random
import time
import uuid
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from tests.usercode import package, written

from refold.processors.purity import Fault, faults, guard
from refold.processors.seeds import two_seeds
from refold.schemas.errors import Code, DefinitionError

IMPURE = {
    "clock by module": ("import time", "return time.time()", "reads the clock (time.time)"),
    "clock by name": ("from time import monotonic", "return monotonic()", "reads the clock"),
    "now": (
        "import datetime as dt",
        "return dt.datetime.now(dt.UTC)",
        "reads the clock (dt.datetime.now)",
    ),
    "utcnow": ("from datetime import datetime", "return datetime.utcnow()", "reads the clock"),
    "today": ("from datetime import date", "return date.today()", "reads the clock"),
    "zone of the machine": ("", "return event.at.astimezone()", "time zone"),
    "timestamp in the machine's zone": (
        "from datetime import datetime",
        "return datetime.fromtimestamp(event.at)",
        "time zone",
    ),
    "random": ("import random", "return random.choice([1, 2])", "draws at random"),
    "random by name": ("from random import random as draw", "return draw()", "draws at random"),
    "secrets": ("import secrets", "return secrets.token_hex()", "draws at random"),
    "urandom": ("import os", "return os.urandom(8)", "draws at random"),
    "uuid4": ("from uuid import uuid4", "return str(uuid4())", "makes a random id"),
    "uuid1": ("import uuid", "return uuid.uuid1()", "makes a random id"),
    "environ": ("import os", "return os.environ['REGION']", "reads the environment"),
    "environ by name": ("from os import environ", "return environ.get('A')", "the environment"),
    "getenv": ("import os", "return os.getenv('REGION')", "reads the environment"),
    "environment at import": (
        "import os\nREGION = os.environ.get('REGION', 'x')",
        "return REGION",
        "which reads the environment at import",
    ),
    "clock at import": ("import time\nSTART = time.time()", "return START", "clock at import"),
    "open": ("", "return open('/etc/hostname').read()", "reads or writes files"),
    "pathlib": ("from pathlib import Path", "return Path('x').read_text()", "writes files"),
    "listdir": ("import os", "return os.listdir('.')", "asks the operating system"),
    "exists": ("import os.path", "return os.path.exists('x')", "reads or writes files"),
    "socket": ("import socket", "return socket.socket()", "uses the network"),
    "urlopen": ("from urllib import request", "return request.urlopen('x')", "the network"),
    "subprocess": ("import subprocess", "return subprocess.run(['ls'])", "starts processes"),
    "thread": ("import threading", "threading.Thread().start()", "uses threads"),
    "asyncio": ("import asyncio", "return asyncio.run(event.go())", "is asynchronous"),
    "global statement": ("N = 0", "global N\n    N += 1", "assigns the global N"),
    "list of the module": ("SEEN = []", "SEEN.append(event)", "uses SEEN, a list"),
    "dict of the module": ("RATES = {'a': 1}", "return RATES['a']", "uses RATES, a dict"),
    "frozen record with a list": (
        "import msgspec\nclass C(msgspec.Struct, frozen=True):\n    a: list[int]\nONE = C([1])",
        "return ONE.a",
        "uses ONE, a C that may change",
    ),
    "attribute of a class": ("class C:\n    n = 0", "C.n += 1", "assigns C.n"),
    "default that may change": (
        "def h(x, seen=[]):\n    seen.append(x)",
        "return h(event)",
        "keeps a list as a default",
    ),
    "helper in a table": (
        "import time\nfrom types import MappingProxyType\ndef h(x):\n    return time.time()\n"
        "ALL = MappingProxyType({'a': (h, 1)})",
        "return ALL['a'][0](event)",
        "reads the clock",
    ),
    "method of a frozen object": (
        "import time\nfrom dataclasses import dataclass\n@dataclass(frozen=True)\nclass P:\n"
        "    def now(self):\n        return time.time()\nONE = P()",
        "return ONE.now()",
        "reads the clock",
    ),
    "counter of the module": (
        "import itertools\nNEXT = itertools.count()",
        "return next(NEXT)",
        "uses NEXT, a count",
    ),
    "hash": ("", "return hash(event.id)", "hash seed"),
    "id": ("", "return id(event)", "addresses"),
    "locale": ("import locale", "return locale.str(event.x)", "depends on the locale"),
    "number by locale": ("", "return f'{event.x:n}'", "formats a number by locale"),
    "time by locale": ("", "return event.at.strftime('%A')", "formats a time by locale"),
    "print": ("", "print(event)", "prints or logs"),
    "logger": ("import logging\nLOG = logging.getLogger()", "LOG.info('x')", "prints or logs"),
    "eval": ("", "return eval(event.text)", "runs code from text"),
    "late import of a clock": ("", "import time\n    return time.time()", "reads the clock"),
    "late import by name": ("", "from random import random\n    return random()", "at random"),
    "module not loaded": ("", "import shop_absent\n    return shop_absent.x", "is not loaded"),
    "repr of an error": (
        "",
        "try:\n        return 1 / ctx\n    except ZeroDivisionError as e:\n        return repr(e)",
        "uses the text of an exception",
    ),
    "error in an f-string": (
        "",
        "try:\n        return 1 / ctx\n    except ZeroDivisionError as e:\n        return f'{e}'",
        "uses the text of an exception",
    ),
    "traceback": ("import traceback", "return traceback.format_exc()", "text of an exception"),
    "for over a set": ("", "for x in {event.a, event.b}:\n        ctx(x)", "set order (for)"),
    "list of a set": ("", "return list(set(event.items))", "set order (list)"),
    "tuple of a named set": ("", "s = set(event.items)\n    return tuple(s)", "set order (tuple)"),
    "join of a set": ("", "return ', '.join({x for x in event.items})", "set order (join)"),
    "comprehension over a set": ("", "return [x for x in frozenset(event.a)]", "comprehension"),
    "unpacking a set": ("", "a, b = set(event.items)\n    return a", "set order (unpacking)"),
    "star of a set": ("", "return [*set(event.items)]", "set order (unpacking)"),
    "pop of a set": ("", "s = {1, 2}\n    return s.pop()", "set order (pop)"),
    "union of sets": ("", "return list(set(event.a) | set(event.b))", "set order (list)"),
    "difference of keys": ("", "return list(event.a.keys() - event.b)", "set order (list)"),
    "frozenset of the module": (
        "TAGS = frozenset({'a', 'b'})",
        "return [t for t in TAGS]",
        "set order (comprehension)",
    ),
    "annotated set": ("", "s: set[str] = event.tags\n    return list(s)", "set order (list)"),
    "text of a set": ("", "return f'{set(event.items)}'", "set order (text of a set)"),
    "min by key": ("", "return min({event.a, event.b}, key=len)", "set order (min)"),
}
"""Name → (top of the module, body of the reducer, what is said of it)."""

PURE = {
    "replace": ("from dataclasses import replace", "return replace(ctx, a=event.a)"),
    "decimals": ("from decimal import Decimal as D\nVAT = D('0.2')", "return event.net * VAT"),
    "aware time": (
        "from datetime import UTC, datetime, timedelta\nDAY = timedelta(days=1)",
        "return datetime(2020, 1, 1, tzinfo=UTC) + DAY",
    ),
    "parsed time": ("from datetime import datetime", "return datetime.fromisoformat(event.at)"),
    "time in a zone": (
        "from datetime import UTC, datetime",
        "return datetime.fromtimestamp(event.at, UTC).astimezone(UTC).strftime('%Y-%m-%d')",
    ),
    "membership": ("OPEN = frozenset({'a', 'b'})", "return event.a in OPEN and len(OPEN) == 2"),
    "sorted set": ("", "return [x for x in sorted({*event.a, *event.b})]"),
    "set of a set": ("", "return sorted({x for x in set(event.a)})"),
    "count of a set": ("", "return sum([1, 2]), len(set(event.a)), max(set(event.a))"),
    "any of a set": ("", "return any(x > 1 for x in set(event.a))"),
    "for over a dict": ("", "return [k for k, v in event.prices.items() if v]"),
    "for over a tuple": ("", "return tuple(i.n for i in event.items)"),
    "mapping that stays": (
        "from types import MappingProxyType\nRATES = MappingProxyType({'a': 1})",
        "return RATES[event.a]",
    ),
    "tuple of records": (
        "import msgspec\nclass R(msgspec.Struct, frozen=True):\n    a: int = 0\nALL = (R(), R(1))",
        "return ALL[0].a",
    ),
    "enum": ("from enum import Enum\nclass C(Enum):\n    A = 'a'", "return C.A.value, C(event.c)"),
    "regular expression": ("import re\nP = re.compile('a+')", "return bool(P.match(event.a))"),
    "hashlib": ("import hashlib", "return hashlib.sha256(event.a.encode()).hexdigest()"),
    "uuid5": ("import uuid", "return uuid.uuid5(uuid.NAMESPACE_URL, event.a)"),
    "paths that touch nothing": (
        "import os.path\nfrom pathlib import PurePath",
        "return os.path.join('a', event.a), PurePath('a') / event.a",
    ),
    "math": ("import math", "return math.floor(event.x) + round(event.x, 2)"),
    "json": ("import json", "return json.dumps({'a': event.a}, sort_keys=True)"),
    "caught error with a code": (
        "",
        "try:\n        return int(event.a)\n    except ValueError:\n        return -1",
    ),
    "raising": ("", "raise ValueError(f'no {event.a!r}')"),
    "inner function": (
        "",
        "n = 0\n    def add(x):\n        nonlocal n\n        n += x\n    add(1)\n    return n",
    ),
    "match": (
        "",
        "match event:\n        case {'a': [x, *_]}:\n            return x\n        case _:\n"
        "            return None",
    ),
    "names that look impure": (
        "",
        "time, random, id, hash = event\n    return time, random, id, hash",
    ),
    "attributes that look impure": ("", "return event.time, ctx.random(), event.open, event.now()"),
    "list made here": ("", "seen = []\n    seen.append(event.a)\n    return tuple(seen)"),
    "type alias": ("Names = tuple[str, ...]", "names: Names = event.a\n    return names"),
    "step": ("", "return event.a, ctx.new_id(), ctx.random(), ctx.time"),
    "partial": ("from functools import partial, reduce", "return reduce(max, event.a, 0)"),
    "cached helper": (
        "from functools import lru_cache\n@lru_cache\ndef h(x):\n    return x + 1",
        "return h(event.a)",
    ),
}
"""Ordinary reducers: name → (top of the module, body)."""


def found(folder: Path, top: str, body: str) -> tuple[Fault, ...]:
    return faults(written(folder, f"{top}\ndef reducer(ctx, event):\n    {body}\n").reducer)


@pytest.mark.parametrize("name", IMPURE)
def test_an_impure_reducer_is_found_with_its_line_and_a_cure(name: str, tmp_path: Path) -> None:
    top, body, said = IMPURE[name]
    found_ = found(tmp_path, top, body)
    assert any(said in fault.found for fault in found_), found_
    assert all(fault.line > 0 and fault.cure.endswith(".") for fault in found_)


@pytest.mark.parametrize("name", PURE)
def test_an_ordinary_reducer_raises_no_alarm(name: str, tmp_path: Path) -> None:
    assert found(tmp_path, *PURE[name]) == ()


def test_the_example_raises_no_alarm() -> None:
    from refold.examples.order import graph  # noqa: PLC0415  # the graph is the claim here

    graph.order.build()
    for rule in graph.order.spec.rules:
        assert not faults(rule.reducer)
    for kind in (graph.Order, *graph.order.spec.events()):
        assert not faults(kind)


def test_a_clock_behind_a_helper_module_is_found_in_that_module(tmp_path: Path) -> None:
    files = {
        "shopa/__init__.py": "",
        "shopa/moments.py": "import time\ndef moment():\n    return time.time()\n",
        "shopa/helpers.py": "from shopa import moments\ndef stamp(x):\n"
        "    return (x, moments.moment())\n",
        "shopa/graph.py": "from shopa.helpers import stamp\ndef reducer(ctx, event):\n"
        "    return stamp(event)\n",
    }
    (fault,) = faults(package(tmp_path, files, "shopa.graph").reducer)
    assert (Path(fault.file).name, fault.line, fault.function) == ("moments.py", 3, "moment")


def test_a_method_of_a_context_class_is_checked(tmp_path: Path) -> None:
    module = written(
        tmp_path,
        """
        from dataclasses import dataclass
        from datetime import datetime

        @dataclass(frozen=True)
        class Order:
            a: int = 0

            @property
            def age(self):
                return datetime.now()

        def reducer(ctx, event):
            return Order(a=event.a)
        """,
    )
    (fault,) = faults(module.reducer)
    assert fault.function == "Order.age"
    assert faults(module.Order) == (fault,)


@pytest.mark.parametrize(
    "definition",
    [
        "import pydantic\nclass E(pydantic.BaseModel):\n"
        "    id: str = pydantic.Field(default_factory=lambda: str(uuid4()))",
        "import pydantic\nclass E(pydantic.BaseModel):\n"
        "    id: UUID = pydantic.Field(default_factory=uuid4)",
        "import msgspec\nclass E(msgspec.Struct):\n    id: UUID = msgspec.field("
        "default_factory=uuid4)",
        "from dataclasses import dataclass, field\n@dataclass\nclass E:\n"
        "    id: UUID = field(default_factory=uuid4)",
    ],
)
def test_a_default_that_draws_an_id_is_found(definition: str, tmp_path: Path) -> None:
    module = written(tmp_path, f"from uuid import UUID, uuid4\n{definition}\n")
    (fault,) = faults(module.E)
    assert fault.found == "makes a random id (uuid4)"


def test_a_closure_over_a_list_and_a_partial_with_a_clock_are_found(tmp_path: Path) -> None:
    module = written(
        tmp_path,
        """
        import time
        def made():
            seen = []
            def reducer(ctx, event):
                return len(seen)
            return reducer
        def stamped(clock, ctx, event):
            return clock()
        def clock():
            return time.time()
        """,
    )
    assert "uses seen, a list" in faults(module.made())[0].found
    assert faults(partial(module.stamped, module.clock))[0].function == "clock"


def test_what_stands_behind_a_decorator_a_method_or_an_object_is_found(tmp_path: Path) -> None:
    module = written(
        tmp_path,
        """
        import time
        from contextlib import ContextDecorator
        from functools import lru_cache, wraps

        def logged(function):
            @wraps(function)
            def wrapper(*args):
                return function(*args)
            return wrapper

        @logged
        def decorated(ctx, event):
            return time.time()

        @lru_cache
        def cached(ctx, event):
            return time.time()

        @ContextDecorator()
        def foreign(ctx, event):
            return time.time()

        class Pricing:
            def __call__(self, ctx, event):
                return time.time()
            def method(self, ctx, event):
                return time.time()
        """,
    )
    pricing = module.Pricing()
    for thing in (module.decorated, module.cached, module.foreign, pricing, pricing.method):
        assert "reads the clock (time.time)" in {fault.found for fault in faults(thing)}
    assert faults(time.time)[0].found == "reads the clock"


def test_assigning_an_outer_functions_name_is_found(tmp_path: Path) -> None:
    module = written(
        tmp_path,
        """
        def made():
            count = 0
            def reducer(ctx, event):
                nonlocal count
                count += 1
                return count
            return reducer
        """,
    )
    assert any("assigns count outside" in fault.found for fault in faults(module.made()))


def test_a_coroutine_is_not_a_reducer(tmp_path: Path) -> None:
    module = written(tmp_path, "async def reducer(ctx, event):\n    return await event.go()\n")
    assert {fault.found for fault in faults(module.reducer)} == {"is asynchronous"}


def test_code_of_other_packages_is_judged_by_name_only(tmp_path: Path) -> None:
    files = {
        "others/__init__.py": "import time\ndef stamp():\n    return time.time()\n",
        "shopb/__init__.py": "from others import stamp\ndef reducer(ctx, event):\n"
        "    return stamp()\n",
    }
    assert faults(package(tmp_path, files, "shopb").reducer) == ()


def test_the_guard_names_each_impure_call_behind_any_package() -> None:
    def placed() -> None:
        uuid.uuid4()
        time.time()
        datetime.now(UTC)
        random.random()
        os.environ.get("REGION")

    with pytest.raises(DefinitionError) as raised, guard("placed"):
        placed()
    assert raised.value.code is Code.IMPURE_REDUCER
    for said in ("uuid4", "time", "datetime.now", "Random.random", "_Environ.__getitem__"):
        assert said in raised.value.what
    assert raised.value.what.startswith("placed ")


def test_the_guard_sees_what_a_reducer_swallows() -> None:
    def sly() -> None:
        try:
            time.time()
            raise ValueError
        except Exception:
            return

    with pytest.raises(DefinitionError), guard():
        sly()


def test_the_guard_leaves_pure_code_alone_and_gives_the_profiler_back() -> None:
    import sys  # noqa: PLC0415

    before = sys.getprofile()
    with guard() as seen:
        sorted({3, 1, 2})
        datetime(2020, 1, 1, tzinfo=UTC).isoformat()
        datetime.strptime("2020", "%Y")
    assert seen == []
    assert sys.getprofile() is before


def test_the_guard_can_collect() -> None:
    with guard(collect=True) as seen:
        time.monotonic()
    assert seen == ["reads the clock (monotonic)"]


def test_the_guard_keeps_the_error_of_a_pure_block() -> None:
    with pytest.raises(ZeroDivisionError), guard():
        1 / 0  # noqa: B018


TWICE = """
def steady(payload):
    print("not part of the answer")
    return payload + repr(sorted(set(payload.decode()))).encode()
def by_set(payload):
    return ",".join(set(payload.decode())).encode()
def by_zone(payload):
    import time
    return str(time.localtime(0).tm_hour).encode()
def broken(payload):
    raise ValueError("no such field")
def no_bytes(payload):
    return 1
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_twice.py").write_text(TWICE)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("shop")
def test_equal_bytes_under_two_seeds_are_handed_back() -> None:
    assert two_seeds("shop_twice:steady", b"cab") == b"cab['a', 'b', 'c']"


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("name", ["by_set", "by_zone"])
def test_bytes_that_depend_on_the_seed_or_the_zone_are_told_apart(name: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        two_seeds(f"shop_twice:{name}", b"abcdefgh")
    assert raised.value.code is Code.IMPURE_REDUCER
    assert "at byte" in raised.value.what


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(("name", "said"), [("broken", "no such field"), ("no_bytes", "int")])
def test_a_function_that_fails_is_not_called_impure(name: str, said: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        two_seeds(f"shop_twice:{name}")
    assert raised.value.code is Code.DEFINITION_INVALID
    assert said in raised.value.what
