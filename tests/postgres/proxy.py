"""A TCP proxy in front of PostgreSQL that cuts a connection at a chosen moment."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg.conninfo

Rule = Callable[[str, bytes], bool]
"""(`to server` | `to client`, bytes) → cut before these bytes are passed on."""

TO_SERVER = "to server"
TO_CLIENT = "to client"

MOMENTS: dict[str, Rule] = {
    "before the server saw it": lambda way, b: way == TO_SERVER and b"COMMIT" in b,
    "before its answer came": lambda way, b: way == TO_CLIENT and b"COMMIT\0" in b,
}
"""In which the connection is cut, of a COMMIT."""


class Proxy:
    """Passes bytes on until `rule` says cut; cuts once, then passes everything."""

    def __init__(self, dsn: str) -> None:
        given = psycopg.conninfo.conninfo_to_dict(dsn)
        self._target = (str(given.get("host") or "127.0.0.1"), int(given.get("port") or 5432))
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.dsn = psycopg.conninfo.make_conninfo(
            dsn, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable"
        )
        self.rule: Rule | None = None
        self.after: Callable[[], None] | None = None
        """Done after a cut, before the next connection reaches the server."""
        self.cuts = 0
        self._ends: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def close(self) -> None:
        """End every connection and every thread."""
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in self._ends:
            end.close()

    def _start(self, work: Callable[..., None], *given: object) -> None:
        thread = threading.Thread(target=work, args=given, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.cuts and self.after is not None:
                self.after()
                self.after = None
            server = socket.create_connection(self._target)
            self._ends += [client, server]
            self._start(self._pump, client, server, TO_SERVER)
            self._start(self._pump, server, client, TO_CLIENT)

    def _pump(self, source: socket.socket, target: socket.socket, way: str) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(65_536):
                if self.rule is not None and self.rule(way, chunk):
                    self.rule = None
                    self.cuts += 1
                    break
                target.sendall(chunk)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy(dsn: str) -> Iterator[Proxy]:
    """A proxy in front of this server."""
    made = Proxy(dsn)
    try:
        yield made
    finally:
        made.close()
