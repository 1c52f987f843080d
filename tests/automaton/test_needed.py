"""What every match needs, and that without it there is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ceql
import strategies
from ceql.automaton.needed import needed_guards
from ceql.automaton.predicates import Event, holds
from ceql.syntax import plan
from ceql.syntax.ast import Strategy
from reference import TYPE, as_declared, recognise, valuations

NEEDED = {
    "A": ["A"],
    "A ; B": ["A", "B"],
    "A ; B ; A": ["A", "B"],
    "A ; B+ ; C": ["A", "B", "C"],
    "(A ; B)+": ["A", "B"],
    "A OR B": [],
    "A ; (B OR C)": ["A"],
    "(A ; B) OR (C ; B)": ["B"],
    "(A ; B) OR (B ; A)": ["A", "B"],
}


@pytest.mark.parametrize("pattern", NEEDED)
def test_what_lies_on_every_way_is_needed(pattern: str) -> None:
    guards = needed_guards(ceql.compile(f"SELECT * FROM S WHERE {pattern}").automaton)
    types = [part.event_type for guard in guards for part in guard if isinstance(part, plan.HasType)]
    assert sorted(types) == NEEDED[pattern]


@given(data=st.data())
def test_without_a_needed_event_there_is_no_match(data: st.DataObject) -> None:
    tree = data.draw(strategies.queries(depth=4))
    events: list[dict[str, Any]] = as_declared(tree, data.draw(strategies.events(8)))
    query = ceql.compile(str(tree), strategies.SCHEMA)
    for guard in needed_guards(query.automaton):
        others = [one for one in events if not all(holds(part, Event(one[TYPE], one)) for part in guard)]
        # STRICT leaves out matches without any event, so what it selects may be needed, too.
        columns = [variable.name for variable in query.plan.variables]
        is_strict = query.plan.strategy is Strategy.STRICT
        assert not (recognise(tree, others, columns) if is_strict else valuations(tree.formula, others))
