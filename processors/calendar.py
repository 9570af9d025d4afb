"""Cron rules and zones: at which instants a rule falls due.

Law of this module: for the owner of a partition and for people, never for the fold: what it
answers depends on the rules of zones that are installed here today, so its answers are written
down before they count. Times of the day that a rule names are times by the zone's clock: one that
does not exist falls on the moment at which the gap ends, one that is there twice on its first. A
rule whose minute or hour begins with `*` counts elapsed time instead, as cron does.

Source: cron(8) of Debian, "daylight saving time"; the package cronsim, which keeps to it.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final
from zoneinfo import TZPATH, ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_FIELDS: Final = 5
_TRIED: Final = datetime(2024, 1, 1, tzinfo=UTC)
"""From here on a rule is tried for having any occurrence at all."""


class Slot(msgspec.Struct, frozen=True):
    """One occurrence of a rule."""

    ms: int
    """Milliseconds since the epoch."""
    local: str
    """By the zone's clock: `2026-11-01T01:30:00`; empty where it is not known."""


def cron_fault(cron: str) -> str | None:
    """What is wrong with a rule, None if nothing."""
    if not isinstance(cron, str):
        return "is no text"
    if len(cron.split()) != _FIELDS:
        return "has not five fields: minute, hour, day of the month, month, day of the week"
    try:
        next(CronSim(cron, _TRIED))
    except CronSimError as error:
        return f"cannot be read: {error}"
    except StopIteration:
        return "has no occurrence within 50 years"
    return None


def zone_fault(zone: str) -> str | None:
    """What is wrong with a zone's name, None if nothing."""
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        return "is not known here"
    return None


def slots(cron: str, zone: str, after: Slot) -> Iterator[Slot]:
    """The occurrences of a rule after one, by the rules of zones that are installed here.

    Neither the instant of `after` nor its time by the zone's clock comes again, so that a zone
    whose rules have changed since it was announced has none twice.

    Args:
        cron: Five fields.
        zone: A name of the IANA database.
        after: What has been; without a local time its instant alone counts.
    """
    known = ZoneInfo(zone)
    for moment in CronSim(cron, _begin(after, known)):
        ms = _ms_of(moment)
        if ms > after.ms:
            yield Slot(ms, moment.replace(tzinfo=None).isoformat())


def local_of(ms: int, zone: str) -> datetime:
    """An instant by a zone's clock."""
    return (_EPOCH + ms * _MS).astimezone(ZoneInfo(zone))


@cache
def rules_of(zone: str) -> str:
    """Version of the rules that are installed for a zone: `2026b`, or `unknown`.

    The system's come before those of the package tzdata, as `zoneinfo` looks for them.
    """
    for place in map(Path, TZPATH):
        if (place / zone).is_file():
            return _system(place)
    return f"tzdata {version('tzdata')}"


def _system(place: Path) -> str:
    try:
        with (place / "tzdata.zi").open(encoding="utf-8") as rules:
            head = rules.readline()
    except OSError:
        return "unknown"
    return head.removeprefix("# version ").strip() if head.startswith("# version ") else "unknown"


def _begin(after: Slot, zone: ZoneInfo) -> datetime:
    """The later one of an instant, and of the time that the clock showed at it when announced."""
    instant = (_EPOCH + after.ms * _MS).astimezone(zone)
    if not after.local:
        return instant
    shown = datetime.fromisoformat(after.local)
    both = [_ms_of(shown.replace(tzinfo=zone, fold=fold)) for fold in (0, 1)]
    if after.ms in both or both[0] <= after.ms:
        return instant
    return shown.replace(tzinfo=zone)


def _ms_of(moment: datetime) -> int:
    return (moment - _EPOCH) // _MS
