"""Draws edges between boxes that are already placed: curves, and rounded corners where a row ends."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from ceql.pictures.layers import BEND, LANE, Box, Edge, spread

Point = tuple[float, float]
Curve = tuple[Point, Point, Point, Point]
"""A cubic Bézier curve: where it begins, its two handles, where it ends."""
Port = tuple[Point, float]
"""Where an edge meets a box, and in which direction it leaves it."""

MAX_ANGLE = math.radians(58)
"""Greatest angle to the horizontal at which an edge may meet a state."""
MIN_ANGLE = math.radians(17)
"""Least angle between two edges that meet a state on the same side."""
CORNER = 9.0


def routes(states: Sequence[Box], edges: Sequence[Edge]) -> list[list[Curve]]:
    """Return the curves of each edge, from source to target."""
    ports = _ports(states, edges)
    wraps = _Wraps(edges)
    return [_route(edge, ports, wraps) for edge in edges]


def _route(edge: Edge, ports: dict[tuple[Edge, Box], Port], wraps: _Wraps) -> list[Curve]:
    curves: list[Curve] = []
    for left, right in pairwise(edge.chain):
        begin, begin_angle = ports.get((edge, left), ((left.x + left.width / 2, left.y), 0.0))
        end, end_angle = ports.get((edge, right), ((right.x - right.width / 2, right.y), math.pi))
        if left.row == right.row:
            curves.append(_bend(begin, begin_angle, end, end_angle))
        else:
            curves += _corners(wraps.points(begin, end, left.row))
        if right is not edge.chain[-1]:
            far_side = (right.x + right.width / 2, right.y)
            curves.append((end, end, far_side, far_side))
    return [(d, c, b, a) for a, b, c, d in reversed(curves)] if edge.goes_left else curves


class _Wraps:
    """The paths from the end of a row to the beginning of the next, each in its own lane."""

    def __init__(self, edges: Sequence[Edge]) -> None:
        self.n_lanes: dict[int, int] = defaultdict(int)
        self.right: dict[int, float] = defaultdict(float)
        self.bottom: dict[int, float] = defaultdict(float)
        for box in (box for edge in edges for box in edge.chain):
            self.right[box.row] = max(self.right[box.row], box.x + box.width / 2)
            self.bottom[box.row] = max(self.bottom[box.row], box.y + box.down)

    def points(self, begin: Point, end: Point, row: int) -> list[Point]:
        """Return the corners of the next path from one row to the next."""
        lane = self.n_lanes[row]
        self.n_lanes[row] += 1
        right, left = self.right[row] + LANE * (lane + 1), end[0] - BEND / 2 - LANE * lane
        under = self.bottom[row] + LANE * (lane + 1)
        return [begin, (right, begin[1]), (right, under), (left, under), (left, end[1]), end]


def _ports(states: Sequence[Box], edges: Sequence[Edge]) -> dict[tuple[Edge, Box], Port]:
    """Return where each edge meets its states."""
    meeting: dict[tuple[Box, bool], list[tuple[float, int]]] = defaultdict(list)
    for number, edge in enumerate(edges):
        first, second, *_ = edge.chain
        *_, before, last = edge.chain
        meeting[first, True].append((_angle(first, second), number))
        meeting[last, False].append((_angle(last, before), number))
    ports = {}
    for (state, is_right), found in meeting.items():
        found.sort()
        for (_, number), angle in zip(found, _spread_angles([angle for angle, _ in found]), strict=True):
            turned = angle if is_right else math.pi - angle
            point = (state.x + state.radius * math.cos(turned), state.y + state.radius * math.sin(turned))
            ports[edges[number], state] = (point, turned)
    return ports


def _angle(state: Box, beside: Box) -> float:
    """Return how steeply an edge goes down from a state to its next box, on either side."""
    if beside.row != state.row:
        return 0.0
    distance = max(1.0, abs(beside.x - state.x) - beside.width / 2)
    return max(-MAX_ANGLE, min(MAX_ANGLE, 0.8 * math.atan2(beside.y - state.y, distance)))


def _spread_angles(angles: list[float]) -> list[float]:
    """Return angles apart from each other, within the limits."""
    step = min(MIN_ANGLE, 2 * MAX_ANGLE / max(1, len(angles) - 1))
    apart = spread(angles, [step] * (len(angles) - 1))
    shift = max(0.0, -MAX_ANGLE - apart[0]) - max(0.0, apart[-1] - MAX_ANGLE)
    return [angle + shift for angle in apart]


def _bend(begin: Point, begin_angle: float, end: Point, end_angle: float) -> Curve:
    """Return a curve that leaves and arrives in given directions."""
    reach = max(12.0, 0.45 * abs(end[0] - begin[0]))
    first = (begin[0] + reach * math.cos(begin_angle), begin[1] + reach * math.sin(begin_angle))
    second = (end[0] + reach * math.cos(end_angle), end[1] + reach * math.sin(end_angle))
    return begin, first, second, end


def _corners(points: list[Point], radius: float = CORNER) -> list[Curve]:
    """Return straight lines through points, rounded at each of them."""
    curves: list[Curve] = []
    at = points[0]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        into, out = _towards(corner, before, radius), _towards(corner, after, radius)
        curves += [(at, at, into, into), (into, corner, corner, out)]
        at = out
    return [*curves, (at, at, points[-1], points[-1])]


def _towards(start: Point, end: Point, distance: float) -> Point:
    length = math.hypot(end[0] - start[0], end[1] - start[1])
    share = min(0.5, distance / length) if length else 0.0
    return start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])
