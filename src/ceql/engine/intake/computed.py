"""Columns that are computed from others before predicates look at them: values of functions, and choices by CASE.

So are sums of times and durations, and two times that are compared with one another.

Every such part of a predicate becomes a column of its own, so that the classes of its values are made like those of any
other column. A part that reads one column of texts that repeat is computed once for each different text. What Arrow
cannot compute is computed value by value, once for each combination of values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ceql.automaton.predicates import Event, evaluate
from ceql.engine.intake import vectors
from ceql.engine.intake.classes import Columns, Stage, columns_of, vector_of
from ceql.engine.intake.columns import plain
from ceql.engine.intake.dictionaries import combined, dictionary_codes, encoded
from ceql.engine.intake.free_text import is_free_text
from ceql.engine.intake.numbers import stored_numbers
from ceql.functions import FUNCTIONS
from ceql.schema import NANOSECONDS_IN_UNIT, Kind, python_values
from ceql.syntax import plan

IntArray = np.ndarray[Any, np.dtype[Any]]

_TYPES = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INTEGER: pa.int64(),
    Kind.FLOAT: pa.float64(),
    Kind.STRING: pa.large_string(),
    Kind.TIMESTAMP: pa.timestamp("ns"),
    Kind.LOCAL_TIMESTAMP: pa.timestamp("ns"),
    Kind.DATE: pa.timestamp("ns"),
    Kind.DURATION: pa.duration("ns"),
    Kind.NULL: pa.bool_(),
}
"""The type of computed columns of each kind; times and durations may be in a coarser unit."""

_ANY_NANOSECONDS = pa.decimal128(38, 0)
"""The type of times and durations in nanoseconds that do not all fit 64 bits."""

_UNITS = ("s", "ms", "us", "ns")

_COMPUTED = plan.Call | plan.Case | plan.TimeSum | plan.Field | plan.AnyItem | plan.InList


class Computer:
    """Computes the parts of some predicates that are not columns. What it keeps is a memo."""

    def __init__(self, depth: int = 1) -> None:
        """Begin without any columns; one that computes for another has a greater depth, and gives other names."""
        self._depth = depth
        self._prefix = "\0" * depth
        self._columns: dict[plan.Expression, plan.Column] = {}
        self._truths: dict[plan.Expression, _Truth] = {}
        self._known: dict[plan.Expression, tuple[pa.Array, pa.Array]] = {}

    def simplified(self, predicate: plan.Expression) -> plan.Expression:
        """Return a predicate with columns in place of its computed parts; `with_computed` adds these columns."""
        return plan.replaced(predicate, self._column)

    def with_computed(self, columns: Columns, n_rows: int) -> Columns:
        """Return the columns of a batch with all computed ones."""
        if not self._columns:
            return columns
        arrays = dict(columns.arrays)
        for part, column in self._columns.items():
            arrays[column.name] = self._array(part, arrays, n_rows)
        return replace(columns, arrays=arrays)

    def _column(self, part: plan.Expression) -> plan.Expression | None:
        if isinstance(part, plan.Compare) and _compares_times(part):
            elapsed = plan.TimeSum((part.left, part.right), ("-",), Kind.DURATION)
            return replace(part, left=self._named(elapsed), right=plan.Constant(0, Kind.DURATION))
        is_computed = isinstance(part, _COMPUTED) or (isinstance(part, plan.IsNull) and not _is_plain(part.value))
        if not is_computed or not columns_of(part):
            return None
        # Parts of structs come first, so that what is computed from one of them is computed from one column.
        return self._named(part if isinstance(part, plan.Field) else plan.replaced(part, self._field))

    def _field(self, part: plan.Expression) -> plan.Column | None:
        return self._named(part) if isinstance(part, plan.Field) else None

    def _named(self, part: plan.Expression) -> plan.Column:
        name = f"{self._prefix}{len(self._columns)}"
        return self._columns.setdefault(part, plan.Column(name, plan.kind_of_value(part)))

    def _array(self, part: plan.Expression, arrays: Mapping[str, pa.Array], n_rows: int) -> pa.Array:
        """Return a part's values; each different text is looked at once, where texts repeat."""
        if isinstance(part, plan.Column):
            return arrays[part.name]
        names = columns_of(part)
        array = arrays[next(iter(names))] if len(names) == 1 else None
        if array is None or not _repeats(array):
            return self._computed(part, arrays, n_rows)
        array = encoded(array)
        known = self._known.get(part)
        if known is None or not known[0].equals(array.dictionary):
            # NULL comes after the last value, as it does among the codes.
            values = pa.concat_arrays([array.dictionary, pa.nulls(1, array.dictionary.type)])
            (name,) = names
            known = self._known[part] = array.dictionary, self._computed(part, {name: values}, len(values))
        return _spread(known[1], dictionary_codes(array))

    def _computed(self, part: plan.Expression, arrays: Mapping[str, pa.Array], n_rows: int) -> pa.Array:
        match part:
            case plan.Call():
                return self._call(part, arrays, n_rows)
            case plan.Case():
                return self._case(part, arrays, n_rows)
            case plan.TimeSum():
                return self._time_sum(part, arrays, n_rows)
            case plan.Field():
                return pc.struct_field(self._array(part.value, arrays, n_rows), [part.name])
            case plan.IsNull() if not _is_plain(part.value):
                return self._array(part.value, arrays, n_rows).is_null()
            case plan.InList():
                return self._in_list(part, self._array(part.value, arrays, n_rows))
            case plan.AnyItem():
                return self._any_item(part, arrays, n_rows)
            case plan.Arithmetic() | plan.Negative():
                return self._number(part, arrays, n_rows)
        return self._truth(part, arrays, n_rows)

    def _call(self, call: plan.Call, arrays: Mapping[str, pa.Array], n_rows: int) -> pa.Array:
        function = FUNCTIONS[call.function]
        arguments = self._values(call.arguments, arrays, n_rows)
        if arguments is None or call.kind is Kind.UNKNOWN:
            return self._by_value(call, arrays, n_rows)
        for number, argument in enumerate(arguments):
            kind = function.kind_of_argument(call.kind, number)
            if kind is not None and isinstance(argument, pa.Array) and not kind.is_in_nanoseconds:
                arguments[number] = _in_kind(argument, kind)
            elif not isinstance(argument, pa.Array):
                arguments[number] = function.argument(call.kind, number, argument)
        if None in arguments:
            if not function.takes_null:
                return pa.nulls(n_rows, _TYPES[call.kind])
            arguments = [argument for argument in arguments if argument is not None]
        has_array = any(isinstance(argument, pa.Array) for argument in arguments)
        found = function.arrow(*arguments) if function.arrow is not None and has_array else None
        if found is None:
            return self._by_value(call, arrays, n_rows)
        return found if call.kind.is_in_nanoseconds else _in_kind(found, call.kind)

    def _case(self, case: plan.Case, arrays: Mapping[str, pa.Array], n_rows: int) -> pa.Array:
        values = self._values((*case.values, case.otherwise), arrays, n_rows)
        if values is None or case.kind is Kind.UNKNOWN:
            return self._by_value(case, arrays, n_rows)
        if not case.kind.is_in_nanoseconds:
            values = [_in_kind(value, case.kind) if isinstance(value, pa.Array) else value for value in values]
        data_type = next((value.type for value in values if isinstance(value, pa.Array)), _TYPES[case.kind])
        found, *others = [
            value if isinstance(value, pa.Array) else pa.scalar(value, data_type) for value in values[::-1]
        ]
        for condition, value in zip(reversed(case.conditions), others, strict=True):
            is_chosen = self._truth(condition, arrays, n_rows).fill_null(fill_value=False)
            found = pc.if_else(is_chosen, value, found)
        return found

    def _time_sum(self, part: plan.TimeSum, arrays: Mapping[str, pa.Array], n_rows: int) -> pa.Array:
        values = self._values(part.operands, arrays, n_rows)
        if values is None or part.kind is Kind.UNKNOWN:
            return self._by_value(part, arrays, n_rows)
        if None in values:
            return pa.nulls(n_rows, _TYPES[part.kind])
        unit = next(value.type.unit for value in values if isinstance(value, pa.Array))
        total, largest, is_null = 0, 0, np.zeros(n_rows, np.bool_)
        for sign, value in zip(("+", *part.operators), values, strict=True):
            numbers = value
            if isinstance(value, pa.Array):
                numbers, is_valid = stored_numbers(value)
                is_null = is_null | ~is_valid if len(is_valid) else is_null
                numbers = np.where(is_null, 0, numbers)
            largest += max(abs(int(np.min(numbers, initial=0))), abs(int(np.max(numbers, initial=0))))
            total = total + numbers if sign == "+" else total - numbers
        if largest > np.iinfo(np.int64).max:
            return self._by_value(part, arrays, n_rows)
        data_type = pa.duration(unit) if part.kind is Kind.DURATION else pa.timestamp(unit)
        return pa.array(total, pa.int64(), mask=is_null).view(data_type)

    def _in_list(self, part: plan.InList, array: pa.Array) -> pa.Array:
        # PERF: Arrow makes its table of a million texts anew for each batch, Python only once.
        values = part.values if part.values.has_nan else part.values.found
        asked = python_values(plain(array))
        found = np.fromiter((value in values for value in asked), np.bool_, len(asked))
        is_null = np.asarray(array.is_null())
        return pa.array(found, mask=is_null | ~found if part.has_null else is_null)

    def _any_item(self, part: plan.AnyItem, arrays: Mapping[str, pa.Array], n_rows: int) -> pa.Array:
        """Return for each list whether some item satisfies the predicate, which all items are asked together."""
        lists = self._array(part.items, arrays, n_rows)
        list_of_item = pc.list_parent_indices(lists)
        columns = {name: arrays[name].take(list_of_item) for name in columns_of(part.predicate)}
        columns[plan.ITEM] = pc.list_flatten(lists)
        predicate = plan.replaced(part.predicate, _item_column)
        truths = self._truth(predicate, columns, len(list_of_item))
        rows = np.asarray(list_of_item)
        is_true, is_null = np.zeros(n_rows, np.bool_), np.asarray(lists.is_null())
        is_null = is_null.copy()
        is_null[rows[np.asarray(truths.is_null())]] = True
        is_true[rows[np.asarray(truths.fill_null(fill_value=False))]] = True
        return pa.array(is_true, mask=is_null & ~is_true)

    def _values(
        self, parts: tuple[plan.Expression, ...], arrays: Mapping[str, pa.Array], n_rows: int
    ) -> list[Any] | None:
        """Return the values of some parts: arrays without dictionaries, and Python values for constants.

        All times and durations among them have the same unit; None if they do not fit 64 bits then.
        """
        values = [
            plain(self._array(part, arrays, n_rows)) if columns_of(part) else evaluate(part, Event("", {}))
            for part in parts
        ]
        is_time = [plan.kind_of_value(part).is_in_nanoseconds for part in parts]
        times = [value for value, is_one in zip(values, is_time, strict=True) if is_one and value is not None]
        unit = _common_unit(times)
        if unit is None:
            return None if times else values
        try:
            return [
                _in_unit(value, unit) if is_one and value is not None else value
                for value, is_one in zip(values, is_time, strict=True)
            ]
        except pa.ArrowInvalid:
            return None

    def _number(self, part: plan.Expression, arrays: Mapping[str, pa.Array], n_rows: int) -> pa.Array:
        simplified, arrays = self._prepared(part, arrays, n_rows)
        names = columns_of(simplified)
        if not vectors.can_compute(simplified, {name: arrays[name].type for name in names}):
            return self._by_value(part, arrays, n_rows)
        vector = vectors.compute(simplified, {name: vector_of(arrays[name]) for name in names})
        return pa.array(vector.values, _TYPES[plan.kind_of_value(part)], mask=~vector.is_valid)

    def _prepared(
        self, part: plan.Expression, arrays: Mapping[str, pa.Array], n_rows: int
    ) -> tuple[plan.Expression, Mapping[str, pa.Array]]:
        """Return a part that only reads columns, and these columns."""
        inner = Computer(self._depth + 1)
        simplified = inner.simplified(part)
        return simplified, inner.with_computed(Columns(dict(arrays), ""), n_rows).arrays

    def _truth(self, predicate: plan.Expression, arrays: Mapping[str, pa.Array], n_rows: int) -> pa.Array:
        """Return a predicate's value for each row."""
        if predicate not in self._truths:
            self._truths[predicate] = _Truth(predicate, Computer(self._depth + 1))
        return self._truths[predicate].of(arrays, n_rows)

    def _by_value(self, part: plan.Expression, arrays: Mapping[str, pa.Array], n_rows: int) -> pa.Array:
        """Return a part's values, each combination of the values that it reads computed once."""
        names = sorted(columns_of(part))
        codes, values = zip(*(_coded(arrays[name]) for name in names), strict=True)
        first_row, of_row = combined(list(codes), list(map(len, values)))
        found = [
            evaluate(
                part, Event("", {name: own[code[row]] for name, own, code in zip(names, values, codes, strict=True)})
            )
            for row in first_row.tolist()
        ]
        return _array_of(found, plan.kind_of_value(part)).take(pa.array(of_row))


