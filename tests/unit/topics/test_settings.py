from collections.abc import Callable
from pathlib import Path

import pytest

from refold.processors.clients import KafkaClients
from refold.schemas.errors import Code, UsageError
from refold.topics.clients import (
    Config,
    admin_config,
    executor_consumer_config,
    publisher_config,
    reader_config,
    transactional_producer_config,
    worker_consumer_config,
)
from refold.topics.settings import Settings, load_settings, show

FILE = """
namespace = "acme"
[kafka]
bootstrap = "one:9092,two:9092"
security.protocol = "SASL_SSL"
"sasl.password" = "hunter2"
[kafka.producer]
"linger.ms" = 7
[postgres]
dsn = "postgresql://worker:hunter2@db/refold"
[worker]
batch_records = 100
"""

Write = Callable[[str], None]


@pytest.fixture(autouse=True)
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """An empty working directory, and a way to put refold.toml into it."""
    monkeypatch.chdir(tmp_path)
    for name in ("REFOLD_KAFKA_BOOTSTRAP", "REFOLD_POSTGRES_DSN", "REFOLD_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)

    def write_file(text: str) -> None:
        (tmp_path / "refold.toml").write_text(text)

    return write_file


def roles(settings: Settings) -> dict[str, Config]:
    return {
        "worker": worker_consumer_config(settings),
        "reader": reader_config(settings),
        "executor": executor_consumer_config(settings, "g"),
        "producer": transactional_producer_config(settings, "t"),
        "publisher": publisher_config(settings),
        "admin": admin_config(settings),
    }


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as caught:
        act()
    assert caught.value.code == Code.BAD_SETTING
    return str(caught.value)


def test_the_environment_stands_above_the_file(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(FILE)
    monkeypatch.setenv("REFOLD_KAFKA_BOOTSTRAP", "three:9092")
    monkeypatch.setenv("REFOLD_KAFKA_SASL_USERNAME", "joe")
    monkeypatch.setenv("REFOLD_KAFKA_PRODUCER_BATCH_SIZE", "99")
    monkeypatch.setenv("REFOLD_WORKER_SESSION_TIMEOUT_MS", "700")
    settings = load_settings()
    assert (settings.namespace, settings.group) == ("acme", "acme.workers")
    assert settings.kafka.bootstrap == "three:9092"
    assert (settings.worker.batch_records, settings.worker.session_timeout_ms) == (100, 700)
    for config in roles(settings).values():
        assert config["bootstrap.servers"] == "three:9092"
        assert (config["security.protocol"], config["sasl.username"]) == ("SASL_SSL", "joe")
    producer = roles(settings)["producer"]
    assert (producer["linger.ms"], producer["batch.size"]) == (7, "99")


def test_without_file_and_environment_the_defaults_stand() -> None:
    settings = load_settings()
    assert (settings.namespace, settings.kafka.bootstrap) == ("refold", "localhost:9092")
    assert settings.worker.session_timeout_ms == 6_000


def test_secrets_are_never_shown(write: Write) -> None:
    write(FILE + '\n[kafka.consumer]\n"ssl.key.password" = "hunter2"\n')
    shown = dict(show(load_settings()))
    assert "hunter2" not in str(shown)
    assert shown["postgres.dsn"] == "postgresql://worker:(hidden)@db/refold"
    assert shown["kafka.sasl.password"] == "(hidden)"
    assert shown["kafka.producer.linger.ms"] == "7"


@pytest.mark.parametrize(
    "dsn", ["host=db password=hunter2 user=u", "host=db password='hunter2 x' user=u"]
)
def test_a_password_among_words_is_hidden_too(dsn: str) -> None:
    shown = dict(show(load_settings(postgres={"dsn": dsn})))
    assert "hunter2" not in shown["postgres.dsn"]
    assert "host=db" in shown["postgres.dsn"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('namespace = "a.b"', "namespace"),
        ("[worker]\nbatch_records = 0", "worker.batch_records"),
        ("[worker]\nbatch_size = 1", "worker.batch_size"),
        ("[worker]\nbatch_record = 1", "(refold.toml) is no setting. Did you mean batch_records?"),
        ("[postgres]\nurl = 'x'", "postgres.url"),
        ("[kafka", "refold.toml"),
    ],
)
def test_a_wrong_setting_is_named(write: Write, text: str, said: str) -> None:
    write(text)
    assert said in refusal(load_settings)


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("REFOLD_WORKER_GROP", "(REFOLD_WORKER_GROP) is no setting. Did you mean group?"),
        ("REFOLD_NAMESPCE", "Did you mean REFOLD_NAMESPACE?"),
        ("REFOLD_WORKERS_GROUP", "Did you mean REFOLD_WORKER_GROUP?"),
    ],
)
def test_a_misspelt_variable_is_named(
    variable: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "x")
    assert said in refusal(load_settings)


def test_variables_of_a_container_platform_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFOLD_PORT_8080_TCP", "tcp://10.0.0.1:8080")
    assert load_settings().namespace == "refold"


def test_an_option_that_the_client_does_not_know_is_named_with_what_was_meant(
    write: Write,
) -> None:
    write('[kafka]\nbootsrap = "x"')
    said = refusal(KafkaClients(load_settings()).admin)
    assert "bootsrap (refold.toml)" in said
    assert "Did you mean bootstrap?" in said


def test_a_file_that_is_named_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFOLD_CONFIG", "nowhere.toml")
    assert "nowhere.toml" in refusal(load_settings)


@pytest.mark.parametrize(
    ("role", "section", "name", "value"),
    [
        ("producer", "producer", "enable.idempotence", False),
        ("publisher", "producer", "enable.idempotence", False),
        ("publisher", "producer", "acks", "1"),
        ("publisher", "producer", "request.required.acks", 0),
        ("publisher", "options", "acks", "0"),
        ("publisher", "producer", "partitioner", "consistent_random"),
        ("producer", "producer", "transactional.id", "mine"),
        ("producer", "producer", "max.in.flight", 10),
        ("worker", "consumer", "isolation.level", "read_uncommitted"),
        ("worker", "consumer", "enable.auto.commit", True),
        ("worker", "consumer", "auto.offset.reset", "latest"),
        ("worker", "consumer", "partition.assignment.strategy", "range"),
        ("worker", "options", "metadata.broker.list", "other:9092"),
        ("executor", "consumer", "isolation.level", "read_uncommitted"),
        ("admin", "options", "allow.auto.create.topics", True),
    ],
)
def test_what_the_protocol_fixes_cannot_be_set_and_the_reason_is_told_b013(
    role: str, section: str, name: str, value: object
) -> None:
    settings = load_settings(kafka={section: {name: value}})
    said = refusal(lambda: roles(settings))
    assert name in said
    assert "cannot be set:" in said
    assert role in roles(load_settings())


def test_a_transaction_is_quick_and_a_dead_one_short() -> None:
    config = roles(load_settings())["producer"]
    assert (config["retry.backoff.ms"], config["retry.backoff.max.ms"]) == (1, 5)
    assert config["transaction.timeout.ms"] == 15_000
    assert config["partitioner"] == "murmur2_random"


def test_the_new_group_protocol_takes_no_client_side_session() -> None:
    config = roles(load_settings(worker={"group_protocol": "consumer"}))["worker"]
    assert config["group.protocol"] == "consumer"
    assert not {"session.timeout.ms", "partition.assignment.strategy"} & set(config)
