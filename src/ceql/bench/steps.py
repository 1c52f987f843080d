"""The marking transitions of a query's automaton, with guards merged: both kinds of baseline need them.

Baselines start from the compiled automaton, so that a query means the same for them and the engine. After that
they share nothing with the engine: they evaluate predicates and find matches in their own ways.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ceql.automaton.cea import CEA, SKIP, TRUE, Guard
from ceql.errors import CeqlError
from ceql.syntax import plan

T = TypeVar("T")


class UnsupportedError(CeqlError):
    """The baseline cannot express the query."""


@dataclass(frozen=True)
class Step:
    """From state `source` to `target` on an event that satisfies any of the guards; the event belongs to the match."""

    source: int
    target: int
    guards: tuple[Guard, ...]


def steps(automaton: CEA) -> list[Step]:
    """Return the transitions that mark events; transitions that differ only in their guard become one.

    Every state except the first and the last must skip any event: that is what `;` and `+` mean.
    """
    waiting = {
        transition.source
        for transition in automaton.transitions
        if transition.label == SKIP and transition.guard == TRUE and not transition.unless
    }
    if waiting != set(range(automaton.n_states)) - {automaton.initial, automaton.final}:
        raise UnsupportedError("only sequences in which any event may lie between")
    merged: dict[tuple[int, int, frozenset[str]], list[Guard]] = {}
    for transition in automaton.transitions:
        if transition.label != SKIP:
            merged.setdefault((transition.source, transition.target, transition.label), []).append(transition.guard)
    return [Step(source, target, tuple(guards)) for (source, target, _), guards in merged.items()]


def chain(automaton: CEA) -> list[Step]:
    """Return the steps one after the other, if each match takes all of them.

    >>> import ceql
    >>> [step.target for step in chain(ceql.compile("SELECT * FROM S WHERE A ; B ; C").automaton)]
    [2, 3, 1]
    """
    following = {step.source: step for step in steps(automaton)}
    ordered, state = [], automaton.initial
    while state != automaton.final and state in following:
        step = following.pop(state)
        ordered.append(step)
        state = step.target
    if following or len(ordered) != len(steps(automaton)):
        raise UnsupportedError("a join has a fixed number of events: no + and no OR of sequences")
    return ordered


def folded(
    predicate: plan.Expression, compare: Callable[[str, str, object], T], conjunction: Callable[[list[T]], T]
) -> T:
    """Return a predicate in another language; `compare` takes a column, an operator and a constant."""
    match predicate:
        case plan.HasType():
            return compare("type", "=", predicate.event_type)
        case plan.Compare(left=plan.Column() as column, right=plan.Constant() as constant):
            return compare(column.name, predicate.operator, constant.value)
        case plan.All():
            return conjunction([folded(part, compare, conjunction) for part in predicate.parts])
    raise UnsupportedError(f"the condition {type(predicate).__name__} is in none of the paper's queries")
