"""The numbers that a window measures, and the check that they never decrease."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ceql.engine.intake.columns import numbers_in
from ceql.engine.intake.fold import first_decrease
from ceql.engine.intake.numbers import stored_numbers
from ceql.errors import DataError
from ceql.schema import kind_of
from ceql.syntax import plan
from ceql.syntax.cuts import units_in_one

IntArray = np.ndarray[Any, np.dtype[Any]]


FLOAT_SCALE = 0.25
FLOAT_SIZE = 1e308
"""Doubles are divided by four, which loses nothing, and infinity becomes the greatest double. So infinity has
distance 0 from itself, and is farther than any window from all other numbers: their distances stay below FLOAT_SIZE."""


SORT_HINT = "sort the events, or pass sort=True (--sort on the command line)"
SORTED_HINT = (
    "{sorting} within one batch only, and this batch begins before the end of the previous batch: "
    "feed the older events first, or all in one batch"
)
TWO_ORDERS_HINT = (
    "'{measured}', which the query measures, orders the events: leave time_column out if '{time}' orders them "
    "otherwise, else sort them by both, as sort=True does"
)
"""Hints for time that runs backwards: the second if each batch is sorted already, the third for a time column beside a
window attribute that is known not to run backwards."""


class Measure:
    """What a window measures, as 64-bit integers or doubles that never decrease.

    `sorting` names what sorts each batch before it comes here, if anything does; hints mention it.
    """

    def __init__(
        self,
        window: plan.EventsWindow | plan.AttributeWindow | None,
        schema: pa.Schema,
        sorting: str | None = None,
    ) -> None:
        self._sort_hint = SORT_HINT if sorting is None else SORTED_HINT.format(sorting=sorting)
        self.attribute: str | None = None
        self.is_float = False
        self.size: Any = None
        self.last: Any = None
        self._type = pa.int64()
        self._index, self._is_plain = -1, False
        self.first: int | None = None
        """The first measure of all; only for windows whose size does not fit 64 bits."""
        self._wide: int | None = None
        match window:
            case plan.EventsWindow(count):
                self.size = count
            case plan.AttributeWindow(attribute, _, size):
                self._measure(attribute, schema)
                self._set_size(size)

    def _measure(self, attribute: str, schema: pa.Schema) -> None:
        self.attribute = attribute
        self._index = schema.get_field_index(attribute)
        data_type = schema.field(attribute).type
        self._type = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
        if pa.types.is_null(self._type):
            self._type = pa.int64()
        self.is_float = pa.types.is_floating(self._type)
        self._is_plain = pa.types.is_int64(data_type) or pa.types.is_timestamp(data_type)

    def _set_size(self, size: int | Decimal) -> None:
        units = self._units_of(size)
        if self.is_float or units < 2**63:
            self.size = units
        else:
            # The kernel cannot hold this size. All events are inside the window: `_check_span` refuses all others.
            self._wide = units

    def _units_of(self, size: int | Decimal) -> Any:
        if self.is_float:
            return min(float(size) * FLOAT_SCALE, FLOAT_SIZE)
        return math.floor(Fraction(size) * _units(self._type))

    def length(self, silence: plan.AttributeWindow | None) -> Any:
        """Return how long a silence is, in stored units; -1 if there is none."""
        if silence is None:
            return self.number(-1)
        units = self._units_of(silence.size)
        return self.number(units if self.is_float else min(units, 2**63 - 1))

    @property
    def number(self) -> Any:
        """The type of the numbers: 64-bit integers or doubles."""
        return np.float64 if self.is_float else np.int64

    @classmethod
    def timing(cls, silence: plan.AttributeWindow, schema: pa.Schema, sorting: str | None = None) -> Measure:
        """Return the measure of a silence, where it is not that of the window."""
        measure = cls(None, schema, sorting)
        measure._measure(silence.attribute, schema)
        return measure

    @classmethod
    def ordering(
        cls, attribute: str, schema: pa.Schema, sorting: str | None = None, *, measured: str | None = None
    ) -> Measure | None:
        """Return a measure that checks that a column never decreases; None if its type has no order to check.

        `measured` is the attribute of the window, if there is one: it comes first in the order of events.
        """
        kind = kind_of(schema.field(attribute).type)
        if not (kind.is_numeric or kind.is_time):
            return None
        measure = cls(None, schema, sorting)
        measure._measure(attribute, schema)
        if measured is not None:
            measure._sort_hint = TWO_ORDERS_HINT.format(measured=measured, time=attribute)
        return measure

    def of(
        self, part: pa.RecordBatch, first_row: int, among: IntArray | None = None
    ) -> tuple[IntArray | None, IntArray]:
        """Return each row's measure, and which rows have one (empty if all do); `among` marks the rows that count.

        Without an attribute, the measure of a row is its position, and None stands for all of them.
        """
        if self.attribute is None:
            self.last = np.int64(first_row + len(part) - 1)
            return None, np.empty(0, np.bool_)
        column = part.column(self._index)
        values, is_valid = self._numbers(column)
        if self.is_float and np.isnan(values).any():
            is_valid = ~np.isnan(values) & (is_valid if len(is_valid) else True)
        if among is not None and len(among):
            is_valid = is_valid & among if len(is_valid) else among
        present = values[is_valid] if len(is_valid) else values
        self._check_order(present, is_valid, first_row)
        if self._wide is not None and len(present):
            self._check_span(present, self._wide)
        if len(present):
            self.last = present[-1]
        if self._wide is not None:
            return np.arange(first_row, first_row + len(part), dtype=np.int64), is_valid
        return values, is_valid

    @property
    def counts_rows(self) -> bool:
        """Whether `of` gives row numbers, because the size of the window does not fit 64 bits."""
        return self._wide is not None

    def now(self, n_events: int) -> Any:
        """Return the last measure that `of` gave after `n_events` events; None if there was none."""
        return np.int64(n_events - 1) if self.counts_rows and self.last is not None else self.last

    def _check_span(self, present: IntArray, size: int) -> None:
        if self.first is None or self.last is None:
            self.first = int(present[0] if self.last is None else self.last)
        if int(present[-1]) - self.first > size:
            shown = self._shown(self.first), self._shown(present[-1])
            raise DataError(
                f"WITHIN is too large to measure '{self.attribute}' from {shown[0]} to {shown[1]}",
                "leave it out for no limit",
            )

    def check_later(self, value: Any) -> None:
        """Refuse a value of the attribute that lies before the last one."""
        if self.last is not None and self.stored(value) < self.last:
            message = f"time runs backwards: '{self.attribute}' is {self._shown(self.stored(value))} after "
            raise DataError(f"{message}{self._shown(self.last)}")

    def stored(self, value: Any) -> Any:
        """Return a value of the attribute as the window measures it; `DataError` if it is no such value."""
        try:
            column = pa.array([value], self._type)
        except (pa.ArrowException, OverflowError):
            column = None
        if column is None or column.null_count or (self.is_float and np.isnan(column[0].as_py())):
            raise DataError(f"'{self.attribute}' cannot be {value!r}: it is of type {kind_of(self._type).value}")
        return self._numbers(column)[0][0]

    def _numbers(self, column: pa.Array) -> tuple[IntArray, IntArray]:
        if self._is_plain:
            return stored_numbers(column)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_null(column.type):
            column = column.cast(self._type)
        if not pa.types.is_decimal(column.type):
            values, is_valid = stored_numbers(column)
            if self.is_float:
                greatest = np.finfo(np.float64).max
                return np.clip(values * FLOAT_SCALE, -greatest, greatest), is_valid
            # Unsigned integers are shifted, which leaves order and distances as they are.
            return (values ^ np.int64(-(2**63)) if self._type == pa.uint64() else values), is_valid
        width = column.type.bit_width // 64
        words = numbers_in(column.buffers()[1], np.int64)
        words = words[width * column.offset : width * (column.offset + len(column))].reshape(-1, width)
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
            self._sort_hint,
        )

    def _shown(self, value: Any) -> str:
        """Return a measure as the column has it."""
        if pa.types.is_timestamp(self._type) or pa.types.is_date(self._type):
            stored = pa.int32() if pa.types.is_date32(self._type) else pa.int64()
            return str(pa.array([int(value)], stored).view(self._type).cast(pa.string())[0])
        if pa.types.is_decimal(self._type):
            return str(Decimal(int(value)).scaleb(-self._type.scale))
        if self.is_float:
            return str(float(value) / FLOAT_SCALE)
        return str(int(value) + 2**63 if self._type == pa.uint64() else value)


def _units(data_type: pa.DataType) -> Fraction:
    """Return how many stored units make one unit of a window's size (a nanosecond for times)."""
    kind = kind_of(data_type)
    if not (kind.is_numeric or kind.is_time):
        raise DataError(f"a window cannot measure a column of type {data_type}")
    return units_in_one(data_type)
