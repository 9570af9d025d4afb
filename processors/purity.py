"""What a reducer must not do: a static check of its code, and a guard while it runs.

Law of this module: it judges code without running it (`faults`), and sees calls while they
run (`guard`); it changes nothing. The rule it keeps is O2: the same events give the same
state and commands in any process, on any day, under any hash seed, time zone and locale.
"""

import ast
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import BuiltinFunctionType, CodeType, FrameType, ModuleType
from typing import Any, Final

import msgspec

from refold.processors import orders, source, values
from refold.processors.forbidden import CURES, Kind, kind_of, running_kind
from refold.processors.source import Found
from refold.schemas.errors import Code, DefinitionError

_EXCEPTION_TEXT: Final = frozenset({"repr", "str", "format", "ascii"})
_LOCALE_CODES: Final = ("%a", "%A", "%b", "%B", "%c", "%x", "%X", "%p")


class Fault(msgspec.Struct, frozen=True, order=True):
    """One place in the user's code that makes a fold differ from its replay."""

    file: str
    line: int
    function: str
    """Qualified name of the function or class that holds the line."""
    found: str
    """What stands there, to be read after "it": `reads the clock (datetime.datetime.now)`."""
    cure: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.function} {self.found}. {self.cure}"


def faults(function: object, *, package: str | None = None) -> tuple[Fault, ...]:
    """What makes a function, or a context, event or command class, unfit for the fold.

    Walks the code and what it names inside the same top-level package: helpers, classes,
    module constants. Code of other packages is judged by name only; what hides there is
    found by `guard` and by `refold.processors.seeds.two_seeds`.

    Args:
        function: A reducer, guard, `send`, invariant, or a class.
        package: The user's package; by default the one that `function` stands in.

    Raises:
        DefinitionError: Two lambdas on one line cannot be told apart.
    """
    roots = list(_unwrapped(function))
    users = [source.top(source.home(root)) for root in roots]
    known = package or next((one for one in users if source.is_users(one)), "")
    found: set[Fault] = set(_foreign(roots))
    seen: dict[int, object] = {}  # an id is a name only while its object lives
    queue = deque(roots)
    while queue:
        thing = queue.popleft()
        if id(thing) in seen or source.top(source.home(thing)) != known:
            continue
        seen[id(thing)] = thing
        place = source.find(thing)
        if place is not None:
            check = _Check(place, known)
            check.run()
            found |= set(check.faults)
            queue.extend(check.reached)
    return tuple(sorted(found))


@contextmanager
def guard(name: str = "the fold", *, collect: bool = False) -> Iterator[list[str]]:
    """Watch the calls made inside the block; at its end, raise if one of them is impure.

    For tests and replay: it slows Python code down several times. Yields the list of what was
    seen, which grows while the block runs; a reducer that swallows exceptions cannot hide.

    Args:
        name: Who runs, for the message: a reducer's qualified name.
        collect: Do not raise; the caller reads the list.

    Raises:
        DefinitionError: `IMPURE_REDUCER`, with the calls that were seen.
    """
    seen: list[str] = []
    before = sys.getprofile()

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        kind = running_kind(frame.f_code if event == "call" else argument, event)
        if kind is not None and not _importing(frame):
            seen.append(f"{kind} ({_called(frame.f_code if event == 'call' else argument)})")

    sys.setprofile(watch)
    try:
        yield seen
    except BaseException as error:
        sys.setprofile(before)
        if seen and not collect:
            raise _impure(name, seen) from error
        raise
    sys.setprofile(before)
    if seen and not collect:
        raise _impure(name, seen)


def _impure(name: str, seen: list[str]) -> DefinitionError:
    return DefinitionError(
        Code.IMPURE_REDUCER,
        f"{name} {', '.join(dict.fromkeys(seen))} while it folds.",
        "Take time, ids and chance from the event and the step: step.time, step.new_id(), "
        "step.random().",
    )


def _called(what: object) -> str:
    if isinstance(what, CodeType):
        return what.co_qualname
    return str(getattr(what, "__qualname__", what))


def _importing(frame: FrameType | None) -> bool:
    """A first import reads files, a first `strptime` the locale: that is Python's business."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith("<frozen importlib") or file.endswith(("_strptime.py", "_strptime>")):
            return True
        frame = frame.f_back
    return False


def _unwrapped(thing: object) -> Iterator[object]:
    """The code behind a callable: of a partial, of a decorated function, of an object's method."""
    while isinstance(thing, partial):
        for value in (*thing.args, *thing.keywords.values()):
            yield from _code_in(value)
        thing = thing.func
    wrapped = getattr(thing, "__wrapped__", None)
    if wrapped is not None:
        yield from _unwrapped(wrapped)
    owner = getattr(thing, "__self__", None)
    if owner is not None and not isinstance(owner, ModuleType):
        yield from _code_in(owner)
    yield from _code_in(source.plain(thing))


