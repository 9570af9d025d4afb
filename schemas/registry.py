"""Schemas that are known, by fingerprint: what a reader of the log needs to have at hand.

Law of this module: pure memory, no Kafka. The schema topic fills it in log order. One
fingerprint has one meaning: two schemas that differ in what their bytes mean (names, types,
logical types, scale) are a collision, the earlier one counts and the other is refused. Docs,
defaults and aliases say nothing about bytes: schemas that differ in those only are one.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from refold.schemas.codec import Codec
from refold.schemas.derive import (
    fingerprint_of,
    full_name,
    meaning_of,
    parse_text,
    sha256_of,
)
from refold.schemas.errors import Code, DefinitionError, RecordError
from refold.schemas.evolve import incompatibilities

Headers = list[tuple[str, bytes]]
NUMBER_MOST: Final = 0xFFFF_FFFF
"""Highest id of a schema registry: 4 bytes in Confluent wire format."""
FINGERPRINT_BYTES: Final = 8


class Known(msgspec.Struct, frozen=True):
    """One schema as it stands on the schema topic."""

    fingerprint: bytes
    """8 bytes, as records carry it."""
    text: str
    """The full text as it was published."""
    workflow: str
    """Workflow that it was published for; empty for the engine's own types."""
    type: str
    """Avro full name."""
    sequence: int
    """1 for the first schema of a type, counting up; upcasters are named by it."""

    @property
    def sha256(self) -> bytes:
        """SHA-256 of the full text: its key on the schema topic."""
        return sha256_of(self.text)


def known_of(text: str, workflow: str, sequence: int) -> Known:
    """A schema with everything that follows from its text.

    Raises:
        DefinitionError: SCHEMA_INVALID, it is no Avro record schema.
    """
    schema = parse_text(text)
    return Known(fingerprint_of(schema), text, workflow, full_name(schema), sequence)


def to_record(known: Known) -> tuple[bytes, Headers, bytes]:
    """Key, headers and value of a schema's record on the schema topic."""
    headers = [
        ("fingerprint", known.fingerprint.hex().encode()),
        ("workflow", known.workflow.encode()),
        ("type", known.type.encode()),
        ("sequence", b"%d" % known.sequence),
    ]
    return known.sha256, headers, known.text.encode()


def from_record(key: bytes | None, headers: Mapping[str, bytes], value: bytes | None) -> Known:
    """The schema of a record of the schema topic; key, fingerprint and type must fit the text.

    Raises:
        RecordError: UNDECODABLE, the record is not of refold's making or was changed.
    """
    try:
        text = (value or b"").decode()
        known = known_of(text, headers["workflow"].decode(), int(headers["sequence"]))
        if headers["fingerprint"].decode() != known.fingerprint.hex():
            raise ValueError("its fingerprint does not fit its text")
        if key != known.sha256 or headers["type"].decode() != known.type:
            raise ValueError("its key or type does not fit its text")
    except (ValueError, KeyError, DefinitionError) as error:
        raise RecordError(
            Code.UNDECODABLE,
            f"A record of the schema topic is not a schema of refold's: {error}.",
            "Find out who writes to this topic.",
        ) from error
    return known


_NUMBER_KEY: Final = b"registry-id:"


def to_number_record(number: int, fingerprint: bytes) -> tuple[bytes, Headers, bytes]:
    """Key, headers and value of the record that says what a schema registry's id stands for."""
    return _NUMBER_KEY + b"%d" % number, [], fingerprint.hex().encode()


def from_number_record(key: bytes | None, value: bytes | None) -> tuple[int, bytes] | None:
    """Id and fingerprint of such a record; None for a record of another kind.

    Raises:
        RecordError: UNDECODABLE, it is not of refold's making.
    """
    if key is None or not key.startswith(_NUMBER_KEY):
        return None
    try:
        number, fingerprint = (
            int(key.removeprefix(_NUMBER_KEY)),
            bytes.fromhex((value or b"").decode()),
        )
        if not 0 <= number <= NUMBER_MOST or len(fingerprint) != FINGERPRINT_BYTES:
            raise ValueError("a number is out of range")
    except ValueError as error:
        raise RecordError(
            Code.UNDECODABLE,
            f"A record of the schema topic names no id of a schema registry: {error}.",
            "Find out who writes to this topic.",
        ) from error
    return number, fingerprint


