"""The user's code as syntax trees, and what the names in it stand for.

Law of this module: it reads source text that Python has already loaded; it runs and imports
nothing of the user's. `purity` and `fingerprint` walk what it finds.
"""

import ast
import builtins
import copy
import functools
import linecache
import symtable
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

from refold.schemas.errors import Code, DefinitionError

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
DEFINED: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
MISSING: Final = object()
"""A name that stands for nothing that can be found without running code."""
_PYTHON: Final = ast.__file__.removesuffix("ast.py")
_TREES: Final = 64  # parsed modules kept: a package's worth, while its graphs register


@dataclass(frozen=True, slots=True)
class Found:
    """The syntax tree of one function or class, with the scope that its free names live in."""

    thing: object
    node: FunctionNode | ast.ClassDef
    file: str
    scope: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Qualified name, for a person."""
        return str(getattr(self.thing, "__qualname__", self.thing))


def top(module: str | None) -> str:
    """The user's package that a module belongs to; refold's examples count as one of their own."""
    parts = (module or "").split(".")
    return ".".join(parts[:2]) if parts[:2] == ["refold", "examples"] else parts[0]


def home(thing: object) -> str:
    """The module that code stands in, whatever a decorator wrote into `__module__`."""
    names = getattr(thing, "__globals__", {})
    module = names.get("__name__", getattr(thing, "__module__", None))
    return module if isinstance(module, str) else ""


def is_users(package: str) -> bool:
    """Whether a top-level package is code of a user: neither Python's, nor refold's.

    A user's package may have a name of Python's (`test`): where its file lies decides.
    """
    if package in sys.stdlib_module_names:
        file = getattr(sys.modules.get(package), "__file__", None)
        return file is not None and not file.startswith(_PYTHON)
    return bool(package) and package != "refold"


def plain(thing: object) -> object:
    """The function behind a method, a descriptor or a cached function; else the thing itself."""
    while True:
        if isinstance(thing, MethodType | staticmethod | classmethod):
            thing = thing.__func__
        elif isinstance(thing, functools._lru_cache_wrapper):
            thing = thing.__wrapped__
        elif isinstance(thing, functools.cached_property):
            thing = thing.func
        else:
            return thing


def find(thing: object) -> Found | None:
    """The syntax tree of a Python function or class; None for anything else or without source.

    Raises:
        DefinitionError: Two lambdas on one line cannot be told apart.
    """
    if isinstance(thing, FunctionType):
        return _find_function(thing)
    return _find_class(thing) if isinstance(thing, type) else None


def functions_of(cls: type) -> Iterator[FunctionType]:
    """Functions that stand in the body of a class: methods, properties, validators."""
    for value in vars(cls).values():
        members = (value.fget, value.fset) if isinstance(value, property) else (value,)
        for member in members:
            function = plain(member)
            if isinstance(function, FunctionType) and _written_in(function, cls):
                yield function


def free_names(node: ast.AST) -> frozenset[str]:
    """Names that a function or class takes from outside itself, builtins included."""
    table = _table(ast.Expr(node) if isinstance(node, ast.Lambda) else node)
    own = {node.name} if isinstance(node, ast.ClassDef) else set()
    return frozenset((_globals_of(table) | _quoted(node)) - own)


def lookup(name: str, scope: Mapping[str, Any]) -> object:
    """What a free name stands for, `MISSING` if it cannot be told."""
    if name in scope:
        return scope[name]
    return getattr(builtins, name, MISSING)


def chain(node: ast.expr) -> tuple[str, ...]:
    """The parts of a dotted name, (`a`, `b`, `c`) for `a.b.c`; empty for other expressions."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else ()


def resolve(parts: tuple[str, ...], scope: Mapping[str, Any]) -> tuple[object, tuple[str, ...]]:
    """Follow a dotted name through modules; the object reached and the parts left over."""
    thing = lookup(parts[0], scope)
    rest = parts[1:]
    while rest and isinstance(thing, ModuleType):
        inner = vars(thing).get(rest[0], MISSING)
        if inner is MISSING:
            inner = sys.modules.get(f"{thing.__name__}.{rest[0]}", MISSING)
        if inner is MISSING:
            break
        thing, rest = inner, rest[1:]
    return thing, rest


def local_imports(node: ast.AST, scope: Mapping[str, Any]) -> dict[str, object]:
    """What imports inside a function bind; a module that is not loaded binds its dotted name."""
    bound: dict[str, object] = {}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Import):
            for alias in inner.names:
                path = alias.name if alias.asname else alias.name.split(".")[0]
                bound[alias.asname or path] = sys.modules.get(path, path)
        elif isinstance(inner, ast.ImportFrom):
            module = absolute(inner, scope)
            for alias in inner.names:
                found = getattr(sys.modules.get(module), alias.name, f"{module}.{alias.name}")
                bound[alias.asname or alias.name] = found
    return bound


def absolute(node: ast.ImportFrom, scope: Mapping[str, Any]) -> str:
    """The full name of the module that a `from … import` names."""
    if not node.level:
        return node.module or ""
    package = str(scope.get("__package__") or "").split(".")
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def module_tree(file: str, scope: Mapping[str, Any] | None = None) -> ast.Module | None:
    """The syntax tree of a loaded module's file; None where there is no source."""
    index = _index(file, scope)
    return index.tree if index else None


