"""The types of answers can be read by everybody before the first one is sent."""

import pytest
from tests.executors.desk import Desk, Paid, Pay

from refold.executors.executor import Call, Executor
from refold.executors.truth import ByKey
from refold.schemas.codec import codec_of
from refold.schemas.errors import DefinitionError
from refold.topics.clients import reader
from refold.topics.schema_topic import SchemaTopic

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]
BY_KEY = ByKey(3600)


def test_types_of_answers_stand_on_the_schema_topic_when_the_first_answer_is_heard(
    desk: Desk,
) -> None:
    bank = Executor("bank")

    @bank.action(Pay, truth=BY_KEY, answers=[Paid])
    def pay(command: Pay, _: Call) -> Paid:
        return Paid(reference="r")

    settings = desk.settings()
    topic = SchemaTopic(settings.namespace, reader(settings))
    try:
        fingerprint = codec_of(Paid).fingerprint
        assert topic.find(fingerprint) is None
        with desk.running(bank):
            key = desk.send("i")
            desk.until_heard(key, "succeeded")
            assert topic.find(fingerprint) is not None
    finally:
        topic.close()


def test_an_answer_that_has_no_schema_is_refused_where_it_is_declared() -> None:
    with pytest.raises(DefinitionError, match="int"):
        Executor("bank").action(Pay, truth=BY_KEY, answers=[int])
