"""Parts of the documentation that are made from the code, each under its name.

Law: a made part stands between `<!-- made: NAME -->` and `<!-- end: NAME -->`; a test compares
it, and `python -m tests.docs.blocks`, run in the repository's root, writes it anew.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, get_args

from prometheus_client.core import Metric
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from tests.tree import ROOT, project, tree

from refold.examples.order import order
from refold.executors import health as executors
from refold.executors.circuit import State
from refold.executors.lanes import Gate
from refold.executors.model import Standing
from refold.processors.draw import to_markdown, to_svg
from refold.processors.endpoint import StatusCollector
from refold.processors.health import Health, PartitionStatus, Status
from refold.processors.lateness import BUCKETS_S, Lateness
from refold.processors.options import Options
from refold.processors.partition import Phase
from refold.topics.settings import Executor, Kafka, Postgres, Settings, Worker

MARKED: Final = re.compile(r"<!-- made: ([a-z ]+) -->\n(.*?)<!-- end: \1 -->", re.DOTALL)


def layers() -> str:
    """The packages, top to bottom, and whom each may import: the contract as a picture."""
    contracts = project()["tool"]["importlinter"]["contracts"]
    contract = next(each for each in contracts if each["type"] == "layers")
    rows = [re.findall(r"refold\.(\w+)", layer) for layer in contract["layers"]]
    lines = ["```mermaid", "flowchart TD"]
    lines += [f"    {name}[{name}]" for row in rows for name in row]
    lines += [
        f"    {upper} --> {lower}"
        for above, below in pairwise(rows)
        for upper in above
        for lower in below
    ]
    return "\n".join([*lines, "```", ""])


def core() -> str:
    """Modules of the pure core, by package."""
    contracts = project()["tool"]["importlinter"]["contracts"]
    contract = next(each for each in contracts if each["name"] == "the core does no I/O")
    found: dict[str, list[str]] = {}
    for name in contract["source_modules"]:
        _, package, module = name.split(".")
        found.setdefault(package, []).append(f"`{module}`")
    return "".join(f"- `{package}/`: {', '.join(names)}\n" for package, names in found.items())


def settings() -> str:
    """Every setting of a process."""
    rows = ["| setting | variable | default | allowed | what for |", "| --- " * 5 + "|"]
    sections: list[tuple[str, type[BaseModel]]] = [
        ("", Settings), ("kafka", Kafka), ("postgres", Postgres), ("worker", Worker),
        ("executor", Executor),
    ]  # fmt: skip
    for section, model in sections:
        for name, field in model.model_fields.items():
            if not (isinstance(field.default, BaseModel) or name == "options"):
                rows.append(_setting(section, name, field, _said(model).get(name, "")))
    return "\n".join([*rows, ""])


def _setting(section: str, name: str, field: FieldInfo, said: str) -> str:
    variable = "_".join(part.upper() for part in ("refold", section, name) if part)
    shown = _shown(field.get_default(call_default_factory=True))
    full = f"{section}.{name}" if section else name
    return f"| `{full}` | `{variable}` | {_code(shown)} | {_allowed(field)} | {said} |"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value == {} else str(value)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _allowed(field: FieldInfo) -> str:
    bounds = {name: getattr(each, name) for each in field.metadata for name in ("ge", "gt", "le")
              if getattr(each, name, None) is not None}  # fmt: skip
    if bounds:
        low = f"over {bounds['gt']:,}" if "gt" in bounds else f"{bounds['ge']:,.0f}"
        return f"{low} to {bounds['le']:,.0f}"
    choices = get_args(field.annotation)
    if choices and all(isinstance(each, str) for each in choices):
        return " or ".join(f"`{each}`" for each in choices)
    return "true or false" if field.annotation is bool else ""


def options() -> str:
    """What a worker keeps to and nobody needs to set."""
    fixed = [name for name in Options.__struct_fields__ if name not in _SET and name not in _INNER]
    defaults = {name: getattr(Options(), name) for name in fixed}
    rows = ["| name | value | why |", "| --- | --- | --- |"]
    said = _said(Options)
    for name in fixed:
        rows.append(f"| `{name}` | {_code(_shown(defaults[name]))} | {said.get(name, '')} |")
    return "\n".join([*rows, ""])


_SET: Final = {
    keyword.arg
    for node in ast.walk(tree(ROOT / "processors/service.py"))
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Options"
    for keyword in node.keywords
}
"""Options that a setting sets."""
_INNER: Final = {"namespace", "group", "name", "tenant", "activate_manually"}
"""Set from elsewhere, or not yet to be set by anybody."""


def metrics() -> str:
    """Every metric that a worker shows."""
    return _table(_metrics())


def executor_metrics() -> str:
    """Every metric that an executor shows."""
    return _table(_executor_metrics())


def _table(metrics: Iterable[Metric]) -> str:
    rows = ["| metric | kind | labels | what |", "| --- | --- | --- | --- |"]
    for metric in metrics:
        suffix = "_total" if metric.type == "counter" else ""
        labels = sorted({label for sample in metric.samples for label in sample.labels})
        shown = ", ".join(f"`{label}`" for label in labels)
        rows.append(
            f"| `{metric.name}{suffix}` | {metric.type} | {shown} | {metric.documentation} |"
        )
    return "\n".join([*rows, ""])


def _metrics() -> Iterator[Metric]:
    health = Health("w")
    one = PartitionStatus(
        topic="t", partition=0, workflow="w", phase=Phase.LIVE, counts={"applied": 1}
    )
    rang = Lateness("w", (0,) * (len(BUCKETS_S) + 1), 0.0)
    health.status = Status(worker="w", at_s=0.0, partitions=(one,), lateness=(rang,))
    return StatusCollector(health).collect()


def _executor_metrics() -> Iterator[Metric]:
    gate = Gate("bank", "system", State.OPEN, "")
    status = executors.Status(
        worker="w", target="t", joined=True, stopping=False, turned_s=0.0, scanned_s=0.0, calls=0,
        waiting=0, unrecorded=0, unpublished=0, standing=Standing(), gates=(gate,),
        unhandled={"Pay": 1}, planned=0, rejected=0, clashes=0, contradictions=0, lost={"0": 1},
        run_out=0, polled=0, ends={"Pay/succeeded": 1}, away={"commands": ""},
    )  # fmt: skip
    return executors.described(status)


def figures() -> str:
    """Every figure that is measured."""
    rows = ["| figure | unit | must be | aim |", "| --- | --- | --- | --- |"]
    for one in _figures():
        sign = "≥" if one.higher else "≤"
        bounds = (f"{sign} {each:,g}" if each is not None else "" for each in (one.must, one.aim))
        rows.append(f"| {one.title} | {one.unit} | {' | '.join(bounds)} |")
    return "\n".join([*rows, ""])


def _figures() -> Any:
    """The figures of `bench`, which is run from a checkout and never installed."""
    spec = spec_from_file_location("measured_figures", ROOT / "bench" / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FIGURES


def example(name: str) -> str:
    """The code of an example."""
    return f"```python\n{(ROOT / 'examples' / name / 'graph.py').read_text()}```\n"


def order_table() -> str:
    """The table state × event type of the order example."""
    return to_markdown(order.build())


def _said(model: type) -> Mapping[str, str]:
    """The texts below a class's fields, which Python itself does not keep."""
    path = ROOT / (model.__module__.removeprefix("refold.").replace(".", "/") + ".py")
    found = {}
    cls = next(
        node
        for node in tree(path).body
        if isinstance(node, ast.ClassDef) and node.name == model.__name__
    )
    for field, text in zip(cls.body, cls.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            name: Any = field.target
            value: Any = text.value
            found[name.id] = " ".join(str(value.value).split()).replace("|", "\\|")
    return found


MADE: Final[Mapping[str, Callable[[], str]]] = {
    "layers": layers,
    "core": core,
    "settings": settings,
    "options": options,
    "metrics": metrics,
    "executor metrics": executor_metrics,
    "figures": figures,
    "example": lambda: example("order"),
    "parcel": lambda: example("parcel"),
    "order table": order_table,
}
PICTURES: Final[Mapping[str, Callable[[], str]]] = {
    "order.svg": lambda: to_svg(order.build()),
}


def pages() -> list[Path]:
    """Every page that may hold a made part."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def write() -> None:
    """Write every made part anew."""
    for path in pages():
        text = path.read_text()
        fresh = MARKED.sub(
            lambda found: f"<!-- made: {found[1]} -->\n{MADE[found[1]]()}<!-- end: {found[1]} -->",
            text,
        )
        if fresh != text:
            path.write_text(fresh)
    for name, draw in PICTURES.items():
        (ROOT / "docs" / "pictures" / name).write_text(draw())


if __name__ == "__main__":
    write()
