"""The outside world of tests: it journals the truth and misbehaves as declared, again and again."""

from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest

from refold.executors.outcome import Answer, CannotTell, Done, Undone
from refold.testing.manners import Said
from refold.testing.world import (
    AlreadyDone,
    Busy,
    Fault,
    KeyReused,
    LineDead,
    LocalSystem,
    Manners,
    Refused,
    World,
)
from refold.testing.world_server import RemoteWorld, WorldServer


def bank(world: World | None = None, **manners: object) -> tuple[World, LocalSystem]:
    made = world or World(seed=1)
    return made, made.system("bank", **manners)


def test_what_is_done_stands_in_the_journal_by_its_key() -> None:
    world, system = bank()
    reply = system.call("pay", "k1", amount=5)
    (effect,) = world.journal("bank", "k1")
    assert (effect.action, effect.request, effect.reference) == (
        "pay", {"amount": 5}, reply.reference,
    )  # fmt: skip


def test_a_system_that_knows_no_keys_does_a_second_call_again_and_the_journal_shows_it() -> None:
    world, system = bank()
    system.call("pay", "k1", amount=5)
    system.call("pay", "k1", amount=5)
    assert world.doubles() == {("bank", "k1"): 2}


def test_a_system_that_repeats_gives_its_first_answer_again() -> None:
    world, system = bank(keys="repeat")
    first = system.call("pay", "k1", amount=5)
    again = system.call("pay", "k1", amount=5)
    assert (again.reference, again.repeated) == (first.reference, True)
    assert len(world.journal()) == 1


def test_a_system_that_refuses_says_that_it_was_done_before() -> None:
    world, system = bank(keys="refuse")
    first = system.call("pay", "k1", amount=5)
    with pytest.raises(AlreadyDone) as told:
        system.call("pay", "k1", amount=5)
    assert told.value.reference == first.reference
    assert len(world.journal()) == 1


@pytest.mark.parametrize("keys", ["repeat", "refuse"])
def test_a_key_with_another_request_is_refused(keys: str) -> None:
    world, system = bank(keys=keys)
    system.call("pay", "k1", amount=5)
    with pytest.raises(KeyReused):
        system.call("pay", "k1", amount=6)
    assert len(world.journal()) == 1


def test_a_key_that_is_forgotten_is_a_new_one_and_was_never_done() -> None:
    world, system = bank(keys="repeat", forgets_after_s=60)
    system.call("pay", "k1", amount=5)
    world.pass_s(59)
    assert system.call("pay", "k1", amount=5).repeated
    world.pass_s(1)
    assert system.ask("k1").word == "not_done"
    assert not system.call("pay", "k1", amount=5).repeated
    assert world.doubles() == {("bank", "k1"): 2}
    assert system.call("pay", "k1", amount=5).repeated


def test_a_dropped_answer_was_done_and_a_call_that_did_not_reach_was_not() -> None:
    world, system = bank()
    system.next(Fault.DROP, Fault.UNREACHED)
    for key in ("dropped", "unreached"):
        with pytest.raises(LineDead):
            system.call("pay", key, amount=5)
    assert [effect.key for effect in world.journal()] == ["dropped"]
    assert system.ask("dropped").word == "done"
    assert system.ask("unreached").word == "not_done"


def test_a_refusal_stands_for_its_key_and_does_nothing() -> None:
    world, system = bank(declines=1.0)
    for _ in range(2):
        with pytest.raises(Refused):
            system.call("pay", "k1", amount=5)
    assert world.journal() == []


def test_a_busy_system_says_when_to_come_back() -> None:
    world, system = bank(busy=1.0, retry_after_s=30)
    with pytest.raises(Busy) as told:
        system.call("pay", "k1", amount=5)
    assert told.value.retry_after_s == 30
    assert world.journal() == []


def test_what_was_done_is_shown_late() -> None:
    world, system = bank(visible_after_s=10)
    reference = system.call("pay", "k1", amount=5).reference
    world.pass_s(9.5)
    assert system.ask("k1").word == "not_done"
    world.pass_s(0.5)
    said = system.ask("k1")
    assert (said.word, said.reference) == ("done", reference)


def test_a_late_answer_is_a_time_out_of_something_that_was_done() -> None:
    world, system = bank(late=1.0, late_s=60)
    with pytest.raises(TimeoutError):
        system.call("pay", "k1", timeout_s=2, amount=5)
    assert len(world.journal()) == 1


