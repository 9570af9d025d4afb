import msgspec
import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from refold.examples.order.graph import Charge
from refold.schemas.envelope import (
    Answer,
    EventRecord,
    Outcome,
    Parent,
    body_digest,
    event_identity,
)
from refold.schemas.errors import Code, RecordError
from refold.schemas.verdicts import Verdict
from refold.topics.headers import Headers
from refold.topics.publisher import Draft, Packer
from refold.topics.records import (
    COMMAND_HEADERS,
    EVENT_HEADERS,
    CommandWriter,
    EventReader,
    Fault,
    event_headers,
    is_engine_source,
    read_command,
)

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PLAIN: Headers = [
    ("ce_specversion", b"1.0"),
    ("ce_id", b"e1"),
    ("ce_source", b"/shop/checkout"),
    ("ce_type", b"OrderPlaced"),
    ("ce_time", b"2026-01-31T08:15:00Z"),
    ("ce_tenant", b"acme"),
    ("content-type", b"application/avro"),
]


def message(
    headers: Headers | None = None,
    *,
    key: bytes | None = b"order-1",
    value: bytes | None = b"\xc3\x01body",
) -> Message:
    return Message(
        topic="refold.order.events",
        partition=0,
        offset=41,
        key=key,
        value=value,
        headers=PLAIN if headers is None else headers,
        timestamp=(2, 1_769_847_300_250),
    )


def without(*names: str) -> Headers:
    return [pair for pair in PLAIN if pair[0] not in names]


def changed(name: str, value: bytes | None) -> Headers:
    return [*without(name), (name, value)]


def read(given: Message, tenant: str = "") -> EventRecord | Fault:
    """Read twice, the second time with warm caches, and once without the fast path."""
    reader = EventReader("order", 1, tenant)
    reader.read(message(), 0)
    first = reader.read(given, 0)
    assert reader.read(given, 0) == first == reader.judge(given)
    return first


def accepted(given: Message, tenant: str = "") -> EventRecord:
    found = read(given, tenant)
    assert isinstance(found, EventRecord), found
    return found


def refused(given: Message, code: Code, verdict: Verdict = Verdict.REFUSED) -> str:
    found = read(given)
    assert isinstance(found, Fault), found
    assert (found.verdict, found.reason.code) == (verdict, code)
    assert len(found.reason.text.encode()) < 512
    return found.reason.text


def test_the_envelope_of_a_plain_event_is_read() -> None:
    assert accepted(message()) == EventRecord(
        tenant="acme",
        instance="order-1",
        source="/shop/checkout",
        id="e1",
        type="OrderPlaced",
        value=b"\xc3\x01body",
        offset=41,
        log_time_ms=1_769_847_300_250,
        identity=event_identity("/shop/checkout", "e1"),
        body=body_digest("OrderPlaced", b"\xc3\x01body"),
        time="2026-01-31T08:15:00Z",
    )


def test_optional_attributes_are_read() -> None:
    headers = [
        *PLAIN,
        ("ce_subject", b"order-1"),
        ("ce_expectedstate", b"charging"),
        ("ce_expectedversion", b"7"),
        ("traceparent", TRACE.encode()),
    ]
    event = accepted(message(headers))
    assert (event.expected_state, event.expected_version) == ("charging", 7)
    assert event.traceparent == TRACE.encode()


def test_time_trace_and_content_type_may_be_absent() -> None:
    assert accepted(message(without("ce_time", "content-type"))).time is None
    assert accepted(message([*PLAIN, ("traceparent", TRACE.encode())])).traceparent is not None


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (None, "no key"),
        (b"", "empty key"),
        (b"\x83\xff", "not UTF-8"),
        ((1234).to_bytes(8, "big"), "not UTF-8"),
        ((42).to_bytes(8, "big"), "control characters"),
        (b"\x00\x00\x00\x00\x01\x0eorder-1", "control characters"),
        (b"x" * 129, "longer than 128"),
        ("ü".encode() * 65, "longer than 128"),
        ("a\u0085b".encode(), "control characters"),
    ],
)
def test_a_key_that_is_no_instance_id_is_refused_b003(key: bytes | None, said: str) -> None:
    assert said in refused(message(key=key), Code.BAD_KEY)


