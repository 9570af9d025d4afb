"""Layered placing of a directed graph: boxes in rows, arrows downwards where they can.

Law of this module: geometry of plain numbers; the same input gives the same picture. The way is
the usual one (Sugiyama, Tagawa, Toda 1981): break cycles, give ranks, order each rank by the
middle of its neighbours, place with least stretch. An arrow's label is a node of its own on a
rank between, so that nothing runs across it.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

Node = Hashable
Point = tuple[float, float]

_SWEEPS: Final = 24  # ordering settles well before on graphs that a person can read
_RELAXATIONS: Final = 240  # likewise for the placing: long arrows settle slowly
_SLOPE: Final = 0.07  # ranks stand further apart where arrows between them go far aside
_GAP_MOST: Final = 70.0
_STRAIGHT: Final = 12.0  # how much stiffer an arrow's middle is than its ends


@dataclass(frozen=True, slots=True)
class Size:
    """Width and height in pixels."""

    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Edge:
    """An arrow with the size of its label."""

    source: str
    target: str
    label: Size


@dataclass(frozen=True, slots=True)
class Gaps:
    """Distances in pixels: between neighbours in a rank, and between ranks."""

    beside: float = 36.0
    between: float = 26.0


@dataclass(slots=True)
class Placed:
    """Where everything stands. Points are centres."""

    nodes: dict[str, Point] = field(default_factory=dict)
    labels: dict[int, Point] = field(default_factory=dict)
    """Index of an edge → centre of its label."""
    routes: dict[int, list[Point]] = field(default_factory=dict)
    """Index of an edge → points from the source's border to the target's."""
    width: float = 0.0
    height: float = 0.0


@dataclass(slots=True)
class _Grid:
    """The graph with a node for each rank that an arrow crosses."""

    ranks: list[list[Node]]
    sizes: dict[Node, Size]
    chains: dict[int, list[Node]]
    """Index of an edge → nodes from the upper end to the lower one, both included."""
    above: dict[Node, list[tuple[Node, float]]]
    below: dict[Node, list[tuple[Node, float]]]


def place(sizes: Mapping[str, Size], edges: Sequence[Edge], gaps: Gaps | None = None) -> Placed:
    """Place boxes and route arrows.

    Args:
        sizes: Each node with its size, the root first.
        edges: Arrows between different nodes; several between two nodes are fine.
        gaps: Distances to keep.
    """
    gaps = gaps or Gaps()
    upward = _upward(list(sizes), edges)
    grid = _grid(sizes, edges, upward, _ranks(list(sizes), edges, upward))
    _order(grid)
    across = _across(grid, gaps)
    down, height = _down(grid, across, gaps)
    return _collect(grid, upward, across, down, height)


def _upward(nodes: list[str], edges: Sequence[Edge]) -> set[int]:
    """Arrows that close a cycle, seen depth first from the root: they are drawn upwards."""
    leaving: dict[str, list[int]] = {node: [] for node in nodes}
    for index, edge in enumerate(edges):
        leaving[edge.source].append(index)
    state: dict[str, int] = {}  # 1: on the way down, 2: done
    upward: set[int] = set()
    for root in nodes:
        stack = [] if root in state else [(root, iter(leaving[root]))]
        state.setdefault(root, 1)
        while stack:
            node, rest = stack[-1]
            leads = next(rest, None)
            if leads is None:
                state[node] = 2
                stack.pop()
                continue
            target = edges[leads].target
            if state.get(target) == 1:
                upward.add(leads)
            elif target not in state:
                state[target] = 1
                stack.append((target, iter(leaving[target])))
    return upward


def _ends(edge: Edge, up: bool) -> tuple[str, str]:
    return (edge.target, edge.source) if up else (edge.source, edge.target)


def _ranks(nodes: list[str], edges: Sequence[Edge], upward: set[int]) -> dict[str, int]:
    """The longest way from a root, in steps of two: every other rank is for labels."""
    pairs = [_ends(edge, index in upward) for index, edge in enumerate(edges)]
    ranks = dict.fromkeys(nodes, 0)
    for _ in nodes:
        moved = False
        for upper, lower in pairs:
            if ranks[lower] < ranks[upper] + 2:
                ranks[lower] = ranks[upper] + 2
                moved = True
        if not moved:
            break
    return ranks


def _grid(
    sizes: Mapping[str, Size], edges: Sequence[Edge], upward: set[int], ranks: Mapping[str, int]
) -> _Grid:
    rows: list[list[Node]] = [[] for _ in range(max(ranks.values(), default=0) + 1)]
    grid = _Grid(rows, {node: size for node, size in sizes.items()}, {}, {}, {})  # noqa: C416  # a wider key
    for node in sizes:
        rows[ranks[node]].append(node)
    for index, edge in enumerate(edges):
        upper, lower = _ends(edge, index in upward)
        first, last = ranks[upper], ranks[lower]
        middle = last - 1 if index in upward else first + 1  # near the end that it leaves
        chain: list[Node] = [upper]
        for rank in range(first + 1, last):
            bend = (index, rank)
            grid.sizes[bend] = edge.label if rank == middle else Size(10.0, 0.0)
            rows[rank].append(bend)
            chain.append(bend)
        grid.chains[index] = [*chain, lower]
        for one, other in zip(chain, [*chain[1:], lower], strict=True):
            stiff = _STRAIGHT if isinstance(one, tuple) and isinstance(other, tuple) else 1.0
            grid.below.setdefault(one, []).append((other, stiff))
            grid.above.setdefault(other, []).append((one, stiff))
    return grid


def _order(grid: _Grid) -> None:
    """Sort each rank by the mean place of its neighbours, down and up, and keep the best."""
    best, fewest = [list(row) for row in grid.ranks], _crossings(grid)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        order = range(1, len(grid.ranks)) if down else range(len(grid.ranks) - 2, -1, -1)
        for rank in order:
            fixed = grid.ranks[rank - 1 if down else rank + 1]
            places = {node: place for place, node in enumerate(fixed)}
            _sort(grid.ranks[rank], grid.above if down else grid.below, places)
        crossings = _crossings(grid)
        if crossings < fewest:
            best, fewest = [list(row) for row in grid.ranks], crossings
    grid.ranks[:] = best


def _sort(
    row: list[Node],
    neighbours: Mapping[Node, list[tuple[Node, float]]],
    places: Mapping[Node, int],
) -> None:
    now = {node: place for place, node in enumerate(row)}

    def mean(node: Node) -> float:
        found = [places[other] for other, _ in neighbours.get(node, ())]
        return sum(found) / len(found) if found else float(now[node])

    row.sort(key=lambda node: (mean(node), now[node]))


def _crossings(grid: _Grid) -> int:
    total = 0
    for upper, lower in zip(grid.ranks, grid.ranks[1:], strict=False):
        places = {node: place for place, node in enumerate(lower)}
        ends = [places[other] for node in upper for other, _ in _sorted(grid, node, places)]
        total += sum(one > other for index, one in enumerate(ends) for other in ends[index + 1 :])
    return total


def _sorted(grid: _Grid, node: Node, places: Mapping[Node, int]) -> list[tuple[Node, float]]:
    return sorted(grid.below.get(node, ()), key=lambda pair: places[pair[0]])


def _across(grid: _Grid, gaps: Gaps) -> dict[Node, float]:
    """Horizontal centres: each rank in turn goes as near to its neighbours as order allows."""
    x: dict[Node, float] = {}
    for row in grid.ranks:
        edge = 0.0
        for node in row:
            x[node] = edge + grid.sizes[node].width / 2
            edge += grid.sizes[node].width + gaps.beside
    for turn in range(_RELAXATIONS):
        rows = grid.ranks if turn % 2 == 0 else reversed(grid.ranks)
        sides = (
            [(grid.above, 1.0), (grid.below, 0.0)],
            [(grid.above, 0.0), (grid.below, 1.0)],
            [(grid.above, 1.0), (grid.below, 1.0)],
        )[min(turn % 2, 1) if turn < _RELAXATIONS // 2 else 2]
        for row in rows:
            _relax(row, grid, x, sides, gaps)
    _straighten(grid, x, gaps)
    left = min((x[node] - grid.sizes[node].width / 2 for node in x), default=0.0)
    return {node: value - left for node, value in x.items()}


def _straighten(grid: _Grid, x: dict[Node, float], gaps: Gaps) -> None:
    """Make the middle of a long arrow one upright line where its neighbours leave room."""
    beside: dict[Node, tuple[Node | None, Node | None]] = {}
    for row in grid.ranks:
        for one, node, other in zip([None, *row], row, [*row[1:], None], strict=False):
            beside[node] = (one, other)

    def room(node: Node) -> tuple[float, float]:
        left, right = beside[node]
        half = grid.sizes[node].width / 2 + gaps.beside
        low = x[left] + grid.sizes[left].width / 2 + half if left is not None else float("-inf")
        high = x[right] - grid.sizes[right].width / 2 - half if right is not None else float("inf")
        return low, high

    for chain in grid.chains.values():
        bends = chain[1:-1]
        for run in (bends, bends[1:], bends[:-1]):
            rooms = [room(node) for node in run]
            low = max((one for one, _ in rooms), default=0.0)
            high = min((other for _, other in rooms), default=0.0)
            if len(run) > 1 and low <= high:
                middle = sum(x[node] for node in run) / len(run)
                x.update(dict.fromkeys(run, min(max(middle, low), high)))
                break


def _relax(
    row: list[Node],
    grid: _Grid,
    x: dict[Node, float],
    sides: Sequence[tuple[Mapping[Node, list[tuple[Node, float]]], float]],
    gaps: Gaps,
) -> None:
    """Least squares under the order: pool neighbours that would overlap (isotonic regression)."""
    wished: list[tuple[float, float]] = []
    offset = 0.0
    offsets: list[float] = []
    for place, node in enumerate(row):
        if place:
            before = grid.sizes[row[place - 1]].width / 2
            offset += before + grid.sizes[node].width / 2 + gaps.beside
        offsets.append(offset)
        pulls = [
            (x[other], stiff * share)
            for neighbours, share in sides
            for other, stiff in neighbours.get(node, ())
            if share
        ]
        weight = sum(pull for _, pull in pulls)
        aim = sum(at * pull for at, pull in pulls) / weight if weight else x[node]
        wished.append((aim - offset, weight or 0.01))
    for node, value, shift in zip(row, _pooled(wished), offsets, strict=True):
        x[node] = value + shift


def _pooled(wished: list[tuple[float, float]]) -> list[float]:
    pools: list[tuple[float, float, int]] = []
    for aim, weight in wished:
        pools.append((aim, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            aim2, weight2, count2 = pools.pop()
            aim1, weight1, count1 = pools.pop()
            both = weight1 + weight2
            pools.append(((aim1 * weight1 + aim2 * weight2) / both, both, count1 + count2))
    return [aim for aim, _, count in pools for _ in range(count)]


def _down(
    grid: _Grid, across: Mapping[Node, float], gaps: Gaps
) -> tuple[list[tuple[float, float]], float]:
    """(top, height) of each rank, and the height of it all."""
    rows: list[tuple[float, float]] = []
    top = gap = 0.0
    for row in grid.ranks:
        height = max((grid.sizes[node].height for node in row), default=0.0)
        rows.append((top, height))
        aside = [
            abs(across[one] - across[node]) for node in row for one, _ in grid.below.get(node, ())
        ]
        gap = min(gaps.between + _SLOPE * max(aside, default=0.0), _GAP_MOST)
        top += height + gap
    return rows, top - gap


def _collect(
    grid: _Grid,
    upward: set[int],
    across: Mapping[Node, float],
    down: list[tuple[float, float]],
    height: float,
) -> Placed:
    placed = Placed(height=height)
    placed.width = max((across[node] + grid.sizes[node].width / 2 for node in across), default=0.0)
    rank_of = {node: rank for rank, row in enumerate(grid.ranks) for node in row}

    def middle(node: Node) -> Point:
        top, tall = down[rank_of[node]]
        return across[node], top + tall / 2

    placed.nodes = {node: middle(node) for node in grid.sizes if isinstance(node, str)}
    exits = _ports(grid, across, upper=True)
    entries = _ports(grid, across, upper=False)
    for index, chain in grid.chains.items():
        top, bottom = middle(chain[0]), middle(chain[-1])
        points = [(exits[index], top[1] + grid.sizes[chain[0]].height / 2)]
        for bend in chain[1:-1]:
            above, tall = down[rank_of[bend]]
            points += [(across[bend], above), (across[bend], above + tall)]
        points.append((entries[index], bottom[1] - grid.sizes[chain[-1]].height / 2))
        label = chain[-2] if index in upward else chain[1]
        placed.labels[index] = middle(label)
        placed.routes[index] = points[::-1] if index in upward else points
    return placed


def _ports(grid: _Grid, across: Mapping[Node, float], *, upper: bool) -> dict[int, float]:
    """Where arrows touch their box: spread over its middle, in the order they come from."""
    end: Callable[[list[Node]], Node] = (lambda chain: chain[0]) if upper else (lambda c: c[-1])
    next_to: Callable[[list[Node]], Node] = (lambda chain: chain[1]) if upper else (lambda c: c[-2])
    touching: dict[Node, list[int]] = {}
    for index, chain in grid.chains.items():
        touching.setdefault(end(chain), []).append(index)
    ports: dict[int, float] = {}
    for node, indices in touching.items():
        indices.sort(key=lambda index: (across[next_to(grid.chains[index])], index))
        step = min(34.0, grid.sizes[node].width * 0.7 / len(indices))
        for place, index in enumerate(indices):
            ports[index] = across[node] + (place - (len(indices) - 1) / 2) * step
    return ports
