"""Matches beside the events that they share are the same matches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given

import ceql
import kernel_runner
import strategies
from ceql.backends.spark import shared_events as shared
from ceql.backends.spark.task_session import TaskOptions, TaskSession
from ceql.engine.intake.history import MAX_STRETCH
from ceql.engine.options import Layout
from ceql.syntax import ast, plan
from ceql.syntax.ast import Strategy
from reference import has_few_valuations

TYPES = dict(zip(strategies.SCHEMA.names, strategies.SCHEMA.types, strict=True))


def with_events(batch: pa.RecordBatch, query: plan.Plan) -> list[dict[str, Any]]:
    """Return the rows of the shape "matches"."""
    batch.validate(full=True)
    rows = []
    for group in batch.to_pylist():
        for match in group[shared.MATCHES]:
            fields = list(match.values()) if isinstance(match, dict) else [match]
            words = fields[len(query.partition_by) :]
            values = []
            for number, name in enumerate(shared.lists(query)):
                word = words[number // shared.PLACES_PER_WORD]
                place = word >> (number % shared.PLACES_PER_WORD * shared.BITS) & shared.NO_PLACE
                values.append(None if place == shared.NO_PLACE else group[name][place])
            rows.append(dict(zip(query.result_schema.names, fields[: len(query.partition_by)] + values, strict=True)))
    return rows


def shared_batches(text: str, events: pa.Table) -> Iterator[pa.RecordBatch]:
    return TaskSession(TaskOptions(text, Layout(), shares_events=True)).batches(events)


def check(text: str, events: pa.Table) -> int:
    """Return the number of rows in which the matches of a query come."""
    query = ceql.compile(text, events.schema)
    assert shared.may_share(query.plan)
    expected = ceql.match(query, events).to_arrow().to_pylist()
    batches = list(shared_batches(text, events))
    assert all(batch.schema.equals(shared.shared_schema(query.plan)) for batch in batches)
    assert [row for batch in batches for row in with_events(batch, query.plan)] == expected
    assert expected
    return sum(map(len, batches))


def chain(n_variables: int, tail: str = "") -> str:
    return f"SELECT * FROM S WHERE {' ; '.join(f'A AS v{number}' for number in range(n_variables))} {tail}"


@pytest.mark.parametrize(("n_variables", "n_words"), [(2, 1), (4, 1), (5, 2), (10, 2), (11, 3)])
def test_places_take_as_many_words_as_they_need(n_variables: int, n_words: int) -> None:
    events = pa.table({"type": ["A"] * 12, "n": range(12)})
    assert shared.n_words(ceql.compile(chain(n_variables), events.schema).plan) == n_words
    check(chain(n_variables), events)


def test_a_row_has_no_more_matches_than_there_are_places() -> None:
    events = pa.table({"type": ["A"] * 50, "n": range(50), "k": [1, 2] * 25})
    n_rows = check(chain(3), events)
    assert n_rows >= 50 * 49 * 48 // 6 / shared.MAX_GROUP
    assert check(chain(3, "PARTITION BY [k]"), events)
    assert check(chain(3, "WITHIN 9 [n]"), events)


def test_what_variables_show_may_differ_and_be_missing() -> None:
    events = pa.table({"type": list("ABABC"), "n": [1, None, 3, 4, 5], "m": [None, "é", "", "x", "y"]})
    check("SELECT * FROM S WHERE (A AS x OR B AS y) ; (A AS z OR B AS w) ; C AS c", events)
    declared = "CREATE STREAM S { EVENT A { n: int }, EVENT B { m: string }, EVENT C { n: int } }"
    check(f"{declared} SELECT * FROM S WHERE A ; B ; C", events)


def test_events_far_apart_are_shared() -> None:
    n_events = 5 * MAX_STRETCH
    types = np.full(n_events, "B")
    types[[0, 1, MAX_STRETCH, -2, -1]] = list("AACAC")
    check("SELECT * FROM S WHERE A AS a ; C AS c", pa.table({"type": types, "n": range(n_events)}))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM S WHERE A AS a ; (B AS b)+ ; C AS c",
        "SELECT a FROM S WHERE A AS a ; B AS b",
        chain(shared.MAX_VARIABLES + 1),
    ],
    ids=["lists", "one variable", "many variables"],
)
def test_not_all_matches_are_so_described(query: str) -> None:
    assert not shared.may_share(ceql.compile(query, strategies.SCHEMA).plan)


@pytest.mark.parametrize("strategy", [Strategy.ALL, Strategy.MAX], ids=lambda strategy: strategy.value)
@given(data=strategies.st.data())
def test_shared_events_make_the_same_matches(strategy: Strategy, data: Any) -> None:
    tree: ast.Query = data.draw(strategies.rich_queries(strategy))
    events = data.draw(strategies.rich_events())
    query = ceql.compile(str(tree), strategies.SCHEMA)
    assume(shared.may_share(query.plan) and has_few_valuations(tree.formula, events, 3000))
    table = kernel_runner.table(events, TYPES)
    expected = ceql.match(query, table).to_arrow().to_pylist()
    batches = shared_batches(query.text, table)
    assert [row for batch in batches for row in with_events(batch, query.plan)] == expected
