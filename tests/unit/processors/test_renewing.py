"""Continue as new: an instance that lives for ever, in runs that are each bounded."""

from collections.abc import Callable

import pytest
from msgspec.structs import asdict

from refold import (
    ANY,
    Command,
    Context,
    DefinitionError,
    Event,
    Late,
    Limits,
    StateGraph,
    replace,
)
from refold.processors.instance_codec import encode
from refold.schemas.verdicts import Verdict
from refold.testing.driver import Driver


class Opened(Event):
    pass


class Booked(Event):
    amount: int


class MonthEnded(Event):
    pass


class Closed(Event):
    pass


class Answered(Event):
    pass


class Report(Command):
    total: int


class Withdraw(Command):
    pass


class Account(Context):
    balance: int = 0
    entries: tuple[int, ...] = ()


def withdraw(_: Account, __: Report) -> Withdraw:
    return Withdraw()


def account(limits: Limits | None = None, *, renew: bool = True) -> StateGraph[Account]:
    """Collects a month's entries, reports them, and begins the next month with the balance."""
    graph = StateGraph(
        "account", version=1, context=Account, initial="new", tenant="acme", dedup=8,
        limits=limits or Limits(transitions=5, visits=2),
    )  # fmt: skip
    graph.command(Report, target="office", answers=(Answered,), compensate=withdraw)
    graph.command(Withdraw, target="office")
    graph.on("new", Opened, to="month")

    @graph.on("month", Booked)
    def booked(ctx: Account, event: Booked) -> Account:
        return replace(ctx, entries=(*ctx.entries, event.amount))

    @graph.on("month", MonthEnded, to="month", renew=renew)
    def carried(ctx: Account, _: MonthEnded) -> Account:
        return Account(ctx.balance + sum(ctx.entries))

    graph.enter("month", lambda ctx, _: Report(ctx.balance))
    graph.on("month", Answered)
    graph.on("month", Closed, to="closing")
    graph.undo("closing", to="closed")
    graph.final("closed", late={ANY: Late.RECORD})
    return graph


def opened(**given: object) -> Driver:
    made = Driver(account(**given), tenant="acme")  # type: ignore[arg-type]
    made.send("a", Opened())
    return made


def checked(made: Driver) -> None:
    made.check_counts()
    made.check_replay()
    made.kill_and_recover()
    made.check_replay()


def test_each_run_counts_for_itself_and_the_context_is_carried() -> None:
    made = opened()
    sizes = []
    for month in range(20):
        for amount in (1, 2, 3):
            assert made.send("a", Booked(amount)).verdict is Verdict.APPLIED
        step = made.send("a", MonthEnded())
        assert step.verdict is Verdict.APPLIED
        record = made.instance("a")
        assert (record.transitions, record.visits[1]) == (1, 1)
        assert (record.more.renewed, record.context) == (month + 1, Account(6 * (month + 1)))
        assert record.more.renewed_offset == record.last_offset
        made.done(made.sent[-1])
        sizes.append(len(encode(made.instance("a"), made.workflow.latest)))
        made.kill_and_recover()
    assert max(sizes[3:]) - min(sizes[3:]) < 20
    assert len(set(made.keys())) == 21
    checked(made)


def test_without_a_renewal_the_limits_hold() -> None:
    made = opened(renew=False)
    for _ in range(2):
        made.send("a", MonthEnded())
    assert made.instance("a").more.parked is not None
    checked(made)


def test_a_run_at_its_limit_can_still_be_renewed() -> None:
    made = opened()
    for amount in range(4):
        made.send("a", Booked(amount))
    made.send("a", MonthEnded())
    assert made.instance("a").more.parked is None
    checked(made)


def test_a_repetition_from_the_run_before_is_a_duplicate() -> None:
    made = opened()
    made.send("a", Booked(7), id="seven")
    made.send("a", MonthEnded(), id="may")
    assert made.send("a", Booked(7), id="seven").verdict is Verdict.DUPLICATE
    assert made.send("a", MonthEnded(), id="may").verdict is Verdict.DUPLICATE
    checked(made)


def test_open_actions_are_carried_over_and_what_was_done_before_stays_done() -> None:
    made = opened()
    first = made.sent[-1]
    made.send("a", MonthEnded())
    second = made.sent[-1]
    assert [one.key for one in made.instance("a").more.actions] == [first.key, second.key]
    made.done(first, Answered())
    made.send("a", MonthEnded())
    assert made.instance("a").more.done == ()
    made.done(second, Answered())
    made.done(made.sent[-1], Answered())
    made.send("a", Closed())
    assert [one.type for one in made.sent[3:]] == ["Withdraw"]
    checked(made)


def test_a_terminated_instance_keeps_the_number_of_its_run() -> None:
    made = opened()
    made.send("a", MonthEnded())
    made.terminate("a")
    assert asdict(made.instance("a").more)["renewed"] == 1
    checked(made)


def _stays(graph: StateGraph[Account]) -> None:
    graph.on("month", Opened, renew=True)


def _ends(graph: StateGraph[Account]) -> None:
    graph.on("month", Opened, to="closed", renew=True)


@pytest.mark.parametrize("spoil", [_stays, _ends])
def test_a_renewal_that_enters_no_state_does_not_register(
    spoil: Callable[[StateGraph[Account]], None],
) -> None:
    graph = account()
    spoil(graph)
    with pytest.raises(DefinitionError, match="renews and enters no state"):
        graph.build()


def test_a_renewal_is_part_of_form_and_fingerprint() -> None:
    made, other = account().build(), account(renew=False).build()
    assert b'"renew":true' in made.to_json()
    assert b"renew" not in other.to_json()
    assert made.fingerprint != other.fingerprint
