"""The client of a schema registry against a real HTTP server (see `tests.registry`)."""

from collections.abc import Iterator
from threading import Event as Flag

import pytest
from tests.registry import Registry, registry_server

from refold.schemas.codec import Codec, codec_of
from refold.schemas.errors import Code, DefinitionError, RecordError, ServerError, UsageError
from refold.schemas.framing import to_confluent
from refold.schemas.types import Event
from refold.topics.publisher import Draft, Packer
from refold.topics.schema_registry import AGAIN_S, ANSWER_BYTES, SchemaRegistry, registry_of
from refold.topics.settings import Schemas, load_settings, show


class Paid(Event):
    amount: int


class Empty(Event):
    pass


TEXT = codec_of(Paid).text


@pytest.fixture
def server() -> Iterator[Registry]:
    with registry_server() as registry:
        yield registry


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def client(server: Registry, clock: Clock | None = None, **more: object) -> SchemaRegistry:
    settings = Schemas(format="confluent", registry=server.url, **more)  # type: ignore[arg-type]
    return SchemaRegistry(settings) if clock is None else SchemaRegistry(settings, clock)


def test_a_schema_is_registered_once_and_found_by_its_id(server: Registry) -> None:
    writing, reading = client(server), client(server)
    number = writing.id_of(TEXT, "shop.Paid")
    assert writing.id_of(TEXT, "shop.Paid") == number
    assert reading.text_of(number) == TEXT
    assert reading.text_of(number) == TEXT
    assert server.requests == [
        ("POST", "/subjects/shop.Paid/versions"),
        ("GET", f"/schemas/ids/{number}"),
    ]


def test_an_id_that_the_registry_does_not_know_is_unknown_until_it_does(server: Registry) -> None:
    asking = client(server)
    assert asking.text_of(7) is None
    server.schemas[7] = {"schema": TEXT}
    assert asking.text_of(7) == TEXT


@pytest.mark.parametrize("more", [{"schemaType": "PROTOBUF"}, {"references": [{"name": "x"}]}])
def test_what_is_not_avro_in_one_text_is_unknown(server: Registry, more: object) -> None:
    number = server.add(TEXT, **more)  # type: ignore[arg-type]
    assert client(server).text_of(number) is None


@pytest.mark.parametrize("status", [500, 502, 503, 429, 408])
def test_a_registry_that_is_away_is_no_answer(server: Registry, status: int) -> None:
    server.status = status
    with pytest.raises(ServerError) as caught:
        client(server).text_of(1)
    assert caught.value.code is Code.REGISTRY_AWAY
    assert f"HTTP {status}" in caught.value.what


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b"{}", b'{"schema": 7}', b"[" * 100_000])
def test_an_answer_that_is_not_the_registrys_is_no_answer(server: Registry, body: bytes) -> None:
    server.body = body
    with pytest.raises(ServerError) as caught:
        client(server).text_of(1)
    assert caught.value.code is Code.REGISTRY_AWAY


@pytest.mark.parametrize("body", [b'{"id": "7"}', b'{"id": -1}', b'{"id": true}', b"{}"])
def test_an_id_that_is_none_is_no_answer(server: Registry, body: bytes) -> None:
    server.body = body
    with pytest.raises(ServerError) as caught:
        client(server).id_of(TEXT, "Paid")
    assert caught.value.code is Code.REGISTRY_AWAY


def test_an_endless_answer_is_cut_off(server: Registry) -> None:
    server.body = b"x" * (ANSWER_BYTES + 1)
    with pytest.raises(ServerError, match="longer than"):
        client(server).text_of(1)


def test_a_registry_that_hangs_is_away_in_time(server: Registry) -> None:
    server.hold = Flag()
    with pytest.raises(ServerError) as caught:
        client(server, timeout_s=0.1).text_of(1)
    assert caught.value.code is Code.REGISTRY_AWAY


def test_no_server_at_all_is_away() -> None:
    with registry_server() as gone:
        pass
    with pytest.raises(ServerError) as caught:
        client(gone).text_of(1)
    assert caught.value.code is Code.REGISTRY_AWAY


def test_a_registry_that_is_away_is_asked_once_a_while(server: Registry) -> None:
    clock = Clock()
    asking = client(server, clock)
    server.status = 503
    for _ in range(5):
        with pytest.raises(ServerError):
            asking.text_of(1)
    assert len(server.requests) == 1
    clock.now_s += AGAIN_S
    server.status = 0
    assert asking.text_of(1) is None
    assert len(server.requests) == 2


def test_a_plain_404_says_nothing_about_an_id(server: Registry) -> None:
    """A wrong path, or a proxy in front: never taken for an unknown schema (P27)."""
    asking = SchemaRegistry(Schemas(registry=f"{server.url}/wrong"))
    with pytest.raises(ServerError) as caught:
        asking.text_of(1)
    assert caught.value.code is Code.REGISTRY_REFUSED


