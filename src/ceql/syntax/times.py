"""Times as exact numbers: nanoseconds since 1970, as integers or fractions.

Python's own times end at microseconds, so they cannot hold constants.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

from ceql.schema import Kind

NANOSECONDS_PER_DAY = 24 * 3600 * 10**9

UNITS = {
    "nanosecond": 1,
    "microsecond": 10**3,
    "millisecond": 10**6,
    "second": 10**9,
    "minute": 60 * 10**9,
    "hour": 3600 * 10**9,
    "day": 24 * 3600 * 10**9,
    "week": 7 * 24 * 3600 * 10**9,
}
"""Nanoseconds in each unit of time."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BEYOND_MICROSECONDS = re.compile(r"\d{4}-?(?:\d\d-?\d\d|W\d\d(?:-?\d)?).[\d:]*[.,]\d{6}(\d+)")


def nanoseconds(time: date | timedelta) -> int:
    """Return a date or a moment as nanoseconds since 1970, or a duration; a moment without a zone is in UTC.

    >>> nanoseconds(date(1970, 1, 2)), nanoseconds(datetime(1969, 12, 31, 23, 59, 59, 999999))
    (86400000000000, -1000)
    """
    if isinstance(time, timedelta):
        elapsed = time
    elif not isinstance(time, datetime):
        return (time - _EPOCH.date()).days * NANOSECONDS_PER_DAY
    else:
        elapsed = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH
    return ((elapsed.days * 86400 + elapsed.seconds) * 10**6 + elapsed.microseconds) * 1000


def read_moment(text: str) -> tuple[int | Fraction, bool]:
    """Return the exact moment of an ISO text, and whether it names a zone; `ValueError` if it is not a moment.

    >>> read_moment("1970-01-01 00:00:01.00000000025")
    (Fraction(4000000001, 4), False)
    """
    moment = datetime.fromisoformat(text)
    found: int | Fraction = nanoseconds(moment)
    finer = _BEYOND_MICROSECONDS.match(text)
    if finer is not None:
        digits = finer[1].rstrip("0")
        found += Fraction(int(digits or "0") * 1000, 10 ** len(digits))
    if not nanoseconds(date.min) <= found < nanoseconds(date.max) + NANOSECONDS_PER_DAY:
        raise ValueError("beyond the years from 1 to 9999")
    return int(found) if found.denominator == 1 else found, moment.tzinfo is not None


def write_duration(time: int) -> str:
    """Return a duration as a query would write it.

    >>> write_duration(5_400_000_000_000), write_duration(-1), write_duration(0)
    ('1 hour 30 minutes', '-1 nanosecond', '0 seconds')
    """
    parts, rest = [], abs(time)
    for unit, size in reversed(UNITS.items()):
        amount, rest = divmod(rest, size)
        parts += [f"{amount} {unit}{'s' if amount > 1 else ''}"] if amount else []
    return ("-" if time < 0 else "") + " ".join(parts) if parts else "0 seconds"


def write_time(time: int | Fraction, kind: Kind) -> str:
    """Return a time of a kind in its ISO form.

    >>> write_time(1_000_000_001, Kind.TIMESTAMP), write_time(-1, Kind.LOCAL_TIMESTAMP), write_time(0, Kind.DATE)
    ('1970-01-01 00:00:01.000000001+00:00', '1969-12-31 23:59:59.999999999', '1970-01-01')
    """
    seconds, rest = divmod(Fraction(time), 10**9)
    moment = _EPOCH + timedelta(seconds=int(seconds))
    if kind is Kind.DATE:
        return str(moment.date())
    digits = ""
    while rest:
        digit, rest = divmod(rest * 10, 10**9)
        digits += str(int(digit))
    # Microseconds are written in full, as Python writes them.
    fraction = "." + digits.ljust(6, "0") if digits else ""
    zone = "+00:00" if kind is Kind.TIMESTAMP else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}".rjust(19, "0") + fraction + zone
