"""What a window measures, and the check that it never runs backwards."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from ceql.engine.fold import first_decrease
from ceql.engine.symbols import stored_numbers, stored_scale
from ceql.errors import DataError
from ceql.syntax import plan

IntArray = np.ndarray[Any, np.dtype[Any]]


class Measure:
    """What a window measures, as 64-bit integers or doubles that never decrease."""

    def __init__(self, query: plan.Plan, schema: pa.Schema) -> None:
        self.attribute: str | None = None
        self.is_float = False
        self.size: Any = None
        self.last: Any = None
        match query.window:
            case plan.EventsWindow(count):
                self.size = count
            case plan.AttributeWindow(attribute, _, size):
                self.attribute = attribute
                data_type = schema.field(attribute).type
                self.is_float = pa.types.is_floating(data_type)
                self.size = (
                    float(size) if self.is_float else min(math.floor(Fraction(size) * _units(data_type)), 2**63 - 1)
                )

    def of(self, part: pa.RecordBatch, first_row: int) -> tuple[IntArray, IntArray]:
        """Return each row's measure, and which rows have one (empty if all do)."""
        if self.attribute is None:
            self.last = np.int64(first_row + len(part) - 1)
            return np.arange(first_row, first_row + len(part), dtype=np.int64), np.empty(0, np.bool_)
        column = part.column(self.attribute)
        values, is_valid = stored_numbers(column)
        if self.is_float and np.isnan(values).any():
            is_valid = ~np.isnan(values) & (is_valid if len(is_valid) else True)
        present = values[is_valid] if len(is_valid) else values
        self._check_order(present, is_valid, first_row)
        if len(present):
            self.last = present[-1]
        return values, is_valid

    def _check_order(self, present: IntArray, is_valid: IntArray, first_row: int) -> None:
        if not len(present):
            return
        last = present[0] if self.last is None else self.last
        at = int(first_decrease(present, last))
        if at >= 0:
            row = np.flatnonzero(is_valid)[at] if len(is_valid) else at
            self._refuse(row, last if at == 0 else present[at - 1], present[at], first_row)

    def _refuse(self, at: Any, earlier: Any, later: Any, first_row: int) -> None:
        raise DataError(
            f"time runs backwards at row {first_row + int(at)}: '{self.attribute}' is {later} after {earlier}",
            "give sort=True, or sort the events",
        )


def _units(data_type: pa.DataType) -> Any:
    """Return how many stored units make one unit of a window's size (a nanosecond for times)."""
    scale = stored_scale(data_type)
    if scale is None:
        raise DataError(f"a window cannot measure a column of type {data_type}")
    return scale
