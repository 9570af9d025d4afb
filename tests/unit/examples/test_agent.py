"""An agent: bounded in steps, repeats, money and memory; what its model says is on the log."""

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from refold import Event, RunStatus
from refold.examples.agent import agent
from refold.examples.agent.graph import (
    NOTE_LENGTH,
    NOTES,
    STEPS,
    Answered,
    AskPerson,
    InputGiven,
    Observed,
    QuestionChosen,
    Refund,
    RefundChosen,
    Refunded,
    RefundRefused,
    Stopped,
    TaskGiven,
    Think,
    ToolChosen,
    UseTool,
)
from refold.processors.effects import Send
from refold.schemas.verdicts import Verdict
from refold.testing.answering import Answering, End, Ending, Rule
from refold.testing.driver import Driver

FIND = ToolChosen("find_order", "4711")
TASK = TaskGiven("The customer wants the money for order 4711 back.")


class Model:
    """Says what a test wants, one after the other; the last thing for ever."""

    def __init__(self, *choices: Event) -> None:
        self._choices = list(choices)
        self.thoughts: list[Think] = []

    def __call__(self, command: Think, _: Send) -> Ending:
        self.thoughts.append(command)
        says = self._choices.pop(0) if len(self._choices) > 1 else self._choices[0]
        return Ending(End.DONE, says)


def at_work(
    *choices: Event, refund: Rule | None = None, tool: Rule | None = None
) -> tuple[Driver, Answering, Model]:
    driver, model = Driver(agent, tenant="desk"), Model(*choices)
    rules: dict[type, Rule] = {
        Think: model,
        UseTool: tool or Ending(End.DONE, Observed("an order over 48.00, delivered broken")),
        Refund: refund or Ending(End.DONE, Refunded()),
        AskPerson: Ending(End.SILENT),
    }
    driver.send("t", TASK)
    return driver, Answering(driver, rules), model


def times(driver: Driver) -> Counter[str]:
    return Counter(one.type for one in driver.sent)


def refunds(driver: Driver) -> set[str]:
    return {one.key for one in driver.sent if one.type == "Refund"}


def checked(driver: Driver) -> None:
    driver.check_counts()
    driver.check_replay()
    driver.kill_and_recover()


def test_it_thinks_acts_observes_and_answers() -> None:
    driver, desk, model = at_work(FIND, RefundChosen("4711", 4_800), Answered("Done."))
    desk.run()
    assert [one.type for one in driver.sent] == ["Think", "UseTool", "Think", "Refund", "Think"]
    assert model.thoughts[-1].notes == (
        "an order over 48.00, delivered broken", "Order 4711 is refunded.",
    )  # fmt: skip
    assert driver.instance("t").context.answer == "Done."
    assert driver.status("t") is RunStatus.COMPLETED
    checked(driver)


def test_a_replay_asks_no_model_and_comes_to_the_same_end() -> None:
    driver, desk, model = at_work(FIND, Answered("Done."))
    desk.run()
    asked = len(model.thoughts)
    assert driver.replay().hash() == driver.hash()
    assert len(model.thoughts) == asked


def test_it_is_out_of_steps_after_so_many_thoughts() -> None:
    inputs = [ToolChosen("find_order", str(number)) for number in range(STEPS * 2)]
    driver, desk, model = at_work(*inputs)
    desk.run()
    assert driver.state("t") == "out_of_steps"
    assert driver.status("t") is RunStatus.FAILED
    assert len(model.thoughts) == STEPS
    checked(driver)


def test_a_model_that_names_tools_which_do_not_exist_is_told_and_bounded() -> None:
    driver, desk, model = at_work(ToolChosen("drop_tables", "orders"))
    desk.run()
    assert driver.state("t") == "out_of_steps"
    assert not times(driver)["UseTool"]
    assert "no tool drop_tables" in model.thoughts[1].notes[0]


def test_without_progress_it_asks_a_person_and_goes_on_with_what_it_hears() -> None:
    driver, desk, model = at_work(FIND, FIND, FIND, Answered("Done."))
    desk.run(timedelta(minutes=1))
    assert (driver.state("t"), driver.status("t")) == ("asking", RunStatus.WAITING_INPUT)
    assert times(driver)["UseTool"] == 2
    assert "I get nowhere with find_order '4711'" in driver.instance("t").context.question
    driver.send("t", InputGiven("It is 4712.", by="ann"))
    desk.run()
    assert model.thoughts[-1].notes[-1] == "ann: It is 4712."
    assert driver.state("t") == "answered"
    checked(driver)


def test_a_question_that_nobody_answers_ends_the_task_in_a_day() -> None:
    driver, desk, _ = at_work(QuestionChosen("Which order?"))
    desk.run(timedelta(hours=23))
    assert driver.state("t") == "asking"
    desk.run()
    assert driver.state("t") == "gave_up"
    assert driver.send("t", InputGiven("4711", by="ann")).verdict is Verdict.LATE


