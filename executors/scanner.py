"""The scanner: finds what may have happened and clears it up, or shows it.

Law of this module: runs in every process, for rows of all of them. A run-out lease means unknown;
an unknown outcome is cleared up as its action declares, and by nothing else; what nobody can be
asked about stays and is shown. What is accepted is asked about where that is declared
(`executors.polling`). A scanner that stands still is an alarm.
"""

from collections.abc import Callable, Mapping, Sequence
from threading import Event, Lock
from time import monotonic
from typing import Final

import structlog

from refold.executors.answers import Answers
from refold.executors.calls import End, assumed
from refold.executors.circuit import Circuit, Sign, State
from refold.executors.claiming import Claimer
from refold.executors.dispatch import Dispatch, lease_of
from refold.executors.executor import Action
from refold.executors.lanes import Lanes
from refold.executors.ledger import Ledger
from refold.executors.model import Claimed, Standing, Wanted
from refold.executors.polling import Poller
from refold.executors.reading import Schemas
from refold.executors.truth import ByKey, Neither, Queryable, Then
from refold.schemas.errors import RecordError, ServerError

_LOG = structlog.get_logger("refold.scanner")
SCAN_S: Final = 1.0
BUSY_S: Final = 0.2
"""Pause while something is unknown: it is to be settled soon after it can be."""
ASK_MOST: Final = 64
"""Questions of one action at a time."""
ASK_LIMIT: Final = 3
ASK_PAUSE_S: Final = 0.5
ASK_PAUSE_MOST_S: Final = 1.0
"""A system that does not answer questions is asked about one action so often."""
PRUNE_S: Final = 600.0
PRUNE_MOST: Final = 10_000
TOLD_S: Final = 60.0
"""What waits for a person is told again after this."""


