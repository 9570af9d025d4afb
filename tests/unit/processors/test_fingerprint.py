"""The fingerprint: blind to what a formatter changes, awake to what a fold would notice."""

import ast
import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tree import ROOT
from tests.usercode import package, written

from refold.processors.fingerprint import code_fingerprint, fingerprint_of
from refold.processors.seeds import two_seeds
from refold.schemas.errors import DefinitionError

GOLDEN: Final = ROOT / "tests" / "golden" / "fingerprint"
SHOP: Final = (GOLDEN / "shop.txt").read_text(encoding="utf-8")
EXPECTED: Final[dict[str, str]] = json.loads((GOLDEN / "expected.json").read_text())


def of_graph(module: ModuleType) -> str:
    return fingerprint_of(module.shop.spec)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    return of_graph(written(tmp_path_factory.mktemp("plain"), SHOP))


@pytest.mark.parametrize("name", ["many", "price", "paid", "Line", "Order", "Kind"])
def test_a_part_has_the_fingerprint_that_it_always_had(name: str, tmp_path: Path) -> None:
    assert code_fingerprint(getattr(written(tmp_path, SHOP), name)) == EXPECTED[name]


def test_the_graph_has_the_fingerprint_that_it_always_had(plain: str) -> None:
    """The same on Python 3.11, 3.12 and 3.13: whoever runs the tests there proves it."""
    assert plain == EXPECTED["shop"]


def test_a_formatter_run_changes_nothing(tmp_path: Path, plain: str) -> None:
    assert of_graph(written(tmp_path, ast.unparse(ast.parse(SHOP)))) == plain
    for options in (
        ["--line-length=40"],
        ["--line-length=200", "--config=format.quote-style='single'"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", "format", "--isolated", *options, "-"],
            input=SHOP.encode(),
            capture_output=True,
            check=True,
        )
        assert done.stdout.decode() != SHOP
        assert of_graph(written(tmp_path, done.stdout.decode())) == plain


def test_comments_docstrings_and_blank_lines_change_nothing(tmp_path: Path, plain: str) -> None:
    lines = SHOP.splitlines()
    commented = "\n".join(
        f"{line}  # note" if line.endswith((":", ")")) else line for line in lines
    )
    spaced = commented.replace("\n\n", "\n\n\n# apart\n\n")
    without = spaced.replace('"""Take the order."""', '"""Another word."""\n    pass')
    assert "# note" in without
    assert of_graph(written(tmp_path, without)) == plain


def test_an_annotation_that_nobody_reads_changes_nothing(tmp_path: Path, plain: str) -> None:
    changed = SHOP.replace("(ctx: Order, event: Paid) -> Order:", "(ctx, event):")
    assert changed != SHOP
    changed = changed.replace("receipt: str = event.receipt", "receipt = event.receipt")
    assert of_graph(written(tmp_path, changed)) == plain


def test_moving_code_to_another_module_changes_nothing(tmp_path: Path, plain: str) -> None:
    """So that an old version can be kept beside the new one."""
    head, tail = SHOP.split("def rounded(function):", 1)
    files = {
        "shopc/__init__.py": "",
        "shopc/old/__init__.py": "",
        "shopc/old/types_v3.py": head,
        "shopc/graph.py": "from shopc.old.types_v3 import *\n"
        "from shopc.old.types_v3 import functools, math, msgspec\n"
        f"def rounded(function):{tail}",
    }
    assert of_graph(package(tmp_path, files, "shopc.graph")) == plain


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('VAT = Decimal("0.20")', 'VAT = Decimal("0.21")'),
        ("re.IGNORECASE", "re.ASCII"),
        ("678_901_234", "678_901_235"),
        ('"uk": 0.25', '"uk": 0.26'),
        ("microseconds=3", "microseconds=4"),
        ("12, 30, tzinfo", "12, 31, tzinfo"),
        ('frozenset({"b", "a", "c"})', 'frozenset({"b", "a", "d"})'),
        ('itemgetter("first")', 'itemgetter("last")'),
        ('PurePath("/a/b")', 'PurePath("/a/c")'),
        ('FOOD = "food"', 'FOOD = "feed"'),
        ("(1 + VAT)", "(2 + VAT)"),
        ("amount: Decimal = Decimal(0)", "amount: Decimal = Decimal(1)"),
        ("total: int = 0\n    receipt", "total: int = 1\n    receipt"),
        ("total: int = 0\n    receipt", "total: float = 0\n    receipt"),
        ("extra: float = 0.5", "extra: float = 0.6"),
        ("return round(", "return abs("),
        (", 2)\n\n    return wrapper", ", 3)\n\n    return wrapper"),
        ("@rounded\n", ""),
        ("steps(n - 1) + 1", "steps(n - 1) + 2"),
        ("index > 3 and", "index > 3 or"),
        ("index > 3", "index >= 3"),
        ("!r:>", "!s:>"),
        (":03d", ":04d"),
        ("del (a, b)", "del (b, a)"),
        ("KeyError, ValueError", "KeyError"),
        ("return 1, 2", "return 2, 1"),
        ("event.total > 0", "event.total > 1"),
        ("amount=ctx.total)", "amount=ctx.total + 1)"),
        ("ctx.total >= 0", "ctx.total > 0"),
        ("dedup=64", "dedup=65"),
        ("visits=5", "visits=6"),
        ("version=3", "version=4"),
        ('target="cash"', 'target="bank"'),
        ("Paid: Late.ALREADY", "Paid: Late.RECORD"),
        ('"not negative"', '"positive"'),
        ('shop.defer("new", Paid)', 'shop.already("new", Paid)'),
        ('on("charging", Paid, to="done")', 'on("charging", Paid, to="cancelled")'),
        ('"shop.Paid"', '"shop.WasPaid"'),
    ],
)
def test_a_change_of_behaviour_changes_it(old: str, new: str, tmp_path: Path, plain: str) -> None:
    assert SHOP.count(old) == 1
    assert of_graph(written(tmp_path, SHOP.replace(old, new))) != plain


