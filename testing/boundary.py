"""Ends or pauses the process before or after any outside call: the crash matrix's seam.

Law of this module: wraps the ports (`Clients`, `Store`) that production code is given; production
code knows nothing of it. A plan names one call by port and method, its n-th time, and the side.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

Ports = tuple[Any, Any]


class Plan(msgspec.Struct, frozen=True):
    """Where to end: `side` is before or after, `how` is kill or pause."""

    call: str
    nth: int
    side: str
    how: str
    when: str = ""
    """Path of a file: act only once it exists; empty: at once."""

    def is_due(self, times: int) -> bool:
        """Whether the call that is made for the `times`-th time is the planned one."""
        return times >= self.nth and (not self.when or Path(self.when).exists())


class Seam:
    """Counts the calls of one process and acts at the planned one."""

    def __init__(self, plan: Plan | None) -> None:
        self._plan = plan
        self._lock = Lock()
        self._times = 0
        self._acted = False

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, with the planned end before or after it."""
        plan = self._plan
        if plan is None or plan.call != name:
            return call

        def planned(*args: Any, **named: Any) -> Any:
            now = self._claims(plan)
            if now and plan.side == "before":
                self._act(plan)
            answer = call(*args, **named)
            if now and plan.side == "after":
                self._act(plan)
            return answer

        return planned

    def _claims(self, plan: Plan) -> bool:
        """Whether this call is the planned one; of two threads only the first is."""
        with self._lock:
            self._times += 1
            now = not self._acted and plan.is_due(self._times)
            self._acted = self._acted or now
        return now

    def _act(self, plan: Plan) -> None:
        sys.stderr.write(f"boundary reached: {plan}\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL if plan.how == "kill" else signal.SIGSTOP)


class Wrapped:
    """An object whose methods pass the seam under `<port>.<method>`."""

    def __init__(self, inner: Any, port: str, seam: Seam) -> None:
        self._inner = inner
        self._port = port
        self._seam = seam
        self._calls: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        found = self._calls.get(name)
        if found is None:
            inner = getattr(self._inner, name)
            found = self._seam.around(f"{self._port}.{name}", inner) if callable(inner) else inner
            self._calls[name] = found
        return found


class WrappedClients:
    """Kafka clients whose every call passes the seam."""

    def __init__(self, clients: Any, seam: Seam) -> None:
        self._clients = clients
        self._seam = seam

    def consumer(self) -> Any:
        """The group member, behind the seam."""
        return Wrapped(self._clients.consumer(), "consumer", self._seam)

    def reader(self) -> Any:
        """A group-less reader, as it is."""
        return self._clients.reader()

    def producer(self, transactional_id: str) -> Any:
        """A producer, behind the seam."""
        return Wrapped(self._clients.producer(transactional_id), "producer", self._seam)

    def registry(self) -> Any:
        """The schema registry, as it is."""
        return self._clients.registry()

    def publisher(self) -> Any:
        """The producer of schemas, as it is."""
        return self._clients.publisher()

    def admin(self) -> Any:
        """The admin client, as it is."""
        return self._clients.admin()


def wrap(plan: Plan | None) -> Callable[[Any, Any], Ports]:
    """What `build_worker` takes as `wrap`."""
    seam = Seam(plan)

    def wrapped(clients: Any, store: Any) -> Ports:
        return WrappedClients(clients, seam), Wrapped(store, "store", seam)

    return wrapped
