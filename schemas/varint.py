"""Avro's zigzag numbers and block heads, where the generated code does not write them out.

Law of this module: bytes that no Avro writer makes raise `Damage`, never a wrong number.
"""

from typing import Final


class Damage(ValueError):  # noqa: N818  # a finding, turned into a RefoldError by callers
    """The bytes are not what their schema says."""


MIN_LONG: Final = -(1 << 63)
MAX_LONG: Final = (1 << 63) - 1
MIN_INT: Final = -(1 << 31)
MAX_INT: Final = (1 << 31) - 1


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """A 64-bit number at a position, and the position behind it.

    Raises:
        Damage: More than 64 bits.
        IndexError: The bytes end inside it.
    """
    byte = data[at]
    at += 1
    value = byte & 127
    shift = 7
    while byte > 127:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if shift > 70:
            raise Damage("a number is longer than 64 bits")
    if value >> 64:
        raise Damage("a number is longer than 64 bits")
    return value >> 1 ^ -(value & 1), at


def read_int(data: bytes, at: int) -> tuple[int, int]:
    """A 32-bit number at a position, and the position behind it.

    Raises:
        Damage: More than 32 bits.
        IndexError: The bytes end inside it.
    """
    value, at = read_long(data, at)
    if not MIN_INT <= value <= MAX_INT:
        raise Damage("a number is longer than 32 bits")
    return value, at


def read_length(data: bytes, at: int) -> tuple[int, int]:
    """A length at a position, and the position behind it.

    Raises:
        Damage: Negative, or behind the end of the bytes.
        IndexError: The bytes end inside it.
    """
    value, at = read_long(data, at)
    if not 0 <= value <= len(data) - at:
        raise Damage("a length is negative or reaches past the end")
    return value, at


def read_count(data: bytes, at: int) -> tuple[int, int]:
    """The head of a block of an array or map: how many items, and where they begin.

    A negative count is followed by the block's size in bytes (Avro 1.12, "Arrays").

    Raises:
        Damage: An empty block that is not the last, or more items than bytes are left.
        IndexError: The bytes end inside it.
    """
    count, at = read_long(data, at)
    if count < 0:
        count = -count
        _, at = read_length(data, at)
    if not 0 < count <= len(data) - at:
        raise Damage("a block counts more items than there are bytes")
    return count, at


def zigzag(value: int) -> bytes:
    """A 64-bit number as Avro writes it.

    Raises:
        ValueError: It needs more than 64 bits.
    """
    if not MIN_LONG <= value <= MAX_LONG:
        raise ValueError("needs more than 64 bits")
    value = value << 1 ^ value >> 63
    if 1 << 14 <= value < 1 << 21:  # three bytes, and the eight of a moment, are written out
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    if 1 << 49 <= value < 1 << 56:
        return bytes(
            (
                value & 127 | 128,
                value >> 7 & 127 | 128,
                value >> 14 & 127 | 128,
                value >> 21 & 127 | 128,
                value >> 28 & 127 | 128,
                value >> 35 & 127 | 128,
                value >> 42 & 127 | 128,
                value >> 49,
            )
        )
    found = []
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


SMALL: Final = tuple(zigzag(value) for value in range(4096))
"""Numbers and lengths that most records are made of."""
