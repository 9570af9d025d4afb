"""Arrays that are packed here are what PostgreSQL reads."""

from typing import Any

import psycopg
import pytest

from refold.executors.arrays import packed
from refold.testing.servers import Postgres

VALUES: list[tuple[str, list[Any]]] = [
    ("text[]", ["", "a", "äß\U0001f600", 'quote " and \\ and {,}', "NULL"]),
    ("bytea[]", [b"", b"\x00\xff", b"x" * 10_000]),
    ("bool[]", [True, False]),
    ("int[]", [0, -1, 2**31 - 1]),
    ("bigint[]", [0, -(2**63), 2**63 - 1]),
    ("bigint[]", [1, 2]),
    ("float8[]", [0.0, -1.5, 1e300]),
    ("text[]", []),
]


@pytest.mark.postgres
@pytest.mark.parametrize(("kind", "values"), VALUES)
def test_an_array_comes_back_as_it_was(postgres: Postgres, kind: str, values: list[Any]) -> None:
    with psycopg.connect(postgres.dsn) as connection:
        row = connection.execute(f"SELECT %(v)s::{kind}".encode(), packed({"v": values})).fetchone()
    assert row == (values,)


@pytest.mark.postgres
def test_lists_that_others_write_are_written_as_ever(postgres: Postgres) -> None:
    """A process may have a ledger and something that copies lists beside it, as a worker does."""
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute("CREATE TEMPORARY TABLE lists (texts text[], numbers int[])")
        statement = "COPY lists FROM STDIN (FORMAT binary)"
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(["text[]", "int4[]"])
            copy.write_row((["a", "b"], [1, 2]))
        assert connection.execute("SELECT * FROM lists").fetchall() == [(["a", "b"], [1, 2])]


def test_what_is_no_list_is_left_and_a_list_of_anything_else_is_refused() -> None:
    assert packed({"a": 1, "b": "x", "c": None}) == {"a": 1, "b": "x", "c": None}
    with pytest.raises(TypeError):
        packed({"a": [None]})