class Registry:
    """Schemas by fingerprint, filled in log order.

    Attributes:
        numbers: What each id of a schema registry stands for: its fingerprint.
    """

    def __init__(self, known: Iterable[Known] = ()) -> None:
        self.numbers: dict[int, bytes] = {}
        self._by_fingerprint: dict[bytes, Known] = {}
        self._meanings: dict[bytes, str] = {}
        for each in known:
            self.add(each)

    def __len__(self) -> int:
        return len(self._by_fingerprint)

    def __iter__(self) -> Iterator[Known]:
        return iter(self._by_fingerprint.values())

    def find(self, fingerprint: bytes) -> Known | None:
        """The schema of a fingerprint."""
        return self._by_fingerprint.get(fingerprint)

    def of_type(self, name: str) -> list[Known]:
        """Every schema of a type, oldest first."""
        return sorted((each for each in self if each.type == name), key=lambda each: each.sequence)

    def add(self, known: Known) -> Known:
        """Take in a schema; gives the one that counts for its fingerprint.

        Raises:
            RecordError: SCHEMA_COLLISION, its fingerprint stands for another meaning. The lower
                sequence of one type counts, whichever came first.
        """
        first = self._by_fingerprint.setdefault(known.fingerprint, known)
        meaning = meaning_of(parse_text(known.text))
        before = self._meanings.setdefault(known.fingerprint, meaning)
        if before == meaning:
            return first
        if known.type == first.type and known.sequence < first.sequence:
            self._by_fingerprint[known.fingerprint] = known
            self._meanings[known.fingerprint] = meaning
            first, known = known, first
        raise _collision(first, known)

    def add_number(self, number: int, fingerprint: bytes) -> Known:
        """Take in what an id of a schema registry stands for; gives that schema.

        Raises:
            RecordError: SCHEMA_COLLISION, the id stands for another schema; SCHEMA_UNKNOWN.
        """
        if self.numbers.setdefault(number, fingerprint) != fingerprint:
            raise RecordError(
                Code.SCHEMA_COLLISION,
                f"The schema registry's id {number} stands for another schema on the schema topic.",
                "Is it another registry, or one that lost its data? An id must never change.",
            )
        known = self.find(fingerprint)
        if known is None:
            raise RecordError(
                Code.SCHEMA_UNKNOWN,
                f"The schema registry's id {number} stands for {fingerprint.hex()}, which is not on"
                " the schema topic.",
                "Find out who writes to this topic.",
            )
        return known

    def propose(self, text: str, workflow: str, lifted: Container[int] = ()) -> Known:
        """Check a schema that wants to be used; gives it with its sequence, without adding it.

        A schema that stands already is given as it stands.

        Args:
            text: Avro schema as JSON.
            workflow: Whose.
            lifted: Sequences of older schemas that an upcaster reads: they may differ at will.

        Raises:
            DefinitionError: SCHEMA_INVALID; SCHEMA_COLLISION; or SCHEMA_INCOMPATIBLE, it would
                not read right what an older schema of its type wrote, all reasons named.
        """
        wanted = known_of(text, workflow, 0)
        older = self.of_type(wanted.type)
        standing = self.find(wanted.fingerprint)
        if standing is not None:
            if self._meanings[wanted.fingerprint] != meaning_of(parse_text(text)):
                error = _collision(standing, wanted)
                raise DefinitionError(error.code, error.what, error.cure, **error.where)
            return standing
        for each in older:
            if each.sequence in lifted:
                continue
            faults = incompatibilities(parse_text(each.text), parse_text(text))
            if faults:
                raise DefinitionError(
                    Code.SCHEMA_INCOMPATIBLE,
                    f"{wanted.type} cannot read what its schema number {each.sequence} wrote: "
                    f"{'; '.join(faults)}.",
                    "Give new fields a default, keep types and names, give an upcaster for that"
                    " schema, or use a new type.",
                    type=wanted.type,
                )
        sequence = max((each.sequence for each in older), default=0) + 1
        return known_of(text, workflow, sequence)

    def teach(self, codec: Codec[Any]) -> list[RecordError]:
        """Let a codec read every known schema of its type; gives those that it cannot read.

        What its own schema wrote is never lifted, whatever sequence that schema has here.
        """
        refused: list[RecordError] = []
        for known in self.of_type(codec.name):
            own = known.fingerprint == codec.fingerprint
            upcast = None if own else codec.upcasts.get(known.sequence)
            try:
                codec.add_writer(known.text, upcast)
            except RecordError as error:
                refused.append(error)
        for number, fingerprint in self.numbers.items():
            found = self.find(fingerprint)
            if found is not None and found.type == codec.name:
                try:
                    codec.add_number(number, fingerprint)
                except RecordError as error:
                    refused.append(error)
        return refused


def _collision(first: Known, second: Known) -> RecordError:
    return RecordError(
        Code.SCHEMA_COLLISION,
        f"A schema of {second.type} has the fingerprint {second.fingerprint.hex()} of a schema of"
        f" {first.type} that came first, and another meaning (logical types and scale are not"
        " part of a fingerprint).",
        "Change the name of a field or of the type.",
        type=second.type,
    )
