"""Several drivers together: what one workflow publishes for another is folded there.

Law of this module: it carries events as Kafka would, each once and in order, and decides nothing.
"""

from itertools import count
from sys import maxsize

from refold.processors.effects import Step
from refold.processors.publishing import source_of
from refold.testing.driver import Driver


def receive(driver: Driver, other: Driver, most: int = maxsize) -> list[Step]:
    """Fold what another driver's workflow has published for this one, each event once.

    Args:
        driver: Where.
        other: Of the other workflow.
        most: Events that are taken, the oldest first; the others stay on their way.
    """
    begin = driver.received.get(id(other), 0)
    end = min(begin + most, len(other.published))
    driver.received[id(other)] = end
    return [
        driver.send(
            one.instance,
            (one.type, one.value),
            id=one.id,
            source=source_of(other.workflow.name),
            tenant=tenant,
            time=one.time,
            answer=one.answer,
            parent=one.parent,
        )
        for tenant, one in other.published[begin:end]
        if one.workflow == driver.workflow.name
    ]


def exchange(*drivers: Driver, most: int = 1_000) -> None:
    """Carry events between drivers until nothing is on its way.

    Args:
        drivers: Each of another workflow.
        most: Rounds.

    Raises:
        AssertionError: They go on for ever.
    """
    for number in count():
        steps = [step for one in drivers for other in drivers for step in receive(one, other)]
        if not steps:
            return
        assert number < most, f"after {most} rounds the workflows still send to each other"
