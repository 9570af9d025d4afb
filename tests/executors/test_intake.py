"""Commands on their way into the ledger: kept, in order, once, whatever is away."""

import signal
from collections import Counter
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from tests.executors.desk import CODECS, Desk, DeskOf, Paid, Pay, Repay

from refold.executors.executor import Call, Executor
from refold.executors.service import Service
from refold.executors.truth import ByKey, Local, Neither
from refold.snapshots.sessions import Connection
from refold.testing.servers import Kafka, OwnKafka, OwnPostgres, Postgres
from refold.testing.world import Manners
from refold.testing.world_server import WorldServer

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


class Till:
    """A handler that counts."""

    def __init__(self, *, commands: tuple[type, ...] = (Pay,), **declared: Any) -> None:
        self.calls: list[str] = []
        self.most = 0
        self.open = Event()
        self.open.set()
        self._now = 0
        self._lock = Lock()
        self.executor = Executor("bank")
        for each in commands:
            self.executor.action(each, **{"truth": Neither(), **declared})(self.pay)

    def pay(self, command: Pay | Repay, call: Call) -> Paid:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
            self.calls.append(call.key)
        self.open.wait(60)
        with self._lock:
            self._now -= 1
        return Paid(reference="r")


def test_commands_of_one_instance_begin_one_after_the_other(desk: Desk) -> None:
    till = Till(concurrency=10)
    till.open.clear()
    keys = [desk.send("i", event=f"e{number}") for number in range(5)]
    other = desk.send("j")
    with desk.running(till.executor):
        desk.until_status(other, "in_flight")
        desk.until_status(keys[4], "planned")
        assert sorted(till.calls) == sorted([keys[0], other])
        till.open.set()
        desk.until_all_done(keys)
    assert [key for key in till.calls if key != other] == keys


def test_independent_commands_of_one_instance_run_together(desk: Desk) -> None:
    till = Till(concurrency=10, independent=True)
    till.open.clear()
    keys = [desk.send("i", event=f"e{number}") for number in range(5)]
    with desk.running(till.executor):
        desk.until(lambda: till.most == 5, "five calls at a time")
        till.open.set()
        desk.until_all_done(keys)


def test_no_more_calls_run_at_a_time_than_declared_and_none_is_leased_meanwhile(
    desk: Desk,
) -> None:
    till = Till(concurrency=3)
    till.open.clear()
    keys = [desk.send(f"i{number}") for number in range(20)]
    with desk.running(till.executor):
        desk.until_status(keys[19], "planned")
        desk.until(lambda: till.most == 3, "three calls at a time")
        assert desk.sql("SELECT count(*) FROM workflow_action WHERE lease_until IS NOT NULL") == [
            (3,)
        ]
        till.open.set()
        desk.until_all_done(keys)
    assert till.most == 3
    late = [abs(number - keys.index(key)) for number, key in enumerate(till.calls)]
    assert max(late) <= 3  # in the order of the log, but for those that begin together


def test_a_command_that_comes_again_is_answered_again_and_not_called(desk: Desk) -> None:
    till = Till()
    key = desk.send("i")
    with desk.running(till.executor):
        desk.until_heard(key, "succeeded")
        desk.send("i")
        desk.until(lambda: len(desk.heard()) == 2, "the answer to come again")
    first, second = desk.heard()
    assert first == second
    assert till.calls == [key]


def test_the_same_key_with_another_request_is_refused_and_shown(desk: Desk) -> None:
    till = Till()
    key = desk.send("i", Pay(amount=1))
    with desk.running(till.executor) as service:
        desk.until_heard(key, "succeeded")
        desk.send("i", Pay(amount=2))
        desk.until(lambda: service.health.status.clashes == 1, "the clash to be shown")
    assert till.calls == [key]


def test_a_record_that_is_no_command_is_kept_and_the_next_ones_go_on(desk: Desk) -> None:
    till = Till()
    desk.put(b"i", b"\x00what?", [("ce_id", b"x"), ("odd", None)])
    desk.put(None, b"no key", [])
    key = desk.send("i")
    with desk.running(till.executor) as service:
        desk.until_heard(key, "succeeded")
        assert service.health.status.rejected == 2
    kept = desk.sql("SELECT log_offset, record_key, value, code FROM workflow_rejected ORDER BY 1")
    assert [(row[0], row[1], row[2]) for row in kept] == [
        (0, b"i", b"\x00what?"), (1, None, b"no key"),
    ]  # fmt: skip
    assert [row[3] for row in kept] == ["BAD_ENVELOPE", "BAD_KEY"]


