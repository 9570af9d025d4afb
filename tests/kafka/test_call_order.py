"""Rules that are about the order of outside calls, proved on recording ports: P1, P2, P3, P8."""

from collections.abc import Iterator
from threading import get_ident
from typing import Any

import pytest
from tests.crash.scene import PARTITIONS, scene
from tests.running import running

from refold.testing.servers import Kafka
from refold.topics.partition import partition_of

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]
ENDS = frozenset({"commit_transaction", "abort_transaction"})


class Call:
    """One outside call."""

    def __init__(self, port: str, name: str, thread: int, args: tuple[Any, ...]) -> None:
        self.port, self.name, self.thread, self.args = port, name, thread, args

    def __repr__(self) -> str:
        return f"{self.port}.{self.name}"


class Recording:
    """An object whose calls are written down."""

    def __init__(self, inner: Any, port: str, calls: list[Call]) -> None:
        self._inner, self._port, self._calls = inner, port, calls

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._inner, name)
        if not callable(inner):
            return inner

        def call(*args: Any, **named: Any) -> Any:
            self._calls.append(Call(self._port, name, get_ident(), args))
            return inner(*args, **named)

        return call


class RecordingClients:
    """Clients whose consumers and producers are written down."""

    def __init__(self, clients: Any, calls: list[Call]) -> None:
        self._clients, self._calls = clients, calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clients, name)

    def consumer(self) -> Any:
        return Recording(self._clients.consumer(), "consumer", self._calls)

    def producer(self, transactional_id: str) -> Any:
        self._calls.append(Call("clients", "make", get_ident(), (transactional_id,)))
        return Recording(self._clients.producer(transactional_id), "producer", self._calls)


@pytest.fixture(scope="module")
def calls(kafka: Kafka, postgres: Any) -> Iterator[list[Call]]:
    """Every outside call of a worker that folds the input in many small transactions."""
    dsn = postgres.new_database()
    made: list[Call] = []

    def wrap(clients: Any, store: Any) -> tuple[Any, Any]:
        return RecordingClients(clients, made), Recording(store, "store", made)

    with scene(kafka.bootstrap, dsn) as run:
        run.publish()
        with running(run, wrap=wrap, worker={"batch_records": 40}):
            run.until_folded()
    yield made
    postgres.drop_database(dsn)


def transactions(calls: list[Call]) -> list[list[Call]]:
    """The calls from each begin to its commit, of the loop and of the thread that commits for it.

    Savers and takes work beside them, and are none of a transaction's business.
    """
    ours = {each.thread for each in calls if each.name in {"begin_transaction", *ENDS}}
    found: list[list[Call]] = []
    open_: list[Call] | None = None
    for call in calls:
        if call.thread not in ours:
            continue
        if call.name == "begin_transaction":
            open_ = []
        if open_ is not None:
            open_.append(call)
        if call.name in ENDS and open_ is not None:
            found.append(open_)
            open_ = None
    assert len(found) > 5, "nothing would be proved"
    return found


def test_p1_only_the_loop_thread_touches_the_consumer(calls: list[Call]) -> None:
    assert len({each.thread for each in calls if each.port == "consumer"}) == 1


def test_p2_no_consume_between_the_group_metadata_and_the_end_of_the_transaction(
    calls: list[Call],
) -> None:
    names = [f"{each.port}.{each.name}" for each in calls]
    asked = "consumer.consumer_group_metadata"
    places = [place for place, name in enumerate(names) if name == asked]
    ends = [place for place, each in enumerate(calls) if each.name in ENDS]
    assert len(places) > 5
    for place in places:
        end = next(each for each in ends if each > place)
        assert "producer.begin_transaction" in names[place:end]
        consumed = {each for each in names[place:end] if each.startswith("consumer.")}
        assert consumed == {asked}, "ownership may have changed in between"


def test_p3_every_transaction_carries_the_offsets_of_each_partition_that_it_writes_for(
    calls: list[Call],
) -> None:
    several = 0
    for each in transactions(calls):
        sends = [call for call in each if call.name == "send_offsets_to_transaction"]
        assert len(sends) == 1
        carried = {place.partition for place in sends[0].args[0]}
        written = {
            partition_of(call.args[2], PARTITIONS) if call.args[0].endswith(".commands")
            else call.args[3]
            for call in each if call.name == "produce"
        }  # fmt: skip
        assert carried, "a transaction without offsets is unguarded"
        assert written <= carried
        assert all(place.metadata.startswith("refold1;") for place in sends[0].args[0])
        several += len(carried) > 1
    assert several, "no transaction was about two partitions"


def test_p8_postgresql_is_not_touched_inside_an_open_transaction(calls: list[Call]) -> None:
    for each in transactions(calls):
        assert {call.port for call in each} == {"producer"}


def test_p4_a_transactional_id_is_initialised_once(calls: list[Call]) -> None:
    made = [each for each in calls if each.name == "make"]
    assert made
    assert len({each.args for each in made}) == len(made), "an id was used again"
    assert [each.name for each in calls].count("init_transactions") == len(made)
