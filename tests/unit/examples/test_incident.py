"""The incident graph against the whole log that it was read from."""

from collections import Counter

import pytest

from refold import RunStatus
from refold.examples.incident import graph, incident
from refold.examples.incident.log import Row, rows
from refold.schemas.verdicts import Verdict
from refold.testing.driver import Driver

ROWS = rows()


def now(kind: type[graph.Update]) -> graph.Update:
    return kind(group="Group 1", priority=1, at="2016-02-29T01:23")


@pytest.fixture
def driver() -> Driver:
    return Driver(incident)


def actions(driver: Driver) -> list[str]:
    return [send.action for send in driver.sent]


def closed(driver: Driver) -> None:
    for event in (now(graph.Started), now(graph.Resolved), now(graph.Closed)):
        driver.send("INC1", event)


def test_the_log_holds_890_incidents_with_an_id_for_each_update() -> None:
    assert len(ROWS) == 5_998
    assert len({row.instance for row in ROWS}) == 890
    assert len({row.id for row in ROWS}) == len(ROWS)


def test_reading_the_log_twice_gives_the_same_events() -> None:
    assert rows() == ROWS


def test_updates_of_one_incident_stay_in_the_order_of_the_log() -> None:
    numbers: dict[str, int] = {}
    for row in ROWS:
        number = int(row.id.rpartition("-")[2])
        assert number == numbers.get(row.instance, 0) + 1
        numbers[row.instance] = number


def test_every_update_of_the_log_is_folded_and_every_incident_closes(driver: Driver) -> None:
    for row in ROWS:
        driver.send(row.instance, row.event, id=row.id)

    assert Counter(driver.verdicts()) == {"applied": 5_991, "already": 7}
    assert {each.state for each in driver.instances.values()} == {"closed"}
    assert actions(driver).count("SendSurvey") == 890
    assert len(set(driver.keys())) == len(driver.keys()) == 2_744
    driver.check_counts()
    driver.check_replay()


def test_the_log_sent_twice_changes_and_sends_nothing_more(driver: Driver) -> None:
    twice: list[Row] = [row for row in ROWS[:1_000] for _ in range(2)]
    for row in twice:
        driver.send(row.instance, row.event, id=row.id)
    once = Driver(incident)
    for row in ROWS[:1_000]:
        once.send(row.instance, row.event, id=row.id)

    assert driver.verdicts().count(Verdict.DUPLICATE) == 1_000
    assert driver.keys() == once.keys()
    assert {key: one.state for key, one in driver.instances.items()} == {
        key: one.state for key, one in once.instances.items()
    }


def test_reopening_pages_again_under_a_key_of_its_own(driver: Driver) -> None:
    for event in (now(graph.Started), now(graph.Resolved), now(graph.Started)):
        driver.send("INC1", event)

    assert actions(driver) == ["Page", "TellCaller", "Page"]
    assert len(set(driver.keys())) == 3
    assert driver.instance("INC1").context.reopened == 1


def test_a_repeated_update_in_one_state_pages_nobody(driver: Driver) -> None:
    driver.send("INC1", now(graph.Started))
    driver.send("INC1", now(graph.Started))

    assert actions(driver) == ["Page"]
    assert driver.instance("INC1").context.updates == 2


def test_answers_are_taken_in_whatever_state_they_find(driver: Driver) -> None:
    closed(driver)
    driver.send("INC1", graph.Paged())
    driver.send("INC1", graph.Mailed())

    assert driver.state("INC1") == "closed"
    assert driver.status("INC1") is RunStatus.WAITING_CALLBACK
    assert driver.instance("INC1").context.paged == 1


def test_the_survey_ends_it_and_what_comes_later_is_noted(driver: Driver) -> None:
    closed(driver)
    driver.send("INC1", graph.Surveyed(score=4))
    late = driver.send("INC1", graph.Paged())

    assert driver.state("INC1") == "surveyed"
    assert driver.status("INC1") is RunStatus.COMPLETED
    assert late.verdict == "late"
    assert actions(driver) == ["Page", "TellCaller", "SendSurvey"]


def test_an_incident_that_is_not_resolved_cannot_be_closed(driver: Driver) -> None:
    driver.send("INC1", now(graph.Started))
    step = driver.send("INC1", now(graph.Closed))

    assert step.verdict == "refused"
    assert driver.state("INC1") == "active"
