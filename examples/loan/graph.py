"""A loan application at a bank, as its log of 2011 and 2012 shows it.

The application moves; offers and the work of the bank's people come beside it, at any time and
in any number. The money is paid once, and the applicant is written to once.
"""

from refold import ANY, Command, Context, Event, Late, RunStatus, StateGraph, replace

# The application itself.


class Submitted(Event):
    amount: int


class PartlySubmitted(Event):
    pass


class Preaccepted(Event):
    pass


class Accepted(Event):
    pass


class Finalized(Event):
    pass


class Approved(Event):
    pass


class Registered(Event):
    pass


class Activated(Event):
    pass


class Declined(Event):
    pass


class Cancelled(Event):
    pass


# What comes beside it.


class OfferMoved(Event):
    step: str


class WorkMoved(Event):
    work: str
    phase: str


class AskForPapers(Command):
    amount: int


class WriteToApplicant(Command):
    answer: str


class PayOut(Command):
    amount: int


class Loan(Context):
    amount: int = 0
    signatures: int = 0
    offers: int = 0
    returned: int = 0
    started: int = 0
    completed: int = 0


loan = StateGraph("loan", version=1, context=Loan, initial="new")


@loan.on("new", Submitted, to="submitted")
def submitted(_: Loan, event: Submitted) -> Loan:
    return Loan(amount=event.amount)


loan.on("submitted", PartlySubmitted, to="checked")
loan.on("checked", Preaccepted, to="preaccepted")
loan.on("preaccepted", Accepted, to="accepted")
loan.on("accepted", Finalized, to="offered")
loan.on(("checked", "preaccepted", "accepted", "offered"), Declined, to="declined")
loan.on(("checked", "preaccepted", "accepted", "offered"), Cancelled, to="cancelled")


def signed(ctx: Loan, _: Event) -> Loan:
    return replace(ctx, signatures=ctx.signatures + 1)


def last(ctx: Loan, _: Event) -> bool:
    return ctx.signatures == 2


# Approval, registration and activation come in any order; the third one grants the loan.
loan.on("offered", Approved, to="granting")(signed)
loan.on("offered", Registered, to="granting")(signed)
loan.on("offered", Activated, to="granting")(signed)
loan.on("granting", Approved, to="granted", guard=last)(signed)
loan.on("granting", Registered, to="granted", guard=last)(signed)
loan.on("granting", Activated, to="granted", guard=last)(signed)
loan.on("granting", Approved)(signed)
loan.on("granting", Registered)(signed)
loan.on("granting", Activated)(signed)

BESIDE = ("submitted", "checked", "preaccepted", "accepted", "offered", "granting")


@loan.on(BESIDE, OfferMoved)
def offer_moved(ctx: Loan, event: OfferMoved) -> Loan:
    made, back = event.step == "created", event.step == "sent-back"
    return replace(ctx, offers=ctx.offers + made, returned=ctx.returned + back)


@loan.on(BESIDE, WorkMoved)
def work_moved(ctx: Loan, event: WorkMoved) -> Loan:
    began, ended = event.phase == "start", event.phase == "complete"
    return replace(ctx, started=ctx.started + began, completed=ctx.completed + ended)


loan.enter("preaccepted", send=lambda ctx, _: AskForPapers(amount=ctx.amount))
loan.enter("granted", send=lambda ctx, _: PayOut(amount=ctx.amount))
loan.enter("declined", send=lambda _ctx, _event: WriteToApplicant(answer="declined"))
loan.enter("cancelled", send=lambda _ctx, _event: WriteToApplicant(answer="cancelled"))
loan.command(AskForPapers, target="letters")
loan.command(WriteToApplicant, target="letters")
loan.command(PayOut, target="payments")

loan.waits("preaccepted", RunStatus.WAITING_INPUT)
loan.waits("offered", RunStatus.WAITING_INPUT)
loan.final("granted", late={ANY: Late.RECORD})
loan.final("declined", late={ANY: Late.RECORD}, status=RunStatus.FAILED)
loan.final("cancelled", late={ANY: Late.RECORD}, status=RunStatus.FAILED)

loan.invariant(
    "only what three have signed is granted",
    lambda state, ctx: (state == "granted") == (ctx.signatures == 3),
)
