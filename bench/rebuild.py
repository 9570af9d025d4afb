"""W1 folded again from its log by the product, silently: one process, one partition after another.

Run as a process of its own by `bench.run`, with refold's settings in the environment. It prints
one line of JSON like a bare loop's. What is timed is the fold, connections and the reading of the
decision log included.
"""

import json
import time
from typing import Any

import msgspec

from bench import workload
from bench.limits import clients
from bench.w1 import w1
from refold.cli.process import many_records
from refold.processors.clients import KafkaClients
from refold.processors.definition import Workflow
from refold.processors.replay import fold_log
from refold.topics.settings import load_settings


def main() -> None:
    """Folds every partition and says how fast, and to which states."""
    settings = load_settings()
    definition = w1.build()
    workflow = Workflow(definition.name, [definition])
    kafka = KafkaClients(settings)
    many_records()
    records, rows = 0, list[tuple[str, str, Any]]()
    seconds = 0.0
    for number in range(workload.PARTITIONS):
        began = time.perf_counter()
        folded = fold_log(kafka, settings.namespace, workflow, number)
        seconds += time.perf_counter() - began
        records += sum(folded.counts.values())
        rows += [
            (each.id, each.state, msgspec.to_builtins(each.context))
            for each in folded.held.values()
        ]
    line = {
        "events": records,
        "seconds": seconds,
        "rate": records / seconds,
        "states": clients.state_hash(rows),
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
