"""What a query costs, in words: what is constant per event, what is not, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ceql.automaton.cea import CEA
from ceql.automaton.properties import (
    choosing_part,
    compared_by,
    compares_counts,
    counted_parts,
    exponential_part,
    keeps_runs,
    sees_every_event,
    why_not_by_key,
    why_not_by_time,
)
from ceql.syntax import plan
from ceql.syntax.ast import Consumption, Gap, Strategy, repetition_text

if TYPE_CHECKING:
    from collections.abc import Iterator

FEWER_MATCHES = "add LIMIT n, or select MAX, NEXT or LAST"


def cost_contract(query: plan.Plan, cea: CEA) -> Iterator[str]:
    """Yield what is constant per event, what is not, and why."""
    yield "update: constant time per event, for any window and any number of partial matches"
    yield "output: each match takes time linear in its size, and is computed only when you read it"
    yield _state_cost(query, cea)
    yield from _silence_cost(query)
    if (compared := compared_by(query, cea)) is not Strategy.ALL:
        yield (
            f"not constant: at each event that completes a match, {compared.value} compares the best match "
            "of every starting event in the window, so the time grows with the number and the size of these"
        )
    if (counting := _counting_cost(query, cea)) is not None:
        yield counting
    if (many := many_matches(query)) is not None:
        reason, remedy = many
        bound = f"LIMIT {query.limit} caps them" if query.limit is not None else remedy
        yield f"not constant: {reason}; {bound}"
    if sees_every_event(query, cea):
        yield (
            "every event is read: with ':', '_', STRICT or WITHIN n EVENTS, events that satisfy no predicate count, too"
        )
    yield _parallelism(query)


def _silence_cost(query: plan.Plan) -> Iterator[str]:
    if query.silence_after is not None:
        yield (
            "silence after a match: an event that completes matches waits until its time after FOR is over, "
            "as one entry that takes constant time"
        )
    if query.silence_before is not None:
        yield "silence before a match: one time is held for each partition, in constant time per event"


def many_matches(query: plan.Plan) -> tuple[str, str] | None:
    """Return why one event may complete very many matches, LIMIT aside, and what helps; None if it cannot."""
    if (part := exponential_part(query)) is not None:
        operator = repetition_text(part.gap, part.least, part.most)
        return f"{operator} under ALL finds every subset of the repeated events, exponentially many", FEWER_MATCHES
    if (part := choosing_part(query)) is not None:
        operator = repetition_text(part.gap, part.least, part.most)
        number = part.most if part.least == part.most else f"up to {part.most}"
        reason = f"{operator} under ALL finds every choice of {number} of the repeated events"
        instead = f", or write ->{operator}" if part.gap is Gap.ANY else ""
        return reason, f"add LIMIT n, select NEXT or LAST{instead}"
    return None


def _counting_cost(query: plan.Plan, cea: CEA) -> str | None:
    counted = counted_parts(query)
    if not counted:
        return None
    bounds = ", ".join(dict.fromkeys(repetition_text(part.gap, part.least, part.most) for part in counted))
    growth = (
        f"with the bound, under {query.strategy.value} with its square"
        if compares_counts(query, cea)
        else "with the bound"
    )
    return (
        f"not constant: for {bounds} the automaton has a copy of the part for each round, {cea.n_states} states in "
        f"all; time and memory per event may grow {growth}"
    )


def _state_cost(query: plan.Plan, cea: CEA) -> str:
    if not keeps_runs(cea):
        return "state: a match is a single event, so no partial matches are held"
    where = " of each partition" if query.partition_by else ""
    if query.window is None:
        return f"state: without WITHIN nothing expires, so it grows with the stream{where}"
    return f"state: linear in the events of one window{where}; events that leave the window are dropped"


def _parallelism(query: plan.Plan) -> str:
    by_key, by_time = why_not_by_key(query), why_not_by_time(query)
    if by_key is None:
        return "parallel: partitions are independent"
    if by_time is None:
        return "parallel: the stream can be cut into pieces of time, each with one window before it"
    is_enough = query.partition_by or query.consumption is Consumption.ANY
    return f"one task only: {by_key}" if is_enough else f"one task only: {by_key}, and {by_time}"
