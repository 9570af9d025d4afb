"""The claimer: planned rows that could not begin when they came, begun when there is room.

Law of this module: slots first, then rows (P32); nothing is claimed after a stop. While rows of
this process wait, new ones queue behind them: the log's order is the order of beginning.
"""

from collections.abc import Callable, Iterable, Mapping
from threading import Event, Lock
from time import monotonic
from typing import Any, Final

import structlog

from refold.executors.calls import End, failed
from refold.executors.circuit import Sign
from refold.executors.dispatch import Started, lease_of
from refold.executors.executor import Action
from refold.executors.lanes import Lanes
from refold.executors.ledger import Ledger
from refold.executors.model import Claimed, Wanted
from refold.executors.reading import Schemas
from refold.schemas.errors import RecordError, ServerError

_LOG = structlog.get_logger("refold.claimer")
MOST: Final = 250
"""Rows of one action in one claim."""
LOOK_S: Final = 1.0
"""What another process has left is looked for at least that often."""


class Claimer:
    """Claims planned rows for free slots.

    Args:
        target: Whose rows.
        actions: By command type.
        ledger: Where they are.
        lanes: Gives the slots.
        schemas: Decodes what was claimed.
        relay: Publishes what was answered in claiming.
        start: Begins calls.
        ended: Gets the end of rows that cannot be called.

    Contract: `run` on one thread; the others from any.
    """

    def __init__(
        self,
        target: str,
        actions: Mapping[str, Action],
        ledger: Ledger,
        lanes: Lanes,
        schemas: Schemas,
        relay: Callable[[], None],
        start: Callable[[Iterable[Started]], None],
        ended: Callable[[End], None],
    ) -> None:
        self._target = target
        self._actions = actions
        self._ledger = ledger
        self._lanes = lanes
        self._schemas = schemas
        self._relay = relay
        self._start = start
        self._ended = ended
        self._stopping = Event()
        self._woken = Event()
        self._lock = Lock()
        self._undoing = False
        self.waiting = 0
        """Rows that this process has planned and that have not begun, as far as it knows."""
        self.planned = 0
        """Rows of all processes that are planned, as of the last scan: each end may free some."""

    def wait_for(self, rows: int, *, undoing: bool = False) -> None:
        """So many rows were planned and wait.

        Args:
            rows: How many.
            undoing: Some of them undo others: where there is nothing to undo, claiming says so.
        """
        with self._lock:
            self.waiting += rows
            self._undoing |= undoing
        self._woken.set()

    def wake(self) -> None:
        """A slot is free, or a row that others wait for has ended."""
        if self.waiting or self.planned:
            self._woken.set()

    def stop(self) -> None:
        """Claim nothing any more."""
        self._stopping.set()
        self._woken.set()

    def run(self) -> None:
        """Claim until stopped."""
        while not self._stopping.is_set():
            found = self._woken.wait(LOOK_S)
            self._woken.clear()
            if not self._stopping.is_set() and self.once() == 0 and not found:
                with self._lock:
                    self.waiting = 0  # others have begun them, or nobody can yet: looked for again

    def once(self) -> int:
        """Claim what there is room for; gives how many rows were claimed."""
        slots = self._lanes.take_all(MOST)
        if not slots:
            return 0
        wanted = [
            Wanted(name, count, lease_of(self._actions[name])) for name, count in slots.items()
        ]
        asked_s = monotonic()
        try:
            claimed = self._ledger.claim(self._target, wanted)
        except ServerError as away:
            self._give_back(slots)
            _LOG.warning("planned actions are not claimed yet", error=str(away))
            return 0
        if self._undoing:
            self._undoing = False
            self._relay()
        for each in claimed:
            slots[each.type] -= 1
        self._give_back(slots)
        with self._lock:
            self.waiting = max(0, self.waiting - len(claimed))
        if len(claimed) >= MOST:
            self._woken.set()
        self.begin(claimed, asked_s)
        return len(claimed)

    def begin(self, claimed: Iterable[Claimed], claimed_s: float) -> None:
        """Begin rows that are claimed and hold a slot.

        Args:
            claimed: The rows.
            claimed_s: Monotonic seconds directly before the claim.
        """
        started = []
        for each in claimed:
            command = self._command(each)
            if command is not None:
                started.append(Started(each, command, claimed_s))
        self._start(started)

    def _command(self, claimed: Claimed) -> Any | None:
        try:
            return self._schemas.decode(self._actions[claimed.type], claimed.request)
        except RecordError as error:
            end = failed(claimed, str(error.code), error.what, retry=False)
        except ServerError as away:  # certainly not sent: the row is planned again
            _LOG.warning("a command cannot be read yet", key=claimed.key, error=str(away))
            end = failed(claimed, str(away.code), away.what)
        self._lanes.untake(claimed.type)
        self._ended(End(claimed, end, Sign.NOTHING))
        return None

    def _give_back(self, slots: Mapping[str, int]) -> None:
        for name, count in slots.items():
            if count:
                self._lanes.untake(name, count)