BINARY: Final[dict[type[ast.operator], ast.operator]] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.Add(),
}
COMPARED: Final[dict[type[ast.cmpop], ast.cmpop]] = {
    ast.Gt: ast.GtE(),
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Eq: ast.NotEq(),
}


def mutants() -> Iterator[tuple[str, str]]:
    """Each constant in the functions changed, each operator swapped, each branch turned."""
    tree = ast.parse(SHOP)
    bodies = [node.body for node in tree.body if isinstance(node, ast.FunctionDef)]
    for node in (inner for body in bodies for part in body for inner in ast.walk(part)):
        for field, value in _mutations(node):
            before = getattr(node, field)
            setattr(node, field, value)
            what = f"{type(node).__name__} on line {getattr(node, 'lineno', 0)}"
            yield what, ast.unparse(tree)
            setattr(node, field, before)


def _mutations(node: ast.AST) -> Iterator[tuple[str, object]]:
    match node:
        case ast.Constant(value=bool() as was):
            yield "value", not was
        case ast.Constant(value=int() | float() as number):
            yield "value", number + 1
        case ast.Constant(value=str() as text) if not text.endswith("."):  # not a docstring
            yield "value", text + "x"
        case ast.BinOp(op=operator) if type(operator) in BINARY:
            yield "op", BINARY[type(operator)]
        case ast.Compare(ops=[operator, *rest]) if type(operator) in COMPARED:
            yield "ops", [COMPARED[type(operator)], *rest]
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            yield "test", ast.UnaryOp(ast.Not(), test)
        case ast.Call(func=ast.Name(), args=[_, *rest]):
            yield "args", rest
        case ast.Return(value=ast.expr()):
            yield "value", None
        case _:
            pass


MUTANTS: Final = list(mutants())


@pytest.mark.parametrize("index", range(len(MUTANTS)))
def test_every_planted_fault_changes_it(index: int, tmp_path: Path, plain: str) -> None:
    what, text = MUTANTS[index]
    assert of_graph(written(tmp_path, text)) != plain, what


def test_enough_faults_were_planted() -> None:
    assert len(MUTANTS) > 40


def test_two_lambdas_on_a_line_are_told_apart(tmp_path: Path) -> None:
    module = written(tmp_path, "a, b = (lambda x: x + 1, lambda x: x + 2)\nc = lambda x: x + 2\n")
    assert code_fingerprint(module.a) != code_fingerprint(module.b)
    assert code_fingerprint(module.b) == code_fingerprint(module.c)


