"""One attribute of a record each: read it, or say why the record is refused for it.

Law of this module: a check gives a value that keeps its limits, or raises `Refusal`, which stays
between this module and `refold.topics.records`. Texts about bytes of others are bounded.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from refold.schemas.envelope import WORKFLOW_SOURCE, Answer, Outcome, Parent
from refold.schemas.errors import Code
from refold.schemas.limits import HEADER_COUNT, ID_BYTES, KEY_BYTES, id_fault, name_fault
from refold.schemas.verdicts import Reason, Verdict
from refold.topics.headers import UNREADABLE, RawHeaders

REQUIRED: Final = ("ce_specversion", "ce_id", "ce_source", "ce_type")
RESERVED_SOURCE: Final = "/refold/"
ANSWER_HEADERS: Final = ("idempotency-key", "ce_attempt", "ce_outcome")
_NUMBER: Final = re.compile(r"[0-9]{1,18}\Z", re.ASCII)
TRACE: Final = re.compile(rb"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\Z")
_BY_BYTES: Final = {str(one).encode(): one for one in Outcome}
_OUTCOMES: Final = tuple(str(one) for one in Outcome)
ATTEMPT_MOST: Final = 2**31 - 1
_DIGITS: Final = 18
"""Digits of an expected version: below 2^63."""


class Refusal(Exception):  # noqa: N818 (it refuses a record, it is no error of ours)
    """Why a record is refused, out of the nested checks of it; `records` makes a `Fault` of it."""

    def __init__(self, code: Code, text: str, verdict: Verdict = Verdict.REFUSED) -> None:
        super().__init__(text)
        self.verdict = verdict
        self.reason = Reason(code, text)


def check_own(pairs: RawHeaders, own: frozenset[str]) -> None:
    """Refuse a record with too many headers, or with one of our own twice and not the same."""
    if len(pairs) > HEADER_COUNT:
        raise Refusal(
            Code.BAD_ENVELOPE, f"has {len(pairs)} headers, at most {HEADER_COUNT} are read"
        )
    seen: dict[str, bytes | None] = {}
    for name, value in pairs:
        if name in own and seen.setdefault(name, value) != value:
            raise Refusal(Code.BAD_ENVELOPE, f"has the header {name} twice, with other values")


def instance_of(key: bytes | None) -> str:
    """The instance id that a record key is."""
    if not key:
        raise Refusal(Code.BAD_KEY, f"has {'no' if key is None else 'an empty'} key: no instance")
    try:
        instance = key.decode()
    except UnicodeDecodeError:
        raise Refusal(Code.BAD_KEY, f"key {shown(key)} is not UTF-8") from None
    if len(key) > ID_BYTES or not instance.isprintable():
        fault = id_fault(instance)
        if fault:
            raise Refusal(Code.BAD_KEY, f"key {shown(key)} {fault}")
    return instance


def identifier(raw: bytes | None, name: str, limit: int = ID_BYTES) -> str:
    """Text without control characters, within a limit in bytes."""
    text = text_of(raw, name)
    if not text.isprintable() or len(text) << 2 > limit:
        fault = id_fault(text, limit)
        if fault:
            raise Refusal(Code.BAD_ENVELOPE, f"{name} {shown(raw)} {fault}")
    return text


def text_of(raw: bytes | None, name: str) -> str:
    """Text that is there and is UTF-8."""
    if not raw:
        raise Refusal(Code.BAD_ENVELOPE, f"has no {name}, or an empty or null one")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Refusal(Code.BAD_ENVELOPE, f"{name} {shown(raw)} is not UTF-8") from None


def named(
    raw: bytes | None, name: str, fault_of: Callable[[str], str | None], *, after: str = ""
) -> str:
    """Text that keeps the rule of a kind of names.

    Args:
        raw: The header's value.
        name: The header's.
        fault_of: What is wrong with such a name.
        after: The name is what stands behind the last of these.
    """
    text = text_of(raw, name)
    if after:
        text = text.rpartition(after)[2]
    fault = "names nobody" if not text else fault_of(text)
    if fault:
        raise Refusal(Code.BAD_ENVELOPE, f"{name} {shown(raw)} {fault}")
    return text


def trace_of(headers: Mapping[str, bytes | None]) -> bytes | None:
    """The trace that a record belongs to, if it says so: text, in whatever form."""
    if "traceparent" not in headers:
        return None
    return identifier(headers["traceparent"], "traceparent").encode()


def attempt_of(raw: bytes | None) -> int:
    """The number of a command's attempt, from 1 on and no more than tables hold."""
    attempt = number(text_of(raw, "ce_attempt"), "ce_attempt")
    if not 1 <= attempt <= ATTEMPT_MOST:
        raise Refusal(Code.BAD_ENVELOPE, f"ce_attempt {attempt} is not from 1 to {ATTEMPT_MOST}")
    return attempt


def missing(headers: Mapping[str, bytes | None]) -> Refusal:
    """The refusal of a record that lacks a required attribute: the first thing that is wrong."""
    if UNREADABLE in headers:
        return Refusal(Code.BAD_ENVELOPE, "has a header whose name is not UTF-8")
    content = headers.get("content-type") or b""
    if content.startswith(b"application/cloudevents"):
        return Refusal(
            Code.BAD_ENVELOPE, "is a CloudEvent in structured mode, binary mode is read here"
        )
    for name in REQUIRED:
        if not headers.get(name):
            return Refusal(Code.BAD_ENVELOPE, f"has no {name}, or an empty or null one")
    version = shown(headers["ce_specversion"])
    return Refusal(Code.BAD_ENVELOPE, f"ce_specversion is {version}, 1.0 is read here")


