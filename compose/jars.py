"""Kafka's jars: downloaded once, checked against the lock file at every start.

Law of this module: a jar whose SHA-256 is not the one in `kafka.lock` never runs. The lock holds
coordinates and digests, no addresses: jgo knows where Maven artifacts live.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from filelock import FileLock

from refold.local.server import disk_errors
from refold.schemas.errors import Code, ServerError

ROOTS: Final = (
    "org.apache.kafka:kafka_2.13:4.1.1",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
)
"""What is resolved for the lock: the broker, and the logger that it speaks to."""
DOWNLOAD_TIMEOUT_S: Final = 30
"""For one answer of the repository, not for the whole download."""
LOCK_TIMEOUT_S: Final = 600.0
"""Another program that downloads the same jars is waited for that long."""

Progress = Callable[[int, int, str], None]
"""Called with jars done, jars in all, and the name of the jar at hand."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the lock: Maven coordinates and the SHA-256 of the file."""

    group: str
    artifact: str
    version: str
    sha256: str

    @classmethod
    def parse(cls, line: str) -> "Jar":
        """Read `group:artifact:version sha256`."""
        coordinates, sha256 = line.split()
        group, artifact, version = coordinates.split(":")
        return cls(group, artifact, version, sha256)

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    def path(self, cache: Path) -> Path:
        """Where a Maven cache keeps it."""
        folder = cache.joinpath(*self.group.split("."), self.artifact, self.version)
        return folder / f"{self.artifact}-{self.version}.jar"

    def is_whole(self, cache: Path) -> bool:
        """Whether the file is there and is the one of the lock."""
        path = self.path(cache)
        return path.is_file() and _sha256(path) == self.sha256


def locked_jars() -> list[Jar]:
    """The jars of the committed lock file."""
    text = files("refold.local").joinpath("kafka.lock").read_text()
    return [Jar.parse(line) for line in text.splitlines() if line and not line.startswith("#")]


def ensure_jars(
    cache: Path, progress: Progress | None = None, jars: Iterable[Jar] | None = None
) -> list[Path]:
    """The paths of all jars, after the missing and the damaged ones were downloaded.

    Works without a network when all are there.

    Args:
        cache: Folder of a Maven cache of our own.
        progress: Told about each jar, when anything has to be downloaded.
        jars: Other jars than those of the lock file.

    Raises:
        ServerError: LOCAL_DOWNLOAD when a jar cannot be had or is not the locked one, LOCAL_DISK.
    """
    jars = locked_jars() if jars is None else list(jars)
    with disk_errors(cache):
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(cache / ".lock", timeout=LOCK_TIMEOUT_S):
            missing = [jar for jar in jars if not jar.is_whole(cache)]
            for done, jar in enumerate(missing):
                if progress:
                    progress(done, len(missing), str(jar))
                _download(jar, cache)
    return [jar.path(cache) for jar in jars]


def _download(jar: Jar, cache: Path) -> None:
    path = jar.path(cache)
    path.unlink(missing_ok=True)  # half of an earlier download, or damaged since
    try:
        _fetch(jar, cache)
    except OSError as error:
        if getattr(error, "response", None) is None and error.errno is not None:
            raise  # the disk, not the network
        raise _no_download(jar, str(error)) from error
    except Exception as error:  # jgo and its HTTP client raise many kinds, all mean the same here
        raise _no_download(jar, str(error)) from error
    if not jar.is_whole(cache):
        found = _sha256(path)
        path.unlink()
        raise ServerError(
            Code.LOCAL_DOWNLOAD,
            f"{jar} was downloaded, but its SHA-256 is {found} instead of {jar.sha256}.",
            "Do not run it: find out what changed it between Maven's repository and here.",
        )


def _fetch(jar: Jar, cache: Path) -> None:
    from jgo.maven import MavenContext  # noqa: PLC0415 - slow to import, needed only to download

    context = MavenContext(repo_cache=cache, timeout=DOWNLOAD_TIMEOUT_S)
    context.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve()


def _no_download(jar: Jar, reason: str) -> ServerError:
    return ServerError(
        Code.LOCAL_DOWNLOAD,
        f"cannot download {jar}: {reason}.",
        "Check the network (or its proxy) and try again: what was downloaded is kept.",
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def resolve_lock(roots: Iterable[str] = ROOTS) -> str:
    """The text of a new lock file: every jar that the roots need (`make lock`)."""
    from jgo import resolve  # noqa: PLC0415 - needed by maintainers only

    lines = {
        f"{found.groupId}:{found.artifactId}:{found.version} {_sha256(found.resolve())}"
        for root in roots
        for found in resolve(root)
    }
    head = "# group:artifact:version sha256, written by `make lock`\n"
    return head + "".join(f"{line}\n" for line in sorted(lines))
