"""Least rights on a ledger: its executor does all of its work, and nothing else."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.executors.rows import claim, ended, intent, key_of, place, undoing
from typer.testing import CliRunner

from refold.cli.main import app
from refold.examples.order.graph import OrderPlaced
from refold.executors import words
from refold.executors.grants import EXECUTOR_RIGHTS, grant_ledger
from refold.executors.ledger import Ledger
from refold.executors.migrate import migrate_ledger
from refold.executors.model import Rejected, Status, Wanted
from refold.executors.outbox import Outbox
from refold.executors.outcome import Done, NotDone
from refold.executors.questions import Questions
from refold.executors.truth import ByKey
from refold.schemas.errors import Code, ServerError
from refold.testing.servers import Postgres
from refold.topics.publisher import Draft
from refold.topics.settings import load_settings

pytestmark = pytest.mark.postgres
NewRole = Callable[[], str]


@pytest.fixture
def owned(postgres: Postgres) -> Iterator[str]:
    """A ledger in a database on which nobody has any right but its owner."""
    dsn = postgres.new_database()
    migrate_ledger(dsn)
    run(dsn, f"REVOKE ALL ON DATABASE {conninfo_to_dict(dsn)['dbname']} FROM PUBLIC")
    yield dsn
    postgres.drop_database(dsn)


@pytest.fixture
def new_role(owned: str) -> Iterator[NewRole]:
    """Makes login roles without rights, dropped after the test."""
    made: list[str] = []

    def make() -> str:
        made.append(f"test_{os.urandom(6).hex()}")
        run(owned, f"CREATE ROLE {made[-1]} LOGIN PASSWORD 'x'")
        return made[-1]

    yield make
    for name in made:
        run(owned, f"DROP OWNED BY {name}")
        run(owned, f"DROP ROLE {name}")


def run(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def of(dsn: str, role: str) -> str:
    return make_conninfo(dsn, user=role, password="x")


def test_an_executors_role_does_everything_that_a_ledger_does(
    owned: str, new_role: NewRole
) -> None:
    role = new_role()
    grant_ledger(owned, executor=role)
    with closing(Ledger(of(owned, role), "x1")) as ledger:
        record = Rejected(
            topic="t", partition=0, offset=9, record_key=None, headers=[], value=b"", code="X",
            text="",
        )  # fmt: skip
        ledger.plan([intent(1, lease_s=9.0), intent(2)], [place(3)], rejected=[record])
        ledger.plan([intent(1, request=b"other"), intent(2, attempt=2)], [place(4)])
        ledger.plan([intent(3, truth="neither")], [], Status.UNKNOWN)
        assert ledger.position("shop.payments.commands", 0) is not None
        ledger.distrust("payments", 7)
        ledger.settle([ended(each, Status.FAILED) for each in claim(ledger)])
        ledger.plan([undoing(1), undoing(2)], [])
        claim(ledger)
        ledger.recall("payments", Wanted("Charge", 9, 9.0), 1e6)
        ledger.ask("payments", ["Charge"], 9, 0.0)
        ledger.run_out("payments")
        ledger.renew([])
        ledger.answer(Done(None), target="payments", reference="early")
        ledger.answer(Done(None), key=key_of(1))
        ledger.plan([intent(4, truth="neither")], [], Status.UNKNOWN)
        ledger.decide(key_of(4), words.declared_done("seen"), "me")
        ledger.published([each.event_id for each in ledger.results("payments", -1)])
        ledger.standing("payments", 1.0)
        ledger.scanned("payments")
        ledger.prune(1.0)
        with ledger.action(
            "k", action="a", target="t", request=1, truth=ByKey(remembers_s=100)
        ) as call:
            call.run(lambda: 7)
        with pytest.raises(ServerError, match="permission denied"):
            ledger.runner.run("x", lambda c: c.execute("TRUNCATE refold_ledger.workflow_rejected"))
        with pytest.raises(ServerError, match="permission denied"):
            ledger.runner.run(
                "x", lambda c: c.execute("DELETE FROM refold_ledger.schema_migration")
            )
    assert {*EXECUTOR_RIGHTS} == tables(owned)


def tables(dsn: str) -> set[str]:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'refold_ledger'"
        )
        return {row[0] for row in rows}


def test_a_services_role_publishes_and_reads_nothing(owned: str, new_role: NewRole) -> None:
    role = new_role()
    grant_ledger(owned, service=role)
    outbox = Outbox(load_settings(), "order", "/shop/checkout", tenant="acme")
    with psycopg.connect(of(owned, role)) as connection:
        outbox.publish(connection, Draft(instance="o-1", event=OrderPlaced(("book",), 1), key="k"))
    with (
        psycopg.connect(of(owned, role)) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("SELECT FROM refold_ledger.workflow_outbox")


def test_a_readers_role_sees_and_changes_nothing(owned: str, new_role: NewRole) -> None:
    role = new_role()
    grant_ledger(owned, reader=role)
    with closing(Questions(of(owned, role))) as questions:
        assert questions.find() == []
        assert questions.rejected() == []
    with (
        closing(Ledger(of(owned, role), "x1")) as ledger,
        pytest.raises(ServerError, match="permission denied"),
    ):
        ledger.answer(NotDone("x"), target="t", reference="r")


def test_the_command_grants_or_only_says_what_it_would(owned: str, new_role: NewRole) -> None:
    role = new_role()
    command = ["ledger", "grant", "--dsn", owned, "--executor", role, "--reader", role]
    told = CliRunner().invoke(app, [*command, "--dry-run"])
    assert told.exit_code == 0
    assert told.stdout.count(f'TO "{role}";') == 2 * (2 + len(EXECUTOR_RIGHTS))
    with pytest.raises(ServerError), closing(Ledger(of(owned, role), "x1")) as ledger:
        ledger.results("payments", 0.0)
    assert CliRunner().invoke(app, command).exit_code == 0
    with closing(Ledger(of(owned, role), "x1")) as ledger:
        assert ledger.results("payments", 0.0) == []


def test_a_role_that_does_not_exist_is_named(owned: str) -> None:
    with pytest.raises(ServerError, match="nobody_of_that_name") as caught:
        grant_ledger(owned, reader="nobody_of_that_name")
    assert caught.value.code == Code.POSTGRES_REFUSED
