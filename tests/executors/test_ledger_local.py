"""A local action's effect and its row are one transaction."""

from collections.abc import Callable, Iterator

import psycopg
import pytest
from tests.executors.rows import Rows, claim, ended, intent, key_of, results

from refold.executors.ledger import Ledger
from refold.executors.model import Claimed, Ended
from refold.schemas.errors import ServerError
from refold.snapshots.sessions import Connection

pytestmark = pytest.mark.postgres


@pytest.fixture(autouse=True)
def stock(rows: Rows) -> Iterator[None]:
    rows.sql("CREATE TABLE stock (key text)")
    yield
    rows.sql("DROP TABLE stock")


def taking(
    claimed: Claimed, spoil: Callable[[Connection], object] = id
) -> Callable[[Connection], Ended]:
    def work(connection: Connection) -> Ended:
        connection.execute("INSERT INTO stock VALUES (%s)", [claimed.key])
        spoil(connection)
        return ended(claimed)

    return work


def claimed(ledger: Ledger, lease_s: float = 60) -> Claimed:
    ledger.plan([intent(truth="local")], [])
    (found,) = claim(ledger, lease_s=lease_s)
    return found


def effects(rows: Rows) -> int:
    return len(rows.sql("SELECT key FROM stock"))


def test_effect_row_and_event_commit_together(ledger: Ledger, rows: Rows) -> None:
    found = claimed(ledger)
    told = ledger.local(found, taking(found))
    assert told is not None
    assert (effects(rows), rows.status()) == (1, "succeeded")
    assert results(ledger) == [(key_of(1), 1, "succeeded")]
    assert ledger.local(found, taking(found)) is None
    assert effects(rows) == 1


def test_the_handlers_own_statements_are_planned_as_anywhere(ledger: Ledger) -> None:
    found, seen = claimed(ledger), []

    def look(connection: Connection) -> None:
        seen.append(connection.execute("SHOW enable_seqscan").fetchone())

    ledger.local(found, taking(found, look))
    assert seen == [("on",)]


def test_an_error_leaves_neither(ledger: Ledger, rows: Rows) -> None:
    found = claimed(ledger)

    def fail(_: Connection) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        ledger.local(found, taking(found, fail))
    assert (effects(rows), rows.status()) == (0, "in_flight")


def test_a_session_that_ends_before_the_commit_is_done_again_and_only_once(
    ledger: Ledger, rows: Rows
) -> None:
    found, runs = claimed(ledger), []

    def die_once(connection: Connection) -> None:
        runs.append(1)
        if len(runs) == 1:
            with psycopg.connect(rows.dsn, autocommit=True) as killer:
                killer.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])

    ledger.local(found, taking(found, die_once))
    assert (len(runs), effects(rows), rows.status()) == (2, 1, "succeeded")


def test_a_claim_that_another_has_taken_over_does_nothing(ledger: Ledger, rows: Rows) -> None:
    old = claimed(ledger, lease_s=-1)
    assert ledger.run_out("payments") == []
    assert rows.status() == "planned"
    (new,) = claim(ledger)
    assert ledger.local(old, taking(old)) is None
    assert effects(rows) == 0
    assert ledger.local(new, taking(new)) is not None
    assert effects(rows) == 1


def test_while_the_transaction_lives_its_lease_cannot_run_out(ledger: Ledger, rows: Rows) -> None:
    found = claimed(ledger, lease_s=-1)

    def look(_: Connection) -> None:
        assert ledger.run_out("payments") == []
        assert rows.sql("SELECT status FROM refold_ledger.workflow_action") == [("in_flight",)]

    assert ledger.local(found, taking(found, look)) is not None
    assert (effects(rows), rows.status()) == (1, "succeeded")


def test_an_event_that_the_database_refuses_takes_the_effect_back(
    ledger: Ledger, rows: Rows
) -> None:
    found = claimed(ledger)

    def work(connection: Connection) -> Ended:
        connection.execute("INSERT INTO stock VALUES ('x')")
        return ended(found, event_id="a null byte: \0")

    with pytest.raises(ServerError):
        ledger.local(found, work)
    assert (effects(rows), rows.status()) == (0, "in_flight")
