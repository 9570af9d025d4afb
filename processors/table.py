"""The compiled table: what each state does with each event type, ready to be looked up.

Law of this module: frozen rows; `definition` makes them, the fold reads them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from refold.processors.spec import Function, Invariant, LatePolicy, Retry
from refold.schemas.codec import Codec


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the table: what an event does in a state when its guard holds."""

    id: str
    """`<from>/<type>/<n>`, n from 0 in declared order."""
    source: str
    event: str
    target: str
    enters: bool
    """False: it stays in the state and sends nothing."""
    guard: Function | None
    reducer: Function | None
    guard_steps: bool
    """True when the guard takes the third parameter; likewise the next."""
    reducer_steps: bool
    sends: "tuple[Sending, ...]"
    """What entering the target sends."""
    invariants: tuple[Invariant, ...]
    """What must hold in the target."""
    needs_step: bool
    tends: bool = False
    """True where entering the target may change actions or timers."""
    renews: bool = False


@dataclass(frozen=True, slots=True)
class Sending:
    """A compiled `send` of a state."""

    send: Function
    takes_step: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """What one state does with one event type; exactly one of the four is set."""

    transitions: tuple[Transition, ...] = ()
    deferred: bool = False
    already: bool = False
    late: LatePolicy | None = None


@dataclass(frozen=True, slots=True)
class CommandType:
    """A command type as the graph declares it."""

    name: str
    target: str
    action: str
    each: str | None
    codec: Codec[Any]
    encode: Callable[[Any], bytes]
    tracked: bool = False
    """True: its action is open until it is answered."""
    retry: Retry | None = None
    compensate: Function | None = None
    undo_retry: Retry | None = None
    """When it is tried again where it undoes another; None: it undoes nothing."""
    child: bool = False
    """True: it is the event that starts an instance of the workflow `target`."""
