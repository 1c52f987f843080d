"""Plan to automaton: one function per operator.

Each function gets two states, `start` and `end`, and returns the steps of its formula between them. No step enters
`start` or leaves `end`. Because neighbours
share states, `;` needs no copies of steps, and the automaton of a formula with n
atoms and no iteration has at most n + 1 states.

What a formula finds without any event is not part of its automaton. Instead, neighbours get steps around a part that
may be empty: those that end before it also end after it, and those that begin after it also begin before it.

A run waits in the states between two parts. It skips events there, but not those that NOT or WITHOUT forbid. After `->`
it skips no event that one of the steps from its state could take. All these exceptions are known only
when all FILTERs have been carried out, so they become guards at the very end.

This differs from the paper's appendix in two points. Its automaton for `f+`, taken
literally, is wrong: the fresh state lacks the loop that skips events, and has no transition to itself, so a third round
is impossible. Its `;` keeps the final states of the left operand, which doubles the determinized states.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

from ceql.automaton.cea import CEA, MARK, SKIP, TRUE, Guard, Label, Transition
from ceql.syntax import plan
from ceql.syntax.ast import Gap

INITIAL, FINAL = 0, 1
NOWHERE = -1


def build(formula: plan.Formula) -> CEA:
    """Return the automaton whose runs are the formula's valuations that are not empty, with all variables."""
    states = _States()
    steps = _build(formula, INITIAL, FINAL, states)
    before, after = (
        frozenset(step.guard for step in steps if step.kind is kind) for kind in (_Kind.BEFORE, _Kind.AFTER)
    )
    return CEA(states.n_states, tuple(_transitions(steps)), INITIAL, FINAL, before, after)


class _States:
    """Hands out state numbers; the first two are the initial and the final state."""

    def __init__(self) -> None:
        self.n_states = 2

    def fresh(self) -> int:
        self.n_states += 1
        return self.n_states - 1


class _Kind(Enum):
    """What a step does with its event: a loop that skips may also wait for an event that fits.

    The last two are no steps, but events that may not come before or after a run. FILTER concerns them, too.
    """

    TAKES = 0
    SKIPS = 1
    WAITS = 2
    BEFORE = 3
    AFTER = 4


@dataclass(frozen=True, slots=True)
class _Step:
    """A transition in the making; `absent` are events on which it is not taken, each with its own label."""

    source: int
    guard: Guard
    label: Label
    target: int
    kind: _Kind = _Kind.TAKES
    absent: frozenset[tuple[Guard, Label]] = frozenset()


def _transitions(steps: list[_Step]) -> Iterator[Transition]:
    """Yield the steps that some event may take as transitions: now their guards are complete."""
    taken: dict[int, set[Guard]] = {}
    for step in steps:
        if step.kind is _Kind.TAKES:
            taken.setdefault(step.source, set()).add(step.guard)
    for step in steps:
        if step.kind in (_Kind.BEFORE, _Kind.AFTER):
            continue
        unless = {guard for guard, _ in step.absent}
        if step.kind is _Kind.WAITS:
            unless |= taken[step.source]
        if TRUE not in unless:
            yield Transition(step.source, step.guard, step.label, step.target, frozenset(unless))


def _build(formula: plan.Formula, start: int, end: int, states: _States) -> list[_Step]:
    match formula:
        case plan.Atom():
            return _atom(formula, start, end)
        case plan.As():
            return _as(formula, _build(formula.formula, start, end, states))
        case plan.Filter():
            return _filter(formula, _build(formula.formula, start, end, states))
        case plan.Project():
            return _project(formula, _build(formula.formula, start, end, states))
        case plan.Without():
            return _without(formula, _build(formula.formula, start, end, states))
        case plan.Sequence():
            return _sequence(formula, start, end, states)
        case plan.Permutation():
            return _permutation(formula, start, end, states)
        case plan.Or():
            return [step for part in formula.parts for step in _build(part, start, end, states)]
        case plan.Iteration():
            return _iteration(formula, start, end, states)
    raise AssertionError(f"no rule for {type(formula).__name__}")


def _atom(atom: plan.Atom, start: int, end: int) -> list[_Step]:
    conditions = frozenset(part for predicate in atom.predicates for part in _conjuncts(predicate))
    if atom.event_type is None:
        return [_Step(start, conditions, frozenset((MARK,)), end)]
    has_type = plan.HasType(atom.event_type, atom.stream)
    return [_Step(start, conditions | {has_type}, frozenset((atom.event_type,)), end)]


def _as(formula: plan.As, inner: list[_Step]) -> list[_Step]:
    """Add the variable to every label that is not empty."""
    added = frozenset((formula.variable,))
    return [replace(step, label=step.label | added) if step.label else step for step in inner]


def _project(formula: plan.Project, inner: list[_Step]) -> list[_Step]:
    def kept(label: Label) -> Label:
        return label & formula.variables

    return [
        replace(step, label=kept(step.label), absent=frozenset((guard, kept(label)) for guard, label in step.absent))
        for step in inner
    ]


