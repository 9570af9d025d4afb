"""Events for other workflows: who sends them, and the ids by which a repetition is known.

Law of this module: pure functions of identities. The source of every such event is the workflow
that sends it; its id is derived from what caused it, so that a fold that is made again sends the
same event, and the other workflow's dedup memory knows it.
"""

from refold.processors.effects import Publish
from refold.schemas.envelope import WORKFLOW_SOURCE, EventRecord, derived_id


def source_of(workflow: str) -> str:
    """The source of the events that a workflow sends to others."""
    return WORKFLOW_SOURCE + workflow


def forwarded(workflow: str, event: EventRecord, to: str) -> tuple[Publish, ...]:
    """An event as it is handed on; nothing for one that was handed on before, or two workflows
    could hand it to each other for ever.

    Args:
        workflow: Who hands it on.
        event: The event; it goes as it came, byte by byte.
        to: The other workflow.
    """
    if event.source.startswith(WORKFLOW_SOURCE):
        return ()
    found = derived_id(
        "forward", workflow, event.tenant, event.instance, event.source, event.id, to
    )
    return (Publish(to, event.instance, event.type, found, event.value, event.time),)
