"""The deadlines of matches: the last moment at which an event can break the silence after them."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from ceql.syntax.cuts import units_in_one

MILLISECONDS_PER_DAY = 24 * 60 * 60 * 1000


def later(values: pa.Array, size: int | Decimal) -> pa.Array:
    """Return values of an attribute, each later by a size as windows measure it.

    What lies between two values of the type is the earlier one, what lies beyond its greatest value is that value.

    >>> later(pa.array([1, 120], pa.int8()), Decimal("10.5")).to_pylist()
    [11, 127]
    """
    data_type = values.type
    if pa.types.is_dictionary(data_type):
        return later(values.dictionary_decode(), size)
    if pa.types.is_decimal(data_type):
        return _later_decimals(values, size)
    if pa.types.is_floating(data_type):
        return _later_floats(values, float(size))
    stored = _stored(data_type)
    numbers = np.asarray(values.view(stored) if stored != data_type else values)
    units = math.floor(Fraction(size) * units_in_one(data_type))
    greatest = np.iinfo(numbers.dtype).max
    length = numbers.dtype.type(min(units, greatest))
    moved = np.where(numbers > greatest - length, numbers.dtype.type(greatest), numbers + length)
    if pa.types.is_date64(data_type):
        # Stored in milliseconds, but only whole days are dates.
        moved -= moved % MILLISECONDS_PER_DAY
    return pa.array(moved, stored).view(data_type)


def _later_floats(values: pa.Array, size: float) -> pa.Array:
    number = values.type.to_pandas_dtype()
    exact = np.asarray(values, np.float64) + size
    with np.errstate(over="ignore"):
        moved = exact.astype(number)
    return pa.array(np.where(moved > exact, np.nextafter(moved, number(-np.inf)), moved), values.type)


def _later_decimals(values: pa.Array, size: int | Decimal) -> pa.Array:
    data_type: Any = values.type
    greatest = Decimal(10**data_type.precision - 1).scaleb(-data_type.scale)
    units = math.floor(Fraction(size) * 10**data_type.scale)
    length = Decimal(units).scaleb(-data_type.scale)
    return pa.array([min(value + length, greatest) for value in values.to_pylist()], data_type)


def _stored(data_type: pa.DataType) -> pa.DataType:
    """Return the integers in which a type is stored."""
    if pa.types.is_date32(data_type):
        return pa.int32()
    is_time = pa.types.is_timestamp(data_type) or pa.types.is_date64(data_type)
    return pa.int64() if is_time else data_type