def _code_in(value: object) -> Iterator[object]:
    """Functions and classes that a value holds; the class of an object stands for its methods."""
    for part in values.parts_of(value):
        if isinstance(part, partial):
            yield from _unwrapped(part)
            continue
        bare = source.plain(part)
        is_code = isinstance(bare, type | BuiltinFunctionType) or hasattr(bare, "__code__")
        yield bare if is_code else type(bare)


def _foreign(roots: list[object]) -> Iterator[Fault]:
    """A function of Python's that is given as it is: `guard=random.random`."""
    for root in roots:
        kind = kind_of(root, ()) if not source.is_users(source.top(source.home(root))) else None
        if kind is not None and not isinstance(root, ModuleType):
            name = str(getattr(root, "__qualname__", root))
            yield Fault("", 0, name, str(kind), CURES[kind])


class _Check:
    """One function or class under the check: its faults, and what it reaches."""

    def __init__(self, place: Found, package: str) -> None:
        self.place = place
        self.package = package
        self.faults: list[Fault] = []
        self.reached: list[object] = []
        self.free = source.free_names(place.node)
        self.scope: Mapping[str, Any] = {
            **place.scope,
            **source.local_imports(place.node, place.scope),
        }
        self.local_names = set(source.local_imports(place.node, place.scope))

    def run(self) -> None:
        """Walk the tree once for names, once for the order of sets."""
        if isinstance(self.place.thing, type):
            self.reached.extend(source.functions_of(self.place.thing))
        for node in _body(self.place.node):
            self._visit(node)
        self._defaults()
        for use in orders.unordered(self.place.node, self.scope):
            self._fault(use.node, use.found, CURES[Kind.ORDER])

    def _defaults(self) -> None:
        """A default that may change, or an owner of a method: memory between two calls."""
        thing = self.place.thing
        kept = [*(getattr(thing, "__defaults__", None) or ())]
        kept += (getattr(thing, "__kwdefaults__", None) or {}).values()
        for value in kept:
            if not values.is_immutable(value):
                text = f"keeps a {type(value).__name__} as a default that may change"
                self._fault(self.place.node, text, CURES[Kind.GLOBAL])

    def _visit(self, node: ast.AST) -> None:
        self._statement(node)
        if isinstance(node, ast.Attribute | ast.Name):
            parts = source.chain(node)
            if parts and (parts[0] in self.free or parts[0] in self.local_names):
                if len(parts) > 1 and not isinstance(node.ctx, ast.Load):
                    self._fault(node, f"assigns {'.'.join(parts)}", CURES[Kind.GLOBAL])
                self._name(node, parts)
                return
        if isinstance(node, ast.Call):
            self._call(node)
        for child in ast.iter_child_nodes(node):
            self._visit(child)

    def _statement(self, node: ast.AST) -> None:
        match node:
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                self._kind(node, Kind.ASYNC)
            case ast.Global():
                self._fault(node, f"assigns the global {', '.join(node.names)}", CURES[Kind.GLOBAL])
            case ast.Nonlocal(names=names) if set(names) & set(self._cells()):
                self._fault(node, f"assigns {', '.join(names)} outside", CURES[Kind.GLOBAL])
            case ast.ExceptHandler(name=str(name)):
                self._error_text(node, name)
            case ast.FormattedValue(format_spec=ast.JoinedStr(values=[ast.Constant(value=str(s))])):
                if s.endswith("n"):
                    self._fault(node, "formats a number by locale", CURES[Kind.LOCALE])
            case _:
                pass

    def _cells(self) -> tuple[str, ...]:
        code = getattr(self.place.thing, "__code__", None)
        return code.co_freevars if isinstance(code, CodeType) else ()

    def _error_text(self, handler: ast.ExceptHandler, name: str) -> None:
        """The text of an exception differs between Python's patch versions and holds addresses."""
        for node in ast.walk(handler):
            shown: ast.expr | None = None
            if isinstance(node, ast.FormattedValue):
                shown = node.value
            elif isinstance(node, ast.Call) and source.chain(node.func)[:1] and node.args:
                called = source.chain(node.func)
                shown = node.args[0] if called[-1] in _EXCEPTION_TEXT else None
            if isinstance(shown, ast.Name) and shown.id == name:
                self._kind(node, Kind.ERROR_TEXT)

    def _call(self, node: ast.Call) -> None:
        """Methods that read the machine's zone or locale when called in one of their ways."""
        if not isinstance(node.func, ast.Attribute):
            return
        method, arguments = node.func.attr, [*node.args, *node.keywords]
        if method == "astimezone" and not arguments:
            self._fault(node, "reads the machine's time zone (astimezone)", CURES[Kind.CLOCK])
        form = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ""
        if method == "strftime" and any(code in str(form) for code in _LOCALE_CODES):
            self._fault(node, "formats a time by locale (strftime)", CURES[Kind.LOCALE])
        if method == "fromtimestamp" and len(arguments) < 2:
            self._fault(node, "reads the machine's time zone (fromtimestamp)", CURES[Kind.CLOCK])

    def _name(self, node: ast.expr, parts: tuple[str, ...]) -> None:
        thing, rest = source.resolve(parts, self.scope)
        if thing is source.MISSING:
            return
        kind = kind_of(thing, rest)
        if kind is not None:
            self._kind(node, kind, ".".join(parts))
        elif isinstance(thing, str) and parts[0] in self.local_names:
            self._fault(node, f"imports {thing}, which is not loaded", CURES[Kind.IMPORT])
        else:
            self._follow(node, parts[: len(parts) - len(rest)], thing)

    def _follow(self, node: ast.expr, parts: tuple[str, ...], thing: object) -> None:
        if isinstance(thing, ModuleType):
            return
        self.reached.extend(_unwrapped(thing) if callable(thing) else _code_in(thing))
        bare = source.plain(thing)
        if isinstance(bare, type) or hasattr(bare, "__code__"):
            return
        if not values.is_immutable(thing):
            text = f"uses {'.'.join(parts)}, a {type(thing).__name__} that may change"
            self._fault(node, text, CURES[Kind.GLOBAL])
        self._constant(node, parts)

    def _constant(self, node: ast.expr, parts: tuple[str, ...]) -> None:
        """A module constant that was computed from the clock or the environment at import."""
        holder = self._holder(parts)
        if holder is None:
            return
        module, name = holder
        for value in _assigned(module, name):
            for inner in ast.walk(value):
                named = source.chain(inner) if isinstance(inner, ast.Attribute | ast.Name) else ()
                if not named:
                    continue
                kind = kind_of(*source.resolve(named, vars(module)))
                if kind not in (None, Kind.GLOBAL):
                    text = f"uses {'.'.join(parts)}, which {kind} at import ({'.'.join(named)})"
                    self._fault(node, text, CURES[kind])
                    return

    def _holder(self, parts: tuple[str, ...]) -> tuple[ModuleType, str] | None:
        if len(parts) == 1 and parts[0] not in self._cells():
            module = sys.modules.get(source.home(self.place.thing))
        else:
            outer, rest = source.resolve(parts[:-1], self.scope) if parts[1:] else (None, ())
            module = outer if isinstance(outer, ModuleType) and not rest else None
        if module is None or source.top(module.__name__) != self.package:
            return None
        return module, parts[-1]

    def _kind(self, node: ast.AST, kind: Kind, name: str = "") -> None:
        self._fault(node, f"{kind} ({name})" if name else str(kind), CURES[kind])

    def _fault(self, node: ast.AST, found: str, cure: str) -> None:
        line = getattr(node, "lineno", self.place.node.lineno)
        self.faults.append(Fault(self.place.file, line, self.place.name, found, cure))


def _body(node: source.FunctionNode | ast.ClassDef) -> Iterator[ast.AST]:
    """What runs when the code runs: not the decorators that register it, nor annotations."""
    if isinstance(node, ast.ClassDef):
        methods = (ast.FunctionDef, ast.AsyncFunctionDef)  # reached as functions of their own
        yield from node.bases
        yield from (child for child in node.body if not isinstance(child, methods))
        return
    yield node.args
    if isinstance(node, ast.Lambda):
        yield node.body
        return
    if isinstance(node, ast.AsyncFunctionDef):
        yield ast.copy_location(ast.Await(ast.Constant(None)), node)
    yield from node.body


def _assigned(module: ModuleType, name: str) -> Iterator[ast.expr]:
    file = getattr(module, "__file__", None)
    tree = source.module_tree(file, vars(module)) if file else None
    for node in tree.body if tree else ():
        match node:
            case ast.Assign(targets=targets, value=value):
                named = [target.id for target in targets if isinstance(target, ast.Name)]
                yield from [value] if name in named else []
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value):
                yield from [value] if name == target else []
            case _:
                pass
