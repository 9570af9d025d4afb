"""Sends events at a fixed rate whatever becomes of them, and notes when each was sent.

Law of this module: an open loop. A send that comes late is noted at the time at which it was due,
so that a stall of the sender is not hidden from the latency (coordinated omission).
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench import workload
from bench.limits import wire


class OpenLoop:
    """One run of the sender: orders are placed at `rate` events a second."""

    def __init__(self, bootstrap: str, topic: str, first: int, rate: float) -> None:
        self.due_ns: dict[str, int] = {}
        """When each order's event was due, in monotonic nanoseconds, by instance id."""
        self._writer = workload.Writer(bootstrap, topic, linger_ms=0)
        self._next = first
        self._gap_ns = int(1e9 / rate)
        self._stop = threading.Event()

    def run(self, count: int | None = None) -> None:
        """Sends until it is stopped or so many are sent; a second run goes on with the numbers."""
        began = time.monotonic_ns()
        sent = 0
        while not self._stop.is_set() and (count is None or sent < count):
            due = began + sent * self._gap_ns
            wait = due - time.monotonic_ns()
            if wait > 0:
                time.sleep(wait / 1e9)
            event = wire.placed(self._next)
            self.due_ns[event.instance] = due
            self._writer.send(event)
            self._writer.serve()
            self._next += 1
            sent += 1
        self._writer.flush()

    def stop(self) -> None:
        """Ends `run` after the present event."""
        self._stop.set()


@contextmanager
def sending(bootstrap: str, topic: str, first: int, rate: float) -> Iterator[OpenLoop]:
    """Sends on a thread for the length of a block."""
    loop = OpenLoop(bootstrap, topic, first, rate)
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.stop()
        thread.join(30)
