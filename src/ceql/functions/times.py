"""Functions on times, which are nanoseconds since 1970. A time that has a zone is seen in UTC, or in a given zone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pyarrow as pa

from ceql.errors import did_you_mean
from ceql.functions.entry import Function, Taken
from ceql.schema import NANOSECONDS_IN_UNIT, Kind

SECOND = 10**9
DAY = 86400 * SECOND
MICROS_PER_DAY = 86400 * 10**6

MOMENT = Taken("a timestamp", frozenset((Kind.TIMESTAMP, Kind.LOCAL_TIMESTAMP)))
TIME = Taken("a timestamp or date", MOMENT.kinds | {Kind.DATE})
ZONE = Taken("a time zone", frozenset((Kind.STRING,)))

_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = (int((datetime(year, 1, 2, tzinfo=UTC) - _EPOCH).total_seconds()) for year in (1, 9999))
"""Zones are known between these seconds; earlier and later times have the same offset."""


@lru_cache(maxsize=1024)
def _zone(name: str) -> tzinfo | None:
    offset = _OFFSET.fullmatch(name)
    if offset is not None and int(offset[2]) < 24 and int(offset[3]) < 60:
        minutes = 60 * int(offset[2]) + int(offset[3])
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def _offset(seconds: int, zone: tzinfo) -> int:
    """Return how many seconds local time is ahead of UTC."""
    moment = _EPOCH + timedelta(seconds=max(_FIRST, min(_LAST, seconds)))
    offset = moment.astimezone(zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def _seconds(time: int, zone: str | None) -> int | None:
    """Return a time as whole seconds since 1970 where it is seen; None if the zone does not exist."""
    seconds = int(time // SECOND)
    if zone is None:
        return seconds
    known = _zone(zone)
    return None if known is None else seconds + _offset(seconds, known)


def _seconds_of(times: pa.Array, zone: str | None) -> Any:
    """Return the same for a column, 0 for NULL."""
    per_second = NANOSECONDS_IN_UNIT["s"] // NANOSECONDS_IN_UNIT[times.type.unit]
    seconds = np.asarray(times.view(pa.int64()).fill_null(0)) // per_second
    known = None if zone is None else _zone(zone)
    if known is None or not len(seconds):
        return seconds
    # Zones change their offset once a day at most. So a day that begins and ends with the same offset has no other.
    days, of_row = np.unique(seconds // 86400, return_inverse=True)
    first = np.array([_offset(day * 86400, known) for day in days.tolist()])
    last = np.array([_offset(day * 86400 + 86399, known) for day in days.tolist()])
    offsets = first[of_row]
    for row in np.flatnonzero((first != last)[of_row]).tolist():
        offsets[row] = _offset(int(seconds[row]), known)
    return seconds + offsets


def _part(of_seconds: Callable[[Any], Any], data_type: pa.DataType) -> dict[str, Any]:
    """Return the meaning of a function that looks at the seconds since 1970, on values and on columns."""

    def of(time: int, zone: str | None = None) -> Any:
        seconds = _seconds(time, zone)
        return None if seconds is None else of_seconds(seconds)

    def arrow(times: Any, zone: Any = None) -> Any:
        is_possible = isinstance(times, pa.Array) and pa.types.is_timestamp(times.type)
        if not is_possible or isinstance(zone, pa.Array) or (zone is not None and _zone(zone) is None):
            return None
        found = of_seconds(_seconds_of(times, zone))
        return pa.array(found, mask=np.asarray(times.is_null())).cast(data_type)

    return {"of": of, "arrow": arrow}


def _wrong_zone(kinds: Sequence[Kind], number: int, value: Any) -> str | None:
    if number != 1 or not isinstance(value, str):
        return None
    if kinds[0] not in (Kind.TIMESTAMP, Kind.UNKNOWN, Kind.NULL):
        return f"a {kinds[0].value} is not in any zone: leave it out"
    if _zone(value) is not None:
        return None
    return did_you_mean(value, sorted(available_timezones())) or "write it like 'Europe/Berlin', 'UTC' or '+01:00'"


def _in_spark(of_micros: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return a function for Spark, which gets times as microseconds since 1970; it is not asked about zones."""
    return lambda f, micros, zone=None: of_micros(f, micros) if zone is None else None


def _days_in_spark(f: Any, micros: Any) -> Any:
    # The division leaves no remainder, and the result is too small for a double to round it.
    return ((micros - f.pmod(micros, f.lit(MICROS_PER_DAY))) / f.lit(MICROS_PER_DAY)).cast("long")


def _hour_in_spark(f: Any, micros: Any) -> Any:
    return f.floor(f.pmod(micros, f.lit(MICROS_PER_DAY)) / f.lit(3600 * 10**6)).cast("long")


def _minute_in_spark(f: Any, micros: Any) -> Any:
    return f.floor(f.pmod(micros, f.lit(3600 * 10**6)) / f.lit(60 * 10**6)).cast("long")


TIMES = (
    Function(
        "DATE",
        (TIME, ZONE),
        Kind.DATE,
        of=lambda time, zone=None: None if (seconds := _seconds(time, zone)) is None else seconds // 86400 * DAY,
        arrow=_part(lambda seconds: seconds // 86400 * 86400, pa.timestamp("s"))["arrow"],
        spark=_in_spark(lambda f, micros: _days_in_spark(f, micros) * f.lit(MICROS_PER_DAY)),
        optional=1,
        check=_wrong_zone,
    ),
    Function(
        "HOUR",
        (MOMENT, ZONE),
        Kind.INTEGER,
        **_part(lambda seconds: seconds // 3600 % 24, pa.int64()),
        spark=_in_spark(_hour_in_spark),
        optional=1,
        check=_wrong_zone,
    ),
    Function(
        "MINUTE",
        (MOMENT, ZONE),
        Kind.INTEGER,
        **_part(lambda seconds: seconds // 60 % 60, pa.int64()),
        spark=_in_spark(_minute_in_spark),
        optional=1,
        check=_wrong_zone,
    ),
    Function(
        "DAY_OF_WEEK",
        (TIME, ZONE),
        Kind.INTEGER,
        # The first of January 1970 was a Thursday.
        **_part(lambda seconds: (seconds // 86400 + 3) % 7 + 1, pa.int64()),
        spark=_in_spark(lambda f, micros: f.pmod(_days_in_spark(f, micros) + f.lit(3), f.lit(7)) + f.lit(1)),
        optional=1,
        check=_wrong_zone,
    ),
)
