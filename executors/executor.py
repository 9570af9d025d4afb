"""An executor as its author declares it: one handler a command type, each with its truth mode.

Law of this module: declarations only; `refold.executors.service` runs them. What is declared is
checked when it is declared, with an error that names the action and the cure.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from time import monotonic
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from refold.executors.outcome import Accepted, Done, TooLate
from refold.executors.truth import Local, Queryable, Truth, fault_of
from refold.processors.keys import forward_key
from refold.schemas.codec import Codec, codec_of
from refold.schemas.errors import Code, UsageError
from refold.schemas.limits import name_fault

Handler = Callable[..., Any | Done | Accepted | Awaitable[Any | Done | Accepted]]
"""`handler(command, call)`; for a `Local` action `handler(command, call, connection)`."""
H = TypeVar("H", bound=Handler)
E = TypeVar("E")
DEADLINE_S: Final = 10.0
CONCURRENCY: Final = 32
CONCURRENCY_MOST: Final = 10_000


Read = Callable[[Codec[Any], bytes], Any]


def decoded(codec: Codec[Any], value: bytes) -> Any:
    """An event behind its bytes, by the schemas that the process knows."""
    return codec.decode(value)


class Forward(NamedTuple):
    """The event that told that a forward action was done, as the ledger keeps it."""

    type: str
    value: bytes
    read: Read = decoded


class Call:
    """What a handler knows about its call beside the command.

    Attributes:
        key: Idempotency key: give it to the other side.
        attempt: 1 for the first; the workflow counts.
        deadline_s: Seconds in which the call must be over; what is not counts as unknown.
        until_s: When that is, on `time.monotonic()`.
        tenant: Whose instance it is.
        workflow: Who asks.
        instance: For which instance.
        trace: W3C traceparent, empty where there is none.
        repeated: True where an earlier call under this key may have been done already.
        undoes: Key of the action that this one undoes; empty for a forward one.
    """

    __slots__ = (
        "_forward", "attempt", "deadline_s", "instance", "key", "lease_until_s", "repeated",
        "tenant", "trace", "undoes", "until_s", "workflow",
    )  # fmt: skip

    def __init__(
        self,
        key: str,
        attempt: int = 1,
        deadline_s: float = DEADLINE_S,
        until_s: float | None = None,
        tenant: str = "",
        workflow: str = "",
        instance: str = "",
        trace: str = "",
        *,
        repeated: bool = False,
        forward: Forward | None = None,
    ) -> None:
        self.key = key
        self.undoes = forward_key(key)
        self._forward = forward
        self.attempt = attempt
        self.deadline_s = deadline_s
        self.until_s = monotonic() + deadline_s if until_s is None else until_s
        self.lease_until_s = inf
        """Nobody else clears the call up before that; moved on while a long call runs."""
        self.tenant = tenant
        self.workflow = workflow
        self.instance = instance
        self.trace = trace
        self.repeated = repeated

    @property
    def left_s(self) -> float:
        """Seconds that are left for the call; below 0 when its time is over."""
        return self.until_s - monotonic()

    def forward_event(self, event: type[E]) -> E | None:
        """How the action that this one undoes was answered: `call.forward_event(Paid)`.

        It is read from the ledger, and the same in every attempt and after every restart.

        Args:
            event: The type that is expected.

        Returns:
            The event; None for a forward action, and where the answer had another type or none,
            as that of a person who has settled it.

        Raises:
            RecordError: Its bytes cannot be decoded.
            ServerError: Its schema is not known here, and the schema topic is away.
        """
        codec: Codec[E] = codec_of(event)
        if self._forward is None or self._forward.type != codec.name:
            return None
        found: E = self._forward.read(codec, self._forward.value)
        return found

    def before_send(self) -> None:
        """Directly before the effect: stop here if this call must not be made any more (P31).

        The engine asks directly before the handler; a handler that does other slow things first
        asks again directly before it sends.

        Raises:
            TooLate: The call's time is over; another executor may be about to clear it up.
        """
        if monotonic() >= min(self.until_s, self.lease_until_s):
            raise TooLate("its time was over before it was sent")


@dataclass(frozen=True, slots=True)
class Action:
    """A command type with its handler."""

    codec: Codec[Any]
    handler: Handler
    truth: Truth
    system: str
    deadline_s: float
    concurrency: int
    independent: bool
    asynchronous: bool
    answers: tuple[type, ...] = ()


class Executor:
    """Acts on the outside world for the commands of one target.

    Args:
        target: Target of the command types, part of the topic's name.

    Raises:
        UsageError: BAD_SETTING, the target is no name.
    """

    def __init__(self, target: str) -> None:
        fault = name_fault(target)
        if fault:
            raise UsageError(Code.BAD_SETTING, f"the target {target!r} {fault}.")
        self.target = target
        self._actions: dict[str, Action] = {}

    @property
    def actions(self) -> Mapping[str, Action]:
        """Actions by the name of their command type."""
        return MappingProxyType(self._actions)

    def action(
        self,
        command: type,
        *,
        truth: Truth,
        system: str = "",
        deadline_s: float = DEADLINE_S,
        concurrency: int = CONCURRENCY,
        independent: bool = False,
        answers: Iterable[type] = (),
    ) -> Callable[[H], H]:
        """Declare the handler of a command type.

        Args:
            command: The command type.
            truth: How an unknown outcome is cleared up.
            system: The other side as people know it, and whose outage pauses all its actions
                together; the target unless given.
            deadline_s: Seconds that one call may take, above 0.
            concurrency: Calls at a time in one process, 1 to 10,000.
            independent: True: need not wait for earlier commands of its instance.
            answers: Event types that it answers with. Their schemas are announced when a process
                starts, so that executors may be deployed before the workers that read them.

        Raises:
            UsageError: BAD_SETTING, the declaration cannot be kept.
            DefinitionError: A type has no schema.
        """
        codec: Codec[Any] = codec_of(command)
        told = tuple(answers)
        for each in told:
            codec_of(each)

        def declare(handler: H) -> H:
            asynchronous = is_asynchronous(handler)
            fault = self._fault(codec.name, truth, deadline_s, concurrency) or _local_fault(
                truth, asynchronous=asynchronous
            )
            if fault:
                raise UsageError(
                    Code.BAD_SETTING,
                    f"The action for {codec.name} {fault}.",
                    "Change its declaration (docs/executors.md).",
                    type=codec.name,
                )
            self._actions[codec.name] = Action(
                codec, handler, truth, system or self.target, deadline_s, concurrency,
                independent, asynchronous, told,
            )  # fmt: skip
            return handler

        return declare

    def _fault(self, name: str, truth: Truth, deadline_s: float, concurrency: int) -> str:
        if name in self._actions:
            return "is declared twice"
        if not 0 < deadline_s <= 86_400:
            return "needs a deadline above 0 s and of a day at most"
        if not 1 <= concurrency <= CONCURRENCY_MOST:
            return f"needs a concurrency of 1 to {CONCURRENCY_MOST:,}"
        return fault_of(truth, deadline_s)


def _local_fault(truth: Truth, *, asynchronous: bool) -> str:
    if isinstance(truth, Local) and asynchronous:
        return "is Local and asynchronous: its handler runs in the ledger's own transaction"
    return ""


def is_asynchronous(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to be awaited, as far as that can be seen."""
    called = getattr(function, "__call__", None)  # noqa: B004 - of an object that is a function
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def questions(actions: Mapping[str, Action]) -> list[str]:
    """Names of the command types whose other side can be asked."""
    return [name for name, each in actions.items() if isinstance(each.truth, Queryable)]
