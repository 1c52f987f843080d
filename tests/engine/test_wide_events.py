"""Events with long texts: what a session holds, and what it gives at once, is bounded in bytes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ceql.engine.intake import intake
from ceql.engine.results import shapes
from ceql.engine.session import Session
from strategies import some

QUERIES = {
    "sequence": "SELECT * FROM S WHERE A AS a ; B AS b",
    "attributes": "SELECT a[n], b FROM S WHERE A AS a ; B AS b",
    "one event, two variables": "SELECT * FROM S WHERE (A AS a ; B) AS b",
    "lists": "SELECT * FROM S WHERE (A+) AS a ; B AS b WITHIN 6 EVENTS",
    "nothing": "SELECT NONE FROM S WHERE A AS a ; B AS b",
}

TEXTS = [
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.string_view(),
]

types = st.text("AABBC", min_size=8, max_size=16)
lengths = st.none() | st.sampled_from([0, 1, 30, 100, 1000])


def table(event_types: str, texts: list[int | None], data_type: pa.DataType) -> pa.Table:
    columns = {"type": pa.array(list(event_types)), "n": pa.array(range(len(event_types)))}
    columns["text"] = pa.array([None if one is None else "x" * one for one in texts], pa.string()).cast(data_type)
    return pa.table(columns)


def n_characters(value: Any) -> int:
    """Return how long all texts in a value of Python are."""
    if isinstance(value, dict):
        return sum(n_characters(one) for name, one in value.items() if name != "match_id")
    if isinstance(value, list):
        return sum(map(n_characters, value))
    return len(value) if isinstance(value, str | bytes) else 0


def n_matches(rows: list[dict[str, Any]]) -> int:
    return len({row["match_id"] for row in rows}) if rows and "match_id" in rows[0] else len(rows)


@pytest.mark.parametrize("shape", ["matches", "events"])
@pytest.mark.parametrize("name", QUERIES)
@some(50)
@given(data_type=st.sampled_from(TEXTS), event_types=types, data=st.data(), limit=st.sampled_from([1, 500, 3000]))
def test_batches_are_bounded_in_bytes(
    name: str, shape: Any, data_type: pa.DataType, event_types: str, data: Any, limit: int
) -> None:
    events = table(event_types, [data.draw(lengths) for _ in event_types], data_type)
    expected = Session(QUERIES[name], shape=shape).feed(events).to_arrow().to_pylist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "MAX_BATCH_BYTES", limit)
        session = Session(QUERIES[name], shape=shape)
        batches = [batch.to_pylist() for part in (events[:7], events[7:]) for batch in session.feed(part).batches()]
    assert [row for batch in batches for row in batch] == expected
    assert all(n_matches(batch) == 1 or n_characters(batch) <= limit for batch in batches)


def test_rows_with_long_texts_are_forgotten_early(monkeypatch: pytest.MonkeyPatch) -> None:
    limit, text_length, query = 100_000, 1000, QUERIES["sequence"] + " WITHIN 3 EVENTS"
    events = table("AB" * 500, [text_length] * 1000, pa.string())
    expected = Session(query).feed(events).to_arrow().to_pylist()
    monkeypatch.setattr(intake, "MIN_HISTORY_BYTES", limit)
    session, found = Session(query), []
    for begin in range(0, len(events), 10):
        found += session.feed(events[begin : begin + 10]).to_arrow().to_pylist()
        assert session.pipeline is not None
        assert session.pipeline.intake.history is not None
        assert session.pipeline.intake.history.n_bytes < limit
    assert found == expected
