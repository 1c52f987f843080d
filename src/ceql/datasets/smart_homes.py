"""Synthetic loads of smart plugs with the households, loads and rates of one real house.

The house is number 28 of the DEBS 2014 challenge, which the paper's queries read. Plugs report in rounds, several per
second. In a round, households and plugs come in the order of their names as text: 0, 1, 10, 11, 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ceql.datasets.blocks import N_EVENTS, drawn, ids, random_for, stream, words

BEGIN = 1_377_986_401
"""The first second of the real stream, since 1970."""
SPAN = 6_240
"""Seconds of a block: twenty-one events in each, on average."""
N_PERIODS = 10
"""Parts of a block, about ten minutes each, through which an appliance is either on or off."""
N_PLUGS = (11, 8, 7, 7, 14, 5, 11, 5, 3, 14, 7, 5, 7, 7, 8, 10, 6, 4)
"""How many plugs each household has, in the order of their ids."""


class Appliance(NamedTuple):
    """A load in watts, how often the plug reports compared to others, and the share of time in which it is on."""

    load: float
    spread: float
    weight: int
    duty: float


APPLIANCES = {
    (0, 1): Appliance(128, 14, 10, 0.5),
    (0, 6): Appliance(221, 15, 10, 1),
    (2, 6): Appliance(382, 23, 10, 1),
    (4, 1): Appliance(482, 29, 10, 1),
    (4, 4): Appliance(114, 13, 10, 0.5),
    (4, 5): Appliance(1250, 290, 10, 0.02),
    (4, 12): Appliance(464, 28, 10, 1),
    (6, 3): Appliance(113, 7, 5, 0.3),
    (6, 6): Appliance(327, 27, 5, 0.3),
    (6, 9): Appliance(139, 12, 5, 1),
    (9, 6): Appliance(152, 5, 5, 0.3),
    (9, 9): Appliance(239, 16, 5, 1),
    (9, 10): Appliance(519, 29, 5, 1),
    (9, 13): Appliance(119, 4, 5, 0.3),
    (10, 1): Appliance(232, 16, 5, 1),
    (10, 6): Appliance(290, 15, 5, 0.5),
    (12, 5): Appliance(303, 15, 5, 0.8),
    (14, 3): Appliance(183, 12, 5, 0.8),
    (15, 2): Appliance(193, 12, 5, 0.8),
}
"""Appliances above 76 watts, by household and plug. 76 is the real stream's average, which the paper's queries use."""
SMALL_LOADS = (0, 8, 0, 0, 18, 0, 0, 34, 0, 9, 0, 0, 26, 0, 0, 45, 0, 0, 20)
"""The loads of the other plugs, in turn: most are unused."""
STANDBY = 4.0
"""The load of an appliance that is off."""

PLUGS = sorted(
    ((home, plug) for home, n in enumerate(N_PLUGS) for plug in range(n)), key=lambda key: tuple(map(str, key))
)

SCHEMA = pa.schema(
    [
        ("type", pa.dictionary(pa.int32(), pa.string())),
        ("id", pa.int64()),
        ("plug_timestamp", pa.int64()),
        ("value", pa.float64()),
        ("plug_id", pa.int64()),
        ("household_id", pa.int64()),
    ]
)


def smart_homes(n_events: int, seed: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield loads in the order of `plug_timestamp`, which is in seconds; the same ones for the same seed."""
    return stream(block, n_events, seed)


def block(number: int, seed: int) -> pa.RecordBatch:
    """Return the loads of a block."""
    random = random_for(number, seed)
    appliances = [APPLIANCES.get(key, Appliance(_small_load(at), 1, 3, 1)) for at, key in enumerate(PLUGS)]
    plug, second = _reports(random, [appliance.weight for appliance in appliances])
    loads, spreads, duties = (np.array([appliance[field] for appliance in appliances]) for field in (0, 1, 3))
    is_on = (random.random((N_PERIODS, len(PLUGS))) < duties)[second * N_PERIODS // SPAN, plug]
    load = np.where(is_on, loads[plug], STANDBY)
    noise = random.standard_normal(N_EVENTS) * np.where(is_on, spreads[plug], 1)
    columns = [
        words(np.zeros(N_EVENTS, np.int32), pa.array(["LOAD"])),
        pa.array(ids(number)),
        pa.array(BEGIN + number * SPAN + second),
        pa.array(np.where(load == 0, 0.0, np.round(np.abs(load + noise), 3))),
        pa.array(np.array([key[1] for key in PLUGS])[plug]),
        pa.array(np.array([key[0] for key in PLUGS])[plug]),
    ]
    return pa.record_batch(columns, schema=SCHEMA)


def _small_load(at: int) -> float:
    return SMALL_LOADS[at % len(SMALL_LOADS)]


def _reports(random: np.random.Generator, weights: list[int]) -> tuple[Any, Any]:
    """Return which plug reports in which second of a block, in the order of the stream."""
    plug = drawn(random, weights, N_EVENTS).astype(np.int64)
    second = random.integers(0, SPAN, N_EVENTS)
    # Most rounds are two seconds apart.
    second -= (second % 2) * random.integers(0, 2, N_EVENTS)
    # Sorting one number for both is faster than sorting rows.
    both = np.sort(second * len(weights) + plug)
    return both % len(weights), both // len(weights)
