"""Finds where a constant cuts the values of a column's type, so that they compare with a value of their own type.

For integers `x > 2.5` means `x >= 3`, because 3 is the least integer at or above 2.5. Times are nanoseconds since 1970.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from ceql.functions.order import order
from ceql.schema import NANOSECONDS_IN_UNIT, kind_of
from ceql.syntax.times import NANOSECONDS_PER_DAY

Number: TypeAlias = int | float | Decimal | Fraction


def in_type(operator: str, constant: Number, data_type: pa.DataType) -> tuple[str, Number] | bool:
    """Return a comparison with a constant as one with a value of the type, or its result for all values but NULL.

    >>> in_type(">", Decimal("2.5"), pa.int64()), in_type("<=", Decimal("0.1"), pa.float64())
    (('>=', 3), ('<', 0.1))
    >>> in_type("=", Decimal("2.5"), pa.int64()), in_type("<", 300, pa.int8())
    (False, True)
    """
    least = at_or_above(constant, data_type)
    if least is None:
        return operator in ("<", "<=", "!=")
    if order(least, constant) == 0:
        return operator, least
    if operator in ("=", "!="):
        return operator == "!="
    return ("<" if operator in ("<", "<=") else ">="), least


def at_or_above(constant: Number, data_type: pa.DataType) -> Number | None:
    """Return the least value of a type of numbers or times that is not below a constant; None if all are below.

    >>> at_or_above(Decimal("-0.5"), pa.int8()), at_or_above(1, pa.timestamp("us")), at_or_above(128, pa.int8())
    (0, 1000, None)
    >>> at_or_above(Decimal("1.25"), pa.decimal128(4, 1)), at_or_above(-(10**400), pa.float64())
    (Decimal('1.3'), -1.7976931348623157e+308)
    """
    if pa.types.is_floating(data_type):
        return _float_at_or_above(constant, data_type)
    if isinstance(constant, float) and not math.isfinite(constant):
        return _from_units(_range_of(data_type)[0], data_type) if constant == -math.inf else None
    return _in_range(math.ceil(Fraction(constant) * units_in_one(data_type)), data_type)


def above(constant: Number, data_type: pa.DataType) -> Number | None:
    """Return the least value of a type of numbers or times that is above a constant; None if there is none.

    >>> above(2, pa.int64()), above(Decimal("2.5"), pa.int64()), above(127, pa.int8())
    (3, 3, None)
    >>> above(math.inf, pa.float64())
    nan
    """
    least = at_or_above(constant, data_type)
    if least is None or order(least, constant) > 0:
        return least
    if not isinstance(least, float):
        return _in_range(int(Fraction(least) * units_in_one(data_type)) + 1, data_type)
    if math.isnan(least):
        return None
    return math.nan if least == math.inf else _next_float(least, data_type)


def units_in_one(data_type: pa.DataType) -> Fraction:
    """Return how many stored integer units of a type make 1, or one nanosecond for times and durations.

    >>> units_in_one(pa.decimal128(9, 2)), units_in_one(pa.timestamp("ms")), units_in_one(pa.int16())
    (Fraction(100, 1), Fraction(1, 1000000), Fraction(1, 1))
    """
    if pa.types.is_timestamp(data_type) or pa.types.is_duration(data_type):
        return Fraction(1, NANOSECONDS_IN_UNIT[data_type.unit])
    if pa.types.is_date(data_type):
        return Fraction(1, NANOSECONDS_PER_DAY if pa.types.is_date32(data_type) else 10**6)
    return Fraction(10) ** data_type.scale if pa.types.is_decimal(data_type) else Fraction(1)


def _range_of(data_type: pa.DataType) -> tuple[int, int]:
    """Return the least and the greatest stored integer of a type."""
    if pa.types.is_decimal(data_type):
        greatest = 10**data_type.precision - 1
        return -greatest, greatest
    if pa.types.is_unsigned_integer(data_type):
        return 0, 2**data_type.bit_width - 1
    return -(2 ** (data_type.bit_width - 1)), 2 ** (data_type.bit_width - 1) - 1


def _in_range(units: int, data_type: pa.DataType) -> int | Decimal | None:
    """Return the least value of a type with at least this many stored units."""
    least, greatest = _range_of(data_type)
    return None if units > greatest else _from_units(max(units, least), data_type)


def _from_units(units: int, data_type: pa.DataType) -> int | Decimal:
    """Return the value with this many stored units."""
    if not pa.types.is_decimal(data_type):
        return int(units / units_in_one(data_type)) if kind_of(data_type).is_in_nanoseconds else units
    # Arithmetic would round to the digits of Python's context.
    return Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -data_type.scale))


def _float_at_or_above(constant: Number, data_type: pa.DataType) -> float:
    number = data_type.to_pandas_dtype()
    try:
        with np.errstate(over="ignore"):
            nearest = float(number(float(constant)))
    except OverflowError:
        nearest = math.inf if constant > 0 else -math.inf
    return _next_float(nearest, data_type) if nearest < constant else nearest


def _next_float(value: float, data_type: pa.DataType) -> float:
    number = data_type.to_pandas_dtype()
    return float(np.nextafter(number(value), number(math.inf)))
