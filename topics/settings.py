"""Every setting once: `REFOLD_*` in the environment over `refold.toml`, checked when loaded.

Law of this module: settings are read here and nowhere else, are frozen, and are shown without
secrets. The clients' own options stand in `refold.topics.clients`.

    namespace = "refold"                     REFOLD_NAMESPACE
    [kafka]    bootstrap, the clients' own   REFOLD_KAFKA_BOOTSTRAP, REFOLD_KAFKA_SASL_PASSWORD …
    [kafka.producer] [kafka.consumer]        REFOLD_KAFKA_PRODUCER_LINGER_MS …
    [postgres] dsn, …                        REFOLD_POSTGRES_DSN
    [worker]   group, budgets, sizes         REFOLD_WORKER_GROUP …
    [schemas]  format, registry              REFOLD_SCHEMAS_REGISTRY …
"""

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from refold.schemas.errors import Code, UsageError, nearest
from refold.schemas.limits import name_fault

FILE: Final = "refold.toml"
HIDDEN: Final = "(hidden)"
_SECRET: Final = re.compile(r"password|secret|token|credential|\.pem$|jaas|oauthbearer\.config")
_USERINFO: Final = re.compile(r"(?<=://)([^:/@\s]*):([^@\s]*)@|(?<=password=)('[^']*'|\S+)")

Option: TypeAlias = str | int | float | bool


def _name(text: str) -> str:
    fault = name_fault(text)
    if fault:
        raise ValueError(fault)
    return text


