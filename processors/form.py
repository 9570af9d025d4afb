"""The canonical form of a graph: one JSON text for equal graphs, stored with each version.

Law of this module: plain data from declared data; the code behind the names is the fingerprint's.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from refold.processors.spec import ANY, Function, Spec
from refold.processors.table import CommandType
from refold.schemas.codec import codec_of


def canonical_json(spec: Spec, commands: Iterable[CommandType]) -> bytes:
    """A graph as JSON with sorted keys: what its picture shows, function names included."""
    return msgspec.json.encode(graph_data(spec, commands), order="sorted")


def graph_data(spec: Spec, commands: Iterable[CommandType]) -> dict[str, Any]:
    """The canonical form of a graph as plain data."""
    states = spec.states()
    name_of = {kind: codec_of(kind).name for kind in spec.events()}
    return {
        "name": spec.name,
        "version": spec.version,
        "context": spec.context.__name__,
        "initial": spec.initial,
        "dedup": spec.dedup,
        **({"tenant": spec.tenant} if spec.tenant else {}),
        "limits": msgspec.to_builtins(spec.limits),
        "states": list(states),
        "events": list(name_of.values()),
        "transitions": [
            {
                "from": rule.state,
                "event": name_of[rule.event],
                "to": rule.to,
                "guard": called(rule.guard),
                "reducer": called(rule.reducer),
            }
            for rule in spec.rules
        ],
        "sends": [{"state": one.state, "send": called(one.send)} for one in spec.entries],
        "commands": [
            {"type": one.name, "target": one.target, "action": one.action, "each": one.each}
            for one in sorted(commands, key=lambda one: one.name)
        ],
        "deferred": [{"state": state, "event": name_of[kind]} for state, kind in spec.deferred],
        "already": [{"state": state, "event": name_of[kind]} for state, kind in spec.already],
        "finals": [
            {
                "state": final.state,
                "status": str(final.status),
                "late": {
                    "*" if kind is ANY else name_of[kind]: str(late)
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
    }


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
