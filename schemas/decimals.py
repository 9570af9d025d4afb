"""Decimal numbers ↔ Avro's `decimal`: an unscaled integer in two's complement, big-endian.

Law of this module: exact. What would need rounding is refused.
"""

from decimal import Context, Decimal
from typing import Final

from refold.schemas.varint import Damage

_WIDE: Final = Context(prec=1000)


def unscaled_bytes(value: Decimal, precision: int, scale: int) -> bytes:
    """A decimal number as Avro's two's complement bytes.

    Raises:
        ValueError: It is not finite, or does not fit precision and scale exactly.
    """
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError("is not a finite number")
    misfit = f"does not fit {precision} digits with {scale} after the point"
    shift = exponent + scale if value else 0
    if value and (value.adjusted() >= precision - scale or -shift > len(digits)):
        raise ValueError(misfit)  # before a power of ten is computed that fills the memory
    unscaled, factor = int("".join(map(str, digits))), int(10 ** abs(shift))
    if shift < 0 and unscaled % factor:
        raise ValueError(misfit)
    unscaled = unscaled * factor if shift >= 0 else unscaled // factor
    size = (unscaled.bit_length() + 8) // 8
    return (-unscaled if sign else unscaled).to_bytes(size, "big", signed=True)


def decimal_of(raw: bytes, precision: int, scale: int) -> Decimal:
    """The decimal number of Avro's bytes, with `scale` digits after the point.

    Raises:
        Damage: No byte, or more digits than the precision.
    """
    unscaled = int.from_bytes(raw, "big", signed=True)
    if not raw or abs(unscaled) >= 10**precision:
        raise Damage(f"a decimal number does not have 1 to {precision} digits")
    return Decimal(unscaled).scaleb(-scale, _WIDE)