def test_a_command_that_nobody_handles_is_planned_and_shown_and_done_by_who_can(
    desk: Desk,
) -> None:
    old, new = Till(), Till(commands=(Pay, Repay))
    key = desk.send("i", Repay(amount=1))
    known = desk.send("j")
    with desk.running(old.executor) as service:
        desk.until_heard(known, "succeeded")
        assert service.health.status.unhandled == {"Repay": 1}
        assert desk.status(key) == "planned"
    with desk.running(new.executor):
        desk.until_heard(key, "succeeded")


def test_a_command_that_cannot_be_decoded_has_failed_for_good(desk: Desk) -> None:
    till = Till()
    good = CODECS["refold.failed"]  # any framing with a fingerprint that is not the command's
    damaged = desk.send("i", value=b"\xc3\x01" + good.fingerprint + b"\xff\xff")
    key = desk.send("j")
    with desk.running(till.executor):
        (failed,) = desk.until_heard(damaged, "failed")
        desk.until_heard(key, "succeeded")
    assert (failed.event.code, failed.event.retry) == ("SCHEMA_UNKNOWN", False)
    assert till.calls == [key]


def test_what_a_restored_ledger_has_forgotten_is_born_unknown_and_not_called(desk: Desk) -> None:
    till = Till(truth=ByKey(remembers_s=3600))
    keys = [desk.send(f"i{number}") for number in range(3)]
    with desk.running(till.executor):
        desk.until_all_done(keys)
    for table in ("action", "result", "intake"):  # the copy was from before
        desk.sql(f"TRUNCATE workflow_{table} CASCADE")
    again = Till(truth=Neither())
    fresh = desk.send("fresh")
    with desk.running(again.executor):
        desk.until_heard(fresh, "succeeded")
        for key in keys:
            desk.until_status(key, "unknown")
    assert again.calls == [fresh]


def test_local_effects_of_a_restored_ledger_are_gone_with_it_and_are_done_again(
    desk: Desk,
) -> None:
    desk.sql("CREATE TABLE public.account (key text)")
    executor = Executor("bank")

    @executor.action(Pay, truth=Local())
    def pay(command: Pay, call: Call, connection: Connection) -> Paid:
        connection.execute("INSERT INTO public.account VALUES (%s)", [call.key])
        return Paid(reference="booked")

    key = desk.send("i")
    with desk.running(executor):
        desk.until_heard(key, "succeeded")
    for table in ("workflow_action", "workflow_result", "workflow_intake", "public.account"):
        desk.sql(f"TRUNCATE {table} CASCADE")
    with desk.running(executor):
        desk.until_status(key, "succeeded")
    assert desk.sql("SELECT key FROM public.account") == [(key,)]


def test_a_partition_is_read_from_the_ledgers_position_whatever_the_group_says(
    desk: Desk,
) -> None:
    till = Till()
    keys = [desk.send(f"i{number}") for number in range(3)]
    with desk.running(till.executor):
        desk.until_all_done(keys)
    group = f"{desk.namespace}.bank.executors"
    for done in desk.admin.delete_consumer_groups([group]).values():
        done.result(30)
    key = desk.send("j")
    with desk.running(till.executor) as service:
        desk.until_heard(key, "succeeded")
        assert service.health.status.planned == 1
    assert till.calls == [*keys, key]


def test_commands_that_the_log_lost_before_they_were_planned_are_told(desk: Desk) -> None:
    till = Till()
    first = desk.send("i")
    with desk.running(till.executor):
        desk.until_heard(first, "succeeded")
    for number in range(4):
        desk.send(f"lost-{number}")
    for done in desk.admin.delete_records([TopicPartition(desk.commands, 0, 4)]).values():
        done.result(30)
    with desk.running(till.executor) as service:
        desk.until_heard(desk.key("lost-3"), "succeeded")
        assert service.health.status.lost == {"0": 3}


