"""Values of columns in few classes: every predicate of the query is the same for all values of a class.

There are four ways to make classes: by the codes of a dictionary; by the intervals between the constants that numbers
are compared with; by the constants that strings are compared with; by the truth of predicates that are computed for all
rows. `predicates.evaluate` decides which predicates a class satisfies, given one value of the class, so the meaning of
predicates is defined in one place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from ceql.automaton.predicates import Event, evaluate, truth
from ceql.engine.intake import vectors
from ceql.engine.intake.dictionaries import combined, dictionary_codes, encoded
from ceql.engine.intake.fold import StringTable, classify_numbers, classify_strings
from ceql.engine.intake.free_text import answers, is_free_text, questions_of_text
from ceql.engine.intake.numbers import (
    in_units,
    is_piecewise,
    number_constants,
    stored_cuts,
    stored_numbers,
    stored_scale,
)
from ceql.schema import Kind, python_values
from ceql.syntax import patterns, plan

IntArray = np.ndarray[Any, np.dtype[Any]]
Classes = tuple[IntArray, IntArray | None, list[int]]
"""The class of each row, or its code and the class of each code; and for each class, as bits, which predicates hold."""

TYPE = "\0type"
"""Stands for the event's type and stream among the columns that predicates read."""

MAX_COMPUTED = 10
"""Most predicates of a stage that are computed for all rows: each doubles the number of classes."""

MANY_VALUES = 1 << 10
"""A dictionary with more strings is not looked at string by string."""

MAX_COMBINATIONS = 1 << 14
"""Up to this number, all combinations of classes are decided in advance; beyond it, only those that occur."""


@dataclass
class Columns:
    """The columns of one batch, as the predicates see them.

    Args:
        arrays: each attribute's values.
        types: the event types, or the type of all events.
        streams: the number of each event's stream among `stream_names`, or None for one stream.
    """

    arrays: dict[str, pa.Array]
    types: pa.Array | str
    streams: IntArray | None = None
    stream_names: tuple[str, ...] = ()


def columns_of(predicate: plan.Expression) -> frozenset[str]:
    """Return the columns that a predicate reads."""
    return frozenset(
        part.name if isinstance(part, plan.Column) else TYPE
        for part in predicate.walk()
        if isinstance(part, plan.Column | plan.HasType)
    )


