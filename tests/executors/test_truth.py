"""The four truth modes: what becomes of an outcome that nobody knows."""

from threading import Event
from typing import Any

import msgspec
import psycopg
import pytest
from tests.executors.desk import Desk, Paid, Pay

from refold.executors.executor import Call, Executor
from refold.executors.outcome import CannotTell, Done, NotDone, Undone
from refold.executors.truth import ByKey, Local, Neither, Queryable, Then, Truth
from refold.schemas.errors import Code, UsageError
from refold.snapshots.sessions import Connection
from refold.testing.world import Fault, World

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


def paying(world: World, truth: Truth, **more: Any) -> Executor:
    executor = Executor("bank")

    @executor.action(Pay, truth=truth, **{"deadline_s": 1.0, **more})
    def pay(command: Pay, call: Call) -> Paid:
        return Paid(reference=world.system("bank").call("pay", call.key).reference)

    return executor


def asking(world: World, visible_after_s: float = 0.0) -> Queryable:
    def reconcile(command: Pay, call: Call) -> Any:
        said = world.system("bank").ask(call.key)
        if said.word == "done":
            return Done(Paid(reference=said.reference))
        return Undone() if said.word == "not_done" else CannotTell("says the bank")

    return Queryable(reconcile, visible_after_s)


def requests(world: World, kind: str) -> int:
    return sum(each.kind == kind for each in world.requests())


def test_an_action_without_a_truth_mode_does_not_register() -> None:
    executor = Executor("bank")
    with pytest.raises(UsageError, match="declares no truth mode") as caught:

        @executor.action(Pay, truth=None)  # type: ignore[arg-type]
        def pay(command: Pay, call: Call) -> None: ...

    assert caught.value.code == Code.BAD_SETTING
    assert not executor.actions


@pytest.mark.parametrize(
    ("truth", "more", "said"),
    [
        (ByKey(remembers_s=5), {}, "remembered by the other side for less"),
        (Queryable(lambda *_: Undone(), -1), {}, "visible_after_s"),
        (Queryable(lambda *_: Undone(), 0, poll_s=0.0), {}, "poll_s"),
        (Neither(), {"deadline_s": 0.0}, "deadline"),
        (Neither(), {"concurrency": 0}, "concurrency"),
    ],
)
def test_a_declaration_that_cannot_be_kept_does_not_register(
    truth: Truth, more: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):

        @Executor("bank").action(Pay, truth=truth, **more)
        def pay(command: Pay, call: Call) -> None: ...


def test_by_key_is_called_again_with_the_same_key_until_it_answers(desk: Desk) -> None:
    world = World()
    bank = world.system("bank", keys="repeat")
    bank.next(Fault.DROP, Fault.UNREACHED)
    key = desk.send("i")
    with desk.running(paying(world, ByKey(remembers_s=3600))):
        unknown, done = desk.until_heard(key, "unknown", "succeeded")
    assert (unknown.attempt, done.attempt) == (1, 1)
    assert len(world.journal()) == 1
    assert requests(world, "call") == 3
    assert desk.sql("SELECT epoch FROM workflow_action")[0][0] == 3


def test_keys_of_a_system_that_was_down_are_called_again_as_soon_as_it_answers(
    desk: Desk,
) -> None:
    world = World()
    bank = world.system("bank", keys="repeat", drops=1.0)
    keys = [desk.send(f"i{number}") for number in range(8)]
    with desk.running(paying(world, ByKey(remembers_s=3600))) as service:
        for key in keys:
            desk.until_heard(key, "unknown")
        desk.until(lambda: bool(service.health.status.gates), "the circuit to open")
        # They have waited for long, and are not due for a while.
        desk.sql("UPDATE workflow_action SET not_before = now() + interval '4 minutes'")
        bank.manners = msgspec.structs.replace(bank.manners, drops=0.0)
        desk.until_all_done(keys)
    assert len(world.journal()) == 8


def test_after_its_horizon_a_key_is_nobodys_and_waits_for_a_person(desk: Desk) -> None:
    world = World()
    world.system("bank", keys="repeat").next(Fault.DROP)
    first, second = desk.send("old"), desk.key("new")
    with desk.running(paying(world, ByKey(remembers_s=3600))) as service:
        desk.until_heard(first, "unknown", "succeeded")
    desk.sql(
        "UPDATE workflow_action SET status = 'unknown', first_sent = now() - interval '2 hours'"
    )
    world.system("bank", keys="repeat").next(Fault.DROP)
    desk.send("new")
    with desk.running(paying(world, ByKey(remembers_s=3600))) as service:
        desk.until_heard(second, "unknown", "succeeded")  # the scanner has been there
        desk.until(lambda: service.health.status.standing.unknown == 1, "one to be left")
        assert desk.status(first) == "unknown"
    assert len(world.requests(key=first)) == 2


