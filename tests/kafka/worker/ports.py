"""Ports of a worker that a test has changed: calls that are watched, held up or refused."""

from collections.abc import Callable
from threading import Event
from typing import Any

from refold.schemas.errors import Code, ServerError

Around = Callable[[Callable[..., Any]], Callable[..., Any]]
PATIENCE_S = 60.0


class Changed:
    """An object some of whose methods are changed.

    Args:
        inner: The object itself.
        changes: Method name → what makes another function of it.
    """

    def __init__(self, inner: Any, **changes: Around) -> None:
        self._inner = inner
        for name, change in changes.items():
            setattr(self, name, change(getattr(inner, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def changed(
    *,
    store: dict[str, Around] | None = None,
    clients: dict[str, Around] | None = None,
    producer: dict[str, Around] | None = None,
    consumer: dict[str, Around] | None = None,
    reader: dict[str, Around] | None = None,
    admin: dict[str, Around] | None = None,
) -> Callable[[Any, Any], tuple[Any, Any]]:
    """What `running` takes as `wrap`: ports with these methods changed."""
    made = dict(clients or {})
    for name, changes in {
        "producer": producer,
        "consumer": consumer,
        "reader": reader,
        "admin": admin,
    }.items():
        if changes:
            made[name] = _both(made.get(name), _making(changes))

    def wrap(inner: Any, kept: Any) -> tuple[Any, Any]:
        return Changed(inner, **made), Changed(kept, **(store or {}))

    return wrap


def _both(first: Around | None, then: Around) -> Around:
    return then if first is None else lambda call: then(first(call))


def _making(changes: dict[str, Around]) -> Around:
    def around(make: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: Changed(make(*args), **changes)

    return around


def after(see: Callable[[], object]) -> Around:
    """The method, and then a look at what it left."""

    def around(call: Callable[..., Any]) -> Callable[..., Any]:
        def seen(*args: Any, **named: Any) -> Any:
            answer = call(*args, **named)
            see()
            return answer

        return seen

    return around


def before(see: Callable[..., object]) -> Around:
    """A look at the arguments, or a hold-up, and then the method."""

    def around(call: Callable[..., Any]) -> Callable[..., Any]:
        def seen(*args: Any, **named: Any) -> Any:
            see(*args, **named)
            return call(*args, **named)

        return seen

    return around


class Held:
    """A call that waits for the test from the n-th time on, until it is let go."""

    def __init__(self, nth: int = 1) -> None:
        self.reached = Event()
        self._open = Event()
        self._left = nth

    def let_go(self) -> None:
        """Let the call go on, and all later ones."""
        self._open.set()

    def __call__(self, *_: Any, **__: Any) -> None:
        self._left -= 1
        if self._left > 0 or self._open.is_set():
            return
        self.reached.set()
        assert self._open.wait(PATIENCE_S)


class Away:
    """A call that a server refuses the first so many times."""

    def __init__(self, times: int, error: Exception | None = None) -> None:
        self.left = times
        self._error = error or ServerError(Code.POSTGRES_AWAY, "PostgreSQL is away.", "Wait.")

    def __call__(self, *_: Any, **__: Any) -> None:
        if self.left > 0:
            self.left -= 1
            raise self._error