class Stage:
    """The predicates that read one set of columns, nearly always a single one."""

    def __init__(self, names: tuple[str, ...], predicates: list[plan.Expression], needs: list[int]) -> None:
        self.names = names
        self.predicates = predicates
        self.needs = needs
        self._searches: dict[plan.Matches, plan.Column] = {}
        self._evaluated = [plan.replaced(predicate, self._found) for predicate in predicates]
        self._read = frozenset().union(*map(columns_of, self._evaluated))
        self._last_holding: list[int] = []
        self._dictionary: pa.Array | None = None
        self._of_code: tuple[IntArray, list[int]] | None = None
        self._rows_of: dict[str, tuple[pa.Array, tuple[list[str], list[tuple[Any, ...]]]]] = {}
        self._strings: tuple[StringTable, list[int]] | None = None
        self._numbers: dict[Any, tuple[IntArray, list[int]]] = {}
        self._in_own_kind = [vectors.in_own_kind(predicate) for predicate in predicates]
        self._computed_types: dict[str, pa.DataType] | None = None
        self._is_computed = False
        self._questions = questions_of_text(predicates) if len(names) == 1 and TYPE not in names else None
        self._constants = _string_constants(predicates) if len(names) == 1 and TYPE not in names else None
        self._of_answers: list[int] | None = None
        self._mixed = _Mixed.of(predicates) if len(names) > 1 and TYPE not in names else None

    def classes(self, columns: Columns, n_rows: int) -> Classes:
        """Return each row's class (or code, with each code's class), and which predicates hold in each class."""
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
            return self._code_classes(array, self._classes_of)
        cuts = self._cuts(array.type)
        if cuts is not None:
            return _number_classes(array, *cuts)
        if self._constants is not None and _is_plain_string(array.type):
            return self._string_classes(array, self._constants, lambda value: Event("", {self.names[0]: value}))
        if self._questions is not None and _is_plain_string(array.type) and is_free_text(array):
            return self._asked_classes(array, self._questions)
        return self._code_classes(encoded(array), self._classes_of)

    def _asked_classes(self, array: pa.Array, questions: list[plan.Expression]) -> Classes:
        """Return classes of texts by the answers to all questions, computed for all rows; NULL is the last class."""
        classes = np.zeros(len(array), np.int32)
        for number, question in enumerate(questions):
            classes |= answers(question, array).astype(np.int32) << number
        if array.null_count:
            classes[~np.asarray(array.is_valid())] = 1 << len(questions)
        if self._of_answers is None:
            self._of_answers = [self._holding_by_answers(bits) for bits in range(1 << len(questions))]
            self._of_answers.append(self._holding(Event("", dict.fromkeys(self._read))))
        return classes, None, self._of_answers

    def _holding_by_answers(self, bits: int) -> int:
        """Return the predicates that hold, given the answer to each question as a bit."""
        asked = enumerate(self._questions or ())
        answered: dict[plan.Expression, bool | None] = {part: bool(bits >> number & 1) for number, part in asked}
        predicates = enumerate(self.predicates)
        return sum(1 << number for number, predicate in predicates if truth(predicate, answered) is True)

    def _found(self, part: plan.Expression) -> plan.Column | None:
        """Return the column that replaces a search in a column, because searches run over all values together."""
        if not isinstance(part, plan.Matches) or not isinstance(part.value, plan.Column):
            return None
        column = plan.Column(f"{part.value.name}\0{part.regex}", Kind.BOOLEAN)
        return self._searches.setdefault(part, column)

    def _holding(self, event: Event) -> int:
        """Return the predicates that an event satisfies, as bits."""
        predicates = enumerate(self._evaluated)
        return sum(1 << index for index, predicate in predicates if evaluate(predicate, event) is True)

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
            wanted = [asked.event_type for asked in self.predicates if isinstance(asked, plan.HasType)]

            def to_event(value: str | None) -> Event:
                return Event(value if value is not None else "\0", {}, names[0])

            if _is_plain_string(columns.types.type):
                return self._string_classes(columns.types, wanted, to_event)

            def classes_of(values: pa.Array) -> tuple[IntArray, list[int]]:
                return _numbered([self._holding(to_event(value)) for value in [*python_values(values), None]])

            return self._code_classes(encoded(columns.types), classes_of)
        codes, values = _codes(encoded(columns.types))
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

    def _classes_of(self, values: pa.Array) -> tuple[IntArray, list[int]]:
        """Return the class of each value of the stage's only column, then that of NULL, and what holds in each class.

        Many strings are looked at as those of a plain column are, because Python would take a microsecond for each.
        """
        if len(values) > MANY_VALUES and _is_plain_string(values.type):
            constants = _string_constants(self.predicates)
            found: Classes | None = None
            if constants is not None:
                found = self._string_classes(values, constants, lambda value: Event("", {self.names[0]: value}))
            elif self._questions is not None:
                found = self._asked_classes(values, self._questions)
            if found is not None:
                classes, _, holding = found
                return np.append(classes, np.int32(len(holding) - 1)), holding
        return _numbered(self._holding_of(values))

    def _holding_of(self, values: pa.Array) -> list[int]:
        """Return which predicates hold for each value of the stage's only column, and for NULL after the last value."""
        names, rows = self._rows(self.names[0], values)
        # PERF: most values give the same answers to all searches. Rows differ only if a predicate reads the values
        # themselves.
        distinct = rows if self.names[0] in names else list(set(rows))
        holding = [self._holding(Event("", dict(zip(names, row, strict=True)))) for row in distinct]
        if distinct is rows:
            return holding
        of_row = dict(zip(distinct, holding, strict=True))
        return [of_row[row] for row in rows]

    def _rows(self, name: str, values: pa.Array) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return what predicates read for each value of a column, and for NULL: the value and search results."""
        read = {name: [*python_values(values), None]} if name in self._read else {}
        for search, found in self._searches.items():
            if columns_of(search) == {name}:
                read[found.name] = [*patterns.search(search.regex, values).to_pylist(), None]
        return list(read), list(zip(*read.values(), strict=True))

    def _known_rows(self, name: str, values: pa.Array) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return the same; the values are read once, because the next rows probably have the same dictionary."""
        known = self._rows_of.get(name)
        if known is None or not values.equals(known[0]):
            known = self._rows_of[name] = values, self._rows(name, values)
        return known[1]

    def _code_classes(
        self, array: pa.DictionaryArray, classes_of: Callable[[pa.Array], tuple[IntArray, list[int]]]
    ) -> Classes:
        """Return classes of a dictionary's codes; each value of the dictionary is evaluated once."""
        dictionary = array.dictionary
        if self._of_code is None or self._dictionary is None or not dictionary.equals(self._dictionary):
            self._dictionary, self._of_code = dictionary, classes_of(dictionary)
        of_code, holding = self._of_code
        return dictionary_codes(array), of_code, holding

    def _computed_classes(self, columns: Columns, n_rows: int) -> Classes | None:
        """Return classes by the truth of the predicates, computed for all rows.

        None if NumPy cannot compute them, or if the values of a single column fall into few classes anyway.
        """
        types = {name: columns.arrays[name].type for name in self.names}
        if types != self._computed_types:
            self._computed_types = types
            is_piecewise = len(types) == 1 and self._cuts(next(iter(types.values()))) is not None
            self._is_computed = not is_piecewise and all(
                vectors.can_evaluate(predicate, types) for predicate in self._in_own_kind
            )
        if not self._is_computed or len(self.predicates) > MAX_COMPUTED:
            return None
        numbers = {name: vector_of(columns.arrays[name]) for name in self.names}
        classes = np.zeros(n_rows, np.int32)
        for index, predicate in enumerate(self._in_own_kind):
            truth = vectors.evaluate(predicate, numbers)
            classes |= (truth.values & truth.is_valid).astype(np.int32) << index
        return classes, None, self._same(list(range(1 << len(self.predicates))))

    def _combined_classes(self, columns: Columns, n_rows: int) -> Classes:
        """Return classes of rows by the values of several columns, each combination evaluated once."""
        if not self.names:
            return np.zeros(n_rows, np.int32), None, self._same([self._holding(Event("", {}))])
        arrays = [(name, encoded(columns.arrays[name])) for name in self.names]
        coded = [(dictionary_codes(array), *self._known_rows(name, array.dictionary)) for name, array in arrays]
        first_row, of_row = combined([codes for codes, _, _ in coded], [len(values) for _, _, values in coded])
        numbers: dict[int, int] = {}
        of_distinct = np.empty(len(first_row), np.int32)
        for index, row in enumerate(first_row.tolist()):
            attributes = {
                name: value
                for codes, names, values in coded
                for name, value in zip(names, values[codes[row]], strict=True)
            }
            of_distinct[index] = numbers.setdefault(self._holding(Event("", attributes)), len(numbers))
        return of_distinct[of_row], None, self._same(list(numbers))

    def _cuts(self, data_type: pa.DataType) -> tuple[IntArray, list[int]] | None:
        """Return the numbers at which some predicate's value may change, and which predicates hold between them."""
        if data_type not in self._numbers:
            scale = stored_scale(data_type)
            predicates = None if scale is None else [in_units(predicate, scale) for predicate in self.predicates]
            if predicates is None or not all(map(is_piecewise, predicates)):
                return None
            is_float = pa.types.is_floating(data_type)
            own = [stored_cuts(number_constants(predicate), is_float=is_float) for predicate in predicates]
            cuts = sorted(set().union(*own))
            holding = self._holding_between(cuts, predicates, own, is_float=is_float)
            self._numbers[data_type] = np.array(cuts, np.float64 if is_float else np.int64), holding
        return self._numbers[data_type]

    def _holding_between(
        self, cuts: list[Any], predicates: list[plan.Expression], own: list[list[Any]], *, is_float: bool
    ) -> list[int]:
        """Return which predicates hold below all cuts, from each cut on, for NaN and for NULL.

        PERF: a predicate is evaluated only at its own cuts. 60 predicates with 120 cuts took 37 ms when all were
        evaluated at all cuts, now 3 ms.
        """
        lowest = -math.inf if is_float else (cuts[0] - 1 if cuts else 0)
        samples = [lowest, *cuts, math.nan, None]
        number_of = {cut: number for number, cut in enumerate(cuts, 1)}
        holding = [0] * len(samples)
        for index, (predicate, own_cuts) in enumerate(zip(predicates, own, strict=True)):
            begins = [0, *(number_of[cut] for cut in own_cuts), *range(len(cuts) + 1, len(samples) + 1)]
            for begin, end in pairwise(begins):
                if evaluate(predicate, Event("", {self.names[0]: samples[begin]})) is True:
                    for number in range(begin, end):
                        holding[number] |= 1 << index
        return holding


