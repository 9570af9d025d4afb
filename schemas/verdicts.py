"""Verdicts and decisions: what was decided about a record, and what of it stands on the log.

Law of this module: frozen data. The fold makes verdicts, the decision log keeps those that
another process, another day or other code could decide otherwise (`docs/protocol.md`, P13).
"""

from enum import StrEnum
from typing import Final

import msgspec

from refold.schemas.errors import Code


class Verdict(StrEnum):
    """What the fold decided about one record, exactly one each (O3)."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    ALREADY = "already"
    CONFLICT = "conflict"
    REFUSED = "refused"
    LATE = "late"
    DEFERRED = "deferred"
    PARKED = "parked"
    POISON = "poison"


DECIDED: Final = frozenset({Verdict.REFUSED, Verdict.CONFLICT, Verdict.POISON, Verdict.PARKED})
"""Verdicts whose record goes to the decision log with its bytes and its reason."""


class Reason(msgspec.Struct, frozen=True, gc=False):
    """Why a record was not applied: a code with a page, and one sentence."""

    code: Code
    text: str


class Decision(msgspec.Struct, frozen=True, gc=False):
    """A verdict on the partition's decision log: obeyed by replay, not asked again."""

    offset: int
    verdict: Verdict
    reason: Reason


class Activate(msgspec.Struct, frozen=True, gc=False):
    """From this offset on, new instances begin with this version of the definition."""

    offset: int
    version: int
    fingerprint: str
    fold_version: int
    tenant: str
    """Default tenant of the topic; empty: a record without a tenant is refused."""
    partitions: int
    """Partition count that f(key) uses from this offset on."""