def test_a_key_of_128_bytes_and_other_scripts_is_an_instance_id() -> None:
    for key in (b"x" * 128, "注文 1".encode(), "größe\u00a07".encode()):
        assert accepted(message(key=key)).instance == key.decode()


def test_a_subject_that_is_not_the_key_is_refused_b003() -> None:
    headers: Headers = [*PLAIN, ("ce_subject", b"order-6")]
    assert "order-6" in refused(message(headers), Code.BAD_KEY)


@pytest.mark.parametrize("name", ["ce_specversion", "ce_id", "ce_source", "ce_type"])
@pytest.mark.parametrize("value", [None, b""])
def test_a_required_attribute_that_is_null_or_empty_is_refused_b020(
    name: str, value: bytes | None
) -> None:
    assert name in refused(message(changed(name, value)), Code.BAD_ENVELOPE)
    assert name in refused(message(without(name)), Code.BAD_ENVELOPE)
    assert name in refused(message([*without(name), ("x", b"y")]), Code.BAD_ENVELOPE)


@pytest.mark.parametrize(
    "name",
    ["ce_tenant", "ce_time", "ce_expectedstate", "ce_expectedversion", "traceparent"],
)
@pytest.mark.parametrize("value", [None, b"", b"\xc3\x28"])
def test_an_optional_attribute_that_is_damaged_is_refused_b020(
    name: str, value: bytes | None
) -> None:
    assert name in refused(message(changed(name, value)), Code.BAD_ENVELOPE)


def test_an_own_header_twice_with_other_values_is_refused_b020() -> None:
    headers: Headers = [*PLAIN, ("ce_id", b"e2")]
    assert "ce_id twice" in refused(message(headers), Code.BAD_ENVELOPE)


def test_an_own_header_twice_with_one_value_is_one() -> None:
    assert accepted(message([*PLAIN, ("ce_id", b"e1")])).id == "e1"


def test_headers_of_others_are_not_looked_at_b020() -> None:
    headers: Headers = [*PLAIN, ("trace", b"\xc3\x28"), ("x", None), ("x", b"1"), ("x", b"2")]
    assert accepted(message(headers)).id == "e1"


def test_three_hundred_headers_are_refused_b020() -> None:
    headers: Headers = [*PLAIN, *((f"h{n}", b"1") for n in range(300))]
    assert "307 headers" in refused(message(headers), Code.BAD_ENVELOPE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ce_specversion", b"0.3"),
        ("ce_type", b"Order Placed"),
        ("ce_type", b"x" * 65),
        ("ce_tenant", b"a.b"),
        ("ce_tenant", b"t" * 65),
        ("ce_id", b"i" * 129),
        ("ce_id", b"a\x1fb"),
        ("ce_source", b"s" * 257),
        ("ce_source", b"/a\nb"),
        ("ce_expectedstate", b"no state"),
        ("ce_expectedversion", b"-1"),
        ("ce_expectedversion", "７".encode()),
        ("ce_expectedversion", b"9" * 19),
    ],
)
def test_an_attribute_of_a_wrong_form_is_refused(name: str, value: bytes) -> None:
    assert name in refused(message(changed(name, value)), Code.BAD_ENVELOPE)


def test_a_structured_cloud_event_is_refused_with_a_hint() -> None:
    headers: Headers = [("content-type", b"application/cloudevents+json")]
    assert "structured mode" in refused(message(headers), Code.BAD_ENVELOPE)


def test_a_null_value_deletes_nothing_and_an_empty_one_is_poison_b019() -> None:
    refused(message(value=None), Code.TOMBSTONE)
    refused(message(value=b""), Code.UNDECODABLE, Verdict.POISON)


def test_a_record_without_tenant_gets_the_topics_or_is_refused() -> None:
    headers = without("ce_tenant")
    assert accepted(message(headers), tenant="main").tenant == "main"
    assert "ce_tenant" in refused(message(headers), Code.BAD_ENVELOPE)


@pytest.mark.parametrize("source", [b"/shop/checkout", b"/refold/", b"/refold/cli", b"/refold//me"])
def test_the_engines_own_types_need_the_engines_source(source: bytes) -> None:
    headers = [*without("ce_type", "ce_source"), ("ce_source", source)]
    assert "/refold/<role>/<who>" in refused(
        message([*headers, ("ce_type", b"refold.redrive")]), Code.RESERVED_TYPE
    )


