"""A definition as an SVG picture that a person can read: one file, no script, no outside font.

Law of this module: an outline in, text out; every word that stands in it is escaped. Text is
measured by a table of a common sans-serif, generously, so that it fits in the fonts of others.
"""

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Final
from xml.sax.saxutils import escape, quoteattr

import msgspec

from refold.processors.layered import Edge, Gaps, Placed, Point, Size, place
from refold.processors.outline import Arrow, Box, Outline, Standing

_FONT: Final = "'Inter','Segoe UI','Helvetica Neue',Helvetica,Arial,'DejaVu Sans',sans-serif"
_MARGIN: Final = 28.0
_TITLE: Final = 72.0  # room above the graph for its name
_STATE_CHARS: Final = 22  # a state's name is wrapped beyond
_LABEL_CHARS: Final = 26  # likewise an arrow's label and a line in a box
_LOOP: Final = 30.0  # how far an arrow from a state to itself stands out

_STYLE: Final = f"""
text{{font-family:{_FONT};fill:#0f172a}}
.name{{font-size:20px;font-weight:600}} .sub{{font-size:12px;fill:#64748b}}
.box{{fill:#ffffff;stroke:#475569;stroke-width:1.5}} .inner{{fill:none;stroke:#475569}}
.state{{font-size:15px;font-weight:600;text-anchor:middle}}
.line{{font-size:11.5px;fill:#475569}} .status{{font-size:11.5px;fill:#64748b;font-style:italic;
text-anchor:middle}} .send{{font-size:12px;fill:#4338ca}}
.pill{{fill:#eef2ff;stroke:#c7d2fe}} .mail{{fill:none;stroke:#4338ca;stroke-width:1.1}}
.arrow{{fill:none;stroke:#64748b;stroke-width:1.5}} .label{{font-size:12px;text-anchor:middle;
fill:#334155}} .halo{{fill:#f8fafc}} .guard{{fill:#64748b;font-style:italic}}
.page{{fill:#f8fafc}} .dot{{fill:#0f172a}} .head{{fill:#64748b}}
.good .box{{fill:#f0fdf4;stroke:#15803d}} .good .inner{{stroke:#15803d}}
.bad .box{{fill:#fef2f2;stroke:#b91c1c}} .bad .inner{{stroke:#b91c1c}}
.other .box{{fill:#f5f3ff;stroke:#6d28d9}} .other .inner{{stroke:#6d28d9}}
.been .box{{fill:#e0f2fe;stroke:#0369a1}} .been .inner{{stroke:#0369a1}}
.here .box{{fill:#fef3c7;stroke:#d97706;stroke-width:3}} .here .inner{{stroke:#d97706}}
.badge{{fill:#d97706}} .badgetext{{font-size:12px;font-weight:600;fill:#ffffff;text-anchor:middle}}
.taken{{stroke:#0369a1;stroke-width:2.5}} .takenhead{{fill:#0369a1}}
""".strip()

_PILLS: Final = frozenset({"send", "badge"})
_NARROW: Final = frozenset("iljtfrI.,:;|!'()[]{} /\\")
_WIDE: Final = frozenset("mwMW@%")


class _Line(msgspec.Struct, frozen=True):
    """One line inside a box."""

    kind: str
    text: str


class _Drawn(msgspec.Struct, frozen=True):
    """A box with its lines broken and its size known."""

    box: Box
    names: tuple[str, ...]
    lines: tuple[_Line, ...]
    loops: tuple[Arrow, ...]
    width: float
    height: float
    side: float
    """Room to the right for arrows from the state to itself."""


