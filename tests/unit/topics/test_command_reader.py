"""The fast reader of commands gives what the slow one gives, whatever comes."""

from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from refold.schemas.envelope import CommandRecord, EventRecord
from refold.schemas.errors import RecordError
from refold.topics.command_reader import CommandReader
from refold.topics.headers import Headers
from refold.topics.records import CommandWriter, read_command

TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NAMES = (
    *("ce_specversion", "ce_source", "content-type", "ce_replyto", "ce_type", "ce_tenant"),
    *("ce_state", "ce_attempt", "ce_id", "idempotency-key", "ce_time", "traceparent", "x"),
)


class Sent:
    """A command to be written."""

    type = "Charge"
    key = "r1:acme:order:order-1:charging:charge:%2Fshop%1Fe1:forward"
    state = "charging"
    attempt = 1


def headers(trace: bytes | None = None) -> Headers:
    event = EventRecord(
        "acme", "order-1", "/shop", "e1", "OrderPlaced", b"v", 0, 0, b"", b"", traceparent=trace
    )
    return CommandWriter("refold", "order").headers(Sent(), event, 1_769_847_300_250)


def message(
    given: Headers, key: bytes | None = b"order-1", value: bytes | None = b"\xc3\x01cmd"
) -> Message:
    return Message(
        topic="refold.pay.commands", partition=3, offset=41, key=key, value=value, headers=given
    )


def told(read: object) -> CommandRecord | str:
    """What a reader gives, its error as text."""
    try:
        return read()  # type: ignore[operator, no-any-return]
    except RecordError as error:
        return str(error)


def taught() -> CommandReader:
    reader = CommandReader()
    assert reader.read(message(headers())) == read_command(message(headers()))
    return reader


def test_a_second_command_is_read_from_what_the_first_one_taught() -> None:
    reader = taught()
    for trace in (None, TRACE):
        second = message(headers(trace), key=b"order-2", value=b"\xc3\x01other")
        assert reader.read(second) == read_command(second)
    assert len(reader._known) == 1


def test_what_is_shared_is_forgotten_before_it_fills_memory() -> None:
    reader = taught()
    for number in range(5000):
        named = [(n, b"s%d" % number if n == "ce_state" else v) for n, v in headers()]
        assert reader.read(message(named)).state == f"s{number}"
    assert len(reader._known) <= 4096


@given(
    edits=st.lists(
        st.tuples(
            st.sampled_from(["drop", "repeat", "rename", "value", "null", "swap"]),
            st.integers(0, 11),
            st.sampled_from(NAMES),
            st.sampled_from(
                [b"", b"x", b"\xff", b"1.0", b"a" * 300, b"a\nb", b"a\0", "ä".encode() * 60]
            ),
        ),
        max_size=3,
    ),
    key=st.sampled_from([None, b"", b"order-2", b"\xff", b"a" * 129, b"a\x00b"]),
    value=st.sampled_from([None, b"", b"\xc3\x01other"]),
)
def test_whatever_comes_is_read_or_refused_as_the_slow_reader_does_it(
    edits: list[tuple[str, int, str, bytes]], key: bytes | None, value: bytes | None
) -> None:
    mangled = headers(TRACE)
    for how, at, name, raw in edits:
        place = at % len(mangled)
        old_name, old = mangled[place]
        if how == "drop":
            del mangled[place]
        elif how == "repeat":
            mangled.append((old_name, raw))
        elif how == "swap":
            mangled.append(mangled.pop(place))
        else:
            changed = {"rename": (name, old), "value": (old_name, raw), "null": (old_name, None)}
            mangled[place] = changed[how]
    reader = taught()
    for _ in range(2):  # the second time from what the first one may have taught
        came = message(mangled, key, value)
        assert told(lambda m=came: reader.read(m)) == told(lambda m=came: read_command(m))
