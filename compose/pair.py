"""Kafka and PostgreSQL side by side in one folder: up, down, reset.

Law of this module: whoever changes the pair holds its lock file, so that two programs that want it
at once get one pair.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import platformdirs
from filelock import FileLock

from refold.local.jars import Progress
from refold.local.kafka import KafkaServer
from refold.local.postgres import PostgresServer
from refold.local.server import disk_errors

FOLDER_VARIABLE: Final = "REFOLD_LOCAL_DIR"
DATABASE: Final = "refold"
"""What the settings name by default."""
LOCK_TIMEOUT_S: Final = 600.0
"""A first start downloads 50 MB while another waits."""


def local_folder(chosen: Path | None = None) -> Path:
    """Where the pair lives: the argument, else REFOLD_LOCAL_DIR, else the user's data folder.

    For root that is a folder of the machine, since PostgreSQL runs under another account, which
    cannot enter root's home.
    """
    if chosen is not None:
        return chosen.absolute()
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named).absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/refold")
    return platformdirs.user_data_path("refold")


def jar_folder() -> Path:
    """Where Kafka's jars are kept; shared by all pairs of a user."""
    return platformdirs.user_cache_path("refold") / "jars"


@dataclass(frozen=True, slots=True)
class Pair:
    """The two servers of one folder."""

    folder: Path
    kafka: KafkaServer
    postgres: PostgresServer

    @classmethod
    def at(
        cls,
        folder: Path,
        *,
        kafka_port: int | None = None,
        postgres_port: int | None = None,
        kafka_settings: Mapping[str, str] | None = None,
        postgres_settings: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Name the pair of a folder; nothing is started."""
        kafka = KafkaServer(
            folder / "kafka",
            kafka_port,
            jars=jar_folder(),
            settings=kafka_settings,
            progress=progress,
        )
        postgres = PostgresServer(folder / "postgres", postgres_port, settings=postgres_settings)
        return cls(folder, kafka, postgres)

    def lock(self) -> FileLock:
        """The lock of this pair, among processes."""
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        return FileLock(self.folder / ".lock", timeout=LOCK_TIMEOUT_S)

    def up(self, tell: Callable[[str], None] = lambda _: None) -> None:
        """Start what does not run and wait until both work.

        Args:
            tell: Told in one line what is being done.

        Raises:
            ServerError: One of the LOCAL_* codes.
        """
        with self.lock():
            servers = (self.postgres, self.kafka)
            for server in servers:
                server.choose_port()  # both, before one of them runs alone
            for server in servers:
                tell(f"starting {server.name}")
                server.start()
            self.postgres.ensure_database(DATABASE)

    def down(self) -> None:
        """Stop both; their data stays."""
        with self.lock():
            self.kafka.stop()
            self.postgres.stop()

    def reset(self) -> None:
        """Stop both and delete their data."""
        with self.lock():
            self.kafka.kill()
            self.postgres.kill()
            for server in (self.kafka, self.postgres):
                shutil.rmtree(server.home, ignore_errors=True)

    def environment(self) -> dict[str, str]:
        """The variables by which every refold command finds the pair."""
        return {
            "REFOLD_KAFKA_BOOTSTRAP": self.kafka.bootstrap,
            "REFOLD_POSTGRES_DSN": self.postgres.dsn_of(DATABASE),
        }
