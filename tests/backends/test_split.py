"""A session that lets go of some partition keys goes on as if it had been fed the others only."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from math import inf, nan
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import strategies
from ceql.backends.spark.task_session import TaskOptions, TaskSession
from ceql.engine.intake.keys import key_hashes
from ceql.engine.options import Layout
from ceql.syntax import ast
from ceql.syntax.ast import Consumption, Name
from reference import has_few_valuations

SCHEMA = pa.schema([*strategies.SCHEMA, ("id", pa.int64())])
MAX_MATCHES = 300
Rows = list[dict[str, Any]]


def fed(session: TaskSession, events: Rows) -> list[str]:
    batches = session.batches(pa.Table.from_pylist(events, SCHEMA))
    return sorted(repr(row) for batch in batches for row in batch.to_pylist())


def hashes_of(events: Rows, keys: tuple[str, ...]) -> list[int]:
    table = pa.Table.from_pylist(events, SCHEMA)
    hashes: list[int] = key_hashes([table[name].combine_chunks() for name in keys]).tolist()
    return hashes


@st.composite
def partitioned_queries(draw: Any) -> ast.Query:
    keys = draw(st.sampled_from([("k",), ("s",), ("s", "k")]))
    tree: ast.Query = draw(strategies.queries(depth=4))
    if draw(st.booleans()):
        tree = replace(tree, formula=draw(strategies.rich_formulas(3)), select=replace(tree.select, selected=None))
    consumption = draw(st.sampled_from([Consumption.NONE, Consumption.PARTITION]))
    return replace(tree, partition_by=tuple(Name(key) for key in keys), consumption=consumption)


@pytest.mark.parametrize("shape", ["matches", "events"])
@strategies.some(150)
@given(data=st.data(), bit=st.integers(60, 63), is_restored=st.booleans())
def test_the_keys_that_are_kept_go_on_as_if_there_had_been_no_others(
    shape: Any, data: st.DataObject, bit: int, is_restored: bool
) -> None:
    tree = data.draw(partitioned_queries())
    events = [{**event, "id": number} for number, event in enumerate(data.draw(strategies.events(12)))]
    assume(has_few_valuations(tree.formula, events, MAX_MATCHES))
    keys = tuple(name.text for name in tree.partition_by)
    options = TaskOptions(str(tree), Layout(shape, time_column="t"), id_columns=("t", "id"))
    n_before = data.draw(st.integers(0, len(events)))
    own = [event for event, hashed in zip(events, hashes_of(events, keys), strict=True) if hashed >> bit & 1]
    own_before = [event for event in own if event["id"] < n_before]
    session, alone = TaskSession(options), TaskSession(options)
    fed(session, events[:n_before])
    fed(alone, own_before)
    hashes = session.key_hashes()
    if is_restored:
        session = TaskSession(options, session.snapshot())
    is_kept = (hashes >> np.uint64(bit) & np.uint64(1)).astype(np.bool_)
    session.keep_keys(is_kept)
    assert session.key_hashes().tolist() == hashes[is_kept].tolist()
    assert set(hashes.tolist()) <= set(hashes_of(events, keys))
    assert fed(session, own[len(own_before) :]) == fed(alone, own[len(own_before) :])


def test_nothing_is_left_of_the_keys_that_go() -> None:
    query = "SELECT * FROM S WHERE A AS a ; B AS b PARTITION BY [k] WITHIN 100 [t]"
    events = [{"type": "A", "t": at, "k": at % 10, "id": at} for at in range(1000)]
    session = TaskSession(TaskOptions(query, Layout()))
    fed(session, events)
    n_bytes = len(session.snapshot())
    session.keep_keys(np.arange(10) == 3)
    assert session.pipeline is not None
    assert session.pipeline.run.n_nodes == 10
    assert len(session.snapshot()) < n_bytes / 2
    session.keep_keys(np.array([False]))
    assert not session.pipeline.holds


def test_a_session_without_keys_has_no_hashes() -> None:
    session = TaskSession(TaskOptions("SELECT * FROM S WHERE A AS a ; B AS b", Layout()))
    assert len(session.key_hashes()) == 0
    fed(session, [{"type": "A", "t": 1, "id": 1}])
    assert len(session.key_hashes()) == 0


DIGITS = Decimal("12345678901234567890.5")
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "byte": (pa.int8(), [1, -1, 0]),
    "long": (pa.int64(), [1, 2**62 + 1, -1, 0]),
    "float": (pa.float32(), [1.0, 0.5, inf, nan, 0.0]),
    "double": (pa.float64(), [1.0, 0.1, -inf, nan, 0.0]),
    "short decimal": (pa.decimal128(10, 2), [Decimal("1.00"), Decimal("-0.01")]),
    "long decimal": (pa.decimal128(38, 3), [DIGITS, -DIGITS, Decimal(0)]),
    "string": (pa.string(), ["", "a", "é", "\U0001f600", "a\0"]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["", "a", "é"]),
    "date": (pa.date32(), [date(1, 1, 1), date(2024, 1, 31)]),
    "timestamp": (pa.timestamp("us", "UTC"), [datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 1, 31, tzinfo=UTC)]),
    "timestamp_ntz": (pa.timestamp("us"), [datetime(2024, 1, 31, 9, 30), datetime(1900, 1, 1)]),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_in_a_state_have_the_hashes_that_they_have_in_events(name: str) -> None:
    data_type, values = KEYS[name]
    n_keys = len(values)
    events = pa.table({"type": ["A"] * 2 * n_keys, "k": pa.array(2 * values, data_type), "n": [7] * 2 * n_keys})
    hashes = key_hashes([events["k"].combine_chunks(), events["n"].combine_chunks()])
    assert len(set(hashes.tolist())) == n_keys
    query = "SELECT * FROM S WHERE A AS a ; B AS b PARTITION BY [k, n]"
    session = TaskSession(TaskOptions(query, Layout()))
    session.read(events).pass_over()
    assert session.key_hashes().tolist() == hashes[:n_keys].tolist()
    assert (
        TaskSession(TaskOptions(query, Layout()), session.snapshot()).key_hashes().tolist() == hashes[:n_keys].tolist()
    )


@pytest.mark.parametrize(
    ("data_type", "values"),
    [
        (pa.float64(), [0.0, -0.0]),
        (pa.float32(), [0.0, -0.0]),
        (pa.float64(), [nan, -nan, float(np.uint64(0x7FF8000000000001).view(np.float64))]),
    ],
)
def test_equal_keys_have_equal_hashes(data_type: pa.DataType, values: list[float]) -> None:
    assert len(set(key_hashes([pa.array(values, data_type)]).tolist())) == 1


def test_the_order_of_key_columns_matters() -> None:
    one, other = pa.array([1, 2]), pa.array([2, 1])
    assert key_hashes([one, other]).tolist() == key_hashes([other, one]).tolist()[::-1]
    assert len(set(key_hashes([one, other]).tolist())) == 2


HASHES = {
    "boolean": "0x0",
    "byte": "0xdb26df33d7719b4b",
    "long": "0x173c767c58271f36",
    "float": "0xcd2dcc5047000000",
    "double": "0xf286aa8060f9e56c",
    "short decimal": "0xdb26df33d7719b4b",
    "long decimal": "0x14acd32d9ea55db9",
    "string": "0xdda5962b022b3e29",
    "dictionary": "0xdda5962b022b3e29",
    "date": "0xa7bb5db28e914d07",
    "timestamp": "0x3c9c26d63c422f6d",
    "timestamp_ntz": "0x202f46b404fa0d7f",
}


@pytest.mark.parametrize("name", HASHES)
def test_hashes_never_change_because_states_are_kept_by_them(name: str) -> None:
    data_type, values = KEYS[name]
    assert hex(key_hashes([pa.array(values, data_type)])[1]) == HASHES[name]


@pytest.mark.parametrize("values", [range(4096), [f"key {number}" for number in range(4096)], np.arange(4096) / 4])
def test_first_bits_tell_keys_apart(values: Any) -> None:
    counts = np.bincount(key_hashes([pa.array(values)]) >> np.uint64(58), minlength=64)
    assert 20 <= counts.min() <= counts.max() <= 120
