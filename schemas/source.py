"""Python source written by the generators of this package, compiled once.

Law of this module: text from outside never becomes source. Names of the user are checked
identifiers, everything else enters as a constant of the namespace, by a name made here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """Lines of one function, and the constants that they name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, object] = {}
        self._names: dict[int, str] = {}
        self._depth = 1
        self._count = 0

    def line(self, text: str) -> None:
        """Add a line at the present depth."""
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add a line that opens a block; what is added inside is one level deeper."""
        self.line(head)
        self._depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self._depth -= 1

    def name(self, prefix: str = "v") -> str:
        """A variable that no other line uses."""
        self._count += 1
        return f"{prefix}{self._count}"

    def constant(self, prefix: str, value: object) -> str:
        """The name under which the code finds a value; one name for each object."""
        known = self._names.get(id(value))
        if known is None:
            known = self._names[id(value)] = self.name(f"{prefix}_")
            self.constants[known] = value
        return known

    def function(self, head: str) -> Callable[..., Any]:
        """Compile the lines as the body of `def <head>:` and give the function."""
        text = "\n".join([f"def {head}:", *self.lines, ""])
        namespace = dict(self.constants)
        exec(compile(text, "<refold codec>", "exec"), namespace)  # noqa: S102  # our own text
        function: Callable[..., Any] = namespace[head.partition("(")[0]]  # type: ignore[assignment]
        return function
