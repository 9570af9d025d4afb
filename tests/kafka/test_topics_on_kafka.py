from types import SimpleNamespace
from uuid import uuid4

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, without __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from confluent_kafka.cimpl import NewPartitions
from tests.kafka.conftest import Eventually

from refold.schemas.errors import Code, ServerError, UsageError
from refold.topics.facts import TopicFacts, topic_facts
from refold.topics.preflight import findings, judge_pair, judge_partition
from refold.topics.settings import Settings
from refold.topics.specs import TopicSpec, create, workflow_specs

pytestmark = pytest.mark.kafka


def specs(settings: Settings, partitions: int = 3) -> tuple[TopicSpec, ...]:
    return workflow_specs(settings.namespace, "order", ["payments"], partitions)


def alter(admin: AdminClient, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)


def test_topics_are_created_once_and_pass_their_own_check(
    settings: Settings, admin: AdminClient
) -> None:
    made = create(admin, specs(settings))
    assert [each.created for each in made] == [True] * 4
    again = create(admin, specs(settings, partitions=5))
    assert [each.created for each in again] == [False] * 4
    assert findings(admin, specs(settings)[:3]) == []


def test_missing_topics_are_findings_and_not_errors(settings: Settings, admin: AdminClient) -> None:
    found = findings(admin, specs(settings))
    assert [each.code for each in found] == [Code.TOPIC_MISSING] * 4
    assert all("refold topics create" in each.cure for each in found)


@pytest.mark.parametrize(
    ("topic", "name", "value", "code"),
    [
        ("order.events", "cleanup.policy", "compact", Code.TOPIC_WRONG),
        ("order.events", "cleanup.policy", "compact,delete", Code.TOPIC_WRONG),
        ("order.events", "message.timestamp.type", "CreateTime", Code.TOPIC_WRONG),
        ("order.events", "retention.ms", "604800000", Code.RETENTION_FINITE),
        ("order.rejected", "retention.bytes", "1000000", Code.RETENTION_FINITE),
        ("order.rejected", "max.message.bytes", "1048588", Code.TOPIC_WRONG),
        ("schemas", "cleanup.policy", "delete", Code.TOPIC_WRONG),
    ],
)
def test_a_setting_that_refold_relies_on_is_found_changed(
    shop: Settings,
    admin: AdminClient,
    eventually: Eventually,
    topic: str,
    name: str,
    value: str,
    code: Code,
) -> None:
    alter(admin, f"{shop.namespace}.{topic}", name, value)
    (found,) = eventually(lambda: findings(admin, specs(shop), counts=False), bool)
    assert (found.code, found.topic) == (code, f"{shop.namespace}.{topic}")
    assert f"{name}={value}" in found.what
    assert found.fence().code == code


def test_a_finite_retention_can_be_accepted(shop: Settings, admin: AdminClient) -> None:
    alter(admin, f"{shop.namespace}.order.events", "retention.ms", "604800000")
    assert findings(admin, specs(shop), accept_finite_retention=True, counts=False) == []


def test_a_larger_limit_than_needed_is_no_finding(
    shop: Settings, admin: AdminClient, eventually: Eventually
) -> None:
    topic = f"{shop.namespace}.order.events"
    alter(admin, topic, "max.message.bytes", "5000000")
    raised = eventually(
        lambda: topic_facts(admin, topic, 10),
        lambda facts: facts.settings["max.message.bytes"] == "5000000",
    )
    assert raised.settings["max.message.bytes"] == "5000000"
    assert findings(admin, specs(shop), counts=False) == []


def test_a_raised_partition_count_fences_what_was_written_before_b002(
    shop: Settings, admin: AdminClient, eventually: Eventually
) -> None:
    topic = f"{shop.namespace}.order.events"
    before = topic_facts(admin, topic, 10)
    stored = SimpleNamespace(topic_id=before.topic_id, partitions=3, marker=0)
    assert judge_partition(before, 0, stored, 0, 0) == []
    for future in admin.create_partitions([NewPartitions(topic, 4)]).values():
        future.result(10)
    facts = eventually(lambda: topic_facts(admin, topic, 10), lambda facts: facts != before)
    (found,) = judge_partition(facts, 0, stored, 0, 0)
    assert found.code == Code.PARTITIONS_CHANGED
    rejected = topic_facts(admin, f"{shop.namespace}.order.rejected", 10)
    assert judge_pair(before, rejected) == []
    assert [each.code for each in judge_pair(facts, rejected)] == [Code.PARTITIONS_CHANGED]


def test_a_recreated_topic_is_another_log_b005(
    settings: Settings, admin: AdminClient, eventually: Eventually
) -> None:
    topic = f"{settings.namespace}.order.events"
    create(admin, specs(settings)[:1])
    old = topic_facts(admin, topic, 10)
    admin.delete_topics([topic])[topic].result(10)
    create(admin, specs(settings)[:1])

    def described() -> TopicFacts:
        try:
            return topic_facts(admin, topic, 10)
        except ServerError:  # this broker knows of the deletion, not yet of the rest
            return old

    new = eventually(described, lambda facts: facts.topic_id != old.topic_id)
    stored = SimpleNamespace(topic_id=old.topic_id, partitions=3, marker=900)
    (found,) = judge_partition(new, 1, stored, 0, 1_200)  # 900 is a valid offset in the new log
    assert (found.code, found.partition) == (Code.LOG_REPLACED, 1)


def test_a_gap_below_the_log_is_named_b004(shop: Settings, admin: AdminClient) -> None:
    facts = topic_facts(admin, f"{shop.namespace}.order.events", 10)
    stored = SimpleNamespace(topic_id=facts.topic_id, partitions=3, marker=401)
    (found,) = judge_partition(facts, 0, stored, 700, 1_000)
    assert found.code == Code.OFFSETS_OUT_OF_RANGE
    assert "401 to 699 are gone" in found.what
    (found,) = judge_partition(facts, 0, stored, 0, 400)
    assert "past the end" in found.what
    assert judge_partition(facts, 0, stored, 401, 401) == []


def test_a_broker_that_refuses_says_why(settings: Settings, admin: AdminClient) -> None:
    with pytest.raises(ServerError) as caught:
        create(admin, workflow_specs(settings.namespace, "order", [], 1, replication=9))
    assert caught.value.code == Code.KAFKA_REFUSED
    assert "replicas" in caught.value.cure


def test_a_name_that_no_topic_may_have_is_refused_before_the_broker_is_asked() -> None:
    for namespace, partitions in ((f"a.{uuid4()}", 1), ("a", 0)):
        with pytest.raises(UsageError):
            workflow_specs(namespace, "order", [], partitions)
