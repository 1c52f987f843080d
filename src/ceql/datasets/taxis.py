"""Synthetic taxi trips with the zones, fares and rates of real trips in New York.

Zones have the names that the paper's queries use, and their shares in the first hour of the DEBS 2015 challenge.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from ceql.datasets.blocks import N_EVENTS, drawn, random_for, stream, words

BEGIN = 1_356_998_400
"""The first second of 2013, since 1970."""
SPAN = 24_240
"""Seconds of a block, a whole number of minutes: 5.4 trips end in each second, on average."""
WHOLE_MINUTE = 0.52
"""The share of trips whose times are rounded to minutes."""

N_TAXIS = 5_500
"""Chosen so that ten thousand trips have as many different taxis as in the real data."""
SHIFT_SECONDS = 43_200
"""A taxi has one driver by day and another by night."""

SAME_ZONE = 0.05
"""The share of trips that end in the zone where they began, in addition to those that do so by chance."""
# Zone, and its shares of pickups and of drop-offs in ten-thousandths.
ZONES = (
    ("East Harlem North", 540, 462),
    ("University Heights/Morris Heights", 444, 257),
    ("Midtown Center", 369, 181),
    ("Midwood", 364, 457),
    ("Gravesend", 357, 359),
    ("Midtown South", 347, 258),
    ("Upper West Side North", 332, 245),
    ("East Concourse/Concourse Village", 294, 308),
    ("Lincoln Square West", 293, 327),
    ("Clinton East", 292, 201),
    ("Little Italy/NoLiTa", 288, 196),
    ("Upper East Side South", 280, 343),
    ("Whitestone", 273, 206),
    ("Sutton Place/Turtle Bay North", 269, 238),
    ("West Brighton", 262, 324),
    ("Midtown East", 262, 286),
    ("Upper West Side South", 234, 242),
    ("Manhattanville", 230, 182),
    ("Two Bridges/Seward Park", 208, 247),
    ("Flatiron", 197, 177),
    ("TriBeCa/Civic Center", 196, 168),
    ("Grymes Hill/Clifton", 183, 179),
    ("Clinton West", 173, 157),
    ("Chinatown", 173, 149),
    ("Greenwich Village South", 172, 158),
    ("Melrose South", 172, 134),
    ("Penn Station/Madison Sq West", 152, 251),
    ("Lincoln Square East", 144, 188),
    ("Lower East Side", 139, 138),
    ("West Village", 138, 150),
    ("Laurelton", 137, 205),
    ("Midtown North", 135, 70),
    ("Yorkville West", 126, 149),
    ("Soundview/Castle Hill", 118, 83),
    ("Kensington", 108, 123),
    ("Longwood", 106, 154),
    ("Union Sq", 106, 184),
    ("Woodhaven", 82, 71),
    ("Flatlands", 76, 67),
    ("Morrisania/Melrose", 75, 88),
    ("Long Island City/Queens Plaza", 74, 4),
    ("East Village", 66, 122),
    ("Alphabet City", 63, 81),
    ("Kips Bay", 61, 5),
    ("Glen Oaks", 60, 46),
    ("Central Harlem", 54, 67),
    ("Park Slope", 54, 52),
    ("UN/Turtle Bay South", 52, 64),
    ("Woodlawn/Wakefield", 52, 60),
    ("East New York", 51, 117),
    ("Baisley Park", 43, 34),
    ("Eltingville/Annadale/Prince's Bay", 41, 75),
    ("Bay Ridge", 41, 97),
    ("Yorkville East", 39, 58),
    ("East Harlem South", 39, 48),
    ("Times Sq/Theatre District", 30, 10),
    ("Financial District South", 27, 49),
    ("Greenwich Village North", 25, 58),
    ("Steinway", 25, 59),
    ("Bushwick South", 23, 35),
    ("Charleston/Tottenville", 23, 59),
    ("Brighton Beach", 21, 39),
    ("Fresh Meadows", 20, 29),
    ("West Concourse", 20, 66),
    ("SoHo", 19, 31),
    ("Madison", 8, 34),
)
NAMES, PICKUPS, DROPOFFS = (list(column) for column in zip(*ZONES, strict=True))

# Trip times and speeds are lognormal, in seconds and miles per hour.
TIME_MU, TIME_SIGMA = 6.28, 0.67
SPEED_MU, SPEED_SIGMA = 2.52, 0.45
FARE_AT_START, FARE_PER_MILE = 3.9, 2.75
PAYMENTS, PAYMENT_WEIGHTS = ("CSH", "CRD", "NOC", "DIS"), (570, 423, 5, 2)
"""Cash, card, no charge and dispute."""
SURCHARGES, SURCHARGE_WEIGHTS = (0.5, 0.0, 1.0), (70, 29, 1)
MTA_TAX = 0.5
TOLL, TOLL_SHARE = 4.8, 0.012
TIPPED, TIP_RATE, TIP_SPREAD = 0.94, 0.22, 0.05
"""The share of card payments with a tip, and the tip's share of the fare; tips in cash are not recorded."""

