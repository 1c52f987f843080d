"""An automaton as a single SVG that needs no program, font or script.

Solid arrows give the event to the variables below the condition, dashed arrows skip it, and dotted arrows need it
without selecting it. Conditions that keep an arrow from being taken stand below its own. Long labels are cut; the
`title` of each has the whole text, which browsers show under the pointer.
"""

from __future__ import annotations

import math
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import resources

from ceql.automaton.cea import CEA, SKIP, Guard, Transition
from ceql.errors import CeqlError
from ceql.explain.predicates import is_skipping, label_text, predicate_text, silences_text, transition_text, unless_text
from ceql.pictures.layers import Box, Edge, lay_out
from ceql.pictures.routes import Curve, Point, routes
from ceql.syntax import plan

MAX_STATES, MAX_TRANSITIONS = 300, 1000
"""Largest automaton that is drawn: a larger picture would be unreadable and slow."""
MAX_WIDTH = 1060.0
"""Width at which a row of states ends."""
MAX_COLUMNS = 26
"""Characters in a line of a label."""
MAX_LINES = 7
"""Most lines of a condition."""

RADIUS = 17.0
CHARACTER, LINE = 6.65, 14.5
"""Width and height of a character; fonts of fixed width differ little."""
PADDING = 5.0
LOOP = 26.0
"""Height of a loop over its state."""
MARGIN = 22.0
ARROW = 8.0
LEGEND = 34.0
MIN_WIDTH = 500.0
NEEDED_WIDTH = 190.0
"""Height of the legend, the width that it needs, and what it needs more for events that are not selected."""
START = 22.0
"""Length of the arrow to the initial state."""


@dataclass(frozen=True)
class _Label:
    """The lines of one transition's label, and its whole text."""

    condition: tuple[str, ...]
    unless: tuple[str, ...]
    variables: tuple[str, ...]
    text: str
    kind: str
    """`take`, `need` or `skip`: what becomes of the event."""

    @property
    def lines(self) -> int:
        return len(self.condition) + len(self.unless) + len(self.variables)

    @property
    def columns(self) -> int:
        return max(map(_columns, (*self.condition, *self.unless, *self.variables)))


def is_drawn(cea: CEA) -> bool:
    """Whether an automaton is small enough for a picture."""
    return cea.n_states <= MAX_STATES and len(cea.transitions) <= MAX_TRANSITIONS


def automaton_svg(cea: CEA) -> str:
    """Return the picture of an automaton; `CeqlError` if it is too large for one."""
    if not is_drawn(cea):
        size = f"{cea.n_states:,} states and {len(cea.transitions):,} transitions"
        raise CeqlError(f"the automaton has {size}: too many for a picture", "the formats text and dot have no limit")
    labels: dict[tuple[int, int], list[_Label]] = defaultdict(list)
    for transition in cea.transitions:
        labels[transition.source, transition.target].append(_label(transition))
    states = [_state_box(labels.get((state, state), [])) for state in range(cea.n_states)]
    edges = [Edge(*ends, _label_box(group)) for ends, group in labels.items() if ends[0] != ends[1]]
    width, height = lay_out(states, edges, cea.initial, cea.final, MAX_WIDTH)
    return _svg(cea, width, height, [*_drawn_edges(states, edges, labels), *_drawn_states(cea, states)])


def _label(transition: Transition) -> _Label:
    condition = [line for part in _conjuncts(transition.guard) for line in _wrapped(part)] or ["TRUE"]
    unless = _wrapped(f"unless {unless_text(transition)}") if transition.unless else []
    variables = [] if transition.label == SKIP else _wrapped(label_text(transition))
    return _Label(
        _cut(condition),
        _cut(unless),
        _cut(variables),
        f"{transition.source} → {transition.target}: {transition_text(transition)}",
        "take" if transition.label != SKIP else "skip" if is_skipping(transition) else "need",
    )


def _cut(lines: list[str]) -> tuple[str, ...]:
    return tuple(lines) if len(lines) <= MAX_LINES else (*lines[: MAX_LINES - 1], "…")


def _conjuncts(guard: Guard) -> list[str]:
    """Return the conditions of a guard one by one, the event type first."""
    found = sorted((not isinstance(part, plan.HasType), predicate_text(part), _parts(part)) for part in guard)
    return [text for _, _, parts in found for text in parts]


def _parts(predicate: plan.Expression) -> list[str]:
    if isinstance(predicate, plan.All):
        return [text for part in predicate.parts for text in _parts(part)]
    return [predicate_text(predicate)]