class _Mixed:
    """Predicates over several columns whose parts each read one column.

    The parts are decided column by column. The whole predicate is evaluated once for each combination of classes, not
    of values: combinations of classes are few.
    """

    def __init__(self, predicates: list[plan.Expression], parts: list[plan.Expression]) -> None:
        self._predicates = predicates
        by_column: dict[str, list[plan.Expression]] = {}
        for part in parts:
            (name,) = columns_of(part)
            by_column.setdefault(name, []).append(part)
        self._parts = list(by_column.values())
        # A part that does not hold is FALSE or NULL. The negation holds only if the part is FALSE.
        self._stages = [
            Stage((name,), [*own, *map(plan.Not, own)], [0] * (2 * len(own))) for name, own in by_column.items()
        ]
        self._known: tuple[list[list[int]], IntArray, list[int]] | None = None

    @classmethod
    def of(cls, predicates: list[plan.Expression]) -> _Mixed | None:
        """Return predicates divided into parts; None if some part reads several columns."""
        parts = list(dict.fromkeys(part for predicate in predicates for part in _parts_by_column(predicate)))
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
        if n_combined > MAX_COMBINATIONS:
            occurring, of_row = np.unique(combined, return_inverse=True)
            of_combination, found = self._decided(occurring, holdings)
            return of_combination[of_row.reshape(-1)], found
        if self._known is None or any(now is not before for now, before in zip(holdings, self._known[0], strict=True)):
            self._known = holdings, *self._decided(np.arange(n_combined), holdings)
        return self._known[1][combined], self._known[2]

    def _decided(self, combinations: IntArray, holdings: list[list[int]]) -> tuple[IntArray, list[int]]:
        """Return the class of some combinations, and which predicates hold in each class."""
        numbers: dict[int, int] = {}
        of_combination = np.empty(len(combinations), np.int32)
        for index, combination in enumerate(combinations.tolist()):
            truths: dict[plan.Expression, bool | None] = {}
            for own, holding in zip(reversed(self._parts), reversed(holdings), strict=True):
                combination, held = divmod(combination, len(holding))
                bits = holding[held]
                for number, part in enumerate(own):
                    is_false = bits >> (number + len(own)) & 1
                    truths[part] = True if bits >> number & 1 else False if is_false else None
            predicates = enumerate(self._predicates)
            held_by = sum(1 << number for number, predicate in predicates if truth(predicate, truths) is True)
            of_combination[index] = numbers.setdefault(held_by, len(numbers))
        return of_combination, list(numbers)