def test_what_the_log_loses_while_an_executor_stands_still_is_told_too(
    desk: Desk, tmp_path: Path
) -> None:
    with WorldServer(tmp_path / "world.db", systems={"bank": Manners()}) as world:
        child = desk.start(
            WORLD=world.address, TRUTH="by_key", REFOLD_EXECUTOR_SESSION_TIMEOUT_MS="45000"
        )
        desk.until_heard(desk.send("i"), "succeeded")
        child.send_signal(signal.SIGSTOP)
        asked_s = monotonic()  # what it had asked the broker for before is answered by then
        desk.until(lambda: monotonic() > asked_s + 0.5, "its last fetch to end")
        for number in range(4):
            desk.send(f"lost-{number}")
        for done in desk.admin.delete_records([TopicPartition(desk.commands, 0, 4)]).values():
            done.result(30)
        child.send_signal(signal.SIGCONT)
        desk.until_heard(desk.key("lost-3"), "succeeded")
        log = (desk.folder / "executor-0.log").read_text()
    assert "the log does not hold what is to be planned next" in log


def test_a_command_that_the_ledger_refuses_is_kept_and_holds_up_no_other(desk: Desk) -> None:
    till = Till()
    desk.sql(
        """CREATE FUNCTION picky() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN RAISE EXCEPTION 'no such thing' USING ERRCODE = '22000'; END $$"""
    )
    desk.sql(
        """CREATE TRIGGER picky BEFORE INSERT ON workflow_action FOR EACH ROW
           WHEN (NEW.instance_id = 'bad') EXECUTE FUNCTION picky()"""
    )
    keys = [desk.send(name) for name in ("i0", "i1", "bad", "i2", "i3")]
    with desk.running(till.executor) as service:
        for key in keys[:2] + keys[3:]:
            desk.until_heard(key, "succeeded")
        later = desk.send("i4")
        desk.until_heard(later, "succeeded")
        assert service.health.status.rejected == 1
        assert service.health.status.away["commands"] == ""
    ((offset, code, reason),) = desk.sql("SELECT log_offset, code, reason FROM workflow_rejected")
    assert (offset, code) == (2, "NOT_STORABLE")
    assert "no such thing" in reason


def test_commands_that_are_large_together_are_planned_in_parts(desk: Desk) -> None:
    till = Till(concurrency=100)
    keys = [desk.send(f"i{number}", value=b"\xc3\x01" + bytes(900_000)) for number in range(30)]
    with desk.running(till.executor):
        for key in keys:
            desk.until_heard(key, "failed")  # it cannot be decoded; it is kept all the same
    assert desk.sql("SELECT count(*) FROM workflow_action") == [(30,)]
    assert len(desk.sql("SELECT DISTINCT planned FROM workflow_action")) > 1


def test_what_nobody_handles_in_a_restored_ledger_is_not_called_by_who_can(desk: Desk) -> None:
    till, both = Till(), Till(commands=(Pay, Repay))
    key = desk.send("i", Repay(amount=1))
    known = desk.send("j")
    with desk.running(both.executor):
        desk.until_heard(key, "succeeded")
        desk.until_heard(known, "succeeded")
    desk.sql("TRUNCATE workflow_action, workflow_intake CASCADE")  # a copy from before all of it
    with desk.running(till.executor):
        desk.until_heard(known, "succeeded", "unknown")
    both.calls.clear()
    with desk.running(both.executor):
        desk.until_heard(desk.send("k"), "succeeded")
        assert desk.status(key) == "unknown"
    assert key not in both.calls


def test_a_ledger_that_is_away_stops_the_intake_and_loses_nothing(
    kafka: Kafka, own_postgres: OwnPostgres
) -> None:
    server = own_postgres()
    postgres = Postgres(server.dsn, "own")
    desk = Desk(kafka.bootstrap, postgres.new_database())
    till = Till()
    first = desk.send("i0")
    with desk.running(till.executor) as service:
        desk.until_heard(first, "succeeded")
        server.kill()
        keys = [desk.send(f"j{number}") for number in range(20)]
        desk.until(lambda: bool(service.health.status.away["commands"]), "the outage to be shown")
        assert any("commands wait" in each for each in service.health.status.troubles(0.0))
        server.start()
        desk.until_all_done(keys)
        desk.until(lambda: not service.health.status.away["commands"], "the end to be shown")
    assert Counter(till.calls) == Counter([first, *keys])
    desk.close()


