"""The graph of an agent for a service desk: it thinks, uses tools, and ends within bounds.

What a model says is an event like any other: it is on the log, and a replay asks no model. What
the agent may do is said here and not by the model: which tools there are, how much money it may
give back by itself, how often it may think, and what happens when it gets nowhere.
"""

from datetime import timedelta

from refold import (
    ANY,
    Command,
    Context,
    Event,
    Late,
    Limits,
    Retry,
    RunStatus,
    StateGraph,
    failed,
    replace,
    unknown,
)

STEPS = 20
"""Thoughts that a task may take."""
REPEATS = 3
"""The same tool with the same input so often is no progress."""
NOTES, NOTE_LENGTH = 30, 2_000
"""What it remembers of what it has seen: the last so many, each so long at most."""
OWN_REFUND = 5_000
"""It gives back so much by itself; above that a person says yes."""
TOOLS = ("find_order", "find_customer", "read_terms")


class TaskGiven(Event):
    goal: str


class ToolChosen(Event):
    tool: str
    text: str


class RefundChosen(Event):
    order: str
    amount: int


class QuestionChosen(Event):
    question: str


class Answered(Event):
    text: str


class Observed(Event):
    text: str


class Refunded(Event):
    pass


class RefundRefused(Event):
    reason: str


class InputGiven(Event):
    text: str
    by: str
    yes: bool = True


class Stopped(Event):
    by: str


class Think(Command):
    goal: str
    notes: tuple[str, ...]


class UseTool(Command):
    tool: str
    text: str


class Refund(Command):
    order: str
    amount: int


class AskPerson(Command):
    question: str


class Task(Context):
    goal: str = ""
    notes: tuple[str, ...] = ()
    chosen: ToolChosen | None = None
    repeats: int = 0
    refund: RefundChosen | None = None
    refunded: tuple[str, ...] = ()
    question: str = ""
    answer: str = ""
    stopped_by: str = ""


agent = StateGraph(
    "agent", version=1, context=Task, initial="new", tenant="desk",
    limits=Limits(visits=STEPS, over="out_of_steps"),
)  # fmt: skip


def noted(task: Task, note: str) -> Task:
    return replace(task, notes=(*task.notes, note[:NOTE_LENGTH])[-NOTES:])


@agent.on("new", TaskGiven, to="thinking")
def given(_: Task, event: TaskGiven) -> Task:
    return Task(event.goal)


# It thinks, and chooses what comes next

CHOICES = (ToolChosen, RefundChosen, QuestionChosen, Answered)
agent.enter("thinking", send=lambda task, _: Think(task.goal, task.notes))
agent.command(Think, target="model", answers=CHOICES, retry=Retry(attempts=6, first_s=2))
agent.on("thinking", failed(Think), to="gave_up")


def gets_nowhere(task: Task, event: ToolChosen) -> bool:
    return event == task.chosen and task.repeats + 1 >= REPEATS


@agent.on("thinking", ToolChosen, to="thinking", guard=lambda _, event: event.tool not in TOOLS)
def no_such_tool(task: Task, event: ToolChosen) -> Task:
    return noted(task, f"There is no tool {event.tool}. There are: {', '.join(TOOLS)}.")


@agent.on("thinking", ToolChosen, to="asking", guard=gets_nowhere)
def stuck(task: Task, event: ToolChosen) -> Task:
    question = f"I get nowhere with {event.tool} {event.text!r}. What shall I do?"
    return replace(task, question=question, chosen=None, repeats=0)


@agent.on("thinking", ToolChosen, to="acting")
def chosen(task: Task, event: ToolChosen) -> Task:
    repeats = task.repeats + 1 if event == task.chosen else 1
    return replace(task, chosen=event, repeats=repeats)


@agent.on("thinking", QuestionChosen, to="asking")
def asked(task: Task, event: QuestionChosen) -> Task:
    return replace(task, question=event.question)


