"""The graph of an approval: checked, decided by a person in time or by the next one, carried out.

Who decided is a field of the event, so that it stands on the log; who *sent* the event is the
envelope's source, which a gateway writes and no person can choose.
"""

from datetime import datetime, timedelta

from refold import (
    ANY,
    Command,
    Context,
    Event,
    Late,
    Retry,
    RunStatus,
    StateGraph,
    StepInfo,
    failed,
    replace,
    succeeded,
)


class Requested(Event):
    what: str
    amount: int
    by: str
    approver: str
    manager: str


class Withdrawn(Event):
    pass


class Checked(Event):
    within_budget: bool


class Decided(Event):
    yes: bool
    by: str
    comment: str = ""


class Check(Command):
    what: str
    amount: int


class Ask(Command):
    person: str
    what: str
    amount: int


class Release(Command):
    what: str
    amount: int
    decided_by: str


class Approval(Context):
    what: str = ""
    amount: int = 0
    requested_by: str = ""
    approver: str = ""
    manager: str = ""
    asked: tuple[str, ...] = ()
    decision: Decided | None = None
    decided_at: datetime | None = None
    sent_by: str = ""


approval = StateGraph("approval", version=1, context=Approval, initial="new", tenant="office")
DECIDING = ("deciding", "escalated")


@approval.on("new", Requested, to="checking")
def requested(_: Approval, event: Requested) -> Approval:
    return Approval(event.what, event.amount, event.by, event.approver, event.manager)


def ask_approver(ctx: Approval, _: Event) -> Approval:
    return replace(ctx, asked=(ctx.approver,))


def ask_manager(ctx: Approval, _: Event) -> Approval:
    return replace(ctx, asked=(*ctx.asked, ctx.manager))


approval.enter("checking", send=lambda ctx, _: Check(ctx.what, ctx.amount))
approval.command(Check, target="budget", answers=(Checked,), retry=Retry(attempts=5))
approval.on("checking", Checked, to="deciding", guard=lambda _, event: event.within_budget)(
    ask_approver
)
approval.on("checking", Checked, to="rejected")
approval.on("checking", failed(Check), to="deciding")(ask_approver)  # people can count as well
approval.defer("checking", Decided)  # said before it was asked for

approval.enter(DECIDING, send=lambda ctx, _: Ask(ctx.asked[-1], ctx.what, ctx.amount))
approval.after("deciding", timedelta(days=2), to="escalated")(ask_manager)
approval.after("escalated", timedelta(days=5), to="expired")


def may_decide(ctx: Approval, event: Decided) -> bool:
    return event.by in ctx.asked and event.by != ctx.requested_by


@approval.on(DECIDING, Decided, to="releasing", guard=lambda c, e: may_decide(c, e) and e.yes)
@approval.on(DECIDING, Decided, to="rejected", guard=may_decide)
def decided(ctx: Approval, event: Decided, step: StepInfo) -> Approval:
    return replace(ctx, decision=event, decided_at=step.time, sent_by=step.event_source)


def release(ctx: Approval, event: Decided) -> Release:
    return Release(ctx.what, ctx.amount, event.by)


approval.enter("releasing", send=release)
approval.command(Release, target="budget", retry=Retry(attempts=20, first_s=1, most_s=300))
approval.on("releasing", succeeded(Release), to="released")
approval.on(("checking", *DECIDING), Withdrawn, to="withdrawn")

approval.waits("checking", RunStatus.WAITING_CALLBACK)
approval.waits(DECIDING, RunStatus.WAITING_INPUT)
ENDS = {
    "released": RunStatus.COMPLETED,
    "rejected": RunStatus.COMPLETED,
    "withdrawn": RunStatus.COMPLETED,
    "expired": RunStatus.FAILED,
}
for end, status in ENDS.items():
    approval.final(end, late={Decided: Late.REFUSE, ANY: Late.RECORD}, status=status)
approval.invariant(
    "nothing is released that nobody decided",
    lambda _, ctx: ctx.decision is not None and ctx.decision.yes,
    states=("releasing", "released"),
)