def test_what_is_only_accepted_is_answered_later_and_perhaps_twice() -> None:
    world, system = bank(accepts=1.0, answers_after_s=5)
    system.next(Fault.NONE, Fault.TWICE)
    assert system.call("pay", "once", amount=5).accepted
    reference = system.call("pay", "twice", amount=5).reference
    assert world.answers() == []
    assert system.ask("twice").word == "not_done"
    world.pass_s(5)
    assert [late.key for late in world.answers()] == ["once", "twice", "twice"]
    assert world.answers() == []
    assert (system.ask("twice").word, system.ask("twice").reference) == ("done", reference)


def test_a_system_may_not_know_and_may_lie() -> None:
    _, system = bank()
    system.next_asked(Fault.CANNOT_TELL, Fault.LIE)
    system.call("pay", "k1", amount=5)
    assert [system.ask("k1").word for _ in range(3)] == ["cannot_tell", "not_done", "done"]


def test_what_goes_wrong_follows_from_the_seed_whatever_the_order_of_calls() -> None:
    def outcomes(seed: int, keys: list[str]) -> dict[str, str]:
        world, system = bank(World(seed), declines=0.3, drops=0.3, unreached=0.1)
        for key in keys:
            with suppress(LineDead, Refused):
                system.call("pay", key, amount=5)
        return {each.key: each.outcome for each in world.requests()}

    keys = [f"k{number}" for number in range(200)]
    first = outcomes(1, keys)
    assert outcomes(1, keys[::-1]) == first
    assert outcomes(2, keys) != first
    found = [list(first.values()).count(each) for each in ("decline", "drop", "unreached", "none")]
    assert all(found)


def test_a_manner_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError):
        World().system("bank", drop=0.1)


def test_a_served_world_speaks_as_one_in_the_process_does(tmp_path: Path) -> None:
    with WorldServer(tmp_path / "world.db", systems={"bank": Manners(keys="repeat")}) as server:
        remote = RemoteWorld(server.address)
        system = remote.system("bank")
        first = system.call("pay", "a/b:c", amount=5)
        assert system.call("pay", "a/b:c", amount=5).repeated
        assert system.ask("a/b:c").reference == first.reference
        with pytest.raises(KeyReused):
            system.call("pay", "a/b:c", amount=6)
        system.next("decline", "drop", "busy", "late", "twice")
        with pytest.raises(Refused):
            system.call("pay", "k1", amount=5)
        with pytest.raises(LineDead):
            system.call("pay", "k2", amount=5)
        with pytest.raises(Busy):
            system.call("pay", "k3", amount=5)
        assert not system.call("pay", "k4", amount=5).repeated
        assert system.call("pay", "k5", amount=5).accepted
        assert [late.key for late in remote.answers()] == ["k5", "k5"]
        assert [each.key for each in server.journal.effects()] == ["a/b:c", "k2", "k4", "k5"]


def test_a_served_worlds_journal_outlives_its_process_and_its_answers_are_waited_for(
    tmp_path: Path,
) -> None:
    systems = {"bank": Manners(keys="repeat", late=1.0, late_s=30)}
    with WorldServer(tmp_path / "world.db", systems=systems) as server:
        system = RemoteWorld(server.address).system("bank")
        with pytest.raises(TimeoutError):
            system.call("pay", "k1", timeout_s=2.0, amount=5)
        server.kill()
        with pytest.raises(LineDead):
            system.ask("k1")
        server.start()
        assert system.ask("k1").word == "done"
        RemoteWorld(server.address).pass_s(60)
        assert [each.outcome for each in server.journal.requests()] == ["late", "done"]
        assert len(server.journal.effects()) == 1


def test_a_served_world_does_not_do_what_its_caller_has_given_up(tmp_path: Path) -> None:
    with WorldServer(tmp_path / "world.db", systems={"bank": Manners()}) as server:
        remote = RemoteWorld(server.address)
        late = {"action": "pay", "key": "k1", "request": {"amount": 5}, "until_s": monotonic() - 1}
        with pytest.raises(LineDead):
            remote.post("/systems/bank/call", late)
        assert server.journal.effects() == []
        remote.post("/systems/bank/call", late | {"until_s": monotonic() + 60})
        assert [each.key for each in server.journal.effects()] == ["k1"]


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (Said("done", "r-1"), Done("told of r-1")),
        (Said("not_done"), Undone()),
        (Said("cannot_tell"), CannotTell()),
    ],
    ids=str,
)
def test_what_a_system_says_is_what_a_question_answers(said: Said, answer: Answer) -> None:
    found = said.answer("told of {}".format)
    assert type(found) is type(answer)
    assert getattr(found, "event", None) == getattr(answer, "event", None)