def _wrapped(text: str) -> list[str]:
    """Return text in lines of limited width, broken at spaces where there are any."""
    lines: list[str] = []
    line = ""
    for word in _printable(text).split(" "):
        if line and _columns(line) + 1 + _columns(word) <= MAX_COLUMNS:
            line += f" {word}"
            continue
        if line:
            lines.append(line)
        while _columns(word) > MAX_COLUMNS:
            cut = next(n for n in range(len(word), 0, -1) if n == 1 or _columns(word[:n]) <= MAX_COLUMNS)
            lines.append(word[:cut])
            word = word[cut:]
        line = word
    return [*lines, line] if line else lines


def _printable(text: str) -> str:
    """Return text in which spaces or U+FFFD replace characters that break lines or that XML cannot hold."""
    return "".join(
        character if character.isprintable() else " " if character.isspace() else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _height(labels: list[_Label]) -> float:
    return sum(LINE * label.lines + 2 * PADDING for label in labels)


def _width(labels: list[_Label]) -> float:
    return max(label.columns for label in labels) * CHARACTER + 2 * PADDING


def _label_box(labels: list[_Label]) -> Box:
    height = _height(labels)
    return Box(_width(labels), height / 2, height / 2)


def _state_box(loops: list[_Label]) -> Box:
    """Return the box of a state, with the loop above it."""
    if not loops:
        return Box(2 * RADIUS, RADIUS, RADIUS, RADIUS)
    return Box(max(2 * RADIUS, _width(loops)), RADIUS + LOOP + _height(loops), RADIUS, RADIUS)


def _svg(cea: CEA, inner_width: float, inner_height: float, drawn: list[str]) -> str:
    """Return the whole picture around what is drawn."""
    has_needed = any(t.label == SKIP and not is_skipping(t) for t in cea.transitions)
    silences = silences_text(cea)
    told = [CHARACTER * _columns(text) + 2 * MARGIN for text in silences]
    width = max(inner_width + 2 * MARGIN + START, MIN_WIDTH + NEEDED_WIDTH * has_needed, *told)
    height = inner_height + 2 * MARGIN + LEGEND + LINE * len(silences)
    left = (width - inner_width + START) / 2
    counted = f"{_count(cea.n_states, 'state')} and {_count(len(cea.transitions), 'transition')}"
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="ceql-automaton" role="img" {size}>',
            f"<title>an automaton of {counted}</title>",
            f"<style>{_style()}</style>",
            '<rect class="paper" width="100%" height="100%" rx="6"/>',
            f'<g transform="translate({left:.1f} {MARGIN:.1f})">',
            *drawn,
            "</g>",
            *_silences(silences, height - LEGEND - 4),
            _legend(height - LEGEND / 2 - 4, has_needed=has_needed),
            "</svg>",
        ]
    )


def _drawn_edges(states: list[Box], edges: list[Edge], labels: dict[tuple[int, int], list[_Label]]) -> Iterator[str]:
    """Yield all arrows, then all labels, which cover what passes behind them."""
    loops = [state for state in range(len(states)) if (state, state) in labels]
    for edge, curves in zip(edges, routes(states, edges), strict=True):
        yield _arrow((edge.source, edge.target), labels, curves)
    for state in loops:
        yield _arrow((state, state), labels, [_loop(states[state])])
    for edge in edges:
        box = edge.label
        yield _paper(box)
        yield from _stacked(labels[edge.source, edge.target], box.x, box.y - box.up)
    for state in loops:
        box = states[state]
        yield from _stacked(labels[state, state], box.x, box.y - box.up)


def _arrow(ends: tuple[int, int], labels: dict[tuple[int, int], list[_Label]], curves: list[Curve]) -> str:
    kinds = {label.kind for label in labels[ends]}
    kind = next(kind for kind in ("take", "need", "skip") if kind in kinds)
    return f'<g class="edge {kind}" data-ends="{ends[0]} {ends[1]}">{_line(curves)}</g>'


def _loop(box: Box) -> Curve:
    begin, end = (_on_circle(box, angle) for angle in (-115, -65))
    top = box.y - RADIUS - LOOP - 4
    return begin, (box.x - 26, top), (box.x + 26, top), end


def _paper(box: Box) -> str:
    place = f'x="{box.x - box.width / 2:.1f}" y="{box.y - box.up:.1f}"'
    return f'<rect class="paper" {place} width="{box.width:.1f}" height="{box.up + box.down:.1f}" rx="4"/>'


def _stacked(labels: list[_Label], x: float, top: float) -> Iterator[str]:
    """Yield the labels of transitions between the same states, one below the other."""
    for number, label in enumerate(labels):
        if number:
            yield f'<path class="rule" d="M{x - 9:.1f} {top:.1f}h18"/>'
        yield _text(label, x, top + PADDING)
        top += LINE * label.lines + 2 * PADDING


