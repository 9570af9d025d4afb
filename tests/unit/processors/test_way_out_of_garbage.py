"""An instance that one unreadable record parked goes on, as docs/errors/SCHEMA_UNKNOWN.md says."""

from typing import ClassVar

from refold import ANY, Context, Event, Late, StateGraph, replace
from refold.schemas.verdicts import Verdict
from refold.testing.driver import Driver


class Opened(Event):
    pass


class Noted(Event):
    text: str


class NotedByNobody(Event):
    __avro_name__: ClassVar[str] = "NotedByNobody"
    text: str


class Closed(Event):
    pass


class Notes(Context):
    texts: tuple[str, ...] = ()


def noted(ctx: Notes, event: Noted | NotedByNobody) -> Notes:
    return replace(ctx, texts=(*ctx.texts, event.text))


def graph(version: int, notes: type[Noted] | type[NotedByNobody] = Noted) -> StateGraph[Notes]:
    made = StateGraph("notes", version=version, context=Notes, initial="new")
    made.on("new", Opened, to="open")
    made.on("open", notes)(noted)
    made.on("open", Closed, to="closed")
    made.final("closed", late={ANY: Late.RECORD})
    return made


def test_garbage_is_passed_by_a_version_that_does_not_know_its_type_and_the_rest_goes_on() -> None:
    versions = [graph(1), graph(2, NotedByNobody), graph(3)]
    driver = Driver(versions, active=1)
    driver.send("n", Opened())
    garbage = driver.send("n", ("Noted", b"\xc3\x01" + b"\7" * 8 + b"\0"))
    assert garbage.verdict is Verdict.PARKED
    driver.send("n", Noted("behind"))
    driver.redrive("n")
    assert driver.status("n") == "parked", "the same version cannot read it the second time"

    passed = driver.redrive("n", version=2, offsets=[1])
    assert [(each.offset, each.verdict) for each in passed.resolutions] == [(1, Verdict.REFUSED)]
    driver.redrive("n", version=3)
    assert driver.instance("n").context.texts == ("behind",)
    assert driver.instance("n").definition == 3
    driver.send("n", Closed())
    assert driver.status("n") == "completed"
    driver.check_replay()
    driver.check_counts()