def test_not_done_said_too_early_counts_as_cannot_tell(desk: Desk) -> None:
    world = World(real_time=True)
    bank = world.system("bank", visible_after_s=0.5)
    bank.next(Fault.DROP)
    key = desk.send("i")
    with desk.running(paying(world, asking(world, visible_after_s=0.5), deadline_s=0.5)):
        desk.until_heard(key, "unknown", "succeeded")
    assert len(world.journal()) == 1
    assert next(each.outcome for each in world.requests() if each.kind == "ask") == "not_done"


def test_what_the_other_side_has_not_done_has_failed_and_may_be_tried_again(desk: Desk) -> None:
    world = World()
    world.system("bank").next(Fault.UNREACHED)
    key = desk.send("i")
    with desk.running(paying(world, asking(world), deadline_s=0.2)):
        _, failed = desk.until_heard(key, "unknown", "failed")
        assert (failed.event.code, failed.event.retry) == ("UNDONE", True)
        assert not world.journal()
        desk.send("i", attempt=2)  # the graph tries again under the same key
        *_, done = desk.until_heard(key, "unknown", "failed", "succeeded")
    assert done.attempt == 2
    assert len(world.journal()) == 1


def test_a_system_that_cannot_tell_is_asked_again_until_it_can(desk: Desk) -> None:
    world = World()
    bank = world.system("bank")
    bank.next(Fault.DROP)
    bank.next_asked(*[Fault.CANNOT_TELL] * 4)
    key = desk.send("i")
    with desk.running(paying(world, asking(world))):
        desk.until_heard(key, "unknown", "succeeded")
    assert requests(world, "call") == 1
    assert requests(world, "ask") >= 5  # once more where the answer is not recorded yet


def test_a_system_that_answers_again_is_asked_about_everything_at_once(desk: Desk) -> None:
    world = World()
    bank = world.system("bank", drops=1.0, cannot_tell=1.0)
    keys = [desk.send(f"i{number}") for number in range(8)]
    with desk.running(paying(world, asking(world))):
        for key in keys:
            desk.until_heard(key, "unknown")
        desk.until(lambda: requests(world, "ask") > 5, "it to be asked in vain")
        # They have waited for long, and are not due for a while.
        desk.sql("UPDATE workflow_action SET not_before = now() + interval '4 minutes'")
        bank.manners = msgspec.structs.replace(bank.manners, cannot_tell=0.0)
        desk.until_all_done(keys)
    assert requests(world, "call") == 8


def test_a_question_that_raises_or_never_ends_is_no_answer(desk: Desk) -> None:
    world = World()
    world.system("bank").next(Fault.DROP)
    asked: list[int] = []
    hang = Event()

    def reconcile(command: Pay, call: Call) -> Any:
        asked.append(1)
        if len(asked) == 1:
            raise SystemExit(3)
        if len(asked) == 2:
            hang.wait(60)
        if len(asked) == 3:
            return "done, I suppose"
        return Done(Paid(reference="asked for"))

    key = desk.send("i")
    with desk.running(paying(world, Queryable(reconcile, 0.0), deadline_s=0.3)):
        _, done = desk.until_heard(key, "unknown", "succeeded")
        hang.set()
    assert done.event.reference == "asked for"
    assert requests(world, "call") == 1


def test_neither_stops_and_is_shown(desk: Desk) -> None:
    world = World()
    world.system("bank").next(Fault.DROP)
    key = desk.send("i")
    with desk.running(paying(world, Neither()), stuck_after_s=0.05) as service:
        desk.until_heard(key, "unknown")
        desk.until(lambda: service.health.status.standing.stuck == 1, "it to be shown as stuck")
    assert desk.status(key) == "unknown"
    assert requests(world, "call") == 1


def test_neither_is_repeated_where_a_second_effect_is_accepted(desk: Desk) -> None:
    world = World()
    world.system("bank").next(Fault.DROP)
    key = desk.send("i")
    with desk.running(paying(world, Neither(Then.REPEAT))):
        desk.until_heard(key, "unknown", "succeeded")
    assert len(world.journal()) == 2


def test_neither_counts_as_done_where_a_missing_effect_is_accepted(desk: Desk) -> None:
    world = World()
    world.system("bank").next(Fault.UNREACHED)
    key = desk.send("i")
    with desk.running(paying(world, Neither(Then.ASSUME_DONE))):
        _, done = desk.until_heard(key, "unknown", "succeeded")
    assert "assumed" in done.event.text
    assert not world.journal()


def test_not_done_of_a_repetition_says_nothing_about_the_call_before(desk: Desk) -> None:
    calls: list[bool] = []
    executor = Executor("bank")

    @executor.action(Pay, truth=ByKey(remembers_s=3600), deadline_s=1.0)
    def pay(command: Pay, call: Call) -> Paid:
        calls.append(call.repeated)
        if len(calls) == 1:
            raise TimeoutError
        if len(calls) == 2:
            raise NotDone("certainly nothing happened this time")
        return Paid(reference="r")

    key = desk.send("i")
    with desk.running(executor):
        desk.until_heard(key, "unknown", "succeeded")
    assert calls == [False, True, True]


