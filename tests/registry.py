"""A real HTTP server that answers as a schema registry does, where one question is asked.

The registry itself is not to be had from the package registries that this project uses (it is
published in a repository of its own), so its interface is played: the three requests of
`refold.topics.schema_registry`, with the status and error codes of Confluent's API reference.
Ids are counted through the process, as no two registries of one namespace would share them.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Event, Thread
from typing import Any, ClassVar
from urllib.parse import unquote

_IDS = count(70_001)


class Registry:
    """What the server knows, and how it behaves; changed by the test."""

    def __init__(self) -> None:
        self.url = ""
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[tuple[str, str]] = []
        """(method, path), in order."""
        self.authorizations: set[str] = set()
        self.authorization = ""
        """What it wants to see; empty: nothing."""
        self.status = 0
        """Answer with this status and nothing else; 0: as a registry does."""
        self.body: bytes | None = None
        """Answer 200 with this."""
        self.headers: dict[str, str] = {}
        self.hold: Event | None = None
        """Answer only after this is set."""
        self.incompatible = False

    def add(self, text: str, subject: str = "", **more: Any) -> int:
        """Register a schema; gives its id."""
        known = next((n for n, each in self.schemas.items() if each == {"schema": text, **more}), 0)
        number = known or next(_IDS)
        self.schemas[number] = {"schema": text, **more}
        if subject and number not in self.subjects.setdefault(subject, []):
            self.subjects[subject].append(number)
        return number

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Status and JSON of a request."""
        parts = [unquote(part) for part in path.strip("/").split("/")]
        match (method, parts):
            case ("GET", ["schemas", "ids", number]):
                found = self.schemas.get(int(number))
                missing = {"error_code": 40403, "message": f"Schema {number} not found"}
                return (200, found) if found else (404, missing)
            case ("POST", ["subjects", subject, "versions"]):
                if self.incompatible:
                    message = "Schema being registered is incompatible with an earlier schema"
                    return 409, {"error_code": 409, "message": message}
                return 200, {"id": self.add(body["schema"], subject)}
            case ("POST", ["subjects", subject]):
                for known in self.subjects.get(subject, []):
                    if self.schemas[known]["schema"] == body["schema"]:
                        return 200, {"subject": subject, "id": known, "version": 1}
                return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


class _Handler(BaseHTTPRequestHandler):
    registry: ClassVar[Registry]

    def do_GET(self) -> None:
        self._serve(None)

    def do_POST(self) -> None:
        self._serve(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _serve(self, body: Any) -> None:
        registry = self.registry
        registry.requests.append((self.command, self.path))
        given = self.headers.get("Authorization", "")
        registry.authorizations.add(given)
        if registry.hold is not None:
            registry.hold.wait(30)
        if registry.status:
            self._send(registry.status, b"<html>busy</html>")
        elif registry.body is not None:
            self._send(200, registry.body)
        elif registry.authorization and given != registry.authorization:
            self._send(401, b'{"error_code": 401, "message": "Unauthorized"}')
        else:
            status, found = registry.answer(self.command, self.path, body)
            self._send(status, json.dumps(found).encode())

    def _send(self, status: int, body: bytes) -> None:
        try:
            self.send_response(status)
            for name, value in self.registry.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # the client had enough

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def registry_server() -> Iterator[Registry]:
    """A registry on a free port of this machine, for the length of a block."""
    registry = Registry()
    handler = type("Handler", (_Handler,), {"registry": registry})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        registry.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            if registry.hold is not None:
                registry.hold.set()
            server.shutdown()
            thread.join(10)
