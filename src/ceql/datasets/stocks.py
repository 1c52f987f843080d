"""Synthetic stock trades with the names, skew and rates of one real trading day."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

BATCH = 1 << 20
"""Events made at a time; each batch has a generator of its own, so that none depends on the batch before."""

# Name, share of the trades, price, spread of the price.
STOCKS = (
    ("IPIX", 0.203, 11.41, 1.14),
    ("QQQ", 0.130, 36.15, 0.10),
    ("INTC", 0.118, 27.60, 0.14),
    ("MSFT", 0.104, 26.01, 0.04),
    ("CSCO", 0.092, 22.41, 0.09),
    ("RIMM", 0.077, 114.16, 1.02),
    ("AMAT", 0.076, 18.72, 0.07),
    ("ORCL", 0.073, 11.11, 0.08),
    ("DELL", 0.070, 35.38, 0.10),
    ("YHOO", 0.057, 31.38, 0.18),
)
# Half of the trades come at the same millisecond as the one before; the other gaps are lognormal, 208 ms on
# average, so that a window of ten seconds holds about ninety trades.
SAME_TIME, GAP_MU, GAP_SIGMA = 0.48, 4.5, 1.29
OPENING = 34_200_000
"""Half past nine, in milliseconds since midnight."""

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
    names = pa.array([name for name, *_ in STOCKS])
    shares = np.array([share for _, share, _, _ in STOCKS])
    prices = np.array([price for _, _, price, _ in STOCKS])
    spreads = np.array([spread for *_, spread in STOCKS])
    weights = np.array(VOLUME_WEIGHTS, float)
    time = OPENING
    for first in range(0, n_events, BATCH):
        random = np.random.default_rng([seed, first])
        n = min(BATCH, n_events - first)
        name = random.choice(len(names), n, p=shares / shares.sum()).astype(np.int32)
        gaps = np.where(random.random(n) < SAME_TIME, 0, random.lognormal(GAP_MU, GAP_SIGMA, n)).astype(np.int64)
        times = time + np.cumsum(gaps)
        time = int(times[-1])
        columns = [
            pa.DictionaryArray.from_arrays(pa.array(random.integers(0, 2, n, np.int32)), pa.array(["BUY", "SELL"])),
            pa.array(np.arange(first, first + n)),
            pa.DictionaryArray.from_arrays(pa.array(name), names),
            pa.array(random.choice(np.array(VOLUMES), n, p=weights / weights.sum())),
            pa.array(np.round(random.normal(prices[name], spreads[name]), 2)),
            pa.array(times),
        ]
        yield pa.record_batch(columns, schema=SCHEMA)
