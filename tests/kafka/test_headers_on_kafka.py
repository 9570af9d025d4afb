import pytest
from confluent_kafka import Message
from tests.kafka import foreign
from tests.kafka.conftest import Read

from refold.schemas.errors import Code
from refold.schemas.verdicts import Decision, Reason, Verdict
from refold.topics.headers import UNREADABLE, headers_of
from refold.topics.records import EventReader, Fault
from refold.topics.rejected import encode, redrive_of
from refold.topics.settings import Settings

pytestmark = pytest.mark.kafka


def test_a_header_name_that_is_not_utf8_refuses_its_record_and_ends_nothing_b020(
    shop: Settings, read_all: Read
) -> None:
    topic = f"{shop.namespace}.order.events"
    foreign.produce(shop.kafka.bootstrap, topic, b"order-1", b"value", b"\xc3\x28 trace")
    (message,) = read_all(topic, 0)
    reader = EventReader("order", 1, "acme")
    for _ in range(10_000):  # until Python has specialised every call on the way
        reader.read(Message(topic=topic, key=b"k", value=b"v", headers=[("a", b"b")]), 0)
    for _ in range(3):  # at its second look the client would end the process
        fault = reader.read(message, 0)
        assert isinstance(fault, Fault)
        assert (fault.verdict, fault.reason.code) == (Verdict.REFUSED, Code.BAD_ENVELOPE)
        assert "name is not UTF-8" in fault.reason.text
    assert redrive_of(headers_of(message)) is None
    kept = encode(message, Decision(0, Verdict.REFUSED, Reason(Code.BAD_ENVELOPE, "because")))
    assert (kept.key, kept.value) == (b"order-1", b"value")
    assert f"original-{UNREADABLE}" in dict(kept.headers)