def reserved(kind: str, source: str) -> Refusal:
    """The refusal of an engine's type from somebody else."""
    return Refusal(
        Code.RESERVED_TYPE,
        f"type {kind} is the engine's own, its source is {RESERVED_SOURCE}<role>/<who>, "
        f"not {source[:80]}",
    )


def valueless(value: bytes | None) -> Refusal:
    """The refusal of a null value, or the poison that an empty one is: two things (B019)."""
    if value is None:
        return Refusal(Code.TOMBSTONE, "has a null value: on an event topic that deletes nothing")
    return Refusal(Code.UNDECODABLE, "has an empty value", Verdict.POISON)


Extras: TypeAlias = tuple[str | None, int | None, bytes | None, Answer | None, Parent | None]
NO_EXTRAS: Final[Extras] = (None, None, None, None, None)


def extras_of(headers: Mapping[str, bytes | None], key: bytes | None, source: str) -> Extras:
    """Expected state and version, trace, answer, parent; checks that the subject is the key."""
    if "ce_subject" in headers and headers["ce_subject"] != key:
        subject = shown(headers["ce_subject"])
        raise Refusal(Code.BAD_KEY, f"key {shown(key)} is not its ce_subject {subject}")
    state = version = None
    if "ce_expectedstate" in headers:
        state = text_of(headers["ce_expectedstate"], "ce_expectedstate")
        if name_fault(state):
            raise Refusal(Code.BAD_ENVELOPE, f"ce_expectedstate {state[:80]!r} names no state")
    if "ce_expectedversion" in headers:
        digits = text_of(headers["ce_expectedversion"], "ce_expectedversion")
        version = number(digits, "ce_expectedversion")
    trace = trace_of(headers)
    answer = _answer(headers) if "idempotency-key" in headers else None
    parent = _parent(headers, source) if "ce_parentkey" in headers else None
    return state, version, trace, answer, parent


def _parent(headers: Mapping[str, bytes | None], source: str) -> Parent:
    """Only a workflow starts others: its name is the source's."""
    workflow = source.removeprefix(WORKFLOW_SOURCE)
    if workflow == source or name_fault(workflow):
        text = f"has a ce_parentkey, and its source is {source[:80]}, not {WORKFLOW_SOURCE}<name>"
        raise Refusal(Code.BAD_ENVELOPE, text)
    key = identifier(headers["ce_parentkey"], "ce_parentkey", KEY_BYTES)
    if not key.endswith((":forward", ":compensate")):
        raise Refusal(Code.BAD_ENVELOPE, f"ce_parentkey {key[:80]!r} is no idempotency key")
    instance = identifier(headers.get("ce_parentinstance"), "ce_parentinstance")
    return Parent(workflow, instance, key)


def _answer(headers: Mapping[str, bytes | None]) -> Answer:
    key = identifier(headers["idempotency-key"], "idempotency-key", KEY_BYTES)
    attempt = number(text_of(headers.get("ce_attempt"), "ce_attempt"), "ce_attempt")
    said = text_of(headers.get("ce_outcome"), "ce_outcome")
    if said not in _OUTCOMES:
        known = ", ".join(_OUTCOMES)
        raise Refusal(Code.BAD_ENVELOPE, f"ce_outcome {said[:40]!r} is none of {known}")
    return Answer(key, attempt, Outcome(said))


def number(digits: str, name: str) -> int:
    """A whole number, 0 or more, in ASCII digits."""
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS):
        raise Refusal(Code.BAD_ENVELOPE, f"{name} {digits[:40]!r} is not a number")
    return int(digits)


def shown(raw: bytes | None) -> str:
    """A bounded picture of bytes that may be anything."""
    if raw is None:
        return "null"
    return repr(raw[:80])[1:] + ("…" if len(raw) > 80 else "")


def beside(rest: Sequence[tuple[str, bytes | None]]) -> tuple[bytes | None, Answer | None]:
    """Trace and answer of a record that carries them, in this order.

    Raises:
        ValueError, KeyError, TypeError: This is not the plain case; `extras_of` judges it.
    """
    trace: bytes | None = None
    if len(rest) != len(ANSWER_HEADERS):
        (name, trace), *rest = rest
        if name != "traceparent" or not TRACE.match(trace):  # type: ignore[arg-type]  # null is caught
            raise ValueError(name)
        if not rest:
            return trace, None
    (key_name, key), (attempt_name, attempt), (outcome_name, outcome) = rest
    if (key_name, attempt_name, outcome_name) != ANSWER_HEADERS or not (key and attempt):
        raise ValueError(key_name)
    text, digits = key.decode(), attempt.decode()
    if len(key) > KEY_BYTES or not text.isprintable() or not _NUMBER.match(digits):
        raise ValueError(text)
    return trace, Answer(text, int(digits), _BY_BYTES[outcome])  # type: ignore[index]  # likewise
