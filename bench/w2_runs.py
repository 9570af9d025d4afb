"""One run of W2 each: the bare loop of three scripts, the product, or the same job in DBOS.

Law of this module: the rate is the number of commands that stand on the topic between two moments
at which the number in flight was kept, over the time between them; a run in which a key is
missing, doubled or wrong, or an instance does not end exactly once, has the rate zero.
"""

import json
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote

from confluent_kafka.admin import AdminClient
from psycopg.conninfo import conninfo_to_dict

from bench import readback
from bench.limits import w2_wire
from bench.peers.environment import python_of
from bench.processes import ROOT, Process, module, running
from bench.product import REFOLD, STOP_TIMEOUT_S
from bench.servers import Servers
from refold.executors.migrate import migrate_ledger
from refold.snapshots.migrate import migrate
from refold.topics.specs import create, workflow_specs

PARTITIONS = 4
LOGS = ROOT / "bench" / "results" / "tmp"
RUN_TIMEOUT_S = 240.0
DBOS_LEAD_S = 5.0


class Load(NamedTuple):
    """What the starter does."""

    in_flight: int
    seconds: float = 10.0
    warm_s: float = 2.0
    watch: bool = False


class Steps(NamedTuple):
    """One run."""

    rate: float
    """Steps a second; zero when the result was wrong."""
    p50_ms: float
    """Of a step where the load watched, else of a whole instance."""
    p99_ms: float
    cpu_us: Mapping[str, float]
    """Processor time of each process a step, start-up included, in microseconds."""
    fault: str = ""


@contextmanager
def place(servers: Servers, workflow: str = w2_wire.WORKFLOW) -> Iterator[tuple[str, str]]:
    """Topics of a workflow and an empty database for one run: (namespace, dsn)."""
    namespace = f"{workflow}-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    specs = workflow_specs(namespace, workflow, [workflow, w2_wire.ENDS], PARTITIONS)
    create(admin, specs)
    with ExitStack() as stack:
        dsn = servers.new_database()
        stack.callback(servers.drop_database, dsn)
        stack.callback(_delete, admin, [each.name for each in specs])
        yield namespace, dsn


def _delete(admin: AdminClient, names: list[str]) -> None:
    for done in admin.delete_topics(names).values():
        done.exception(30)


def migrated(servers: Servers, namespace: str, dsn: str) -> dict[str, str]:
    """Makes the tables of worker and executor; returns the variables of their processes."""
    migrate(dsn)
    migrate_ledger(dsn)
    return {
        "REFOLD_NAMESPACE": namespace,
        "REFOLD_KAFKA_BOOTSTRAP": servers.bootstrap,
        "REFOLD_POSTGRES_DSN": dsn,
    }


def of_product(servers: Servers, load: Load) -> Steps:
    """One worker and one executor with their default settings."""
    with place(servers) as (namespace, dsn):
        environment = migrated(servers, namespace, dsn)
        commands = {
            "worker": [REFOLD, "worker", "bench.w2:w2"],
            "executor": [REFOLD, "executor", "bench.w2:executor"],
        }
        return _steps(servers, namespace, load, commands, environment)


def of_limit(servers: Servers, load: Load) -> Steps:
    """The three plain scripts."""
    with place(servers) as (namespace, _):
        where = ("--bootstrap", servers.bootstrap, "--namespace", namespace, "--name")
        commands = {
            each: module(f"bench.limits.w2_{each}", *where, f"{namespace}-{each}")
            for each in ("engine", "executor")
        }
        return _steps(servers, namespace, load, commands, {})


