"""What tests of the ledger share: intents, ends, and a look at rows."""

from typing import Any

import psycopg

from refold.executors.ledger import Ledger
from refold.executors.model import Claimed, Ended, Intent, Place, Status, Wanted
from refold.executors.questions import Questions

TOPIC = "shop.payments.commands"


def key_of(number: int, direction: str = "forward") -> str:
    return f"r1:acme:order:o-1:charging:Charge:%2Fshop%1Fe{number}:{direction}"


def intent(number: int = 1, **changes: Any) -> Intent:
    values: dict[str, Any] = {
        "key": key_of(number),
        "tenant": "acme",
        "workflow": "order",
        "instance": "o-1",
        "state": "charging",
        "action": "Charge",
        "direction": "forward",
        "target": "payments",
        "target_system": "bank",
        "truth": "by_key",
        "type": "Charge",
        "request": b"100",
        "attempt": 1,
        "reply_to": "shop.order.events",
        "trace": "",
        "partition": 0,
        "offset": number,
    }
    return Intent(**values | changes)


def undoing(number: int = 1, **changes: Any) -> Intent:
    """The compensation of an intent."""
    values = {"key": key_of(number, "compensate"), "direction": "compensate", "type": "Refund"}
    return intent(number, **values | {"offset": number + 100} | changes)


def place(position: int) -> Place:
    return Place(TOPIC, 0, "t", position)


def claim(ledger: Ledger, *, lease_s: float = 60, most: int = 9, **more: Any) -> list[Claimed]:
    wanted = [Wanted(name, most, lease_s, **more) for name in ("Charge", "Refund")]
    return ledger.claim("payments", wanted)


def numbers(claimed: list[Claimed]) -> list[int]:
    """Which intents: a compensation's number is negative."""
    found = []
    for each in claimed:
        parts = each.key.split(":")
        found.append(int(parts[6].rpartition("e")[2]) * (1 if parts[-1] == "forward" else -1))
    return found


def ended(claimed: Claimed, status: Status = Status.SUCCEEDED, **more: Any) -> Ended:
    told = status in (Status.SUCCEEDED, Status.FAILED, Status.UNKNOWN)
    event = f"{claimed.key} {status} {claimed.attempt}" if told else ""
    values: dict[str, Any] = {
        "key": claimed.key,
        "epoch": claimed.epoch,
        "attempt": claimed.attempt,
        "status": status,
        "outcome": str(status) if told else "",
        "type": "Charged",
        "value": b"r",
        "event_id": event,
    }
    return Ended(**values | more)


def results(ledger: Ledger) -> list[tuple[str, int, str]]:
    """Key, attempt and outcome of the events that wait to be published."""
    return [(each.key, each.attempt, each.outcome) for each in ledger.results("payments", -1)]


class Rows:
    """A ledger's rows, as people see them and as they stand."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.questions = Questions(dsn)

    def close(self) -> None:
        self.questions.close()

    def one(self, number: int = 1, direction: str = "forward") -> dict[str, Any]:
        found = self.questions.show(key_of(number, direction))
        assert found is not None
        return found

    def status(self, number: int = 1, direction: str = "forward") -> str:
        return str(self.one(number, direction)["status"])

    def statuses(self) -> dict[int, str]:
        return {
            int(row["key"].split(":")[6].rpartition("e")[2])
            * (1 if row["direction"] == "forward" else -1): row["status"]
            for row in self.questions.find()
        }

    def sql(self, text: str, *values: Any) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(text, values)
            return cursor.fetchall() if cursor.description else []
