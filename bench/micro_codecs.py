"""Cost of generated codecs beside fastavro's compiled ones, in microseconds a record.

Run: `python bench/micro_codecs.py`. Each figure is the best of several rounds; the machine is
shared with whatever else runs, so read the ratios.
"""

import dataclasses
import io
from collections.abc import Callable
from timeit import repeat
from typing import Any

import fastavro
import pydantic

from refold.schemas.canonical import canonical_of
from refold.schemas.codec import codec_of
from refold.schemas.derive import parse
from refold.schemas.types import Context, Event

CALLS, ROUNDS = 20_000, 7


class Three(Event, frozen=True):
    order: str
    amount: int
    done: bool


class Four(Event, frozen=True):
    order: str
    amount: int
    done: bool
    ratio: float


@dataclasses.dataclass(frozen=True, slots=True)
class FourDataclass:
    order: str
    amount: int
    done: bool
    ratio: float


class FourModel(pydantic.BaseModel, frozen=True):
    order: str
    amount: int
    done: bool
    ratio: float


class Order(Context, frozen=True):
    order: str
    amount: int
    receipt: str | None
    done: bool
    ratio: float


def cost(call: Callable[[], object]) -> float:
    return min(repeat(call, number=CALLS, repeat=ROUNDS)) / CALLS * 1e6


def measure(cls: Any, fields: dict[str, Any]) -> str:
    codec, value = codec_of(cls), cls(**fields)
    data, schema = codec.encode(value), parse(codec.schema)[0]
    body = data[10:]

    def reference_encode() -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, fields)
        return out.getvalue()

    def reference_decode() -> object:
        return fastavro.schemaless_reader(io.BytesIO(body), schema, None)

    figures = (
        cost(lambda: codec.encode(value)),
        cost(reference_encode),
        cost(lambda: codec.decode(data)),
        cost(reference_decode),
    )
    return f"{cls.__name__:<16}" + "".join(f"{figure:>14.2f}" for figure in figures)


def main() -> None:
    fields = {"order": "order-17", "amount": 1234, "done": True, "ratio": 1.5}
    three = {name: fields[name] for name in ("order", "amount", "done")}
    head = ("encode", "fastavro", "decode", "fastavro")
    print(f"{'µs a record':<16}" + "".join(f"{name:>14}" for name in head))
    print(measure(Three, three))
    for cls in (Four, FourDataclass, FourModel):
        print(measure(cls, fields))
    canonical, order = canonical_of(Order), Order("order-17", 1234, None, False, 1.5)
    stored = canonical.encode(order)
    print(
        f"context of 5 fields: fault {cost(lambda: canonical.fault(order)):.2f}, "
        f"encode {cost(lambda: canonical.encode(order)):.2f}, "
        f"decode {cost(lambda: canonical.decode(stored)):.2f}"
    )


if __name__ == "__main__":
    main()
