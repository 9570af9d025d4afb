"""`WorldServer`: a `World` in a process of its own, for executors that are killed; and its client.

    with WorldServer(folder / "world.db", seed=7, systems={"hotel": Manners(drops=0.02)}) as server:
        server.address              # for `RemoteWorld(address)` in the executor's process
        server.journal.doubles()    # read from the file, whatever became of the server

Law of this module: nothing is decided here. A lost answer is a closed connection, a late one is
waited for, so that what an executor sees is what it sees of a real system. A call that a busy
machine delivers after its caller has given up is not done: a system that did it whenever it came
would keep no promise about when it shows what it did.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any, Final, Self
from urllib.parse import quote, unquote, urlsplit

import msgspec

from refold.testing.journal import Journal, Late
from refold.testing.world import (
    AlreadyDone,
    Busy,
    KeyReused,
    LineDead,
    Manners,
    Refused,
    Reply,
    Said,
    World,
)

HOST: Final = "127.0.0.1"
ANSWER_S: Final = 60.0
"""A client waits for so long, unless it is told otherwise."""


class Plan(msgspec.Struct, frozen=True):
    """What a server process is told when it starts."""

    journal: str
    seed: int
    systems: Mapping[str, Manners]
    port: int = 0


class _Call(msgspec.Struct, frozen=True):
    action: str
    key: str
    request: dict[str, Any]
    until_s: float | None = None
    """Monotonic seconds, one clock for all processes of a machine, until which somebody waits."""


class _No(msgspec.Struct, frozen=True):
    """What a system says in place of a reply."""

    what: str
    reference: str = ""
    retry_after_s: float = 0.0


class WorldServer:
    """A world in a process of its own. It ends with the block, or with the process that made it.

    Args:
        journal: File of the journal.
        seed: As for `World`.
        systems: How each system behaves.
    """

    def __init__(self, journal: Path, *, seed: int = 0, systems: Mapping[str, Manners]) -> None:
        self._plan = Plan(str(journal), seed, systems)
        self._process: subprocess.Popen[str] | None = None
        self.journal = Journal(journal)
        """The truth, read from the file."""
        self.address = ""
        """Address of the server; the same after a restart."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.journal.close()

    def start(self) -> None:
        """Start it, again after `kill`: the journal goes on, and the address stays."""
        command = [sys.executable, "-m", __name__, msgspec.json.encode(self._plan).decode()]
        self._process = subprocess.Popen(  # noqa: S603  # our own module, no shell
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        assert self.address, "the world's server did not start"
        self._plan = msgspec.structs.replace(self._plan, port=urlsplit(self.address).port or 0)

    def kill(self) -> None:
        """End it as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


class RemoteWorld:
    """A world behind a `WorldServer`, as an executor's process sees it.

    Args:
        address: `http://127.0.0.1:…`.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or HOST, parts.port or 0

    def system(self, name: str) -> "RemoteSystem":
        """A system by its name."""
        return RemoteSystem(self, name)

    def answers(self) -> list[Late]:
        """Answers to accepted calls that are due now; each is handed out as often as it comes."""
        return msgspec.json.decode(self.post("/answers", {}), type=list[Late])

    def pass_s(self, seconds: float) -> None:
        """Let time pass out there, without waiting for it."""
        self.post("/pass", {"seconds": seconds})

    def post(self, path: str, value: object, timeout_s: float | None = None) -> bytes:
        """Send one request.

        Raises:
            LineDead: The connection broke.
            TimeoutError: No answer in time.
            Refused, AlreadyDone, KeyReused or Busy: the system's answers.
        """
        wait_s = ANSWER_S if timeout_s is None else max(timeout_s, 0.001)
        connection = HTTPConnection(self._host, self._port, timeout=wait_s)
        try:
            connection.request("POST", path, msgspec.json.encode(value))
            answer = connection.getresponse()
            body = answer.read()
        except TimeoutError:
            raise
        except (HTTPException, OSError) as error:
            raise LineDead(str(error)) from error
        finally:
            connection.close()
        if answer.status == 200:
            return body
        _raise(msgspec.json.decode(body, type=_No))
        raise LineDead(f"HTTP {answer.status}")


class RemoteSystem:
    """One system of a `RemoteWorld`."""

    def __init__(self, world: RemoteWorld, name: str) -> None:
        self._world = world
        self._path = f"/systems/{quote(name, safe='')}"

    def call(
        self, action: str, key: str, *, timeout_s: float | None = None, **request: Any
    ) -> Reply:
        """As `System.call`."""
        until_s = None if timeout_s is None else monotonic() + timeout_s
        called = _Call(action, key, request, until_s)
        body = self._world.post(f"{self._path}/call", called, timeout_s)
        return msgspec.json.decode(body, type=Reply)

    def ask(self, key: str) -> Said:
        """As `System.ask`."""
        return msgspec.json.decode(self._world.post(f"{self._path}/ask", key), type=Said)

    def next(self, *faults: str) -> None:
        """The next calls go like this, one each, whatever was declared."""
        self._world.post(f"{self._path}/next", faults)

    def next_asked(self, *faults: str) -> None:
        """The next questions go like this."""
        self._world.post(f"{self._path}/next_asked", faults)


def _raise(no: _No) -> None:
    match no.what:
        case "Refused":
            raise Refused
        case "AlreadyDone":
            raise AlreadyDone(no.reference)
        case "KeyReused":
            raise KeyReused
        case "Busy":
            raise Busy("the system is busy", no.retry_after_s)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, plan: Plan) -> None:
        super().__init__((HOST, plan.port), _Handler)
        self.world = World(plan.seed, journal=Path(plan.journal), real_time=True)
        for name, manners in plan.systems.items():
            self.world.system(name, **msgspec.structs.asdict(manners))


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        """One request; without an answer where the line breaks."""
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:  # who called died in the middle of it
            self.close_connection = True
            return
        try:
            self._answer(200, msgspec.json.encode(self._said(self.path.split("/")[1:], body)))
        except LineDead:
            self.close_connection = True
        except Busy as busy:
            self._answer(503, msgspec.json.encode(_No("Busy", "", busy.retry_after_s)))
        except AlreadyDone as done:
            self._answer(409, msgspec.json.encode(_No("AlreadyDone", done.reference)))
        except (Refused, KeyReused) as no:
            self._answer(422, msgspec.json.encode(_No(type(no).__name__)))

    def _said(self, path: list[str], body: bytes) -> object:
        world = self.server.world
        match path:
            case ["systems", name, "call"]:
                call = msgspec.json.decode(body, type=_Call)
                if call.until_s is not None and monotonic() > call.until_s:
                    raise LineDead("who called has given up")
                system = world.system(unquote(name))
                return system.call(call.action, call.key, **call.request)
            case ["systems", name, "ask"]:
                return world.system(unquote(name)).ask(json.loads(body))
            case ["systems", name, "next"]:
                world.system(unquote(name)).next(*json.loads(body))
            case ["systems", name, "next_asked"]:
                world.system(unquote(name)).next_asked(*json.loads(body))
            case ["answers"]:
                return world.answers()
            case ["pass"]:
                world.pass_s(json.loads(body)["seconds"])
            case _:
                raise LineDead("nobody lives there")
        return None

    def _answer(self, status: int, body: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # who called is dead, or waits no more

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the journal has it all."""


def main() -> None:
    """Serve until the standard input ends: the plan is the argument."""
    server = _Server(msgspec.json.decode(sys.argv[1], type=Plan))
    Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"http://{HOST}:{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
