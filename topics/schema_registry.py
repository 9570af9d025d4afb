"""A schema registry with Confluent's REST interface: which id stands for which schema.

Law of this module: two questions and nothing else: the text behind an id, and the id of a text.
An answer is for ever and kept; what is no answer is an error of the server, tried again: only
the registry's own "there is no such id" says that an id is unknown (P27). Sizes and times are
bounded, redirects are not followed, and no address is shown with its password.

Source: Confluent Schema Registry API reference (GET /schemas/ids/{id}, POST /subjects/{subject}
and its /versions; error codes 40401, 40403, 409, 42201), "Wire format" of its documentation.
"""

import base64
import json
import ssl
from collections.abc import Callable
from http.client import HTTPException
from time import monotonic
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, Request, build_opener

import structlog

from refold.schemas.errors import Code, DefinitionError, ServerError, UsageError
from refold.schemas.registry import NUMBER_MOST
from refold.topics.settings import Schemas

_LOG = structlog.get_logger("refold.schema_registry")

ANSWER_BYTES: Final = 1_000_000
"""Longest answer that is read: a schema of a thousand fields has a tenth of it."""
AGAIN_S: Final = 0.5
"""A registry that gave no answer is asked again after this, however many records wait for it."""
_CHUNK_BYTES: Final = 65_536
_NO_SUCH_ID: Final = 40403
_NO_SUCH_SUBJECT: Final = 40401
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"


