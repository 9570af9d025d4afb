"""Idempotency keys and everything else that is derived and must never change.

Law of this module: pure functions of identities; golden vectors in the tests hold each format
(P23, P24). A change here makes every effect of the outside world possible twice.

    r1:<tenant>:<workflow>:<instance>:<state>:<action>:<event>:<direction>
    r2:<start of the r1 body>:<BLAKE2b-256 of the whole r1 body>:<direction>

Each part is percent-encoded to the unreserved characters of RFC 3986, so that `:` only ever
separates. `<action>` is `name` or `name.discriminator` (names have no dots). `<event>` is the
identity (source, id) as one part, joined by U+001F (`%1F`), which neither may contain. The body
is what stands between `r1:` and the direction; the second form is taken when the longer of the
two directions would not fit: a key and its compensation differ in their last part only.
"""

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Final
from urllib.parse import quote

from refold.schemas.errors import Code, UsageError
from refold.schemas.limits import KEY_BYTES

FORWARD: Final = "forward"
COMPENSATE: Final = "compensate"
_plain: Final = re.compile(r"[A-Za-z0-9._~-]*\Z").match
_SHORT_BYTES: Final = KEY_BYTES - len(COMPENSATE) + len(FORWARD)
"""Most bytes of a forward key whose compensation still fits."""
_PREFIX_BYTES: Final = KEY_BYTES - len("r2:") - len(":") - 64 - len(":" + COMPENSATE)


@lru_cache(maxsize=1024)
def _quoted(text: str) -> str:
    return quote(text, safe="")


def encoded(text: str) -> str:
    """Percent-encode to RFC 3986 unreserved characters, letters and digits as they are."""
    return text if _plain(text) else _quoted(text)


def action_part(name: str, discriminator: str | int | None) -> str:
    """An action's name and its discriminator, encoded, joined injectively: names have no dots."""
    return name if discriminator is None else f"{name}.{encoded(str(discriminator))}"


def key_of(
    tenant: str,
    workflow: str,
    instance: str,
    state: str,
    action: str,
    source: str,
    event_id: str,
) -> str:
    """Write the forward idempotency key of an action, at most 255 bytes.

    Args:
        tenant: A name. So are `workflow` and `state`, the state that was entered.
        workflow: Name of the workflow.
        instance: Instance id, any text.
        state: State that was entered.
        action: `action_part` of the command.
        source: Source of the event that caused it, without control characters.
        event_id: Id of that event, without control characters.
    """
    if not _plain(instance + event_id):  # one look for both: most ids need no encoding
        instance, event_id = encoded(instance), encoded(event_id)
    key = (
        f"r1:{tenant}:{workflow}:{instance}:{state}:{action}:{_quoted(source)}%1F{event_id}:forward"
    )
    if len(key) <= _SHORT_BYTES:
        return key
    body = key[len("r1:") : -len(":" + FORWARD)]
    digest = blake2b(body.encode("ascii"), digest_size=32).hexdigest()
    return f"r2:{body[:_PREFIX_BYTES]}:{digest}:forward"


def compensate_key(forward_key: str) -> str:
    """The key of the action that undoes the one with `forward_key`: one for one (P24).

    Raises:
        UsageError: The key is not a forward key.
    """
    body, _, direction = forward_key.rpartition(":")
    if direction != FORWARD or not forward_key.startswith(("r1:", "r2:")):
        raise UsageError(
            Code.BAD_KEY,
            f"{forward_key!r} is not the key of a forward action.",
            "Pass the idempotency key of the action to undo.",
        )
    return f"{body}:{COMPENSATE}"


def forward_key(compensate_key: str) -> str:
    """The key of the action that the one with `compensate_key` undoes; empty for any other key."""
    body, _, direction = compensate_key.rpartition(":")
    return f"{body}:{FORWARD}" if direction == COMPENSATE else ""


def derived_bytes(
    tenant: str, workflow: str, instance: str, identity: bytes, counter: int
) -> bytes:
    """16 bytes for (instance identity, event identity, counter): ids and randomness of a step."""
    names = (tenant.encode(), workflow.encode(), instance.encode())
    parts = (*names, identity, b"%d" % counter)
    body = b"".join(b"%d:%b" % (len(part), part) for part in parts)
    return blake2b(body, digest_size=16).digest()
