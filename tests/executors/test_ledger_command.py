"""`refold ledger`: what a person types, and what it says."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from tests.executors.rows import Rows, claim, ended, intent, key_of, results, undoing

from refold.cli.main import run
from refold.executors.ledger import Ledger
from refold.executors.model import Status, Wanted
from refold.executors.outcome import Done
from refold.executors.truth import ByKey, Neither
from refold.schemas.errors import UsageError

pytestmark = pytest.mark.postgres
Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def settings(ledger_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFOLD_EXECUTOR_DSN", ledger_dsn)


def said(out: Out, *arguments: str, code: int = 0) -> str:
    out.readouterr()
    assert run(["ledger", *arguments]) == code
    told = out.readouterr()
    return told.out + told.err


def told(out: Out, *arguments: str, code: int = 0) -> Any:
    out.readouterr()
    assert run(["ledger", *arguments, "--json"]) == code
    return json.loads(out.readouterr().out)


def settled(ledger: Ledger, *statuses: Status, **changes: Any) -> None:
    numbers = range(1, len(statuses) + 1)
    ledger.plan([intent(each, **{"instance": f"o-{each}"} | changes) for each in numbers], [])
    found = {each.key: each for each in claim(ledger)}
    for number, status in zip(numbers, statuses, strict=True):
        if status is not Status.IN_FLIGHT:
            ledger.settle([ended(found[key_of(number)], status, reason=f"because {status}")])


def test_migrate_makes_the_tables_once(
    database: str, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.setenv("REFOLD_EXECUTOR_DSN", database)
    assert "refold ledger migrate" in said(capsys, "list", code=1)
    assert "applied 001 action" in said(capsys, "migrate")
    assert "up to date" in said(capsys, "migrate")
    assert "No action is there." in said(capsys, "list")


def test_list_finds_by_state_time_action_and_target(
    ledger: Ledger, rows: Rows, capsys: Out
) -> None:
    settled(ledger, Status.UNKNOWN, Status.SUCCEEDED, Status.IN_FLIGHT)
    ledger.plan([intent(9, action="Notify", target="mail", target_system="smtp")], [])
    assert [each["key"] for each in told(capsys, "list", "--state", "unknown")] == [key_of(1)]
    assert len(told(capsys, "list")) == 4
    assert [each["action"] for each in told(capsys, "list", "--action", "Notify")] == ["Notify"]
    ledger.plan([undoing(8), intent(10, action="Pick.a%2E1"), intent(11, action="Pick.2")], [])
    assert len(told(capsys, "list", "--action", "Refund")) == 1  # the type of its command
    assert len(told(capsys, "list", "--action", "Pick")) == 2
    assert len(told(capsys, "list", "--action", "Pick.2")) == 1
    rows.sql("DELETE FROM refold_ledger.workflow_action WHERE type = 'Refund' OR action ~ 'Pick'")
    assert len(told(capsys, "list", "--target", "bank")) == 3
    assert len(told(capsys, "list", "--target", "payments")) == 3
    assert len(told(capsys, "list", "--instance", "o-2")) == 1
    assert len(told(capsys, "list", "--from", "1h")) == 4
    assert told(capsys, "list", "--to", "1h") == []
    assert told(capsys, "list", "--from", "2026-01-01", "--to", "2026-01-02T00:00:00Z") == []
    assert "there may be more" in said(capsys, "list", "--limit", "2")
    text = said(capsys, "list", "--state", "unknown")
    for part in (key_of(1), "because unknown", "Charge, forward, of bank (by_key)", "instance o-1"):
        assert part in text


def test_a_time_that_cannot_be_read_is_one_message(capsys: Out) -> None:
    text = said(capsys, "list", "--from", "yesterday", code=2)
    assert text.startswith("refold: BAD_COMMAND_LINE: 'yesterday' is no time.")


def test_show_tells_everything(ledger: Ledger, capsys: Out) -> None:
    settled(ledger, Status.UNKNOWN)
    ledger.plan([intent(request=b"other")], [])
    text = said(capsys, "show", key_of(1))
    for part in (
        "attempt 1",
        "because unknown",
        "x1",
        "came again with another request",
        "/shop e1",
    ):
        assert part in text
    row = told(capsys, "show", key_of(1))
    assert (row["status"], row["attempts"][0]["outcome"]) == ("unknown", "unknown")
    assert "no key 'nobody'" in said(capsys, "show", "nobody", code=2)


def test_clashes_and_contradictions_are_listed(ledger: Ledger, capsys: Out) -> None:
    settled(ledger, Status.SUCCEEDED, Status.FAILED)
    ledger.plan([intent(request=b"other")], [])
    ledger.answer(Done(None), key=key_of(2))
    assert [each["key"] for each in told(capsys, "list", "--clashes")] == [key_of(1)]
    assert [each["key"] for each in told(capsys, "list", "--contradicted")] == [key_of(2)]
    text = said(capsys, "list")
    assert "came again with 1 other requests" in text
    assert "the opposite was said later" in text


def test_settle_tells_the_workflow_and_keeps_who_and_why(
    ledger: Ledger, rows: Rows, capsys: Out
) -> None:
    settled(ledger, Status.UNKNOWN)
    text = said(
        capsys, "settle", key_of(1), "--as", "succeeded", "--reason", "on page 3", "--who", "ann"
    )
    assert "is succeeded" in text
    row = rows.one()
    assert (row["status"], row["decided_by"], row["reason"]) == ("succeeded", "ann", "on page 3")
    assert [(each.type, each.outcome) for each in ledger.results("payments", -1)] == [
        ("Charged", "unknown"), ("refold.succeeded", "succeeded"),
    ]  # fmt: skip
    again = said(capsys, "settle", key_of(1), "--as", "succeeded", "--reason", "again")
    assert "was succeeded already" in again
    assert len(results(ledger)) == 2


def test_settle_as_failed_lets_a_remembered_attempt_begin(
    ledger: Ledger, rows: Rows, capsys: Out
) -> None:
    settled(ledger, Status.UNKNOWN)
    ledger.plan([intent(instance="o-1", attempt=2)], [])
    said(
        capsys, "settle", key_of(1), "--as", "failed", "--reason", "not on the statement", "--retry"
    )
    assert (rows.status(), rows.one()["attempt"]) == ("planned", 2)
    (_, result) = ledger.results("payments", -1)
    assert (result.type, result.attempt) == ("refold.failed", 1)


def test_settle_tells_by_an_event_of_the_users_own(ledger: Ledger, capsys: Out) -> None:
    settled(ledger, Status.UNKNOWN)
    type_ = "refold.examples.order.graph:Charged"
    arguments = ("settle", key_of(1), "--as", "succeeded", "--reason", "seen", "--type", type_)
    assert "--data is no Charged" in said(capsys, *arguments, code=2)
    assert "is no event" in said(
        capsys, *arguments[:-1], "refold.examples.order.graph:order", code=2
    )
    said(capsys, *arguments, "--data", '{"receipt": "r-7"}')
    (_, result) = ledger.results("payments", -1)
    assert (result.type, b"r-7" in result.value) == ("Charged", True)


def test_settle_gives_an_action_without_a_workflow_its_result(ledger: Ledger, capsys: Out) -> None:
    for number, data in enumerate((None, '{"receipt": "r-7"}', "{")):
        key = f":bank:[b]{number}"
        block = ledger.action(
            key, action="Refund", target="bank", request={}, truth=Neither()
        )  # fmt: skip
        with pytest.raises(ConnectionError), block:
            raise ConnectionError
        arguments = ["settle", key, "--as", "succeeded", "--reason", "seen"]
        if data == "{":
            assert "--data is no JSON" in said(capsys, *arguments, "--data", data, code=2)
            continue
        text = said(capsys, *arguments, *(["--data", data] if data else []))
        assert f"{key} is succeeded.\n" in text
        assert "partition" not in said(capsys, "show", key)
        again = ledger.action(key, action="Refund", target="bank", request={}, truth=Neither())
        with again as call:
            assert call.done
        assert call.result == (json.loads(data) if data else None)


def test_a_workflow_is_told_by_an_event_and_not_by_plain_data(
    ledger: Ledger, rows: Rows, capsys: Out
) -> None:
    settled(ledger, Status.UNKNOWN)
    arguments = ("settle", key_of(1), "--as", "succeeded", "--reason", "seen", "--data", "{}")
    assert "plain data are no event" in said(capsys, *arguments, code=2)
    with pytest.raises(UsageError, match="plain data are no event"):
        ledger.answer(Done({"receipt": "r-7"}), key=key_of(1))
    with pytest.raises(UsageError, match="plain data are no event"):
        ledger.answer(Done("r-7"), target="payments", reference="b-7")
    assert rows.status() == "unknown"


@pytest.mark.parametrize(
    ("status", "as_", "message"),
    [
        (Status.SUCCEEDED, "failed", "what is settled never changes"),
        (Status.FAILED, "succeeded", "what is settled never changes"),
        (Status.IN_FLIGHT, "succeeded", "a worker is at"),
        (Status.UNKNOWN, "planned", "cannot be settled as planned"),
    ],
)
def test_what_stands_cannot_be_settled_otherwise(
    ledger: Ledger, rows: Rows, capsys: Out, status: Status, as_: str, message: str
) -> None:
    settled(ledger, status)
    before = rows.one()
    assert message in said(capsys, "settle", key_of(1), "--as", as_, "--reason", "x", code=2)
    assert rows.one() == before


def test_a_contradiction_that_somebody_has_seen_to_is_listed_no_more(
    ledger: Ledger, rows: Rows, capsys: Out
) -> None:
    settled(ledger, Status.FAILED)
    ledger.answer(Done(None), key=key_of(1))
    said(capsys, "settle", key_of(1), "--as", "failed", "--reason", "paid back", "--who", "ann")
    assert told(capsys, "list", "--contradicted") == []
    assert rows.one()["attempts"][-1]["worker"] == "ann"


def test_an_accepted_action_can_be_settled_before_its_deadline(
    ledger: Ledger, rows: Rows, capsys: Out
) -> None:
    ledger.plan([intent()], [])
    (found,) = claim(ledger)
    ledger.settle([ended(found, Status.IN_FLIGHT, reference="b-1", until_s=600)])
    said(capsys, "settle", key_of(1), "--as", "succeeded", "--reason", "phoned")
    assert rows.status() == "succeeded"


def test_the_report_counts_unknowns_and_how_they_were_settled(
    ledger: Ledger, rows: Rows, capsys: Out
) -> None:
    settled(ledger, *[Status.UNKNOWN] * 4, Status.SUCCEEDED, Status.FAILED)
    ledger.answer(Done(None), key=key_of(1))
    said(capsys, "settle", key_of(2), "--as", "succeeded", "--reason", "seen")
    rows.sql("UPDATE refold_ledger.workflow_action SET not_before = now()")
    again = {each.key: each for each in ledger.recall("payments", Wanted("Charge", 9, 60), 600)}
    ledger.settle([ended(again[key_of(3)]), ended(again[key_of(4)], Status.UNKNOWN)])
    ledger.plan([intent(20, truth="local", action="Stock", instance="o-20")], [])
    rows.sql(
        "UPDATE refold_ledger.workflow_action SET dispatched = recorded - interval '3 s' "
        "WHERE key = %s", key_of(5),
    )  # fmt: skip
    found = told(
        capsys, "report", "--per-double", "Charge=10", "--from", "73h", "--to", "2200-01-01"
    )
    charge = next(each for each in found["lines"] if each["action"] == "Charge")
    wanted = {
        "count": 6, "succeeded": 4, "failed": 1, "unknown": 4, "still_unknown": 1, "by_person": 1,
        "by_call": 1, "by_answer": 1, "unknown_done": 2, "truth": "by_key", "system": "bank",
    }  # fmt: skip
    assert {name: charge[name] for name in wanted} == wanted
    assert charge["window_max_s"] == pytest.approx(3.0)
    assert (found["external"], found["with_key"], found["key_share"]) == (6, 6, 1.0)
    text = said(capsys, "report", "--per-double", "10")
    for part in (
        "4 (66.67%)",
        "asked 1 called again 1 by a person 1 open 1",
        "100.0% of 6",
        "3.0 s",
    ):
        assert part in " ".join(text.split())
    assert "has no amount" in said(capsys, "report", "--per-double", "x", code=2)


def test_what_was_called_again_is_a_double_where_the_other_side_says_that_it_was_done(
    ledger: Ledger, rows: Rows, capsys: Out
) -> None:
    settled(ledger, Status.UNKNOWN, Status.UNKNOWN)
    rows.sql("UPDATE refold_ledger.workflow_action SET not_before = now()")
    first, second = ledger.recall("payments", Wanted("Charge", 9, 60), 600)
    ledger.settle([ended(first, already=True), ended(second)])
    (line,) = told(capsys, "report")["lines"]
    assert (line["by_call"], line["unknown_done"]) == (2, 1)


def test_the_report_counts_an_action_once_whatever_tells_its_calls_apart(
    ledger: Ledger, capsys: Out
) -> None:
    ledger.plan([intent(each, action=f"Pick.{each}") for each in range(3)], [])
    (line,) = told(capsys, "report", "--action", "Pick")["lines"]
    assert (line["action"], line["count"]) == ("Pick", 3)


def test_the_cost_of_doubles_is_scaled_to_a_year(ledger: Ledger, capsys: Out) -> None:
    settled(ledger, Status.UNKNOWN, Status.UNKNOWN)
    ledger.answer(Done(None), key=key_of(1))
    window = ("--from", "2026-01-01", "--to", "2026-01-01")
    assert told(capsys, "report", *window)["lines"] == []
    found = told(capsys, "report", "--from", "365d", "--per-double", "48")
    assert found["yearly_cost"] == pytest.approx(48, rel=0.01)
    assert told(capsys, "report")["yearly_cost"] is None
    assert "48.00 a year" in said(capsys, "report", "--from", "365d", "--per-double", "Charge=48")


def statement(folder: Path, *names: str, column: str = "key", separator: str = ",") -> str:
    file = folder / "statement.csv"
    lines = [separator.join(("date", column, "amount"))]
    lines += [separator.join(("2026-11-30", name, "48")) for name in names]
    file.write_text("\n".join(lines), encoding="utf-8")
    return str(file)


def test_compare_tells_ours_only_theirs_only_and_twice(
    ledger: Ledger, capsys: Out, tmp_path: Path
) -> None:
    settled(ledger, Status.SUCCEEDED, Status.SUCCEEDED, Status.UNKNOWN, Status.FAILED)
    file = statement(tmp_path, key_of(1), key_of(1), key_of(3), key_of(4), "nobody's", "")
    found = told(capsys, "compare", file, code=1)
    assert [each["key"] for each in found["ours_only"]] == [key_of(2)]
    assert {each["name"]: each["status"] for each in found["theirs_only"]} == {
        key_of(3): "unknown", key_of(4): "failed", "nobody's": "",
    }  # fmt: skip
    assert (found["twice"], found["both"]) == ({key_of(1): 2}, 1)
    text = said(capsys, "compare", file, code=1)
    for part in ("ours: done by the ledger", "the ledger says unknown", "the ledger has none",
                 "2 times on the statement"):  # fmt: skip
        assert part in text
    assert told(capsys, "compare", file, "--target", "mail", code=1)["ours_only"] == []


def test_compare_agrees_by_reference_too(ledger: Ledger, capsys: Out, tmp_path: Path) -> None:
    ledger.plan([intent()], [])
    (found,) = claim(ledger)
    ledger.settle([ended(found, Status.IN_FLIGHT, reference="b-1", until_s=600)])
    ledger.answer(Done(None), target="payments", reference="b-1")
    file = statement(tmp_path, "b-1", column="their id", separator=";")
    arguments = ("compare", file, "--column", "their id", "--by", "reference")
    assert told(capsys, *arguments)["both"] == 1
    assert "It has: date, their id, amount" in said(capsys, "compare", file, code=2)
    assert "cannot be read" in said(capsys, "compare", str(tmp_path / "no.csv"), code=2)


def test_compare_reads_the_ledger_page_by_page(
    ledger: Ledger, capsys: Out, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refold.executors.compare.PAGE", 2)
    settled(ledger, *[Status.SUCCEEDED] * 5)
    found = told(capsys, "compare", statement(tmp_path, key_of(4), key_of(5), key_of(1)), code=1)
    assert sorted(each["key"] for each in found["ours_only"]) == [key_of(2), key_of(3)]


def test_suspected_doubles_are_the_same_request_under_two_keys(
    ledger: Ledger, rows: Rows, capsys: Out
) -> None:
    ledger.plan([intent(1), intent(2)], [])
    ledger.plan([intent(3, request=b"other"), intent(4, instance="o-4"), intent(5)], [])
    ledger.plan([undoing(1)], [])
    rows.sql(
        "UPDATE refold_ledger.workflow_action SET planned = planned + interval '2 h' "
        "WHERE key = %s", key_of(5),
    )  # fmt: skip
    (double,) = told(capsys, "doubles")
    assert {double["key"], double["other"]} == {key_of(1), key_of(2)}
    assert len(told(capsys, "doubles", "--apart-s", "10000")) == 2
    assert f"like    {key_of(1)}" in said(capsys, "doubles")


def test_export_gives_every_action_in_both_forms(
    ledger: Ledger, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refold.cli.ledger_reports.PAGE", 2)
    settled(ledger, *[Status.SUCCEEDED] * 4)
    with ledger.action("=1+1", action="a", target="t", request={"n": 1}, truth=ByKey(600)) as call:
        call.result = {"receipt": 7}
    lines = [json.loads(line) for line in said(capsys, "export").splitlines()]
    assert len(lines) == 5
    assert (lines[-1]["request"], lines[-1]["result"]) == ('{"n":1}', '{"receipt":7}')
    assert lines[0]["cause"].startswith("/shop e")
    table = list(csv.DictReader(io.StringIO(said(capsys, "export", "--format", "csv"))))
    assert [each["status"] for each in table] == ["succeeded"] * 5
    assert table[-1]["key"] == "'=1+1"
    assert said(capsys, "export", "--action", "none") == ""


def test_prune_and_scanners(ledger: Ledger, rows: Rows, capsys: Out) -> None:
    with ledger.action("k", action="a", target="t", request=1, truth=ByKey(600)):
        pass
    ledger.scanned("payments")
    assert "0 actions" in said(capsys, "prune", "--days", "30")
    rows.sql("UPDATE refold_ledger.workflow_action SET planned = '2020-01-01', recorded = planned")
    rows.sql("UPDATE refold_ledger.workflow_action SET recorded = '2020-01-01'")
    assert "1 actions" in said(capsys, "prune", "--days", "30")
    assert [each["worker"] for each in told(capsys, "scanners")] == ["x1"]
    assert "payments" in said(capsys, "scanners")
    assert told(capsys, "rejected") == []
