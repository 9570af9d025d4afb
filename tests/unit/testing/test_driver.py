"""The driver with several versions, and a history folded by another version than its own."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.operating.fragile import both, first, second

from refold import Workflow
from refold.examples.order.graph import Charged, OrderPlaced, Reserved
from refold.processors.definition import Buildable, Definition
from refold.schemas.errors import Code, FenceError, UsageError
from refold.testing.driver import Driver

PAGE = (Path(__file__).parents[3] / "docs" / "upgrade.md").read_text()
BLOCKS = re.findall(r"^ *```python no-run\n(.*?)^ *```$", PAGE, re.MULTILINE | re.DOTALL)


def lived(total: int) -> Driver:
    """An order under version 1, as the live system would have folded it."""
    driver = Driver(first, tenant="acme")
    driver.send("order-1001", OrderPlaced(items=("pen",), total=total))
    driver.send("order-1001", Reserved())
    driver.send("order-1001", Charged(receipt="r-1"))
    return driver


@pytest.mark.parametrize(
    "given",
    [list, tuple, lambda versions: Workflow("order", versions)],
    ids=["list", "tuple", "workflow"],
)
def test_a_driver_takes_several_versions_and_begins_with_the_highest(
    given: Callable[[list[Definition | Buildable]], Any],
) -> None:
    driver = Driver(given(list(both)))
    assert list(driver.workflow.versions) == [1, 2]
    driver.send("o", OrderPlaced(items=(), total=13))
    assert driver.instance("o").definition == 2


def test_a_driver_without_any_version_says_what_it_needs() -> None:
    with pytest.raises(UsageError, match="no version") as refused:
        Driver([])
    assert refused.value.code is Code.DEFINITION_NOT_FOUND


def test_a_history_folds_as_it_was_decided_with_the_versions_that_it_used() -> None:
    was = lived(13)
    again = Driver.from_history(both, was.history())
    assert again.verdicts() == was.verdicts() == ["parked", "parked", "parked"]
    assert again.hash() == was.hash()
    with pytest.raises(FenceError) as missing:
        Driver.from_history(second, was.history())
    assert missing.value.code is Code.DEFINITION_MISSING


def test_a_history_is_tried_with_the_new_version_alone_which_decides_afresh() -> None:
    tried = Driver.from_history(second, lived(13).history(), active=2)
    assert tried.verdicts() == ["applied", "applied", "applied"]
    tried.check_replay()


def test_the_code_of_the_upgrade_page_tries_a_history_with_the_new_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = lived(13).history()
    Path("order-1001.jsonl").write_text("\n".join(lines) + "\n")
    (block,) = [each for each in BLOCKS if "from_history" in each]
    code = "\n".join(line.removeprefix("   ") for line in block.splitlines())
    names: dict[str, Any] = {"order_1": first, "order_2": second}
    exec(compile(code, "docs/upgrade.md", "exec"), names)
    assert names["tried"].instance("order-1001", tenant="acme").definition == 2
