"""Random queries on random streams: the automaton means what the definitions say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import ceql
import strategies
from ceql.automaton.build import build
from ceql.automaton.passes import PASSES, collapse_labels, keep_gap_free, select
from ceql.syntax import ast
from ceql.syntax.ast import Strategy
from ceql.syntax.parser import parse
from reference import Completed, has_few_valuations, recognise
from simulation import simulate

MAX_MATCHES = 3000
"""Streams and formulas are small, but nested iterations are exponential; the rare huge ones are skipped."""

Events = list[dict[str, Any]]


def compiled(tree: ast.Query) -> ceql.Query:
    return ceql.compile(str(tree), strategies.SCHEMA)


def by_definition(query: ceql.Query, events: Events, *, complete: bool = False) -> list[Completed]:
    return recognise(query.tree, events, [variable.name for variable in query.plan.variables], complete=complete)


@given(strategies.queries(declares=True, silences=True))
def test_printed_query_parses_to_the_same_tree(tree: ast.Query) -> None:
    assert parse(str(tree)) == tree


@pytest.mark.parametrize("strategy", Strategy, ids=lambda strategy: strategy.value)
@given(tree=strategies.queries(declares=True, silences=True), events=strategies.events(), complete=strategies.booleans)
def test_automaton_finds_what_the_definitions_say(
    strategy: Strategy, tree: ast.Query, events: Events, complete: bool
) -> None:
    tree = with_strategy(tree, strategy)
    assume(has_few_valuations(tree.formula, events, MAX_MATCHES))
    query = compiled(tree)
    assert simulate(query, events, complete=complete) == by_definition(query, events, complete=complete)


@pytest.mark.parametrize("strategy", Strategy, ids=lambda strategy: strategy.value)
@settings(max_examples=2 * settings.default.max_examples)
@given(data=st.data())
def test_strategies_choose_as_defined(strategy: Strategy, data: st.DataObject) -> None:
    query = compiled(data.draw(strategies.rich_queries(strategy)))
    events = data.draw(strategies.rich_events())
    assume(has_few_valuations(query.tree.formula, events, MAX_MATCHES))
    assert simulate(query, events) == by_definition(query, events)


@given(tree=strategies.queries(depth=4, silences=True), events=strategies.events())
def test_each_pass_keeps_the_matches(tree: ast.Query, events: Events) -> None:
    query = compiled(tree)
    assume(has_few_valuations(tree.formula, events, MAX_MATCHES))
    automaton = select(build(query.plan.formula), query.plan)
    if query.plan.strategy is Strategy.STRICT:
        automaton = keep_gap_free(automaton)
    expected = simulate(query, events)
    assert simulate(query, events, change=lambda _: automaton) == expected
    for improve in PASSES:
        automaton = improve(automaton)
        assert simulate(query, events, change=lambda _: automaton) == expected  # noqa: B023


@given(tree=strategies.queries(depth=4), events=strategies.events())
def test_collapsed_labels_give_the_complex_events(tree: ast.Query, events: Events) -> None:
    query = compiled(tree)
    assume(has_few_valuations(tree.formula, events, MAX_MATCHES))
    expected = [
        (completed.end, {(one.start, one.positions) for one in completed.matches})
        for completed in by_definition(query, events)
    ]
    found = [
        (completed.end, {(one.start, one.positions) for one in completed.matches})
        for completed in simulate(query, events, change=collapse_labels)
    ]
    assert found == expected


@given(tree=strategies.queries(depth=4), events=strategies.events())
def test_variables_bind_as_many_events_as_the_plan_says(tree: ast.Query, events: Events) -> None:
    query = compiled(tree)
    assume(has_few_valuations(tree.formula, events, MAX_MATCHES))
    for completed in simulate(query, events):
        for match in completed.matches:
            for variable in query.plan.variables:
                n_events = sum(name == variable.name for name, _ in match.held)
                least, most = {"exactly one": (1, 1), "at most one": (0, 1), "any number": (0, len(events))}[
                    variable.multiplicity.value
                ]
                assert least <= n_events <= most


@settings(max_examples=50)
@given(tree=strategies.queries(depth=3, silences=True), events=strategies.events())
def test_a_partitioned_run_is_the_union_of_the_partitions(tree: ast.Query, events: Events) -> None:
    assume(tree.partition_by and tree.consumption is not ast.Consumption.ANY)
    whole = {match for completed in simulate(compiled(tree), events) for match in completed.matches}
    parts = set()
    for key in {event["k"] for event in events if event["k"] is not None}:
        others = [event if event["k"] == key else event | {"k": None} for event in events]
        parts |= {match for completed in simulate(compiled(tree), others) for match in completed.matches}
    assert parts == whole


def with_strategy(tree: ast.Query, strategy: Strategy) -> ast.Query:
    select_clause = ast.Select(strategy, tree.select.selected)
    return ast.Query(
        tree.declarations,
        select_clause,
        tree.sources,
        tree.formula,
        tree.partition_by,
        tree.window,
        tree.consumption,
        tree.limit,
    )
