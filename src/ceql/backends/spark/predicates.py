"""Predicates as Spark columns, with the meaning that `predicates.evaluate` gives them.

Nothing here depends on the settings of the session: neither on its time zone, nor on ANSI mode (functions that could
raise are replaced by their `try_` forms), nor on the collation of a column. Constants become values of the column's
type (see `syntax.cuts`), so that the column needs no cast and the scan can use the comparison.

Scans skip parts of a file by their statistics, which do not follow Spark's order of doubles: Parquet's statistics
ignore NaN, and its dictionaries treat -0.0 and 0.0 as different. A scan with `x > 1.0` would lose rows with NaN. So
`x > 1.0` is written as `x > 1.0 OR isnan(x)`, which no scan uses, and the row filter adds a weaker condition that
scans can use.

Some conditions are left out of the row filter, because Spark's answer would not be safe or not exact. The filter then
lets more rows through:
- an RLIKE that repeats a group, or is very long: Java's matcher recurses, and a string of a few thousand
  characters crashes the JVM;
- an RLIKE for which Java's matcher, which backtracks, may take more than linear time;
- arithmetic with hundreds of operands, which overflows the stack of Spark's optimizer;
- a double compared with a number of another kind, where the query was bound to one kind: the merged streams
  have the attribute in different types;
- functions for which Spark has no equal, and times that are computed more finely than in microseconds;
- the items of lists.
LOWER, UPPER and what ignores case are asked only about ASCII text; rows with other text are let through.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's own documentation writes it
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DecimalType

from ceql.automaton.cea import Guard
from ceql.automaton.lazy import Alphabet
from ceql.automaton.needed import needed_guards
from ceql.automaton.predicates import Event, evaluate
from ceql.automaton.properties import sees_every_event
from ceql.backends.spark.java_patterns import is_safe_in_java
from ceql.engine.intake.classes import columns_of
from ceql.functions import FUNCTIONS
from ceql.functions.entry import INTEGER
from ceql.functions.times import MICROS_PER_DAY
from ceql.query import Query
from ceql.schema import Kind, kind_of
from ceql.syntax import plan
from ceql.syntax.cuts import at_or_above, in_type
from ceql.syntax.times import NANOSECONDS_PER_DAY, nanoseconds, write_time

MAX_OPERANDS = 100
"""Most operands of an arithmetic chain that is given to Spark, whose optimizer uses stack for each of them."""

AFTER_LAST_DAY = nanoseconds(date.max) + NANOSECONDS_PER_DAY
"""The first moment after the year 9999, which literals cannot express. All events are assumed to be earlier."""

BINARY = "UTF8_BINARY"
MAX_DIGITS = 38

MICROS = pa.duration("us")
"""The type of computed times and durations: microseconds, for times since 1970, as a long."""

NOT_ASCII = "[^\\x00-\\x7f]"
"""Finds text that Java may bring into another case than Arrow."""

_COMPUTED_TYPES = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INTEGER: pa.int64(),
    Kind.FLOAT: pa.float64(),
    Kind.STRING: pa.string(),
    **{kind: MICROS for kind in Kind if kind.is_in_nanoseconds},
}

_OPPOSITES = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPERATIONS: dict[str, Callable[[Column, Column], Column]] = {
    "+": F.try_add,
    "-": F.try_subtract,
    "*": F.try_multiply,
    "/": F.try_divide,
    "%": F.try_mod,
}


def row_conditions(
    query: Query, type_column: str | None, types: Mapping[str, pa.DataType], *, stream_column: str | None = None
) -> tuple[Column | None, tuple[Column, ...]]:
    """Return the row filter, and conditions that each hold for at least one row of every match.

    The row filter holds for every row that a match may need; it is None if all rows are needed.

    Args:
        query: the query, which also decides whether rows may be left out at all.
        type_column: the column that holds event types; None if every event has its stream's name as type.
        types: the columns of the DataFrame.
        stream_column: the column that holds the names of streams, where there are several.
    """
    if sees_every_event(query.plan, query.automaton):
        return None, ()
    guards = Alphabet.of(query.automaton).guards
    rows = Translation(type_column, types, stream_column)
    parts = [(guard, part, own) for guard in guards for part, own in _by_attributes(query.plan, guard, rows)]
    translations = [own for _, _, own in parts]
    certain = [own.weakened(part, own.is_certain) for _, part, own in parts]
    simple = [own.weakened(part, own.is_simple) for _, part, own in parts]
    # PERF: a Column takes milliseconds to make, so both results use the same Columns.
    conditions = _conditions(translations, certain)
    exact = _any_of(conditions)
    at_scan = None if simple == certain else _any_of(_conditions(translations, simple))
    of_guard: dict[Guard, list[Column | None]] = {}
    for (guard, _, _), condition in zip(parts, conditions, strict=True):
        of_guard.setdefault(guard, []).append(condition)
    needed = [_any_of(of_guard[guard]) for guard in needed_guards(query.automaton)]
    row_filter = exact if exact is None or at_scan is None else at_scan & exact
    return row_filter, tuple(condition for condition in needed if condition is not None)


def _by_attributes(query: plan.Plan, guard: Guard, rows: Translation) -> Iterator[tuple[Guard, Translation]]:
    """Yield a guard with a translation that knows which attributes the event type lacks.

    If the type has different attributes in different streams, yield a guard for each stream. If the guard asks for no
    type, yield it also for each type that lacks an attribute: a row that holds a value there may satisfy `v IS NULL`.
    """
    asked = next((predicate for predicate in guard if isinstance(predicate, plan.HasType)), None)
    if asked is None:
        yield guard, rows
        columns = frozenset().union(*map(columns_of, guard))
        for stream, event_type in query.declared:
            if own_lacked := query.lacked_by(stream, event_type) & columns:
                own_type = plan.HasType(event_type, stream if len(query.sources) > 1 else None)
                yield guard | {own_type}, rows.without(own_lacked)
        return
    streams = query.sources if asked.stream is None else (asked.stream,)
    lacked = {stream: query.lacked_by(stream, asked.event_type) for stream in streams}
    if len(set(lacked.values())) == 1:
        yield guard, rows.without(lacked[streams[0]])
        return
    for stream in streams:
        yield (guard - {asked}) | {plan.HasType(asked.event_type, stream)}, rows.without(lacked[stream])


def _conditions(translations: list[Translation], predicates: list[plan.Expression | None]) -> list[Column | None]:
    pairs = zip(translations, predicates, strict=True)
    return [None if predicate is None else translation.condition(predicate) for translation, predicate in pairs]


def _any_of(conditions: list[Column | None]) -> Column | None:
    known = [condition for condition in conditions if condition is not None]
    return _joined(known, operator.or_) if known and len(known) == len(conditions) else None


@dataclass(frozen=True)
class Translation:
    """Turns predicates into columns of one DataFrame. A column that is not among `types` is NULL.

    For a row without an event type, `HasType` is NULL. If no column holds the type, every row has the type that is
    asked for.
    """

    type_column: str | None
    types: Mapping[str, pa.DataType]
    stream_column: str | None

    def without(self, names: Collection[str]) -> Translation:
        """Return a translation for rows in which some columns are NULL, whatever they hold."""
        kept = {name: data_type for name, data_type in self.types.items() if name not in names}
        return replace(self, types=kept)

    def condition(self, predicate: plan.Expression, *, is_negated: bool = False) -> Column:
        """Return a predicate, or its negation, as a boolean Column: TRUE, FALSE or NULL as `predicates.evaluate` says.

        Negation is moved to the leaves here. Otherwise Spark's optimizer would do it, and turn NOT x < 1 into
        x >= 1, which ignores NaN.
        """
        if not columns_of(predicate):
            value = evaluate(predicate, Event("", {}))
            return F.lit(value if value is None else value is not is_negated).cast("boolean")
        match predicate:
            case plan.Not():
                return self.condition(predicate.predicate, is_negated=not is_negated)
            case plan.All() | plan.Any():
                parts = [self.condition(part, is_negated=is_negated) for part in predicate.parts]
                is_conjunction = isinstance(predicate, plan.All) is not is_negated
                return _joined(parts, operator.and_ if is_conjunction else operator.or_)
            case plan.Compare():
                return self._compare(predicate, _OPPOSITES[predicate.operator] if is_negated else predicate.operator)
            case plan.InSet():
                return self._in_set(predicate, is_negated=is_negated)
        column = self._leaf(predicate)
        return ~column if is_negated else column

    def _leaf(self, predicate: plan.Expression) -> Column:
        match predicate:
            case plan.HasType():
                return self._has_type(predicate)
            case plan.IsNull():
                value = self._value(predicate.value)
                return F.lit(col=True) if value is None else value[0].isNull()
            case plan.Matches():
                value = self._value(predicate.value)
                return _null() if value is None else F.collate(value[0], BINARY).rlike(predicate.regex)
            case plan.Column() | plan.Field() | plan.Call() | plan.Case():
                value = self._value(predicate)
                return _null() if value is None else value[0]
        raise AssertionError(f"no rule for {type(predicate).__name__}")

    def _has_type(self, predicate: plan.HasType) -> Column:
        asked = [(self.type_column or self.stream_column, predicate.event_type), (self.stream_column, predicate.stream)]
        parts = [F.col(quoted(name)) == _string(value) for name, value in asked if name and value is not None]
        return _joined(parts, operator.and_) if parts else F.lit(col=True)

    def _value(self, predicate: plan.Expression) -> tuple[Column, pa.DataType] | None:
        """Return a value with its type; None for a value that is NULL in every row."""
        match predicate:
            case plan.Column():
                data_type = self.types.get(predicate.name)
                is_null = data_type is None or pa.types.is_null(data_type)
                return None if is_null else (F.col(quoted(predicate.name)), data_type)
            case plan.Field():
                whole = self._value(predicate.value)
                if whole is None:
                    return None
                return whole[0].getField(predicate.name), whole[1].field(predicate.name).type
            case plan.Arithmetic() | plan.Negative():
                return self._number(predicate)
            case plan.Call():
                column = self._call(predicate)
                assert column is not None, "Spark is only asked what it can answer"
                return column, _COMPUTED_TYPES[predicate.kind]
            case plan.Case():
                return self._case(predicate), _COMPUTED_TYPES[predicate.kind]
            case plan.TimeSum():
                return self._time_sum(predicate), MICROS
        holds, fails = self.condition(predicate), self.condition(predicate, is_negated=True)
        return F.when(holds, F.lit(col=True)).when(fails, F.lit(col=False)), pa.bool_()

    # Functions

    def _call(self, call: plan.Call) -> Column | None:
        """Return a function's value; None if Spark cannot be asked."""
        function = FUNCTIONS[call.function]
        kinds = [plan.kind_of_value(argument) for argument in call.arguments]
        is_answered = call.kind in _COMPUTED_TYPES and not {Kind.UNKNOWN, Kind.LIST}.intersection(kinds)
        if function.spark is None or not is_answered:
            return None
        if Kind.NULL in kinds and not function.takes_null:
            return F.lit(None).cast(from_arrow_type(_held(_COMPUTED_TYPES[call.kind])))
        arguments: list[Any] = []
        for number, argument in enumerate(call.arguments):
            kind = function.kind_of_argument(call.kind, number) or kinds[number]
            if function.taken(number) is INTEGER and not columns_of(argument):
                arguments.append(evaluate(argument, Event("", {})))
            else:
                arguments.append(self._computed(argument, kind))
        column: Column | None = function.spark(F, *arguments)
        return column.cast("bigint") if column is not None and call.kind is Kind.INTEGER else column

    def _case(self, case: plan.Case) -> Column:
        found = self._computed(case.otherwise, case.kind)
        for condition, value in zip(reversed(case.conditions), reversed(case.values), strict=True):
            found = F.when(self.condition(condition), self._computed(value, case.kind)).otherwise(found)
        return found

    def _time_sum(self, part: plan.TimeSum) -> Column:
        first, *others = (self._computed(operand, Kind.DURATION) for operand in part.operands)
        for sign, other in zip(part.operators, others, strict=True):
            first = _OPERATIONS[sign](first, other)
        return first

    def _computed(self, part: plan.Expression, kind: Kind) -> Column:
        """Return a value as functions compute with it: in the type of computed columns of a kind."""
        data_type = _COMPUTED_TYPES[kind]
        if not columns_of(part):
            constant = evaluate(part, Event("", {}))
            is_known = constant is not None
            return _literal(constant, data_type) if is_known else F.lit(None).cast(from_arrow_type(_held(data_type)))
        value = self._value(part)
        if value is None:
            return F.lit(None).cast(from_arrow_type(_held(data_type)))
        column, own = value
        match kind:
            case Kind.STRING:
                return F.collate(column, BINARY)
            case Kind.INTEGER:
                return column.cast("bigint")
            case Kind.FLOAT:
                return _as_double(value)
            case Kind.BOOLEAN:
                return column
        return _micros(column, own)

    # Comparisons

    def _compare(self, predicate: plan.Compare, sign: str) -> Column:
        left, right = predicate.left, predicate.right
        if predicate.as_doubles:
            numbers = self._number(left), self._number(right)
            doubles = [_as_double(number) for number in numbers if number is not None]
            return _COMPARISONS[sign](*doubles) if len(doubles) == 2 else _null()
        if not columns_of(left):
            left, right, sign = right, left, plan.MIRRORED[sign]
        value = self._value(left)
        if not columns_of(right):
            constant = evaluate(right, Event("", {}))
            return _null() if value is None or constant is None else _compared_with_constant(*value, sign, constant)
        other = self._value(right)
        return _null() if value is None or other is None else _compared(*value, sign, *other)

    def _in_set(self, predicate: plan.InSet, *, is_negated: bool) -> Column:
        value = self._value(predicate.value)
        if value is None:
            return _null()
        column, data_type = value
        join = operator.and_ if is_negated else operator.or_
        items = [item.value for item in predicate.items]
        if not items:
            found = [_where_present(column, truth=is_negated)]
            return _joined([*found, *([_null()] if predicate.has_null else [])], join)
        if kind_of(data_type) is Kind.FLOAT:
            sign = "!=" if is_negated else "="
            found = [_compared_with_constant(column, data_type, sign, item) for item in items]
        else:
            literals = [_literal(item, data_type) for item in items if _is_value_of(data_type, item)]
            is_in = column.isin(literals) if literals else _where_present(column, truth=False)
            found = [~is_in if is_negated else is_in]
        return _joined([*found, *([_null()] if predicate.has_null or not found else [])], join)

    # Arithmetic

    def _number(self, predicate: plan.Expression) -> tuple[Column, pa.DataType] | None:
        """Return an operand as arithmetic needs it, a long or a double."""
        if not columns_of(predicate):
            constant = evaluate(predicate, Event("", {}))
            is_double = isinstance(constant, float | Decimal)
            data_type = pa.float64() if is_double else pa.int64()
            return None if constant is None else (_literal(constant, data_type), data_type)
        match predicate:
            case plan.Arithmetic():
                return self._arithmetic(predicate)
            case plan.Negative():
                value = self._number(predicate.value)
                return None if value is None else (F.try_subtract(_literal(0, value[1]), value[0]), value[1])
        value = self._value(predicate)
        if value is None:
            return None
        is_integer = kind_of(value[1]) is Kind.INTEGER and plan.kind_of_value(predicate) is not Kind.FLOAT
        return (value[0].cast("bigint"), pa.int64()) if is_integer else (_as_double(value), pa.float64())

    def _arithmetic(self, predicate: plan.Arithmetic) -> tuple[Column, pa.DataType] | None:
        operands = [self._number(operand) for operand in predicate.operands]
        present = [operand for operand in operands if operand is not None]
        if len(present) < len(operands):
            return None
        result, data_type = present[0]
        for sign, (operand, other_type) in zip(predicate.operators, present[1:], strict=True):
            if sign == "/" or data_type != other_type:
                result, operand = _as_double((result, data_type)), _as_double((operand, other_type))
                data_type = pa.float64()
            result = _OPERATIONS[sign](result, operand)
            if data_type == pa.int64():
                # Spark's optimizer regroups chains of + or *, and then they overflow at other rows. This prevents it.
                result = result.bitwiseOR(_literal(0, data_type))
        return result, data_type

    # What may be left out of a filter

    def weakened(
        self, guard: Iterable[plan.Expression], is_wanted: Callable[[plan.Expression], bool]
    ) -> plan.Expression | None:
        """Return a condition that has only wanted leaves and holds wherever the guard does; None if there is none."""
        parts = sorted(guard, key=lambda part: (not isinstance(part, plan.HasType), repr(part)))
        return _weakened(plan.All(tuple(parts)), is_wanted, is_negated=False)

    def is_certain(self, leaf: plan.Expression) -> bool:
        """Whether Spark's answer for a leaf is exact, and asking is safe."""
        # What a part reads is asked before the part itself.
        return all(self._is_certain(part) for part in reversed(list(leaf.walk())))

    def _is_certain(self, part: plan.Expression) -> bool:
        match part:
            case plan.HasType():
                return self.type_column is not None or self.stream_column is not None
            case plan.Matches():
                return is_safe_in_java(part.regex)
            case plan.Arithmetic():
                return len(part.operands) <= MAX_OPERANDS
            case plan.AnyItem() | plan.InList():
                return False
            case plan.Field():
                return self._is_told_apart(part)
            case plan.TimeSum():
                return len(part.operands) <= MAX_OPERANDS and all(map(_is_in_micros, part.operands))
            case plan.Case():
                return part.kind in _COMPUTED_TYPES and all(map(_is_in_micros, (*part.values, part.otherwise)))
            case plan.Call():
                is_exact = all(map(_is_in_micros, part.arguments))
                return is_exact and (not columns_of(part) or self._call(part) is not None)
            case plan.Compare(as_doubles=False) if columns_of(part.left) and columns_of(part.right):
                values = [self._value(side) for side in (part.left, part.right)]
                kinds = {kind_of(value[1]) for value in values if value is not None}
                return Kind.FLOAT not in kinds or len(kinds) == 1
        return True

    def _is_told_apart(self, field: plan.Field) -> bool:
        """Whether Spark, which ignores case, finds a part of a struct by its name."""
        whole = self._value(field.value)
        return whole is None or [part.name.lower() for part in whole[1]].count(field.name.lower()) == 1

    def is_simple(self, leaf: plan.Expression) -> bool:
        """Whether a leaf is certain, and a scan that uses it loses no row."""
        bare = leaf.predicate if isinstance(leaf, plan.Not) else leaf
        is_negated = bare is not leaf
        match bare:
            case plan.HasType() | plan.Column():
                return self.is_certain(bare)
            case plan.IsNull(value=plan.Column()):
                return True
            case plan.InSet(value=plan.Column() as column):
                return not bare.has_null and not (is_negated and self._is_float(column))
            case plan.Compare(as_doubles=False):
                compare = bare if columns_of(bare.left) else bare.mirrored()
                if not isinstance(compare.left, plan.Column) or columns_of(compare.right):
                    return False
                return compare.operator in ("=", "<", "<=") or not self._is_float(compare.left)
        return False

    def _is_float(self, column: plan.Column) -> bool:
        data_type = self.types.get(column.name)
        return data_type is not None and kind_of(data_type) is Kind.FLOAT


