"""A reader of XES event logs, as the BPI Challenge 2012 publishes them: one trace a case.

Law of this module: the file is foreign. It is read as a stream and held one case at a time;
document types, entities, deep nesting and endless files are refused before they cost anything.

Source: IEEE 1849 (XES); the log's own `concept:name`, `lifecycle:transition`, `time:timestamp`.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn
from xml.parsers.expat import ExpatError, ParserCreate

import msgspec

from refold.schemas.errors import Code, UsageError

DEPTH: Final = 8
"""Elements inside each other; a log of events needs four."""
EVENTS: Final = 10_000
"""Events of one case."""
BYTES: Final = 1 << 30
"""Of the unpacked file: the whole log of 2012 has 75 million."""
CHUNK: Final = 1 << 16


class Happening(msgspec.Struct, frozen=True, gc=False):
    """One event of a case."""

    activity: str
    phase: str
    """SCHEDULE, START or COMPLETE."""
    at: str


class Case(msgspec.Struct, frozen=True):
    """One trace."""

    id: str
    amount: int
    happened: tuple[Happening, ...]


def cases(path: Path) -> Iterator[Case]:
    """The cases of a log, in the order of the file.

    Args:
        path: An XES file, packed by gzip or not.

    Raises:
        UsageError: UNDECODABLE, it is no XES file, or has what this reader refuses.
    """
    reader = _Reader()
    read = 0
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            file = gzip.GzipFile(fileobj=raw) if packed else raw
            while chunk := file.read(CHUNK):
                read += len(chunk)
                if read > BYTES:
                    _refuse(f"is longer than {BYTES} bytes")
                reader.parser.Parse(chunk, False)
                yield from reader.found
                reader.found.clear()
            reader.parser.Parse(b"", True)
    except (ExpatError, EOFError, gzip.BadGzipFile, KeyError, ValueError) as error:
        raise UsageError(
            Code.UNDECODABLE, f"{path} cannot be read as XES: {error}.", "Is it the right file?"
        ) from error


class _Reader:
    """Turns elements into cases; holds the one that is open."""

    def __init__(self) -> None:
        self.found: list[Case] = []
        self.parser = ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.StartDoctypeDeclHandler = lambda *_: _refuse("declares a document type")
        self._open: list[str] = []
        self._case: dict[str, str] = {}
        self._event: dict[str, str] = {}
        self._happened: list[Happening] = []

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._open.append(name)
        if len(self._open) > DEPTH:
            _refuse(f"nests deeper than {DEPTH} elements")
        match self._open:
            case [_, "trace"]:
                self._case, self._happened = {}, []
            case [_, "trace", "event"]:
                self._event = {}
            case [_, "trace", "event", _]:
                self._event[attributes["key"]] = attributes["value"]
            case [_, "trace", _]:
                self._case[attributes["key"]] = attributes["value"]
            case _:
                pass  # the log's own head: extensions, defaults, statistics

    def _end(self, _: str) -> None:
        match self._open:
            case [_, "trace", "event"]:
                if len(self._happened) >= EVENTS:
                    _refuse(f"has a case of more than {EVENTS} events")
                one = self._event
                self._happened.append(
                    Happening(
                        one["concept:name"], one["lifecycle:transition"], one["time:timestamp"]
                    )
                )
            case [_, "trace"]:
                amount = int(self._case["AMOUNT_REQ"])
                self.found.append(Case(self._case["concept:name"], amount, tuple(self._happened)))
            case _:
                pass
        self._open.pop()


def _refuse(what: str) -> NoReturn:
    raise ValueError(f"it {what}")
