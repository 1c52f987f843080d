"""Synthetic stock trades with the names, skew, bursts and rates of one real trading day."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ceql.datasets.blocks import N_EVENTS, drawn, ids, random_for, stream, words

# Name, share of the trades in thousandths, price, spread of the price.
STOCKS = (
    ("IPIX", 203, 11.41, 1.14),
    ("QQQ", 130, 36.15, 0.10),
    ("INTC", 118, 27.60, 0.14),
    ("MSFT", 104, 26.01, 0.04),
    ("CSCO", 92, 22.41, 0.09),
    ("RIMM", 77, 114.16, 1.02),
    ("AMAT", 76, 18.72, 0.07),
    ("ORCL", 73, 11.11, 0.08),
    ("DELL", 70, 35.38, 0.10),
    ("YHOO", 57, 31.38, 0.18),
)
NAMES, SHARES, PRICES, SPREADS = (list(column) for column in zip(*STOCKS, strict=True))

# Half of the trades have the same millisecond as the trade before: an order filled in parts, with one type, name and
# price. The other gaps are lognormal, and a window of ten seconds holds about ninety trades.
SAME_TIME, GAP_MU, GAP_SIGMA = 0.48, 4.5, 1.29
MEAN_GAP = 108
"""Milliseconds between two trades, on average."""
OPENING = 34_200_000
"""Half past nine, in milliseconds since midnight."""
SPAN = N_EVENTS * MEAN_GAP
"""Milliseconds of a block."""

VOLUMES = (100, 500, 200, 1000, 300, 400, 800, 150, 600, 2000, 1500, 700, 250, 900, 4000, 50)
VOLUME_WEIGHTS = (234, 102, 95, 79, 76, 56, 29, 26, 25, 24, 22, 21, 20, 15, 12, 164)

SCHEMA = pa.schema(
    [
        ("type", pa.dictionary(pa.int32(), pa.string())),
        ("id", pa.int64()),
        ("name", pa.dictionary(pa.int32(), pa.string())),
        ("volume", pa.int64()),
        ("price", pa.float64()),
        ("stock_time", pa.int64()),
    ]
)


def stocks(n_events: int, seed: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield trades in the order of `stock_time`, which is in milliseconds; the same ones for the same seed."""
    return stream(block, n_events, seed)


def block(number: int, seed: int) -> pa.RecordBatch:
    """Return the trades of a block."""
    random = random_for(number, seed)
    begins_order = random.random(N_EVENTS) >= SAME_TIME
    begins_order[0] = True
    order = np.cumsum(begins_order) - 1
    n_orders = int(order[-1]) + 1
    name = drawn(random, SHARES, n_orders)
    price = np.round(random.normal(np.array(PRICES)[name], np.array(SPREADS)[name]), 2)
    columns = [
        words(random.integers(0, 2, n_orders, np.int32)[order], pa.array(["BUY", "SELL"])),
        pa.array(ids(number)),
        words(name[order], pa.array(NAMES)),
        pa.array(np.array(VOLUMES)[drawn(random, VOLUME_WEIGHTS, N_EVENTS)]),
        pa.array(price[order]),
        pa.array(_order_times(random, number, n_orders)[order]),
    ]
    return pa.record_batch(columns, schema=SCHEMA)


def _order_times(random: np.random.Generator, number: int, n_orders: int) -> Any:
    """Return when the orders of a block are filled; the gaps are stretched so that they fill its span."""
    passed = np.cumsum(random.lognormal(GAP_MU, GAP_SIGMA, n_orders))
    return OPENING + number * SPAN + (passed / passed[-1] * SPAN).astype(np.int64)
