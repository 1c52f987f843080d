"""A plan in words."""

from __future__ import annotations

from collections.abc import Iterator

from ceql.automaton.cea import CEA
from ceql.explain.cost import cost_contract
from ceql.explain.trees import render_tree
from ceql.syntax import plan
from ceql.syntax.ast import Consumption, Strategy, quoted_name


def explain_plan(query: plan.Plan, cea: CEA) -> str:
    """Return the plan in words: clauses, result columns, formula, and the cost contract."""
    clauses = [
        f"streams       {', '.join(map(quoted_name, query.sources))}",
        f"strategy      {query.strategy.value}: {_STRATEGIES[query.strategy]}",
        f"partition by  {', '.join(map(quoted_name, query.partition_by)) or 'nothing: one stream for all events'}",
        f"window        {_window_text(query)}",
        *(f"silence       {text}" for text in _silences(query)),
        f"consumption   {query.consumption.value}: {_CONSUMPTIONS[query.consumption]}",
        f"limit         {'none' if query.limit is None else f'{query.limit} per completing event'}",
    ]
    columns = [
        f"{column.name}: {column.type}" + ("" if column.nullable else " not null") for column in query.result_schema
    ]
    sections = [
        ("Clauses", clauses),
        ("Result columns", columns),
        ("Formula", render_tree(query.formula, "text").split("\n")),
        ("Automaton", [f"{cea.n_states} states, {len(cea.transitions)} transitions, determinized while it runs"]),
        ("Cost", list(cost_contract(query, cea))),
    ]
    return "\n\n".join("\n".join([title, *(f"  {line}" for line in lines)]) for title, lines in sections)


_STRATEGIES = {
    Strategy.ALL: "every match",
    Strategy.NEXT: "of the matches with the same last event, those with the earliest events",
    Strategy.LAST: "of the matches with the same last event, those with the latest events",
    Strategy.MAX: "of the matches with the same last event, those that no other match contains",
    Strategy.STRICT: "the matches whose selected events have no gaps",
}
_CONSUMPTIONS = {
    Consumption.NONE: "an event may be part of any number of matches",
    Consumption.PARTITION: "after a match, all earlier events of its partition are forgotten",
    Consumption.ANY: "after a match, all earlier events are forgotten",
}


def _window_text(query: plan.Plan) -> str:
    """Return the window in words."""
    match query.window:
        case plan.EventsWindow(count):
            return f"first and last event at most {count} positions apart"
        case plan.AttributeWindow() as window:
            return f"first and last event at most {_length(window)} apart in {quoted_name(window.attribute)}"
    return "none"


def _length(window: plan.AttributeWindow) -> str:
    return f"{window.size / 10**9:g} seconds" if window.kind.is_time else str(window.size)


def _silences(query: plan.Plan) -> Iterator[str]:
    """Yield how long nothing of what NOT ... FOR names may come."""
    if (before := query.silence_before) is not None:
        yield f"for {_length(before)} in {quoted_name(before.attribute)} before a match"
    if (after := query.silence_after) is not None:
        yield f"for {_length(after)} in {quoted_name(after.attribute)} after a match, which comes out at the end of it"
