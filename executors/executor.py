"""An executor as its author declares it: one handler a command type, each with its truth mode.

Law of this module: declarations only; `refold.executors.service` runs them. What is declared is
checked when it is declared, with an error that names the action and the cure.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from refold.executors.outcome import Done
from refold.executors.truth import ByKey, Local, Neither, Queryable, Truth
from refold.schemas.codec import Codec, codec_of
from refold.schemas.errors import Code, UsageError
from refold.schemas.limits import name_fault

Handler = Callable[[Any, "Call"], Any | Done | Awaitable[Any | Done]]
H = TypeVar("H", bound=Handler)
DEADLINE_S = 10.0


@dataclass(frozen=True, slots=True)
class Call:
    """What a handler knows about its call beside the command."""

    key: str
    """Idempotency key: give it to the other side."""
    attempt: int
    """1 for the first; the workflow counts."""
    deadline_s: float
    """Seconds in which the call must be over; what is not counts as unknown."""
    tenant: str
    workflow: str
    instance: str
    trace: str = ""
    """W3C traceparent, empty where there is none."""


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


class Executor:
    """Acts on the outside world for the commands of one target.

    Args:
        target: Target of the command types, part of the topic's name.
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
        concurrency: int = 32,
        independent: bool = False,
    ) -> Callable[[H], H]:
        """Declare the handler of a command type.

        Args:
            command: The command type.
            truth: How an unknown outcome is cleared up.
            system: The other side as people know it; the target unless given.
            deadline_s: Seconds that one call may take, above 0.
            concurrency: Calls at a time in one process, 1 or more.
            independent: True: need not wait for earlier commands of its instance.

        Raises:
            UsageError: BAD_SETTING, the declaration cannot be kept.
        """
        codec: Codec[Any] = codec_of(command)
        _check(codec.name, truth, deadline_s, concurrency, known=codec.name in self._actions)

        def declare(handler: H) -> H:
            self._actions[codec.name] = Action(
                codec, handler, truth, system or self.target, deadline_s, concurrency,
                independent, inspect.iscoroutinefunction(handler),
            )  # fmt: skip
            return handler

        return declare


def _check(name: str, truth: Truth, deadline_s: float, concurrency: int, *, known: bool) -> None:
    fault = ""
    if known:
        fault = "is declared twice"
    elif not isinstance(truth, ByKey | Queryable | Local | Neither):
        fault = "declares no truth mode: one of ByKey, Queryable, Local and Neither is wanted"
    elif deadline_s <= 0 or concurrency < 1:
        fault = "needs a deadline above 0 s and a concurrency of 1 or more"
    if fault:
        raise UsageError(
            Code.BAD_SETTING,
            f"The action for {name} {fault}.",
            "Change its declaration.",
            type=name,
        )
