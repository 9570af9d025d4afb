"""The recorder: how calls ended goes into the ledger, and then out as events.

Law of this module: one thread; everything that ended meanwhile is one transaction. What the
ledger does not take is kept and offered again: a lease that runs out meanwhile makes the row
unknown, and the end that is held here settles it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue
from threading import Event
from time import sleep
from typing import Final

import structlog

from refold.executors.answers import Answers, result_of
from refold.executors.calls import End, unknown
from refold.executors.circuit import Sign
from refold.executors.ledger import LINGER_S, Ledger
from refold.executors.model import Ended
from refold.processors.health import BACK
from refold.schemas.errors import ServerError
from refold.snapshots.faults import unfit

_LOG = structlog.get_logger("refold.recorder")
MOST: Final = 500
PAUSE_S: Final = 0.5
TURN_S: Final = 0.5


class Recorder:
    """Records the ends of calls.

    Args:
        ledger: Where.
        answers: Publishes what was recorded.
        settled: Called after each transaction: rows that waited may be claimed.

    Contract: `run` on one thread; `put` and `stop` from any.
    """

    def __init__(
        self, ledger: Ledger, answers: Answers, settled: Callable[[list[End]], None]
    ) -> None:
        self._ledger = ledger
        self._answers = answers
        self._settled = settled
        self._ends: SimpleQueue[End | None] = SimpleQueue()
        self._stopping = Event()
        self._company = False
        """The last end did not come alone."""
        self.backlog = 0
        """Ends that the ledger has not taken yet."""
        self.contradictions = 0
        self.ends: Counter[str] = Counter()
        """Ends that were recorded, as `<action>/<status>`."""
        self.away = ""
        """Why it does not take them; empty when it does."""

    def put(self, end: End) -> None:
        """A call ended."""
        self._ends.put(end)

    def count(self, end: End) -> None:
        """An end was recorded."""
        self.ends[f"{end.claimed.type}/{end.ended.status}"] += 1

    def stop(self) -> None:
        """Record what is there, then end; a ledger that is away is not waited for."""
        self._stopping.set()
        self._ends.put(None)

    def run(self) -> None:
        """Record until stopped."""
        held: list[End] = []
        while True:
            held += self._gather(wait=not held)
            self.backlog = len(held)
            if held and self._record(held):
                held = []
            elif held and not self._stopping.wait(PAUSE_S):
                continue
            elif self._stopping.is_set() and self._ends.empty():
                self._tell_left(held)
                return

    def _gather(self, *, wait: bool) -> list[End]:
        found: list[End] = []
        try:
            first = self._ends.get(timeout=TURN_S) if wait else self._ends.get_nowait()
            found += [first] if first is not None else []
            if self._company and not self._stopping.is_set():
                sleep(LINGER_S)
            while len(found) < MOST:
                each = self._ends.get_nowait()
                found += [each] if each is not None else []
        except Empty:
            pass
        self._company = len(found) > 1
        return found

    def _record(self, ends: list[End]) -> bool:
        """Settle them; False: the ledger is away, all of them are to be offered again."""
        try:
            for several in _apart(ends):
                self._take(several)
        except ServerError as away:
            self._tell_away(away)
            return False
        self._tell_back()
        return True

    def _take(self, several: list[End]) -> None:
        """Settle ends in which no key comes twice; one that is refused holds up no other."""
        try:
            self._settle(several)
        except ServerError as error:
            if not unfit(error):
                raise
            if len(several) > 1:
                for each in several:
                    self._take([each])
                return
            claimed = several[0].claimed
            _LOG.error("an end cannot be recorded: unknown", key=claimed.key, error=str(error))
            reason = f"its end cannot be recorded: {error.what}"
            self._settle([End(claimed, unknown(claimed, reason), Sign.NOTHING)])

    def _settle(self, several: list[End]) -> None:
        gone = self._answers.acknowledged()
        try:
            settled = self._ledger.settle([each.ended for each in several], published=gone)
        except ServerError:
            self._answers.keep(gone)
            raise
        self._tell_contradictions(settled.contradictions)
        self._answers.publish(
            [
                result_of(claimed, ended)
                for claimed, ended, _ in several
                if ended.event_id and ended.key in settled.keys
            ],
            settled.later,
        )
        for each in several:
            self.count(each)
        self._settled(several)

    def _tell_contradictions(self, ends: Sequence[Ended]) -> None:
        for each in ends:
            self.contradictions += 1
            _LOG.error(
                "said too late, or against what stands: kept, and not told",
                key=each.key, attempt=each.attempt, said=each.status, reason=each.reason,
            )  # fmt: skip

    def _tell_away(self, error: ServerError) -> None:
        self.away = str(error.code)
        _LOG.warning("ends of calls are not recorded yet", error=str(error), held=self.backlog)

    def _tell_back(self) -> None:
        if self.away:
            _LOG.info(BACK, code=self.away)
            self.away = ""

    def _tell_left(self, held: list[End]) -> None:
        if held:
            keys = [each.claimed.key for each in held[:10]]
            _LOG.error(
                "ends of calls are not recorded: they are unknown to a successor, who clears them"
                " up", count=len(held), keys=keys,
            )  # fmt: skip


def _apart(ends: Iterable[End]) -> list[list[End]]:
    """Ends in which no key comes twice, in order: one statement settles a key once."""
    rounds: list[dict[str, End]] = []
    for end in ends:
        key = end.claimed.key
        free = next((each for each in rounds if key not in each), None)
        if free is None:
            rounds.append(free := {})
        free[key] = end
    return [list(each.values()) for each in rounds]