@agent.on("thinking", Answered, to="answered")
def answered(task: Task, event: Answered) -> Task:
    return replace(task, answer=event.text)


# It acts, and observes


def use_tool(task: Task, event: ToolChosen) -> UseTool:
    return UseTool(event.tool, event.text)


agent.enter("acting", send=use_tool)
agent.command(UseTool, target="tools", answers=(Observed,), retry=Retry(attempts=3, first_s=1))


@agent.on("acting", Observed, to="thinking")
def observed(task: Task, event: Observed) -> Task:
    return noted(task, event.text)


@agent.on("acting", failed(UseTool), to="thinking")
def broken(task: Task, _: Event) -> Task:
    return noted(task, "The tool does not work now.")


# It gives money back: once an order, and above a sum only with a person's word


def is_refunded(task: Task, event: RefundChosen) -> bool:
    return event.order in task.refunded


@agent.on("thinking", RefundChosen, to="thinking", guard=is_refunded)
def refunded_before(task: Task, event: RefundChosen) -> Task:
    return noted(task, f"Order {event.order} was refunded before.")


@agent.on("thinking", RefundChosen, to="confirming", guard=lambda _, e: e.amount > OWN_REFUND)
@agent.on("thinking", RefundChosen, to="refunding")
def refund_chosen(task: Task, event: RefundChosen) -> Task:
    question = f"May I give back {event.amount} for order {event.order}?"
    return replace(task, refund=event, question=question)


def refund(task: Task, _: Event) -> Refund | None:
    return Refund(task.refund.order, task.refund.amount) if task.refund else None


agent.enter("refunding", send=refund)
agent.command(
    Refund, target="bank", answers=(Refunded, RefundRefused), retry=Retry(attempts=5, first_s=1)
)
agent.on("refunding", unknown(Refund))  # it waits: the executor finds out, the agent must not


@agent.on("refunding", Refunded, to="thinking")
def refunded(task: Task, _: Refunded) -> Task:
    order = task.refund.order if task.refund else ""
    return noted(
        replace(task, refund=None, refunded=(*task.refunded, order)), f"Order {order} is refunded."
    )


@agent.on("refunding", RefundRefused, to="thinking")
def refund_refused(task: Task, event: RefundRefused) -> Task:
    return noted(replace(task, refund=None), f"The bank refuses: {event.reason}")


@agent.on("refunding", failed(Refund), to="thinking")
def refund_failed(task: Task, _: Event) -> Task:
    return noted(replace(task, refund=None), "The bank cannot be reached; nothing was refunded.")


# It needs a person's word

agent.enter(("asking", "confirming"), send=lambda task, _: AskPerson(task.question))
agent.command(AskPerson, target="desk")


@agent.on("confirming", InputGiven, to="refunding", guard=lambda _, event: event.yes)
@agent.on("confirming", InputGiven, to="thinking")
@agent.on("asking", InputGiven, to="thinking")
def told(task: Task, event: InputGiven) -> Task:
    return noted(task, f"{event.by}: {event.text}")


agent.after(("asking", "confirming"), timedelta(days=1), to="gave_up")


agent.defer("refunding", Stopped)  # what became of the money is known first


@agent.on(("thinking", "acting", "asking", "confirming"), Stopped, to="stopped")
def stopped(task: Task, event: Stopped) -> Task:
    return replace(task, stopped_by=event.by)


agent.waits(("thinking", "acting", "refunding"), RunStatus.WAITING_CALLBACK)
agent.waits(("asking", "confirming"), RunStatus.WAITING_INPUT)
ENDS = {
    "answered": RunStatus.COMPLETED,
    "stopped": RunStatus.FAILED,
    "gave_up": RunStatus.FAILED,
    "out_of_steps": RunStatus.FAILED,
}
for end, status in ENDS.items():
    agent.final(end, late={InputGiven: Late.REFUSE, ANY: Late.RECORD}, status=status)