class _Truth:
    """Computes the truth of a predicate for each row."""

    def __init__(self, predicate: plan.Expression, computer: Computer) -> None:
        self._computer = computer
        simplified = self._computer.simplified(predicate)
        # A predicate that does not hold is FALSE or NULL. Its negation holds only if it is FALSE.
        self._stage = Stage(tuple(sorted(columns_of(simplified))), [simplified, plan.Not(simplified)], [0, 0])

    def of(self, arrays: Mapping[str, pa.Array], n_rows: int) -> pa.Array:
        columns = self._computer.with_computed(Columns(dict(arrays), ""), n_rows)
        classes, of_code, holding = self._stage.classes(columns, n_rows)
        truths = np.array([1 if bits & 1 else 0 if bits & 2 else -1 for bits in holding], np.int8)
        of_row = truths[classes if of_code is None else of_code[classes]]
        return pa.array(of_row == 1, mask=of_row < 0)


def _is_plain(part: plan.Expression) -> bool:
    """Whether a part's values can be told apart: lists and structs can only be tested for NULL."""
    return plan.kind_of_value(part) not in (Kind.LIST, Kind.OTHER)


def _item_column(part: plan.Expression) -> plan.Column | None:
    return plan.Column(plan.ITEM, part.kind) if isinstance(part, plan.Item) else None


