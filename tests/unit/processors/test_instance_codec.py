"""Canonical bytes of an instance: golden, complete, and refused when damaged."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from msgspec.structs import fields, replace

from refold import ANY, Context, Event, Late, StateGraph
from refold.examples.order.graph import Charged, OrderPlaced, Reserved, order
from refold.processors.instance import Deferred, Instance, More, OpenAction, Parked
from refold.processors.instance_codec import decode, encode, partition_hash, state_hash
from refold.schemas.errors import Code, FenceError
from refold.testing.driver import Driver

GOLDEN = "<golden>"


def full() -> Instance:
    driver = Driver(order, tenant="acme", source="/shop")
    driver.send("order-ä", OrderPlaced(("apple",), 1250))
    driver.send("order-ä", Reserved())
    kept = Deferred(7, "/shop", "e7", "Charged", b"\1\2", 5, b"i" * 16, b"b" * 8, None, "done", 3)
    more = More(
        (kept,), Parked("REDUCER_RAISED", "ValueError: no", 9, (8, 9)), "over", 1,
        (OpenAction("r1:key", "Charge", "charging", 2, 11),),
    )  # fmt: skip
    return replace(driver.instance("order-ä"), visits=(1, 0, 2, 0, 0), more=more)


def test_the_bytes_of_an_instance_never_change() -> None:
    data = encode(full(), order.build())
    assert data.hex() == GOLDEN
    assert state_hash(data).hex() == "07e86ca576d893af2891f885c910f390"


def test_an_instance_comes_back_equal() -> None:
    definition = order.build()
    data = encode(full(), definition)
    again = decode(data, definition)
    assert again == full()
    assert encode(again, definition) == data


def test_every_field_of_an_instance_is_in_its_bytes() -> None:
    definition = order.build()
    one = full()
    changed: dict[str, object] = {
        "tenant": "other", "id": "order-2", "state": "new", "dedup": b"", "visits": (), "more": More(),
        "context": replace(one.context, total=1), "last_source": "/x", "last_id": "x",
    }  # fmt: skip
    for field in fields(Instance):
        if field.name == "definition":
            continue  # its definition writes it: another one is refused
        value = changed.get(field.name, -5)
        other = replace(one, **{field.name: value})
        assert state_hash(encode(other, definition)) != state_hash(encode(one, definition))


def test_an_instance_without_a_context_comes_back() -> None:
    definition = order.build()
    bare = replace(full(), context=None, more=More(), dedup=b"", visits=())
    assert decode(encode(bare, definition), definition) == bare


class Wide(Context):
    when: datetime
    price: Decimal
    ref: UUID
    ratio: float
    names: dict[str, int]
    raw: bytes
    maybe: int | None = None


class Start(Event):
    pass


WIDE = Wide(
    datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC), Decimal("10.50"), UUID(int=7), -0.0,
    {"z": 1, "ä": 2, "a": 3}, b"\0\xff",
)  # fmt: skip


def test_a_round_trip_keeps_types_order_and_signs() -> None:
    wide = StateGraph("wide", version=1, context=Wide, initial="a")
    wide.on("a", Start, to="b")(lambda ctx, event: ctx)
    wide.final("b", late={ANY: Late.RECORD})
    driver = Driver(wide)
    driver.send("w", Start())
    key = (driver.tenant, "w")
    driver.instances[key] = replace(driver.instances[key], context=WIDE)
    driver.kill_and_recover()
    context = driver.instance("w").context
    assert context == WIDE
    assert (str(context.ratio), str(context.price)) == ("-0.0", "10.50")
    assert list(context.names) == ["a", "z", "ä"]


@pytest.mark.parametrize("cut", [0, 1, 10, -1])
def test_cut_bytes_are_refused(cut: int) -> None:
    definition = order.build()
    with pytest.raises(FenceError) as refused:
        decode(encode(full(), definition)[:cut], definition)
    assert refused.value.code is Code.SNAPSHOT_DAMAGED


def test_bytes_of_another_format_or_workflow_are_refused() -> None:
    definition = order.build()
    data = encode(full(), definition)
    with pytest.raises(FenceError, match="begin with 02"):
        decode(b"\x02" + data[1:], definition)
    with pytest.raises(FenceError, match="belong to 'other' version 1"):
        decode(data.replace(b"\xa8workflow\xa5order", b"\xa8workflow\xa5other"), definition)
    with pytest.raises(FenceError, match="are in state 'gone'"):
        decode(encode(replace(full(), state="gone"), definition), definition)


def test_a_partition_hash_does_not_depend_on_order() -> None:
    one, two = (("t", "a"), b"1" * 16), (("t", "b"), b"2" * 16)
    assert partition_hash([one, two]) == partition_hash([two, one])
    assert partition_hash([one, two]) != partition_hash([one])
    assert partition_hash([(("ta", "b"), b"1" * 16)]) != partition_hash([(("t", "ab"), b"1" * 16)])


def test_a_partition_hash_never_changes() -> None:
    assert partition_hash([]).hex() == "cae66941d9efbd404e4d88758ea67670"
    hashes = [(("acme", "order-1"), b"1" * 16), (("acme", "order-ä"), b"2" * 16)]
    assert partition_hash(hashes).hex() == "32e27cd85bccb0a2a92670b9ca502f71"


SCRIPT = """
from refold.examples.order.graph import Charged, OrderPlaced, Reserved, order
from refold.testing.driver import Driver
driver = Driver(order)
for number in range(5):
    for event in (OrderPlaced(("a", "b"), number), Reserved(), Charged("r")):
        driver.send(f"order-{number}", event)
print(driver.hash().hex(), order.build().fingerprint, *driver.keys())
"""


def test_hashes_fingerprints_and_keys_are_equal_under_another_hash_seed_zone_and_locale() -> None:
    outputs = set()
    for seed, zone, locale in (("0", "UTC", "C"), ("4711", "Asia/Kathmandu", "C.UTF-8")):
        environment = os.environ | {"PYTHONHASHSEED": seed, "TZ": zone, "LC_ALL": locale}
        ran = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, check=True, capture_output=True
        )
        outputs.add(ran.stdout)
    assert len(outputs) == 1
    assert b"r1:test:order:order-4:charging:Charge" in outputs.pop()


def test_the_end_of_the_golden_order_is_reached() -> None:
    driver = Driver(order)
    for event in (OrderPlaced(("a",), 1), Reserved(), Charged("r")):
        driver.send("o", event)
    assert driver.state("o") == "done"
