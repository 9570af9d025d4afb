"""Avro codecs of W1's four types, written out by hand as a generator would write them.

Law of this module: no import of refold. One function a type and direction, the field names and
their order in the code; strings under 64 bytes and small numbers have a short way.
"""

from typing import Final

import msgspec

from bench.limits import wire


class Order(msgspec.Struct, frozen=True, gc=False):
    """The context."""

    customer: str
    item: str
    quantity: int
    total: int
    receipt: str = ""


class OrderPlaced(msgspec.Struct, frozen=True, gc=False):
    """The first event."""

    customer: str
    item: str
    quantity: int
    total: int


class OrderPaid(msgspec.Struct, frozen=True, gc=False):
    """The second event."""

    receipt: str
    method: str
    amount: int
    paid_at: int


SHORT: Final = [bytes([length * 2]) for length in range(64)]
"""Avro's length of a string under 64 bytes: one byte, zigzag."""
RESERVE_HEAD: Final = wire.RESERVE.head
SHIP_HEAD: Final = wire.SHIP.head


def long_bytes(value: int) -> bytes:
    """Zigzag varint of a 64-bit integer."""
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    out.append(left)
    return bytes(out)


def _long(data: bytes, at: int) -> tuple[int, int]:
    raw, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7


def _text(data: bytes, at: int) -> tuple[str, int]:
    length, at = _long(data, at)
    return data[at : at + length].decode(), at + length


def order_placed(data: bytes) -> OrderPlaced:
    """Decodes an `OrderPlaced` behind its ten bytes."""
    at = 10
    if (n := data[at]) < 128:
        at = (start := at + 1) + (n >> 1)
        customer = data[start:at].decode()
    else:
        customer, at = _text(data, at)
    if (n := data[at]) < 128:
        at = (start := at + 1) + (n >> 1)
        item = data[start:at].decode()
    else:
        item, at = _text(data, at)
    if (n := data[at]) < 128:
        quantity = (n >> 1) ^ -(n & 1)
        at += 1
    else:
        quantity, at = _long(data, at)
    if (n := data[at]) < 128:
        total = (n >> 1) ^ -(n & 1)
    else:
        total, at = _long(data, at)
    return OrderPlaced(customer, item, quantity, total)


def order_paid(data: bytes) -> OrderPaid:
    """Decodes an `OrderPaid` behind its ten bytes."""
    at = 10
    if (n := data[at]) < 128:
        at = (start := at + 1) + (n >> 1)
        receipt = data[start:at].decode()
    else:
        receipt, at = _text(data, at)
    if (n := data[at]) < 128:
        at = (start := at + 1) + (n >> 1)
        method = data[start:at].decode()
    else:
        method, at = _text(data, at)
    if (n := data[at]) < 128:
        amount = (n >> 1) ^ -(n & 1)
        at += 1
    else:
        amount, at = _long(data, at)
    if (n := data[at]) < 128:
        paid_at = (n >> 1) ^ -(n & 1)
    else:
        paid_at, at = _long(data, at)
    return OrderPaid(receipt, method, amount, paid_at)


def _length(text: bytes) -> bytes:
    return SHORT[n] if (n := len(text)) < 64 else long_bytes(n)


def reserve_item(customer: str, item: str, quantity: int) -> bytes:
    """Encodes a `ReserveItem` with its ten bytes."""
    a, b = customer.encode(), item.encode()
    number = SHORT[quantity] if 0 <= quantity < 64 else long_bytes(quantity)
    return b"%b%b%b%b%b%b" % (RESERVE_HEAD, _length(a), a, _length(b), b, number)


def ship_order(customer: str, item: str, receipt: str) -> bytes:
    """Encodes a `ShipOrder` with its ten bytes."""
    a, b, c = customer.encode(), item.encode(), receipt.encode()
    return b"%b%b%b%b%b%b%b" % (SHIP_HEAD, _length(a), a, _length(b), b, _length(c), c)
