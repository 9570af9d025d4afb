"""The life of an incident at a service desk, as the audit log of a real one shows it.

Four things happen outside: the person on call is paged, the caller is asked, told, and surveyed.
None of them may happen twice for the same event, whatever crashes.
"""

from refold import ANY, Command, Context, Event, Late, RunStatus, StateGraph, replace

# What the desk's system says: one event for one row of its audit log.


class Update(Event):
    group: str
    priority: int
    at: str


class Logged(Update):
    pass


class Started(Update):
    pass


class AwaitsUser(Update):
    pass


class AwaitsProblem(Update):
    pass


class AwaitsVendor(Update):
    pass


class AwaitsEvidence(Update):
    pass


class Resolved(Update):
    pass


class Closed(Update):
    pass


# What the paging and the mail service answer.


class Paged(Event):
    pass


class Mailed(Event):
    pass


class Surveyed(Event):
    score: int


# What they are asked for.


class Page(Command):
    group: str
    priority: int


class AskCaller(Command):
    group: str


class TellCaller(Command):
    after_updates: int


class SendSurvey(Command):
    pass


class Incident(Context):
    group: str = ""
    priority: int = 0
    updates: int = 0
    reopened: int = 0
    resolved_at: str = ""
    paged: int = 0
    mailed: int = 0
    score: int | None = None


incident = StateGraph("incident", version=1, context=Incident, initial="new")

WORKED_ON = ("new", "active", "awaiting-user", "awaiting-problem", "awaiting-evidence")
EVERYWHERE = (*WORKED_ON, "awaiting-vendor", "resolved", "closed")


def updated(ctx: Incident, event: Update) -> Incident:
    return replace(ctx, group=event.group, priority=event.priority, updates=ctx.updates + 1)


incident.on("new", Logged)(updated)
incident.on(("new", "awaiting-user", "awaiting-problem", "awaiting-vendor"), Started, to="active")(
    updated
)
incident.on("active", Started)(updated)
incident.on(
    ("new", "active", "awaiting-problem", "awaiting-vendor"), AwaitsUser, to="awaiting-user"
)(updated)
incident.on("awaiting-user", AwaitsUser)(updated)
incident.on(("new", "active", "awaiting-user"), AwaitsProblem, to="awaiting-problem")(updated)
incident.on("awaiting-problem", AwaitsProblem)(updated)
incident.on(("active", "awaiting-user"), AwaitsVendor, to="awaiting-vendor")(updated)
incident.on("awaiting-vendor", AwaitsVendor)(updated)
incident.on(("awaiting-user", "awaiting-vendor"), AwaitsEvidence, to="awaiting-evidence")(updated)


@incident.on(WORKED_ON, Resolved, to="resolved")
@incident.on("resolved", Resolved)
def resolved(ctx: Incident, event: Resolved) -> Incident:
    return replace(updated(ctx, event), resolved_at=event.at)


@incident.on("resolved", Started, to="active")
def reopened(ctx: Incident, event: Started) -> Incident:
    return replace(updated(ctx, event), resolved_at="", reopened=ctx.reopened + 1)


incident.on("resolved", Closed, to="closed")(updated)


@incident.on("closed", Surveyed, to="surveyed")
def surveyed(ctx: Incident, event: Surveyed) -> Incident:
    return replace(ctx, score=event.score)


@incident.on(EVERYWHERE, Paged)
def paged(ctx: Incident, _: Paged) -> Incident:
    return replace(ctx, paged=ctx.paged + 1)


@incident.on(EVERYWHERE, Mailed)
def mailed(ctx: Incident, _: Mailed) -> Incident:
    return replace(ctx, mailed=ctx.mailed + 1)


incident.enter("active", send=lambda ctx, _: Page(group=ctx.group, priority=ctx.priority))
incident.enter("awaiting-user", send=lambda ctx, _: AskCaller(group=ctx.group))
incident.enter("resolved", send=lambda ctx, _: TellCaller(after_updates=ctx.updates))
incident.enter("closed", send=lambda _ctx, _event: SendSurvey())
incident.command(Page, target="paging")
incident.command(AskCaller, target="mail")
incident.command(TellCaller, target="mail")
incident.command(SendSurvey, target="mail")

incident.waits("awaiting-user", RunStatus.WAITING_INPUT)
incident.waits("closed", RunStatus.WAITING_CALLBACK)
incident.already("closed", Closed)
incident.final("surveyed", late={Closed: Late.ALREADY, Surveyed: Late.ALREADY, ANY: Late.RECORD})

incident.invariant(
    "closed means resolved",
    lambda state, ctx: state not in {"closed", "surveyed"} or ctx.resolved_at != "",
)
