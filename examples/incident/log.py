"""The audit log of the service desk as events, in the order in which they happened.

Law of this module: one row is one event, and the same row always makes the same event with the
same id, so that a row that is sent again is known again.
"""

import csv
import gzip
from collections.abc import Iterator
from importlib.resources import files
from typing import Final

import msgspec

from refold.examples.incident import graph

EVENTS: Final[dict[str, type[graph.Update]]] = {
    "New": graph.Logged,
    "Active": graph.Started,
    "Awaiting User Info": graph.AwaitsUser,
    "Awaiting Problem": graph.AwaitsProblem,
    "Awaiting Vendor": graph.AwaitsVendor,
    "Awaiting Evidence": graph.AwaitsEvidence,
    "Resolved": graph.Resolved,
    "Closed": graph.Closed,
}
"""State in the log → what happened."""


class Row(msgspec.Struct, frozen=True):
    """One row of the log."""

    instance: str
    id: str
    """Incident and number of the update: the log's own counter has gaps and repeats."""
    event: graph.Update


def rows() -> list[Row]:
    """The whole log, by time; updates of one incident stay in the order of the log."""
    timed = sorted(_timed(), key=lambda each: each[0])
    return [row for _, row in timed]


def _timed() -> Iterator[tuple[str, Row]]:
    """Rows with the time that they sort by: it never falls within an incident."""
    instance, number, latest = "", 0, ""
    data = files("refold.examples") / "data" / "incidents.csv.gz"
    with data.open("rb") as packed, gzip.open(packed, "rt", encoding="utf-8") as text:
        for line in csv.DictReader(text):
            if line["number"] != instance:
                instance, number, latest = line["number"], 0, ""
            number += 1
            at = _iso(line["sys_updated_at"])
            latest = max(latest, at)
            kind = EVENTS[line["incident_state"]]
            group, priority = line["assignment_group"], int(line["priority"][0])
            event = kind(group=group, priority=priority, at=at)
            yield latest, Row(instance, f"{instance}-{number}", event)


def _iso(text: str) -> str:
    """`29-02-2016 01:23`, local and without a zone, as `2016-02-29T01:23`."""
    day, month, rest = text.split("-")
    year, clock = rest.split(" ")
    return f"{year}-{month}-{day}T{clock}"
