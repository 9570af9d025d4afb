"""Bases of the user's own types: frozen, slotted, fast. Dataclasses and pydantic do as well.

Law of this module: three empty bases. A type's Avro full name is its class name, or what its
class attribute `__avro_name__` says (dots allowed, `refold.schemas.limits.type_fault`).
"""

from typing import dataclass_transform

import msgspec

# `dataclass_transform` tells type checkers what msgspec does at run time: a subclass is frozen as
# its base is.


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Event(msgspec.Struct, frozen=True, gc=False):
    """Base of event types: facts, named in the past tense."""


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Command(msgspec.Struct, frozen=True, gc=False):
    """Base of command types: wishes, named in the imperative."""


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Context(msgspec.Struct, frozen=True, gc=False):
    """Base of context types: what an instance knows, replaced as a whole by reducers."""
