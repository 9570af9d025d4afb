"""A worker from settings: which clients, which store, which checks before a partition is taken.

Law of this module: wiring only.
"""

import os
import socket
from collections.abc import Callable, Mapping
from time import time
from uuid import uuid4

import structlog

from refold.processors.checks import Checks
from refold.processors.clients import Admin, Clients, KafkaClients
from refold.processors.definition import Workflow
from refold.processors.options import Options
from refold.processors.versions import Registration
from refold.processors.worker import Worker
from refold.schemas.errors import Code, RefoldError, UsageError
from refold.snapshots.ports import Store
from refold.snapshots.preflight import findings as postgres_findings
from refold.snapshots.sessions import address_of
from refold.snapshots.store import PostgresStore
from refold.topics.settings import Settings

_LOG = structlog.get_logger("refold.service")
Wrap = Callable[[Clients, Store], tuple[Clients, Store]]


def options_of(settings: Settings, *, name: str = "") -> Options:
    """The worker's options that stand in the settings."""
    worker = settings.worker
    return Options(
        namespace=settings.namespace,
        group=settings.group,
        name=name or f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:6]}",
        batch_records=worker.batch_records,
        gather_s=worker.batch_ms / 1000,
        transaction_gap_s=worker.transaction_pause_ms / 1000,
        takeover_budget_s=worker.takeover_budget_s,
        freshness_s=worker.freshness_s / 2,
        snapshot_max_age_s=worker.snapshot_max_age_s,
        rows=worker.rows,
        activate_manually=worker.activate == "manual",
        preflight_s=worker.preflight_s,
        accept_finite_retention=worker.accept_finite_retention,
        timer_records=worker.timer_records,
    )


def build_worker(
    settings: Settings,
    workflows: Mapping[str, Workflow],
    *,
    wrap: Wrap | None = None,
    options: Options | None = None,
    wall: Callable[[], float] = time,
) -> Worker:
    """Compose a worker.

    Args:
        settings: Of this process.
        workflows: What to fold, by name.
        wrap: Puts something between the worker and its ports; for tests.
        options: Instead of what the settings say; for tests of what cannot be set.
        wall: Seconds since the epoch, for the timers; for tests.

    Raises:
        UsageError: BAD_SETTING, timers without the rows that tell when they are due.
        DefinitionError: DEFINITION_CHANGED, a version stands with another fingerprint.
        ServerError: PostgreSQL has no or another schema.
    """
    options = options or options_of(settings)
    _check_rows(options, workflows)
    clients: Clients = KafkaClients(settings, options.name)
    dsn = settings.postgres.dsn
    postgres = PostgresStore(dsn, application_name=f"refold:{options.name}")
    registration = Registration(postgres, workflows)
    _register(registration, postgres, address_of(dsn))
    store: Store = postgres
    if wrap is not None:
        clients, store = wrap(clients, store)
    checks = Checks(
        options, workflows, Admin(clients), lambda: postgres_findings(dsn), registration.fence
    )
    return Worker(options, workflows, clients, store, checks, wall=wall)


def _check_rows(options: Options, workflows: Mapping[str, Workflow]) -> None:
    """Instance rows are the due index: what is due later is known from there alone (P26)."""
    timed = sorted(each.name for each in workflows.values() if each.timed)
    if timed and not options.rows:
        raise UsageError(
            Code.BAD_SETTING,
            f"worker.rows is false, and timers or retries are declared by {', '.join(timed)}:"
            " when they are due stands in the rows.",
            "Set worker.rows to true; after a time without rows, `refold rebuild` makes them.",
        )


def _register(registration: Registration, postgres: PostgresStore, address: str) -> None:
    try:
        registration()
        _LOG.info("connected to PostgreSQL", address=address)
    except RefoldError as error:
        if error.code != Code.POSTGRES_AWAY:
            postgres.close()
            raise
        _LOG.warning("versions are compared once PostgreSQL answers", error=str(error))
