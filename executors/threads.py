"""Threads for handlers that block: as many as there are calls at a time, kept for the next ones.

Law of this module: they are daemons. A handler that never returns keeps its slot and its thread;
it must not keep the process, whose successor clears up what it left.
"""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread

Work = Callable[[], None]


class Threads:
    """Runs work at once, each piece on a thread of its own; from any thread.

    Contract: the work does not raise; how much there is at a time is bounded by its givers.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: SimpleQueue[Work] = SimpleQueue()
        self._lock = Lock()
        self._idle = 0

    def run(self, work: Work) -> None:
        """Begin a piece of work."""
        with self._lock:
            spare = self._idle > 0
            self._idle -= spare
        self._work.put(work)
        if not spare:
            Thread(target=self._serve, name=self._name, daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._work.get()()
            with self._lock:
                self._idle += 1
