"""What stands before an Avro body: which schema wrote it.

Law of this module: two framings and nothing else. Single-object encoding (Avro 1.12): C3 01,
then the 8-byte fingerprint, little-endian. Confluent wire format, where a schema registry is
configured: 00, then the registry's schema id, 4 bytes, big-endian.
"""

from typing import Final

from refold.schemas.errors import Code, RecordError

MARKER: Final = b"\xc3\x01"
HEAD_BYTES: Final = 10
CONFLUENT_HEAD_BYTES: Final = 5


def fingerprint_in(value: bytes) -> bytes:
    """Fingerprint of the schema that wrote a value in single-object encoding.

    Raises:
        RecordError: UNDECODABLE, it is too short or does not begin with C3 01.
    """
    if value[:2] != MARKER or len(value) < HEAD_BYTES:
        raise _unframed("a single Avro object (C3 01, fingerprint)")
    return bytes(value[2:HEAD_BYTES])


def to_confluent(value: bytes, schema_id: int) -> bytes:
    """A value in single-object encoding, framed for a schema registry.

    Raises:
        RecordError: UNDECODABLE, it is not in single-object encoding.
    """
    fingerprint_in(value)
    return b"\x00" + schema_id.to_bytes(4, "big") + value[HEAD_BYTES:]


def confluent_id(value: bytes) -> int:
    """Schema id of a value in Confluent wire format.

    Raises:
        RecordError: UNDECODABLE, it is too short or does not begin with 00.
    """
    if value[:1] != b"\x00" or len(value) < CONFLUENT_HEAD_BYTES:
        raise _unframed("Confluent wire format (00, schema id)")
    return int.from_bytes(value[1:CONFLUENT_HEAD_BYTES], "big")


def from_confluent(value: bytes, fingerprint: bytes) -> bytes:
    """A value in Confluent wire format, framed as a single object of a known schema.

    Raises:
        RecordError: UNDECODABLE, it is not in Confluent wire format.
    """
    confluent_id(value)
    return MARKER + fingerprint + value[CONFLUENT_HEAD_BYTES:]


def _unframed(wanted: str) -> RecordError:
    return RecordError(
        Code.UNDECODABLE,
        f"The value does not begin as {wanted}.",
        "Find the sender; the record is kept and can be redriven.",
    )
