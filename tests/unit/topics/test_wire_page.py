import re
from pathlib import Path

import pytest

from refold.topics.partition import VECTORS
from refold.topics.records import COMMAND_HEADERS, EVENT_HEADERS

PAGE = (Path(__file__).parents[3] / "docs" / "wire.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows(title: str) -> list[list[str]]:
    lines = [line for line in section(title).splitlines() if line.startswith("| `")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_lists_the_headers_that_are_read_and_written() -> None:
    assert {row[0] for row in rows("To publish an event")} == EVENT_HEADERS
    assert {row[0] for row in rows("To execute commands")} == COMMAND_HEADERS


def test_the_vectors_of_the_page_are_those_of_the_code() -> None:
    told = [
        (row[0].encode(), int(row[1]), int(row[2]))
        for row in rows("Topics")
        if len(row) == 3 and row[1].isdecimal()
    ]
    assert len(told) >= 8
    assert set(told) <= set(VECTORS)


@pytest.mark.parametrize("block", BLOCKS)
def test_the_code_of_the_page_runs(block: str) -> None:
    exec(compile(block, "docs/wire.md", "exec"), {})


def test_the_page_has_code_to_run() -> None:
    assert len(BLOCKS) == 2
