"""compose.yaml and Dockerfile, held to the command line, the settings and the endpoint.

No engine is needed: every command is parsed by the real command line, every variable is a real
setting, every port and health check meets somebody who listens.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from fnmatch import fnmatch
from typing import Any, Final

import pytest
import typer
import yaml
from psycopg.conninfo import conninfo_to_dict
from tests.tree import ROOT

from refold.cli.load import load_definitions
from refold.cli.main import app
from refold.local.kafka import ONE_NODE
from refold.processors.endpoint import Endpoint
from refold.processors.health import Health
from refold.testing.servers import KAFKA_IMAGE, POSTGRES_IMAGE
from refold.topics.settings import Settings, load_settings

VARIABLE: Final = re.compile(r"\$\{(\w+):-([^}]*)\}")
DOCKER: Final = shutil.which("docker")


def _filled(text: str) -> str:
    """A value as compose reads it when nobody sets a variable."""
    return VARIABLE.sub(lambda found: found[2], text)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    text = (ROOT / "compose/compose.yaml").read_text()
    found: dict[str, Any] = yaml.safe_load(_filled(text))
    return found


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose["services"]
    return found


@pytest.fixture(scope="module")
def dockerfile() -> list[tuple[str, str]]:
    """Instructions as (word, rest), continued lines joined, comments gone."""
    text = (ROOT / "compose/Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


def _variables(dockerfile: list[tuple[str, str]]) -> dict[str, str]:
    pairs = (pair for word, rest in dockerfile if word == "ENV" for pair in shlex.split(rest))
    return dict(pair.split("=", 1) for pair in pairs)


def _last(dockerfile: list[tuple[str, str]], word: str) -> str:
    return [rest for name, rest in dockerfile if name == word][-1]


def _parse(arguments: list[str]) -> None:
    """Let the real command line take a command apart, down to the last option; run nothing."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("refold", list(arguments))
    while hasattr(command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)


OURS: Final = ("migrate", "topics", "worker")


@pytest.mark.parametrize("name", OURS)
def test_every_command_is_one_that_the_command_line_takes(
    name: str, services: dict[str, dict[str, Any]]
) -> None:
    _parse(services[name]["command"])


def test_a_command_that_does_not_exist_would_be_found() -> None:
    with pytest.raises(Exception, match="No such"):
        _parse(["topics", "creaate"])


@pytest.mark.parametrize("name", ["topics", "worker"])
def test_the_definition_that_is_run_by_default_is_there(
    name: str, services: dict[str, dict[str, Any]]
) -> None:
    assert load_definitions(services[name]["command"][-1])


