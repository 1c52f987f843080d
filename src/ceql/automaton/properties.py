"""Facts that follow from a query's plan and automaton. `explain`, the engine and the backends use them."""

from __future__ import annotations

from ceql.automaton.cea import CEA, TRUE
from ceql.syntax import plan
from ceql.syntax.ast import Consumption, Gap, Strategy


def sees_every_event(query: plan.Plan, cea: CEA) -> bool:
    """Whether events that satisfy no guard can change the matches, so that none may be left out.

    They can if `:`, `:+` or STRICT forbid events in between, if `_` takes any event or may not come, or if WITHIN
    counts events. The matches then depend on the order of all events, including those that tie.
    """
    is_broken_by_any = TRUE in cea.broken_before | cea.broken_after
    return isinstance(query.window, plan.EventsWindow) or is_broken_by_any or not _skips_everywhere(cea)


def keeps_runs(cea: CEA) -> bool:
    """Whether runs wait for further events, so that state grows without a window. If not, a match is one event."""
    return any(transition.target != cea.final for transition in cea.transitions)


def compared_by(query: plan.Plan, cea: CEA) -> Strategy:
    """Return the strategy that must compare matches; ALL if none must.

    If no match can contain another, MAX keeps all. For STRICT, the automaton alone decides.
    """
    if query.strategy is Strategy.STRICT or (query.strategy is Strategy.MAX and _have_equal_size(cea)):
        return Strategy.ALL
    return query.strategy


def exponential_part(query: plan.Plan) -> plan.Iteration | None:
    """Return the part by which one event can complete exponentially many matches, LIMIT aside; None if there is none.

    It is a part that repeats without bound under ALL, in several ways between the same two events. Events that `:+`
    repeats are neighbours, so there is only one way, unless the repeated formula skips events, has alternatives, or
    has a part whose number of rounds is open.
    """
    if query.strategy is not Strategy.ALL:
        return None
    repeated = (node for node in query.formula.walk() if isinstance(node, plan.Iteration) and node.most is None)
    return next((node for node in repeated if _continues_in_ways(node) or _may_stop_early(node)), None)


def choosing_part(query: plan.Plan) -> plan.Iteration | None:
    """Return a part with bounds of which ALL finds every choice of three events or more; None if there is none."""
    if query.strategy is not Strategy.ALL:
        return None
    return next((part for part in counted_parts(query) if (part.most or 0) > 2 and _continues_in_ways(part)), None)


def compares_counts(query: plan.Plan, cea: CEA) -> bool:
    """Whether a strategy compares runs that are in different rounds of a counted part."""
    return compared_by(query, cea) is not Strategy.ALL and any(map(_continues_in_ways, counted_parts(query)))


def counted_parts(query: plan.Plan) -> list[plan.Iteration]:
    """Return the parts whose rounds the automaton counts; it has a copy of the part for each round."""
    repeated = [node for node in query.formula.walk() if isinstance(node, plan.Iteration)]
    return [node for node in repeated if max(node.least, node.most or 0) > 1]


def why_not_by_key(query: plan.Plan) -> str | None:
    """Return why partitions cannot be matched independently; None if they can."""
    if query.consumption is Consumption.ANY:
        return "CONSUME BY ANY makes partitions depend on one another"
    return None if query.partition_by else "the query has no PARTITION BY"


def why_not_by_time(query: plan.Plan) -> str | None:
    """Return why the timeline cannot be cut into pieces, each matched with one window before it; None if it can."""
    if query.partition_by:
        return "the query has PARTITION BY"
    if query.consumption is not Consumption.NONE:
        return "CONSUME BY makes each match depend on all earlier matches"
    if not isinstance(query.window, plan.AttributeWindow):
        return "shards need WITHIN over a time or another attribute"
    return None


def event_types(cea: CEA) -> frozenset[str]:
    """Return the event types whose events can be part of a match."""
    return frozenset(
        part.event_type for transition in cea.transitions for part in transition.guard if isinstance(part, plan.HasType)
    )


def _continues_in_ways(part: plan.Iteration) -> bool:
    return any(map(_has_ways, part.walk()))


def _has_ways(node: plan.Formula) -> bool:
    """Whether a repeated formula can continue in several ways."""
    match node:
        case plan.Iteration():
            return node.gap is Gap.ANY or node.may_be_empty
        case plan.Sequence():
            return Gap.ANY in node.gaps
        case plan.Or() | plan.Permutation():
            return True
    return False


def _may_stop_early(repeated: plan.Iteration) -> bool:
    """Whether a part inside may end after different numbers of rounds, and what follows can still be found.

    After `->` it can, however many rounds are left out; after `:` only if it can be one of the events left out.
    """
    parts = list(repeated.walk())
    if not any(isinstance(part, plan.Iteration) and part.most != part.least for part in parts[1:]):
        return False
    gaps = {gap for part in parts if isinstance(part, plan.Sequence) for gap in part.gaps}
    gaps |= {part.gap for part in parts if isinstance(part, plan.Iteration)}
    types = [part.event_type for part in parts if isinstance(part, plan.Atom)]
    return Gap.UNFIT in gaps or len(set(types)) < len(types) or (None in types and len(types) > 1)


def _skips_everywhere(cea: CEA) -> bool:
    """Whether an event that satisfies no guard changes nothing, for any active states."""
    free = [transition for transition in cea.transitions if transition.guard == TRUE]
    skipping = {loop.source for loop in free if not loop.label and loop.source == loop.target}
    others = {transition.source for transition in cea.transitions if transition.source != cea.initial}
    does_more = any(transition.label or transition.source != transition.target for transition in free)
    return others <= skipping and not does_more


def _have_equal_size(cea: CEA) -> bool:
    """Whether all matches mark the same number of events, so that none contains another.

    The automaton must be simplified: every state is on a way to the final state.
    """
    outgoing: dict[int, list[tuple[int, bool]]] = {}
    for transition in cea.transitions:
        outgoing.setdefault(transition.source, []).append((transition.target, bool(transition.label)))
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