def test_a_late_answer_settles_what_is_still_unknown(desk: Desk) -> None:
    release = Event()
    executor = Executor("bank")

    @executor.action(Pay, truth=Neither(), deadline_s=0.2)
    def pay(command: Pay, call: Call) -> Paid:
        release.wait(60)
        return Paid(reference="late")

    key = desk.send("i")
    with desk.running(executor):
        desk.until_heard(key, "unknown")
        release.set()
        _, done = desk.until_heard(key, "unknown", "succeeded")
    assert done.event.reference == "late"


def local(fail: int = 0) -> tuple[Executor, list[str]]:
    executor = Executor("bank")
    calls: list[str] = []

    @executor.action(Pay, truth=Local())
    def pay(command: Pay, call: Call, connection: Connection) -> Paid:
        calls.append(call.key)
        connection.execute("INSERT INTO public.account VALUES (%s, %s)", [call.key, command.amount])
        if len(calls) <= fail:
            raise ValueError("after the write")
        return Paid(reference="booked")

    return executor, calls


def test_a_local_effect_commits_with_its_row(desk: Desk) -> None:
    desk.sql("CREATE TABLE public.account (key text, amount int)")
    executor, _ = local()
    keys = [desk.send(f"i{number}", Pay(amount=number)) for number in range(20)]
    with desk.running(executor):
        for key in keys:
            desk.until_heard(key, "succeeded")
    assert {row[0] for row in desk.sql("SELECT key FROM public.account")} == set(keys)
    assert desk.sql("SELECT count(*) FROM public.account") == [(20,)]


def test_a_local_handler_that_raises_has_certainly_done_nothing(desk: Desk) -> None:
    desk.sql("CREATE TABLE public.account (key text, amount int)")
    executor, _ = local(fail=1)
    key = desk.send("i")
    with desk.running(executor):
        (failed,) = desk.until_heard(key, "failed")
        assert (failed.event.code, failed.event.retry) == ("LOCAL_RAISED", True)
        assert desk.sql("SELECT count(*) FROM public.account") == [(0,)]
        desk.send("i", attempt=2)
        desk.until_heard(key, "failed", "succeeded")
    assert desk.sql("SELECT count(*) FROM public.account") == [(1,)]


def test_a_local_handler_whose_statement_fails_leaves_the_ledger_whole(desk: Desk) -> None:
    executor, _ = local()  # there is no such table
    key = desk.send("i")
    with desk.running(executor):
        (failed,) = desk.until_heard(key, "failed")
    assert "UndefinedTable" in failed.event.text
    assert issubclass(psycopg.errors.UndefinedTable, psycopg.Error)


def test_a_long_call_holds_on_to_its_row(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refold.executors.dispatch.LEASE_MOST_S", 2.0)
    monkeypatch.setattr("refold.executors.dispatch.LEASE_MARGIN_S", 1.0)
    release = Event()
    executor = Executor("bank")

    @executor.action(Pay, truth=Neither(), deadline_s=3600.0)
    def pay(command: Pay, call: Call) -> Paid:
        release.wait(60)
        call.before_send()
        return Paid(reference="r")

    key = desk.send("i")
    with desk.running(executor):
        desk.until_status(key, "in_flight")
        desk.until(
            lambda: desk.sql(
                "SELECT lease_until - dispatched > interval '7 seconds' FROM workflow_action"
            )[0][0],
            "the lease to be renewed more than once",
        )
        assert desk.status(key) == "in_flight"
        release.set()
        desk.until_heard(key, "succeeded")


def test_a_handler_that_was_held_up_past_its_lease_is_told_before_it_sends(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, world = Event(), World()
    executor = Executor("bank")
    calls: list[int] = []

    @executor.action(Pay, truth=asking(world), deadline_s=0.3)
    def pay(command: Pay, call: Call) -> Paid:
        calls.append(1)
        if len(calls) == 1:
            release.wait(60)
            call.before_send()
        return Paid(reference=world.system("bank").call("pay", call.key).reference)

    key = desk.send("i")
    with desk.running(executor):
        desk.until_heard(key, "unknown", "failed")  # it was asked about, and had not been done
        desk.send("i", attempt=2)
        desk.until_heard(key, "unknown", "failed", "succeeded")
        release.set()
        desk.until(
            lambda: desk.sql("SELECT attempts::text LIKE '%%its time was over%%'"
                             " FROM workflow_action")[0][0],
            "what the first call says to be kept",
        )  # fmt: skip
    assert len(world.journal()) == 1
    assert desk.status(key) == "succeeded"
