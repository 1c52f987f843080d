"""Small functions from automaton to automaton.

`select` and `keep_gap_free` carry out the SELECT clause and `collapse_labels` the shape
`positions`; they change the matches. The passes in PASSES only make the automaton smaller. In all of them the order of
transitions depends only on the query, because the order of matches depends on it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from ceql.automaton.cea import CEA, MARK, SKIP, Label, Transition
from ceql.syntax import plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def select(cea: CEA, query: plan.Plan) -> CEA:
    """Return the automaton with labels cut to the selected variables."""
    selected = frozenset(variable.name for variable in query.variables)
    return _relabelled(cea, lambda label: label & selected)


def collapse_labels(cea: CEA) -> CEA:
    """Return the automaton of the complex-event semantics: labels say only whether an event is marked."""
    marked = frozenset((MARK,))
    return _relabelled(cea, lambda label: marked if label else SKIP)


def keep_gap_free(cea: CEA) -> CEA:
    """Return the automaton of the matches whose selected events are neighbours; at least one is selected.

    This is STRICT. Each state has three copies: before the first selected event, among the selected events, and after
    the last.
    """
    before, among, after = 0, cea.n_states, 2 * cea.n_states
    steps_if_marked = ((before, among), (among, among))
    steps_if_not = ((before, before), (among, after), (after, after))
    final = 3 * cea.n_states
    transitions = []
    for transition in cea.transitions:
        for phase, next_phase in steps_if_marked if transition.label else steps_if_not:
            source = phase + transition.source
            if transition.target != cea.final:
                transitions.append(replace(transition, source=source, target=next_phase + transition.target))
            elif next_phase != before:
                transitions.append(replace(transition, source=source, target=final))
    return replace(cea, n_states=final + 1, transitions=tuple(transitions), final=final)


def remove_impossible(cea: CEA) -> CEA:
    """Return the automaton without transitions that no event can take, and without duplicates.

    An event has one type and one stream, and FALSE or NULL is never true. Exceptions that no event satisfies go, too,
    and so do events that may not come before or after a run.
    """
    guards = {guard for transition in cea.transitions for guard in (transition.guard, *transition.unless)}
    possible = {guard for guard in guards if _is_possible(guard)}
    kept: dict[Transition, None] = {}
    for transition in cea.transitions:
        unless = transition.unless & possible
        if transition.guard in possible and not any(guard <= transition.guard for guard in unless):
            kept.setdefault(replace(transition, unless=unless))
    return replace(
        cea,
        transitions=tuple(kept),
        broken_before=frozenset(filter(_is_possible, cea.broken_before)),
        broken_after=frozenset(filter(_is_possible, cea.broken_after)),
    )


def _is_possible(guard: Iterable[plan.Expression]) -> bool:
    types = [part for part in guard if isinstance(part, plan.HasType)]
    constants = [part for part in guard if isinstance(part, plan.Constant)]
    one_type = len({part.event_type for part in types}) <= 1
    one_stream = len({part.stream for part in types if part.stream is not None}) <= 1
    return one_type and one_stream and all(part.value is True for part in constants)


def trim(cea: CEA) -> CEA:
    """Return the automaton without states that no run from the initial to the final state visits."""
    forward, backward = defaultdict(list), defaultdict(list)
    for transition in cea.transitions:
        forward[transition.source].append(transition.target)
        backward[transition.target].append(transition.source)
    useful = (_reachable(cea.initial, forward) & _reachable(cea.final, backward)) | {cea.initial, cea.final}
    return cea if len(useful) == cea.n_states else _renumbered(cea, {state: state for state in useful})


def merge_equal_states(cea: CEA) -> CEA:
    """Return the automaton with states merged if the same transitions lead on from them.

    The initial state is not merged, because no transition may enter it. Linear in the number of
    transitions times the number of merges that one state takes part in.
    """
    outgoing: dict[int, list[Transition]] = defaultdict(list)
    incoming: dict[int, set[int]] = defaultdict(set)
    for transition in cea.transitions:
        outgoing[transition.source].append(transition)
        incoming[transition.target].add(transition.source)
    merged_into = list(range(cea.n_states))

    def representative(state: int) -> int:
        while merged_into[state] != state:
            merged_into[state] = merged_into[merged_into[state]]
            state = merged_into[state]
        return state

    def way_on(state: int) -> frozenset[tuple[object, ...]]:
        return frozenset(
            (
                transition.guard,
                transition.unless,
                transition.label,
                -1 if transition.target == transition.source else representative(transition.target),
            )
            for transition in outgoing[state]
        )

    seen: dict[frozenset[tuple[object, ...]], int] = {}
    pending = [state for state in range(cea.n_states) if state not in (cea.initial, cea.final)]
    while pending:
        changed: set[int] = set()
        for state in pending:
            first = representative(seen.setdefault(way_on(state), state))
            if first != state:
                merged_into[state] = first
                changed |= incoming[state]
                incoming[first] |= incoming[state]
        pending = sorted(
            state for state in changed if merged_into[state] == state and state not in (cea.initial, cea.final)
        )
    if all(first == state for state, first in enumerate(merged_into)):
        return cea
    return _renumbered(cea, {state: representative(state) for state in range(cea.n_states)})


PASSES: tuple[Callable[[CEA], CEA], ...] = (remove_impossible, trim, merge_equal_states)
"""The passes that make an automaton smaller, in order; none changes the matches."""


def simplify(cea: CEA) -> CEA:
    """Return an equivalent, smaller automaton."""
    for improve in PASSES:
        cea = improve(cea)
    return cea


def _relabelled(cea: CEA, relabel: Callable[[Label], Label]) -> CEA:
    labels = {label: relabel(label) for label in {transition.label for transition in cea.transitions}}
    transitions = (replace(transition, label=labels[transition.label]) for transition in cea.transitions)
    return replace(cea, transitions=tuple(dict.fromkeys(transitions)))


def _reachable(start: int, neighbours: dict[int, list[int]]) -> set[int]:
    reached = {start}
    pending = [start]
    while pending:
        for neighbour in neighbours[pending.pop()]:
            if neighbour not in reached:
                reached.add(neighbour)
                pending.append(neighbour)
    return reached


def _renumbered(cea: CEA, kept: dict[int, int]) -> CEA:
    """Return the automaton with each kept state replaced by its representative, and numbered without gaps."""
    number = {state: index for index, state in enumerate(sorted(set(kept.values())))}
    transitions = (
        replace(transition, source=number[kept[transition.source]], target=number[kept[transition.target]])
        for transition in cea.transitions
        if transition.source in kept and transition.target in kept
    )
    return replace(
        cea,
        n_states=len(number),
        transitions=tuple(dict.fromkeys(transitions)),
        initial=number[kept[cea.initial]],
        final=number[kept[cea.final]],
    )