def _filter(formula: plan.Filter, inner: list[_Step]) -> list[_Step]:
    """Guard the events of each filtered variable: FILTER means "for all", so it can check each event alone."""
    predicates: dict[str, list[plan.Expression]] = {}
    for variable, predicate in formula.conditions:
        predicates.setdefault(variable, []).extend(_conjuncts(predicate))
    required: dict[str, Guard] = {variable: frozenset(parts) for variable, parts in predicates.items()}

    def guarded(guard: Guard, label: Label) -> Guard:
        return guard.union(*(required[variable] for variable in label if variable in required))

    return [
        replace(
            step,
            guard=guarded(step.guard, step.label),
            absent=frozenset((guarded(guard, label), label) for guard, label in step.absent),
        )
        for step in inner
    ]


def _without(formula: plan.Without, inner: list[_Step]) -> list[_Step]:
    absent = _events_of(formula.absent)
    gaps = (_Kind.SKIPS, _Kind.WAITS)
    return [replace(step, absent=step.absent | absent) if step.kind in gaps else step for step in inner]


def _events_of(absent: plan.Absent | None) -> frozenset[tuple[Guard, Label]]:
    """Return the guards and labels of single events that a formula finds."""
    if absent is None:
        return frozenset()
    return frozenset((step.guard, step.label) for step in _build(absent.formula, INITIAL, FINAL, _States()))


def _conjuncts(predicate: plan.Expression) -> Iterator[plan.Expression]:
    """Yield the conjuncts of a predicate; each one alone depends on fewer columns."""
    if isinstance(predicate, plan.All):
        for part in predicate.parts:
            yield from _conjuncts(part)
    else:
        yield predicate


def _sequence(formula: plan.Sequence, start: int, end: int, states: _States) -> list[_Step]:
    between = [states.fresh() for _ in formula.gaps]
    steps: list[_Step] = []
    may_begin = True
    for index, (part, (source, target)) in enumerate(zip(formula.parts, pairwise([start, *between, end]), strict=True)):
        inner = _build(part, source, target, states)
        last = [step for step in inner if step.target == target]
        for following, later in zip(formula.parts[index + 1 :], [*between[index + 1 :], end], strict=False):
            if not following.may_be_empty:
                break
            inner += [replace(step, target=later) for step in last]
        steps += inner
        if index and may_begin:
            steps += [replace(step, source=start) for step in inner if step.source == source]
        may_begin = may_begin and part.may_be_empty
    for state, gap, absent in zip(between, formula.gaps, formula.absent, strict=True):
        steps += _skipping(state, gap, _events_of(absent))
    for absent, kind in ((formula.before, _Kind.BEFORE), (formula.after, _Kind.AFTER)):
        steps += [_Step(NOWHERE, guard, label, NOWHERE, kind) for guard, label in _events_of(absent)]
    return steps


def _skipping(state: int, gap: Gap, absent: frozenset[tuple[Guard, Label]] = frozenset()) -> list[_Step]:
    """Return the loop in a state between two parts, if any event may lie there."""
    if gap is Gap.NOTHING:
        return []
    return [_Step(state, TRUE, SKIP, state, _Kind.SKIPS if gap is Gap.ANY else _Kind.WAITS, absent)]


def _permutation(formula: plan.Permutation, start: int, end: int, states: _States) -> list[_Step]:
    """Build each part between any set of parts that have been found and the same set with this part."""
    n_sets = 1 << len(formula.parts)
    between = [states.fresh() for _ in range(n_sets - 2)]
    state_of = [start, *between, end]
    needed = sum(1 << index for index, part in enumerate(formula.parts) if not part.may_be_empty)
    steps: list[_Step] = []
    for found in range(n_sets - 1):
        for index, part in enumerate(formula.parts):
            with_part = found | 1 << index
            if with_part == found:
                continue
            inner = _build(part, state_of[found], state_of[with_part], states)
            steps += inner
            if with_part & needed == needed and state_of[with_part] != end:
                steps += [replace(step, target=end) for step in inner if step.target == state_of[with_part]]
    return steps + [loop for state in between for loop in _skipping(state, Gap.ANY)]


def _iteration(formula: plan.Iteration, start: int, end: int, states: _States) -> list[_Step]:
    """Build the rounds one after the other; a last round that repeats goes from its end back to its start.

    For this there is a state between two rounds: runs enter it like the end and leave it like the start.
    """
    # Empty rounds cannot be seen, so a single round may stand for several.
    least = 1 if formula.formula.may_be_empty else max(1, formula.least)
    n_rounds = least if formula.most is None else formula.most
    steps: list[_Step] = []
    source = start
    for number in range(1, n_rounds + 1):
        is_last = number == n_rounds
        target = end if is_last else states.fresh()
        inner = _build(formula.formula, source, target, states)
        steps += inner
        if not is_last:
            steps += _skipping(target, formula.gap)
            if number >= least:
                steps += [replace(step, target=end) for step in inner if step.target == target]
        elif formula.most is None:
            between = states.fresh()
            for step in inner:
                ends, starts = step.target == end, step.source == source
                if ends:
                    steps.append(replace(step, target=between))
                if starts:
                    steps.append(replace(step, source=between))
                if ends and starts:
                    steps.append(replace(step, source=between, target=between))
            steps += _skipping(between, formula.gap)
        source = target
    return steps