class Scanner:
    """Clears up unknown outcomes.

    Args:
        target: Whose rows.
        actions: By command type.
        ledger: Where they are.
        lanes: Slots of calls that are repeated.
        schemas: Decodes the commands.
        dispatch: Asks the other side.
        claimer: Begins calls that are repeated.
        answers: Publishes what became unknown.
        ended: Gets what the other side said.
        stuck_after_s: So old, an unsettled action is stuck: told, and shown as such.
        horizon_s: So long after their end keys are remembered.

    Contract: `run` on one thread.
    """

    def __init__(
        self,
        target: str,
        actions: Mapping[str, Action],
        ledger: Ledger,
        lanes: Lanes,
        schemas: Schemas,
        dispatch: Dispatch,
        claimer: Claimer,
        answers: Answers,
        ended: Callable[[End], None],
        stuck_after_s: float,
        horizon_s: float,
    ) -> None:
        self._horizon_s = horizon_s
        self._target = target
        self._actions = actions
        self._ledger = ledger
        self._lanes = lanes
        self._schemas = schemas
        self._dispatch = dispatch
        self._claimer = claimer
        self._answers = answers
        self._ended = ended
        self._stuck_after_s = stuck_after_s
        self._stopping = Event()
        self._woken = Event()
        self._lock = Lock()
        self._asking: set[str] = set()
        """Keys that the other side is being asked about."""
        self._circuits = {
            each.system: Circuit(ASK_LIMIT, ASK_PAUSE_S, ASK_PAUSE_MOST_S)
            for each in actions.values()
            if isinstance(each.truth, Queryable)
        }
        self._eager: set[str] = set()
        """Systems that answer again: everything is asked at once, whatever its pause."""
        self._down: set[str] = set()
        """Actions whose system was down at the last scan."""
        self.poller = Poller(
            target, actions, ledger, schemas, dispatch, self._circuits, self._learn, ended
        )
        self._told_s = 0.0
        self._prune_s = monotonic() + PRUNE_S
        self.scanned_s = monotonic()
        """When the last scan ended well."""
        self.standing = Standing()
        self.run_out = 0

    def wake(self) -> None:
        """Something became unknown."""
        self._woken.set()

    def stop(self) -> None:
        """Scan no more."""
        self._stopping.set()
        self._woken.set()

    def run(self) -> None:
        """Scan until stopped."""
        while not self._stopping.is_set():
            try:
                self.once()
            except ServerError as away:
                _LOG.warning("not scanned", error=str(away))
            unsettled = self.standing.unknown and self._clearable
            self._woken.wait(BUSY_S if unsettled else SCAN_S)
            self._woken.clear()

    def once(self) -> None:
        """One scan.

        Raises:
            ServerError: The ledger is away.
        """
        self._renew()
        lost = self._ledger.run_out(self._target)
        for each in lost:
            _LOG.error("unknown: the process that called did not come back", key=each.key)
        self.run_out += len(lost)
        self._answers.publish(lost)
        self.standing = self._ledger.standing(self._target, self._stuck_after_s)
        self._claimer.planned = self.standing.planned
        if self.standing.unknown:
            self._ask()
            self._assume()
            self._repeat()
        self.poller.once()
        self._tell()
        self._prune()
        self._ledger.scanned(self._target)
        self.scanned_s = monotonic()

    @property
    def _clearable(self) -> bool:
        return any(isinstance(each.truth, Queryable | ByKey) for each in self._actions.values())

    def _renew(self) -> None:
        """Long calls hold on to their rows (P31)."""
        due = self._dispatch.renewable()
        if due:
            asked_s = monotonic()
            kept = self._ledger.renew(due)
            for claimed, _ in due:
                if claimed.key in kept:
                    self._dispatch.renewed(claimed, asked_s)

    def _ask(self) -> None:
        for name, action in self._actions.items():
            if not isinstance(action.truth, Queryable):
                continue
            circuit = self._circuits[action.system]
            with self._lock:
                room = min(ASK_MOST - len(self._asking), circuit.room())
            if room <= 0:
                continue
            again = action.system in self._eager
            # One question tries whether the system answers again, whatever that row's pause.
            eager = again or circuit.state is not State.CLOSED
            found = self._ledger.ask(self._target, [name], room, action.deadline_s, eager=eager)
            if again and len(found) < room:
                self._eager.discard(action.system)
            for each in found:
                self._begin(each, action, circuit)

    def _begin(self, claimed: Claimed, action: Action, circuit: Circuit) -> None:
        with self._lock:
            if claimed.key in self._asking or not circuit.begin():
                return
            self._asking.add(claimed.key)
        try:
            command = self._schemas.decode(action, claimed.request)
        except (RecordError, ServerError) as error:
            _LOG.error("an unknown action cannot be read", key=claimed.key, error=str(error))
            circuit.withdraw()
            self._asking.discard(claimed.key)
            return
        self._dispatch.ask(claimed, command, self._answered)

    def _answered(self, end: End) -> None:
        """The other side has said something, or nothing."""
        with self._lock:
            self._asking.discard(end.claimed.key)
        self._learn(end)
        self._ended(end)

    def _learn(self, end: End) -> None:
        """What an answer to a question says about who was asked."""
        system = self._actions[end.claimed.type].system
        circuit = self._circuits[system]
        if end.sign is Sign.DOWN:
            circuit.fail(end.ended.reason)
        elif end.sign is Sign.NOTHING:
            circuit.withdraw()
        elif circuit.succeed():
            self._eager.add(system)
            self._woken.set()

    def _assume(self) -> None:
        """What is declared to count as done counts as done."""
        names = [
            name
            for name, each in self._actions.items()
            if isinstance(each.truth, Neither) and each.truth.then is Then.ASSUME_DONE
        ]
        for each in self._ledger.ask(self._target, names, ASK_MOST, SCAN_S) if names else ():
            self._ended(End(each, assumed(each), Sign.NOTHING))

    def _repeat(self) -> None:
        """Call again where the same key makes no second effect, or where that is accepted."""
        for name, action in self._actions.items():
            horizon_s = _horizon_s(action)
            if horizon_s is None:
                continue
            down = self._lanes.down(name)
            eager = down or name in self._down  # it answers again: everything is due
            (self._down.add if down else self._down.discard)(name)
            taken = 0
            while taken < ASK_MOST and self._lanes.take(name):
                taken += 1
            if not taken:
                continue
            wanted = Wanted(name, taken, lease_of(action))
            claimed_s = monotonic()
            found: Sequence[Claimed] = ()
            try:
                found = self._ledger.recall(self._target, wanted, horizon_s, eager=eager)
            finally:
                if taken > len(found):
                    self._lanes.untake(name, taken - len(found))
            self._claimer.begin(found, claimed_s)

    def _prune(self) -> None:
        """Once in a while, forget keys of long ago, some at a time."""
        if monotonic() > self._prune_s:
            gone = self._ledger.prune(self._horizon_s, PRUNE_MOST)
            self._prune_s = monotonic() + (PRUNE_S if gone < PRUNE_MOST else 0.0)
            if gone:
                _LOG.info("keys of long ago are forgotten", actions=gone)

    def _tell(self) -> None:
        """Say once in a while what waits for a person."""
        if not self.standing.stuck or monotonic() < self._told_s:
            return
        self._told_s = monotonic() + TOLD_S
        _LOG.error(
            "actions are stuck: see `refold ledger list --state unknown`",
            stuck=self.standing.stuck,
            oldest_unknown_s=round(self.standing.oldest_unknown_s),
        )


def _horizon_s(action: Action) -> float | None:
    """How long after its first call an unknown action may be called again; None: never."""
    truth = action.truth
    if isinstance(truth, ByKey):
        return truth.remembers_s - action.deadline_s
    if isinstance(truth, Neither) and truth.then is Then.REPEAT:
        return float("inf")
    return None
