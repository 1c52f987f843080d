"""The baselines find what the engine finds, or say that they cannot: else their times would mean nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ceql
from ceql.bench.baselines_sql import counting_join
from ceql.bench.naive_automaton import Search
from ceql.bench.steps import UnsupportedError
from ceql.bench.systems import numbered

SCHEMA = pa.schema([("type", pa.string()), ("t", pa.int64()), ("k", pa.int64())])
SEQUENCES = ("A ; B", "A ; A ; B", "A AS a ; (A OR B) AS x ; B AS b ; A AS c", "(A OR B) AS x ; C")
ITERATIONS = ("A ; B+ ; C", "A+ ; B", "A ; (A OR B)+ ; B")

streams = st.lists(st.tuples(st.sampled_from("AABBC"), st.integers(0, 2), st.integers(0, 1)), max_size=14).map(
    lambda rows: _table(rows)
)


def _table(rows: list[tuple[str, int, int]]) -> pa.Table:
    """Return events whose times grow by the given steps."""
    time, columns = 0, []
    for event_type, gap, key in rows:
        time += gap
        columns.append({"type": event_type, "t": time, "k": key})
    return pa.Table.from_pylist(columns, SCHEMA)


def _text(pattern: str, *, window: int, is_partitioned: bool, end: str) -> str:
    partition = "PARTITION BY [k]" if is_partitioned else ""
    return f"SELECT * FROM S WHERE {pattern} {partition} WITHIN {window} [t] {end}"


@given(
    streams,
    st.sampled_from(SEQUENCES + ITERATIONS),
    st.integers(0, 12),
    st.booleans(),
    st.sampled_from(["", "CONSUME BY ANY", "CONSUME BY PARTITION", "CONSUME BY ANY LIMIT 2", "LIMIT 1"]),
)
@settings(max_examples=100)
def test_the_naive_automaton_finds_the_same(
    events: pa.Table, pattern: str, window: int, is_partitioned: bool, end: str
) -> None:
    text = _text(pattern, window=window, is_partitioned=is_partitioned, end=end)
    ours = ceql.match(text, events, shape="positions").to_arrow()["positions"].to_pylist()
    theirs = Search(ceql.compile(text, events.schema)).run(events)
    assert len(theirs) == len(set(theirs)) == len(ours)
    if "LIMIT" not in end:
        assert sorted(theirs) == sorted(map(tuple, ours))


@pytest.fixture(scope="module")
def connection() -> Iterator[Any]:
    """One database for all examples: a new one takes longer than they do."""
    with pytest.importorskip("duckdb").connect(config={"threads": 1}) as opened:
        yield opened


@given(streams, st.sampled_from(SEQUENCES), st.integers(0, 12), st.booleans())
@settings(max_examples=40)
def test_the_join_counts_the_same(
    connection: Any, events: pa.Table, pattern: str, window: int, is_partitioned: bool
) -> None:
    text = _text(pattern, window=window, is_partitioned=is_partitioned, end="")
    connection.register("events", numbered(events))
    assert connection.execute(counting_join(text)).fetchall() == [(ceql.match(text, events).count(),)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT * FROM S WHERE A ; B+ WITHIN 5 [t]", "fixed number of events"),
        ("SELECT * FROM S WHERE (A ; B) OR C WITHIN 5 [t]", "fixed number of events"),
        ("SELECT * FROM S WHERE A : B WITHIN 5 [t]", "any event may lie between"),
        ("SELECT * FROM S WHERE A ; B WITHIN 5 EVENTS", "WITHIN over an attribute"),
        ("SELECT MAX * FROM S WHERE A ; B WITHIN 5 [t]", "gives every match"),
        ("SELECT * FROM S WHERE A ; B WITHIN 5 [t] CONSUME BY ANY", "gives every match"),
        ("SELECT * FROM S WHERE A AS x ; B FILTER x[v IS NULL] WITHIN 5 [t]", "IsNull"),
    ],
)
def test_the_join_says_what_it_cannot_express(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        counting_join(text)


@pytest.mark.parametrize("text", ["SELECT LAST * FROM S WHERE A ; B WITHIN 5 [t]", "SELECT * FROM S WHERE A : B"])
def test_the_naive_automaton_says_what_it_cannot_express(text: str) -> None:
    with pytest.raises(UnsupportedError):
        Search(ceql.compile(text))


def test_quotes_in_constants_stay_constants() -> None:
    text = "SELECT * FROM S WHERE A AS x ; B FILTER x[name = 'it''s'] WITHIN 5 [t]"
    assert "name = 'it''s'" in counting_join(text)
