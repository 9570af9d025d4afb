"""Contexts whose class runs code of its own when one is made: they must load again, or park."""

from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from refold import ANY, Event, Late, StateGraph
from refold.schemas.canonical import canonical_of
from refold.schemas.errors import Code
from refold.schemas.verdicts import Verdict
from refold.testing.driver import Driver


class Put(Event):
    number: int


class Ended(Event):
    pass


class Bounded(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)
    number: int = 0

    @model_validator(mode="after")
    def small(self) -> "Bounded":
        if self.number > 2:
            raise ValueError("too large")
        return self


class Listed(Bounded):
    """One whose lists a reducer might change: it is copied before each step."""

    seen: list[int] = []


class Growing(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)
    number: int = 0

    @field_validator("number")
    @classmethod
    def more(cls, number: int) -> int:
        return number + 1


def put(ctx: Any, event: Put) -> Any:
    return ctx.model_copy(update={"number": event.number})  # pydantic checks nothing here


def graph(context: type) -> StateGraph[Any]:
    made: StateGraph[Any] = StateGraph("made", version=1, context=context, initial="new")
    made.on("new", Put, to="new")(put)
    made.on("new", Ended, to="ended")
    made.final("ended", late={ANY: Late.RECORD})
    return made


@pytest.mark.parametrize("context", [Bounded, Listed])
def test_a_context_that_its_own_class_would_refuse_at_a_load_parks(context: type) -> None:
    """O6: saved it would fence its partition at the next load, copied it would end the worker."""
    driver = Driver(graph(context))
    assert driver.send("i", Put(number=2)).verdict is Verdict.APPLIED
    step = driver.send("i", Put(number=3))
    assert (step.verdict, step.reason and step.reason.code) == (Verdict.PARKED, Code.NOT_STORABLE)
    assert driver.send("j", Put(number=1)).verdict is Verdict.APPLIED
    driver.check_replay()


def test_a_context_that_changes_when_it_is_loaded_parks() -> None:
    """O2: a successor would go on from another state than the worker that was killed."""
    step = Driver(graph(Growing)).send("i", Put(number=2))
    assert (step.verdict, step.reason and step.reason.code) == (Verdict.PARKED, Code.NOT_STORABLE)


def test_a_context_that_comes_back_is_stored() -> None:
    assert canonical_of(Bounded).fault(Bounded(number=2)) is None
    assert canonical_of(Listed).fault(Listed(number=2, seen=[1])) is None