# the tool that costs money


def test_much_money_is_given_back_on_a_persons_word_alone() -> None:
    for yes in (True, False):
        driver, desk, _ = at_work(RefundChosen("4711", 480_000), Answered("Done."))
        desk.run(timedelta(minutes=1))
        assert driver.state("t") == "confirming"
        assert not refunds(driver)
        driver.send("t", InputGiven("as you say", by="ann", yes=yes))
        desk.run()
        assert len(refunds(driver)) == yes
        assert driver.state("t") == "answered"
        checked(driver)


def test_a_model_that_repeats_itself_gives_the_money_for_an_order_back_once() -> None:
    driver, desk, model = at_work(RefundChosen("4711", 4_800))
    desk.run()
    assert len(refunds(driver)) == 1
    assert driver.state("t") == "out_of_steps"
    assert "Order 4711 was refunded before." in model.thoughts[-1].notes
    checked(driver)


def test_while_nobody_knows_what_became_of_the_money_it_neither_thinks_nor_stops() -> None:
    five = timedelta(minutes=5)
    lost: Rule = lambda _, send: [Ending(End.UNKNOWN), Ending(End.DONE, Refunded(), five)]  # noqa: E731
    driver, desk, model = at_work(RefundChosen("4711", 4_800), Answered("Done."), refund=lost)
    desk.run(timedelta(minutes=1))
    assert driver.state("t") == "refunding"
    assert [one.known for one in driver.instance("t").more.actions] == ["unknown"]
    assert driver.send("t", Stopped("ann")).verdict is Verdict.DEFERRED
    assert len(model.thoughts) == 1
    desk.run()
    found = driver.instance("t").context
    assert (driver.state("t"), found.stopped_by, found.refunded) == ("stopped", "ann", ("4711",))
    assert len(refunds(driver)) == 1
    checked(driver)


def test_what_the_bank_refuses_the_model_hears() -> None:
    no = Ending(End.DECLINED, RefundRefused("paid in cash"))
    driver, desk, model = at_work(RefundChosen("4711", 4_800), Answered("Sorry."), refund=no)
    desk.run()
    assert model.thoughts[-1].notes == ("The bank refuses: paid in cash",)
    assert driver.instance("t").context.refunded == ()


def test_a_tool_that_is_broken_and_a_model_that_is_away_do_not_hold_it_for_ever() -> None:
    driver, desk, model = at_work(FIND, Answered("Sorry."), tool=Ending(End.FAILED))
    desk.run()
    assert model.thoughts[-1].notes == ("The tool does not work now.",)
    driver, desk, _ = at_work(FIND)
    desk.rules[Think] = Ending(End.FAILED)
    desk.run()
    assert driver.state("t") == "gave_up"
    checked(driver)


def test_its_memory_is_bounded_however_much_it_reads() -> None:
    long = Ending(End.DONE, Observed("x" * 100_000))
    inputs = [ToolChosen("read_terms", str(number)) for number in range(STEPS)]
    driver, desk, _ = at_work(*inputs, tool=long)
    desk.run()
    notes = driver.instance("t").context.notes
    assert len(notes) <= NOTES
    assert max(map(len, notes)) == NOTE_LENGTH


SAYS: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        ToolChosen, st.sampled_from(["find_order", "read_terms", "rm"]), st.sampled_from("ab")
    ),
    st.builds(RefundChosen, st.sampled_from(["4711", "4712"]), st.sampled_from([4_800, 480_000])),
    st.builds(QuestionChosen, st.just("?")),
    st.builds(Answered, st.just("Done.")),
)


@settings(max_examples=60)
@given(st.lists(SAYS, min_size=1, max_size=40), st.lists(st.booleans(), max_size=10))
def test_whatever_a_model_says_it_ends_and_refunds_each_order_once_at_most(
    choices: list[Event], words: Iterable[bool]
) -> None:
    driver, desk, model = at_work(*choices)
    for yes in words:
        desk.run(timedelta(minutes=5))
        if driver.state("t") in ("asking", "confirming"):
            driver.send("t", InputGiven("well", by="ann", yes=yes))
    desk.run()
    assert driver.state("t") in agent.build().finals
    assert len(model.thoughts) <= STEPS
    paid = Counter(driver.command(one).order for one in driver.sent if one.type == "Refund")
    assert set(paid.values()) <= {1}
    allowed = sum(one.event.type == "InputGiven" for one in driver.log)
    much = [one for one in driver.sent if one.type == "Refund"]
    assert sum(driver.command(one).amount > 5_000 for one in much) <= allowed
    checked(driver)
