"""Sessions that are fed few events at a time: the same matches and the same errors as with many."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ceql
from ceql.engine.intake.history import MAX_RECENT, History
from ceql.engine.session import Session
from ceql.schema import KnownTypes, table_of_dicts

QUERIES = [
    "SELECT * FROM S WHERE A AS a ; B AS b WITHIN 5 [t]",
    "SELECT * FROM S WHERE A AS a ; B+ AS b PARTITION BY [k] WITHIN 4 EVENTS",
    "SELECT MAX * FROM S WHERE A+ AS a ; B AS b PARTITION BY [k] WITHIN 6 [t]",
    "SELECT * FROM S WHERE A AS a ; B AS b WITHIN 9 [t] CONSUME BY ANY",
]

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=2),
    st.sampled_from(["\ud800", b"\xff", Decimal("1.5"), date(2020, 1, 1), datetime(2020, 1, 1, tzinfo=UTC), [1], {}]),
)
TYPES = st.sampled_from(
    [
        pa.int8(),
        pa.int64(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.timestamp("us", "UTC"),
        pa.date32(),
        pa.decimal128(5, 1),
        pa.dictionary(pa.int32(), pa.string()),
        pa.list_(pa.int64()),
    ]
)


def events() -> st.SearchStrategy[list[dict[str, Any]]]:
    event = st.fixed_dictionaries(
        {"type": st.sampled_from("ABC"), "k": st.sampled_from(["p", "q", None]), "step": st.integers(0, 2)}
    )
    return st.lists(event, min_size=1, max_size=70).map(_timed)


def _timed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    times = np.cumsum([row["step"] for row in rows]).tolist()
    return [{"type": row["type"], "t": at, "k": row["k"]} for row, at in zip(rows, times, strict=True)]


@settings(deadline=None)
@given(events(), st.sampled_from(QUERIES), st.sampled_from(["matches", "events", "positions"]), st.data())
def test_one_event_at_a_time(rows: list[dict[str, Any]], query: str, shape: Any, data: st.DataObject) -> None:
    """Some batches fail in between: by their time, by a value, by their columns, or because they are cancelled."""
    schema = pa.schema([("type", pa.string()), ("t", pa.int64()), ("k", pa.string())])
    whole = ceql.match(query, pa.Table.from_pylist(rows, schema), shape=shape, time_column="t").to_arrow().to_pylist()
    session, found = Session(query, shape=shape, time_column="t"), []
    session.feed(pa.RecordBatch.from_pylist(rows[:1], schema)).count()
    session = Session.restore(query, session.snapshot(), shape=shape, time_column="t")
    for at, row in enumerate(rows[1:], 1):
        match data.draw(st.sampled_from(["dict", "batch", "late", "wrong", "lacking", "cancelled"])):
            case "late":
                with pytest.raises(ceql.DataError, match="backwards"):
                    session.feed([row, {**row, "t": -1}]).count()
            case "wrong":
                with pytest.raises(ceql.DataError, match="the values of 't' are not all of type int64"):
                    session.feed([{**row, "t": "soon"}])
            case "lacking":
                with pytest.raises(ceql.DataError, match="lacks the column 'k'"):
                    session.feed(pa.table({"type": ["A"], "t": [row["t"]]}))
            case "cancelled":
                matches = session.feed([row])
                matches.begin()
                matches.cancel()
            case "batch":
                found += session.feed(pa.RecordBatch.from_pylist([row], schema)).to_arrow().to_pylist()
                continue
        found += session.feed([row]).to_arrow().to_pylist()
        assert session.stats.events == at + 1
    assert found == whole


@settings(deadline=None)
@given(TYPES, st.lists(st.fixed_dictionaries({}, optional={"a": VALUES, "b": st.integers(0, 9)}), min_size=1))
def test_dicts_become_the_same_batch_as_columns(data_type: pa.DataType, rows: list[dict[str, Any]]) -> None:
    known = KnownTypes(pa.schema([("a", data_type), ("b", pa.int64())]))
    batch = known.batch(rows)
    if batch is not None:
        table = table_of_dicts(rows, known)
        assert batch.schema == table.schema
        assert str(batch.to_pylist()) == str(table.to_pylist())
        batch.validate(full=True)


def test_dicts_with_more_columns_are_read_column_by_column() -> None:
    known = KnownTypes(pa.schema([("a", pa.int64())]))
    assert known.batch([{"a": 1, "b": 2}]) is None
    assert known.batch([{"a": "one"}]) is None


def test_text_that_is_not_utf8_in_a_single_event() -> None:
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")])
    for coded in (False, True):
        session = Session("SELECT * FROM S WHERE A AS a ; B AS b")

        def batch(name: pa.Array, coded: bool = coded) -> pa.RecordBatch:
            name = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), name) if coded else name
            return pa.record_batch({"type": pa.array(["A"]), "name": name})

        for at in range(3):
            session.feed(batch(pa.array(["x"]))).count()
            with pytest.raises(ceql.DataError, match=f"the text of 'name' in row {at + 1} is not UTF-8"):
                session.feed(batch(bad)).count()
        assert session.stats.events == 3


@given(st.lists(st.integers(1, 2 * MAX_RECENT), max_size=80), st.data())
def test_recent_rows_are_held_like_others(lengths: list[int], data: st.DataObject) -> None:
    history, first = History(pa.schema([("x", pa.int64())])), 0
    for length in lengths:
        before = history.copy()
        history.append(first, pa.record_batch({"x": np.arange(first, first + length)}))
        assert (before.n_rows, before.n_bytes) == (first, 8 * first)
        first += length
        assert (history.n_rows, history.n_bytes) == (first, 8 * first)
        if data.draw(st.booleans()):
            ids, table = history.snapshot()
            assert ids.tolist() == table["x"].to_pylist() == list(range(first))
            assert history.n_bytes == 8 * first
