"""A schema topic that is silent is waited out once, not once for each partition (P11, P27)."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from refold.examples.order import order
from refold.processors import vocabulary
from refold.processors.definition import Workflow
from refold.processors.vocabulary import LOOP_SILENT_S, Vocabulary
from refold.schemas.errors import Code, ServerError


class Silent:
    """A schema topic that is silent as long as it is waited for, on a clock of its own."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.asked: list[float | None] = []
        self.away = True

    def refresh(self, silent_s: float | None) -> list[Any]:
        self.asked.append(silent_s)
        if not self.away:
            return []
        self.now_s += silent_s or 30.0
        raise ServerError(Code.KAFKA_AWAY, "Nothing was heard.", "Wait.")


def test_a_silent_schema_topic_holds_the_loop_up_once_in_a_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = Silent()
    monkeypatch.setattr(vocabulary, "monotonic", lambda: topic.now_s)
    clients = cast(Any, SimpleNamespace(registry=lambda: None))
    words = Vocabulary("shop", [Workflow("order", [order])], clients, LOOP_SILENT_S)
    cast(Any, words)._topic = topic
    for _ in range(100):  # partitions of one round
        with pytest.raises(ServerError):
            words.refresh()
    assert topic.now_s == 100.0 + LOOP_SILENT_S
    topic.now_s += vocabulary.AGAIN_S
    topic.away = False
    words.refresh()
    words.refresh()
    assert topic.asked == [LOOP_SILENT_S] * 3, "once it answers, it is read whenever it is asked"