def _parts_by_column(predicate: plan.Expression) -> Iterable[plan.Expression]:
    """Yield the largest parts of a predicate that read one column; parts that cannot be divided may read several."""
    match predicate:
        case plan.All() | plan.Any() if len(columns_of(predicate)) != 1:
            for part in predicate.parts:
                yield from _parts_by_column(part)
        case plan.Not() if len(columns_of(predicate)) != 1:
            yield from _parts_by_column(predicate.predicate)
        case _:
            yield predicate


def _number_classes(array: pa.Array, cuts: IntArray, holding: list[int]) -> Classes:
    """Return how many cuts each value has reached; NaN and NULL are the last two classes."""
    values, is_valid = stored_numbers(array)
    return classify_numbers(values, is_valid, cuts), None, holding


def vector_of(array: pa.Array) -> vectors.Vector:
    """Return a column of numbers as NumPy computes with it."""
    values, is_valid = stored_numbers(array)
    return vectors.Vector(values, is_valid if len(is_valid) else np.ones(len(values), np.bool_))


def _is_plain_string(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _string_constants(predicates: list[plan.Expression]) -> list[str] | None:
    """Return the constants that strings are tested for equality with; None if predicates do anything else."""
    constants: list[str] = []
    pending = list(predicates)
    while pending:
        predicate = pending.pop()
        match predicate:
            case plan.Compare(left=plan.Column(), operator="=" | "!=", right=plan.Constant()):
                constants.append(predicate.right.value)  # type: ignore[attr-defined]
            case plan.Compare(left=plan.Constant(), operator="=" | "!=", right=plan.Column()):
                constants.append(predicate.left.value)  # type: ignore[attr-defined]
            case plan.InSet(value=plan.Column()):
                constants += [item.value for item in predicate.items]  # type: ignore[misc]
            case plan.IsNull(value=plan.Column()):
                pass
            case plan.Not():
                pending.append(predicate.predicate)
            case plan.All() | plan.Any():
                pending += predicate.parts
            case _:
                return None
    return [constant for constant in constants if constant is not None]


def _numbered(holding: list[int]) -> tuple[IntArray, list[int]]:
    """Return the number of each item among the different ones, and these."""
    numbers: dict[int, int] = {}
    of_item = np.array([numbers.setdefault(held, len(numbers)) for held in holding], np.int32)
    return of_item, list(numbers)


def _codes(array: pa.DictionaryArray) -> tuple[IntArray, list[Any]]:
    """Return codes and the value that each stands for."""
    return dictionary_codes(array), [*python_values(array.dictionary), None]
