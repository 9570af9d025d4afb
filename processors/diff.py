"""What changed from one definition to another, for the person who reviews a new version.

Law of this module: two definitions in, a list of changes out, in one fixed order. Code is
compared by fingerprint, function by function, as the fold would see it.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from refold.processors.definition import Definition
from refold.processors.fingerprint import code_fingerprint
from refold.processors.form import called
from refold.processors.outline import Box, guard_words, outline


class How(StrEnum):
    """What happened to a part."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class Change(msgspec.Struct, frozen=True):
    """One difference; `before` and `after` are words for a person, empty where there is none."""

    how: How
    part: str
    """state, transition, sends, command, policy, invariant, upcaster, setting or code."""
    name: str
    before: str = ""
    after: str = ""


def diff(old: Definition, new: Definition) -> tuple[Change, ...]:
    """Compare two definitions: states, transitions, commands, policies, settings, code."""
    changes: list[Change] = []
    for part, told in _PARTS.items():
        changes += _compared(part, told(old), told(new))
    return tuple(changes)


def _compared(part: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Change]:
    for name in [*old, *(name for name in new if name not in old)]:
        before, after = old.get(name), new.get(name)
        if before is None or after is None:
            if part != "code":  # a function comes and goes with its place
                how = How.ADDED if before is None else How.REMOVED
                yield Change(how, part, name, before or "", after or "")
        elif before != after:
            yield Change(How.CHANGED, part, name, before, after)


def _states(definition: Definition) -> dict[str, str]:
    return {box.state: _described(box) for box in outline(definition).boxes}


def _described(box: Box) -> str:
    words = [word for word, is_so in (("initial", box.initial), ("final", box.final)) if is_so]
    return ", ".join([*words, *([box.status.replace("_", " ")] if box.status else [])])


def _transitions(definition: Definition) -> dict[str, str]:
    told: dict[str, str] = {}
    for row in definition.rows():
        for one in row.transitions:
            guard = f" [{guard_words(one.guard)}]" if one.guard else ""
            told[one.id] = ("→ " + one.target if one.enters else "stays") + guard
    return told


def _sends(definition: Definition) -> dict[str, str]:
    boxes = outline(definition).boxes
    return {box.state: ", ".join(one.command for one in box.sends) for box in boxes if box.sends}


def _commands(definition: Definition) -> dict[str, str]:
    return {
        one.name: f"to {one.target} as {one.action}" + (f" for each {one.each}" * bool(one.each))
        for one in definition.commands.values()
    }


def _policies(definition: Definition) -> dict[str, str]:
    told: dict[str, str] = {}
    for box in outline(definition).boxes:
        told |= {f"{box.state}/{event}": "deferred" for event in box.deferred}
        told |= {f"{box.state}/{event}": "already" for event in box.already}
        told |= {f"{box.state}/{event}": f"late: {policy}" for event, policy in box.late}
    return told


def _invariants(definition: Definition) -> dict[str, str]:
    return {
        one.name: "everywhere" if one.states is None else ", ".join(one.states)
        for one in definition.invariants
    }


def _upcasters(definition: Definition) -> dict[str, str]:
    spec = definition.spec
    told = {f"{one.type.__name__} {one.sequence}": called(one.lift) for one in spec.upcasters}
    told |= {f"context {one.sequence}": called(one.lift) for one in spec.context_upcasters}
    return {name: lift or "" for name, lift in told.items()}


def _settings(definition: Definition) -> dict[str, str]:
    limits = msgspec.to_builtins(definition.limits).items()
    told = {f"limits.{name}": str(value) for name, value in limits}
    told["dedup"] = str(definition.spec.dedup)
    told["tenant"] = definition.spec.tenant
    told["context"] = definition.context.__name__
    return told


def _code(definition: Definition) -> dict[str, str]:
    """Short fingerprints of every function and class, under the name of their place."""
    spec = definition.spec
    things: dict[str, object] = {f"context {spec.context.__name__}": spec.context}
    things |= {f"event {kind.__name__}": kind for kind in spec.events()}
    things |= {f"command {kind.__name__}": kind for kind in definition.commands}
    for row in definition.rows():
        for one in row.transitions:
            things |= {f"reducer of {one.id}": one.reducer, f"guard of {one.id}": one.guard}
    for index, entry in enumerate(spec.entries):
        before = sum(other.state == entry.state for other in spec.entries[:index])
        things[f"send of {entry.state}/{before}"] = entry.send
    things |= {f"invariant {one.name}": one.holds for one in spec.invariants}
    things |= {
        f"upcaster of {one.type.__name__} {one.sequence}": one.lift for one in spec.upcasters
    }
    things |= {f"context from version {one.sequence}": one.lift for one in spec.context_upcasters}
    return {
        name: code_fingerprint(thing)[:12] for name, thing in things.items() if thing is not None
    }


_PARTS: Final = {
    "state": _states,
    "transition": _transitions,
    "sends": _sends,
    "command": _commands,
    "policy": _policies,
    "invariant": _invariants,
    "upcaster": _upcasters,
    "setting": _settings,
    "code": _code,
}
"""What is compared, in the order that it is told."""
