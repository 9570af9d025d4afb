"""Codecs: a user's type ↔ the bytes of a record, Avro in single-object encoding.

Law of this module: `encode` writes exactly what its schema says or raises; `decode` finds the
writer's schema by the fingerprint in the bytes and raises one class of error for every kind of
damage. Both are plain functions held in slots, because they run for every record.
"""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from refold.schemas.annotations import shape_of
from refold.schemas.derive import (
    Schema,
    fingerprint_of,
    full_name,
    meaning_of,
    parse,
    parse_text,
    schema_of,
    text_of,
)
from refold.schemas.errors import Code, InvariantViolation, RecordError
from refold.schemas.evolve import Upcast, Upcasts, build, foreign_shape
from refold.schemas.faults import fault_in
from refold.schemas.framing import (
    CONFLUENT_HEAD_BYTES,
    HEAD_BYTES,
    MARKER,
    confluent_id,
    fingerprint_in,
    to_confluent,
)
from refold.schemas.given import given_schema
from refold.schemas.reading import Reader, Unresolvable, reader_of
from refold.schemas.shapes import Record
from refold.schemas.writing import writer_of

T = TypeVar("T")


NO_UPCASTS: Final[Upcasts] = MappingProxyType({})


class Codec(Generic[T]):
    """Bytes ↔ objects of one class.

    Args:
        cls: The user's class.
        upcasts: Its upcasters, for whoever teaches it older schemas (`Registry.teach`). A codec
            with some of them is its owner's alone; `codec_of` shares those without.

    Attributes:
        name: Avro full name: the type of the event or command.
        cls: The user's class.
        schema: Its Avro schema, derived, or given as JSON text by the class attribute
            `__avro_schema__`; not to be changed.
        text: Full canonical JSON text of the schema, with logical types; registered and hashed.
        fingerprint: 8 bytes as they stand in every record.
        encode: `encode(obj) -> bytes`: C3 01, fingerprint, body. Raises RecordError
            NOT_STORABLE naming the field; nothing is coerced.
        decode: `decode(value) -> obj`. Raises RecordError UNDECODABLE for any damage,
            SCHEMA_UNKNOWN for a fingerprint that no `add_writer` has brought, UPCASTER_RAISED.
    """

    __slots__ = (
        "_numbers", "_readers", "cls", "decode", "encode", "fingerprint", "name", "schema",
        "shape", "text", "upcasts",
    )  # fmt: skip

    def __init__(self, cls: type[T], upcasts: Upcasts = NO_UPCASTS) -> None:
        self.cls = cls
        self.upcasts = upcasts
        shape = shape_of(cls)
        given = given_schema(cls, shape)
        self.shape: Record = shape if given is None else given[1]
        self.schema: Schema = schema_of(cls) if given is None else given[0]
        self.name = full_name(self.schema)
        self.text = text_of(self.schema)
        self.fingerprint = fingerprint_of(self.schema)
        self._readers: dict[bytes, tuple[str, Reader]] = {}
        self._numbers: dict[bytes, bytes] = {}
        self.add_writer(self.text)
        self.encode: Callable[[T], bytes] = _encode(self.shape, MARKER + self.fingerprint)
        self.decode: Callable[[bytes], T] = _decode(self.name, self._readers, self._numbers)

    def __repr__(self) -> str:
        return f"<Codec {self.name} {self.fingerprint.hex()}>"

    @property
    def writers(self) -> dict[bytes, str]:
        """Full text of every schema that can be read, by fingerprint."""
        return {head[2:]: text for head, (text, _) in self._readers.items()}

    def add_writer(self, schema_text: str, upcast: Upcast | None = None) -> bytes:
        """Learn to read what an older or newer schema wrote; gives its fingerprint.

        Args:
            schema_text: Avro schema as JSON.
            upcast: Takes the old record as a dict of its fields and gives the new fields; without
                it Avro's rules of resolution apply.

        Raises:
            DefinitionError: SCHEMA_INVALID, it is no Avro record schema.
            RecordError: SCHEMA_INCOMPATIBLE, it cannot be read into this class;
                SCHEMA_COLLISION, another schema has its fingerprint.
        """
        schema = parse_text(schema_text)
        head, text = MARKER + fingerprint_of(schema), text_of(schema)
        known = self._readers.get(head)
        if known is not None and upcast is None:
            if meaning_of(parse_text(known[0])) != meaning_of(schema):
                raise _collision(self.name, head[2:])
            return head[2:]
        parsed, named = parse(schema)
        try:
            reader = (
                reader_of(parsed, named, self.shape)
                if upcast is None
                else self._lifted(reader_of(parsed, named, foreign_shape(parsed, named)), upcast)
            )
        except Unresolvable as error:
            raise RecordError(
                Code.SCHEMA_INCOMPATIBLE,
                f"{self.name} cannot be read with the schema that wrote it: {error}.",
                "Give the field a default, or register an upcaster for that schema.",
                fingerprint=head[2:].hex(),
            ) from error
        self._readers[head] = (text, reader)
        return head[2:]

    @property
    def heads(self) -> frozenset[bytes]:
        """What a value that can be read begins with: a fingerprint of 8 bytes behind C3 01, or
        the 5 bytes of a registry's id that is known here."""
        return frozenset(self.writers) | (frozenset(self._numbers) - {b""})

    def expect_numbers(self) -> None:
        """Take a leading zero byte for Confluent wire format although no id is known yet.

        For a process that is set to a registry: an id that the registry does not know is then an
        unknown schema and not damage.
        """
        self._numbers.setdefault(b"", b"")

    def expect_none(self) -> None:
        """Forget the registry's ids: a leading zero byte is damage again."""
        self._numbers.clear()

    def add_number(self, schema_id: int, fingerprint: bytes) -> None:
        """Learn which schema a registry's id stands for, for values in Confluent wire format.

        Args:
            schema_id: The registry's.
            fingerprint: Of a schema that is, or will be, brought by `add_writer`.

        Raises:
            RecordError: SCHEMA_COLLISION, the id stood for another schema before.
        """
        head = to_confluent(MARKER + fingerprint, schema_id)
        if self._numbers.setdefault(head, MARKER + fingerprint) != MARKER + fingerprint:
            raise RecordError(
                Code.SCHEMA_COLLISION,
                f"The registry's id {schema_id} stood for another schema of {self.name} before.",
                "Is it another registry, or one that lost its data? Ids must never change.",
                type=self.name,
            )

    def _lifted(self, read: Reader, upcast: Upcast) -> Reader:
        def lifted(data: bytes, at: int) -> Any:
            old = read(data, at)
            try:
                found = build(self.shape, upcast(old))
            except Exception as error:
                raise self._failed(f"raised {type(error).__name__}: {error}") from error
            fault = fault_in(self.shape, found, self.name, utc=False)
            if fault:
                raise self._failed(f"gave a value that does not fit: {fault}")
            return found

        return lifted

    def _failed(self, what: str) -> RecordError:
        return RecordError(
            Code.UPCASTER_RAISED,
            f"The upcaster of an older schema of {self.name} {what}.",
            "Mend it in a new version of the definition, then redrive the record to it.",
            type=self.name,
        )


