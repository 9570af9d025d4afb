"""The fingerprint of a definition: equal for equal behaviour, another for any change (P14).

Law of this module: a hash over the declared graph and over the syntax trees of everything that
the fold runs: reducers, guards, sends, invariants, the context, event and command classes, and
what they name inside the user's own packages, transitively. The module that code stands in does
not count, so that an old version can be moved beside the new one. Code of other packages counts
by name alone: pin it.
"""

import ast
import datetime
import decimal
import enum
import functools
import re
import types
from collections import deque
from collections.abc import Iterable, Mapping
from fractions import Fraction
from hashlib import blake2b
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from refold.processors import source, syntax, values
from refold.processors.form import limits_of, needed
from refold.processors.sends import undoing_types
from refold.processors.spec import PATIENT, CommandSpec, Spec
from refold.processors.triggers import called_of
from refold.schemas.errors import Code, DefinitionError

_SCHEME: Final = "refold-code-1"
"""Changes when the walk itself changes: all fingerprints change with it."""
_TOLD: Final = (
    *(decimal.Decimal, datetime.date, datetime.time, datetime.timedelta),
    *(Fraction, range, PurePath, UUID, ZoneInfo),
)
"""Types whose text says all; how they are copied differs from Python to Python."""
_DEPTH: Final = 32  # values inside values: deeper ones stand by their type


def fingerprint_of(spec: Spec) -> str:
    """The fingerprint of a graph and of the code that it names: 64 hex digits of BLAKE2b-256.

    Raises:
        DefinitionError: A function has no source text, or two lambdas cannot be told apart.
    """
    walk = _Walk(package for package in map(_package_of, _roots(spec)) if package)
    graph = _graph(spec, walk)
    return walk.digest([_SCHEME, msgspec.json.encode(graph, order="sorted").decode()])


def code_fingerprint(*things: object) -> str:
    """The fingerprint of functions and classes without a graph, for tests and tools.

    Raises:
        DefinitionError: As `fingerprint_of`.
    """
    walk = _Walk(package for package in map(_package_of, things) if package)
    return walk.digest([_SCHEME, *(walk.refer(thing) for thing in things)])


def _roots(spec: Spec) -> Iterable[object]:
    yield spec.context
    for rule in spec.rules:
        yield from (rule.event, rule.guard, rule.reducer)
    yield from (entry.send for entry in spec.entries)
    yield from (command.type for command in spec.commands)
    yield from (command.compensate for command in spec.commands)
    yield from (timer.duration for timer in spec.timers)
    yield from (thing for one in spec.children for thing in (one.event, one.cancel))
    yield from (final.answer for final in spec.finals)
    yield from spec.events()
    yield from (invariant.holds for invariant in spec.invariants)
    yield from (one.lift for one in (*spec.upcasters, *spec.context_upcasters))


def _package_of(thing: object) -> str:
    while isinstance(thing, functools.partial):
        thing = thing.func
    package = source.top(source.home(source.plain(thing)))
    return package if source.is_users(package) else ""


def _graph(spec: Spec, walk: "_Walk") -> dict[str, Any]:
    """What the graph declares, functions and classes as references into the walk.

    Order is kept where it means something: states (an instance counts its visits by position),
    guards of one pair, sends of one state.
    """
    rules: dict[str, list[Any]] = {}
    for rule in spec.rules:
        row = [rule.to, walk.refer(rule.guard), walk.refer(rule.reducer)]
        row += ["renew"] if rule.renew else []
        rules.setdefault(f"{rule.state}/{rule.event.__name__}", []).append(row)
    sends: dict[str, list[str]] = {}
    for entry in spec.entries:
        sends.setdefault(entry.state, []).append(walk.refer(entry.send))
    return {
        "name": spec.name,
        "version": spec.version,
        "initial": spec.initial,
        "dedup": spec.dedup,
        "limits": limits_of(spec.limits),
        "states": list(spec.states()),
        "rules": rules,
        "sends": sends,
        "context": walk.refer(spec.context),
        "events": {kind.__name__: walk.refer(kind) for kind in _by_name(spec.kinds())},
        "commands": {
            one.type.__name__: [
                walk.refer(one.type),
                one.target,
                one.action,
                one.each,
                *_fate(one, walk),
            ]
            for one in sorted(spec.commands, key=lambda one: one.type.__name__)
        },
        "deferred": sorted([state, kind.__name__] for state, kind in spec.deferred),
        "already": sorted([state, kind.__name__] for state, kind in spec.already),
        "finals": {
            final.state: [
                str(final.status),
                {getattr(kind, "__name__", "*"): str(late) for kind, late in final.late.items()},
            ]
            for final in spec.finals
        },
        "waits": dict(sorted((state, str(status)) for state, status in spec.waits)),
        "invariants": [
            [one.name, walk.refer(one.holds), None if one.states is None else sorted(one.states)]
            for one in spec.invariants
        ],
        **_upcasters(spec, walk),
        **_beside(spec, walk),
    }