def test_an_end_that_the_ledger_did_not_take_is_recorded_when_it_is_back(
    kafka: Kafka, own_postgres: OwnPostgres
) -> None:
    server = own_postgres()
    desk = Desk(kafka.bootstrap, Postgres(server.dsn, "own").new_database())
    till = Till()
    till.open.clear()
    key = desk.send("i")
    with desk.running(till.executor) as service:
        desk.until(lambda: till.calls == [key], "the call")
        server.kill()
        till.open.set()
        desk.until(lambda: service.health.status.unrecorded == 1, "the end to wait")
        server.start()
        desk.until_heard(key, "succeeded")
    assert till.calls == [key]
    desk.close()


def test_results_wait_while_kafka_is_away_and_go_out_afterwards(
    own_kafka: OwnKafka, database: str
) -> None:
    server = own_kafka()
    desk = Desk(server.bootstrap, database)
    till = Till()
    till.open.clear()
    keys = [desk.send(f"i{number}") for number in range(10)]
    with desk.running(till.executor):
        desk.until(lambda: len(till.calls) == 10, "ten calls")
        server.kill()
        till.open.set()
        desk.until(
            lambda: desk.sql("SELECT count(*) FROM workflow_result") == [(10,)], "ten results"
        )
        server.start()
        desk.until_all_done(keys)
        desk.until(lambda: desk.sql("SELECT count(*) FROM workflow_result") == [(0,)], "no result")
    assert len(till.calls) == 10
    desk.close()


def test_a_topic_that_takes_no_results_holds_up_no_other_and_is_shown(desk: Desk) -> None:
    till = Till()
    one = desk.send("one")
    with desk.running(till.executor):
        desk.until_heard(one, "succeeded")
    # Results of a workflow whose topic is gone, older than all others, more than are read at once.
    desk.sql(
        """INSERT INTO workflow_result (key, topic, instance, tenant, event_id, type, value,
               attempt, outcome, trace, later)
           SELECT %s, 'gone.nowhere.events', 'x' || n, 'acme', 'x' || n, 'Paid', '', 1,
                  'succeeded', '', true
           FROM generate_series(1, 700) AS n""",
        one,
    )
    desk.sql(
        """INSERT INTO workflow_result (key, topic, instance, tenant, event_id, type, value,
               attempt, outcome, trace, later)
           SELECT key, reply_to, instance_id, 'acme', 'left-behind', 'Other', '\\x00', 1,
                  'unknown', '', true FROM workflow_action"""
    )
    with desk.running(till.executor) as service:
        desk.until(lambda: "results" in _waiting(service), "the trouble to be shown")
        two = desk.send("two")
        desk.until_heard(two, "succeeded")
        desk.until(
            lambda: desk.sql("SELECT count(*) FROM workflow_result WHERE event_id = 'left-behind'")
            == [(0,)], "what was left to go out"
        )  # fmt: skip
        assert "results" in _waiting(service)  # although others were delivered meanwhile


def _waiting(service: Service) -> list[str]:
    return [what for what, code in service.health.status.away.items() if code]


def test_results_of_an_instance_keep_their_order_whoever_publishes_them(desk: Desk) -> None:
    till = Till()
    first, second = desk.send("i", event="e1"), desk.key("i", event="e2")
    with desk.running(till.executor):
        desk.until_heard(first, "succeeded")
    desk.until(lambda: desk.sql("SELECT count(*) FROM workflow_result") == [(0,)], "no result")
    # Somebody died between recording and publishing.
    desk.sql(
        "INSERT INTO workflow_result (key, topic, instance, tenant, event_id, type, value, attempt,"
        " outcome, trace, later) SELECT key, reply_to, instance_id, tenant, 'left behind',"
        " result_type, result, attempt, 'succeeded', trace, false FROM workflow_action"
    )
    desk.send("i", event="e2")
    with desk.running(till.executor):
        desk.until(lambda: desk.outcomes(second) == ["succeeded"], "the second answer")
    ids = [each.id for each in desk.once()]
    assert ids.index("left behind") < [each.key for each in desk.once()].index(second)


def test_two_processes_share_the_partitions_and_everything_is_done_once(desk_of: DeskOf) -> None:
    desk = desk_of(4)
    tills = Till(concurrency=2), Till(concurrency=2)
    keys = [desk.send(f"i{number}") for number in range(30)]
    with desk.running(tills[0].executor):
        with desk.running(tills[1].executor):
            keys += [desk.send(f"j{number}") for number in range(30)]
            desk.until_all_done(keys)
        keys += [desk.send(f"k{number}") for number in range(30)]
        desk.until_all_done(keys)
    assert Counter(tills[0].calls + tills[1].calls) == Counter(keys)
