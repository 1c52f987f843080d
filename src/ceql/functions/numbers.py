"""Functions on numbers. Integers give integers; all other numbers compute as doubles."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ceql.functions.entry import AMOUNT, INTEGER, NUMBER, Function

EXACT = Context(prec=2000)
"""Digits enough for every double, with as many places as may be asked for."""

MAX_PLACES = 400
"""Doubles have no digits beyond these places, before or after the point."""

FEW_PLACES = 22
"""Up to this power, powers of ten are exact as doubles."""

WHOLE = 2.0**52
"""From here on, doubles are whole numbers."""


def _floor(number: Any) -> Any:
    return number if isinstance(number, int) or not math.isfinite(number) else float(math.floor(number))


def _ceil(number: Any) -> Any:
    return number if isinstance(number, int) or not math.isfinite(number) else float(math.ceil(number))


def _round(number: Any, places: int = 0) -> Any:
    """Return a number rounded half away from zero. A double is rounded as the decimal number that it is written as."""
    places = max(-MAX_PLACES, min(MAX_PLACES, places))
    if isinstance(number, int):
        if places >= 0:
            return number
        unit = int(10**-places)
        units, rest = divmod(abs(number), unit)
        return (units + (2 * rest >= unit)) * unit * (-1 if number < 0 else 1)
    if not math.isfinite(number):
        return number
    return float(Decimal(repr(number)).quantize(Decimal((0, (1,), -places)), ROUND_HALF_UP, EXACT))


def _rounded(numbers: Any, places: Any = 0) -> Any:
    """Round a column. Where the last digit is in doubt because of the doubles in between, a number is asked alone."""
    if not isinstance(numbers, pa.Array) or type(places) is not int or abs(places) > FEW_PLACES:
        return None
    if pa.types.is_integer(numbers.type):
        return numbers if places >= 0 else None
    values = np.asarray(numbers.fill_null(0.0))
    power = 10.0 ** abs(places)
    with np.errstate(all="ignore"):
        scaled = np.abs(values) * power if places >= 0 else np.abs(values) / power
        below = np.floor(scaled)
        rest = scaled - below
        whole = below + (rest >= 0.5)
        found = np.copysign(whole / power if places >= 0 else whole * power, values)
    if places == 0:
        found = np.where(np.abs(values) < WHOLE, found, values)
    else:
        is_sure = (scaled < 2.0**40) & (np.abs(rest - 0.5) > 1e-3)
        doubtful = np.flatnonzero(~is_sure)
        found[doubtful] = [_round(number, places) for number in values[doubtful].tolist()]
    return pa.array(found, mask=np.asarray(numbers.is_null()))


def _absolute(numbers: Any) -> Any:
    if pa.types.is_duration(numbers.type):
        return _absolute(numbers.view(pa.int64())).view(numbers.type)
    if pa.types.is_floating(numbers.type):
        return pc.abs(numbers)
    # The least integer has no opposite in 64 bits.
    least = pa.scalar(np.iinfo(np.int64).min, pa.int64())
    return pc.abs(pc.if_else(pc.equal(numbers, least), pa.scalar(None, pa.int64()), numbers))


def _whole_in_spark(name: str) -> Any:
    """Return a function of Spark that gives a whole number; for doubles it would give a long, which is too small."""

    def ask(f: Any, number: Any, places: Any = 0) -> Any:
        if type(places) is not int or places:
            return None
        is_small = f.abs(number.cast("double")) < f.lit(WHOLE)
        return f.when(is_small, getattr(f, name)(number)).otherwise(number)

    return ask


NUMBERS = (
    Function(
        "ABS",
        (AMOUNT,),
        None,
        of=abs,
        arrow=_absolute,
        spark=lambda f, number: f.when(number < f.lit(0), f.try_subtract(f.lit(0), number)).otherwise(number),
    ),
    Function(
        "ROUND",
        (NUMBER, INTEGER),
        None,
        of=_round,
        arrow=_rounded,
        spark=_whole_in_spark("round"),
        optional=1,
    ),
    Function(
        "FLOOR",
        (NUMBER,),
        None,
        of=_floor,
        arrow=lambda numbers: pc.floor(numbers) if pa.types.is_floating(numbers.type) else numbers,
        spark=_whole_in_spark("floor"),
    ),
    Function(
        "CEIL",
        (NUMBER,),
        None,
        of=_ceil,
        arrow=lambda numbers: pc.ceil(numbers) if pa.types.is_floating(numbers.type) else numbers,
        spark=_whole_in_spark("ceil"),
    ),
)
