"""What a step offers to reducers is derived from the log: the same at every replay."""

from datetime import UTC, datetime
from uuid import UUID

from msgspec.structs import replace

from refold.examples.order.graph import OrderPlaced, order
from refold.processors.info import StepInfo
from refold.schemas.envelope import event_identity
from refold.testing.driver import Driver


def _step(instance: str = "order-1", event: str = "e1") -> StepInfo:
    driver = Driver(order, tenant="acme", source="/shop")
    driver.send(instance, OrderPlaced(("apple",), 5), id="e0")
    record = driver.log[0].event
    record = replace(record, id=event, identity=event_identity("/shop", event))
    return StepInfo("order", driver.instance(instance), record, 1_700_000_000_123)


def test_derived_values_never_change() -> None:
    step = _step()
    assert step.new_id() == "7b1c060f-f7eb-86af-8f03-7edb6b93f201"
    assert step.new_id() == "52eff2e4-2687-81aa-aa6b-a3f30cc4e231"
    assert step.random() == 0.45042756545010176


def test_ids_are_uuids_of_version_eight_and_differ_within_a_step() -> None:
    step = _step()
    drawn = [UUID(step.new_id()) for _ in range(100)]
    assert {one.version for one in drawn} == {8}
    assert len(set(drawn)) == 100


def test_randomness_lies_between_zero_and_one() -> None:
    step = _step()
    drawn = [step.random() for _ in range(1000)]
    assert min(drawn) >= 0
    assert max(drawn) < 1
    assert len(set(drawn)) == 1000


def test_another_event_or_instance_draws_other_values() -> None:
    first, event, instance = _step(), _step(event="e2"), _step(instance="order-2")
    assert len({first.new_id(), event.new_id(), instance.new_id()}) == 3


def test_a_step_knows_its_event_and_fold_time() -> None:
    step = _step()
    assert (step.tenant, step.instance, step.state) == ("acme", "order-1", "reserving")
    assert (step.event_id, step.event_source, step.event_time) == ("e1", "/shop", None)
    assert step.time == datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)