class SchemaRegistry:
    """The client of one registry; safe to share between threads.

    Args:
        settings: Where it is, and how to sign in.
        clock: Monotonic seconds.

    Raises:
        UsageError: BAD_SETTING, the address is no http or https address, or the file of
            certificates cannot be read.
    """

    def __init__(self, settings: Schemas, clock: Callable[[], float] = monotonic) -> None:
        parts = urlsplit(settings.registry)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                Code.BAD_SETTING,
                "schemas.registry is no http:// or https:// address.",
                "Set it as in https://registry.example.com.",
            )
        host = parts.netloc.rpartition("@")[2]
        self.address = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        """Where it is, without user and password."""
        self._auth = _authorization(settings, parts.username or "", parts.password or "")
        self.writes = settings.format == "confluent"
        """True when values are written in Confluent wire format; ids are read in any case."""
        self._register = settings.register_schemas
        self._timeout_s = settings.timeout_s
        self._clock = clock
        self._opener = _opener(settings.ca)
        self._texts: dict[int, str] = {}
        self._ids: dict[tuple[str, str], int] = {}
        self._away: tuple[float, ServerError] | None = None

    def text_of(self, schema_id: int) -> str | None:
        """The Avro schema behind an id; None when the registry says that it knows none.

        Raises:
            ServerError: REGISTRY_AWAY or REGISTRY_REFUSED: wait, nothing may be judged unknown.
        """
        known = self._texts.get(schema_id)
        if known is not None:
            return known
        status, answer = self._ask("GET", f"/schemas/ids/{schema_id}")
        if status == 404 and _code(answer) == _NO_SUCH_ID:
            return None
        if status != 200:
            raise self._refused(status, answer)
        if answer.get("schemaType", "AVRO") != "AVRO" or answer.get("references"):
            _LOG.error("not an Avro schema in one text", id=schema_id, registry=self.address)
            return None
        text = answer.get("schema")
        if not isinstance(text, str):
            raise self._failed("its answer holds no schema")
        self._texts[schema_id] = text
        return text

    def id_of(self, text: str, name: str) -> int:
        """The id of a schema under the subject of its type; registered if that is allowed.

        Args:
            text: Avro schema as JSON.
            name: Avro full name: the subject (Confluent's RecordNameStrategy).

        Raises:
            DefinitionError: SCHEMA_INCOMPATIBLE or SCHEMA_INVALID, the registry refuses it;
                SCHEMA_UNKNOWN, it is not there and may not be registered.
            ServerError: REGISTRY_AWAY or REGISTRY_REFUSED.
        """
        known = self._ids.get((name, text))
        if known is not None:
            return known
        path = f"/subjects/{quote(name, safe='')}"
        if self._register:
            path += "/versions"
        status, answer = self._ask("POST", path, {"schema": text})
        if status == 409:
            raise _refusal(Code.SCHEMA_INCOMPATIBLE, name, "as incompatible", answer)
        if status == 422:
            raise _refusal(Code.SCHEMA_INVALID, name, "as invalid", answer)
        if status == 404 and _code(answer) in (_NO_SUCH_ID, _NO_SUCH_SUBJECT):
            raise _refusal(Code.SCHEMA_UNKNOWN, name, "as unknown, and it may not be added", answer)
        if status != 200:
            raise self._refused(status, answer)
        found = answer.get("id")
        if type(found) is not int or not 0 <= found <= NUMBER_MOST:
            raise self._failed("its answer holds no id")
        self._ids[name, text] = found
        return found

    def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        if self._away is not None and self._clock() < self._away[0]:
            raise self._away[1]
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.address + path, data, method=method)  # noqa: S310  # http(s) only
        request.add_header("Accept", f"{_CONTENT_TYPE}, application/json")
        if data is not None:
            request.add_header("Content-Type", _CONTENT_TYPE)
        if self._auth:
            request.add_unredirected_header("Authorization", self._auth)
        try:
            status, raw = self._answer(request)
        except (OSError, HTTPException) as failure:
            reason = getattr(failure, "reason", None) or failure
            raise self._failed(f"{type(reason).__name__}: {reason}") from failure
        if status in (408, 425, 429) or status >= 500:
            raise self._failed(f"HTTP {status}")
        try:
            found = json.loads(raw)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            if status == 200:
                raise self._failed("its answer is no JSON object")
            found = {}
        self._away = None
        return status, found

    def _answer(self, request: Request) -> tuple[int, bytes]:
        deadline_s = self._clock() + self._timeout_s
        try:
            answer = self._opener.open(request, timeout=self._timeout_s)
        except HTTPError as refused:
            answer = refused
        raw = b""
        with answer:
            while chunk := answer.read1(_CHUNK_BYTES):
                raw += chunk
                if len(raw) > ANSWER_BYTES:
                    raise HTTPException(f"the answer is longer than {ANSWER_BYTES} bytes")
                if self._clock() > deadline_s:
                    raise TimeoutError(f"no whole answer in {self._timeout_s:g} s")
            return answer.status or 0, raw

    def _failed(self, what: str) -> ServerError:
        error = ServerError(
            Code.REGISTRY_AWAY,
            f"The schema registry at {self.address} gave no answer: {what}.",
            "Check that it is reachable; what waits for it goes on by itself.",
        )
        self._away = (self._clock() + AGAIN_S, error)
        return error

    def _refused(self, status: int, answer: dict[str, Any]) -> ServerError:
        text = str(answer.get("message", ""))[:200]
        error = ServerError(
            Code.REGISTRY_REFUSED,
            f"The schema registry at {self.address} refuses with HTTP {status} {text}".strip()
            + ".",
            "Check schemas.registry, its user and its rights.",
        )
        self._away = (self._clock() + AGAIN_S, error)
        return error


def registry_of(schemas: Schemas) -> SchemaRegistry | None:
    """The registry that the settings name, None without one."""
    return SchemaRegistry(schemas) if schemas.registry else None


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow nothing: the password would go along."""


def _opener(ca: str) -> OpenerDirector:
    try:
        context = ssl.create_default_context(cafile=ca or None)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            Code.BAD_SETTING, f"schemas.ca: {ca} cannot be read: {error}.", "Name a PEM file."
        ) from None
    return build_opener(_NoRedirects(), HTTPSHandler(context=context))


def _authorization(settings: Schemas, user: str, password: str) -> str:
    if settings.token:
        return f"Bearer {settings.token}"
    user, password = settings.user or user, settings.password or password
    if not user:
        return ""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _code(answer: dict[str, Any]) -> object:
    return answer.get("error_code")


def _refusal(code: Code, name: str, how: str, answer: dict[str, Any]) -> DefinitionError:
    return DefinitionError(
        code,
        f"The schema registry refuses the schema of {name} {how}: "
        f"{str(answer.get('message', 'no reason given'))[:500]}.",
        "Change the type so that it reads what stands there, or ask the registry's owner.",
        type=name,
    )