def svg(outline: Outline, standing: Standing | None = None) -> str:
    """Draw a definition.

    Args:
        outline: What to draw.
        standing: An instance to show in it: where it stands and where it has been.
    """
    boxes = {box.state: _drawn(box, outline.arrows, standing) for box in outline.boxes}
    bundles = _bundled(outline.arrows)
    edges = [Edge(one[0].source, one[0].target, _label_size(one)) for one in bundles]
    sizes = {state: Size(one.width + 2 * one.side, one.height) for state, one in boxes.items()}
    placed = place(sizes, edges, Gaps())
    legend = _legend(outline, standing)
    width = max(placed.width, _width(outline.name, 20), _width(legend, 12)) + 2 * _MARGIN
    height = placed.height + _TITLE + 2 * _MARGIN + 26
    inner = "".join(_inner(outline, boxes, bundles, placed, standing))
    shift = (width - placed.width) / 2
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" '
        f"aria-label={quoteattr(_spoken(outline, standing))}>\n"
        f"<title>{escape(outline.name)} version {outline.version}</title>\n"
        f"<style>{_STYLE}</style>\n{_markers()}\n"
        f'<rect class="page" width="100%" height="100%"/>\n'
        f"{_heading(outline, standing)}\n"
        f'<g transform="translate({shift:.1f},{_TITLE + _MARGIN:.1f})">\n{inner}</g>\n'
        f'<text class="sub" x="{_MARGIN}" y="{height - 14:.0f}">{escape(legend)}</text>\n</svg>\n'
    )


def _inner(
    outline: Outline,
    boxes: dict[str, _Drawn],
    bundles: Sequence[Sequence[Arrow]],
    placed: Placed,
    standing: Standing | None,
) -> Iterable[str]:
    taken = standing.taken if standing else frozenset()
    for index, bundle in enumerate(bundles):
        yield _route(placed.routes[index], any(one.id in taken for one in bundle))
    for state, drawn in boxes.items():
        yield _box(drawn, placed.nodes[state], standing)
        yield from _loops(drawn, placed.nodes[state], taken)
    for index, bundle in enumerate(bundles):
        yield _label(bundle, placed.labels[index])
    for box in outline.boxes:
        if box.initial:
            yield _start(placed.nodes[box.state], boxes[box.state])


def _bundled(arrows: Iterable[Arrow]) -> list[list[Arrow]]:
    """Arrows between the same two states are one line with several labels."""
    bundles: dict[tuple[str, str], list[Arrow]] = {}
    for arrow in arrows:
        if arrow.source != arrow.target:
            bundles.setdefault((arrow.source, arrow.target), []).append(arrow)
    return list(bundles.values())


def _drawn(box: Box, arrows: Iterable[Arrow], standing: Standing | None) -> _Drawn:
    loops = tuple(one for one in arrows if one.source == one.target == box.state)
    names = tuple(_broken(box.state, _STATE_CHARS))
    lines = (*_badge(box, standing), *_lines(box))
    widths = [_width(name, 15.5) for name in names]
    widths += [_width(line.text, 12) + (26 if line.kind in _PILLS else 0) for line in lines]
    width = max([118.0, *(one + 32 for one in widths)])
    height = 24.0 + 19 * len(names) + sum(_line_height(line) for line in lines)
    texts = [text for one in loops for text in _label_lines(one)]
    side = _LOOP + 8 + max((_width(text, 12) for text in texts), default=0.0) if loops else 0.0
    tall = max(height, 30.0 + 16 * len(texts)) if loops else height
    return _Drawn(box, names, lines, loops, width, tall, side)


def _lines(box: Box) -> Iterable[_Line]:
    if box.status:
        yield _Line("status", box.status.replace("_", " "))
    for one in box.sends:
        yield _Line("send", f"{one.command} → {one.target}")
    listed = [("stays on", box.stays), ("defers", box.deferred), ("knows", box.already)]
    policies: dict[str, list[str]] = {}
    for event, policy in box.late:
        policies.setdefault(policy, []).append("the rest" if event == "*" else event)
    if list(policies.values()) == [["the rest"]]:
        policies = {policy: ["anything"] for policy in policies}
    listed += [(f"late: {policy}", tuple(events)) for policy, events in policies.items()]
    for words, events in listed:
        if events:
            for text in wrap(f"{words} {', '.join(events)}", _LABEL_CHARS + 6):
                yield _Line("line", text)


def _line_height(line: _Line) -> float:
    return 25.0 if line.kind in _PILLS else 16.0