def _compares_times(compare: plan.Compare) -> bool:
    """Whether two times or durations are compared that are not constants."""
    sides = (compare.left, compare.right)
    return all(plan.kind_of_value(side).is_in_nanoseconds and columns_of(side) for side in sides)


def _common_unit(times: list[Any]) -> str | None:
    """Return the coarsest unit in which all times and durations are whole; None if they are not stored as such."""
    finest = 0
    for time in times:
        if not isinstance(time, pa.Array):
            finest = max(finest, next(at for at, unit in enumerate(_UNITS) if time % NANOSECONDS_IN_UNIT[unit] == 0))
        elif pa.types.is_timestamp(time.type) or pa.types.is_duration(time.type):
            finest = max(finest, _UNITS.index(time.type.unit))
        elif pa.types.is_date64(time.type):
            finest = max(finest, _UNITS.index("ms"))
        elif not pa.types.is_date32(time.type):
            return None
    return _UNITS[finest] if any(isinstance(time, pa.Array) for time in times) else None


def _in_unit(times: Any, unit: str) -> Any:
    """Return times or durations in a unit, without a zone; `ArrowInvalid` if they do not fit 64 bits."""
    if not isinstance(times, pa.Array):
        return times // NANOSECONDS_IN_UNIT[unit]
    if pa.types.is_duration(times.type):
        return times.cast(pa.duration(unit))
    if pa.types.is_date(times.type):
        times = times.cast(pa.timestamp("s" if pa.types.is_date32(times.type) else "ms"))
    return times.view(pa.int64()).view(pa.timestamp(times.type.unit)).cast(pa.timestamp(unit))