def _drawn_states(cea: CEA, states: list[Box]) -> Iterator[str]:
    for state, box in enumerate(states):
        role = "final" if state == cea.final else "initial" if state == cea.initial else "inner"
        told = f"state {state}" if role == "inner" else f"the {role} state {state}"
        if role == "initial":
            start, tip = (box.x - RADIUS - START, box.y), (box.x - RADIUS, box.y)
            yield f'<g class="edge take start">{_line([(start, start, tip, tip)])}</g>'
        radii = [RADIUS, RADIUS - 4] if role == "final" else [RADIUS]
        circles = "".join(f'<circle cx="{box.x:.1f}" cy="{box.y:.1f}" r="{radius:.0f}"/>' for radius in radii)
        yield (
            f'<g class="state {role}" data-state="{state}"><title>{told}</title>{circles}'
            f'<text x="{box.x:.1f}" y="{box.y + 4.2:.1f}">{state}</text></g>'
        )


def _silences(texts: list[str], bottom: float) -> Iterator[str]:
    """Yield lines on what may not come before and after a run."""
    for number, text in enumerate(texts):
        y = bottom - LINE * (len(texts) - 1 - number)
        yield f'<text class="silence" x="{MARGIN:.0f}" y="{y:.1f}">{_escaped(_printable(text))}</text>'


def _legend(y: float, *, has_needed: bool) -> str:
    arrow = _line([((0, 0), (0, 0), (26, 0), (26, 0))])
    needed = (
        f'<g class="edge need" transform="translate(384 0)">{arrow}</g><text x="418" y="4">needed, not selected</text>'
    )
    x = 384 + (NEEDED_WIDTH if has_needed else 0)
    return (
        f'<g class="legend" transform="translate({MARGIN:.0f} {y:.1f})"><g class="edge take">{arrow}</g>'
        '<text x="34" y="4">the event goes to <tspan class="variable">variables</tspan></text>'
        f'<g class="edge skip" transform="translate(236 0)">{arrow}</g><text x="270" y="4">it is skipped</text>'
        f"{needed if has_needed else ''}"
        f'<g class="state" transform="translate({x:.0f} 0)"><circle r="7"/><circle r="4"/></g>'
        f'<text x="{x + 14:.0f}" y="4">a match</text></g>'
    )


def _text(label: _Label, x: float, top: float) -> str:
    kinds = ["condition any" if label.condition == ("TRUE",) else "condition"] * len(label.condition)
    kinds += ["unless"] * len(label.unless) + ["variable"] * len(label.variables)
    lines = "".join(
        f'<tspan class="{kind}" x="{x:.1f}" y="{top + LINE * number + 11:.1f}">{_escaped(line)}</tspan>'
        for number, (kind, line) in enumerate(
            zip(kinds, (*label.condition, *label.unless, *label.variables), strict=True)
        )
    )
    return f'<text class="label"><title>{_escaped(_printable(label.text))}</title>{lines}</text>'


def _escaped(text: str) -> str:
    return escape(text, quote=True)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _on_circle(box: Box, degrees: float) -> Point:
    angle = math.radians(degrees)
    return box.x + RADIUS * math.cos(angle), box.y + RADIUS * math.sin(angle)


def _line(curves: list[Curve]) -> str:
    """Return an arrow along curves. Its head is a path, because pictures on a page would share the name of a marker."""
    *before, (begin, first, second, tip) = curves
    start = next((point for point in (second, first, begin) if point != tip), (tip[0] - 1, tip[1]))
    length = math.hypot(tip[0] - start[0], tip[1] - start[1])
    x, y = (tip[0] - start[0]) / length, (tip[1] - start[1]) / length
    back = (tip[0] - x * ARROW, tip[1] - y * ARROW)
    path = f"M{_numbers(curves[0][0])}"
    for curve in (*before, (begin, first, back if second == tip else second, back)):
        path += f"L{_numbers(curve[3])}" if curve[1] == curve[0] else f"C{_numbers(*curve[1:])}"
    head = (
        _numbers(tip),
        _numbers((back[0] - y * 3.6, back[1] + x * 3.6)),
        _numbers((back[0] + y * 3.6, back[1] - x * 3.6)),
    )
    return f'<path d="{path}"/><path class="head" d="M{"L".join(head)}z"/>'


def _numbers(*points: Point) -> str:
    return " ".join(f"{x:.1f} {y:.1f}" for x, y in points)


@cache
def _style() -> str:
    return resources.files("ceql.pictures").joinpath("automaton.css").read_text(encoding="utf-8")