def _fate(command: CommandSpec, walk: "_Walk") -> list[Any]:
    """What becomes of an action; nothing for a command that nobody follows."""
    if not (command.answers or command.retry or command.compensate):
        return []
    answers = sorted(kind.__name__ for kind in command.answers)
    retry = None if command.retry is None else msgspec.to_builtins(command.retry)
    return [answers, retry, walk.refer(command.compensate)]


def _beside(spec: Spec, walk: "_Walk") -> dict[str, Any]:
    """Timers, children, joins and undoing; nothing for a graph without them."""
    found: dict[str, list[Any]] = {
        "timers": sorted([one.state, one.name, walk.refer(one.duration)] for one in spec.timers),
        "children": [
            [one.workflow, walk.refer(one.event), walk.refer(one.cancel)]
            + [kind.__name__ for kind in one.answers]
            for one in sorted(spec.children, key=lambda one: one.workflow)
        ],
        "answers": [
            [one.state, walk.refer(one.answer)]
            for one in sorted(spec.finals, key=lambda one: one.state)
            if one.answer is not None
        ],
        "joins": sorted(
            [one.state, called_of(one.command), needed(one.need), one.cancel_rest]
            for one in spec.joins
        ),
        "undoing": sorted(spec.undoing),
        "patient": [
            [kind.__name__, msgspec.to_builtins(PATIENT)]
            for kind in _by_name(undoing_types(spec))
            if kind not in {one.type for one in spec.commands if one.retry is not None}
        ],
        "pivots": sorted(spec.pivots),
    }
    return {name: several for name, several in found.items() if several}


def _upcasters(spec: Spec, walk: "_Walk") -> dict[str, Any]:
    """Nothing without them: such a graph has the fingerprint that it had before there were any."""
    declared = {"upcasters": spec.upcasters, "context_upcasters": spec.context_upcasters}
    return {
        name: {
            f"{one.type.__name__}/{one.sequence}": walk.refer(one.lift)
            for one in sorted(several, key=lambda one: (one.type.__name__, one.sequence))
        }
        for name, several in declared.items()
        if several
    }


def _by_name(kinds: Iterable[type]) -> list[type]:
    return sorted(kinds, key=lambda kind: kind.__name__)


