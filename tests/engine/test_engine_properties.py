"""The compiled engine equals the definitions, however it is run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ceql
import ceql.engine.session
import kernel_runner
import strategies
from ceql.syntax import ast
from ceql.syntax.ast import Strategy
from reference import has_few_valuations, recognise
from simulation import simulate

MAX_MATCHES = 3000
TYPES = dict(zip(strategies.SCHEMA.names, strategies.SCHEMA.types, strict=True))
Events = list[dict[str, Any]]


def compiled(tree: ast.Query) -> ceql.Query:
    return ceql.compile(str(tree), strategies.SCHEMA)


def table(events: Events) -> Any:
    return kernel_runner.table(events, TYPES)


@pytest.mark.parametrize("collects_always", [False, True], ids=["", "collecting"])
@given(tree=strategies.queries(declares=True, silences=True), events=strategies.events(), complete=strategies.booleans)
def test_engine_finds_what_the_definitions_say(
    collects_always: bool, tree: ast.Query, events: Events, complete: bool
) -> None:
    assume(has_few_valuations(tree.formula, events, MAX_MATCHES))
    query = compiled(tree)
    expected = recognise(query.tree, events, [variable.name for variable in query.plan.variables], complete=complete)
    options = {"collects_always": collects_always, "complete": complete}
    assert kernel_runner.recognise(query, [table(events)], **options) == expected


@pytest.mark.parametrize("strategy", Strategy, ids=lambda strategy: strategy.value)
@given(data=st.data())
def test_engine_chooses_as_defined(strategy: Strategy, data: st.DataObject) -> None:
    query = compiled(data.draw(strategies.rich_queries(strategy)))
    events = data.draw(strategies.rich_events())
    assume(has_few_valuations(query.tree.formula, events, MAX_MATCHES))
    assert kernel_runner.recognise(query, [table(events)], chunk_size=2) == simulate(query, events)


@given(tree=strategies.queries(depth=4, declares=True, silences=True), events=strategies.events(12), data=st.data())
def test_any_cutting_into_batches_gives_the_same(tree: ast.Query, events: Events, data: st.DataObject) -> None:
    query = compiled(tree)
    assume(has_few_valuations(tree.formula, events, MAX_MATCHES))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=4)))
    parts = [table(events[first:last]) for first, last in zip([0, *cuts], [*cuts, len(events)], strict=True)]
    whole = kernel_runner.recognise(query, [table(events)])
    assert kernel_runner.recognise(query, parts, memo_capacity=0, chunk_size=3) == whole
    assert kernel_runner.recognise(query, parts, collects_always=True) == whole
    assert kernel_runner.recognise(query, parts, restores=True) == whole


@given(tree=strategies.queries(depth=4), events=strategies.events())
def test_positions_are_the_complex_events(tree: ast.Query, events: Events) -> None:
    query = compiled(tree)
    assume(has_few_valuations(tree.formula, events, MAX_MATCHES))
    rows = [
        row
        for batch in ceql.engine.session.Session(query, shape="positions").feed(table(events)).batches()
        for row in batch.to_pylist()
    ]
    found = [(row["start"], row["end"], tuple(row["positions"])) for row in rows]
    expected = {
        (one.start, one.end, tuple(sorted(one.positions)))
        for completed in recognise(query.tree, events, [variable.name for variable in query.plan.variables])
        for one in completed.matches
    }
    assert len(found) == len(set(found))
    assert set(found) == expected