def codec_of(cls: type[T]) -> Codec[T]:
    """The codec of a frozen struct, dataclass or pydantic model; made once for each class.

    Raises:
        DefinitionError: SCHEMA_INVALID, naming type, field and cure.
    """
    known = _KNOWN.get(cls)
    if known is None:
        known = _KNOWN[cls] = Codec(cls)
    return known


_KNOWN: Final[dict[type, Codec[Any]]] = {}


def forget_numbers() -> None:
    """Forget every registry's ids, in all codecs of this process; for tests."""
    for codec in _KNOWN.values():
        codec.expect_none()


def _encode(shape: Record, head: bytes) -> Callable[[Any], bytes]:
    write = writer_of(shape, head)

    def encode(obj: Any) -> bytes:
        try:
            return write(obj)
        except Exception as error:
            raise _refusal(shape, obj, error) from None

    return encode


def _refusal(shape: Record, obj: object, error: Exception) -> Exception:
    fault = fault_in(shape, obj, shape.name, utc=False)
    if fault is None:
        return InvariantViolation(f"The encoder of {shape.name} failed: {error!r}.")
    return RecordError(
        Code.NOT_STORABLE, f"{fault}.", "Give a value of the declared type.", type=shape.name
    )


def _decode(
    name: str, readers: dict[bytes, tuple[str, Reader]], numbers: dict[bytes, bytes]
) -> Callable[[bytes], Any]:
    def decode(value: bytes) -> Any:
        try:
            return readers[value[:HEAD_BYTES]][1](value, HEAD_BYTES)
        except KeyError:
            pass  # no such reader, or a KeyError from inside one: told apart below
        except RecordError:
            raise  # an upcaster failed
        except Exception as error:
            raise _damaged(name, error) from error
        if value[:HEAD_BYTES] in readers:
            raise _damaged(name, "a value is none of those that its type allows")
        if numbers and value[:1] == b"\x00":  # without ids of a registry it is no framing of ours
            return numbered(value)
        fingerprint = fingerprint_in(value).hex()
        raise _unknown(name, f"the fingerprint {fingerprint}", fingerprint=fingerprint)

    def numbered(value: bytes) -> Any:
        """A value in Confluent wire format."""
        number = confluent_id(value)
        found = readers.get(numbers.get(value[:CONFLUENT_HEAD_BYTES], b""))
        if found is None:
            raise _unknown(name, f"the registry's id {number}", id=number)
        try:
            return found[1](value, CONFLUENT_HEAD_BYTES)
        except RecordError:
            raise
        except Exception as error:
            raise _damaged(name, error) from error

    return decode


def _unknown(name: str, which: str, **where: object) -> RecordError:
    return RecordError(
        Code.SCHEMA_UNKNOWN,
        f"The value of {name} was written with a schema that cannot be read here: {which}.",
        "Publish the schema to the schema topic, or give an upcaster, then redrive the record.",
        **where,
    )


def _damaged(name: str, error: object) -> RecordError:
    return RecordError(
        Code.UNDECODABLE,
        f"The value of {name} is not what its schema says: {error}.",
        "Find the sender; the record is kept and can be redriven.",
        type=name,
    )


def _collision(name: str, fingerprint: bytes) -> RecordError:
    return RecordError(
        Code.SCHEMA_COLLISION,
        f"Two schemas of {name} have one fingerprint and mean different things.",
        "Rename a field or the type: the fingerprint leaves out logical types and scale.",
        fingerprint=fingerprint.hex(),
    )
