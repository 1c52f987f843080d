"""Rows of a history, looked up by number, are those that were put in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ceql.engine.intake import history as history_module
from ceql.engine.intake.history import History

SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("text", pa.string()),
        ("code", pa.dictionary(pa.int32(), pa.string())),
        ("list", pa.list_(pa.int64())),
    ]
)


def event(row: int) -> dict[str, Any]:
    """Return what a row must hold, with NULLs in some."""
    values = {"number": row, "text": f"text {row}", "code": f"code {row % 5}", "list": [row] * (row % 3)}
    return {name: None if (row + at) % 7 == 0 else value for at, (name, value) in enumerate(values.items())}


def batch(first: int, n_rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([event(row) for row in range(first, first + n_rows)], SCHEMA)


def looked_up(history: History, rows: list[int]) -> list[dict[str, Any]]:
    stretch = history.stretch(np.array(rows, np.int64))
    columns = stretch.columns(SCHEMA.names, pa.array(stretch.indices(np.array(rows, np.int64))))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA).to_pylist()


def thinned(rows: list[int], gaps: list[int]) -> list[int]:
    """Return the last row and some before it."""
    places = len(rows) - 1 - np.cumsum([0, *gaps])
    return [rows[at] for at in places[::-1] if at >= 0]


# How far apart the rows that are kept lie decides how rows are found.
gaps = st.sampled_from([1, 2, 3, 30, 50])
steps = st.lists(st.tuples(st.integers(1, 60), st.none() | st.lists(gaps, max_size=8)), min_size=1, max_size=6)


@given(steps, st.data(), st.sampled_from([1, 16, 1 << 14]), st.sampled_from([1, 1 << 16]))
def test_rows_are_those_put_in(
    steps: list[tuple[int, list[int] | None]], data: st.DataObject, max_joined: int, max_stretch: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history_module, "MAX_JOINED", max_joined)
        patch.setattr(history_module, "MAX_STRETCH", max_stretch)
        history, held, n_rows = History(SCHEMA), list[int](), 0
        for n_new, kept_gaps in steps:
            history.append(n_rows, batch(n_rows, n_new))
            held += range(n_rows, n_rows + n_new)
            n_rows += n_new
            rows = data.draw(st.lists(st.sampled_from(held), min_size=1, max_size=10))
            assert looked_up(history, rows) == [event(row) for row in rows]
            if kept_gaps is not None:
                held = thinned(held, kept_gaps)
                history.keep_only(np.array(held, np.int64))
            ids, table = history.snapshot()
            assert ids.tolist() == held
            assert table.to_pylist() == [event(row) for row in held]


def test_no_index_gives_null() -> None:
    history = History(SCHEMA)
    history.append(5, batch(5, 3))
    columns = history.stretch(np.array([5, 7])).columns(["number"], pa.array([None, 1, None], pa.int64()))
    assert columns[0].to_pylist() == [None, 6, None]
