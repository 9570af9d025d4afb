"""What the desks send: the audit log once a desk, in order of time, with its repeats.

Law of this module: the same seed makes the same stream. A repeat is what a sender does that never
heard an answer: the same event with the same id, a little later.
"""

from collections.abc import Iterator
from random import Random
from typing import Final

from refold.examples.incident.log import rows
from refold.topics.publisher import Draft

REPEATED: Final = 0.02
"""Share of events that are sent twice."""
LATER: Final = 200
"""A repeat comes after at most so many other events."""


def desk(number: int) -> str:
    """Tenant of a desk."""
    return f"desk-{number:02}"


def stream(desks: int, seed: int) -> Iterator[Draft]:
    """Every desk's events, interleaved, with repeats.

    Args:
        desks: How many desks send the log, 1 or more; each is a tenant of its own.
        seed: Chooses what is repeated and when.
    """
    random = Random(seed)  # noqa: S311  # a choice that can be repeated, no secret
    waiting: list[tuple[int, Draft]] = []
    sent = 0
    for row in rows():
        for number in range(1, desks + 1):
            draft = Draft(instance=row.instance, event=row.event, id=row.id, tenant=desk(number))
            yield draft
            sent += 1
            if random.random() < REPEATED:
                waiting.append((sent + random.randint(1, LATER), draft))
            for late in [each for each in waiting if each[0] <= sent]:
                waiting.remove(late)
                yield late[1]
    yield from (draft for _, draft in waiting)
