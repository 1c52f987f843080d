"""What users are told of runs that went well: ties on which matches depend, event types that never came."""

from __future__ import annotations

import warnings
from typing import Any

import pyarrow as pa
import pytest

import ceql
from ceql.engine.session import Session

NEIGHBOURS = "SELECT * FROM S WHERE A AS x : B AS y WITHIN 9 [t]"
BY_KEY = "SELECT * FROM S WHERE A AS x : B AS y PARTITION BY [k] WITHIN 9 [t]"
TABLE = pa.table(
    {
        "type": list("AZBABAB"),
        "t": [1, 1, 1, 2, 3, 3, None],
        "k": ["p", "q", "p", "p", "p", None, "p"],
        "id": [1, 2, 3, 4, 5, 6, 7],
    }
)


def told(action: Any) -> list[str]:
    """Return what an action warns of, each line of this file once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    assert all(one.category is ceql.CeqlWarning and one.filename == __file__ for one in caught)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize(
    ("query", "options", "n_ties"),
    [
        (NEIGHBOURS, {}, 3),
        (BY_KEY, {}, 1),
        (NEIGHBOURS, {"order_by": "id"}, 0),
        (NEIGHBOURS, {"order_by": ["id"], "sort": True}, 0),
        ("SELECT * FROM S WHERE A ; B WITHIN 9 [t]", {}, 0),
        ("SELECT STRICT * FROM S WHERE A ; B WITHIN 9 [t]", {}, 3),
        ("SELECT STRICT * FROM S WHERE A WITHIN 9 [t]", {}, 0),
        ("SELECT * FROM S WHERE A ; B WITHIN 9 EVENTS", {"time_column": "t"}, 3),
        ("SELECT * FROM S WHERE A ; B WITHIN 9 EVENTS", {}, 0),
        ("SELECT * FROM S WHERE A : B", {"order_by": "t"}, 3),
        ("SELECT * FROM S WHERE A : B", {"order_by": "k"}, 2),
    ],
)
def test_ties_are_told_where_matches_depend_on_them(query: str, options: dict[str, Any], n_ties: int) -> None:
    found = told(lambda: ceql.match(query, TABLE, **options).count())
    tie = "1 event ties" if n_ties == 1 else f"{n_ties} events tie"
    assert [one.partition(" with an earlier")[0] for one in found] == ([tie] if n_ties else [])
    assert all(one.endswith("order them with order_by") for one in found)


@pytest.mark.parametrize("query", [NEIGHBOURS, BY_KEY])
def test_a_session_tells_of_ties_once_also_between_batches(query: str) -> None:
    session = Session(query)
    found = [told(lambda at=at: session.feed(TABLE.slice(at, 1)).count()) for at in range(len(TABLE))]
    first = 1 if query == NEIGHBOURS else 2
    assert [len(one) for one in found] == [int(at == first) for at in range(len(TABLE))]
    assert found[first][0].startswith("1 event ties with an earlier event in 't', ")


def test_whatever_compiles_a_query_is_told_of_it() -> None:
    table = pa.table({"type": ["A"], "s": ["a"]})
    text = "SELECT * FROM S WHERE A AS x FILTER x[s = NULL]"
    note = "s = NULL is never true: write s IS NULL"
    assert told(lambda: ceql.compile(text, table)) == [note]
    assert note in told(lambda: ceql.match(text, table).count())


def test_a_batch_that_was_undone_ties_with_nothing() -> None:
    session = Session(NEIGHBOURS)
    session.feed(TABLE.slice(3, 1)).count()
    with pytest.raises(ceql.DataError):
        session.feed([{"type": "A", "t": 3, "k": "p", "id": 1}, {"type": "A", "t": 1, "k": "p", "id": 2}]).count()
    assert told(lambda: session.feed(TABLE.slice(4, 1)).count()) == []


def test_streams_are_ordered_by_from() -> None:
    query = "SELECT * FROM S, T WHERE S>A : T>A WITHIN 9 [t]"
    streams = {"S": pa.table({"type": ["A", "A"], "t": [1, 2]}), "T": pa.table({"type": ["A", "A"], "t": [1, 2]})}
    assert told(lambda: ceql.match(query, streams).count()) == []
    streams["T"] = pa.table({"type": ["A", "A"], "t": [2, 2]})
    assert len(told(lambda: ceql.match(query, streams).count())) == 1


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1.5, 1.5, float("nan"), float("nan")]),
        pa.array(["p", "p", None, None]).dictionary_encode(),
        pa.array([[1], [1], None, None]),
        pa.array([True, True, None, None]),
    ],
)
def test_ties_in_columns_of_any_type(values: pa.Array) -> None:
    table = pa.table({"type": list("ABAB"), "o": values})
    found = told(lambda: ceql.match("SELECT * FROM S WHERE A : B", table, order_by="o").count())
    assert len(found) == (0 if pa.types.is_list(values.type) else 1)


# Event types


@pytest.mark.parametrize(
    ("pattern", "options", "expected"),
    [
        ("A ; fial", {}, ["there is no event of type fial; there are: A, B, Z"]),
        ("C OR D", {}, ["there is no event of types C, D; there are: A, B, Z"]),
        ("T", {"type_column": None}, ["there is no event of type T; there are: S"]),
        ("A OR fial", {}, []),
        ("B ; Z PARTITION BY [id]", {}, []),
    ],
)
def test_types_that_never_came_are_told_if_nothing_was_found(
    pattern: str, options: dict[str, Any], expected: list[str]
) -> None:
    query = (
        f"SELECT * FROM S WHERE {pattern} PARTITION BY [id]"
        if pattern == "B ; Z"
        else f"SELECT * FROM S WHERE {pattern}"
    )
    for events in (TABLE, pa.table(TABLE.to_pydict()).to_reader(2), TABLE.to_pandas()):
        assert told(lambda events=events: ceql.match(query, events, **options).to_arrow()) == expected


def test_types_are_told_after_all_was_read() -> None:
    matches = ceql.match("SELECT * FROM S WHERE A ; fial", TABLE)
    assert told(lambda: matches.begin()) == []
    assert len(told(matches.count)) == 1
    session = Session("SELECT * FROM S WHERE A ; fial")
    assert told(lambda: session.feed(TABLE).count()) == []
