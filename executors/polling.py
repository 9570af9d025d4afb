"""The poller: asks, before the deadline, about what the other side has accepted.

Law of this module: only "done" counts; everything else means "not yet" and changes nothing, and
so does a callback that comes first. A row is asked about by one process at a time, for whoever
asks holds it; so many questions at a time, each later than the one before.
"""

from collections.abc import Callable, Mapping
from threading import Lock
from time import monotonic
from typing import Final

import structlog

from refold.executors.calls import End
from refold.executors.circuit import Circuit
from refold.executors.dispatch import Dispatch
from refold.executors.executor import Action
from refold.executors.ledger import Ledger
from refold.executors.model import Claimed, Status
from refold.executors.reading import Schemas
from refold.executors.truth import Queryable
from refold.schemas.errors import RecordError, ServerError

_LOG = structlog.get_logger("refold.poller")
POLL_MOST: Final = 32
"""Questions about what was accepted, of one process at a time."""
HOLD_MARGIN_S: Final = 5.0
"""A row is held for the question's deadline and this: for its way to the other side and back."""


class Poller:
    """Asks about accepted actions.

    Args:
        target: Whose rows.
        actions: By command type.
        ledger: Where they are.
        schemas: Decodes the commands.
        dispatch: Asks the other side.
        circuits: Of the questions, by system.
        learn: Told what each answer says about the system.
        ended: Gets what is done.

    Contract: `once` on the scanner's thread.
    """

    def __init__(
        self,
        target: str,
        actions: Mapping[str, Action],
        ledger: Ledger,
        schemas: Schemas,
        dispatch: Dispatch,
        circuits: Mapping[str, Circuit],
        learn: Callable[[End], None],
        ended: Callable[[End], None],
    ) -> None:
        self._target = target
        self._polled = [
            (action, action.truth.poll_s)
            for action in actions.values()
            if isinstance(action.truth, Queryable) and action.truth.poll_s is not None
        ]
        self._ledger = ledger
        self._schemas = schemas
        self._dispatch = dispatch
        self._circuits = circuits
        self._learn = learn
        self._ended = ended
        self._lock = Lock()
        self._asking: set[str] = set()
        self._not_yet: list[tuple[Claimed, float]] = []
        """Rows that wait, each until when on the monotonic clock."""
        self.asked = 0
        """Questions so far."""

    def once(self) -> None:
        """Note what is not done yet, and ask about what is due.

        Raises:
            ServerError: The ledger is away.
        """
        if not self._polled:
            return
        self._note()
        for action, poll_s in self._polled:
            self._ask(action, poll_s)

    def _note(self) -> None:
        with self._lock:
            told, self._not_yet = self._not_yet, []
        if told:
            now_s = monotonic()
            self._ledger.not_yet([(each, max(0.0, at_s - now_s)) for each, at_s in told])

    def _ask(self, action: Action, poll_s: float) -> None:
        circuit = self._circuits[action.system]
        with self._lock:
            room = min(POLL_MOST - len(self._asking), circuit.room())
        if room <= 0:
            return
        hold_s = action.deadline_s + HOLD_MARGIN_S
        for each in self._ledger.poll(self._target, action.codec.name, room, poll_s, hold_s):
            self._begin(each, action, circuit)

    def _begin(self, claimed: Claimed, action: Action, circuit: Circuit) -> None:
        try:
            command = self._schemas.decode(action, claimed.request)
        except (RecordError, ServerError) as error:
            _LOG.error("an accepted action cannot be read", key=claimed.key, error=str(error))
            return
        with self._lock:
            if claimed.key in self._asking or not circuit.begin():
                return
            self._asking.add(claimed.key)
        self.asked += 1
        self._dispatch.ask(claimed, command, self._answered)

    def _answered(self, end: End) -> None:
        self._learn(end)
        with self._lock:
            self._asking.discard(end.claimed.key)
            if end.ended.status is Status.IN_FLIGHT:
                self._not_yet.append((end.claimed, monotonic() + end.ended.retry_after_s))
                return
        self._ended(end)
