"""Rows in the order of their columns: NULL first, NaN last, and what ties as it was."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ceql
from ceql.engine.intake.batch import in_order

FLOATS = [None, -math.inf, -1.5, -0.0, 0.0, 2.0, math.inf, math.nan]
INTEGERS = [None, -3, 0, 7]
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "double": (pa.float64(), FLOATS),
    "half": (pa.float16(), FLOATS),
    "integer": (pa.int16(), INTEGERS),
    "decimal": (pa.decimal64(9, 1), [None, Decimal("-2.5"), Decimal("0.1"), Decimal("10.0")]),
    "text": (pa.dictionary(pa.int8(), pa.string()), [None, "", "A", "a", "b"]),
    "list": (pa.list_(pa.float64()), [None, [], [None], [1.0], [1.0, 2.0], [math.nan]]),
    "struct": (
        pa.struct({"x": pa.int64(), "y": pa.float64()}),
        [None, {"x": None, "y": 1.0}, {"x": 1, "y": None}, {"x": 1, "y": 2.0}, {"x": 1, "y": math.nan}],
    ),
}
"""Values of each type, in their order; the two zeros are equal."""


def rank(name: str, place: int) -> int:
    return place - 1 if VALUES[name][1] is FLOATS and place > 3 else place


@st.composite
def tables(draw: Any) -> tuple[list[str], list[list[int]]]:
    """Return the columns to sort by, and for each of them the places of the rows' values in `VALUES`."""
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3, unique=True))
    n_rows = draw(st.integers(0, 12))
    places = [st.integers(0, len(VALUES[name][1]) - 1) for name in names]
    return names, [draw(st.lists(place, min_size=n_rows, max_size=n_rows)) for place in places]


@given(tables())
def test_rows_are_sorted_by_the_first_column_first(case: tuple[list[str], list[list[int]]]) -> None:
    names, places = case
    n_rows = len(places[0])
    columns = {
        name: pa.array([VALUES[name][1][place] for place in own], VALUES[name][0], from_pandas=False)
        for name, own in zip(names, places, strict=True)
    }
    table = pa.table({**columns, "row": np.arange(n_rows)})
    found, streams = in_order(table, names, np.arange(n_rows, dtype=np.int32))
    ranks = [[rank(name, place) for place in own] for name, own in zip(names, places, strict=True)]
    expected = sorted(range(n_rows), key=lambda row: [own[row] for own in ranks])
    assert found["row"].to_pylist() == expected
    assert streams.tolist() == expected


@pytest.mark.parametrize(
    ("query", "options", "order"),
    [
        ("SELECT * FROM S WHERE A WITHIN 5 [v]", {}, ("v",)),
        ("SELECT * FROM S WHERE A WITHIN 5 [v]", {"time_column": "t", "order_by": ["v", "w"]}, ("v", "t", "w")),
        ("SELECT * FROM S WHERE A WITHIN 5 seconds", {"order_by": "w"}, ("t", "w")),
        ("SELECT * FROM S WHERE A WITHIN 5 EVENTS", {"time_column": "t"}, ("t",)),
        ("SELECT * FROM S WHERE A", {"order_by": ["w", "v"]}, ("w", "v")),
        ("SELECT * FROM S WHERE A", {}, ()),
    ],
)
def test_the_plan_says_which_columns_order_a_stream(query: str, options: dict[str, Any], order: tuple[str]) -> None:
    schema = pa.schema({"type": pa.string(), "t": pa.timestamp("us"), "v": pa.int64(), "w": pa.int64()})
    assert ceql.compile(query, schema, **options).plan.order == order
