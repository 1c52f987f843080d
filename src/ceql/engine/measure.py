"""What a window measures, and the check that it never runs backwards."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ceql.engine.fold import first_decrease
from ceql.engine.numbers import stored_numbers, stored_scale
from ceql.errors import DataError
from ceql.schema import kind_of
from ceql.syntax import plan

IntArray = np.ndarray[Any, np.dtype[Any]]


class Measure:
    """What a window measures, as 64-bit integers or doubles that never decrease."""

    def __init__(self, window: plan.EventsWindow | plan.AttributeWindow | None, schema: pa.Schema) -> None:
        self.attribute: str | None = None
        self.is_float = False
        self.size: Any = None
        self.last: Any = None
        self._type = pa.int64()
        match window:
            case plan.EventsWindow(count):
                self.size = count
            case plan.AttributeWindow(attribute, _, size):
                self._measure(attribute, schema)
                self.size = (
                    float(size) if self.is_float else min(math.floor(Fraction(size) * _units(self._type)), 2**63 - 1)
                )

    def _measure(self, attribute: str, schema: pa.Schema) -> None:
        self.attribute = attribute
        data_type = schema.field(attribute).type
        self._type = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
        if pa.types.is_null(self._type):
            self._type = pa.int64()
        self.is_float = pa.types.is_floating(self._type)

    @classmethod
    def ordering(cls, attribute: str, schema: pa.Schema) -> Measure | None:
        """Return what checks that a column never decreases; None where its type has no order to check."""
        kind = kind_of(schema.field(attribute).type)
        if not (kind.is_numeric or kind.is_time):
            return None
        measure = cls(None, schema)
        measure._measure(attribute, schema)
        return measure

    def of(self, part: pa.RecordBatch, first_row: int) -> tuple[IntArray, IntArray]:
        """Return each row's measure, and which rows have one (empty if all do)."""
        if self.attribute is None:
            self.last = np.int64(first_row + len(part) - 1)
            return np.arange(first_row, first_row + len(part), dtype=np.int64), np.empty(0, np.bool_)
        column = part.column(self.attribute)
        values, is_valid = self._numbers(column)
        if self.is_float and np.isnan(values).any():
            is_valid = ~np.isnan(values) & (is_valid if len(is_valid) else True)
        present = values[is_valid] if len(is_valid) else values
        self._check_order(present, is_valid, first_row)
        if len(present):
            self.last = present[-1]
        return values, is_valid

    def stored(self, value: Any) -> Any:
        """Return a value of the attribute as the window measures it."""
        return self._numbers(pa.array([value], self._type))[0][0]

    def _numbers(self, column: pa.Array) -> tuple[IntArray, IntArray]:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_null(column.type):
            column = column.cast(self._type)
        if not pa.types.is_decimal(column.type):
            values, is_valid = stored_numbers(column)
            # Unsigned integers are shifted, which leaves order and distances as they are.
            return (values ^ np.int64(-(2**63)) if self._type == pa.uint64() else values), is_valid
        width = column.type.bit_width // 64
        words = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, width)[column.offset :][: len(column)]
        is_valid = pc.is_valid(column).to_numpy(zero_copy_only=False) if column.null_count else np.empty(0, np.bool_)
        is_large = (words[:, 1:] != words[:, :1] >> 63).any(axis=1) & (is_valid if len(is_valid) else True)
        if is_large.any():
            value = column[int(np.flatnonzero(is_large)[0])]
            raise DataError(f"a window cannot measure '{self.attribute}' = {value}: it has more than 18 digits")
        return np.ascontiguousarray(words[:, 0]), is_valid

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
            f"time runs backwards at row {first_row + int(at)}: "
            f"'{self.attribute}' is {self._shown(later)} after {self._shown(earlier)}",
            "sort the events, or ask for it: sort=True, --sort on the command line",
        )

    def _shown(self, value: Any) -> str:
        """Return a measure as the column has it."""
        if pa.types.is_timestamp(self._type) or pa.types.is_date(self._type):
            stored = pa.int32() if pa.types.is_date32(self._type) else pa.int64()
            return str(pa.array([int(value)], stored).view(self._type).cast(pa.string())[0])
        if pa.types.is_decimal(self._type):
            return str(Decimal(int(value)).scaleb(-self._type.scale))
        return str(int(value) + 2**63 if self._type == pa.uint64() else value)


def _units(data_type: pa.DataType) -> Any:
    """Return how many stored units make one unit of a window's size (a nanosecond for times)."""
    if pa.types.is_decimal(data_type):
        return Fraction(10) ** data_type.scale
    scale = Fraction(1) if data_type == pa.uint64() else stored_scale(data_type)
    if scale is None:
        raise DataError(f"a window cannot measure a column of type {data_type}")
    return scale
