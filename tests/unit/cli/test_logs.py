"""A server that is away is told when it goes and once in a while, not for each failed try."""

from collections.abc import Callable

import pytest
import structlog

from refold.cli.logs import EVERY_S, Seldom
from refold.processors.health import BACK
from refold.snapshots.sessions import address_of

AWAY = "POSTGRES_AWAY: PostgreSQL did not answer. It is tried again."


@pytest.fixture
def passes() -> Callable[..., int | None]:
    """Gives an event at a time: how many were held back before it; None: it was held back."""
    at_s = [0.0]
    seldom = Seldom(lambda: at_s[0])

    def give(when_s: float, event: str = "not saved", **fields: str) -> int | None:
        at_s[0] = when_s
        try:
            passed = seldom(None, "warning", {"event": event, **fields})
        except structlog.DropEvent:
            return None
        held: int = passed.get("held_back", 0)
        return held

    return give


def test_the_first_failure_is_told_and_one_in_a_while_with_how_many_there_were(
    passes: Callable[..., int | None],
) -> None:
    assert passes(0.0, error=AWAY) == 0
    assert passes(1.0, error=AWAY) is None
    assert passes(2.0, "not loaded", error=AWAY) is None
    assert passes(EVERY_S, error=AWAY) == 2


def test_another_server_and_whatever_else_is_told_at_once(
    passes: Callable[..., int | None],
) -> None:
    assert passes(0.0, error=AWAY) == 0
    assert passes(0.1, error="KAFKA_AWAY: Kafka did not answer.") == 0
    assert passes(0.2, "fenced", error="OFFSETS_MOVED: Somebody moved it.") == 0
    assert passes(0.3, "fenced", error="OFFSETS_MOVED: Somebody moved it.") == 0


def test_a_server_that_goes_again_after_it_was_back_is_told_at_once(
    passes: Callable[..., int | None],
) -> None:
    assert passes(0.0, error=AWAY) == 0
    assert passes(1.0, BACK, code="POSTGRES_AWAY") == 0
    assert passes(2.0, error=AWAY) == 0


@pytest.mark.parametrize(
    ("dsn", "address"),
    [
        ("postgresql://ann:secret@db-1:6432/shop", "db-1:6432/shop"),
        ("postgresql://ann:secret@db-1,db-2/shop", "db-1:5432,db-2:5432/shop"),
        ("host=a,b port=1,2 password=secret dbname=shop", "a:1,b:2/shop"),
        ("", "localhost:5432/"),
    ],
)
def test_an_address_is_told_without_who_and_with_what_password(dsn: str, address: str) -> None:
    assert address_of(dsn) == address
