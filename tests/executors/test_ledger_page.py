"""docs/ledger.md is true: its code runs on real servers, its table has the columns there are."""

import re

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser
from tests.executors.rows import Rows
from tests.kafka.worker.stage import Stage, header
from tests.tree import ROOT

from refold.executors.migrate import migrate_ledger

PAGE = ROOT / "docs" / "ledger.md"


@pytest.mark.kafka
@pytest.mark.postgres
def test_the_code_of_the_page_runs(one: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFOLD_NAMESPACE", one.namespace)
    monkeypatch.setenv("REFOLD_KAFKA_BOOTSTRAP", one.bootstrap)
    monkeypatch.setenv("REFOLD_EXECUTOR_DSN", one.dsn)
    migrate_ledger(one.dsn)
    document = Sybil([PythonCodeBlockParser()], pattern="*.md", path=str(ROOT)).parse(PAGE)
    document.namespace["__name__"] = "page"
    for example in document.examples():
        example.evaluate()
    document.namespace["relay"].close()
    document.namespace["book"].close()
    assert [message.key() for message in one.committed("events")] == [b"o-9"]
    assert header(one.committed("events")[0], "ce_source") == "/shop/checkout"


@pytest.mark.postgres
def test_the_page_names_every_column_and_every_table(rows: Rows) -> None:
    told = PAGE.read_text().partition("## The table")[2]
    columns = rows.sql(
        "SELECT column_name FROM information_schema.columns "
        "WHERE table_schema = 'refold_ledger' AND table_name = 'workflow_action'"
    )
    named = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", told, re.MULTILINE))))
    assert named == {name for (name,) in columns}
    tables = rows.sql(
        "SELECT table_name FROM information_schema.tables "
        "WHERE table_schema = 'refold_ledger' AND table_name LIKE 'workflow_%%'"
    )
    assert {name for (name,) in tables} == set(re.findall(r"\bworkflow_\w+", told))