Name = Annotated[str, AfterValidator(_name)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Kafka(BaseModel):
    """The cluster, and the clients' own options, which pass through under their own names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bootstrap: str = "localhost:9092"
    """`host:port`, several joined by commas."""
    options: Mapping[str, Option] = Field(default_factory=dict)
    """For every client: security, addresses, timeouts, by librdkafka's names."""
    producer: Mapping[str, Option] = Field(default_factory=dict)
    """For producers only."""
    consumer: Mapping[str, Option] = Field(default_factory=dict)
    """For consumers only."""

    @model_validator(mode="before")
    @classmethod
    def _sort(cls, given: Any) -> Any:
        """Put what is no field of ours where the clients' options go, dots restored."""
        if not isinstance(given, Mapping):
            return given
        sorted_: dict[str, Any] = {"options": {}, "producer": {}, "consumer": {}}
        for name, value in given.items():
            if name == "bootstrap":
                sorted_[name] = value
            elif name in {"options", "producer", "consumer"}:
                sorted_[name].update(_flat(value))
            elif name.startswith(("producer_", "consumer_")):
                role, _, rest = name.partition("_")
                sorted_[role][rest.replace("_", ".")] = value
            else:
                sorted_["options"].update(_flat({name.replace("_", "."): value}))
        return sorted_


class Postgres(_Section):
    """The database that keeps snapshots, markers and rows."""

    dsn: str = "postgresql://localhost:5432/refold"
    """libpq connection string; a password is better in PGPASSWORD or a passfile."""


class Worker(_Section):
    """How a worker works. Nothing here can change a verdict (P14)."""

    group: str = ""
    """Consumer group; empty: `<namespace>.workers`."""
    group_protocol: Literal["classic", "consumer"] = "classic"
    """`consumer` (KIP-848) where the broker allows a short session."""
    session_timeout_ms: Annotated[int, Field(ge=100, le=1_800_000)] = 6_000
    """A dead worker is noticed after this; brokers allow 6 s and more unless set otherwise."""
    batch_records: Annotated[int, Field(ge=1, le=100_000)] = 5_000
    """Most records of one transaction."""
    batch_ms: Annotated[int, Field(ge=1, le=10_000)] = 100
    """A batch closes after so many records or milliseconds, or when the queue is empty."""
    transaction_pause_ms: Annotated[int, Field(ge=0, le=1_000)] = 3
    """A transaction begins no sooner than this after the last one ended (P10)."""
    transaction_timeout_ms: Annotated[int, Field(ge=1_000, le=900_000)] = 15_000
    """The broker aborts a transaction that is open for longer."""
    freshness_s: Annotated[float, Field(gt=0, le=3_600)] = 2.0
    """Instance rows and event-log index lag the fold by at most this."""
    activate: Literal["highest", "manual"] = "highest"
    """Version that new instances begin with: the highest that the worker has, or the one that
    `refold definitions activate` chose, for rolling deploys."""
    takeover_budget_s: Annotated[float, Field(gt=0, le=3_600)] = 2.0
    """Snapshots are written often enough that a successor needs at most this."""
    http_host: str = "127.0.0.1"
    """Address of the health endpoint; keep it inside the cluster."""
    http_port: Annotated[int, Field(ge=-1, le=65_535)] = -1
    """/livez, /readyz, /status and /metrics; 0 takes a free port, -1 serves none."""
    snapshot_max_age_s: Annotated[float, Field(gt=0, le=86_400)] = 30.0
    """A partition with unsaved state is saved at least that often."""
    rows: bool = True
    """Write instance rows and the event-log index; without them only snapshots are written."""
    timer_records: Annotated[int, Field(ge=1, le=10_000)] = 500
    """Most timers of one transaction. When many are due at once, other records wait behind at most
    twice as many."""
    accept_finite_retention: bool = False
    """Run although the broker deletes events: a rebuild from offset 0 will not be possible."""
    preflight_s: Annotated[float, Field(ge=1.0, le=3_600)] = 10.0
    """The checks of the start are made again after this."""


class Schemas(_Section):
    """How values are framed. Both framings are read, whichever is written."""

    format: Literal["single-object", "confluent"] = "single-object"
    """`confluent`: a schema registry gives the ids that stand before each value."""
    registry: str = ""
    """Address of the registry, `https://…`; needed for `confluent`."""
    user: str = ""
    """Name to sign in with; empty: nobody."""
    password: str = ""
    """Its password."""
    token: str = ""
    """Bearer token, in place of a user."""
    ca: str = ""
    """PEM file of certificates to trust; empty: the system's."""
    register_schemas: bool = True
    """Register own schemas; false: they are looked up, somebody else registers them."""
    timeout_s: Annotated[float, Field(ge=0.1, le=60)] = 2.0
    """Longest wait for one answer of the registry; what needs it is put back and tried again."""

    @model_validator(mode="after")
    def _complete(self) -> "Schemas":
        if self.format == "confluent" and not self.registry:
            raise ValueError("format confluent needs registry")
        return self


class Executor(_Section):
    """Of executors."""

    dsn: str = ""
    """Database of the ledger; empty: that of `postgres.dsn`."""
    group: str = ""
    """Consumer group; empty: `<namespace>.<target>.executors`."""
    session_timeout_ms: Annotated[int, Field(ge=100, le=1_800_000)] = 6_000
    """A dead executor is noticed after this, and others read its commands."""
    grace_s: Annotated[float, Field(ge=0, le=3_600)] = 20.0
    """After SIGTERM, calls that end within this are recorded; keep it below the time after which
    the process is killed."""
    stuck_after_s: Annotated[float, Field(gt=0, le=86_400)] = 600.0
    """An action that is in flight or unknown for longer is stuck: shown, and told."""
    horizon_days: Annotated[float, Field(ge=1, le=36_500)] = 400.0
    """Keys are remembered for so long after their end: longer than any instance lives."""
    http_host: str = "127.0.0.1"
    """Address of the health endpoint; keep it inside the cluster."""
    http_port: Annotated[int, Field(ge=-1, le=65_535)] = -1
    """/livez, /readyz, /status and /metrics; 0 takes a free port, -1 serves none."""


class Settings(BaseSettings):
    """All settings of one process."""

    model_config = SettingsConfigDict(
        env_prefix="REFOLD_",
        env_nested_delimiter="_",
        env_nested_max_split=1,
        frozen=True,
        extra="forbid",
    )

    namespace: Name = "refold"
    """First part of every topic's name; each namespace needs a database schema of its own."""
    kafka: Kafka = Kafka()
    postgres: Postgres = Postgres()
    worker: Worker = Worker()
    schemas: Schemas = Schemas()
    executor: Executor = Executor()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments over environment over file; no .env, no secrets directory."""
        path = _file()
        file = (TomlConfigSettingsSource(settings_cls, path),) if path else ()
        return (init_settings, env_settings, *file)

    @property
    def ledger_dsn(self) -> str:
        """Connection string of the ledger's database."""
        return self.executor.dsn or self.postgres.dsn

    @property
    def group(self) -> str:
        """Consumer group of the workers."""
        return self.worker.group or f"{self.namespace}.workers"


def load_settings(**overrides: Any) -> Settings:
    """The settings of this process.

    Args:
        overrides: Values that stand above environment and file, as from a command line.

    Raises:
        UsageError: BAD_SETTING, naming the setting, what was found, and what is allowed.
    """
    _check_variables()
    try:
        return Settings(**overrides)
    except ValidationError as error:
        faults = error.errors(include_input=False, include_url=False)
        raise UsageError(
            Code.BAD_SETTING,
            f"settings: {'; '.join(map(_fault, faults))}.",
            "Correct it where it stands; `refold config show` lists every setting.",
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            Code.BAD_SETTING, f"{_file()}: {error}.", "Mend the file; it is TOML."
        ) from None


def _fault(fault: Any) -> str:
    """One finding of pydantic: the setting, where it stands, and what it may have meant."""
    parts = [str(part) for part in fault["loc"]]
    section, name = (parts[0], parts[1]) if len(parts) > 1 else ("", parts[0])
    told = f"{'.'.join(parts)} ({place_of(section, name)})"
    if fault["type"] != "extra_forbidden":
        return f"{told}: {fault['msg']}"
    return f"{told} is no setting. {nearest(name, _names(section))}".rstrip(" .")


def _names(section: str) -> Iterable[str]:
    shape = Settings.model_fields[section].annotation if section else Settings
    return shape.model_fields if isinstance(shape, type) and issubclass(shape, BaseModel) else ()


def place_of(section: str, name: str) -> str:
    """Where a setting was set: its variable, which stands above the file, or the file."""
    parts = (section, name) if section else (name,)
    variable = f"REFOLD_{'_'.join(parts)}".replace(".", "_").upper()
    path = _file()
    if variable in {each.upper() for each in os.environ} or path is None:
        return variable
    return str(path)


def _check_variables() -> None:
    """Refuse a misspelt first word: pydantic looks at no variable that it does not know.

    Others that begin with REFOLD_ are left alone: container platforms set such ones.
    """
    known = [*Settings.model_fields, "config", "definitions"]
    for variable in os.environ:
        first = variable.lower().removeprefix("refold_").split("_")[0]
        if variable.upper().startswith("REFOLD_") and first not in known:
            near = get_close_matches(first, known, n=1, cutoff=0.8)
            if near:
                meant = f"REFOLD_{near[0].upper()}{variable[len('REFOLD_') + len(first) :]}"
                raise UsageError(
                    Code.BAD_SETTING,
                    f"the variable {variable} is no setting.",
                    f"Did you mean {meant}? Rename it, or unset it.",
                )


def show(settings: Settings) -> Iterator[tuple[str, str]]:
    """Every setting as (name, value), secrets hidden; for `refold config show`."""
    for section, value in settings.model_dump().items():
        if isinstance(value, Mapping):
            flat = {**value, **value.get("options", {})}
            for name, setting in _flat(flat).items():
                if not name.startswith("options."):
                    yield f"{section}.{name}", hidden(name, setting)
        else:
            yield section, str(value)


def hidden(name: str, value: object) -> str:
    """A setting's value as it may be shown: secrets and passwords inside addresses hidden."""
    if _SECRET.search(name.lower()):
        return HIDDEN
    return _USERINFO.sub(lambda found: HIDDEN if found[3] else f"{found[1]}:{HIDDEN}@", str(value))


def _file() -> Path | None:
    """REFOLD_CONFIG, else refold.toml in the working directory when it exists."""
    named = os.environ.get("REFOLD_CONFIG")
    if named and not Path(named).is_file():
        raise UsageError(
            Code.BAD_SETTING,
            f"REFOLD_CONFIG names {named}, which is no file.",
            f"Name a TOML file that is there, or unset it: then {FILE} of the working directory"
            " is read, if there is one.",
        )
    path = Path(named or FILE)
    return path if path.is_file() else None


def _flat(given: Mapping[str, Any], prefix: str = "") -> dict[str, Option]:
    """Dotted names from TOML's nested tables: `security.protocol` is one option."""
    flat: dict[str, Option] = {}
    for name, value in given.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat
