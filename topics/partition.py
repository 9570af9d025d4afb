"""Which partition a key belongs to: murmur2, as Java's default partitioner and librdkafka's
`murmur2_random` compute it for every key that is not empty.

Law of this module: a pure function of the key's bytes, proved by fixed vectors when a process
starts. A record that stands elsewhere was placed by another hash and is refused, never folded
into a second state of its instance.

Source: org.apache.kafka.common.utils.Utils.murmur2 (seed 0x9747b28c), KIP-480 for the default.
"""

from collections.abc import Callable
from struct import Struct, unpack_from
from typing import Final

from refold.schemas.errors import InvariantViolation

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_UNPACKED: Final = 64
_UNPACK: Final = [Struct(f"<{words}I").unpack_from for words in range(_UNPACKED)]
"""By number of whole words: to find the format of a key by its text costs as much as its hash."""
_POSITIVE: Final = 0x7FFFFFFF
"""Java clears the sign bit; abs() would disagree for the lowest integer."""

VECTORS: Final[tuple[tuple[bytes, int, int], ...]] = (
    (b"TT0124", 15, 10),
    (b"order-1001", 12, 6),
    (b"order-1001", 6, 0),
    (b"order-1001", 8, 6),
    (b"inst-7", 12, 7),
    (b"inst-7", 6, 1),
    (b"inst-7", 8, 3),
    (b"a", _POSITIVE, 584102524),
    (b"ab", _POSITIVE, 316155434),
    (b"abc", _POSITIVE, 479470107),
    (b"abcd", _POSITIVE, 823834100),
    (b"21", _POSITIVE, 1173551340),
    (b"foobar", _POSITIVE, 1357151166),
    (b"a-little-bit-long-string", _POSITIVE, 1161502112),
    (b"a-little-bit-longer-string", _POSITIVE, 661178819),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", _POSITIVE, 2088585677),
    (b"gr\xc3\xb6\xc3\x9fe-7", _POSITIVE, 1900870785),
    (b"\xe6\xb3\xa8\xe6\x96\x87-1", _POSITIVE, 2141131415),
    (b"\x00", _POSITIVE, 375494588),
    (b"\xff\xfe\xfd", _POSITIVE, 998637092),
    (b"\x80\x80\x80\x80\x80", _POSITIVE, 622335332),
    (b"123e4567-e89b-12d3-a456-426614174000", _POSITIVE, 210376136),
    (b"123e4567-e89b-12d3-a456-426614174000", 48, 8),
)
"""(key, partition count, partition), computed by librdkafka, never by this code. The words from
`21` to `lkjh…` are those of Kafka's own UtilsTest, whose hashes these are, sign bit cleared."""


def murmur2(key: bytes) -> int:
    """The unsigned 32-bit murmur2 hash of a key, with Kafka's seed."""
    length = len(key)
    hashed = (_SEED ^ length) & _MASK
    words = length >> 2
    for word in _UNPACK[words](key) if words < _UNPACKED else unpack_from(f"<{words}I", key):
        mixed = word * _MULTIPLIER & _MASK
        mixed = (mixed ^ mixed >> 24) * _MULTIPLIER & _MASK
        hashed = (hashed * _MULTIPLIER & _MASK) ^ mixed
    tail = key[words << 2 :]
    if tail:
        hashed = (hashed ^ int.from_bytes(tail, "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


def partition_of(key: bytes, count: int) -> int:
    """The partition of a key that is not empty.

    Args:
        key: Record key, at least one byte. (An empty key has no partition of its own: librdkafka
            hashes it, older producers scatter it; `refold.topics.records` refuses it.)
        count: Partitions of the topic, 1 or more.
    """
    return (murmur2(key) & _POSITIVE) % count


def prove_partitioner(function: Callable[[bytes, int], int] = partition_of) -> None:
    """Check a partitioner against the fixed vectors; called once when a process starts.

    Raises:
        InvariantViolation: A vector does not come out; nothing may be produced or folded.
    """
    for key, count, expected in VECTORS:
        found = function(key, count)
        if found != expected:
            raise InvariantViolation(
                f"the partitioner puts {key!r} of {count} partitions on {found}, not {expected}"
            )
