"""Objects as they will be after a reload: the keys of their dicts in sorted order.

Law of this module: an object that needs no change is given back itself, and a type without
dicts needs no function at all.
"""

import dataclasses
from typing import Any

import msgspec

from refold.schemas.plain import Change, same
from refold.schemas.shapes import (
    Choice,
    Entries,
    Items,
    Record,
    Shape,
    python_type,
)


def settler_of(shape: Shape) -> Change | None:
    """A function that settles objects of a shape; None if there is nothing to settle."""
    match shape:
        case Items(item, cls):
            inner = settler_of(item)
            return None if inner is None else _settle_items(inner, cls)
        case Entries(item):
            return _settle_entries(settler_of(item))
        case Choice(branches):
            table = {python_type(branch): settler_of(branch) or same for branch in branches}
            changed = any(change is not same for change in table.values())
            return (lambda value: table[type(value)](value)) if changed else None
        case Record():
            return _settle_record(shape)
    return None


def _settle_items(change: Change, cls: type) -> Change:
    def settle(value: Any) -> Any:
        found = [change(each) for each in value]
        alike = all(one is other for one, other in zip(found, value, strict=True))
        return value if alike else cls(found)

    return settle


def _settle_entries(change: Change | None) -> Change:
    change = change or same

    def settle(value: dict[str, Any]) -> dict[str, Any]:
        found = {key: change(value[key]) for key in sorted(value)}
        alike = list(found) == list(value) and all(found[key] is value[key] for key in found)
        return value if alike else found

    return settle


def _settle_record(shape: Record) -> Change | None:
    steps = [(f.name, change) for f in shape.fields if (change := settler_of(f.shape)) is not None]

    def settle(obj: Any) -> Any:
        found = {name: change(getattr(obj, name)) for name, change in steps}
        found = {name: part for name, part in found.items() if part is not getattr(obj, name)}
        if not found:
            return obj
        if shape.maker == "model":
            return obj.model_copy(update=found)
        return (msgspec.structs if shape.maker == "struct" else dataclasses).replace(obj, **found)

    return settle if steps else None
