"""Circuits and lanes: who is down is left alone, and tried with one call."""

from typing import Any

from refold import Command
from refold.executors.circuit import Circuit, Sign, State
from refold.executors.executor import Executor
from refold.executors.lanes import DOWN_LIMIT, Lanes
from refold.executors.truth import Neither


class Clock:
    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def opened(clock: Clock) -> Circuit:
    circuit = Circuit(3, 1.0, 4.0, clock)
    for _ in range(3):
        assert circuit.begin()
        circuit.fail("down")
    return circuit


def test_it_opens_after_so_many_failures_in_a_row() -> None:
    circuit = Circuit(3, 1.0, 4.0, Clock())
    for answer in ("fail", "fail", "succeed", "fail", "fail"):
        assert circuit.begin()
        assert (circuit.fail("down") if answer == "fail" else circuit.succeed()) is False
    assert circuit.fail("down") is True
    assert circuit.state is State.OPEN
    assert not circuit.begin()
    assert circuit.room() == 0


def test_after_its_pause_one_call_tries_and_closes_it() -> None:
    clock = Clock()
    circuit = opened(clock)
    clock.s += 1.0
    assert circuit.state is State.HALF_OPEN
    assert circuit.room() == 1
    assert circuit.begin()
    assert circuit.room() == 0
    assert not circuit.begin()
    assert circuit.succeed() is True
    assert circuit.begin()
    assert circuit.begin()


def test_a_failed_try_doubles_the_pause_up_to_the_longest() -> None:
    clock = Clock()
    circuit = opened(clock)
    pauses = []
    for _ in range(4):
        began_s = clock.s
        while not circuit.begin():
            clock.s += 0.25
        pauses.append(clock.s - began_s)
        circuit.fail("still down")
    assert pauses == [1.0, 2.0, 4.0, 4.0]


def test_calls_that_began_before_it_opened_do_not_prolong_the_pause() -> None:
    clock = Clock()
    circuit = opened(clock)
    for _ in range(10):
        circuit.fail("down too")
    clock.s += 1.0
    assert circuit.state is State.HALF_OPEN


def test_a_try_that_says_nothing_lets_the_next_one_try() -> None:
    clock = Clock()
    circuit = opened(clock)
    clock.s += 1.0
    assert circuit.begin()
    circuit.withdraw()
    assert circuit.begin()


class Pay(Command):
    amount: int


class Refund(Command):
    amount: int


class Mail(Command):
    text: str


def lanes(clock: Clock) -> Lanes:
    executor = Executor("bank")
    for command, system in ((Pay, "bank"), (Refund, "bank"), (Mail, "post")):

        @executor.action(command, truth=Neither(), system=system, concurrency=2)
        def act(command: Any, call: Any) -> None: ...

    return Lanes(executor.actions, clock)


def test_slots_are_bounded_for_each_action_and_come_back_when_the_handler_has_ended() -> None:
    found = lanes(Clock())
    assert [found.take("Pay") for _ in range(3)] == [True, True, False]
    assert found.take("Refund")
    found.free("Pay")
    assert found.take("Pay")
    assert not found.take("Unheard")


def test_a_system_that_is_down_holds_back_all_its_actions_and_no_others() -> None:
    clock = Clock()
    found = lanes(clock)
    for _ in range(DOWN_LIMIT):
        assert found.take("Pay")
        found.learn("Pay", Sign.DOWN, "no route")
        found.free("Pay")
    assert not found.take("Pay")
    assert not found.take("Refund")
    assert found.take("Mail")
    assert [(each.kind, each.name) for each in found.gates] == [("system", "bank")]
    clock.s += 60
    assert found.take_all(100) == {"Pay": 1, "Mail": 1}
    found.learn("Pay", Sign.ANSWERED, "")
    assert found.gates == []
    assert found.take("Refund")


def test_an_action_that_is_not_let_in_pauses_alone() -> None:
    found = lanes(Clock())
    assert found.take("Pay")
    found.learn("Pay", Sign.SHUT, "HTTP 401")
    found.free("Pay")
    assert not found.take("Pay")
    assert found.take("Refund")
    (gate,) = found.gates
    assert (gate.kind, gate.name, gate.reason) == ("action", "Pay", "HTTP 401")
