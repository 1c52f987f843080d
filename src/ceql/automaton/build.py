"""Plan to automaton: one function per operator.

Each function gets two states, `start` and `end`, and returns the transitions of its formula between them. No transition
enters `start` or leaves `end`. Because neighbours
share states, `;` needs no copies of transitions, and the automaton of a formula with n
atoms and no iteration has at most n + 1 states.

This differs from the paper's appendix in two points. Its automaton for `f+`, taken
literally, is wrong: the fresh state lacks the loop that skips events, and has no transition to itself, so a third round
is impossible. Its `;` keeps the final states of the left operand, which doubles the determinized states.
"""

from __future__ import annotations

from collections.abc import Iterator

from ceql.automaton.cea import CEA, SKIP, TRUE, Guard, Label, Transition
from ceql.syntax import plan

INITIAL, FINAL = 0, 1


def build(formula: plan.Formula) -> CEA:
    """Return the automaton whose runs are the formula's valuations, with all variables."""
    states = _States()
    transitions = _build(formula, INITIAL, FINAL, states)
    return CEA(states.n_states, tuple(transitions), INITIAL, FINAL)


class _States:
    """Hands out state numbers; the first two are the initial and the final state."""

    def __init__(self) -> None:
        self.n_states = 2

    def fresh(self) -> int:
        self.n_states += 1
        return self.n_states - 1


def _build(formula: plan.Formula, start: int, end: int, states: _States) -> list[Transition]:
    match formula:
        case plan.Atom():
            return _atom(formula, start, end)
        case plan.As():
            return _as(formula, _build(formula.formula, start, end, states))
        case plan.Filter():
            return _filter(formula, _build(formula.formula, start, end, states))
        case plan.Project():
            return _project(formula, _build(formula.formula, start, end, states))
        case plan.Sequence():
            return _sequence(formula, start, end, states)
        case plan.Or():
            return [transition for part in formula.parts for transition in _build(part, start, end, states)]
        case plan.Iteration():
            return _iteration(formula, start, end, states)
    raise AssertionError(f"no rule for {type(formula).__name__}")


def _atom(atom: plan.Atom, start: int, end: int) -> list[Transition]:
    has_type = plan.HasType(atom.event_type, atom.stream)
    return [Transition(start, frozenset((has_type,)), frozenset((atom.event_type,)), end)]


def _as(formula: plan.As, inner: list[Transition]) -> list[Transition]:
    """Add the variable to every label that is not empty."""
    added = frozenset((formula.variable,))
    return [
        _relabelled(transition, transition.label | added) if transition.label else transition for transition in inner
    ]


def _project(formula: plan.Project, inner: list[Transition]) -> list[Transition]:
    return [_relabelled(transition, transition.label & formula.variables) for transition in inner]


def _relabelled(transition: Transition, label: Label) -> Transition:
    return Transition(transition.source, transition.guard, label, transition.target)


def _filter(formula: plan.Filter, inner: list[Transition]) -> list[Transition]:
    """Guard the events of each filtered variable: FILTER means "for all", so it can check each event alone."""
    predicates: dict[str, list[plan.Expression]] = {}
    for variable, predicate in formula.conditions:
        predicates.setdefault(variable, []).extend(_conjuncts(predicate))
    required: dict[str, Guard] = {variable: frozenset(parts) for variable, parts in predicates.items()}
    filtered = []
    for transition in inner:
        guard = transition.guard.union(*(required[variable] for variable in transition.label if variable in required))
        filtered.append(Transition(transition.source, guard, transition.label, transition.target))
    return filtered


def _conjuncts(predicate: plan.Expression) -> Iterator[plan.Expression]:
    """Yield the conjuncts of a predicate; each one alone depends on fewer columns."""
    if isinstance(predicate, plan.All):
        for part in predicate.parts:
            yield from _conjuncts(part)
    else:
        yield predicate


def _sequence(formula: plan.Sequence, start: int, end: int, states: _States) -> list[Transition]:
    between = [states.fresh() for _ in formula.may_skip]
    transitions: list[Transition] = []
    for part, source, target in zip(formula.parts, [start, *between], [*between, end], strict=True):
        transitions += _build(part, source, target, states)
    transitions += [_skipping(state) for state, may_skip in zip(between, formula.may_skip, strict=True) if may_skip]
    return transitions


def _skipping(state: int) -> Transition:
    return Transition(state, TRUE, SKIP, state)


def _iteration(formula: plan.Iteration, start: int, end: int, states: _States) -> list[Transition]:
    """Add a state between two rounds: runs enter it like the end and leave it like the start."""
    inner = _build(formula.formula, start, end, states)
    between = states.fresh()
    transitions = list(inner)
    for transition in inner:
        ends, starts = transition.target == end, transition.source == start
        if ends:
            transitions.append(Transition(transition.source, transition.guard, transition.label, between))
        if starts:
            transitions.append(Transition(between, transition.guard, transition.label, transition.target))
        if ends and starts:
            transitions.append(Transition(between, transition.guard, transition.label, between))
    if formula.may_skip:
        transitions.append(_skipping(between))
    return transitions
