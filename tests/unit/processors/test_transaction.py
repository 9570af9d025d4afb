"""What becomes of a transaction, by the error that its producer raises (P6, P8)."""

from threading import Event
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from refold.processors import transaction
from refold.processors.transaction import Aborted, Finished, Transactor

RETRIABLE = KafkaException(KafkaError(KafkaError._TIMED_OUT, "not yet", False, True))
ABORTABLE = KafkaException(
    KafkaError(KafkaError.ILLEGAL_GENERATION, "a member", False, False, True)
)
FATAL = KafkaException(KafkaError(KafkaError._FENCED, "fenced", True))


class Producer:
    """A producer whose calls raise what they were given, one after the other, and then succeed."""

    def __init__(self, **raised: list[KafkaException]) -> None:
        self.calls: list[str] = []
        self._raised = raised

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any) -> None:
            self.calls.append(name.partition("_")[0])
            left = self._raised.get(name.partition("_")[0])
            if left:
                raise left.pop(0)

        return call


def committing(producer: Producer) -> None:
    transactor = Transactor(cast(Any, producer), "id")
    try:
        transactor.begin()
        transactor.commit([], None)
    finally:
        transactor.leave()


def test_p8_a_commit_is_repeated_until_its_answer_is_definite() -> None:
    """P8: a time-out says nothing; an abort now might meet a commit that was done."""
    producer = Producer(commit=[RETRIABLE, RETRIABLE, RETRIABLE])
    committing(producer)
    assert producer.calls == ["begin", "send", "commit", "commit", "commit", "commit"]


def test_p8_an_error_that_asks_for_it_aborts_and_the_producer_is_good() -> None:
    producer = Producer(commit=[RETRIABLE, ABORTABLE], abort=[RETRIABLE])
    with pytest.raises(Aborted):
        committing(producer)
    assert producer.calls == ["begin", "send", "commit", "commit", "abort", "abort"]


@pytest.mark.parametrize(
    "raised",
    [
        {"commit": [FATAL]},
        {"commit": [RETRIABLE, FATAL]},
        {"send": [FATAL]},
        {"send": [RETRIABLE]},
        {"commit": [ABORTABLE], "abort": [FATAL]},
        {"begin": [ABORTABLE]},
    ],
    ids=str,
)
def test_p6_what_is_not_known_finishes_the_producer(
    raised: dict[str, list[KafkaException]],
) -> None:
    """P6: nothing is said about the transaction; the group's offset will tell."""
    producer = Producer(**{name: list(each) for name, each in raised.items()})
    with pytest.raises(Finished):
        committing(producer)
    aborted = "abort" in producer.calls
    assert aborted == ("abort" in raised), "a transaction whose end is not known was aborted"


def test_p8_a_call_that_never_comes_back_finishes_the_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P8: a client whose broker was killed may hang; the loop does not."""
    monkeypatch.setattr(transaction, "ANSWER_S", 0.01)
    back = Event()
    producer = Producer()
    cast(Any, producer).commit_transaction = lambda _: back.wait(60)
    try:
        with pytest.raises(Finished):
            committing(producer)
    finally:
        back.set()


def test_other_work_goes_on_until_the_answer_of_a_commit_is_there() -> None:
    worked, answer = [0], Event()

    def meanwhile() -> bool:
        worked[0] += 1
        if worked[0] == 3:
            answer.set()
        return True

    producer = Producer()
    cast(Any, producer).commit_transaction = lambda _: answer.wait(60)
    transactor = Transactor(cast(Any, producer), "id")
    try:
        transactor.begin()
        transactor.commit([], None, meanwhile)
    finally:
        transactor.leave()
    assert worked[0] >= 3
