"""Branches of the present state: how many began, which have not ended, how the others did.

Law of this module: pure. A branch is known by its key, so that two tokens of one branch count once
and those of an earlier entry of the state count nothing. A branch without retry and undoing is no
open action: it costs 8 bytes until it ends, and nothing afterwards.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

from msgspec.structs import replace

from refold.processors.children import known_as
from refold.processors.definition import Definition
from refold.processors.effects import Effect
from refold.processors.instance import Fork, Instance, OpenAction
from refold.processors.records import Park, place_of
from refold.processors.spec import JoinSpec
from refold.processors.table import CommandType
from refold.schemas.envelope import Outcome
from refold.schemas.errors import Code

BRANCH_BYTES: Final = 8
"""Digest of a key: two of 10,000 branches have the same one in one fork of 10^11."""


def forked(definition: Definition, state: str, effects: Sequence[Effect]) -> tuple[Fork, ...]:
    """The forks of a state that is entered with these commands.

    Raises:
        Park: LIMIT_REACHED, more branches than the definition allows.
    """
    found = []
    asked = [known_as(one) for one in effects]
    for join in definition.joins[state]:
        keys = [key for key, name in asked if name == join.name]
        found.append(Fork(join.name, len(keys), b"".join(map(_digest, keys))))
    count, most = sum(one.asked for one in found), definition.limits.branches
    if count > most:
        text = f"state {state!r} would begin {count} branches, the definition allows {most}"
        raise Park(Code.LIMIT_REACHED, text)
    return tuple(found)


def light_types(definition: Definition, state: str) -> frozenset[str]:
    """Names of the command types whose actions are branches of a state and nothing more."""
    joins = definition.joins.get(state)
    if joins is None:
        return frozenset()
    kinds = (definition.by_name[one.name] for one in joins)
    return frozenset(one.name for one in kinds if _is_light(one))


def _is_light(kind: CommandType) -> bool:
    return kind.retry is None and kind.compensate is None


def branch_of(instance: Instance, key: str) -> OpenAction | None:
    """A pending branch as an open action, with what is known of it; None if there is none."""
    for fork in instance.more.forks:
        if holds(fork, key):
            return OpenAction(key, fork.type, fork.type, "", instance.state, b"", instance.since_ms)
    return None


def holds(fork: Fork, key: str) -> bool:
    """Whether the branch with this key is pending."""
    return place_of(fork.pending, _digest(key), BRANCH_BYTES) >= 0


def counted(forks: Iterable[Fork], key: str, outcome: Outcome) -> tuple[Fork, ...]:
    """The forks after the branch with this key has ended, if it is one of theirs."""
    return tuple(_counted(one, _digest(key), outcome) for one in forks)


def _counted(fork: Fork, digest: bytes, outcome: Outcome) -> Fork:
    place = place_of(fork.pending, digest, BRANCH_BYTES)
    if place < 0:
        return fork
    pending = fork.pending[:place] + fork.pending[place + BRANCH_BYTES :]
    if outcome is Outcome.SUCCEEDED:
        return replace(fork, pending=pending, succeeded=fork.succeeded + 1)
    return replace(fork, pending=pending, failed=fork.failed + 1)


def need_of(join: JoinSpec, fork: Fork) -> int:
    """How many branches must be done."""
    return join.need if isinstance(join.need, int) else fork.asked


def _digest(key: str) -> bytes:
    return blake2b(key.encode(), digest_size=BRANCH_BYTES).digest()