def _box(drawn: _Drawn, centre: Point, standing: Standing | None) -> str:
    x, y = centre[0] - drawn.width / 2, centre[1] - drawn.height / 2
    shape = f'x="{x:.1f}" y="{y:.1f}" width="{drawn.width:.1f}" height="{drawn.height:.1f}"'
    parts = [f'<g class="{_classes(drawn.box, standing)}"><rect class="box" {shape} rx="10"/>']
    if drawn.box.final:
        inset = (
            f'x="{x + 4:.1f}" y="{y + 4:.1f}" width="{drawn.width - 8:.1f}" '
            f'height="{drawn.height - 8:.1f}"'
        )
        parts.append(f'<rect class="inner" {inset} rx="7"/>')
    content = 19 * len(drawn.names) + sum(_line_height(line) for line in drawn.lines)
    at = centre[1] - content / 2 + 14
    for name in drawn.names:
        parts.append(_text("state", centre[0], at, name))
        at += 19
    for line in drawn.lines:
        parts.append(_box_line(line, centre[0], at))
        at += _line_height(line)
    return "".join(parts) + "</g>\n"


def _box_line(line: _Line, x: float, y: float) -> str:
    if line.kind not in _PILLS:
        anchor = "" if line.kind == "status" else ' text-anchor="middle"'
        return (
            f'<text class="{line.kind}" x="{x:.1f}" y="{y:.1f}"{anchor}>{escape(line.text)}</text>'
        )
    wide = _width(line.text, 12) + 37
    left, top = x - wide / 2, y - 10
    pill = f'x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="19" rx="9.5"'
    if line.kind == "badge":
        return f'<rect class="badge" {pill}/>' + _text("badgetext", x, y + 3.5, line.text)
    mail = f"M{left + 9:.1f} {top + 5:.1f}h12v9h-12z m0 0l6 5l6 -5"
    return (
        f'<rect class="pill" {pill}/>'
        f'<path class="mail" d="{mail}"/>'
        f'<text class="send" x="{left + 27:.1f}" y="{y + 3.5:.1f}">{escape(line.text)}</text>'
    )


def _badge(box: Box, standing: Standing | None) -> Iterable[_Line]:
    if standing and standing.state == box.state:
        text = standing.instance if len(standing.instance) <= 40 else standing.instance[:39] + "…"
        yield _Line("badge", text)
        yield from (_Line("line", part) for part in wrap(standing.note, _LABEL_CHARS + 6))


def _classes(box: Box, standing: Standing | None) -> str:
    if standing and standing.state == box.state:
        return "here"
    if standing and box.state in standing.visited:
        return "been"
    tone = {"failed": "bad", "compensated": "other", "continued": "other"}
    return tone.get(box.status, "good") if box.final else "plain"


def _start(centre: Point, drawn: _Drawn) -> str:
    x, y = centre[0], centre[1] - drawn.height / 2
    return (
        f'<circle class="dot" cx="{x:.1f}" cy="{y - 26:.1f}" r="6"/>'
        f'<path class="arrow" d="M{x:.1f} {y - 20:.1f}V{y - 7:.1f}" marker-end="url(#head)"/>\n'
    )


