"""The complex event automaton as plain frozen data.

A transition is taken on an event that satisfies its guard, a conjunction of predicates; the empty guard is TRUE.
A transition may have guards that the event must not satisfy. It labels the event with variables (the paper's VCEA): an
event whose label is not empty is marked; the others are skipped by loops, or needed but not selected. The paper's
complex event is the set of marked positions.

Two properties hold from construction on and are kept by every pass: no transition enters the initial state, and none
leaves the final state. So a match has the same interval as its run, and a run that has accepted is over.
"""

from __future__ import annotations

from dataclasses import dataclass

from ceql.syntax.plan import Expression

MARK = ""
"""A variable that says only that an event is marked; no other variable has an empty name."""

Label = frozenset[str]
Guard = frozenset[Expression]

SKIP: Label = frozenset()
TRUE: Guard = frozenset()


@dataclass(frozen=True, slots=True)
class Transition:
    """From `source` to `target` on an event that satisfies `guard` and no guard in `unless`, labelling it."""

    source: int
    guard: Guard
    label: Label
    target: int
    unless: frozenset[Guard] = frozenset()


@dataclass(frozen=True, slots=True)
class CEA:
    """States are 0 .. n_states - 1; the order of transitions is a function of the query alone."""

    n_states: int
    transitions: tuple[Transition, ...]
    initial: int
    final: int
    broken_before: frozenset[Guard] = frozenset()
    """The events that may not come before a run begins, for as long as the plan says."""
    broken_after: frozenset[Guard] = frozenset()
    """The events that may not come after a run has accepted, for as long as the plan says."""
