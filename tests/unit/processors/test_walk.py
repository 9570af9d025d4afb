"""Every walk of the order graph up to five events, against a table written by hand."""

import itertools
from typing import Final

from refold.examples.order.graph import Charged, ChargeDeclined, OrderPlaced, Reserved, order
from refold.schemas.verdicts import Verdict
from refold.testing.driver import Driver

FACTS: Final = (OrderPlaced(("a",), 5), Reserved(), Charged("r"), ChargeDeclined("no"))
LATE: Final = dict.fromkeys("PRCD", ("done", Verdict.LATE))
TABLE: Final[dict[str, dict[str, tuple[str, Verdict]]]] = {
    "": {"P": ("reserving", Verdict.APPLIED)},
    "reserving": {"R": ("charging", Verdict.APPLIED)},
    "charging": {
        "C": ("done", Verdict.APPLIED),
        "D": ("failed", Verdict.APPLIED),
        "R": ("charging", Verdict.ALREADY),
    },
    "done": LATE,
    "failed": dict.fromkeys("PRCD", ("failed", Verdict.LATE)),
}
SENDS: Final = {"reserving": "Reserve", "charging": "Charge"}


def test_every_walk_does_what_the_table_says() -> None:
    walks = 0
    for walk in itertools.product(zip("PRCD", FACTS, strict=True), repeat=5):
        driver, state, sent = Driver(order), "", list[str]()
        for kind, fact in walk:
            target, verdict = TABLE[state].get(kind, (state, Verdict.REFUSED))
            step = driver.send("o", fact)
            assert step.verdict is verdict, (state, kind)
            if verdict is Verdict.APPLIED:
                sent += [SENDS[target]] if target in SENDS else []
            state = target
            assert (driver.state("o") if state else "") == state
        assert [send.type for send in driver.sent] == sent
        driver.kill_and_recover()
        walks += 1
    assert walks == 4**5
