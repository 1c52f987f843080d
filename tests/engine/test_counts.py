"""Counts on many events, against a count that needs no automaton."""

from __future__ import annotations

import gzip
import os
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import ceql
from ceql.datasets.stocks import SCHEMA, stocks
from ceql.engine.session import Session

N_EVENTS = 200_000
DATA = Path(os.environ.get("CEQL_DATA", Path(__file__).parent.parent.parent.parent / "shared" / "data"))
REAL = DATA / "stocks" / "stock_data.csv.gz"


def count_triples(times: Any, first: Any, second: Any, third: Any, window: int) -> int:
    """Return how many i < j < k there are with first[i], second[j], third[k] and times[k] - times[i] <= window.

    Events go by once; `open_pairs` are the pairs (i, j) whose i is still inside the window.
    """
    n_seconds = open_pairs = total = 0
    starts: deque[tuple[int, int]] = deque()
    for at, now in enumerate(times.tolist()):
        while starts and now - starts[0][0] > window:
            open_pairs -= n_seconds - starts.popleft()[1]
        if third[at]:
            total += open_pairs
        if second[at]:
            open_pairs += len(starts)
            n_seconds += 1
        if first[at]:
            starts.append((now, n_seconds))
    return total


def column(table: pa.Table, name: str) -> Any:
    return np.array(table[name].to_pylist()) if name in ("type", "event_type", "name") else table[name].to_numpy()


def masks(table: pa.Table, type_column: str) -> tuple[Any, Any, Any]:
    """Return which events can be a, b and c of the query below."""
    event_type, name, price = column(table, type_column), column(table, "name"), column(table, "price")
    volume = column(table, "volume")
    return (
        (event_type == "BUY") & (name == "INTC") & (price > 27.5),
        (event_type == "SELL") & np.isin(name, ["MSFT", "QQQ"]),
        (event_type == "BUY") & ((name == "CSCO") | (volume >= 1000)),
    )


QUERY = """
SELECT * FROM S WHERE BUY AS a ; SELL AS b ; BUY AS c
FILTER a[name = 'INTC' AND price > 27.5] AND b[name IN {'MSFT', 'QQQ'}] AND c[name = 'CSCO' OR volume >= 1000]
"""


@pytest.fixture(scope="module")
def generated() -> pa.Table:
    return pa.Table.from_batches(stocks(N_EVENTS), SCHEMA)


@pytest.mark.parametrize("window", [0, 3_000, 10_000])
def test_sequences_in_a_window(generated: pa.Table, window: int) -> None:
    expected = count_triples(column(generated, "stock_time"), *masks(generated, "type"), window)
    found = ceql.match(f"{QUERY} WITHIN {window} [stock_time]", generated, shape="positions").count()
    assert found == expected
    assert (found > 100_000) == (window == 10_000)


@pytest.mark.parametrize("n_batches", [3, 40])
def test_sequences_over_batches_and_snapshots(generated: pa.Table, n_batches: int) -> None:
    query, options = f"{QUERY} WITHIN 5000 [stock_time]", {"shape": "positions"}
    session = Session(query, **options)  # type: ignore[arg-type]
    size = N_EVENTS // n_batches + 1
    found = 0
    for at in range(0, N_EVENTS, size):
        found += session.feed(generated.slice(at, size)).count()
        session = Session.restore(query, session.snapshot(), **options)
    assert found == count_triples(column(generated, "stock_time"), *masks(generated, "type"), 5_000)


def test_sequences_by_partition(generated: pa.Table) -> None:
    query = "SELECT * FROM S WHERE BUY AS a ; SELL AS b ; BUY AS c FILTER b[volume >= 500] PARTITION BY [name]"
    expected = 0
    times, names = column(generated, "stock_time"), column(generated, "name")
    is_buy, is_large = column(generated, "type") == "BUY", column(generated, "volume") >= 500
    for name in set(names.tolist()):
        own = names == name
        parts = (is_buy[own], (~is_buy & is_large)[own], is_buy[own])
        expected += count_triples(times[own], *parts, 4_000)
    assert ceql.match(f"{query} WITHIN 4000 [stock_time]", generated).count() == expected > 0


def test_generated_trades_are_always_the_same() -> None:
    whole = pa.Table.from_batches(stocks(5000, seed=3), SCHEMA)
    assert whole == pa.Table.from_batches(stocks(5000, seed=3), SCHEMA)
    assert whole["price"] != pa.Table.from_batches(stocks(5000, seed=4), SCHEMA)["price"]
    assert whole["id"].to_pylist() == list(range(5000))
    assert (np.diff(whole["stock_time"].to_numpy()) >= 0).all()
    assert list(stocks(0)) == []


@pytest.mark.skipif(not REAL.exists(), reason=f"no real trades: {REAL} does not exist (set CEQL_DATA)")
@pytest.mark.parametrize("window", [1_000, 10_000])
def test_sequences_of_real_trades(window: int) -> None:
    with gzip.open(REAL) as file:
        table = pa.csv.read_csv(file)
    order = np.argsort(table["stock_time"].to_numpy(), kind="stable")
    ordered = table.take(pa.array(order))
    expected = count_triples(column(ordered, "stock_time"), *masks(ordered, "event_type"), window)
    options: Any = {"type_column": "event_type", "shape": "positions", "order_by": ("stock_time",), "sort": True}
    assert ceql.match(f"{QUERY} WITHIN {window} [stock_time]", table, **options).count() == expected > 0
