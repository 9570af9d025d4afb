"""Which command types a state may send, found before anything runs.

Law of this module: reads code objects and annotations, runs no user's function. What cannot be
found must be declared with `StateGraph.command`; nothing is guessed at run time.
"""

from collections.abc import Iterator, Mapping
from inspect import signature, unwrap
from types import CellType, CodeType, FunctionType, ModuleType, NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from refold.processors.spec import Function, Spec, Start, start
from refold.schemas.types import Command, Event

_DEPTH: Final = 8
"""Helpers of helpers that are followed; deeper code annotates its send or declares its types."""
_NO_COMMAND: Final = frozenset({NoneType, object, list, tuple, Command})
"""Annotations that do not say which command it is."""


def command_types(spec: Spec) -> tuple[type, ...]:
    """Every command type of a graph: declared ones first, then found ones in order."""
    found: dict[type, None] = {one.type: None for one in spec.commands}
    for entry in spec.entries:
        found.update(dict.fromkeys(sent_types(spec, entry.send)))
    found.update(dict.fromkeys(undoing_types(spec)))
    found.pop(Start, None)
    return tuple(found)


def undoing_types(spec: Spec) -> tuple[type, ...]:
    """Command types that undo others, in order of declaration."""
    undo = (one.compensate for one in spec.commands if one.compensate is not None)
    return tuple(dict.fromkeys(kind for one in undo for kind in sent_types(spec, one)))


def targets_of(spec: Spec) -> Mapping[type, str]:
    """Where each command type goes: what undoes goes where that went which it undoes."""
    declared = {one.type: one.target for one in spec.commands if one.target is not None}
    undoing: dict[type, str] = {}
    for one in spec.commands:
        if one.compensate is not None:
            target = declared.get(one.type, spec.name)
            undoing |= dict.fromkeys(sent_types(spec, one.compensate), target)
    return dict.fromkeys(command_types(spec), spec.name) | undoing | declared


def undoable_answers(spec: Spec) -> frozenset[type]:
    """Events that answer commands which can be undone."""
    return frozenset(kind for one in spec.commands if one.compensate for kind in one.answers)


def sent_types(spec: Spec, send: Function) -> tuple[type, ...]:
    """Command types that one `send` may return: by its return annotation, else by its code.

    `Start` stands for every child workflow.
    """
    annotated = [one for one, _ in annotated_types(send)]
    if annotated:
        return tuple(dict.fromkeys(annotated))
    declared = {one.type for one in spec.commands}
    return tuple(
        dict.fromkeys(
            one
            for one in _named(send, set(), 0)
            if issubclass(one, Command) or one in declared or one is Start
        )
    )


def sent_event(spec: Spec, send: Function) -> type | None:
    """An event type in the place of a command: annotated, or all that the code names."""
    annotated = [one for one, _ in annotated_types(send)]
    named = annotated or (() if sent_types(spec, send) else _named(send, set(), 0))
    return next((one for one in named if issubclass(one, Event)), None)


def annotated_types(send: Function) -> list[tuple[type, bool]]:
    """(type, many) for each command type in the return annotation; many: inside a collection."""
    try:
        hints = get_type_hints(send)
    except (NameError, TypeError, AttributeError):
        return []
    return list(_leaves(hints.get("return"), many=False))


def _leaves(hint: Any, *, many: bool) -> Iterator[tuple[type, bool]]:
    inner, origin = get_args(hint), get_origin(hint)
    if isinstance(hint, type) and not inner:
        if hint not in _NO_COMMAND:
            yield hint, many
        return
    if origin in (Union, UnionType):  # `list[Reserve | Tell]` may well be one of each
        inner = tuple(one for one in inner if one is not NoneType)
        many = many and len(inner) == 1
    else:  # `tuple[Reserve, Tell]` is one each, `tuple[Reserve, ...]` and `list[Reserve]` many
        many = origin is not tuple or Ellipsis in inner
    for one in inner:
        if one is not Ellipsis:
            yield from _leaves(one, many=many)


def _named(function: Any, seen: set[int], depth: int) -> Iterator[type]:
    """Classes that a function's code names, through the helpers of its own package."""
    function = unwrap(function) if callable(function) else function
    if not isinstance(function, FunctionType) or id(function) in seen or depth > _DEPTH:
        return
    seen.add(id(function))
    for value in _values(function):
        if isinstance(value, type):
            yield value
        elif value is start:
            yield Start
        elif isinstance(value, FunctionType) and _near(function, value):
            yield from _named(value, seen, depth + 1)


def _values(function: FunctionType) -> Iterator[Any]:
    """What the names in a function's code stand for, `module.Name` included."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    known = {name: cell.cell_contents for name, cell in cells if _filled(cell)}
    names = tuple(dict.fromkeys(_names(function.__code__)))
    for name in names:
        value = known.get(name, function.__globals__.get(name))
        if isinstance(value, ModuleType):
            yield from (vars(value)[one] for one in names if one in vars(value))
        elif value is not None:
            yield value


def _filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # a variable that is assigned later
        return False


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_freevars
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _near(one: FunctionType, other: FunctionType) -> bool:
    """True within one top-level package."""
    return one.__module__.partition(".")[0] == other.__module__.partition(".")[0]


def positional_count(function: Function) -> int | None:
    """Positional parameters without a default; None when it cannot be told."""
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds = (0, 1)  # POSITIONAL_ONLY, POSITIONAL_OR_KEYWORD
    return sum(int(one.kind) in kinds for one in parameters)