@pytest.mark.parametrize("name", OURS)
def test_every_variable_of_ours_is_a_setting(
    name: str,
    services: dict[str, dict[str, Any]],
    dockerfile: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variables = {**_variables(dockerfile), **services[name]["environment"]}
    named = {key: value for key, value in variables.items() if key.startswith("REFOLD_")}
    for key in [key for key in os.environ if key.startswith("REFOLD_")]:
        monkeypatch.delenv(key)
    for key, value in named.items():
        section, _, field = key.removeprefix("REFOLD_").lower().partition("_")
        assert field in Settings.model_fields[section].annotation.model_fields  # type: ignore[union-attr]
        monkeypatch.setenv(key, value)
    settings = load_settings()
    assert settings.kafka.bootstrap == named["REFOLD_KAFKA_BOOTSTRAP"]
    assert settings.postgres.dsn == named["REFOLD_POSTGRES_DSN"]
    assert settings.worker.http_port == int(named["REFOLD_WORKER_HTTP_PORT"])


def test_the_settings_lead_to_the_servers_beside_them(
    services: dict[str, dict[str, Any]],
) -> None:
    settings = services["worker"]["environment"]
    kafka = services["kafka"]["environment"]
    advertised = [each.split("://")[1] for each in kafka["KAFKA_ADVERTISED_LISTENERS"].split(",")]
    assert settings["REFOLD_KAFKA_BOOTSTRAP"] in advertised
    postgres = services["postgres"]["environment"]
    dsn = conninfo_to_dict(settings["REFOLD_POSTGRES_DSN"])
    assert dsn["host"] in services
    assert (dsn["user"], dsn["dbname"]) == (postgres["POSTGRES_USER"], postgres["POSTGRES_DB"])
    assert settings["PGPASSWORD"] == postgres["POSTGRES_PASSWORD"]


def test_the_broker_of_compose_is_set_as_the_local_one(
    services: dict[str, dict[str, Any]],
) -> None:
    kafka = services["kafka"]["environment"]
    own = {"listener.security.protocol.map", "broker.session.timeout.ms"}
    own.add("broker.heartbeat.interval.ms")
    expected = {
        f"KAFKA_{name.upper().replace('.', '_')}": value
        for name, value in ONE_NODE.items()
        if name not in own
    }
    assert {name: kafka.get(name) for name in expected} == expected


def test_images_are_those_that_the_tests_run_against(
    services: dict[str, dict[str, Any]],
) -> None:
    assert services["kafka"]["image"] == KAFKA_IMAGE
    assert services["postgres"]["image"] == POSTGRES_IMAGE


def test_every_published_port_has_a_listener_and_stays_on_this_machine(
    services: dict[str, dict[str, Any]],
) -> None:
    kafka = services["kafka"]["environment"]["KAFKA_LISTENERS"]
    listening = {"kafka": set(re.findall(r":(\d+)", kafka)), "postgres": {"5432"}}
    for name, service in services.items():
        for published in service.get("ports", ()):
            address, _, inside = published.split(":")
            assert address == "127.0.0.1"
            assert inside in listening[name]


def test_the_health_check_asks_what_a_worker_answers(
    services: dict[str, dict[str, Any]], dockerfile: list[tuple[str, str]]
) -> None:
    in_image = json.loads(_last(dockerfile, "HEALTHCHECK").split("CMD ", 1)[1])
    test = services["worker"]["healthcheck"]["test"]
    assert test == ["CMD", *in_image]
    found = re.search(r"http://127\.0\.0\.1:(\d+)(/\w+)", in_image[-1])
    assert found
    assert found[1] == _variables(dockerfile)["REFOLD_WORKER_HTTP_PORT"]
    assert found[1] == _last(dockerfile, "EXPOSE")
    endpoint = Endpoint(Health("w1"), "127.0.0.1", 0)
    endpoint.start()
    try:
        code = in_image[-1].replace(f":{found[1]}/", f":{endpoint.port}/")
        subprocess.run(["python", "-c", code], check=True, timeout=30)
        lost = subprocess.run(
            ["python", "-c", code.replace(found[2], "/nobody")],
            check=False,
            capture_output=True,
            timeout=30,
        )
        assert lost.returncode != 0
    finally:
        endpoint.close()


def test_every_service_is_waited_for_by_what_it_can_show(
    services: dict[str, dict[str, Any]],
) -> None:
    for service in services.values():
        for name, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "test" in services[name]["healthcheck"]
            else:
                assert services[name]["restart"].startswith("on-failure")


def test_every_volume_is_declared_and_used(compose: dict[str, Any]) -> None:
    used = {
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", ())
    }
    assert {name for name in used if "/" not in name} == set(compose["volumes"])


def test_the_image_runs_without_rights(
    dockerfile: list[tuple[str, str]], services: dict[str, dict[str, Any]]
) -> None:
    user = _last(dockerfile, "USER").split(":")[0]
    assert user not in {"root", "0"}
    words = [word for word, _ in dockerfile]
    assert words.index("USER") > max(i for i, word in enumerate(words) if word == "COPY")
    assert services["worker"]["cap_drop"] == ["ALL"]


def test_everything_that_is_copied_is_there_and_not_ignored(
    dockerfile: list[tuple[str, str]],
) -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    stages = {
        rest.split(" AS ")[1] for word, rest in dockerfile if word == "FROM" and " AS " in rest
    }
    for rest in (rest for word, rest in dockerfile if word == "COPY"):
        parts = rest.split()
        if parts[0].startswith("--from="):
            assert parts[0].removeprefix("--from=") in stages
            continue
        for source in parts[:-1]:
            assert (ROOT / source).exists()
            assert not any(fnmatch(source, pattern) for pattern in ignored)


def test_every_package_is_copied(dockerfile: list[tuple[str, str]]) -> None:
    copied = {part for word, rest in dockerfile if word == "COPY" for part in rest.split()[:-1]}
    links = {
        os.readlink(path).removeprefix("../../")
        for path in (ROOT / "src/refold").iterdir()
        if path.is_symlink()
    }
    assert links <= copied


def test_the_runtime_lock_is_a_part_of_the_lock() -> None:
    pinned = re.compile(r"^[\w.-]+==[^\s;\\]+", re.MULTILINE)
    whole = set(pinned.findall((ROOT / "requirements.lock").read_text()))
    part = set(pinned.findall((ROOT / "compose/runtime.lock").read_text()))
    assert part
    assert part <= whole


def _has_compose() -> bool:
    if DOCKER is None:
        return False
    asked = subprocess.run(
        [DOCKER, "compose", "version"], capture_output=True, check=False, timeout=30
    )
    return asked.returncode == 0


@pytest.mark.skipif(not _has_compose(), reason="no docker compose on this machine")
def test_docker_compose_itself_takes_the_file() -> None:
    subprocess.run(
        [str(DOCKER), "compose", "-f", "compose/compose.yaml", "config", "--quiet"],
        cwd=ROOT,
        check=True,
        timeout=60,
    )