def of_dbos(servers: Servers, load: Load, processes: int = 1) -> Steps:
    """The same job in DBOS on the same PostgreSQL, in one process or in several."""
    try:
        python = python_of("dbos")
    except subprocess.CalledProcessError as error:
        return Steps(0.0, 0.0, 0.0, {}, f"no environment for DBOS: {error}")
    dsn = servers.new_database()
    uri = _uri(dsn)
    with ExitStack() as stack:
        stack.callback(servers.drop_database, dsn)
        begun = []
        for number in range(processes):
            command = [
                *(str(python), str(ROOT / "bench" / "peers" / "dbos_w2.py")),
                *("--name", f"dbos-{number}", "--seconds", str(load.seconds)),
                *("--in-flight", str(load.in_flight // processes)),
                *("--warm", str(load.warm_s)),
            ]
            environment = {"DBOS_SYSTEM_DATABASE_URL": uri, "PYTHONPATH": ""}
            log = LOGS / f"w2-dbos-{number}"
            begun.append(stack.enter_context(running(command, log, environment)))
            if not number:
                time.sleep(DBOS_LEAD_S)  # the first one makes the tables
        ended = [process.wait(RUN_TIMEOUT_S) for process in begun]
    faults = [f"exit {each.code}: {each.error[-300:]}" for each in ended if each.code]
    if faults:
        return Steps(0.0, 0.0, 0.0, {}, faults[0])
    lines = [json.loads(each.output.splitlines()[-1]) for each in ended]
    steps = sum(line["workflows"] for line in lines) * w2_wire.STEPS
    wrong = sum(line["wrong"] for line in lines)
    return Steps(
        0.0 if wrong else sum(line["rate"] for line in lines),
        lines[0]["step_p50_ms"],
        0.0,
        {"dbos": sum(each.cpu_s for each in ended) / steps * 1e6},
        f"{wrong} workflows gave a wrong answer" if wrong else "",
    )


def _uri(dsn: str) -> str:
    """A connection string as an address."""
    parts = {name: quote(str(value), safe="") for name, value in conninfo_to_dict(dsn).items()}
    where = f"{parts.get('host', '127.0.0.1')}:{parts.get('port', '5432')}/{parts['dbname']}"
    secret = f":{parts['password']}" if "password" in parts else ""
    return f"postgresql://{parts.get('user', 'postgres')}{secret}@{where}"


def _steps(
    servers: Servers,
    namespace: str,
    load: Load,
    commands: Mapping[str, list[str]],
    environment: Mapping[str, str],
) -> Steps:
    with ExitStack() as stack:
        processes = {
            name: stack.enter_context(running(command, LOGS / f"w2-{name}", environment))
            for name, command in commands.items()
        }
        line, fault = start(servers.bootstrap, namespace, load)
        cpu_s = {}
        for name, process in processes.items():
            cpu_s[name], stopped = _stop(process)
            fault = fault or (f"{name}: {stopped}" if stopped else "")
    if not line:
        return Steps(0.0, 0.0, 0.0, {}, fault)
    counted, wrong = judge(servers.bootstrap, namespace, line)
    fault = fault or wrong
    seconds = (line["until_ms"] - line["since_ms"]) / 1000
    of = "step" if load.watch else "life"
    steps = line["started"] * w2_wire.STEPS
    return Steps(
        0.0 if fault else counted / seconds,
        line[f"{of}_p50_ms"],
        line[f"{of}_p99_ms"],
        {name: spent / steps * 1e6 for name, spent in cpu_s.items()},
        fault,
    )


def start(bootstrap: str, namespace: str, load: Load) -> tuple[dict[str, Any], str]:
    """Runs the starter; returns its line, empty where there is none, and what went wrong."""
    command = module(
        "bench.limits.w2_starter",
        *("--bootstrap", bootstrap, "--namespace", namespace),
        *("--in-flight", str(load.in_flight), "--seconds", str(load.seconds)),
        *("--warm", str(load.warm_s), *(["--watch"] if load.watch else [])),
    )
    with running(command, LOGS / "w2-starter") as process:
        ended = process.wait(RUN_TIMEOUT_S)
    if ended.code:
        return {}, f"starter: exit {ended.code}: {ended.error[-300:]}"
    line: dict[str, Any] = json.loads(ended.output)
    if line["left"]:
        return line, f"{line['left']} instances of {line['started']} did not end"
    return line, f"{line['twice']} instances ended twice" if line["twice"] else ""


def _stop(process: Process) -> tuple[float, str]:
    if not process.is_running():
        return 0.0, f"ended: {process.last_words()}"
    process.signal(signal.SIGTERM)
    ended = process.wait(STOP_TIMEOUT_S)
    return ended.cpu_s, f"exit {ended.code}: {ended.error[-300:]}" if ended.code else ""


def judge(bootstrap: str, namespace: str, line: Mapping[str, Any]) -> tuple[int, str]:
    """Reads the commands back: how many count, and what is wrong with them."""
    counted = records = 0
    keys: set[bytes] = set()
    for message in readback.messages(bootstrap, w2_wire.commands_topic(namespace)):
        keys.add(dict(message.headers())["idempotency-key"])
        records += 1
        counted += line["since_ms"] <= message.timestamp()[1] < line["until_ms"]
    want = {
        key.encode()
        for number in range(line["started"])
        for key in w2_wire.expected_keys(f"w2-{number:07d}")
    }
    if records != len(want):
        return counted, f"{records} commands, expected {len(want)}"
    return counted, "" if keys == want else f"wrong set of keys ({len(keys)} different)"


SIDES: Mapping[str, Callable[[Servers, Load], Steps]] = {
    "product": of_product,
    "limit": of_limit,
    "dbos": of_dbos,
    "dbos_two": partial(of_dbos, processes=2),
}
