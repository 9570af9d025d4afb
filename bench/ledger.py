"""The ledger's rate: intents planned and begun, ends settled, what is published forgotten.

Both sides do the same transactions against PostgreSQL: the product through `Ledger`, as an
executor process calls it; the limit replays the statements that the product was seen to execute.
Either is a process of its own; `python -m bench.ledger` is the product's.
"""

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psycopg

from bench.limits import w2_wire, wire
from bench.processes import module, running
from bench.servers import Servers
from refold.executors.arrays import Packed
from refold.executors.ledger import Ledger
from refold.executors.migrate import migrate_ledger
from refold.executors.model import Ended, Intent, Place, Status
from refold.schemas.envelope import Outcome, derived_id

BATCH = 500
"""Records of one batch, as the intake takes them when there is much."""
TIMEOUT_S = 120.0


class Rates(NamedTuple):
    """One round."""

    product: float
    """Actions a second."""
    limit: float
    fault: str = ""


def measure(servers: Servers, actions: int, logs: Path, *, product_first: bool) -> Rates:
    """One run of either side, on databases of their own."""
    file = logs / "ledger.msgpack"
    if not file.exists():
        recording = ("--count", str(actions), "--record", str(file))
        _, fault = _process(servers, logs, "bench.ledger", *recording)
        if fault:
            return Rates(0.0, 0.0, f"recording: {fault}")
    runs = {
        "product": lambda: _process(servers, logs, "bench.ledger", "--count", str(actions)),
        "limit": lambda: _process(servers, logs, "bench.limits.ledger", "--file", str(file)),
    }
    found, faults = {}, []
    for name in runs if product_first else reversed(runs):
        seconds, fault = runs[name]()
        found[name] = actions / seconds if seconds else 0.0
        faults += [f"{name}: {fault}"] if fault else []
    return Rates(found["product"], found["limit"], "; ".join(faults))


def _process(servers: Servers, logs: Path, name: str, *options: str) -> tuple[float, str]:
    dsn = servers.new_database()
    try:
        migrate_ledger(dsn)
        with running(module(name, "--dsn", dsn, *options), logs / name) as process:
            ended = process.wait(TIMEOUT_S)
        if ended.code:
            return 0.0, f"exit {ended.code}: {ended.error[-300:]}"
        return json.loads(ended.output)["seconds"], _wrong(dsn)
    finally:
        servers.drop_database(dsn)


def _wrong(dsn: str) -> str:
    """What is wrong with the rows that a run has left."""
    text = (
        "SELECT count(*) FILTER (WHERE status <> 'succeeded'), (SELECT count(*) FROM"
        " refold_ledger.workflow_result) FROM refold_ledger.workflow_action"
    )
    with psycopg.connect(dsn) as connection:
        row = connection.execute(text.encode()).fetchone()
    return "" if row == (0, 0) else f"{row} rows are not settled, or not forgotten"


def work(ledger: Ledger, count: int) -> float:
    """Plans, begins and settles so many actions; returns the seconds that it took."""
    batches = [list(_intents(first, min(first + BATCH, count))) for first in range(0, count, BATCH)]
    published: list[str] = []
    began = time.perf_counter()
    for intents in batches:
        end = intents[-1].offset + 1
        planned = ledger.plan(intents, [Place("bench.w2.commands", 0, "topic", end)])
        ended = [_ended(key, epoch) for key, epoch in planned.claimed.items()]
        ledger.settle(ended, published=published)
        published = [each.event_id for each in ended]
    ledger.published(published)
    return time.perf_counter() - began


def _intents(first: int, last: int) -> Iterator[Intent]:
    for number in range(first, last):
        instance, step = f"w2-{number:07d}", number % w2_wire.STEPS + 1
        source = w2_wire.EXECUTOR_SOURCE
        key = w2_wire.command_key(instance, f"s{step}", "Do", source, w2_wire.answer_id(instance))
        value = {**w2_wire.begun(number), "step": step}
        yield Intent(
            key=key, tenant=wire.TENANT, workflow="w2", instance=instance, state=f"s{step}",
            action="Do", direction="forward", target="w2", target_system="w2", truth="by_key",
            type="Do", request=wire.encode(w2_wire.DO, value), attempt=1,
            reply_to="bench.w2.events", trace="", partition=0, offset=number, lease_s=15.0,
        )  # fmt: skip


def _ended(key: str, epoch: int) -> Ended:
    value = wire.encode(w2_wire.DID, {"receipt": "receipt-item-000", "step": 1})
    return Ended(
        key=key, epoch=epoch, status=Status.SUCCEEDED, outcome=Outcome.SUCCEEDED, type="Did",
        value=value, event_id=derived_id("result", key, Outcome.SUCCEEDED),
    )  # fmt: skip


def _portable(value: Any) -> Any:
    """A packed array as the type of its elements' array and its bytes; other values as they are."""
    return {"array": value.array, "data": bytes(value)} if isinstance(value, Packed) else value


@contextmanager
def _seen() -> Iterator[list[tuple[Any, ...]]]:
    """Every statement that psycopg executes meanwhile."""
    seen: list[tuple[Any, ...]] = []
    real = psycopg.Connection.execute

    def execute(
        connection: Any,
        query: Any,
        params: Any = None,
        *,
        prepare: Any = None,
        binary: bool = False,
    ) -> Any:
        portable = params
        if isinstance(params, dict):
            portable = {name: _portable(each) for name, each in params.items()}
        seen.append((query, portable, prepare, binary))
        return real(connection, query, params, prepare=prepare, binary=binary)

    psycopg.Connection.execute = execute  # type: ignore[method-assign, assignment]
    try:
        yield seen
    finally:
        psycopg.Connection.execute = real  # type: ignore[method-assign]


def main() -> None:
    """Runs as the command line says; prints one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--record", type=Path, help="write what was executed")
    options = parser.parse_args()
    ledger = Ledger(options.dsn, "bench")
    if options.record:
        with _seen() as seen:
            seconds = work(ledger, options.count)
        options.record.write_bytes(msgspec.msgpack.encode(seen))
    else:
        seconds = work(ledger, options.count)
    ledger.close()
    print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
