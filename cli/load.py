"""From `MODULE:NAME` on a command line to checked workflows.

Law of this module: whatever is wrong with the user's module becomes one error that names the
place; a traceback of refold's is never the answer.
"""

import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from refold.executors.executor import Executor
from refold.processors.definition import Definition, Workflow
from refold.processors.graph import StateGraph
from refold.processors.schedules import Schedules
from refold.schemas.errors import Code, DefinitionError, RefoldError, UsageError
from refold.schemas.types import Event


def load_workflows(specs: Sequence[str]) -> dict[str, Workflow]:
    """Import, check and gather definitions by workflow.

    Args:
        specs: `MODULE:NAME` each; NAME is a `StateGraph`, `Schedules`, a `Definition`, or a list
            or tuple of them (the versions of one workflow, or several workflows). Modules are
            looked for in the working directory too.

    Raises:
        UsageError: A spec that is not `MODULE:NAME`.
        DefinitionError: The module does not import, the name is not there or is something else,
            a graph does not check, one version stands twice.
    """
    found: dict[str, list[Definition]] = {}
    for spec in specs:
        for definition in load_definitions(spec):
            versions = found.setdefault(definition.name, [])
            if definition not in versions:  # the same object named twice is no harm
                versions.append(definition)
    return {name: Workflow(name, versions) for name, versions in found.items()}


def load_executor(spec: str) -> Executor:
    """The executor that `MODULE:NAME` stands for; errors as `load_workflows`."""
    thing = _thing(spec)
    if not isinstance(thing, Executor):
        raise DefinitionError(
            Code.DEFINITION_INVALID,
            f"{spec} is a {type(thing).__name__}, not an Executor.",
            "Name the Executor whose `action` declares the handlers.",
        )
    return thing


def load_event(spec: str) -> type:
    """The event class that `MODULE:NAME` stands for; errors as `load_workflows`."""
    thing = _thing(spec)
    if not (isinstance(thing, type) and issubclass(thing, Event)):
        raise DefinitionError(
            Code.DEFINITION_INVALID,
            f"{spec} is no event.",
            "Name the class of an Event, as in shop.order:Charged.",
        )
    return thing


def load_definitions(spec: str) -> tuple[Definition, ...]:
    """The definitions that one `MODULE:NAME` stands for; errors as `load_workflows`."""
    return tuple(_definitions(spec, _thing(spec)))


def _thing(spec: str) -> object:
    module_name, colon, name = spec.partition(":")
    if "/" in module_name or module_name.endswith(".py"):
        parts = [part for part in Path(module_name.removesuffix(".py")).parts if part != "/"]
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            f"{spec!r} names a file, not a module.",
            f"Write {'.'.join(parts)}:{name or 'NAME'}.",
        )
    if not (module_name and colon and name):
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            f"{spec!r} does not name a definition.",
            "Write MODULE:NAME, as in shop.order:order.",
        )
    return _named(_imported(module_name), name)


def _definitions(spec: str, thing: object) -> Iterator[Definition]:
    if isinstance(thing, Definition):
        yield thing
    elif isinstance(thing, StateGraph | Schedules):
        yield _built(spec, thing)
    elif isinstance(thing, list | tuple) and thing:
        for one in thing:
            yield from _definitions(spec, one)
    else:
        what = "a class" if isinstance(thing, type) else f"a {type(thing).__name__}"
        what = "an empty list" if isinstance(thing, list | tuple) else what
        raise DefinitionError(
            Code.DEFINITION_INVALID,
            f"{spec} is {what}, not a definition.",
            "Name a StateGraph, Schedules, what their build() gave, or a list of them.",
        )


def _built(spec: str, graph: StateGraph[Any] | Schedules) -> Definition:
    try:
        return graph.build()
    except RefoldError:
        raise
    except Exception as error:
        raise _broken(spec, "cannot be built", error) from error


def _imported(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except RefoldError:
        raise
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise DefinitionError(
                Code.DEFINITION_NOT_FOUND,
                f"There is no module {name!r}.",
                f"It is looked for in {here} and where Python looks: check the name, or install "
                "the package.",
            ) from error
        raise _broken(name, "does not import", error) from error
    except (Exception, SystemExit) as error:
        raise _broken(name, "does not import", error) from error


def _broken(name: str, how: str, error: BaseException) -> DefinitionError:
    """The user's own exception, with the deepest line that is not Python's import machinery."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "importlib" not in frame.filename]
    place = (error.filename, error.lineno) if isinstance(error, SyntaxError) else None
    if place is None and own:
        place = (own[-1].filename, own[-1].lineno)
    where = f" ({place[0]}:{place[1]})" if place else ""
    return DefinitionError(
        Code.DEFINITION_NOT_FOUND,
        f"{name} {how}: {type(error).__name__}: {error}{where}.",
        "Mend the module: it must import without refold too.",
    )


def _named(module: ModuleType, name: str) -> object:
    thing: object = module
    for part in name.split("."):
        try:
            thing = getattr(thing, part)
        except AttributeError:
            raise DefinitionError(
                Code.DEFINITION_NOT_FOUND,
                f"{module.__name__} has no {name!r}.",
                _choice(_graphs(module)),
            ) from None
    return thing


def _graphs(module: ModuleType) -> Iterable[str]:
    return (
        name
        for name, thing in vars(module).items()
        if isinstance(thing, StateGraph | Schedules | Definition)
    )


def _choice(names: Iterable[str]) -> str:
    listed = ", ".join(sorted(names))
    return f"Graphs in it: {listed}." if listed else "There is no graph in that module."