def _route(points: Sequence[Point], taken: bool) -> str:
    """Straight through each rank, bent between them; it ends short of its head."""
    (x, y), rest = points[0], points[1:]
    path = [f"M{x:.1f} {y:.1f}"]
    tip = points[-1][1] + (-7 if points[-1][1] > points[-2][1] else 7)
    stops = [*rest[:-1], (rest[-1][0], tip)]
    for to_x, to_y in stops:
        if abs(to_x - x) < 0.5:
            path.append(f"L{to_x:.1f} {to_y:.1f}")
        else:
            half = (y + to_y) / 2
            path.append(f"C{x:.1f} {half:.1f} {to_x:.1f} {half:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    kind, head = ("arrow taken", "takenhead") if taken else ("arrow", "head")
    return f'<path class="{kind}" d="{" ".join(path)}" marker-end="url(#{head})"/>\n'


def _loops(drawn: _Drawn, centre: Point, taken: frozenset[str]) -> Iterable[str]:
    if not drawn.loops:
        return
    x, y = centre[0] + drawn.width / 2, centre[1]
    half = min(drawn.height / 2 - 12, 16.0)
    seen = any(one.id in taken for one in drawn.loops)
    kind, head = ("arrow taken", "takenhead") if seen else ("arrow", "head")
    out = x + _LOOP
    yield (
        f'<path class="{kind}" d="M{x:.1f} {y - half:.1f}C{out:.1f} {y - half - 6:.1f} {out:.1f} '
        f'{y + half + 6:.1f} {x + 7:.1f} {y + half:.1f}" marker-end="url(#{head})"/>\n'
    )
    texts = [text for one in drawn.loops for text in _label_lines(one)]
    for place_, text in enumerate(texts):
        at = y + 4 + (place_ - (len(texts) - 1) / 2) * 15
        yield (
            f'<text class="label" style="text-anchor:start" x="{out - 2:.1f}" y="{at:.1f}">'
            f"{escape(text)}</text>\n"
        )


def _label_lines(arrow: Arrow) -> list[str]:
    lines = _broken(arrow.event, _LABEL_CHARS)
    return lines + (wrap(f"[{arrow.guard}]", _LABEL_CHARS + 4) if arrow.guard else [])


def _label_size(bundle: Sequence[Arrow]) -> Size:
    lines = [text for arrow in bundle for text in _label_lines(arrow)]
    return Size(max(_width(text, 12) for text in lines) + 14, 16.0 * len(lines) + 6)


def _label(bundle: Sequence[Arrow], centre: Point) -> str:
    size = _label_size(bundle)
    x, y = centre[0] - size.width / 2, centre[1] - size.height / 2
    parts = [
        f'<rect class="halo" x="{x:.1f}" y="{y:.1f}" width="{size.width:.1f}" '
        f'height="{size.height:.1f}" rx="4"/>'
    ]
    lines = [text for arrow in bundle for text in _label_lines(arrow)]
    for place_, text in enumerate(lines):
        kind = "label guard" if text.startswith("[") else "label"
        parts.append(_text(kind, centre[0], y + 15 + 16 * place_, text))
    return "".join(parts) + "\n"


def _heading(outline: Outline, standing: Standing | None) -> str:
    words = f"version {outline.version} · {outline.fingerprint[:12]}"
    if standing:
        words += f" · {standing.instance}"
    return (
        f'<text class="name" x="{_MARGIN}" y="{_MARGIN + 8}">{escape(outline.name)}</text>'
        f'<text class="sub" x="{_MARGIN}" y="{_MARGIN + 26}">{escape(words)}</text>'
    )


def _legend(outline: Outline, standing: Standing | None) -> str:
    words = ["double border: the end"]
    if any(box.sends for box in outline.boxes):
        words.append("envelope: command sent on entry")
    if standing:
        words = ["amber: stands here", "blue: has been here", *words]
    return " · ".join(words)


def _spoken(outline: Outline, standing: Standing | None) -> str:
    """The picture in words, for whoever hears it."""
    arrows = "; ".join(f"{one.source} to {one.target} on {one.label}" for one in outline.arrows)
    where = f" {standing.instance} stands in {standing.state}." if standing else ""
    return f"Workflow {outline.name} version {outline.version}.{where} {arrows}."


def _markers() -> str:
    tip = '<path d="M0 0L8 4L0 8z" class="{0}"/>'
    marker = (
        '<marker id="{0}" viewBox="0 0 8 8" refX="1" refY="4" markerWidth="9" markerHeight="9" '
        'markerUnits="userSpaceOnUse" orient="auto">' + tip + "</marker>"
    )
    return f"<defs>{marker.format('head')}{marker.format('takenhead')}</defs>"


def _text(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _broken(text: str, chars: int) -> list[str]:
    """Break a long word at an underscore, a hyphen, a dot or a capital, else anywhere."""
    parts: list[str] = []
    while len(text) > chars:
        cut = max(
            (i for i in range(chars // 2, chars) if text[i - 1] in "_-." or text[i].isupper()),
            default=chars,
        )
        parts.append(text[:cut])
        text = text[cut:]
    return [*parts, text]


def _width(text: str, size: float) -> float:
    """Width of a text in pixels, a little too much rather than too little."""
    units = 0.0
    for char in text:
        if char in _NARROW:
            units += 0.36
        elif char in _WIDE:
            units += 0.95
        elif ord(char) > 0x2E80:  # East Asian letters fill a square
            units += 1.05
        else:
            units += 0.72 if char.isupper() else 0.61
    return units * size