_WORD = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        ("type", _WORD),
        ("medallion", _WORD),
        ("hack_license", _WORD),
        ("pickup_datetime", pa.int64()),
        ("dropoff_datetime", pa.int64()),
        ("trip_time_in_secs", pa.int64()),
        ("trip_distance", pa.float64()),
        ("pickup_loc", _WORD),
        ("dropoff_loc", _WORD),
        ("payment_type", _WORD),
        ("fare_amount", pa.float64()),
        ("surcharge", pa.float64()),
        ("mta_tax", pa.float64()),
        ("tip_amount", pa.float64()),
        ("tolls_amount", pa.float64()),
        ("total_amount", pa.float64()),
    ]
)


def taxis(n_events: int, seed: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield trips in the order of `dropoff_datetime`, which is in seconds; the same ones for the same seed."""
    return stream(block, n_events, seed)


def block(number: int, seed: int) -> pa.RecordBatch:
    """Return the trips of a block."""
    random = random_for(number, seed)
    dropoff, duration = _times(random, number)
    taxi = random.integers(0, N_TAXIS, N_EVENTS, np.int32)
    distance = np.round(duration / 3600 * random.lognormal(SPEED_MU, SPEED_SIGMA, N_EVENTS), 2)
    pickup_zone, dropoff_zone = _zones(random)
    payment = drawn(random, PAYMENT_WEIGHTS, N_EVENTS)
    columns = {
        "type": words(np.zeros(N_EVENTS, np.int32), pa.array(["TRIP"])),
        "medallion": words(taxi, _names("medallion", N_TAXIS)),
        "hack_license": words(2 * taxi + dropoff // SHIFT_SECONDS % 2, _names("hack_license", 2 * N_TAXIS)),
        "pickup_datetime": dropoff - duration,
        "dropoff_datetime": dropoff,
        "trip_time_in_secs": duration,
        "trip_distance": distance,
        "pickup_loc": words(pickup_zone, pa.array(NAMES)),
        "dropoff_loc": words(dropoff_zone, pa.array(NAMES)),
        "payment_type": words(payment, pa.array(PAYMENTS)),
        **_amounts(random, distance, is_by_card=payment == PAYMENTS.index("CRD")),
    }
    return pa.record_batch([pa.array(columns[name]) for name in SCHEMA.names], schema=SCHEMA)


def _times(random: np.random.Generator, number: int) -> tuple[Any, Any]:
    """Return when the trips of a block end, in order, and how long they take."""
    unit = np.where(random.random(N_EVENTS) < WHOLE_MINUTE, 60, 1)
    ends = random.integers(0, SPAN, N_EVENTS)
    ends -= ends % unit
    order = np.argsort(ends, kind="stable")
    duration = random.lognormal(TIME_MU, TIME_SIGMA, N_EVENTS).astype(np.int64)
    duration -= duration % unit
    return BEGIN + number * SPAN + ends[order], duration[order]


def _zones(random: np.random.Generator) -> tuple[Any, Any]:
    """Return where trips begin and where they end."""
    pickup = drawn(random, PICKUPS, N_EVENTS)
    dropoff = np.where(random.random(N_EVENTS) < SAME_ZONE, pickup, drawn(random, DROPOFFS, N_EVENTS))
    return pickup, dropoff


def _amounts(random: np.random.Generator, distance: Any, *, is_by_card: Any) -> dict[str, Any]:
    """Return what trips cost, in dollars."""
    fare = np.round(2 * (FARE_AT_START + FARE_PER_MILE * distance)) / 2
    surcharge = np.array(SURCHARGES)[drawn(random, SURCHARGE_WEIGHTS, N_EVENTS)]
    rate = np.maximum(random.normal(TIP_RATE, TIP_SPREAD, N_EVENTS), 0)
    tip = np.where(is_by_card & (random.random(N_EVENTS) < TIPPED), np.round(fare * rate, 2), 0.0)
    tolls = np.where(random.random(N_EVENTS) < TOLL_SHARE, TOLL, 0.0)
    return {
        "fare_amount": fare,
        "surcharge": surcharge,
        "mta_tax": np.full(N_EVENTS, MTA_TAX),
        "tip_amount": tip,
        "tolls_amount": tolls,
        "total_amount": np.round(fare + surcharge + MTA_TAX + tip + tolls, 2),
    }


@cache
def _names(kind: str, n: int) -> pa.Array:
    """Return different names that look like the names in the real data."""
    return pa.array([hashlib.md5(f"{kind} {number}".encode()).hexdigest().upper() for number in range(n)])
