"""refold: event-sourced stream processing for workflows on Kafka and PostgreSQL.

The public face: what a service's code needs to say what its workflows are. Everything else is
found under its own name, `refold.topics.publisher` and so on.
"""

from msgspec.structs import replace

from refold.processors.definition import Definition, Workflow
from refold.processors.graph import ALL, ANY, Late, Limits, Retry, RunStatus, StateGraph, StepInfo
from refold.processors.schedules import Schedules
from refold.processors.spec import (
    LatePolicies,
    LatePolicy,
    Schedule,
    Start,
    forward,
    reopen,
    start,
)
from refold.processors.triggers import Joined, failed, missed, succeeded, unknown
from refold.schemas.errors import DefinitionError, RefoldError
from refold.schemas.shapes import Bits, Digits, WasNamed
from refold.schemas.types import Command, Context, Event

__version__ = "0.1.0"

__all__ = [
    "ALL",
    "ANY",
    "Bits",
    "Command",
    "Context",
    "Definition",
    "DefinitionError",
    "Digits",
    "Event",
    "Joined",
    "Late",
    "LatePolicies",
    "LatePolicy",
    "Limits",
    "RefoldError",
    "Retry",
    "RunStatus",
    "Schedule",
    "Schedules",
    "Start",
    "StateGraph",
    "StepInfo",
    "WasNamed",
    "Workflow",
    "__version__",
    "failed",
    "forward",
    "missed",
    "reopen",
    "replace",
    "start",
    "succeeded",
    "unknown",
]
