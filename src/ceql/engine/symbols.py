"""Columns to one small integer per event, its symbol: which guards of the automaton hold.

Guards are conjunctions, so they are decided column by column. For each column the values
fall into few classes that its predicates cannot tell apart: codes of a dictionary, intervals
between the constants that numbers are compared with, the constants that strings are compared
with. Starting from all guards, each column's class removes those that it refutes; the sets of
guards that are left are numbered, and a table from (set, class) to set does the work, one
look-up per column and event. The set after the last column is the symbol.

What a class satisfies is asked of `predicates.evaluate`, with one value of the class, so the
meaning of predicates is written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ceql.automaton.cea import Guard
from ceql.automaton.predicates import Event, evaluate, truth
from ceql.engine import vectors
from ceql.engine.fold import StringTable, classify_numbers, classify_strings, fold, keep
from ceql.syntax import plan

IntArray = np.ndarray[Any, np.dtype[Any]]
Classes = tuple[IntArray, IntArray | None, list[int]]
"""Each row's class, or its code and each code's class; and for each class the predicates that hold, as bits."""

TYPE = "\0type"
"""Stands for the event's type and stream among the columns that predicates read."""

IRRELEVANT = 0
"""The symbol of events that satisfy no guard."""

MAX_TABLE = 1 << 14
"""Entries of a table from (set, class) to set. Columns multiply the sets that are possible, so that beyond
this only those that occur are looked at."""


MAX_COMPUTED = 10
"""Predicates of one stage that are computed for all rows: each doubles the classes."""


