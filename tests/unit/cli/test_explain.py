"""The page of an error code is at hand wherever refold is installed."""

import pytest

from refold.cli.explain import page
from refold.cli.main import run
from refold.schemas.errors import Code


@pytest.mark.parametrize("code", Code)
def test_every_code_is_explained_with_its_page(code: Code) -> None:
    text = page(code)
    assert text.startswith(f"# {code}\n")
    assert "## What to do" in text
    assert "](" not in text, "a link that leads nowhere"


def test_a_code_is_explained_in_any_case_of_letters(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "offsets_moved"]) == 0
    assert capsys.readouterr().out.startswith("# OFFSETS_MOVED\n")


def test_without_a_code_every_one_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain"]) == 0
    told = capsys.readouterr().out
    assert all(f"| {code} |" in told for code in Code)


def test_a_code_that_there_is_not_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["explain", "OFFSETS_MOVD"]) == 2
    assert "Did you mean OFFSETS_MOVED?" in capsys.readouterr().err