def test_a_lambda_in_a_lambda_is_itself(tmp_path: Path) -> None:
    module = written(tmp_path, "a = lambda: (lambda x: x + 1)\nb = lambda x: x + 1\n")
    assert code_fingerprint(module.a()) == code_fingerprint(module.b)
    assert code_fingerprint(module.a) != code_fingerprint(module.b)


def test_what_a_closure_or_a_partial_holds_counts(tmp_path: Path) -> None:
    module = written(
        tmp_path,
        """
        def scaled(by):
            def reducer(ctx, event):
                return ctx * by
            return reducer
        def plain(by, ctx, event):
            return ctx * by
        """,
    )
    assert code_fingerprint(module.scaled(2)) == code_fingerprint(module.scaled(2))
    assert code_fingerprint(module.scaled(2)) != code_fingerprint(module.scaled(3))
    two, three = functools.partial(module.plain, 2), functools.partial(module.plain, 3)
    assert code_fingerprint(two) != code_fingerprint(three)


def test_a_helper_in_another_module_of_the_package_counts_and_a_stranger_does_not(
    tmp_path: Path,
) -> None:
    def made(number: int, helper: str, stranger: str) -> str:
        files = {
            f"stranger{number}.py": f"def far(x):\n    return {stranger}\n",
            f"shopd{number}/__init__.py": "",
            f"shopd{number}/helpers.py": f"def near(x):\n    return {helper}\n",
            f"shopd{number}/graph.py": f"from shopd{number} import helpers\n"
            f"from stranger{number} import far\ndef reducer(ctx, event):\n"
            "    return helpers.near(far(ctx))\n",
        }
        module = package(tmp_path, files, f"shopd{number}.graph")
        return code_fingerprint(module.reducer).replace(str(number), "")

    first = made(1, "x + 1", "x + 1")
    assert made(2, "x + 2", "x + 1") != first
    files = {
        "shope/__init__.py": "from strangere import far\ndef reducer(ctx, event):\n"
        "    return far(ctx)\n",
        "strangere.py": "def far(x):\n    return x\n",
    }
    before = code_fingerprint(package(tmp_path, files, "shope").reducer)
    sys.modules.pop("shope")
    sys.modules.pop("strangere")
    files["strangere.py"] = "def far(x):\n    return -x if x else 12345\n"
    assert code_fingerprint(package(tmp_path, files, "shope").reducer) == before


def test_it_is_the_same_in_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_sets.py").write_text(
        "from refold.processors.fingerprint import code_fingerprint\n"
        "class A: a = 1\nclass B: a = 2\nclass C: a = 3\n"
        "def reducer(ctx, event):\n    return ALL\n"
        "ALL = frozenset({A, B, C, reducer, 'x', ('y', A), frozenset({B, 'z'})})\n"
        "def told(payload):\n    return code_fingerprint(reducer).encode()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert len(two_seeds("shop_sets:told")) == 64


def test_code_without_a_file_is_refused_with_the_cure() -> None:
    scope: dict[str, object] = {"__name__": "nowhere"}
    exec("def reducer(ctx, event):\n    return ctx\n", scope)
    with pytest.raises(DefinitionError) as raised:
        code_fingerprint(scope["reducer"])
    assert "Put it into a module" in raised.value.cure


@given(
    value=st.recursive(
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(),
            st.text(),
            st.binary(),
            st.floats(allow_nan=False),
            st.decimals(allow_nan=False),
        ),
        lambda inner: st.lists(inner, max_size=3).map(tuple),
        max_leaves=6,
    ),
    other=st.one_of(st.integers(), st.text(), st.lists(st.integers(), max_size=2).map(tuple)),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # fmt: skip
def test_constants_that_differ_differ_in_it(
    value: object, other: object, holder: ModuleType
) -> None:
    same = repr(value) == repr(other)  # (False,) equals (0,), and is another constant
    first, second = holder.holding(value), holder.holding(other)
    assert (code_fingerprint(first) == code_fingerprint(second)) == same
    assert code_fingerprint(first) == code_fingerprint(holder.holding(value))


@pytest.fixture(scope="module")
def holder(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    text = "def holding(value):\n    return lambda ctx, event: (ctx, value)\n"
    return written(tmp_path_factory.mktemp("holder"), text)