class SymbolEncoder:
    """Turns record batches into symbols; numbers of symbols are given as they are met.

    `masks[symbol]` has bit i set if guard i holds. They are a memo: dropping it and meeting the
    symbols in another order changes no match.
    """

    def __init__(self, guards: tuple[Guard, ...]) -> None:
        self.masks: list[int] = [0]
        self._symbols: dict[int, int] = {0: IRRELEVANT}
        self._all_guards = [(1 << len(guards)) - 1]
        self._stages = _stages(guards)
        self._tables: list[_Table | None] = [None] * len(self._stages)
        self._nothing = np.zeros(0, np.int32)

    def encode(self, columns: Columns, symbols: IntArray, rows: IntArray | None = None) -> int:
        """Write each row's symbol to `symbols`; return how many were written.

        Where `rows` is given, irrelevant rows are left out, and those that are not have their numbers written to it.
        """
        n_rows = len(symbols)
        may_drop, rows = rows is not None, np.empty(n_rows, np.int32) if rows is None else rows
        # A row's set of guards is sets[of_first[first[row]]].
        first, of_first, sets = self._zeros(n_rows), np.zeros(1, np.int32), self._all_guards
        for index, stage in enumerate(self._stages):
            classes, of_code, holding = stage.classes(columns, n_rows)
            if of_code is not None and len(sets) * len(of_code) > MAX_TABLE:
                classes, of_code = of_code[classes], None
            if len(sets) * len(holding) > MAX_TABLE:
                first, sets = self._fold_what_occurs(of_first[first], classes, sets, index, holding)
                of_first = np.arange(len(sets), dtype=np.int32)
                continue
            table = self._table(index, sets, holding, of_code)
            if index == len(self._stages) - 1:
                return int(keep(_frozen(first), of_first, _frozen(classes), table.next, may_drop, symbols, rows))
            if index == 0:
                first, of_first = classes, table.next[0]
            else:
                left = np.empty(n_rows, np.int32)
                fold(_frozen(first), of_first, _frozen(classes), table.next, left)
                first, of_first = left, np.arange(len(table.after), dtype=np.int32)
            sets = table.after
        of_first = self._numbered(sets)
        every = np.arange(len(self.masks), dtype=np.int32).reshape(-1, 1)
        return int(keep(_frozen(first), of_first, _frozen(self._zeros(n_rows)), every, may_drop, symbols, rows))

    def _zeros(self, n_rows: int) -> IntArray:
        if len(self._nothing) < n_rows:
            self._nothing = np.zeros(n_rows, np.int32)
        return self._nothing[:n_rows]

    def _fold_what_occurs(
        self, before: IntArray, classes: IntArray, sets: list[int], index: int, holding: list[int]
    ) -> tuple[IntArray, list[int]]:
        """Do a column's step for the pairs of set and class that some row has, where all pairs would be too many."""
        pairs, of_row = np.unique(before.astype(np.int64) * len(holding) + classes, return_inverse=True)
        refuted = _refuted(self._stages[index].needs, holding)
        left = [sets[pair // len(holding)] & ~refuted[pair % len(holding)] for pair in pairs.tolist()]
        numbers = {mask: number for number, mask in enumerate(dict.fromkeys(left))}
        targets = np.array([numbers[mask] for mask in left], np.int32)
        return targets[of_row.reshape(-1)], list(numbers)

    def _numbered(self, masks: list[int]) -> IntArray:
        """Return the symbols of some sets of guards, giving numbers to those that are new."""
        for mask in masks:
            if mask not in self._symbols:
                self._symbols[mask] = len(self.masks)
                self.masks.append(mask)
        return np.array([self._symbols[mask] for mask in masks], np.int32)

    def _table(self, index: int, sets: list[int], holding: list[int], of_code: IntArray | None) -> _Table:
        table = self._tables[index]
        if table is None or not table.is_for(sets, holding, of_code):
            after, following = _refute(sets, self._stages[index].needs, holding)
            if index == len(self._stages) - 1:
                following = self._numbered(after)[following]
            if of_code is not None:
                following = np.ascontiguousarray(following[:, of_code])
            table = self._tables[index] = _Table(sets, holding, of_code, after, following)
        return table


@dataclass
class _Table:
    """One column's step: from the sets `before` and the classes that `holding` describes to the sets `after`.

    `next` is by class, or by code where codes have classes.
    """

    before: list[int]
    holding: list[int]
    of_code: IntArray | None
    after: list[int]
    next: IntArray

    def is_for(self, before: list[int], holding: list[int], of_code: IntArray | None) -> bool:
        """Whether this is the table for just these."""
        return self.before is before and self.holding is holding and self.of_code is of_code


def _frozen(array: IntArray) -> IntArray:
    """Return a read-only view: Arrow's memory comes as such, and loops are compiled for one kind only."""
    view = array.view()
    view.flags.writeable = False
    return view


def _refute(sets: list[int], needs: list[int], holding: list[int]) -> tuple[list[int], IntArray]:
    """Return the sets of guards left after a column, and the table from (set, class) to them.

    `needs[i]` are the guards that need the column's predicate i; `holding[c]` has bit i set where
    predicate i holds for class c.
    """
    numbers: dict[int, int] = {}
    table = np.empty((len(sets), len(holding)), np.int32)
    refuted = _refuted(needs, holding)
    for row, before in enumerate(sets):
        for column, mask in enumerate(refuted):
            table[row, column] = numbers.setdefault(before & ~mask, len(numbers))
    return list(numbers), table


def _refuted(needs: list[int], holding: list[int]) -> list[int]:
    """Return for each class the guards that it refutes."""
    refuted = []
    for satisfied in holding:
        mask = 0
        for index, guards in enumerate(needs):
            if not satisfied >> index & 1:
                mask |= guards
        refuted.append(mask)
    return refuted


@dataclass
class Columns:
    """The columns of one batch, as the predicates see them.

    Args:
        arrays: each attribute's values.
        types: the event types, or the one type of all events.
        streams: the number of each event's stream among `stream_names`, or None for one stream.
    """

    arrays: dict[str, pa.Array]
    types: pa.Array | str
    streams: IntArray | None = None
    stream_names: tuple[str, ...] = ()


def columns_of(predicate: plan.Predicate) -> frozenset[str]:
    """Return the columns that a predicate reads."""
    match predicate:
        case plan.HasType():
            return frozenset((TYPE,))
        case plan.Column():
            return frozenset((predicate.name,))
        case plan.Constant():
            return frozenset()
        case plan.Compare():
            return columns_of(predicate.left) | columns_of(predicate.right)
        case plan.InSet() | plan.Matches() | plan.IsNull() | plan.Negative():
            return columns_of(predicate.value)
        case plan.Not():
            return columns_of(predicate.predicate)
        case plan.All() | plan.Any():
            return frozenset().union(*(columns_of(part) for part in predicate.parts))
        case plan.Arithmetic():
            return frozenset().union(*(columns_of(operand) for operand in predicate.operands))
    raise AssertionError(f"no rule for {type(predicate).__name__}")


def _stages(guards: tuple[Guard, ...]) -> list[Stage]:
    """Return one stage per set of columns that some predicate reads, the event type first."""
    found: dict[frozenset[str], dict[plan.Predicate, int]] = {}
    for number, guard in enumerate(guards):
        for predicate in guard:
            needing = found.setdefault(columns_of(predicate), {})
            needing[predicate] = needing.get(predicate, 0) | 1 << number
    order = sorted(found, key=lambda names: (names != {TYPE}, len(names), sorted(names)))
    return [Stage(tuple(sorted(names)), list(found[names]), list(found[names].values())) for names in order]


class Stage:
    """The predicates that read one set of columns, nearly always a single one."""

    def __init__(self, names: tuple[str, ...], predicates: list[plan.Predicate], needs: list[int]) -> None:
        self.names = names
        self.predicates = predicates
        self.needs = needs
        self._evaluated = [_in_nanoseconds(one) for one in predicates]
        self._last_holding: list[int] = []
        self._dictionary: pa.Array | None = None
        self._of_code: tuple[IntArray, list[int]] | None = None
        self._strings: tuple[StringTable, list[int]] | None = None
        self._numbers: dict[Any, tuple[IntArray, list[int]]] = {}
        self._in_own_kind = [vectors.in_own_kind(one) for one in predicates]
        self._computed_types: dict[str, pa.DataType] | None = None
        self._is_computed = False
        self._mixed = _Mixed.of(predicates) if len(names) > 1 and TYPE not in names else None

    def classes(self, columns: Columns, n_rows: int) -> Classes:
        """Return each row's class (or code, with each code's class), and what holds in each class."""
        if self.names == (TYPE,):
            return self._type_classes(columns, n_rows)
        computed = self._computed_classes(columns, n_rows)
        if computed is not None:
            return computed
        if self._mixed is not None:
            classes, holding = self._mixed.classes(columns, n_rows)
            return classes, None, self._same(holding)
        if len(self.names) != 1:
            return self._combined_classes(columns, n_rows)
        array = columns.arrays[self.names[0]]
        if pa.types.is_dictionary(array.type):
            return self._code_classes(array, lambda value: Event("", {self.names[0]: value}))
        cuts = self._cuts(array.type)
        if cuts is not None:
            return _number_classes(array, *cuts)
        constants = _string_constants(self.predicates)
        if constants is not None and _is_plain_string(array.type):
            return self._string_classes(array, constants, lambda value: Event("", {self.names[0]: value}))
        return self._code_classes(_encoded(array), lambda value: Event("", {self.names[0]: value}))

    def _holding(self, event: Event) -> int:
        """Return the predicates that an event satisfies, as bits."""
        return sum(1 << index for index, one in enumerate(self._evaluated) if evaluate(one, event) is True)

    def _same(self, holding: list[int]) -> list[int]:
        """Return the list given last time if it is equal, so that tables made from it are kept."""
        if holding != self._last_holding:
            self._last_holding = holding
        return self._last_holding

    def _type_classes(self, columns: Columns, n_rows: int) -> Classes:
        names = columns.stream_names or (None,)
        if isinstance(columns.types, str):
            classes = np.zeros(n_rows, np.int32)
            holding = [self._holding(Event(columns.types, {}, name)) for name in names]
            return (classes if columns.streams is None else columns.streams), None, self._same(holding)
        if columns.streams is None:
            wanted = [one.event_type for one in self.predicates if isinstance(one, plan.HasType)]
            to_event = lambda value: Event(value if value is not None else "\0", {}, names[0])  # noqa: E731
            if _is_plain_string(columns.types.type):
                return self._string_classes(columns.types, wanted, to_event)
            return self._code_classes(_encoded(columns.types), to_event)
        codes, values = _codes(_encoded(columns.types))
        holding = [self._holding(Event(value or "\0", {}, name)) for value in values for name in names]
        return codes * len(names) + columns.streams, None, self._same(holding)

    def _string_classes(self, array: pa.Array, constants: list[str], to_event: Callable[[Any], Event]) -> Classes:
        """Return classes of plain strings: one per constant, one for all others, one for NULL."""
        if self._strings is None:
            table = StringTable(dict.fromkeys(constants))
            other = max(constants, key=len, default="") + "\0"
            holding = [self._holding(to_event(value)) for value in [*table.constants, other, None]]
            self._strings = table, holding
        table, holding = self._strings
        return classify_strings(array, table), None, holding

    def _code_classes(self, array: pa.DictionaryArray, to_event: Callable[[Any], Event]) -> Classes:
        """Return classes of a dictionary's codes; the dictionary's values are looked at once."""
        dictionary = array.dictionary
        if self._of_code is None or self._dictionary is None or not dictionary.equals(self._dictionary):
            numbers: dict[int, int] = {}
            of_code = np.empty(len(dictionary) + 1, np.int32)
            for code, value in enumerate([*_values(dictionary), None]):
                of_code[code] = numbers.setdefault(self._holding(to_event(value)), len(numbers))
            self._dictionary, self._of_code = dictionary, (of_code, list(numbers))
        of_code, holding = self._of_code
        return _dictionary_codes(array), of_code, holding

    def _computed_classes(self, columns: Columns, n_rows: int) -> Classes | None:
        """Return classes by the predicates' own values, computed for all rows; None where that is not possible.

        Nor is it done where the values of one column fall into few classes.
        """
        types = {name: columns.arrays[name].type for name in self.names}
        if types != self._computed_types:
            self._computed_types = types
            is_piecewise = len(types) == 1 and self._cuts(next(iter(types.values()))) is not None
            self._is_computed = not is_piecewise and all(vectors.can_evaluate(one, types) for one in self._in_own_kind)
        if not self._is_computed or len(self.predicates) > MAX_COMPUTED:
            return None
        numbers = {name: _vector(columns.arrays[name]) for name in self.names}
        classes = np.zeros(n_rows, np.int32)
        for index, one in enumerate(self._in_own_kind):
            truth = vectors.evaluate(one, numbers)
            classes |= (truth.values & truth.is_valid).astype(np.int32) << index
        return classes, None, self._same(list(range(1 << len(self.predicates))))

    def _combined_classes(self, columns: Columns, n_rows: int) -> Classes:
        """Return classes of rows by the values of several columns, each combination evaluated once."""
        if not self.names:
            return np.zeros(n_rows, np.int32), None, self._same([self._holding(Event("", {}))])
        combined, n_combined = np.zeros(n_rows, np.int64), 1
        coded = [_codes(_encoded(columns.arrays[name])) for name in self.names]
        for codes, values in coded:
            if n_combined * len(values) >= 2**63:
                distinct, combined = np.unique(combined, return_inverse=True)
                combined, n_combined = combined.reshape(-1), len(distinct)
            combined = combined * len(values) + codes
            n_combined *= len(values)
        distinct, first_row, of_row = np.unique(combined, return_index=True, return_inverse=True)
        numbers: dict[int, int] = {}
        of_distinct = np.empty(len(distinct), np.int32)
        for index, row in enumerate(first_row.tolist()):
            attributes = {name: values[codes[row]] for name, (codes, values) in zip(self.names, coded, strict=True)}
            of_distinct[index] = numbers.setdefault(self._holding(Event("", attributes)), len(numbers))
        return of_distinct[of_row.reshape(-1)], None, self._same(list(numbers))

    def _cuts(self, data_type: pa.DataType) -> tuple[IntArray, list[int]] | None:
        """Return the numbers at which some predicate's value may change, and what holds between them."""
        if data_type not in self._numbers:
            scale = stored_scale(data_type)
            predicates = None if scale is None else [_in_units(one, scale) for one in self.predicates]
            if predicates is None or not all(_is_piecewise(one) for one in predicates):
                return None
            constants = [value for one in predicates for value in _number_constants(one)]
            is_float = pa.types.is_floating(data_type)
            cuts = sorted({cut for value in constants for cut in (_float_cuts if is_float else _integer_cuts)(value)})
            lowest = -math.inf if is_float else (cuts[0] - 1 if cuts else 0)
            samples = [lowest, *cuts, math.nan, None]
            stage = Stage(self.names, predicates, self.needs)
            holding = [stage._holding(Event("", {self.names[0]: sample})) for sample in samples]
            self._numbers[data_type] = np.array(cuts, np.float64 if is_float else np.int64), holding
        return self._numbers[data_type]


class _Mixed:
    """Predicates over several columns that consist of parts over one column each.

    The parts are decided column by column; what they give together is asked once for each combination of classes,
    of which there are few, not for each combination of values.
    """

    def __init__(self, predicates: list[plan.Predicate], parts: list[plan.Predicate]) -> None:
        self._predicates = predicates
        by_column: dict[str, list[plan.Predicate]] = {}
        for part in parts:
            (name,) = columns_of(part)
            by_column.setdefault(name, []).append(part)
        self._parts = list(by_column.values())
        # A part that does not hold is FALSE or NULL, which NOT tells apart.
        self._stages = [
            Stage((name,), [*own, *map(plan.Not, own)], [0] * (2 * len(own))) for name, own in by_column.items()
        ]
        self._known: tuple[list[list[int]], IntArray, list[int]] | None = None

    @classmethod
    def of(cls, predicates: list[plan.Predicate]) -> _Mixed | None:
        """Return how predicates are decided by their parts; None if some part reads several columns."""
        parts = list(dict.fromkeys(part for one in predicates for part in _parts_by_column(one)))
        return cls(predicates, parts) if all(len(columns_of(part)) == 1 for part in parts) else None

    def classes(self, columns: Columns, n_rows: int) -> tuple[IntArray, list[int]]:
        """Return each row's class, and for each class the predicates that hold, as bits."""
        combined, n_combined = np.zeros(n_rows, np.int64), 1
        holdings = []
        for stage in self._stages:
            classes, of_code, holding = stage.classes(columns, n_rows)
            combined = combined * len(holding) + (classes if of_code is None else of_code[classes])
            n_combined *= len(holding)
            holdings.append(holding)
        if n_combined > MAX_TABLE:
            occurring, of_row = np.unique(combined, return_inverse=True)
            of_combination, found = self._decided(occurring, holdings)
            return of_combination[of_row.reshape(-1)], found
        if self._known is None or any(now is not before for now, before in zip(holdings, self._known[0], strict=True)):
            self._known = holdings, *self._decided(np.arange(n_combined), holdings)
        return self._known[1][combined], self._known[2]

    def _decided(self, combinations: IntArray, holdings: list[list[int]]) -> tuple[IntArray, list[int]]:
        """Return the class of some combinations, and what holds in each class."""
        numbers: dict[int, int] = {}
        of_combination = np.empty(len(combinations), np.int32)
        for index, combination in enumerate(combinations.tolist()):
            truths: dict[plan.Predicate, bool | None] = {}
            for own, holding in zip(reversed(self._parts), reversed(holdings), strict=True):
                combination, held = divmod(combination, len(holding))
                bits = holding[held]
                for number, part in enumerate(own):
                    is_false = bits >> (number + len(own)) & 1
                    truths[part] = True if bits >> number & 1 else False if is_false else None
            held_by = sum(1 << number for number, one in enumerate(self._predicates) if truth(one, truths) is True)
            of_combination[index] = numbers.setdefault(held_by, len(numbers))
        return of_combination, list(numbers)


def _parts_by_column(predicate: plan.Predicate) -> Iterable[plan.Predicate]:
    """Yield the largest parts of a predicate that read one column only, and those that cannot be divided."""
    match predicate:
        case plan.All() | plan.Any() if len(columns_of(predicate)) != 1:
            for part in predicate.parts:
                yield from _parts_by_column(part)
        case plan.Not() if len(columns_of(predicate)) != 1:
            yield from _parts_by_column(predicate.predicate)
        case _:
            yield predicate


# --- numbers ------------------------------------------------------------------------

_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def stored_scale(data_type: pa.DataType) -> Fraction | None:
    """Return how many units of a type's stored integers make one (or one nanosecond); None if it has none."""
    if pa.types.is_timestamp(data_type):
        return Fraction(1, _NANOSECONDS[data_type.unit])
    if pa.types.is_date32(data_type):
        return Fraction(1, 24 * 3600 * 10**9)
    if pa.types.is_date64(data_type):
        return Fraction(1, 10**6)
    if pa.types.is_decimal128(data_type) and data_type.precision <= 18 and data_type.scale >= 0:
        return Fraction(10**data_type.scale)
    is_plain = pa.types.is_floating(data_type) or (pa.types.is_integer(data_type) and data_type != pa.uint64())
    return Fraction(1) if is_plain else None


def _in_units(predicate: plan.Predicate, scale: Fraction) -> plan.Predicate:
    """Return a predicate with its constants in the units of the stored integers."""

    def scaled(constant: plan.Constant) -> plan.Constant:
        value = _exact(constant.value)
        return plan.Constant(value * scale if value is not None else constant.value, constant.kind)  # type: ignore[arg-type]

    return _with_constants(predicate, scaled)


def _in_nanoseconds(predicate: plan.Predicate) -> plan.Predicate:
    """Return a predicate with the times among its constants in nanoseconds since 1970."""

    def converted(constant: plan.Constant) -> plan.Constant:
        is_time = isinstance(constant.value, date)
        return plan.Constant(_exact(constant.value), constant.kind) if is_time else constant  # type: ignore[arg-type]

    return _with_constants(predicate, converted)


def _with_constants(predicate: plan.Predicate, replace: Callable[[plan.Constant], plan.Constant]) -> plan.Predicate:
    """Return a predicate with all constants replaced that columns are compared with."""
    match predicate:
        case plan.Constant():
            return replace(predicate)
        case plan.Compare():
            left, right = _with_constants(predicate.left, replace), _with_constants(predicate.right, replace)
            return plan.Compare(left, predicate.operator, right, predicate.as_doubles)
        case plan.InSet():
            value = _with_constants(predicate.value, replace)
            return plan.InSet(value, tuple(replace(item) for item in predicate.items), predicate.has_null)
        case plan.IsNull():
            return plan.IsNull(_with_constants(predicate.value, replace))
        case plan.Not():
            return plan.Not(_with_constants(predicate.predicate, replace))
        case plan.All():
            return plan.All(tuple(_with_constants(part, replace) for part in predicate.parts))
        case plan.Any():
            return plan.Any(tuple(_with_constants(part, replace) for part in predicate.parts))
    return predicate


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _exact(value: Any) -> Fraction | None:
    """Return a constant as an exact number, times in nanoseconds since 1970; None if it is none, or not finite."""
    if isinstance(value, datetime):
        elapsed = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH
        return Fraction(((elapsed.days * 86400 + elapsed.seconds) * 10**6 + elapsed.microseconds) * 1000)
    if isinstance(value, date):
        return Fraction((value - _EPOCH.date()).days * 24 * 3600 * 10**9)
    if isinstance(value, bool) or value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return Fraction(value) if isinstance(value, int | float | Decimal) else None


def _is_piecewise(predicate: plan.Predicate) -> bool:
    """Whether a predicate's value changes only at its constants: no arithmetic on the column."""
    match predicate:
        case plan.Compare():
            return all(isinstance(part, plan.Column | plan.Constant) for part in (predicate.left, predicate.right))
        case plan.InSet() | plan.IsNull():
            return isinstance(predicate.value, plan.Column)
        case plan.Not():
            return _is_piecewise(predicate.predicate)
        case plan.All() | plan.Any():
            return all(_is_piecewise(part) for part in predicate.parts)
    return False


def _number_constants(predicate: plan.Predicate) -> Iterable[Any]:
    match predicate:
        case plan.Constant():
            if predicate.value is not None:
                yield predicate.value
        case plan.Compare():
            yield from _number_constants(predicate.left)
            yield from _number_constants(predicate.right)
        case plan.InSet():
            for item in predicate.items:
                yield from _number_constants(item)
        case plan.Not():
            yield from _number_constants(predicate.predicate)
        case plan.All() | plan.Any():
            for part in predicate.parts:
                yield from _number_constants(part)


def _integer_cuts(constant: Fraction) -> list[int]:
    """Return the integers from which on `>= constant` and `> constant` hold, as far as they fit 64 bits."""
    cuts = (math.ceil(constant), math.floor(constant) + 1)
    return [cut for cut in cuts if -(2**63) < cut < 2**63]


def _float_cuts(constant: Any) -> list[float]:
    """Return the doubles from which on `>= constant` and `> constant` hold."""
    if isinstance(constant, float):
        nearest = constant
    else:
        try:
            nearest = float(constant)
        except OverflowError:
            return [math.inf] if constant > 0 else []
    at_least = nearest if nearest >= constant else math.nextafter(nearest, math.inf)
    above = at_least if at_least > constant else math.nextafter(at_least, math.inf)
    return [at_least, above]


def _number_classes(array: pa.Array, cuts: IntArray, holding: list[int]) -> Classes:
    """Return how many cuts each value has reached; NaN and NULL are the last two classes."""
    values, is_valid = stored_numbers(array)
    return classify_numbers(values, is_valid, cuts), None, holding


def stored_numbers(array: pa.Array) -> tuple[IntArray, IntArray]:
    """Return an array's stored numbers as int64 or float64, and which are valid (empty if all are)."""
    data_type = array.type
    is_valid = np.empty(0, np.bool_)
    if array.null_count:
        is_valid = pc.is_valid(array).to_numpy(zero_copy_only=False)
    if pa.types.is_decimal128(data_type):
        words = np.frombuffer(array.buffers()[1], np.int64)
        return words[2 * array.offset : 2 * (array.offset + len(array)) : 2], is_valid
    if pa.types.is_timestamp(data_type) or pa.types.is_date64(data_type):
        array = array.view(pa.int64())
    elif pa.types.is_date32(data_type):
        array = array.view(pa.int32())
    width = array.type.bit_width // 8
    raw = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype())
    values = raw[array.offset : array.offset + len(array)]
    if width == 8 and not pa.types.is_unsigned_integer(array.type):
        return values, is_valid
    return values.astype(np.float64 if pa.types.is_floating(array.type) else np.int64), is_valid


def _vector(array: pa.Array) -> vectors.Vector:
    values, is_valid = stored_numbers(array)
    return vectors.Vector(values, is_valid if len(is_valid) else np.ones(len(values), np.bool_))


# --- strings and dictionaries -------------------------------------------------------


def _is_plain_string(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _string_constants(predicates: list[plan.Predicate]) -> list[str] | None:
    """Return the constants that strings are tested for equality with; None if other questions are asked."""
    constants: list[str] = []
    pending = list(predicates)
    while pending:
        one = pending.pop()
        match one:
            case plan.Compare(left=plan.Column(), operator="=" | "!=", right=plan.Constant()):
                constants.append(one.right.value)  # type: ignore[attr-defined]
            case plan.Compare(left=plan.Constant(), operator="=" | "!=", right=plan.Column()):
                constants.append(one.left.value)  # type: ignore[attr-defined]
            case plan.InSet(value=plan.Column()):
                constants += [item.value for item in one.items]  # type: ignore[misc]
            case plan.IsNull(value=plan.Column()):
                pass
            case plan.Not():
                pending.append(one.predicate)
            case plan.All() | plan.Any():
                pending += one.parts
            case _:
                return None
    return [constant for constant in constants if constant is not None]


def _encoded(array: pa.Array) -> pa.DictionaryArray:
    return array if pa.types.is_dictionary(array.type) else array.dictionary_encode()


def _dictionary_codes(array: pa.DictionaryArray) -> IntArray:
    """Return the codes, NULL as the one after the last."""
    indices = array.indices
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(len(array.dictionary))
    return np.asarray(indices).astype(np.int32, copy=False)


def _codes(array: pa.DictionaryArray) -> tuple[IntArray, list[Any]]:
    """Return codes and the value that each stands for."""
    return _dictionary_codes(array), [*_values(array.dictionary), None]


def _values(array: pa.Array) -> list[Any]:
    """Return values as predicates take them; times in nanoseconds, because Python's are coarser and end in 9999."""
    if not pa.types.is_timestamp(array.type) and not pa.types.is_date(array.type):
        values: list[Any] = array.to_pylist()
        return values
    unit = int(1 / stored_scale(array.type))  # type: ignore[operator]
    stored = array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
    return [None if value is None else value * unit for value in stored.to_pylist()]
