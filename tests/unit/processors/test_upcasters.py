"""Upcasters: declared with the graph, checked like reducers, and part of what the fold is."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import pytest

from refold import ANY, Context, Event, Late, StateGraph
from refold.processors.definition import Definition, Workflow
from refold.processors.diff import diff
from refold.schemas.codec import Codec, codec_of
from refold.schemas.errors import Code, DefinitionError
from refold.schemas.shapes import WasNamed
from refold.schemas.verdicts import Verdict
from refold.testing.driver import Driver

Fields = dict[str, Any]
Lift = Callable[[Fields], Fields]


class OldSignUp(Event):
    __avro_name__: ClassVar[str] = "SignUp"

    name: str
    mail: str


class SignUp(Event):
    first: str
    last: str
    address: Annotated[str, WasNamed("mail")]
    source: str = "web"


class Confirmed(Event):
    pass


class OldMember(Context):
    name: str = ""


class Member(Context):
    first: str = ""
    last: str = ""
    tags: dict[str, int] = {}  # noqa: RUF012  # msgspec copies it


def split(old: Fields) -> Fields:
    first, _, last = old["name"].partition(" ")
    return {"first": first, "last": last, "address": old["mail"]}


def split_name(old: Fields) -> Fields:
    first, _, last = old["name"].partition(" ")
    return {"first": first, "last": last, "tags": {"z": 1, "a": 2}}


def joined(_: OldMember, event: OldSignUp) -> OldMember:
    if not event.mail:
        raise ValueError("no address")
    return OldMember(name=event.name)


def joined_apart(_: Member, event: SignUp) -> Member:
    return Member(first=event.first, last=event.last)


def first_version() -> Definition:
    graph = StateGraph("member", version=1, context=OldMember, initial="new")
    graph.on("new", OldSignUp, to="waiting")(joined)
    graph.on("waiting", Confirmed, to="member")
    graph.final("member", late={ANY: Late.RECORD})
    return graph.build()


def second(*lifts: tuple[int, Lift], context: Lift | None = None) -> StateGraph[Member]:
    graph = StateGraph("member", version=2, context=Member, initial="new")
    graph.on("new", SignUp, to="waiting")(joined_apart)
    graph.on("waiting", Confirmed, to="member")
    graph.final("member", late={ANY: Late.RECORD})
    for sequence, lift in lifts:
        graph.upcast(SignUp, sequence=sequence)(lift)
    if context is not None:
        graph.upcast_context(from_version=1)(context)
    return graph


def driven(new: StateGraph[Member], *, active: int = 2) -> Driver:
    driver = Driver(Workflow("member", [first_version(), new]), active=active)
    driver.learn(OldSignUp, SignUp)
    return driver


def test_an_event_of_an_older_schema_is_lifted_before_the_reducer_sees_it() -> None:
    driver = driven(second((1, split)))
    driver.send("m", OldSignUp(name="Ada King", mail="ada@example.org"))
    driver.send("n", SignUp(first="Al", last="Go", address="al@example.org"))
    assert driver.instance("m").context == Member(first="Ada", last="King")
    assert driver.instance("n").context == Member(first="Al", last="Go")
    driver.check_replay()


def test_two_versions_read_one_type_each_in_its_own_way() -> None:
    driver = driven(second((1, split)), active=1)
    driver.send("m", OldSignUp(name="Ada King", mail="a"))
    driver.active = 2
    driver.send("n", OldSignUp(name="Ada King", mail="a"))
    assert driver.instance("m").context == OldMember(name="Ada King")
    assert driver.instance("n").context == Member(first="Ada", last="King")


def test_an_upcaster_that_raises_parks_an_instance_and_is_poison_without_one() -> None:
    def broken(old: Fields) -> Fields:
        return {"first": old["nothing"]}

    driver = driven(second((1, broken)))
    old = OldSignUp(name="Ada King", mail="a")
    step = driver.send("m", old)
    assert step.verdict is Verdict.POISON
    driver.send("m", SignUp(first="Al", last="Go", address="a"))
    step = driver.send("m", old, id="again")
    assert step.verdict is Verdict.PARKED
    assert step.reason is not None
    assert step.reason.code is Code.UPCASTER_RAISED
    assert "KeyError" in step.reason.text
    driver.check_replay()


def parked_on_the_first_version(new: StateGraph[Member]) -> Driver:
    driver = driven(new, active=1)
    driver.send("m", OldSignUp(name="Ada King", mail="ada@example.org"))
    driver.send("m", SignUp(first="A", last="K", address="a"))  # cannot be read by version 1
    assert driver.instance("m").more.parked is not None
    return driver


def test_a_redrive_lifts_the_context_that_it_takes_to_a_newer_version() -> None:
    driver = parked_on_the_first_version(second((1, split), context=split_name))
    step = driver.redrive("m", version=2)
    assert step.verdict is Verdict.APPLIED
    context = driver.instance("m").context
    assert context == Member(first="Ada", last="King", tags={"a": 2, "z": 1})
    assert list(context.tags) == ["a", "z"]  # as after a reload, whatever the upcaster gave
    driver.kill_and_recover()
    driver.check_replay()


@pytest.mark.parametrize(
    "lift",
    [
        lambda old: {"first": old["nothing"]},
        lambda old: {"first": 7},
        lambda old: {"first": "\ud800"},
        lambda old: {"other": ""},
        lambda old: None,
    ],
)
def test_a_redrive_whose_context_cannot_be_lifted_is_refused(lift: Lift) -> None:
    driver = parked_on_the_first_version(second(context=lift))
    step = driver.redrive("m", version=2)
    assert step.verdict is Verdict.REFUSED
    assert step.reason is not None
    assert step.reason.code is Code.REDRIVE_REFUSED
    assert driver.instance("m").definition == 1


def test_a_context_without_an_upcaster_must_load_as_it_is() -> None:
    driver = parked_on_the_first_version(second())
    step = driver.redrive("m", version=2)
    assert step.reason is not None
    assert "cannot load the context" in step.reason.text


def test_upcasters_are_part_of_the_fingerprint_and_of_the_canonical_form() -> None:
    def other(old: Fields) -> Fields:
        return {**split(old), "source": "old"}

    plain = second().build()
    same, lifted = second((1, split)).build(), second((1, split)).build()
    assert same.fingerprint == lifted.fingerprint
    found = {
        plain.fingerprint,
        lifted.fingerprint,
        second((2, split)).build().fingerprint,
        second((1, other)).build().fingerprint,
        second((1, split), context=split_name).build().fingerprint,
    }
    assert len(found) == 5
    assert b'"upcasters"' not in plain.to_json()
    assert b'"lift":"split","sequence":1' in lifted.to_json()
    changes = {(one.part, one.name) for one in diff(lifted, second((1, other)).build())}
    assert changes == {("upcaster", "SignUp 1"), ("code", "upcaster of SignUp 1")}


def test_a_definition_with_upcasters_has_codecs_of_its_own() -> None:
    plain, lifted = second().build(), second((1, split)).build()
    assert plain.events["SignUp"] is codec_of(SignUp)
    assert lifted.events["SignUp"] is not codec_of(SignUp)
    assert lifted.events["Confirmed"] is codec_of(Confirmed)


def impure(old: Fields) -> Fields:
    import random  # noqa: PLC0415  # what is refused

    return {**old, "first": str(random.random())}


def two_parameters(old: Fields, more: Fields) -> Fields:
    return old


@pytest.mark.parametrize(
    ("graph", "code", "said"),
    [
        (second((1, impure)), Code.IMPURE_REDUCER, "the upcaster of SignUp 1"),
        (second(context=impure), Code.IMPURE_REDUCER, "the upcaster of Member 1"),
        (second((0, split)), Code.DEFINITION_INVALID, "counted from 1"),
        (second((1, split), (1, split)), Code.DEFINITION_INVALID, "two upcasters"),
        (second((1, two_parameters)), Code.DEFINITION_INVALID, "takes 2 parameters, not 1"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_upcaster_is_refused_when_the_graph_is_built(
    graph: StateGraph[Member], code: Code, said: str
) -> None:
    with pytest.raises(DefinitionError) as caught:
        graph.build()
    assert caught.value.code is code
    assert said in str(caught.value)


def test_an_upcaster_of_a_type_that_the_graph_does_not_know_is_refused() -> None:
    graph = second()
    graph.upcast(OldSignUp, sequence=1)(split)
    with pytest.raises(DefinitionError, match="Name an event type of this graph"):
        graph.build()


def test_a_context_comes_over_from_older_versions_only() -> None:
    graph = second()
    graph.upcast_context(from_version=2)(split)
    with pytest.raises(DefinitionError, match="Name a version below this one"):
        graph.build()


def test_a_changed_sequence_in_the_decorator_changes_the_fingerprint() -> None:
    def decorated(sequence: int) -> Definition:
        graph = second()

        @graph.upcast(SignUp, sequence=sequence)
        def lift(old: Fields) -> Fields:
            return {"first": old["name"], "last": "", "address": ""}

        return graph.build()

    assert decorated(1).fingerprint != decorated(2).fingerprint
    assert decorated(1).fingerprint == decorated(1).fingerprint


def test_the_codec_of_a_definition_writes_what_all_others_write() -> None:
    event = SignUp(first="Al", last="Go", address="a")
    codec: Codec[Any] = second((1, split)).build().events["SignUp"]
    assert codec.encode(event) == codec_of(SignUp).encode(event)