def _weakened(
    predicate: plan.Expression, is_wanted: Callable[[plan.Expression], bool], *, is_negated: bool
) -> plan.Expression | None:
    match predicate:
        case plan.Not():
            return _weakened(predicate.predicate, is_wanted, is_negated=not is_negated)
        case plan.All() | plan.Any():
            parts = [_weakened(part, is_wanted, is_negated=is_negated) for part in predicate.parts]
            kept = tuple(part for part in parts if part is not None)
            if isinstance(predicate, plan.All) is not is_negated:
                return plan.All(kept) if kept else None
            return plan.Any(kept) if len(kept) == len(parts) else None
        case plan.Compare() if is_negated:
            leaf: plan.Expression = plan.Compare(
                predicate.left, _OPPOSITES[predicate.operator], predicate.right, predicate.as_doubles
            )
        case _:
            leaf = plan.Not(predicate) if is_negated else predicate
    if not is_wanted(leaf):
        return None
    calls = [part for part in leaf.walk() if isinstance(part, plan.Call) and FUNCTIONS[part.function].ascii_only]
    others = tuple(plan.Matches(call.arguments[0], NOT_ASCII) for call in calls if columns_of(call))
    return plan.Any((leaf, *dict.fromkeys(others))) if others else leaf


def _is_in_micros(part: plan.Expression) -> bool:
    """Whether a value has no time or duration finer than microseconds."""
    is_time = isinstance(part, plan.Constant) and part.kind.is_in_nanoseconds and part.value is not None
    return not is_time or Fraction(part.value) % 1000 == 0  # type: ignore[attr-defined]