@dataclass(frozen=True, slots=True)
class _Index:
    """A module's tree, with its functions by first line and its classes by qualified name."""

    tree: ast.Module
    functions: Mapping[int, list[FunctionNode]]
    classes: Mapping[str, list[ast.ClassDef]]


def _index(file: str, scope: Mapping[str, Any] | None) -> _Index | None:
    text = "".join(linecache.getlines(file, dict(scope) if scope is not None else None))
    return _indexed(text) if text else None


@functools.lru_cache(maxsize=_TREES)
def _indexed(text: str) -> _Index | None:
    tree = _parse(text)
    if tree is None:
        return None  # the file was edited after it was loaded
    functions: dict[int, list[FunctionNode]] = {}
    for node in ast.walk(tree):
        if isinstance(node, DEFINED):
            functions.setdefault(_first_line(node), []).append(node)
    classes: dict[str, list[ast.ClassDef]] = {}
    for name, found in _classes(tree, ""):
        classes.setdefault(name, []).append(found)
    return _Index(tree, functions, classes)


def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


def _first_line(node: FunctionNode) -> int:
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _globals_of(table: symtable.SymbolTable) -> set[str]:
    is_module = table.get_type() == "module"
    names = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (is_module or symbol.is_global())
    }
    for child in table.get_children():
        names |= _globals_of(child)
    return names


def _table(node: ast.AST) -> symtable.SymbolTable:
    try:
        return symtable.symtable(ast.unparse(node), "<node>", "exec")
    except SyntaxError:  # `nonlocal` of a name bound outside the node: as good as global here
        return symtable.symtable(ast.unparse(_Outer().visit(copy.deepcopy(node))), "", "exec")


class _Outer(ast.NodeTransformer):
    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.AST:
        return ast.copy_location(ast.Global(node.names), node)


def _quoted(node: ast.AST) -> set[str]:
    """Names inside the quoted annotations of fields."""
    names: set[str] = set()
    for field in (inner for inner in ast.walk(node) if isinstance(inner, ast.AnnAssign)):
        for part in ast.walk(field.annotation):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                tree = _parse(part.value)
                found = ast.walk(tree) if tree else ()
                names |= {name.id for name in found if isinstance(name, ast.Name)}
    return names


def _written_in(function: FunctionType, cls: type) -> bool:
    generated = function.__code__.co_filename == "<string>"  # a dataclass's own methods
    return home(function) == cls.__module__ and not generated


def _find_function(function: FunctionType) -> Found | None:
    code = function.__code__
    index = _index(code.co_filename, function.__globals__)
    here = index.functions.get(code.co_firstlineno, []) if index else []
    nodes = [node for node in here if getattr(node, "name", "<lambda>") == code.co_name]
    node = nodes[0] if len(nodes) == 1 else _told_apart(nodes, function)
    if node is None:
        return None
    return Found(function, node, code.co_filename, _scope_of(function))


def _scope_of(function: FunctionType) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            cells[name] = cell.cell_contents
        except ValueError:
            continue  # not bound yet: a function defined before what it names
    return {**function.__globals__, **cells}


def _told_apart(nodes: list[FunctionNode], function: FunctionType) -> FunctionNode | None:
    """Which of several lambdas on a line: the smallest whose body spans the code's positions."""
    lambdas = [node for node in nodes if isinstance(node, ast.Lambda)]
    if not lambdas:
        return None
    places = [
        ((line, column), (last, until))
        for line, last, column, until in function.__code__.co_positions()
        if None not in (line, last, column, until) and (column, until) != (0, 0)
    ]
    fitting = [node for node in lambdas if places and _spans(node.body, places)]
    if fitting:
        return min(fitting, key=lambda node: len(ast.unparse(node)))
    if len({ast.dump(node) for node in lambdas}) == 1:
        return lambdas[0]
    raise DefinitionError(
        Code.DEFINITION_INVALID,
        f"Several lambdas stand on line {function.__code__.co_firstlineno} of "
        f"{function.__code__.co_filename} and Python was started without columns.",
        "Put each on a line of its own, or make them functions.",
    )


def _spans(body: ast.expr, places: list[Any]) -> bool:
    start = (body.lineno, body.col_offset)
    end = (body.end_lineno, body.end_col_offset)
    return all(start <= first and last <= end for first, last in places)


def _find_class(cls: type) -> Found | None:
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        return None
    index = _index(file, vars(module))
    nodes = index.classes.get(cls.__qualname__, []) if index else []
    if not nodes:
        return None
    scope = dict(vars(module))
    for function in functions_of(cls):
        scope.update(_scope_of(function))
    return Found(cls, _newest(nodes, cls), file, scope)


def _classes(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield prefix + child.name, child
            yield from _classes(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _classes(child, f"{prefix}{child.name}.<locals>.")
        else:
            yield from _classes(child, prefix)


def _newest(nodes: list[ast.ClassDef], cls: type) -> ast.ClassDef:
    """Of several classes of one name: the one that holds its methods' lines, else the last."""
    lines = [function.__code__.co_firstlineno for function in functions_of(cls)]
    for node in reversed(nodes):
        if lines and all(node.lineno <= line <= (node.end_lineno or line) for line in lines):
            return node
    return nodes[-1]
