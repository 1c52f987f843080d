"""A layered layout of directed graphs, from left to right, in several rows if one row would be too wide.

States lie in layers, so that most edges go right. Between two layers of states lies a layer of labels. A
label is a box like any other, so that no label covers another. An edge is a chain of boxes, one in each layer
that it passes. An edge that goes left is laid out as if it went right, and drawn the other way round.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

GAP = 14.0
"""Space between boxes of a layer."""
BEND = 30.0
"""Space beside the labels of a layer, in which edges bend."""
LANE = 12.0
"""Space between edges that go on in the next row."""
N_SWEEPS = 12


@dataclass(eq=False)
class Box:
    """An item of a layer: a state, a label, or the place where an edge passes; `up` and `down` start at its middle."""

    width: float
    up: float
    down: float
    radius: float = 0.0
    layer: int = 0
    row: int = 0
    x: float = 0.0
    y: float = 0.0


@dataclass(eq=False)
class Edge:
    """An edge between two states, with a label; `chain` has its boxes from left to right, whichever way it goes."""

    source: int
    target: int
    label: Box
    goes_left: bool = False
    chain: list[Box] = field(default_factory=list)


Neighbours = dict[Box, tuple[list[Box], list[Box]]]
"""The boxes to the left of each box, and those to its right."""


def lay_out(
    states: Sequence[Box], edges: Sequence[Edge], first: int, last: int, max_width: float
) -> tuple[float, float]:
    """Place the boxes of states and edges; return the total width and height. No edge may be a loop.

    `first` is the state to begin with, `last` belongs at the right end.
    """
    _turn_around(len(states), edges, first)
    layers = _layers(states, edges, last)
    _order(layers, edges)
    rows = _rows([max(box.width for box in layer) for layer in layers], max_width)
    return _coordinates(layers, edges, rows)


def _turn_around(n_states: int, edges: Sequence[Edge], first: int) -> None:
    """Mark the edges that close a cycle, found by a depth-first search from the first state."""
    leaving = defaultdict(list)
    for candidate in edges:
        leaving[candidate.source].append(candidate)
    is_open = dict.fromkeys(range(n_states), False)
    seen: set[int] = set()
    for root in (first, *range(n_states)):
        if root in seen:
            continue
        stack = [(root, iter(leaving[root]))]
        seen.add(root)
        is_open[root] = True
        while stack:
            state, rest = stack[-1]
            edge: Edge | None = next(rest, None)
            if edge is None:
                is_open[state] = False
                stack.pop()
            elif edge.target not in seen:
                seen.add(edge.target)
                is_open[edge.target] = True
                stack.append((edge.target, iter(leaving[edge.target])))
            else:
                edge.goes_left = is_open[edge.target]


def _layers(states: Sequence[Box], edges: Sequence[Edge], last: int) -> list[list[Box]]:
    """Put each state as far right as its longest path says, and give each edge its chain of boxes."""
    depths = _depths(len(states), edges)
    if all(_ends(edge)[0] != last for edge in edges):
        depths[last] = max(depths)
    layers: list[list[Box]] = [[] for _ in range(2 * max(depths) + 1)]
    for box, depth in zip(states, depths, strict=True):
        box.layer = 2 * depth
        layers[box.layer].append(box)
    for edge in edges:
        edge.chain = _chain(edge, states)
        for box in edge.chain[1:-1]:
            layers[box.layer].append(box)
    return layers


def _depths(n_states: int, edges: Sequence[Edge]) -> list[int]:
    """Return the length of the longest path to each state."""
    following = defaultdict(list)
    n_before = [0] * n_states
    for left, right in map(_ends, edges):
        following[left].append(right)
        n_before[right] += 1
    depths = [0] * n_states
    ready = [state for state in range(n_states) if not n_before[state]]
    for state in ready:
        for right in following[state]:
            depths[right] = max(depths[right], depths[state] + 1)
            n_before[right] -= 1
            if not n_before[right]:
                ready.append(right)
    return depths


def _ends(edge: Edge) -> tuple[int, int]:
    """Return the states at the left and the right end."""
    return (edge.target, edge.source) if edge.goes_left else (edge.source, edge.target)


def _chain(edge: Edge, states: Sequence[Box]) -> list[Box]:
    """Return the boxes of an edge from left to right; its label is next to its source."""
    left, right = (states[end] for end in _ends(edge))
    inner = [Box(0, 4, 4, layer=layer) for layer in range(left.layer + 1, right.layer)]
    at = -1 if edge.goes_left else 0
    edge.label.layer = inner[at].layer
    inner[at] = edge.label
    return [left, *inner, right]


def _order(layers: list[list[Box]], edges: Sequence[Edge]) -> None:
    """Order the boxes of each layer by the middle of their neighbours; keep the order with the fewest crossings."""
    neighbours = _neighbours(edges)
    best, fewest = [list(layer) for layer in layers], _n_crossings(layers, neighbours)
    for sweep in range(N_SWEEPS):
        goes_right = sweep % 2 == 0
        for fixed, moved in pairwise(layers if goes_right else layers[::-1]):
            place = {box: number for number, box in enumerate(fixed)}
            wanted = {}
            for number, box in enumerate(moved):
                beside = neighbours[box][0 if goes_right else 1]
                wanted[box] = sum(place[neighbour] for neighbour in beside) / len(beside) if beside else number
            moved.sort(key=wanted.__getitem__)
        crossings = _n_crossings(layers, neighbours)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    for layer, kept in zip(layers, best, strict=True):
        layer[:] = kept


def _neighbours(edges: Iterable[Edge]) -> Neighbours:
    """Return, for each box, the boxes to its left and those to its right."""
    beside: Neighbours = defaultdict(lambda: ([], []))
    for edge in edges:
        for left, right in pairwise(edge.chain):
            beside[left][1].append(right)
            beside[right][0].append(left)
    return beside


def _n_crossings(layers: list[list[Box]], neighbours: Neighbours) -> int:
    crossings = 0
    for left, right in pairwise(layers):
        place = {box: number for number, box in enumerate(right)}
        passed: list[int] = []
        for box in left:
            ends = [place[neighbour] for neighbour in neighbours[box][1]]
            crossings += sum(len(passed) - bisect_right(passed, end) for end in ends)
            for end in ends:
                insort(passed, end)
    return crossings


def _rows(widths: list[float], max_width: float) -> list[list[int]]:
    """Return the layers of each row: as few rows as the width allows, all of similar width.

    A row begins with the labels of the edges that come from the row before.
    """
    chunks = [[0]] + [[layer, layer + 1] for layer in range(1, len(widths), 2)]
    sizes = [sum(widths[layer] for layer in chunk) + 2 * BEND * (len(chunk) - 1) for chunk in chunks]
    n_rows = len(_filled(sizes, max(max_width, *sizes)))
    # The smallest width that needs no more rows.
    limits = sorted(sum(sizes[start:end]) for start in range(len(sizes)) for end in range(start + 1, len(sizes) + 1))
    limit = next(limit for limit in limits if limit >= max(sizes) and len(_filled(sizes, limit)) <= n_rows)
    return [[layer for chunk in row for layer in chunks[chunk]] for row in _filled(sizes, limit)]


def _filled(sizes: list[float], limit: float) -> list[list[int]]:
    rows: list[list[int]] = [[]]
    used = 0.0
    for number, size in enumerate(sizes):
        if rows[-1] and used + size > limit:
            rows.append([])
            used = 0.0
        rows[-1].append(number)
        used += size
    return rows


def _coordinates(layers: list[list[Box]], edges: Sequence[Edge], rows: list[list[int]]) -> tuple[float, float]:
    """Set the middle of every box; return the total width and height."""
    for row, inside in enumerate(rows):
        for box in (box for layer in inside for box in layers[layer]):
            box.row = row
    neighbours = _neighbours(edges)
    n_wraps = [0] * len(rows)
    for edge in edges:
        for row in range(edge.chain[0].row, edge.chain[-1].row):
            n_wraps[row] += 1
    margin = LANE * (max(n_wraps) + 1) if len(rows) > 1 else 0.0
    width = height = 0.0
    for row, inside in enumerate(rows):
        _heights([layers[layer] for layer in inside], neighbours)
        boxes = [box for layer in inside for box in layers[layer]]
        top, bottom = min(box.y - box.up for box in boxes), max(box.y + box.down for box in boxes)
        for box in boxes:
            box.y += height - top
        width = max(width, _columns(layers, inside, margin) + margin)
        height += bottom - top + (LANE * (n_wraps[row] + 3) if row + 1 < len(rows) else 0.0)
    return width, height


def _columns(layers: list[list[Box]], inside: list[int], left: float) -> float:
    """Place the layers of a row from left to right; return where they end."""
    for number in inside:
        bend = BEND if number % 2 else 0.0
        size = max(box.width for box in layers[number])
        for box in layers[number]:
            box.x = left + bend + size / 2
        left += size + 2 * bend
    return left


def _heights(layers: list[list[Box]], neighbours: Neighbours) -> None:
    """Set the heights of a row's boxes: near the middle of their neighbours, in order, without overlap."""
    for layer in layers:
        _settle(layer, [0.0] * len(layer))
    row = layers[0][0].row
    for sweep in range(N_SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted = []
            for box in layer:
                left, right = neighbours[box]
                beside = [*left, *right] if sweep >= N_SWEEPS // 2 else (left if sweep % 2 == 0 else right)
                near = [neighbour.y for neighbour in beside if neighbour.row == row]
                wanted.append(sum(near) / len(near) if near else box.y)
            _settle(layer, wanted)


def _settle(layer: list[Box], wanted: list[float]) -> None:
    """Move the boxes of a layer as near to the wanted heights as their sizes allow."""
    spaces = [upper.down + GAP + lower.up for upper, lower in pairwise(layer)]
    for box, y in zip(layer, spread(wanted, spaces), strict=True):
        box.y = y


def spread(wanted: Sequence[float], spaces: Sequence[float]) -> list[float]:
    """Return the numbers nearest to the wanted ones, such that neighbours are at least a space apart.

    >>> spread([0, 0, 10], [4, 4])
    [-2.0, 2.0, 10.0]
    """
    offsets = [0.0]
    for space in spaces:
        offsets.append(offsets[-1] + space)
    # Neighbours that would come too close move together, to their common mean.
    blocks: list[tuple[float, int]] = []
    for value, offset in zip(wanted, offsets, strict=False):
        total, count = value - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] >= total / count:
            before = blocks.pop()
            total, count = total + before[0], count + before[1]
        blocks.append((total, count))
    means = [total / count for total, count in blocks for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=False)]