def _held(data_type: pa.DataType) -> pa.DataType:
    """Return the Arrow type of the column that holds values of a type."""
    return pa.int64() if data_type == MICROS else data_type


def _micros(column: Column, data_type: pa.DataType) -> Column:
    """Return times and durations as microseconds, for times since 1970, whatever the session's time zone is."""
    if data_type == MICROS:
        return column
    if pa.types.is_date(data_type):
        return F.unix_date(column).cast("bigint") * F.lit(MICROS_PER_DAY)
    if data_type.tz is not None:
        return F.unix_micros(column)
    seconds = F.extract(F.lit("SECOND"), column) * F.lit(10**6)
    minutes = F.hour(column) * F.lit(60) + F.minute(column)
    days = F.unix_date(column.cast("date")).cast("bigint")
    return days * F.lit(MICROS_PER_DAY) + minutes.cast("bigint") * F.lit(60 * 10**6) + seconds.cast("bigint")


def _joined(columns: Sequence[Column], join: Callable[[Column, Column], Column]) -> Column:
    """Return columns joined as a balanced tree, because Spark uses stack for each level."""
    while len(columns) > 1:
        pairs = [columns[at : at + 2] for at in range(0, len(columns), 2)]
        columns = [join(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return columns[0]


def _null() -> Column:
    return F.lit(None).cast("boolean")


def _where_present(column: Column, *, truth: bool) -> Column:
    return F.when(column.isNotNull(), F.lit(truth))


def _as_double(value: tuple[Column, pa.DataType]) -> Column:
    return value[0] if value[1] == pa.float64() else value[0].cast("double")


def quoted(name: str) -> str:
    """Return a column's name as `F.col` needs it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


# Constants


def _literal(value: Any, data_type: pa.DataType) -> Column:
    """Return a constant as a literal of a column's type; the type must have this value."""
    match kind_of(data_type):
        case Kind.STRING:
            return _string(value)
        case Kind.BOOLEAN:
            return F.lit(value)
        case Kind.TIMESTAMP | Kind.LOCAL_TIMESTAMP | Kind.DATE:
            # The text names the zone if there is one. A datetime would be read in the zone of this process.
            value = write_time(value, kind_of(data_type))
        case Kind.DECIMAL:
            value = at_or_above(value, data_type)
        case Kind.FLOAT:
            value = float(value)
        case Kind.INTEGER:
            value = int(value)
        case Kind.DURATION:
            return F.lit(int(value // 1000)).cast("bigint")
    return F.lit(value).cast(from_arrow_type(data_type, prefer_timestamp_ntz=True))


def _string(value: str) -> Column:
    return F.collate(F.lit(value), BINARY)


def _is_value_of(data_type: pa.DataType, constant: Any) -> bool:
    """Whether some value of the type equals the constant."""
    kind = kind_of(data_type)
    return not (kind.is_numeric or kind.is_in_nanoseconds) or in_type("=", constant, data_type) is not False


def _digits(data_type: pa.DataType) -> tuple[int, int]:
    """Return how many digits a decimal or integer type has before and after the point."""
    if pa.types.is_decimal(data_type):
        return data_type.precision - data_type.scale, data_type.scale
    return len(str(2 ** (data_type.bit_width - 1))), 0


# Comparisons


def _compared_with_constant(column: Column, data_type: pa.DataType, sign: str, constant: Any) -> Column:
    kind = kind_of(data_type)
    if not kind.is_numeric and not kind.is_in_nanoseconds:
        result: Column = _COMPARISONS[sign](column, _literal(constant, data_type))
        return result
    if isinstance(constant, float) and math.isnan(constant):
        is_nan: Column = _COMPARISONS[sign](F.when(column.isNotNull(), F.isnan(column)), F.lit(col=True))
        return is_nan
    asked = in_type(sign, constant, data_type)
    if isinstance(asked, bool):
        return _where_present(column, truth=asked)
    sign, value = asked
    if kind.is_time and value >= AFTER_LAST_DAY:
        return _where_present(column, truth=sign in ("<", "<=", "!="))
    if kind is Kind.FLOAT:
        return _float_compared(column, sign, float(value), data_type)
    whole: Column = _COMPARISONS[sign](column, _literal(value, data_type))
    return whole


def _float_compared(column: Column, sign: str, value: float, data_type: pa.DataType) -> Column:
    """Return a comparison that does not make scans lose -0.0 or NaN."""
    if value == 0 and sign == "=":
        return (column >= _literal(-0.0, data_type)) & (column <= _literal(0.0, data_type))
    compared: Column = _COMPARISONS[sign](column, _literal(value, data_type))
    return compared | F.isnan(column) if sign in (">", ">=", "!=") else compared


def _compared(left: Column, left_type: pa.DataType, sign: str, right: Column, right_type: pa.DataType) -> Column:
    """Return a comparison of two columns."""
    kinds = {kind_of(left_type), kind_of(right_type)}
    if Kind.DECIMAL in kinds and Kind.FLOAT not in kinds:
        left, right = _alike(left, left_type, right, right_type)
    if Kind.DURATION in kinds:
        left, right = _micros(left, left_type), _micros(right, right_type)
    if Kind.STRING in kinds:
        left = F.collate(left, BINARY)
    result: Column = _COMPARISONS[sign](left, right)
    return result


def _alike(left: Column, left_type: pa.DataType, right: Column, right_type: pa.DataType) -> tuple[Column, Column]:
    """Return decimals (or integers) as two columns of one type that compares them exactly.

    If no decimal type has enough digits for both, each becomes a pair: the part before the point, and the rest.
    """
    digits = [_digits(left_type), _digits(right_type)]
    whole, scale = max(before for before, _ in digits), max(after for _, after in digits)
    if whole + scale <= MAX_DIGITS:
        common = DecimalType(whole + scale, scale)
        return left.cast(common), right.cast(common)
    return _split(left, left_type, whole, scale), _split(right, right_type, whole, scale)


def _split(column: Column, data_type: pa.DataType, whole: int, scale: int) -> Column:
    """Return a number as a struct of its parts before and after the point, both with its sign."""
    before, after = column, F.lit(0)
    if _digits(data_type)[1]:
        before = F.when(column >= F.lit(0), F.floor(column)).otherwise(F.ceil(column))
        after = column % F.lit(Decimal(1))
    parts = before.cast(DecimalType(whole, 0)), after.cast(DecimalType(scale, scale))
    # A struct of NULLs would not be NULL.
    return F.when(column.isNotNull(), F.struct(*parts))