def test_a_redirect_is_not_followed(server: Registry) -> None:
    server.status, server.headers = 302, {"Location": f"{server.url}/elsewhere"}
    with pytest.raises(ServerError) as caught:
        client(server).text_of(1)
    assert caught.value.code is Code.REGISTRY_REFUSED
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("user", "password", "token", "header"),
    [("ann", "pw", "", "Basic YW5uOnB3"), ("", "", "t0p", "Bearer t0p")],
)
def test_it_signs_in(server: Registry, user: str, password: str, token: str, header: str) -> None:
    server.authorization = header
    signed = client(server, user=user, password=password, token=token)
    assert signed.text_of(1) is None
    with pytest.raises(ServerError) as caught:
        client(server).text_of(1)
    assert caught.value.code is Code.REGISTRY_REFUSED


def test_a_password_in_the_address_is_used_and_never_shown(server: Registry) -> None:
    server.authorization = "Basic YW5uOnB3"
    address = server.url.replace("http://", "http://ann:pw@")
    asking = SchemaRegistry(Schemas(registry=address))
    assert asking.text_of(1) is None
    assert "pw" not in asking.address
    server.status = 503
    with pytest.raises(ServerError) as caught:
        asking.text_of(2)
    assert "ann:pw" not in str(caught.value)
    settings = load_settings(schemas={"registry": address, "password": "secret", "token": "tok"})
    told = dict(show(settings))
    assert "pw" not in told["schemas.registry"]
    assert told["schemas.password"] == told["schemas.token"] == "(hidden)"


def test_a_schema_that_the_registry_refuses_is_named(server: Registry) -> None:
    server.incompatible = True
    with pytest.raises(DefinitionError) as caught:
        client(server).id_of(TEXT, "Paid")
    assert caught.value.code is Code.SCHEMA_INCOMPATIBLE
    assert "earlier schema" in caught.value.what


def test_without_the_right_to_register_a_schema_is_looked_up(server: Registry) -> None:
    asking = client(server, register_schemas=False)
    with pytest.raises(DefinitionError) as caught:
        asking.id_of(TEXT, "Paid")
    assert caught.value.code is Code.SCHEMA_UNKNOWN
    number = server.add(TEXT, "Paid")
    assert asking.id_of(TEXT, "Paid") == number
    assert not any(path.endswith("/versions") for _, path in server.requests)


@pytest.mark.parametrize("address", ["ftp://registry", "file:///etc/passwd", "registry:8081"])
def test_an_address_of_another_kind_is_refused(address: str) -> None:
    with pytest.raises(UsageError) as caught:
        SchemaRegistry(Schemas(registry=address))
    assert caught.value.code is Code.BAD_SETTING


def test_confluent_needs_an_address_and_an_address_alone_is_read_only(server: Registry) -> None:
    with pytest.raises(UsageError, match="needs registry"):
        load_settings(schemas={"format": "confluent"})
    assert registry_of(Schemas()) is None
    reading = registry_of(Schemas(registry=server.url))
    assert reading is not None
    assert not reading.writes


def test_events_are_framed_with_the_id_of_their_schema(server: Registry) -> None:
    packer = Packer("ns", "order", "/shop", "acme", client(server))
    parcel = packer.pack(Draft(instance="o", event=Paid(amount=3), id="1"))
    (number,) = server.subjects["Paid"]
    assert parcel.value == to_confluent(codec_of(Paid).encode(Paid(amount=3)), number)
    plain = Packer("ns", "order", "/shop", "acme", SchemaRegistry(Schemas(registry=server.url)))
    assert plain.pack(Draft(instance="o", event=Paid(amount=3), id="1")).value[:2] == b"\xc3\x01"


def test_a_codec_reads_both_framings_and_tells_an_unknown_id() -> None:
    for event in (Paid(amount=3), Empty()):
        codec = Codec(type(event))
        value = codec.encode(event)
        with pytest.raises(RecordError) as caught:
            codec.decode(to_confluent(value, 5))
        assert caught.value.code is Code.UNDECODABLE  # no registry's id is known: no framing
        codec.add_number(5, codec.fingerprint)
        with pytest.raises(RecordError) as caught:
            codec.decode(to_confluent(value, 6))
        assert caught.value.code is Code.SCHEMA_UNKNOWN
        assert caught.value.where["id"] == 6
        assert codec.decode(to_confluent(value, 5)) == event
        assert codec.decode(value) == event
        with pytest.raises(RecordError) as caught:
            codec.decode(to_confluent(value, 5) + b"\x00")
        assert caught.value.code is Code.UNDECODABLE
        with pytest.raises(RecordError) as caught:
            codec.add_number(5, b"\x01" * 8)
        assert caught.value.code is Code.SCHEMA_COLLISION
