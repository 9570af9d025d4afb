"""A server that is away is told when it goes, once in a while, and when it is back."""

import json
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from tests.crash.scene import Scene, scene

from refold.cli.logs import EVERY_S
from refold.testing.servers import Kafka, OwnPostgres

pytestmark = [pytest.mark.crash, pytest.mark.kafka, pytest.mark.postgres]


def lines_of(run: Scene) -> list[dict[str, Any]]:
    (path,) = run.log.glob("*.log")
    whole, _, _ = path.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def test_an_outage_of_postgresql_is_told_by_few_lines_and_its_end_by_one(
    kafka: Kafka, own_postgres: OwnPostgres
) -> None:
    server = own_postgres()
    with scene(kafka.bootstrap, server.dsn) as run:
        worker = run.worker()
        run.publish(0.0, 0.5)
        run.until_cut()
        for _ in range(2):
            told = len(lines_of(run))
            server.kill()
            run.publish(0.5, 0.6)
            run.until(lambda: "POSTGRES_AWAY" in str(lines_of(run)[told:]), "the outage")  # noqa: B023
            server.start()
            run.until(lambda: back(lines_of(run)[told:]) == 1, "its end")  # noqa: B023
        run.until_folded()
        run.stop(worker)
        away = [each for each in lines_of(run) if "POSTGRES_AWAY" in each.get("error", "")]
        ends = [each for each in lines_of(run) if each["event"] == "back"]
    assert [each["code"] for each in ends] == ["POSTGRES_AWAY"] * 2
    first, second = (when(each) for each in ends)
    outages = [
        [when(each) for each in away if when(each) < first],
        [when(each) for each in away if first <= when(each) < second],
    ]
    for outage in outages:
        pauses = [(later - sooner).total_seconds() for sooner, later in pairwise(outage)]
        assert all(pause > EVERY_S - 0.5 for pause in pauses), pauses


def back(lines: list[dict[str, Any]]) -> int:
    return sum(each["event"] == "back" for each in lines)


def when(line: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(line["timestamp"])
