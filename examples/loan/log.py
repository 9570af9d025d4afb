"""The log of the BPI Challenge 2012 as events of the `loan` graph.

Law of this module: every line of the log becomes one event with an id of its own, and an
activity that is not known is an error, never left out.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from refold import Event
from refold.examples.loan import graph
from refold.examples.loan.xes import Case, Happening, cases
from refold.schemas.errors import Code, UsageError

STEPS: Final[dict[str, Event]] = {
    "A_PARTLYSUBMITTED": graph.PartlySubmitted(),
    "A_PREACCEPTED": graph.Preaccepted(),
    "A_ACCEPTED": graph.Accepted(),
    "A_FINALIZED": graph.Finalized(),
    "A_APPROVED": graph.Approved(),
    "A_REGISTERED": graph.Registered(),
    "A_ACTIVATED": graph.Activated(),
    "A_DECLINED": graph.Declined(),
    "A_CANCELLED": graph.Cancelled(),
    "O_SELECTED": graph.OfferMoved(step="selected"),
    "O_CREATED": graph.OfferMoved(step="created"),
    "O_SENT": graph.OfferMoved(step="sent"),
    "O_SENT_BACK": graph.OfferMoved(step="sent-back"),
    "O_ACCEPTED": graph.OfferMoved(step="accepted"),
    "O_CANCELLED": graph.OfferMoved(step="cancelled"),
    "O_DECLINED": graph.OfferMoved(step="declined"),
}
WORK: Final = {
    "W_Afhandelen leads": "follow-leads",
    "W_Beoordelen fraude": "judge-fraud",
    "W_Completeren aanvraag": "complete-application",
    "W_Nabellen incomplete dossiers": "call-for-papers",
    "W_Nabellen offertes": "call-after-offer",
    "W_Valideren aanvraag": "validate-application",
    "W_Wijzigen contractgegevens": "change-contract",
}


class Row(msgspec.Struct, frozen=True, gc=False):
    """One line of the log."""

    instance: str
    id: str
    at: str
    event: Event


def rows(path: Path, most: int | None = None) -> Iterator[Row]:
    """The log case by case, in order within each.

    Args:
        path: The XES file.
        most: Stop after so many cases; None reads all.

    Raises:
        UsageError: The file cannot be read, or has an activity that is not known.
    """
    for number, case in enumerate(cases(path)):
        if most is not None and number >= most:
            return
        for place, happening in enumerate(case.happened, 1):
            event = _event(case, happening)
            yield Row(case.id, f"{case.id}-{place}", happening.at, event)


def _event(case: Case, happening: Happening) -> Event:
    activity = happening.activity
    if activity == "A_SUBMITTED":
        return graph.Submitted(amount=case.amount)
    if activity in WORK:
        return graph.WorkMoved(work=WORK[activity], phase=happening.phase.lower())
    if activity in STEPS:
        return STEPS[activity]
    raise UsageError(Code.UNDECODABLE, f"case {case.id} has the unknown activity {activity!r}.")
