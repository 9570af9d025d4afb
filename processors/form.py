"""The canonical form of a graph: one JSON text for equal graphs, stored with each version.

Law of this module: plain data from declared data; the code behind the names is the fingerprint's.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import msgspec

from refold.processors.spec import Everything, Function, Limits, Spec
from refold.processors.table import CommandType
from refold.processors.triggers import Duration, lasting, name_of
from refold.schemas.codec import codec_of


def canonical_json(spec: Spec, commands: Iterable[CommandType]) -> bytes:
    """A graph as JSON with sorted keys: what its picture shows, function names included."""
    return msgspec.json.encode(graph_data(spec, commands), order="sorted")


def graph_data(spec: Spec, commands: Iterable[CommandType]) -> dict[str, Any]:
    """The canonical form of a graph as plain data."""
    states = spec.states()
    return {
        "name": spec.name,
        "version": spec.version,
        "context": spec.context.__name__,
        "initial": spec.initial,
        "dedup": spec.dedup,
        **({"tenant": spec.tenant} if spec.tenant else {}),
        "limits": limits_of(spec.limits),
        "states": list(states),
        "events": [name_of(kind) for kind in spec.kinds()],
        "transitions": [
            {
                "from": rule.state,
                "event": name_of(rule.event),
                "to": rule.to,
                "guard": called(rule.guard),
                "reducer": called(rule.reducer),
                **({"renew": True} if rule.renew else {}),
            }
            for rule in spec.rules
        ],
        "sends": [{"state": one.state, "send": called(one.send)} for one in spec.entries],
        "commands": [
            {"type": one.name, "target": one.target, "action": one.action, "each": one.each}
            | _fate(one)
            for one in sorted(commands, key=lambda one: one.name)
        ],
        "deferred": [{"state": state, "event": name_of(kind)} for state, kind in spec.deferred],
        "already": [{"state": state, "event": name_of(kind)} for state, kind in spec.already],
        "finals": [
            {
                "state": final.state,
                "status": str(final.status),
                "late": {
                    name_of(kind) if isinstance(kind, type) else "*": str(late)
                    for kind, late in final.late.items()
                },
            }
            for final in spec.finals
        ],
        "waits": [{"state": state, "status": str(status)} for state, status in spec.waits],
        "invariants": [
            {"name": one.name, "states": None if one.states is None else list(one.states)}
            for one in spec.invariants
        ],
        **_upcasters(spec),
        **_beside(spec),
    }


def limits_of(limits: Limits) -> dict[str, Any]:
    """The limits as plain data; those that came later stand only where they are declared."""
    plain: dict[str, Any] = msgspec.to_builtins(limits)
    for name in ("actions", "branches"):
        if plain[name] == getattr(Limits(), name):
            del plain[name]
    return plain


def _fate(command: CommandType) -> dict[str, Any]:
    """What becomes of a command's action; nothing for one that nobody follows."""
    found: dict[str, Any] = {}
    if command.tracked:
        found["tracked"] = True
    if command.retry is not None:
        found["retry"] = msgspec.to_builtins(command.retry)
    elif command.undo_retry is not None:
        found["undo_retry"] = msgspec.to_builtins(command.undo_retry)
    if command.compensate is not None:
        found["compensate"] = called(command.compensate)
    return found


def _beside(spec: Spec) -> dict[str, Any]:
    """Timers, children, joins and undoing; nothing for a graph without them."""
    found: dict[str, list[Any]] = {
        "timers": [
            {"state": one.state, "name": one.name, "duration": _duration(one.duration)}
            for one in spec.timers
        ],
        "children": [
            {
                "workflow": one.workflow,
                "event": codec_of(one.event).name,
                "answers": [codec_of(kind).name for kind in one.answers],
                "cancel": called(one.cancel),
            }
            for one in spec.children
        ],
        "answers": [
            {"state": one.state, "answer": called(one.answer)}
            for one in spec.finals
            if one.answer is not None
        ],
        "joins": [
            {
                "state": one.state,
                "command": one.name,
                "need": needed(one.need),
                "cancel_rest": one.cancel_rest,
            }
            for one in spec.joins
        ],
        "undoing": list(spec.undoing),
        "pivots": list(spec.pivots),
    }
    return {name: several for name, several in found.items() if several}


def needed(need: int | Everything) -> int | str:
    """How many branches a join needs, as plain data."""
    return need if isinstance(need, int) else need.value


def _duration(duration: Duration) -> str | None:
    return lasting(duration) if isinstance(duration, timedelta) else called(duration)


def _upcasters(spec: Spec) -> dict[str, Any]:
    """Nothing for a graph without them."""
    found = {
        "upcasters": [
            {"event": codec_of(one.type).name, "sequence": one.sequence, "lift": called(one.lift)}
            for one in spec.upcasters
        ],
        "context_upcasters": [
            {"version": one.sequence, "lift": called(one.lift)} for one in spec.context_upcasters
        ],
    }
    return {name: several for name, several in found.items() if several}


def called(function: Function | None) -> str | None:
    """How a function is called in the canonical form; the fingerprint covers its code."""
    if function is None:
        return None
    return str(getattr(function, "__qualname__", type(function).__qualname__))
