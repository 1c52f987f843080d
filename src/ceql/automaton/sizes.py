"""How many events matches mark."""

from __future__ import annotations

from ceql.automaton.cea import CEA


def have_equal_size(cea: CEA) -> bool:
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
