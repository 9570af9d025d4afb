"""Several worker processes are what one would be, each with the same command line."""

from typing import Any

import pytest
import typer

from refold.cli import worker as command
from refold.cli.logs import Level
from refold.cli.main import run
from refold.cli.supervisor import Child, _start


def test_every_option_of_a_worker_reaches_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(command, "configure", lambda level: None)
    monkeypatch.setattr(command, "load_workflows", lambda definitions: {})

    def supervised(*all_of_it: Any) -> int:
        given.append(all_of_it)
        return 0

    monkeypatch.setattr(command, "supervise", supervised)
    told = {"--log-level": Level.DEBUG.value}
    line = [word for name, value in told.items() for word in (name, value)]
    assert run(["worker", "a:b", "c:d", "--processes", "3", *line]) == 0
    ((arguments, processes, _),) = given
    assert (processes, list(arguments)) == (3, ["a:b", "c:d", *line])
    params = typer.main.get_command(command.app).params
    known = {name for each in params for name in each.opts if not name.endswith("-completion")}
    assert known - {"definitions", "--processes"} == set(told), "an option that nobody passes on"


@pytest.mark.parametrize(("port", "given"), [(8080, "8082"), (0, "0"), (-1, "-1")])
def test_each_process_has_a_port_of_its_own_or_none(
    port: int, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, str]] = []

    def started(command_line: list[str], env: dict[str, str]) -> None:
        seen.append(env)

    monkeypatch.setattr("refold.cli.supervisor.subprocess.Popen", started)
    _start(Child(2), ["worker", "a:b"], port)
    assert seen[0]["REFOLD_WORKER_HTTP_PORT"] == given
