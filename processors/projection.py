"""The instance row: what a person and a query see of an instance.

Law of this module: a projection. What JSON cannot hold is shown as far as it can be, marked
lossy, and never stops the canonical snapshot.
"""

import msgspec

from refold.processors.definition import Definition
from refold.processors.instance import Instance
from refold.processors.status import run_status
from refold.snapshots.model import InstanceRow

_JSON = msgspec.json.Encoder(order="sorted", decimal_format="string")


def instance_row(definition: Definition, record: Instance) -> InstanceRow:
    """Project one instance record.

    Args:
        definition: The version that folds it.
        record: The committed record.
    """
    context = _JSON.encode(definition.plain(record.context))
    parked = record.more.parked
    return InstanceRow(
        tenant=record.tenant,
        instance=record.id,
        definition=record.definition,
        state=record.state,
        state_since_ms=record.since_ms,
        run_status=str(run_status(definition, record)),
        context=context,
        lossy=b"\\u0000" in context,
        version=record.version,
        last_offset=record.last_offset,
        last_source=record.last_source,
        last_id=record.last_id,
        due_ms=None if parked is not None else record.more.due_ms,
        failure_code=parked.code if parked else None,
        failure_text=parked.text if parked else None,
        created_ms=record.created_ms,
        updated_ms=record.fold_ms,
    )
