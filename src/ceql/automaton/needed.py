"""Which events every match needs."""

from __future__ import annotations

from collections.abc import Iterable

from ceql.automaton.cea import CEA, TRUE, Guard, Transition


def needed_guards(cea: CEA) -> tuple[Guard, ...]:
    """Return guards that some event of every match satisfies, in the order of one match."""
    # A guard that is on every way from the initial to the final state is also on this way.
    way = _way(cea, cea.transitions)
    return tuple(guard for guard in dict.fromkeys(way) if guard != TRUE and not _is_avoidable(cea, guard))


def _is_avoidable(cea: CEA, guard: Guard) -> bool:
    return bool(_way(cea, (transition for transition in cea.transitions if transition.guard != guard)))


def _way(cea: CEA, transitions: Iterable[Transition]) -> list[Guard]:
    """Return the guards on a shortest way from the initial to the final state; none if there is no way."""
    outgoing: dict[int, list[Transition]] = {}
    for transition in transitions:
        outgoing.setdefault(transition.source, []).append(transition)
    came_by: dict[int, Transition] = {}
    pending = [cea.initial]
    for state in pending:
        for transition in outgoing.get(state, ()):
            if transition.target != cea.initial and transition.target not in came_by:
                came_by[transition.target] = transition
                pending.append(transition.target)
    guards: list[Guard] = []
    state = cea.final
    while state in came_by:
        guards.append(came_by[state].guard)
        state = came_by[state].source
    return guards[::-1]