def _array_of(values: list[Any], kind: Kind) -> pa.Array:
    """Return computed values as an array."""
    if kind.is_in_nanoseconds:
        try:
            return pa.array(values, pa.int64()).view(_TYPES[kind])
        except (OverflowError, pa.ArrowInvalid):
            return pa.array([None if value is None else Decimal(value) for value in values], _ANY_NANOSECONDS)
    # A kind is not known where a column has no type, because all its values are NULL.
    return pa.array(values, _TYPES.get(kind))


def _repeats(array: pa.Array) -> bool:
    """Whether an array has values that are worth looking at only once each: a dictionary, or texts that repeat."""
    if pa.types.is_dictionary(array.type):
        return True
    is_text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    return is_text and not is_free_text(array)


def _coded(array: pa.Array) -> tuple[IntArray, list[Any]]:
    """Return a code for each row, and the value of each code."""
    if pa.types.is_nested(array.type):
        return np.arange(len(array)), [*array.to_pylist(), None]
    array = encoded(array)
    return dictionary_codes(array), [*python_values(array.dictionary), None]


def _spread(of_value: pa.Array, codes: IntArray) -> pa.Array:
    """Return the value of each row's code. Texts keep a dictionary, so that they are classified once each."""
    if not pa.types.is_large_string(of_value.type):
        return of_value.take(pa.array(codes))
    is_null = np.asarray(of_value.is_null())
    indices = pa.array(codes, mask=is_null[codes]) if is_null.any() else pa.array(codes)
    return pa.DictionaryArray.from_arrays(indices, of_value.fill_null(""))


def _in_kind(array: pa.Array, kind: Kind) -> pa.Array:
    """Return computed values of a kind, or numbers as they are computed with: see `functions.entry.as_kind`."""
    data_type = _TYPES[kind]
    if array.type == data_type:
        return array
    if pa.types.is_decimal(array.type):
        # Arrow would round some of them to another double than Python.
        values = encoded(array)
        doubles = [None if value is None else float(value) for value in values.dictionary.to_pylist()]
        return pa.array(doubles, data_type).take(values.indices)
    if array.type == pa.uint64() and data_type == pa.int64():
        too_large = pc.greater(array, pa.scalar(2**63 - 1, pa.uint64()))
        array = pc.if_else(too_large, pa.scalar(None, pa.uint64()), array)
    return array.cast(data_type, safe=False)
