"""Runs the determinized automaton in the plainest way: one list of open matches, event by event."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import ceql
from ceql.automaton.cea import CEA
from ceql.automaton.lazy import Determinizer, DetState
from ceql.automaton.predicates import Event
from ceql.syntax import plan
from ceql.syntax.ast import Consumption, Strategy
from reference import STREAM, TYPE, Completed, Valuation, as_declared


class Open:
    """A match in the making."""

    def __init__(self, state: DetState, start: int, held: frozenset[tuple[str, int]]) -> None:
        self.state, self.start, self.held = state, start, held


def simulate(
    query: ceql.Query,
    events: list[dict[str, Any]],
    *,
    change: Callable[[CEA], CEA] = lambda cea: cea,
    complete: bool = False,
) -> list[Completed]:
    """Return what the automaton finds; fails if it finds a match twice.

    With `complete`, silences that the end of the stream cuts off count, too.
    """
    bound = query.plan
    events = as_declared(query.tree, events)
    determinizer = Determinizer(change(query.automaton), bound.strategy)
    steps = cache(determinizer.steps)
    open_matches: dict[Any, list[Open]] = defaultdict(list)
    rows_of: dict[Any, list[int]] = defaultdict(list)
    completed = []
    waiting: list[tuple[int, Any, list[Valuation]]] = []
    broken: dict[Any, int] = {}

    def complete_due(is_over: Callable[[int], bool]) -> None:
        while waiting and is_over(waiting[0][0]):
            row, key, kept = waiting.pop(0)
            completed.append(Completed(row, frozenset(kept)))
            if bound.consumption is Consumption.ANY:
                open_matches.clear()
                waiting.clear()
            elif bound.consumption is Consumption.PARTITION:
                open_matches[key].clear()
                waiting[:] = [one for one in waiting if one[1] != key]

    def elapsed(first: int, last: int) -> Any:
        return _elapsed(bound.silences[0].attribute, events[first], events[last])

    last = None
    for row, event in enumerate(events):
        if not all(_is_measured(window, event) for window in (bound.window, *bound.silences)):
            continue
        last = row
        complete_due(lambda first: elapsed(first, row) > bound.silence_after.size)  # type: ignore[union-attr] # noqa: B023
        key = tuple(event.get(name) for name in bound.partition_by)
        if None in key:
            continue
        key = tuple("NaN" if value != value else value for value in key)
        rows = rows_of[key]
        rows.append(row)
        at = len(rows) - 1
        symbol = determinizer.alphabet.symbol(Event(event[TYPE], event, event[STREAM]))
        breaks_before, breaks_after = determinizer.broken(symbol)
        candidates = list(open_matches[key])
        is_quiet = key not in broken or elapsed(broken[key], row) > bound.silence_before.size  # type: ignore[union-attr]
        if is_quiet:
            candidates.append(Open(determinizer.start, at, frozenset()))
        if breaks_before:
            broken[key] = row
        if breaks_after:
            waiting[:] = [one for one in waiting if one[1] != key]
        open_matches[key] = [
            Open(state, one.start, one.held | {(name, at) for name in label})
            for one in candidates
            for label, state in steps(one.state, symbol)
        ]
        finished = [
            Valuation(one.start, at, one.held)
            for one in open_matches[key]
            if determinizer.accepts(one.state)
            and _in_window(bound.window, events, rows[one.start], row, at - one.start)
        ]
        assert len(set(finished)) == len(finished), "a match came out twice"
        kept = _best_of_all_starts(bound.strategy, finished)
        if not kept:
            continue
        moved = [Valuation(rows[v.start], row, frozenset((name, rows[i]) for name, i in v.held)) for v in kept]
        if bound.silence_after is not None:
            waiting.append((row, key, moved))
            continue
        completed.append(Completed(row, frozenset(moved)))
        if bound.consumption is Consumption.ANY:
            open_matches.clear()
        elif bound.consumption is Consumption.PARTITION:
            open_matches[key].clear()
    if bound.silence_after is not None:
        size = bound.silence_after.size
        if last is not None and isinstance(events[last][bound.silence_after.attribute], int):
            # Between whole numbers there is no time.
            size = math.floor(size)
        complete_due(lambda first: complete or elapsed(first, last) >= size)
    return completed


def _elapsed(attribute: str, first: dict[str, Any], last: dict[str, Any]) -> Any:
    begin, end = first[attribute], last[attribute]
    if isinstance(end, date) and begin != end:
        return (end - begin) // timedelta(microseconds=1) * 1000
    return Decimal(0) if begin == end else Decimal(end) - Decimal(begin)


def _is_measured(window: Any, event: dict[str, Any]) -> bool:
    value = event.get(window.attribute) if isinstance(window, plan.AttributeWindow) else 0
    return value is not None and value == value


def _in_window(window: Any, events: list[dict[str, Any]], first: int, last: int, distance: int) -> bool:
    match window:
        case plan.EventsWindow():
            return distance <= window.count
        case plan.AttributeWindow():
            return bool(_elapsed(window.attribute, events[first], events[last]) <= window.size)
    return True


def _best_of_all_starts(strategy: Strategy, found: list[Valuation]) -> list[Valuation]:
    """The automaton has compared the matches of each start; this compares those of different starts."""

    def is_beaten(one: Valuation) -> bool:
        for other in found:
            differing = one.positions ^ other.positions
            if not differing or one.start == other.start:
                continue
            if strategy is Strategy.NEXT and min(differing) in other.positions:
                return True
            if strategy is Strategy.LAST and max(differing) in other.positions:
                return True
            if strategy is Strategy.MAX and one.positions < other.positions:
                return True
        return False

    return [one for one in found if not is_beaten(one)]
