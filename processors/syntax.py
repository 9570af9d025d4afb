"""Syntax trees as text that is equal for code that means the same.

Law of this module: what a formatter, a comment, a docstring or another Python version (3.11 to
3.13) changes does not show; every constant, operator, name and default does.
"""

import ast
import copy
from collections.abc import Iterator
from typing import Any, Final

_SILENT: Final = frozenset(
    {"ctx", "kind", "type_comment", "type_ignores", "lineno", "col_offset"}
    | {"end_lineno", "end_col_offset"}
)
"""Fields that say nothing about behaviour."""


def text_of(node: ast.AST) -> str:
    """One line of ASCII that stands for a tree."""
    if isinstance(node, ast.Constant):
        return constant(node.value)
    parts = [type(node).__name__, *(f"{name}={_value(value)}" for name, value in _fields(node))]
    return f"({' '.join(parts)})"


def bare(node: ast.AST) -> ast.AST:
    """A function without its decorators and annotations, for where nobody reads them."""
    return _Bare().visit(copy.deepcopy(node))  # type: ignore[no-any-return]  # typeshed says Any


class _Bare(ast.NodeTransformer):
    """Takes away what says nothing at run time; classes inside keep theirs, which are fields."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Drop decorators and the annotation of the result."""
        node.decorator_list, node.returns = [], None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        """Drop the annotation."""
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """`x: int = 1` is `x = 1`, and `x: int` alone is nothing."""
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Leave classes alone."""
        return node


def _fields(node: ast.AST) -> Iterator[tuple[str, Any]]:
    for name, value in ast.iter_fields(node):
        if name in _SILENT or value is None:
            continue
        kept = _kept(node, name, value) if isinstance(value, list) else value
        if kept != []:
            yield name, kept
    if isinstance(node, ast.MatchSingleton) and node.value is None:
        yield "value", None


def _kept(node: ast.AST, name: str, items: list[Any]) -> list[Any]:
    if name in {"body", "orelse", "finalbody"}:
        return [item for item in items if not _does_nothing(item)]
    if isinstance(node, ast.JoinedStr):
        return list(_joined(items))
    if isinstance(node, ast.Delete):  # `del (a, b)` is `del a, b`
        return [part for item in items for part in getattr(item, "elts", [item])]
    return items


def _does_nothing(statement: ast.AST) -> bool:
    """Docstrings, `...` and `pass`."""
    is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_constant or isinstance(statement, ast.Pass)


def _joined(parts: list[ast.expr]) -> Iterator[ast.expr]:
    """Texts that stand side by side in an f-string are one text, whoever split them."""
    text = ""
    for part in parts:
        if isinstance(part, ast.Constant):
            text += str(part.value)
            continue
        if text:
            yield ast.Constant(text)
            text = ""
        yield part
    if text:
        yield ast.Constant(text)


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{' '.join(_value(item) for item in value)}]"
    if isinstance(value, ast.AST):
        return text_of(value)
    return constant(value)


def constant(value: object) -> str:
    """A plain value as text: its type and what it is, free of Unicode tables and digit limits."""
    match value:
        case bool() | None | float() | complex():
            return f"{type(value).__name__}:{value!r}"
        case int():
            return f"int:{value:x}"
        case str():
            return f"str:{value.encode('unicode_escape')!r}"
        case bytes():
            return f"bytes:{value.hex()}"
        case _:
            return type(value).__name__  # Ellipsis
