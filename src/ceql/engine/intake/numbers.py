"""Numbers and times as Arrow stores them, and the constants of predicates in the same units."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ceql.engine.intake.columns import numbers_in
from ceql.schema import kind_of
from ceql.syntax import plan
from ceql.syntax.cuts import above, at_or_above, units_in_one

IntArray = np.ndarray[Any, np.dtype[Any]]


ALL_VALID = np.empty(0, np.bool_)

_NUMBERS: dict[int, Any] = {
    data_type.id: number
    for data_type, number in [
        (pa.int64(), np.int64),
        (pa.timestamp("us"), np.int64),
        (pa.duration("us"), np.int64),
        (pa.date64(), np.int64),
        (pa.float64(), np.float64),
    ]
}
"""Types whose stored numbers have 64 bits already, by their ids in Arrow."""


def stored_scale(data_type: pa.DataType) -> Fraction | None:
    """Return how many stored units of a type make 1 (or one nanosecond); None if values do not fit 64 bits."""
    is_small = pa.types.is_decimal128(data_type) and data_type.precision <= 18 and data_type.scale >= 0
    is_plain = pa.types.is_integer(data_type) and data_type != pa.uint64()
    is_time = kind_of(data_type).is_in_nanoseconds
    return units_in_one(data_type) if is_small or is_plain or is_time or pa.types.is_floating(data_type) else None


def in_units(predicate: plan.Expression, scale: Fraction) -> plan.Expression:
    """Return a predicate with its constants in the units of the stored integers."""

    def scaled(part: plan.Expression) -> plan.Constant | None:
        if not isinstance(part, plan.Constant):
            return None
        value = _exact(part.value)
        return part if value is None else plan.Constant(value * scale, part.kind)

    return plan.replaced(predicate, scaled)


def _exact(value: Any) -> Fraction | None:
    """Return a constant as an exact number; None if it is not a finite number."""
    if isinstance(value, bool) or value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return Fraction(value) if isinstance(value, int | float | Decimal | Fraction) else None


def is_piecewise(predicate: plan.Expression) -> bool:
    """Whether a predicate's value changes only at its constants, because there is no arithmetic on the column."""
    match predicate:
        case plan.Compare():
            return all(isinstance(part, plan.Column | plan.Constant) for part in (predicate.left, predicate.right))
        case plan.InSet() | plan.IsNull():
            return isinstance(predicate.value, plan.Column)
        case plan.Not():
            return is_piecewise(predicate.predicate)
        case plan.All() | plan.Any():
            return all(is_piecewise(part) for part in predicate.parts)
    return False


def number_constants(predicate: plan.Expression) -> Iterable[Any]:
    """Yield the constants of a piecewise predicate, except NULL."""
    return (part.value for part in predicate.walk() if isinstance(part, plan.Constant) and part.value is not None)


def stored_cuts(constants: Iterable[Any], *, is_float: bool) -> list[Any]:
    """Return, in order, the stored numbers at which a comparison with a constant may change.

    NaN is not among them: it is greater than all other numbers, and has its own class.
    """
    data_type = pa.float64() if is_float else pa.int64()
    found = {find(constant, data_type) for constant in constants for find in (at_or_above, above)}
    return sorted(cut for cut in found if cut is not None and not math.isnan(cut))


def stored_numbers(array: pa.Array) -> tuple[IntArray, IntArray]:
    """Return an array's stored numbers as int64 or float64, and which are valid (empty if all are)."""
    data_type = array.type
    is_valid = ALL_VALID
    if array.null_count:
        is_valid = pc.is_valid(array).to_numpy(zero_copy_only=False)
    number = _NUMBERS.get(data_type.id)
    if number is not None:
        return numbers_in(array.buffers()[1], number)[array.offset : array.offset + len(array)], is_valid
    if pa.types.is_decimal128(data_type):
        words = numbers_in(array.buffers()[1], np.int64)
        return words[2 * array.offset : 2 * (array.offset + len(array)) : 2], is_valid
    if pa.types.is_date32(data_type):
        array = array.view(pa.int32())
    raw = numbers_in(array.buffers()[1], array.type.to_pandas_dtype())
    values = raw[array.offset : array.offset + len(array)]
    return values.astype(np.float64 if pa.types.is_floating(array.type) else np.int64), is_valid
