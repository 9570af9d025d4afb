"""The loan graph, and a reader of a foreign file that trusts nothing in it."""

import gzip
from itertools import permutations
from pathlib import Path

import pytest

from refold import Event, RefoldError
from refold.examples.loan import graph, loan, xes
from refold.examples.loan.log import rows
from refold.testing.driver import Driver

BEFORE: tuple[Event, ...] = (
    graph.Submitted(amount=5_000),
    graph.PartlySubmitted(),
    graph.Preaccepted(),
    graph.Accepted(),
    graph.Finalized(),
)
EVENT = """<event><string key="lifecycle:transition" value="COMPLETE"/>
<string key="concept:name" value="{}"/>
<date key="time:timestamp" value="2011-10-01T00:38:44.546+02:00"/></event>"""
HEAD = '<?xml version="1.0"?><log xmlns="http://www.xes-standard.org/"><int key="n" value="1"/>'
TRACE = '<trace><string key="concept:name" value="17"/><string key="AMOUNT_REQ" value="900"/>'


def log(tmp_path: Path, *activities: str, head: str = HEAD, pack: bool = True) -> Path:
    text = head + TRACE + "".join(map(EVENT.format, activities)) + "</trace></log>"
    path = tmp_path / "log.xes.gz"
    path.write_bytes(gzip.compress(text.encode()) if pack else text.encode())
    return path


@pytest.mark.parametrize(
    "order", list(permutations((graph.Approved, graph.Registered, graph.Activated)))
)
def test_three_signatures_in_any_order_pay_once(order: tuple[type[Event], ...]) -> None:
    driver = Driver(loan)
    for event in (*BEFORE, *(kind() for kind in order)):
        driver.send("17", event)

    assert driver.state("17") == "granted"
    assert [send.action for send in driver.sent] == ["AskForPapers", "PayOut"]


def test_two_signatures_do_not_pay() -> None:
    driver = Driver(loan)
    for event in (*BEFORE, graph.Approved(), graph.Activated()):
        driver.send("17", event)

    assert driver.state("17") == "granting"
    assert "PayOut" not in [send.action for send in driver.sent]


def test_work_after_the_end_is_late_and_writes_to_nobody() -> None:
    driver = Driver(loan)
    for event in (*BEFORE, graph.Declined()):
        driver.send("17", event)
    step = driver.send("17", graph.WorkMoved(work="validate-application", phase="complete"))

    assert step.verdict == "late"
    assert [send.action for send in driver.sent] == ["AskForPapers", "WriteToApplicant"]


@pytest.mark.parametrize("pack", [True, False])
def test_a_log_becomes_events_packed_or_not(tmp_path: Path, pack: bool) -> None:
    path = log(tmp_path, "A_SUBMITTED", "O_SENT_BACK", "W_Valideren aanvraag", pack=pack)

    found = list(rows(path))

    assert [row.event for row in found] == [
        graph.Submitted(amount=900),
        graph.OfferMoved(step="sent-back"),
        graph.WorkMoved(work="validate-application", phase="complete"),
    ]
    assert [(row.instance, row.id) for row in found] == [
        ("17", "17-1"),
        ("17", "17-2"),
        ("17", "17-3"),
    ]


def test_only_as_many_cases_are_read_as_are_asked_for(tmp_path: Path) -> None:
    assert list(rows(log(tmp_path, "A_SUBMITTED"), most=0)) == []


def test_an_activity_that_is_not_known_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RefoldError, match="A_INVENTED"):
        list(rows(log(tmp_path, "A_INVENTED")))


def test_a_document_type_is_refused_before_its_entities_cost_anything(tmp_path: Path) -> None:
    head = '<?xml version="1.0"?><!DOCTYPE log [<!ENTITY a "aaaa">]><log>'
    with pytest.raises(RefoldError, match="declares a document type"):
        list(xes.cases(log(tmp_path, "A_SUBMITTED", head=head)))


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefoldError, match="nests deeper"):
        list(xes.cases(log(tmp_path, head=HEAD + "<x>" * 20)))


def test_a_file_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xes, "BYTES", 100)
    with pytest.raises(RefoldError, match="longer than 100 bytes"):
        list(xes.cases(log(tmp_path, "A_SUBMITTED")))


def test_a_case_of_too_many_events_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xes, "EVENTS", 1)
    with pytest.raises(RefoldError, match="more than 1 events"):
        list(xes.cases(log(tmp_path, "A_SUBMITTED", "O_SENT")))


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_half_a_file_is_an_error_that_names_it(tmp_path: Path, cut: int) -> None:
    path = log(tmp_path, "A_SUBMITTED")
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(RefoldError, match=r"log\.xes\.gz cannot be read as XES"):
        list(xes.cases(path))


def test_an_event_without_its_name_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log.xes"
    path.write_text(HEAD + TRACE + "<event/></trace></log>")
    with pytest.raises(RefoldError, match="concept:name"):
        list(xes.cases(path))
