"""COMMITs whose answer is lost: what was claimed is begun once, and nothing waits for its lease."""

from collections.abc import Callable

import pytest
from tests.executors.rows import Rows, claim, ended, intent, key_of, numbers, place, results
from tests.postgres.proxy import MOMENTS, TO_CLIENT, TO_SERVER, Proxy, Rule, proxy

from refold.executors.ledger import Ledger
from refold.executors.model import Status
from refold.schemas.errors import ServerError

pytestmark = pytest.mark.postgres


@pytest.fixture
def far(ledger_dsn: str) -> Callable[[Proxy], Ledger]:
    """A ledger behind a proxy."""
    return lambda between: Ledger(between.dsn, "x2")


def test_what_a_plan_has_begun_is_begun_though_its_answer_is_lost(
    ledger_dsn: str, rows: Rows, far: Callable[[Proxy], Ledger], cut: Rule
) -> None:
    with proxy(ledger_dsn) as between:
        ledger = far(between)
        between.rule = cut
        first, waits = intent(1, lease_s=30.0), intent(2)
        planned = ledger.plan([first, waits], [place(3)])
        assert between.cuts == 1
        assert planned.claimed == {key_of(1): 1}
        assert rows.statuses() == {1: "in_flight", 2: "planned"}
        again = ledger.plan([first, waits], [place(3)])  # it comes again: it is under way
        assert again.claimed == {}
        ledger.close()


def test_what_a_plan_has_begun_is_begun_when_the_ledger_is_back(
    ledger_dsn: str, far: Callable[[Proxy], Ledger]
) -> None:
    with proxy(ledger_dsn) as between:
        ledger = far(between)
        given_up: list[int] = []

        def cut_twice(way: str, chunk: bytes) -> bool:
            if way == TO_CLIENT and b"COMMIT\0" in chunk:
                between.after = cut_again
                return True
            return False

        def cut_again() -> None:
            given_up.append(1)
            between.rule = lambda way, _: way == TO_SERVER

        between.rule = cut_twice
        with pytest.raises(ServerError):
            ledger.plan([intent(1, lease_s=30.0)], [place(3)])
        assert given_up == [1]
        assert ledger.plan([intent(1, lease_s=30.0)], [place(3)]).claimed == {key_of(1): 1}
        ledger.close()


def test_what_another_has_begun_meanwhile_is_its_own(
    ledger: Ledger, ledger_dsn: str, far: Callable[[Proxy], Ledger]
) -> None:
    with proxy(ledger_dsn) as between:
        mine = far(between)
        between.rule = MOMENTS["before the server saw it"]
        between.after = lambda: void(ledger.plan([intent(1, lease_s=30.0)], [place(2)]))
        assert mine.plan([intent(1, lease_s=30.0)], [place(2)]).claimed == {}
        mine.close()


def test_what_was_claimed_is_called_once_though_the_answer_is_lost(
    ledger: Ledger, ledger_dsn: str, rows: Rows, far: Callable[[Proxy], Ledger], cut: Rule
) -> None:
    ledger.plan([intent(1), intent(2, instance="o-2"), intent(3, instance="o-3")], [place(4)])
    with proxy(ledger_dsn) as between:
        mine = far(between)
        between.rule = cut
        claimed = claim(mine, most=2)
        assert between.cuts == 1
        assert sorted(numbers(claimed)) == [1, 2]
        assert {each.epoch for each in claimed} == {1}
        assert {each.known for each in claimed} == {Status.PLANNED}
        assert numbers(claim(mine)) == [3]
        assert claim(mine) == []
        settled = mine.settle([ended(each) for each in claimed])
        assert len(settled.keys) == 2
        mine.close()


@pytest.mark.parametrize("status", [Status.SUCCEEDED, Status.FAILED, Status.UNKNOWN])
def test_an_end_is_recorded_and_told_once_though_the_answer_is_lost(
    ledger: Ledger, ledger_dsn: str, rows: Rows, far: Callable[[Proxy], Ledger], cut: Rule,
    status: Status,
) -> None:  # fmt: skip
    ledger.plan([intent(1)], [place(2)])
    (claimed,) = claim(ledger)
    with proxy(ledger_dsn) as between:
        mine = far(between)
        between.rule = cut
        mine.settle([ended(claimed, status)])
        assert between.cuts == 1
        mine.close()
    assert rows.status() == status
    assert results(ledger) == [(key_of(1), 1, str(status))]
    assert not rows.one()["contradicted"]


def void(_: object) -> None:
    """Nothing."""