class _Walk:
    """Gives each function and class that is reached a number, and writes them down in order."""

    def __init__(self, packages: Iterable[str]) -> None:
        self._packages = frozenset(packages)
        self._numbers: dict[int, int] = {}
        self._queue: deque[object] = deque()
        self._keep: list[object] = []  # an id is a name only while its object lives

    def digest(self, head: Iterable[str]) -> str:
        """The hash over a head and over everything that was referred to."""
        lines = [*head]
        while self._queue:
            lines.append(self._entry(self._queue.popleft()))
        return blake2b("\n".join(lines).encode(), digest_size=32).hexdigest()

    def refer(self, thing: object, depth: int = 0) -> str:
        """How a value stands in the text: itself if plain, a number if code, else its parts."""
        bare = source.plain(thing)
        if isinstance(bare, type | types.FunctionType):
            return self._code(thing, bare)
        if depth > _DEPTH:
            return _foreign(type(thing))
        return _plain_value(thing) or self._parts(thing, depth + 1)

    def _code(self, thing: object, bare: type | types.FunctionType) -> str:
        if source.top(source.home(bare)) not in self._packages:
            return _foreign(bare) + self._wrapped(bare)
        owner = getattr(thing, "__self__", None)
        if id(bare) not in self._numbers:
            self._numbers[id(bare)] = len(self._numbers)
            self._keep.append(bare)
            self._queue.append(bare)
        number = f"#{self._numbers[id(bare)]}"
        return number if owner is None else f"{number}({self.refer(owner)})"

    def _wrapped(self, function: type | types.FunctionType) -> str:
        """What a foreign decorator holds: the user's function, and the decorator's arguments."""
        cells = getattr(function, "__closure__", None) or ()
        inner = [cell.cell_contents for cell in cells if _is_bound(cell)]
        return f"({' '.join(self.refer(one) for one in inner)})" if inner else ""

    def _parts(self, thing: object, depth: int) -> str:
        name = _foreign(type(thing))
        match thing:
            case functools.partial():
                items = [thing.func, *thing.args, *sorted(thing.keywords.items())]
            case tuple() | list() | deque():
                items = [*thing]
            case set() | frozenset():
                inner = [self.refer(one, depth) for one in sorted(thing, key=_stable)]
                return f"{name}{{{' '.join(sorted(inner))}}}"
            case Mapping():
                items = [*thing.items()]
            case enum.Enum():
                return f"{self.refer(type(thing))}.{thing.name}"
            case types.ModuleType():
                return f"module:{_public(thing.__name__)}"
            case _:
                items = self._state(thing)
                name = self.refer(type(thing))
        return f"{name}[{' '.join(self.refer(one, depth) for one in items)}]"

    def _state(self, thing: object) -> list[Any]:
        """What an object holds: a record's fields, else its attributes, else how it is copied."""
        fields: list[Any] = [*values.fields_of(thing)]
        if fields or source.top(type(thing).__module__) == "refold":
            return fields
        if hasattr(thing, "__dict__"):
            return sorted(vars(thing).items())
        try:
            made = thing.__reduce_ex__(2)
        except TypeError:
            return []  # cannot be copied: a lock, an encoder; it stands by its type
        return [] if isinstance(made, str) else [part for part in made[1:] if part is not None]

    def _entry(self, thing: object) -> str:
        found = source.find(thing)
        if found is None:
            return self._shape(thing)
        node = syntax.bare(found.node) if self._is_bare(found) else found.node
        named = self._names(node, found)
        listed = " ".join(f"{name}={self.refer(named[name])}" for name in sorted(named))
        return f"{syntax.text_of(node)} where {listed}"

    def _is_bare(self, found: source.Found) -> bool:
        """Decorators of refold only register; another one may read annotations, so they count."""
        decorators = getattr(found.node, "decorator_list", [])
        is_class = isinstance(found.node, ast.ClassDef)
        return not is_class and all(self._registers(one, found.scope) for one in decorators)

    def _registers(self, decorator: ast.expr, scope: Mapping[str, Any]) -> bool:
        while isinstance(decorator, ast.Call):
            decorator = decorator.func
        parts = source.chain(decorator)
        if not parts:
            return False
        thing, _ = source.resolve(parts, scope)
        return source.top(type(thing).__module__) == "refold"

    def _names(self, node: ast.AST, found: source.Found) -> dict[str, object]:
        """What the free names stand for: constants, helpers, classes; builtins are left out."""
        is_class = isinstance(node, ast.ClassDef)
        inner = {} if is_class else source.local_imports(node, found.scope)
        scope = {**found.scope, **inner}
        free = {name for name in source.free_names(node) | set(inner) if name in scope}
        named: dict[str, object] = {}
        for one in ast.walk(node):
            parts = source.chain(one) if isinstance(one, ast.Attribute | ast.Name) else ()
            if parts and parts[0] in free:
                thing, rest = source.resolve(parts, scope)
                named[".".join(parts[: len(parts) - len(rest)])] = thing
        quoted = free - {name.split(".")[0] for name in named}  # in a string annotation
        named.update({name: scope[name] for name in quoted})
        return {name: thing for name, thing in named.items() if self._counts(thing)}

    def _counts(self, thing: object) -> bool:
        return not isinstance(thing, types.ModuleType) and not (
            source.top(type(thing).__module__) == "refold" and not values.is_frozen(type(thing))
        )

    def _shape(self, thing: object) -> str:
        """A class that was made without source text stands by its fields; a function cannot."""
        if not isinstance(thing, type):
            raise DefinitionError(
                Code.DEFINITION_INVALID,
                f"{getattr(thing, '__qualname__', thing)} has no source text that can be read, "
                "so that a change of it would not be noticed.",
                "Put it into a module that is a file.",
            )
        hints = getattr(thing, "__annotations__", {})
        fields = [*hints.items(), getattr(thing, "__struct_defaults__", ())]
        methods = [*source.functions_of(thing)]
        return f"class {thing.__name__} {self.refer(fields)} {self.refer(methods)}"


def _is_bound(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # an empty cell raises
    except ValueError:
        return False
    return True


def _plain_value(value: object) -> str:
    match value:
        case enum.Enum():
            return ""
        case None | bool() | int() | float() | complex() | str() | bytes():
            return syntax.constant(value) if type(value).__module__ == "builtins" else ""
        case _ if isinstance(value, _TOLD):
            return f"{type(value).__name__}:{value}"
        case re.Pattern():
            return f"pattern:{syntax.constant(value.pattern)}:{value.flags}"
        case types.BuiltinFunctionType():
            return f"{_foreign(value)}"
        case _:
            return ""


def _stable(thing: object) -> str:
    """Sorts the members of a set, so that numbers are given in the same order everywhere."""
    if isinstance(thing, tuple | frozenset):
        inner = map(_stable, thing)
        return " ".join(inner if isinstance(thing, tuple) else sorted(inner))
    if isinstance(thing, enum.Enum):
        return f"{type(thing).__qualname__}.{thing.name}"
    return _plain_value(thing) or _foreign(thing)


def _foreign(thing: Any) -> str:
    """A function or class of another package, by name: its package's first part, its own."""
    module = getattr(thing, "__module__", None) or ""
    return f"{_public(module)}:{getattr(thing, '__qualname__', type(thing).__qualname__)}"


def _public(module: str) -> str:
    """`pathlib._local` (3.13) is pathlib; `_functools` is functools."""
    return module.partition(".")[0].lstrip("_")
