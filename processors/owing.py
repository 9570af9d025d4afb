"""What a child owes its parent: an answer to each action that asked for it, once.

Law of this module: pure. A key is owed from the record on that asks, also where that record waits
behind a parked one, so that no end of the child forgets it; it is paid with the answer.
"""

from msgspec.structs import replace

from refold.processors.instance import NOTHING_MORE, Instance
from refold.processors.keys import COMPENSATE, compensate_key
from refold.schemas.envelope import EventRecord, Parent


def undoes(parent: Parent) -> bool:
    """Whether a parent's action asks for the undoing of what was done for it."""
    return parent.key.endswith(f":{COMPENSATE}")


def is_mine(instance: Instance | None, parent: Parent) -> bool:
    """Whether an instance works for this action of this parent."""
    known = None if instance is None else instance.more.parent
    if known is None or (known.workflow, known.instance) != (parent.workflow, parent.instance):
        return False
    return parent.key in (known.key, compensate_key(known.key))


def owing(instance: Instance, event: EventRecord) -> Instance:
    """The record of a child that owes its parent an answer to this event as well."""
    parent, more = event.parent, instance.more
    if parent is None or not undoes(parent) or parent.key in more.owed:
        return instance
    if not is_mine(instance, parent):
        return instance
    return replace(instance, more=replace(more, owed=(*more.owed, parent.key)))


def paid(instance: Instance, key: str) -> Instance:
    """The record of a child that has answered this action of its parent."""
    more = instance.more
    if key not in more.owed:
        return instance
    owed = tuple(one for one in more.owed if one != key)
    left = replace(more, owed=owed)
    return replace(instance, more=NOTHING_MORE if left == NOTHING_MORE else left)
