"""Windows at the edges of what they measure: the range of 64 bits, infinity, NULL."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import ceql
from ceql.engine.session import Session
from ceql.errors import DataError


def pairs(within: str, events: pa.Table, **options: Any) -> list[tuple[int, ...]]:
    query = f"SELECT * FROM S WHERE A AS x ; B AS y WITHIN {within}"
    return [
        tuple(row["positions"])
        for row in ceql.match(query, events, shape="positions", **options).to_arrow().to_pylist()
    ]


def test_windows_over_all_unsigned_integers() -> None:
    times = pa.array([0, 1, 2**63, 2**64 - 1], pa.uint64())
    events = pa.table({"type": ["A", "B", "A", "B"], "t": times})
    assert sorted(pairs("18446744073709551615 [t]", events)) == [(0, 1), (0, 3), (2, 3)]
    assert sorted(pairs(f"{2**63 - 1} [t]", events)) == [(0, 1), (2, 3)]


def test_a_window_that_64_bits_cannot_measure_is_refused() -> None:
    events = pa.table({"type": ["A", "B"], "t": pa.array([-(2**63), 2**63 - 1])})
    with pytest.raises(DataError, match="too large to measure 't' from -9223372036854775808 to 9223372036854775807"):
        pairs(f"{2**64 - 2} [t]", events)
    assert pairs(f"{2**64 - 2} [t]", events.slice(0, 1)) == []


@pytest.mark.parametrize("times", [[3, 5, 1, 6], [3, None, 1, 6], [None, 5, 1, None]])
def test_sorting_by_an_attribute_that_is_null_somewhere(times: list[int | None]) -> None:
    # The row without a measure comes first and is left out, whatever its time.
    events = pa.table({"type": ["A", "B", "A", "B"], "a": [1, 2, None, 3], "t": times})
    assert pairs("5 [a]", events, sort=True, time_column="t") == [(1, 2), (1, 3)]


def test_sorting_does_not_make_two_orders_agree() -> None:
    events = pa.table({"type": ["A", "B"], "a": [1, 2], "t": [2, 1]})
    with pytest.raises(DataError, match="'t' is 1 after 2") as caught:
        pairs("5 [a]", events, sort=True, time_column="t")
    assert caught.value.hint == (
        "'a', which the query measures, orders the events: leave time_column out if 't' orders them otherwise, "
        "else sort them by both, as sort=True does"
    )


def test_infinity_across_batches_and_snapshots() -> None:
    query = "SELECT * FROM S WHERE A AS x ; B AS y WITHIN 1 [t]"
    session = Session(query, shape="positions")
    assert session.feed(pa.table({"type": ["A", "A"], "t": [1.0, float("inf")]})).count() == 0
    session = Session.restore(query, session.snapshot(), shape="positions")
    found = session.feed(pa.table({"type": ["B"], "t": pa.array([float("inf")], pa.float64())}))
    assert found.to_arrow()["positions"].to_pylist() == [[1, 2]]
    with pytest.raises(DataError, match=r"'t' is 2\.5 after inf"):
        session.feed(pa.table({"type": ["B"], "t": [2.5]})).count()
    assert session.expire(float("inf"))


def test_a_window_wider_than_64_bits_is_kept_in_snapshots() -> None:
    query = "SELECT * FROM S WHERE A AS x ; B AS y WITHIN 20000000000000000000 [t]"
    session = Session(query, shape="positions")
    session.feed(pa.table({"type": ["A"], "t": [-(2**63)]})).count()
    session = Session.restore(query, session.snapshot(), shape="positions")
    assert session.expire(2**63 - 1)
    assert session.feed(pa.table({"type": ["B"], "t": [2**63 - 1]})).count() == 1


def test_a_window_too_wide_to_measure_is_refused_after_a_restore_too() -> None:
    query = f"SELECT * FROM S WHERE A AS x ; B AS y WITHIN {2**63} [t]"
    session = Session(query, shape="positions")
    session.feed(pa.table({"type": ["A", "A"], "t": [-(2**63), 0]})).count()
    restored = Session.restore(query, session.snapshot(), shape="positions")
    for one in (session, restored):
        with pytest.raises(ceql.DataError, match="too large to measure"):
            one.feed(pa.table({"type": ["B"], "t": [2**63 - 1]})).count()
