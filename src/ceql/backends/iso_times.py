"""Times in text, ISO 8601, as both engines read them from CSV and JSON.

A time is a date, then `T` or a blank, then the time of day. A date alone means its midnight. Minutes, seconds, a
fraction of up to nine digits and a zone are optional; `t` and `z` are allowed. `SPARK_PATTERN` is the same for Spark.
Times without a zone are in UTC, as they are in queries. Digits beyond microseconds are cut off, because Spark has none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ceql.engine.compiled import compiled

MOMENT = pa.timestamp("us", "UTC")

SPARK_PATTERN = "yyyy-MM-dd['T'][' '][HH[:mm[:ss[.SSSSSSSSS]]][XXX][XX][X]]"


NONE = np.int64(-(2**63))
"""The result for text that is not a number; less than all numbers."""
PLUS, MINUS, DOT, COLON = ord("+"), ord("-"), ord("."), ord(":")


class NotATime(ValueError):  # noqa: N818 - it is not raised to users
    """A text is not a time; the message is the number of the text."""


def as_moments(texts: pa.Array) -> pa.Array:
    """Return texts as instants, or raise `NotATime`.

    >>> as_moments(pa.array(["2024-01-31 10:00:00.5", "2024-01-31T10:00+02:00"])).cast(pa.string()).to_pylist()
    ['2024-01-31 10:00:00.500000Z', '2024-01-31 08:00:00.000000Z']
    """
    is_valid = pc.is_valid(texts).to_numpy(zero_copy_only=False)
    if not is_valid.any():
        return pa.nulls(len(texts), MOMENT)
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    moments = np.zeros(len(texts), np.int64)
    # PERF: each of Arrow's own casts reads one form of time, and zones make them slow. Reading 2 million rows of CSV
    # with times, on a busy machine, took 2.4 to 7.5 s with these casts, and takes 0.7 to 1.5 s without.
    wrong = _parse(np.frombuffer(data, np.uint8), ends, is_valid, moments)
    if wrong >= 0:
        raise NotATime(int(wrong))
    return pa.array(moments, mask=~is_valid).cast(MOMENT)


@compiled
def _parse(data: Any, ends: Any, is_valid: Any, moments: Any) -> Any:
    """Write the microseconds since 1970 of each text; return the number of the first text that is not a time, or -1."""
    for row in range(is_valid.shape[0]):
        if is_valid[row]:
            moments[row] = _moment(data, np.int64(ends[row]), np.int64(ends[row + 1]))
            if moments[row] == NONE:
                return row
    return -1


@compiled
def _moment(data: Any, at: Any, end: Any) -> Any:
    """Return the microseconds since 1970 of one text."""
    if end - at < 10 or data[at + 4] != MINUS or data[at + 7] != MINUS:
        return NONE
    year, month, day = _digits(data, at, 4), _digits(data, at + 5, 2), _digits(data, at + 8, 2)
    if year < 1 or not 1 <= month <= 12 or not 1 <= day <= _days_in(year, month):
        return NONE
    midnight = _days(year, month, day) * 86_400_000_000
    if end - at == 10:
        return midnight
    if data[at + 10] not in (ord("T"), ord("t"), ord(" ")):
        return NONE
    since_midnight, at = _clock(data, at + 11, end)
    ahead = _offset(data, at, end)
    return NONE if NONE in (since_midnight, ahead) else midnight + since_midnight - ahead


@compiled
def _clock(data: Any, at: Any, end: Any) -> Any:
    """Return the microseconds since midnight, and where the time of day ends: hh, hh:mm, hh:mm:ss, hh:mm:ss.f."""
    micros, limit, unit = np.int64(0), 24, 3_600_000_000
    for part in range(3):
        if part > 0 and not (at < end and data[at] == COLON):
            return micros, at
        at += part > 0
        number = _digits(data, at, 2) if end - at >= 2 else NONE
        if number < 0 or number >= limit:
            return NONE, at
        micros, at, limit, unit = micros + number * unit, at + 2, 60, unit // 60
    if at == end or data[at] != DOT:
        return micros, at
    unit, first = 100_000, at + 1
    at = first
    while at < end and 48 <= data[at] <= 57:
        micros += (np.int64(data[at]) - 48) * unit
        unit //= 10
        at += 1
    return (micros if 1 <= at - first <= 9 else NONE), at


@compiled
def _offset(data: Any, at: Any, end: Any) -> Any:
    """Return the microseconds by which a zone is ahead of UTC: Z, +hh, +hhmm or +hh:mm, or nothing."""
    length = end - at
    if length == 0 or (length == 1 and data[at] in (ord("Z"), ord("z"))):
        return np.int64(0)
    if data[at] not in (PLUS, MINUS) or length not in (3, 5, 6) or (length == 6 and data[at + 3] != COLON):
        return NONE
    hours, minutes = _digits(data, at + 1, 2), _digits(data, end - 2, 2) if length > 3 else np.int64(0)
    if hours < 0 or not 0 <= minutes < 60 or hours * 60 + minutes > 18 * 60:
        return NONE
    ahead = (hours * 60 + minutes) * 60_000_000
    return ahead if data[at] == PLUS else -ahead


@compiled
def _digits(data: Any, at: Any, count: Any) -> Any:
    """Return the number that some digits make."""
    number = np.int64(0)
    for place in range(at, at + count):
        if data[place] < 48 or data[place] > 57:
            return NONE
        number = number * 10 + (np.int64(data[place]) - 48)
    return number


@compiled
def _days_in(year: Any, month: Any) -> Any:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


@compiled
def _days(year: Any, month: Any, day: Any) -> Any:
    """Return the days since 1970-01-01 in the Gregorian calendar, even for dates before it was introduced."""
    # Years begin in March, so that a leap day is the last day of its year.
    of_march = year - 1 if month <= 2 else year
    months = (month + 9) % 12
    in_year = (153 * months + 2) // 5 + day - 1
    return of_march * 365 + of_march // 4 - of_march // 100 + of_march // 400 + in_year - 719468