def test_the_engines_own_types_come_from_the_engine() -> None:
    headers = without("ce_type", "ce_source")
    event = accepted(
        message([*headers, ("ce_type", b"refold.redrive"), ("ce_source", b"/refold/cli/ada")])
    )
    assert event.type == "refold.redrive"
    assert is_engine_source("/refold/cli/ada/home")


def test_a_foreign_placed_key_is_misplaced_b001() -> None:
    reader = EventReader("order", 12)
    assert reader.misplaced(b"order-1001", 6) is None
    fault = reader.misplaced(b"order-1001", 9)
    assert fault is not None
    assert (fault.verdict, fault.reason.code) == (Verdict.REFUSED, Code.WRONG_PARTITION)
    assert "partition 9 of 12" in fault.reason.text


def test_caches_stay_bounded() -> None:
    reader = EventReader("order", 1)
    for number in range(10_000):
        reader.read(message(changed("ce_source", b"/s/%d" % number)), 0)
    assert len(reader._sources) <= 4096


own = st.sampled_from([*sorted(EVENT_HEADERS), "x"])
held = st.one_of(
    st.none(), st.binary(max_size=6), st.sampled_from([b"1.0", b"e1", b"order-1", TRACE.encode()])
)


@given(
    st.lists(st.tuples(own, held), max_size=4),
    st.sets(own, max_size=2),
    st.one_of(st.none(), st.binary(max_size=9)),
    st.one_of(st.none(), st.binary(max_size=9)),
)
def test_any_record_is_an_event_or_a_fault_and_never_an_exception(
    added: Headers, removed: set[str], key: bytes | None, value: bytes | None
) -> None:
    read(message([*without(*removed), *added], key=key, value=value))


class Send(msgspec.Struct, frozen=True):
    type: str = "Charge"
    key: str = "r1:acme:order:order-1:charging:charge:%2Fshop%1Fe1:forward"
    state: str = "charging"
    attempt: int = 1


def test_a_command_is_read_as_it_was_written() -> None:
    writer = CommandWriter("refold", "order")
    event = accepted(message([*PLAIN, ("traceparent", TRACE.encode())]))
    for _ in range(2):  # the second one from the cache
        headers = writer.headers(Send(), event, 1_769_847_300_250)
        command = read_command(message(headers, value=b"\xc3\x01cmd"))
    assert {name for name, _ in headers} == COMMAND_HEADERS
    assert (command.tenant, command.instance, command.workflow) == ("acme", "order-1", "order")
    assert (command.type, command.state, command.attempt) == ("Charge", "charging", 1)
    assert (command.key, command.reply_to) == (Send().key, "refold.order.events")
    assert command.time == "2026-01-31T08:15:00.250Z"
    assert command.traceparent == TRACE.encode()
    assert dict(headers)["ce_id"] == f"{Send().key}/1".encode()


def test_a_command_without_trace_has_no_traceparent() -> None:
    headers = CommandWriter("refold", "order").headers(Send(), accepted(message()), 0)
    assert {name for name, _ in headers} == COMMAND_HEADERS - {"traceparent"}


def test_a_command_of_somebody_else_is_refused_with_its_coordinates() -> None:
    with pytest.raises(RecordError, match="a command has no idempotency-key") as caught:
        read_command(message(PLAIN))
    assert caught.value.where["offset"] == 41


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ce_tenant", b"a\0b"),
        ("ce_tenant", b"a" * 10_000),
        ("ce_source", b"/shop/"),
        ("ce_source", b"/shop/or\0der"),
        ("ce_type", b"Charge\0"),
        ("ce_type", b"C" * 10_000),
        ("ce_state", b"char\0ging"),
        ("ce_state", b"s" * 10_000),
        ("ce_replyto", b"refold.order.events\0"),
        ("ce_replyto", b"r" * 10_000),
        ("ce_replyto", b".."),
        ("idempotency-key", b"k" * 10_000),
        ("idempotency-key", b"k\0"),
        ("ce_attempt", b"0"),
        ("ce_attempt", b"-1"),
        ("ce_attempt", b"2147483648"),
        ("traceparent", b"\xff\xfe"),
        ("traceparent", b"\0"),
        ("traceparent", b"t" * 10_000),
    ],
)
def test_a_command_holds_nothing_that_a_ledger_cannot_hold(name: str, value: bytes) -> None:
    event = accepted(message([*PLAIN, ("traceparent", TRACE.encode())]))
    headers = dict(CommandWriter("refold", "order").headers(Send(), event, 0)) | {name: value}
    with pytest.raises(RecordError, match=name):
        read_command(message(list(headers.items()), value=b"\xc3\x01cmd"))


