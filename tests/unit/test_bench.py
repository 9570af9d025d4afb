"""The benchmark divides by loops that owe nothing to refold, and checks what they did."""

import ast
import importlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]
LIMITS = sorted((ROOT / "bench" / "limits").glob("*.py"))
TEXT = st.text(st.characters(codec="utf-8"), max_size=200)
LONG = st.integers(-(2**63), 2**63 - 1)


def of_bench(monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    """A module of `bench`, which is run from a checkout and never installed."""
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module(f"bench.{name}")


@pytest.fixture(scope="module")
def codecs() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        return of_bench(patch, "limits.codecs")


@pytest.fixture(scope="module")
def wire() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        return of_bench(patch, "limits.wire")


@pytest.mark.parametrize("path", LIMITS, ids=lambda path: path.name)
def test_a_limit_imports_nothing_of_refold(path: Path) -> None:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    own = {name for name in imported if name.startswith("bench")}

    assert not {name for name in imported if name.split(".")[0] == "refold"}
    assert all(name.startswith("bench.limits") for name in own)


@given(customer=TEXT, item=TEXT, quantity=LONG)
def test_the_hand_written_encoders_write_the_bytes_of_fastavro(
    codecs: Any, wire: Any, customer: str, item: str, quantity: int
) -> None:
    reserve = {"customer": customer, "item": item, "quantity": quantity}
    ship = {"customer": customer, "item": item, "receipt": customer}

    assert codecs.reserve_item(**reserve) == wire.encode(wire.RESERVE, reserve)
    assert codecs.ship_order(**ship) == wire.encode(wire.SHIP, ship)


@given(text=TEXT, other=TEXT, number=LONG, count=LONG)
def test_the_hand_written_decoders_read_the_bytes_of_fastavro(
    codecs: Any, wire: Any, text: str, other: str, number: int, count: int
) -> None:
    placed = {"customer": text, "item": other, "quantity": number, "total": count}
    paid = {"receipt": text, "method": other, "amount": number, "paid_at": count}

    assert codecs.order_placed(wire.encode(wire.PLACED, placed)) == codecs.OrderPlaced(**placed)
    assert codecs.order_paid(wire.encode(wire.PAID, paid)) == codecs.OrderPaid(**paid)


def test_w1_sends_each_instance_two_events_and_expects_two_commands(wire: Any) -> None:
    events = list(wire.events(30))
    commands = dict(wire.expected_commands(30))

    assert len(events) == len({(event.instance, event.id) for event in events}) == 60
    assert len(commands) == 60
    assert len(list(wire.expected_states(30))) == 30


def test_the_keys_of_w1_are_those_of_refold(wire: Any) -> None:
    from refold.processors.keys import key_of  # noqa: PLC0415 - the one place where both meet

    event = wire.placed(7)
    key = key_of(
        wire.TENANT,
        wire.WORKFLOW,
        event.instance,
        "reserving",
        "ReserveItem",
        wire.SOURCE,
        event.id,
    )

    assert key == wire.command_key(event.instance, "reserving", "ReserveItem", event.id)


@pytest.mark.parametrize("style", ["w1", "w1_dataclass", "w1_pydantic"])
def test_every_style_of_w1_writes_and_reads_the_bytes_of_the_limits(
    monkeypatch: pytest.MonkeyPatch, wire: Any, style: str
) -> None:
    from refold.schemas.codec import codec_of  # noqa: PLC0415 - the one place where both meet

    graph = of_bench(monkeypatch, style)
    graph.w1.build()
    placed, paid = codec_of(graph.OrderPlaced), codec_of(graph.OrderPaid)
    reserve = graph.ReserveItem(customer="Zoë", item="item-1", quantity=-3)
    ship = graph.ShipOrder(customer="Zoë", item="item-1", receipt="r" * 99)

    assert placed.encode(placed.decode(wire.placed(7).value)) == wire.placed(7).value
    assert paid.encode(paid.decode(wire.paid(7).value)) == wire.paid(7).value
    assert codec_of(graph.ReserveItem).encode(reserve) == wire.encode(
        wire.RESERVE, {"customer": "Zoë", "item": "item-1", "quantity": -3}
    )
    assert codec_of(graph.ShipOrder).encode(ship) == wire.encode(
        wire.SHIP, {"customer": "Zoë", "item": "item-1", "receipt": "r" * 99}
    )


def test_the_ids_and_values_of_w2_are_those_of_refold(monkeypatch: pytest.MonkeyPatch) -> None:
    from refold.processors.keys import key_of  # noqa: PLC0415 - the one place where both meet
    from refold.schemas.codec import codec_of  # noqa: PLC0415
    from refold.schemas.envelope import derived_id  # noqa: PLC0415

    w2, w2_wire, wire = (of_bench(monkeypatch, f) for f in ("w2", "limits.w2_wire", "limits.wire"))
    first, second, *rest = w2_wire.expected_keys("w2-7")
    where = (wire.TENANT, w2_wire.WORKFLOW, "w2-7")
    answer = derived_id("result", first, "succeeded")

    assert first == key_of(*where, "s1", "Do", w2_wire.SOURCE, "w2-7-begun")
    assert second == key_of(*where, "s2", "Do", w2_wire.EXECUTOR_SOURCE, answer)
    assert len(rest) == w2.STEPS - 2
    did = codec_of(w2.Did).encode(w2.Did("receipt-1", 3))
    assert did == wire.encode(w2_wire.DID, {"receipt": "receipt-1", "step": 3})


def test_the_fan_out_joins_once_when_every_branch_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    from refold.testing.driver import Driver  # noqa: PLC0415

    fan = of_bench(monkeypatch, "fan")
    driver = Driver(fan.fan)
    driver.send("f", fan.Asked(200))
    branches = list(driver.sent)
    for send in branches:
        assert driver.state("f") == "forked"
        driver.done(send, fan.Did(driver.command(send).number))

    assert len(set(driver.keys())) == 201
    assert [send.type for send in driver.sent[len(branches) :]] == ["Ended"]
    assert fan.executor.actions["Do"].independent


def test_each_part_belongs_to_one_session(monkeypatch: pytest.MonkeyPatch) -> None:
    run = of_bench(monkeypatch, "run")
    parts = [part for parts in run.SESSIONS.values() for part in parts]

    assert parts == list(run.PARTS)
    assert set(run.TARGETS) == set(run.SESSIONS)


def test_both_runs_of_a_ratio_are_adjacent(monkeypatch: pytest.MonkeyPatch) -> None:
    chains = of_bench(monkeypatch, "chains").CHAINS

    for chain in chains.values():
        for ratio in chain.ratios:
            places = chain.sides.index(ratio.over), chain.sides.index(ratio.under)
            assert abs(places[0] - places[1]) == 1, ratio


def test_a_figure_with_a_wrong_run_is_missed_whatever_its_median(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    figures = of_bench(monkeypatch, "figures")
    figure = figures.BY_NAME["w1_plain"]

    right = figures.Found(figure, [0.9, 0.7, 0.8]).as_json()
    wrong = figures.Found(figure, [0.9, 0.0, 0.8], ["wrong states"]).as_json()

    assert (right["min"], right["median"], right["max"]) == (0.7, 0.8, 0.9)
    assert right["judgement"] == "must"
    assert wrong["judgement"] == "missed"


def test_the_report_shows_every_figure_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    figures, report = of_bench(monkeypatch, "figures"), of_bench(monkeypatch, "report")
    found = [figures.Found(figure, [1.0, 2.0]).as_json() for figure in figures.FIGURES]
    page = report.render(
        {
            "made": "2026-01-01T00:00+00:00",
            "quick": True,
            "events": 300_000,
            "machine": {"cores": 2},
            "figures": found,
            "sides": [{"side": "plain", "rate": 40_000.0, "cpu_us": 20.0, "runs": 5}],
        }
    )

    assert all(figure.title in page for figure in figures.FIGURES)
    assert "A quick run" in page
    assert "| plain | 40,000 | 20.0 | 5 |" in page
