"""The servers of a benchmark: those of the environment, else a local pair of its own.

Law of this module: a pair that was started here is emptied and stopped at the end; servers named
by the environment are only given databases and topics, which are deleted after use.
"""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import psycopg
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from psycopg import sql
from psycopg.conninfo import make_conninfo

from refold.local.pair import Pair, local_folder


class Servers(NamedTuple):
    """Where the broker and the database are, and what they are called in the results."""

    bootstrap: str
    dsn: str
    source: str

    def new_database(self) -> str:
        """Makes an empty database; returns its connection string."""
        name = f"bench_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return make_conninfo(self.dsn, dbname=name)

    def drop_database(self, dsn: str) -> None:
        """Drops a database of `new_database`."""
        name = str(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"])
        statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement.format(sql.Identifier(name)))

    def versions(self) -> dict[str, str]:
        """Versions as the servers say them; the broker says none, so its feature level stands."""
        with psycopg.connect(self.dsn) as connection:
            row = connection.execute("SHOW server_version").fetchone()
        return {"postgresql": row[0] if row else "?", "servers": self.source}


@contextmanager
def servers() -> Iterator[Servers]:
    """Yields running servers."""
    bootstrap = os.environ.get("REFOLD_KAFKA_BOOTSTRAP")
    dsn = os.environ.get("REFOLD_POSTGRES_DSN")
    if bootstrap and dsn:
        _answers(bootstrap)
        yield Servers(bootstrap, dsn, "environment")
        return
    pair = Pair.at(local_folder() / "bench")
    pair.reset()
    pair.up()
    try:
        yield Servers(pair.kafka.bootstrap, pair.postgres.dsn, "local pair")
    finally:
        pair.reset()


def _answers(bootstrap: str) -> None:
    try:
        AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10)
    except KafkaException as error:
        raise SystemExit(f"No broker at REFOLD_KAFKA_BOOTSTRAP={bootstrap}: {error}") from error
