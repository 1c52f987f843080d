"""An automaton that keeps every partial match, as most engines do: the textbook way, decently written.

Predicates are evaluated on whole columns before the loop, and events that satisfy none are skipped. A partial
match is a pair (position, the partial match it extends), so that extending it costs one pair. Partial matches are
grouped by state and then by the position of their first event, so that a group leaves the window at once. The
cost of an event still grows with the number of partial matches; that is what this baseline shows.
"""

from __future__ import annotations

from collections import deque
from functools import reduce
from itertools import islice
from operator import and_, or_
from typing import Any

import numpy as np
import pyarrow as pa

from ceql.bench.steps import UnsupportedError, folded, steps
from ceql.query import Query
from ceql.syntax import plan
from ceql.syntax.ast import Consumption, Strategy

Partial = tuple[int, Any]
"""A position and the partial match before it, None at the first position."""

Mask = np.ndarray[Any, np.dtype[np.bool_]]


class NaiveAutomaton:
    """All partial matches of a query inside its window, for one partition."""

    def __init__(self, n_states: int) -> None:
        self.partials: list[dict[int, list[Partial]]] = [{} for _ in range(n_states)]
        self.starts: deque[tuple[int, int]] = deque()

    def expire(self, earliest: int) -> None:
        """Drop partial matches that began before a time."""
        starts = self.starts
        while starts and starts[0][0] < earliest:
            _, first = starts.popleft()
            for by_start in self.partials:
                by_start.pop(first, None)

    def extended(self, position: int, source: int) -> dict[int, list[Partial]]:
        """Return the partial matches of a state, extended by the event."""
        by_start = self.partials[source]
        return {first: [(position, partial) for partial in partials] for first, partials in by_start.items()}

    def add(self, target: int, partials: dict[int, list[Partial]]) -> None:
        """Put partial matches into a state."""
        by_start = self.partials[target]
        for first, more in partials.items():
            if first in by_start:
                by_start[first] += more
            else:
                by_start[first] = more

    def begin(self, position: int, time: int, target: int) -> None:
        """Begin a partial match at the event."""
        if not self.starts or self.starts[-1][1] != position:
            self.starts.append((time, position))
        self.partials[target].setdefault(position, []).append((position, None))

    def forget(self) -> None:
        """Drop all partial matches."""
        self.starts.clear()
        for by_start in self.partials:
            by_start.clear()


class Search:
    """The matches of a query in events that come in one or more tables.

    >>> import ceql
    >>> events = pa.table({"type": ["A", "A", "B"], "t": [1, 2, 3]})
    >>> Search(ceql.compile("SELECT * FROM S WHERE A ; B WITHIN 2 [t]", events.schema)).run(events)
    [(0, 2), (1, 2)]
    """

    def __init__(self, query: Query) -> None:
        bound = query.plan
        if bound.strategy is not Strategy.ALL or not isinstance(bound.window, plan.AttributeWindow):
            raise UnsupportedError("only SELECT ALL with WITHIN over an attribute")
        automaton = query.automaton
        self.steps = steps(automaton)
        self.initial, self.final, self.n_states = automaton.initial, automaton.final, automaton.n_states
        self.window, self.time = int(bound.window.size), bound.window.attribute
        self.keys = bound.partition_by
        self.consumption, self.limit = bound.consumption, bound.limit
        self.by_key: dict[Any, NaiveAutomaton] = {}
        self.found: list[tuple[int, ...]] = []

    def run(self, events: pa.Table, first: int = 0) -> list[tuple[int, ...]]:
        """Return the matches found so far, after more events; `first` is the position of the first of them."""
        masks = [_mask(step.guards, events) for step in self.steps]
        relevant = np.flatnonzero(reduce(or_, masks))
        taken = list(zip(*(mask[relevant].tolist() for mask in masks), strict=True))
        times = events[self.time].to_numpy()[relevant].tolist()
        keys: Any = [None] * len(times)
        if self.keys:
            keys = list(zip(*(events[name].take(pa.array(relevant)).to_pylist() for name in self.keys), strict=True))
        for position, time, key, which in zip((relevant + first).tolist(), times, keys, taken, strict=True):
            self._take(position, time, key, which)
        return self.found

    def _take(self, position: int, time: int, key: Any, which: tuple[bool, ...]) -> None:
        automaton = self.by_key.get(key)
        if automaton is None:
            automaton = self.by_key[key] = NaiveAutomaton(self.n_states)
        automaton.expire(time - self.window)
        taken = [step for step, is_taken in zip(self.steps, which, strict=True) if is_taken]
        # All are made before any is added: an event must not extend a partial match that it has just made.
        made = [(step.target, automaton.extended(position, step.source)) for step in taken]
        for target, partials in made:
            automaton.add(target, partials)
        for step in taken:
            if step.source == self.initial:
                automaton.begin(position, time, step.target)
        completed = automaton.partials[self.final]
        if completed:
            self._complete(completed, automaton)

    def _complete(self, completed: dict[int, list[Partial]], automaton: NaiveAutomaton) -> None:
        all_of_them = (partial for partials in completed.values() for partial in partials)
        self.found += [_positions(partial) for partial in islice(all_of_them, self.limit)]
        completed.clear()
        if self.consumption is Consumption.ANY:
            for partition in self.by_key.values():
                partition.forget()
        elif self.consumption is Consumption.PARTITION:
            automaton.forget()


def _positions(partial: Partial | None) -> tuple[int, ...]:
    reversed_positions = []
    while partial is not None:
        position, partial = partial
        reversed_positions.append(position)
    return tuple(reversed(reversed_positions))


def _mask(guards: tuple[frozenset[plan.Expression], ...], events: pa.Table) -> Mask:
    """Return which events satisfy any of the guards."""
    alternatives = [
        reduce(and_, [folded(predicate, _Compared(events), _all) for predicate in guard]) for guard in guards
    ]
    return reduce(or_, alternatives)


class _Compared:
    """Compares a column of some events with a constant."""

    def __init__(self, events: pa.Table) -> None:
        self.events = events

    def __call__(self, column: str, operator: str, constant: object) -> Mask:
        import pyarrow.compute as pc

        functions = {
            "=": pc.equal,
            "!=": pc.not_equal,
            "<": pc.less,
            "<=": pc.less_equal,
            ">": pc.greater,
            ">=": pc.greater_equal,
        }
        found = functions[operator](self.events[column], pa.scalar(constant))
        mask: Mask = found.fill_null(fill_value=False).to_numpy()
        return mask


def _all(masks: list[Mask]) -> Mask:
    return reduce(and_, masks)
