"""/livez, /readyz and /metrics of a process, from the last published status.

Law of this module: reads a `Told` and nothing else (P1); binds to the address that it is given,
answers GET only, and shows no payload and no secret.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from socketserver import ThreadingMixIn
from threading import Thread
from time import monotonic
from typing import Any, Final, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from refold.processors.health import Health, PartitionStatus
from refold.processors.lateness import BUCKETS_S, Lateness
from refold.processors.partition import Phase
from refold.schemas.errors import Code, UsageError

CONTENT: Final = "text/plain; version=0.0.4; charset=utf-8"
JSON: Final = "application/json"
SLOW_S: Final = 5.0
"""Longest wait for a client that has connected and says nothing."""
_BY_PARTITION: Final = ("workflow", "partition")

Answer = tuple[str, str, bytes]


class StatusCollector(Collector):
    """The published status as metrics; names are in docs/metrics.md."""

    def __init__(self, health: Health) -> None:
        self._health = health

    def collect(self) -> Iterator[Metric]:
        """Everything, as of the last turn of the loop."""
        status = self._health.status
        yield _gauge(
            "refold_loop_age_seconds", "Since the loop last turned.", monotonic() - status.at_s
        )
        yield _gauge("refold_joined", "1 while the group counts on this worker.", status.joined)
        yield _gauge(
            "refold_takeover_seconds",
            "Predicted replay if this worker died now.",
            status.takeover_s,
        )
        yield _gauge(
            "refold_unchecked",
            "1 while the checks of what is owned cannot be made.",
            bool(status.unchecked),
        )
        yield _counter("refold_transactions", "Kafka transactions committed.", status.transactions)
        yield _counter("refold_aborts", "Kafka transactions aborted.", status.aborts)
        yield from _partitions(status.partitions)
        yield from _timers(status.partitions)
        yield _lateness(status.lateness)


def _partitions(partitions: Iterable[PartitionStatus]) -> Iterator[Metric]:
    held = list(partitions)
    records = CounterMetricFamily(
        "refold_records",
        "Records by first verdict; resolutions as resolved.<verdict>.",
        labels=(*_BY_PARTITION, "verdict"),
    )
    for each in held:
        for verdict, count in each.counts.items():
            records.add_metric([each.workflow, str(each.partition), verdict], count)
    yield records
    yield _each(
        held,
        "refold_lag_records",
        "Offsets behind the end, control records too.",
        lambda each: each.lag,
    )
    yield _each(
        held, "refold_unsaved_records", "Rows and records not saved.", lambda each: each.unsaved
    )
    yield _each(held, "refold_instances", "Instances in memory.", lambda each: each.instances)
    yield _each(
        held,
        "refold_marker_age_records",
        "Records folded since the marker.",
        lambda each: each.position - each.marker,
    )
    yield _each(
        held,
        "refold_fenced",
        "1 while a person or a check must free the partition.",
        lambda each: int(each.phase == Phase.FENCED),
    )
    yield _each(
        [each for each in held if each.parked is not None],
        "refold_parked_instances",
        "Instances that wait for a person.",
        lambda each: each.parked or 0,
    )
    alarms = GaugeMetricFamily(
        "refold_alarm",
        "1 where the take-over met something and went on: its code.",
        labels=(*_BY_PARTITION, "code"),
    )
    for each in held:
        if each.alarm:
            alarms.add_metric([each.workflow, str(each.partition), each.alarm], 1)
    yield alarms


def _timers(held: Sequence[PartitionStatus]) -> Iterator[Metric]:
    yield _each(
        held,
        "refold_timers",
        "Instances with a timer due within the horizon.",
        lambda each: each.timers,
    )
    yield _each(
        held, "refold_timers_overdue", "Of them those due by now.", lambda each: each.overdue
    )
    yield _each(
        held,
        "refold_timers_overdue_seconds",
        "Since when the first of them is due.",
        lambda each: each.overdue_s,
    )


def _lateness(held: Iterable[Lateness]) -> Metric:
    family = HistogramMetricFamily(
        "refold_timer_lateness_seconds",
        "From when a timer was due until its event was committed.",
        labels=("workflow",),
    )
    for each in held:
        bounds = [*map(floatToGoString, BUCKETS_S), "+Inf"]
        buckets = list(zip(bounds, accumulate(each.counts), strict=True))
        family.add_metric([each.workflow], buckets, each.sum_s)
    return family


class Condition(Protocol):
    """What a process says of itself at one moment; encoded as JSON by /status."""

    @property
    def worker(self) -> str:
        """Its name."""
        ...

    def troubles(self, now_s: float) -> list[str]:
        """Why it is not ready, a sentence for each reason; empty when it is."""
        ...

    def age(self, now_s: float) -> list[str]:
        """Why it is not alive; empty when it is."""
        ...


class Told(Protocol):
    """Where the last condition of a process is found."""

    @property
    def status(self) -> Condition:
        """The last one."""
        ...


class Endpoint:
    """Serves one process's health on its own thread.

    Args:
        health: What the process says of itself.
        host: Address to bind; keep it inside the cluster.
        port: 1 to 65535; 0 takes a free one.
        collector: Its metrics; a worker's unless given.

    Raises:
        UsageError: BAD_SETTING, the address cannot be bound.
    """

    def __init__(
        self, health: Told, host: str, port: int, collector: Collector | None = None
    ) -> None:
        self._health = health
        self._registry = CollectorRegistry(auto_describe=False)
        if collector is not None:
            self._registry.register(collector)
        elif isinstance(health, Health):
            self._registry.register(StatusCollector(health))
        try:
            self._server = make_server(host, port, self._app, _Server, _Quiet)
        except (OSError, OverflowError) as error:
            raise UsageError(
                Code.BAD_SETTING,
                f"The health endpoint cannot listen on {host}:{port}: {error}.",
                "Set http_port to a free port, or to -1 for none.",
            ) from error
        self.port: int = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, name="endpoint", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()

    def _app(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        status, content, body = self._answer(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        start_response(status, [("Content-Type", content), ("Content-Length", str(len(body)))])
        return [body]

    def _answer(self, method: str, path: str) -> Answer:
        if method != "GET":
            return "405 Method Not Allowed", CONTENT, b"GET only\n"
        if path == "/metrics":
            return "200 OK", CONTENT, generate_latest(self._registry)
        status = self._health.status
        if path in {"/readyz", "/livez"}:
            late = status.age(monotonic())
            troubles = status.troubles(monotonic()) if path == "/readyz" else late
            body = {"worker": status.worker, "ready": not troubles, "reasons": troubles}
            line = "503 Service Unavailable" if troubles else "200 OK"
            return line, JSON, msgspec.json.encode(body)
        if path == "/status":
            return "200 OK", JSON, msgspec.json.encode(status)
        return "404 Not Found", CONTENT, b"/livez /readyz /status /metrics\n"


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each request: who connects and says nothing must not hold up the probes."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: the client went away or was too slow."""


class _Quiet(WSGIRequestHandler):
    """No line on stderr for every probe."""

    timeout = SLOW_S

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _each(
    partitions: Iterable[PartitionStatus],
    name: str,
    text: str,
    value: Callable[[PartitionStatus], float],
) -> Metric:
    family = GaugeMetricFamily(name, text, labels=_BY_PARTITION)
    for each in partitions:
        family.add_metric([each.workflow, str(each.partition)], value(each))
    return family
