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
from refold.processors.instance import Deferred, Instance, More, OpenAction, Parked, Timer
from refold.processors.instance_codec import decode, encode, partition_hash, state_hash
from refold.schemas.errors import Code, FenceError
from refold.testing.driver import Driver

GOLDEN = (
    "01de0012a7636f6e7465787483a56974656d7391a56170706c65a772656365697074c0a5746f74616ccd04e2aa"
    "637265617465645f6d73cf0000018bcfe56800a56465647570c4305964dfe3767bcd8ec302b4e35d2d670c06e1"
    "b396a42f963f8a3b8685d78c5b94fdc4198b1d2642d95d134ef437e308ffaa646566696e6974696f6e01a7666f"
    "6c645f6d73cf0000018bcfe56801a26964a86f726465722dc3a4a76c6173745f6964a26531ab6c6173745f6f66"
    "6673657401ab6c6173745f736f75726365a52f73686f70a46d6f726587a7616374696f6e739189a6616374696f"
    "6ea6436861726765a7617474656d707402a36b6579a672313a6b6579a56b6e6f776ea7756e6b6e6f776ea87369"
    "6e63655f6d730ba57374617465a86368617267696e67a6746172676574a56f72646572a474797065a643686172"
    "6765a576616c7565c40101a86465666572726564918aa4626f6479c4086262626262626262ae65787065637465"
    "645f7374617465a4646f6e65b065787065637465645f76657273696f6e03a26964a26537a86964656e74697479"
    "c41069696969696969696969696969696969ab6c6f675f74696d655f6d7305a66f666673657407a6736f757263"
    "65a52f73686f70a474797065a743686172676564a576616c7565c4020102a4646f6e659187a6616374696f6ea7"
    "52657365727665a36b6579a772313a646f6e65a873696e63655f6d730aa57374617465a9726573657276696e67"
    "a6746172676574a56f72646572a474797065a752657365727665a576616c7565c400a5656e646564a46f766572"
    "a67061726b656484a4636f6465ae524544554345525f524149534544a57175657565920809a873696e63655f6d"
    "7309a474657874ae56616c75654572726f723a206e6fa872656f70656e656401a674696d6572739183a6647565"
    "5f6d7363a26964a774696d65722d31a46e616d65a3323468a873696e63655f6d73cf0000018bcfe56801a57374"
    "617465a86368617267696e67a674656e616e74a461636d65ab7472616e736974696f6e7302a9756e6368616e67"
    "656400a776657273696f6e02a6766973697473950100020000a8776f726b666c6f77a56f72646572"
)


def full() -> Instance:
    driver = Driver(order, tenant="acme", source="/shop")
    driver.send("order-ä", OrderPlaced(("apple",), 1250))
    driver.send("order-ä", Reserved())
    kept = Deferred(7, "/shop", "e7", "Charged", b"\1\2", 5, b"i" * 16, b"b" * 8, None, "done", 3)
    more = More(
        (kept,), Parked("REDUCER_RAISED", "ValueError: no", 9, (8, 9)), "over", 1,
        (OpenAction("r1:key", "Charge", "Charge", "order", "charging", b"\1", 11, 2, "unknown"),),
        (OpenAction("r1:done", "Reserve", "Reserve", "order", "reserving", b"", 10),),
        (Timer("timer-1", "24h", 99),),
    )  # fmt: skip
    return replace(driver.instance("order-ä"), visits=(1, 0, 2, 0, 0), more=more)


def test_the_bytes_of_an_instance_never_change() -> None:
    data = encode(full(), order.build())
    assert data.hex() == GOLDEN
    assert state_hash(data).hex() == "10fb9863d246b6dc49d1a3604b6ae4a3"


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
        "tenant": "other", "id": "order-2", "state": "new", "dedup": b"", "visits": (),
        "more": More(), "context": replace(one.context, total=1),
        "last_source": "/x", "last_id": "x",
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
