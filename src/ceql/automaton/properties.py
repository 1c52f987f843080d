"""What follows from a query, asked of its plan and automaton: `explain`, engine and backends read it here."""

from __future__ import annotations

from ceql.automaton.cea import CEA, TRUE
from ceql.syntax import plan
from ceql.syntax.ast import Strategy


def sees_every_event(query: plan.Plan, cea: CEA) -> bool:
    """Whether events that satisfy no guard can change the matches, so that none may be left out.

    They can where `:`, `:+` or STRICT forbid events in between, and where WITHIN counts events. Then the matches depend
    on the order of all events, also of those that tie.
    """
    return isinstance(query.window, plan.EventsWindow) or not _skips_everywhere(cea)


def compared_by(query: plan.Plan, cea: CEA) -> Strategy:
    """Return the strategy by which matches have to be compared: ALL where none has to be.

    MAX keeps all matches where none can contain another. What STRICT keeps is a matter of the automaton alone.
    """
    if query.strategy is Strategy.STRICT or (query.strategy is Strategy.MAX and _have_equal_size(cea)):
        return Strategy.ALL
    return query.strategy


def event_types(cea: CEA) -> frozenset[str]:
    """Return the event types of which an event can be part of a match."""
    return frozenset(part.event_type for one in cea.transitions for part in one.guard if isinstance(part, plan.HasType))


def _skips_everywhere(cea: CEA) -> bool:
    """Whether every state in between just skips an event that satisfies no guard."""
    skipping = {
        one.source for one in cea.transitions if one.guard == TRUE and not one.label and one.source == one.target
    }
    others = {one.source for one in cea.transitions if one.source != cea.initial}
    has_other_true = any(one.guard == TRUE and (one.label or one.source != one.target) for one in cea.transitions)
    return others <= skipping and not has_other_true


def _have_equal_size(cea: CEA) -> bool:
    """Whether all matches mark the same number of events, so that none contains another.

    The automaton must be simplified: every state lies on a way to the final one.
    """
    outgoing: dict[int, list[tuple[int, bool]]] = {}
    for one in cea.transitions:
        outgoing.setdefault(one.source, []).append((one.target, bool(one.label)))
    n_marked = {cea.initial: 0}
    pending = [cea.initial]
    for state in pending:
        for target, is_marked in outgoing.get(state, ()):
            n_there = n_marked[state] + is_marked
            if target not in n_marked:
                n_marked[target] = n_there
                pending.append(target)
            elif n_marked[target] != n_there:
                return False
    return True
