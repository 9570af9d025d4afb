"""Where code lets the order of a set show: it differs from one process to the next.

Law of this module: a judgement over one syntax tree. An expression is a set when it is built as
one, annotated as one, or named for one; unknown expressions are not sets.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from refold.processors import source

_MAKERS: Final = frozenset({"set", "frozenset"})
_ANNOTATED: Final = frozenset(
    {"set", "frozenset", "Set", "FrozenSet", "AbstractSet", "MutableSet", "KeysView"}
)
_SET_METHODS: Final = frozenset(
    {"union", "intersection", "difference", "symmetric_difference", "copy"}
)
_SHOWING: Final = frozenset(
    {"list", "tuple", "enumerate", "zip", "iter", "map", "filter", "str", "repr", "sum", "dict"}
    | {"deque", "chain", "islice", "reduce", "join", "extend", "fromkeys", "format", "accumulate"}
)
"""Calls whose result depends on the order of a set that is given to them."""
_BLIND: Final = frozenset({"sorted", "len", "any", "all", "set", "frozenset", "bool", "Counter"})
"""Calls whose result does not depend on the order of what is given to them."""


@dataclass(frozen=True, slots=True)
class Use:
    """A place where the order of a set shows."""

    node: ast.AST
    found: str


def unordered(root: ast.AST, scope: Mapping[str, Any]) -> Iterator[Use]:
    """Each place in a function or class that depends on the order of a set."""
    sets = _Sets(root, scope)
    blind: set[int] = set()
    for node in ast.walk(root):
        if isinstance(node, ast.Call) and _called(node) in _BLIND | {"min", "max"}:
            keyed = any(keyword.arg == "key" for keyword in node.keywords)
            stable = _called(node) in _BLIND or not keyed
            blind.update(id(argument) for argument in node.args if stable)
        found = _shown(node, sets, blind)
        if found:
            yield Use(node, f"depends on set order ({found})")


def _shown(node: ast.AST, sets: "_Sets", blind: set[int]) -> str:  # noqa: PLR0911 (one a shape)
    match node:
        case ast.For(iter=over) | ast.YieldFrom(value=over) if sets.holds(over):
            return "for"
        case ast.ListComp() | ast.DictComp() | ast.GeneratorExp() if id(node) not in blind:
            return "comprehension" if sets.holds(node.generators[0].iter) else ""
        case ast.Starred(value=inner, ctx=ast.Load()) if sets.holds(inner):
            return "unpacking"
        case ast.Assign(targets=[ast.Tuple() | ast.List()], value=value) if sets.holds(value):
            return "unpacking"
        case ast.FormattedValue(value=value) if sets.holds(value):
            return "text of a set"
        case ast.Call():
            return _shown_by_call(node, sets)
        case _:
            return ""


def _shown_by_call(node: ast.Call, sets: "_Sets") -> str:
    name = _called(node)
    if name == "pop" and isinstance(node.func, ast.Attribute) and sets.holds(node.func.value):
        return "pop"
    keyed = name in {"min", "max"} and any(keyword.arg == "key" for keyword in node.keywords)
    if name in _SHOWING or keyed:
        return name if any(sets.holds(argument) for argument in node.args) else ""
    return ""


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


class _Sets:
    """Which expressions of one function are sets."""

    def __init__(self, root: ast.AST, scope: Mapping[str, Any]) -> None:
        self._scope = scope
        self._locals: dict[str, bool] = {}
        for node in ast.walk(root):
            self._bind(node)
        for node in ast.walk(root):  # again: a name may be bound to a later one
            self._bind(node)

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.arg):
            self._locals[node.arg] = _says_set(node.annotation)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            self._locals[node.target.id] = _says_set(node.annotation)
        elif isinstance(node, ast.Assign | ast.NamedExpr):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    self._locals[target.id] = self.holds(node.value)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            self._locals.setdefault(node.id, False)

    def holds(self, node: ast.expr) -> bool:  # noqa: PLR0911 (one a shape)
        """Whether an expression is known to be a set."""
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.BinOp(left=left, right=right, op=ast.BitOr() | ast.BitAnd() | ast.BitXor()):
                return any(self.holds(side) or _is_view(side) for side in (left, right))
            case ast.BinOp(left=left, op=ast.Sub()):
                return self.holds(left) or _is_view(left)
            case ast.IfExp(body=body, orelse=orelse):
                return self.holds(body) or self.holds(orelse)
            case ast.Call(func=ast.Name(id=name)):
                return name in _MAKERS and name not in self._locals
            case ast.Call(func=ast.Attribute(value=value, attr=method)):
                return method in _SET_METHODS and self.holds(value)
            case ast.Name(id=name) if name in self._locals:
                return self._locals[name]
            case ast.Name() | ast.Attribute():
                return self._named(node)
            case _:
                return False

    def _named(self, node: ast.expr) -> bool:
        parts = source.chain(node)
        if not parts or parts[0] in self._locals:
            return False
        thing, rest = source.resolve(parts, self._scope)
        return not rest and isinstance(thing, set | frozenset)


def _is_view(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _called(node) in {"keys", "items"}


def _says_set(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    parts = source.chain(annotation) if annotation is not None else ()
    return bool(parts) and parts[-1] in _ANNOTATED
