"""Values of many events at once, beside Arrow's own way to take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ceql
from ceql.engine.intake.history import History
from ceql.engine.results import values as values_module
from ceql.engine.results.values import Places, Values

words = st.sampled_from(["", "a", "b", "é", "long enough to be no short text"])
COLUMNS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.sampled_from([0.0, -0.0, float("inf"), 1.5]),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.float32(): st.sampled_from([0.0, 0.5, -2.0]),
    pa.int8(): st.integers(-128, 127),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.time32("s"): st.times().map(lambda time: time.replace(microsecond=0)),
    pa.timestamp("us", "UTC"): st.integers(-(10**12), 10**12),
    pa.decimal128(10, 2): st.decimals(-1000, 1000, places=2),
    pa.string(): words,
    pa.large_string(): words,
    pa.binary(): st.binary(max_size=3),
    pa.dictionary(pa.int32(), pa.string()): words,
    pa.dictionary(pa.int64(), pa.string(), ordered=True): words,
    pa.dictionary(pa.uint32(), pa.int64()): st.integers(0, 3),
    pa.list_(pa.int64()): st.lists(st.integers(0, 9), max_size=2),
}


def column(data_type: pa.DataType, values: list[Any]) -> pa.Array:
    if not pa.types.is_dictionary(data_type):
        return pa.array(values, data_type)
    encoded = pa.array(values, data_type.value_type).dictionary_encode()
    codes = encoded.indices.cast(data_type.index_type)
    return pa.DictionaryArray.from_arrays(codes, encoded.dictionary, ordered=data_type.ordered)


@given(st.data(), st.sampled_from(list(COLUMNS)), st.booleans(), st.booleans())
def test_values_are_those_that_arrow_takes(
    data: st.DataObject,
    data_type: pa.DataType,
    has_nulls: bool,
    has_gaps: bool,
) -> None:
    own = COLUMNS[data_type]
    held = data.draw(st.lists(own | st.none() if has_nulls else own, min_size=3, max_size=20))
    # A slice, so that the values do not begin where the buffers begin.
    array = column(data_type, [held[0], *held])[1:]
    first = data.draw(st.integers(0, 5))
    history = History(pa.schema([("x", data_type)]))
    history.append(first, pa.record_batch([array], ["x"]))
    ids = np.arange(first, first + len(held))
    if has_gaps:
        ids = np.delete(ids, 1)
        history.keep_only(ids)
    rows = np.array(data.draw(st.lists(st.sampled_from(ids.tolist()), min_size=6, max_size=60)), np.int64)
    step = data.draw(st.integers(1, 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values_module, "MIN_PLACES", 1)
        values = Values(history.stretch(rows))
        for begin in range(step):
            (found,) = values.at(["x"], Places(rows, begin, step))
            found.validate(full=True)
            assert found.type == data_type
            assert found.to_pylist() == array.take(pa.array(rows[begin::step] - first)).to_pylist()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM S WHERE A AS a ; B AS b WITHIN 60 [t]",
        "SELECT a FROM S WHERE A AS a ; B AS b WITHIN 60 [t]",
        "SELECT b FROM S WHERE A AS a ; B AS b ; A AS c WITHIN 20 [t]",
        "SELECT * FROM S WHERE A AS a ; (B AS b OR A AS c) ; B AS d WITHIN 12 [t]",
        "SELECT * FROM S WHERE A AS a ; B+ AS b ; A AS c WITHIN 7 EVENTS",
        "SELECT * FROM S WHERE (A AS a ; B) AS b ; A AS c PARTITION BY [k] WITHIN 60 [t]",
        "SELECT * FROM S WHERE A AS a WITHIN 60 [t]",
    ],
)
def test_many_matches_together_are_those_one_by_one(query: str) -> None:
    n_events = 1200
    random = np.random.default_rng(0)
    events = pa.table(
        {
            "type": pa.array(random.choice(["A", "B"], n_events)).dictionary_encode(),
            "t": pa.array(np.arange(n_events)),
            "k": pa.array(random.choice(["p", "q"], n_events)),
            "n": pa.array(random.integers(0, 100, n_events), pa.int32()),
            "maybe": pa.array([None if n % 3 else float(n) for n in range(n_events)]),
        }
    )
    alone, together = (ceql.Session(query, chunk_size=size).feed(events).to_arrow() for size in (7, 1 << 15))
    assert len(together) > values_module.MIN_PLACES
    together.validate(full=True)
    assert together.schema == alone.schema
    assert together.to_pylist() == alone.to_pylist()