def test_the_headers_of_a_publisher_are_read_back() -> None:
    headers = event_headers(
        "e1",
        "/shop/checkout",
        "OrderPlaced",
        "acme",
        time="2026-01-31T08:15:00Z",
        expected_state="new",
        expected_version=0,
        traceparent=TRACE,
    )
    event = accepted(message(headers))
    assert (event.id, event.expected_state, event.expected_version) == ("e1", "new", 0)


PARENT = Parent("order", "order-7", "r1:acme:order:order-7:sending:parcel.p1:x%1Fe1:forward")


def child_headers(source: str = "/refold/workflow/order") -> Headers:
    return event_headers("start-1", source, "ParcelOrdered", "acme", parent=PARENT)


def test_an_event_that_starts_a_child_says_for_whom() -> None:
    assert accepted(message(child_headers())).parent == PARENT


def test_only_a_workflow_starts_children() -> None:
    for source in ("/shop", "/refold/executor/order", "/refold/workflow/a b"):
        assert "has a ce_parentkey" in refused(message(child_headers(source)), Code.BAD_ENVELOPE)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("ce_parentkey", b"r1:key", "is no idempotency key"),
        ("ce_parentkey", b"k" * 256, "longer than 255"),
        ("ce_parentinstance", b"", "no ce_parentinstance"),
    ],
)
def test_half_a_parent_is_refused(name: str, value: bytes, told: str) -> None:
    headers = [(each, value if each == name else held) for each, held in child_headers()]
    assert told in refused(message(headers), Code.BAD_ENVELOPE)


def test_headers_over_their_limits_are_not_written() -> None:
    with pytest.raises(RecordError, match="longer than 128"):
        event_headers("e" * 129, "/s", "OrderPlaced", "acme")
    with pytest.raises(RecordError, match="event tenant"):
        event_headers("e", "/s", "OrderPlaced", "a b")


def test_an_event_without_tenant_has_no_tenant_header() -> None:
    names = [name for name, _ in event_headers("e", "/s", "OrderPlaced", "")]
    assert "ce_tenant" not in names


def test_a_command_cannot_be_published_as_an_event() -> None:
    packer = Packer("ns", "order", "/shop", "acme")
    with pytest.raises(RecordError, match="Charge is a Command"):
        packer.pack(Draft(instance="o", event=Charge(amount=1), id="e"))


ANSWER: Headers = [
    ("idempotency-key", b"r1:key"),
    ("ce_attempt", b"2"),
    ("ce_outcome", b"failed"),
]


@pytest.mark.parametrize("trace", [[], [("traceparent", TRACE.encode())]])
@pytest.mark.parametrize("turn", range(3))
def test_an_answer_names_its_action_its_attempt_and_its_outcome(trace: Headers, turn: int) -> None:
    headers = [*PLAIN, *trace, *ANSWER]
    event = accepted(message(headers[turn:] + headers[:turn]))
    assert event.answer == Answer("r1:key", 2, Outcome.FAILED)
    assert event.traceparent == (trace[0][1] if trace else None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ce_outcome", b"perhaps"),
        ("ce_outcome", None),
        ("ce_attempt", b"-1"),
        ("ce_attempt", b""),
        ("ce_attempt", "٣".encode()),
        ("idempotency-key", b""),
        ("idempotency-key", b"k" * 256),
        ("idempotency-key", b"a\nb"),
        ("idempotency-key", b"\xff"),
    ],
)
def test_an_answer_that_does_not_say_what_became_of_which_action_is_refused(
    name: str, value: bytes | None
) -> None:
    headers = [(one, value if one == name else given) for one, given in (*PLAIN, *ANSWER)]
    refused(message(headers), Code.BAD_ENVELOPE)


def test_an_outcome_without_a_key_is_nothing_of_ours() -> None:
    assert accepted(message([*PLAIN, *ANSWER[1:]])).answer is None
