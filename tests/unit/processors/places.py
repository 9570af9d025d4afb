"""A partition's row and what Kafka says of its log, from which judgements are tested."""

from refold.processors.digest import Committed, beginning
from refold.processors.judgement import LogFacts
from refold.snapshots.model import PartitionRow

OURS = Committed(3, "f" * 32, "c" * 32)
ROW = PartitionRow(
    topic="r.order.events",
    partition=1,
    workflow="order",
    topic_id="T1",
    partitions=4,
    group="r.workers",
    epoch=3,
    owner="r-1",
    released=False,
    marker=100,
    rows_to=100,
    decisions=0,
    digest=beginning("T1").packed(),
    counts={"applied": 100},
    base=0,
    takeovers=1,
)
LOG = LogFacts(
    topic="r.order.events",
    partition=1,
    topic_id="T1",
    partitions=4,
    group="r.workers",
    low=0,
    high=200,
    committed=150,
    metadata=OURS,
)
