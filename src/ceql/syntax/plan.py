"""The bound query: every name is resolved, every type is known, and nothing can go wrong later.

Formulas mirror those of the AST, except that a FILTER's conditions are in disjunctive
form: each alternative of an OR is a separate `Filter` under an `Or`, as the paper's footnote defines it. Predicates
carry the kinds that decide how they are computed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Self, TypeVar

import pyarrow as pa

from ceql.parameters import Values
from ceql.schema import UNKNOWN_TYPE, Attributes, EventType, Kind
from ceql.syntax.ast import Consumption, Gap, Strategy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from fractions import Fraction

MATCH_START, MATCH_END = "match_start", "match_end"


MIRRORED = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
"""The comparison that means the same after its sides are exchanged."""


Part = TypeVar("Part")


def _parts(node: Expression | Formula, kind: type[Part]) -> Iterator[Part]:
    """Yield the parts of a node that are of a class, in the order of its fields."""
    for field in fields(node):
        value = getattr(node, field.name)
        yield from (part for part in (value if isinstance(value, tuple) else (value,)) if isinstance(part, kind))


# Expressions: functions of one event. None of them knows variables or streams.


@dataclass(frozen=True, slots=True)
class Expression:
    """A value computed from one event; for a condition it is TRUE, FALSE or NULL."""

    def children(self) -> Iterator[Expression]:
        """Yield the expressions directly below this one, in the order of the text."""
        return _parts(self, Expression)

    def walk(self) -> Iterator[Expression]:
        """Yield this expression and all below it, each before its children."""
        yield self
        for child in self.children():
            yield from child.walk()

    def map(self, change: Callable[[Expression], Expression]) -> Self:
        """Return the same expression with its children changed."""
        changed: dict[str, object] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Expression):
                changed[field.name] = change(value)
            elif isinstance(value, tuple):
                changed[field.name] = tuple(change(part) if isinstance(part, Expression) else part for part in value)
        return replace(self, **changed) if changed else self


@dataclass(frozen=True, slots=True)
class Column(Expression):
    """The event's attribute."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Field(Expression):
    """A part of a struct, NULL if the struct is NULL."""

    value: Expression
    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Item(Expression):
    """The item of a list that `AnyItem` looks at."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class AnyItem(Expression):
    """Whether some item of a list satisfies a predicate; NULL if none does, but for one it is NULL."""

    items: Expression
    predicate: Expression


ITEM = "\0item"
"""Where the item is among the attributes, when the predicate of an `AnyItem` is evaluated."""


@dataclass(frozen=True, slots=True)
class Constant(Expression):
    """A value from the query, already of the kind it is compared with.

    Times are nanoseconds since 1970, and durations nanoseconds.
    `kind` is part of equality, because 1, True and Decimal(1) are equal in Python.
    """

    value: int | float | Decimal | Fraction | str | bool | None
    kind: Kind


@dataclass(frozen=True, slots=True)
class Arithmetic(Expression):
    """A chain evaluated from the left: integers in 64 bits, all else (and `/`) in doubles.

    Overflow, and division by zero, give NULL.
    """

    operands: tuple[Expression, ...]
    operators: tuple[str, ...]
    kind: Kind


@dataclass(frozen=True, slots=True)
class Negative(Expression):
    """`-value`, NULL on overflow."""

    value: Expression
    kind: Kind


@dataclass(frozen=True, slots=True)
class TimeSum(Expression):
    """Times and durations, added up and subtracted exactly."""

    operands: tuple[Expression, ...]
    operators: tuple[str, ...]
    kind: Kind


@dataclass(frozen=True, slots=True)
class Compare(Expression):
    """`left operator right`; `as_doubles` if two columns have different numeric kinds."""

    left: Expression
    operator: str
    right: Expression
    as_doubles: bool

    def mirrored(self) -> Compare:
        """Return the comparison that means the same with its sides exchanged."""
        return Compare(self.right, MIRRORED[self.operator], self.left, self.as_doubles)


@dataclass(frozen=True, slots=True)
class InSet(Expression):
    """Whether the value is one of some constants; NULL instead of FALSE if NULL is among them."""

    value: Expression
    items: tuple[Constant, ...]
    has_null: bool


@dataclass(frozen=True, slots=True)
class InList(Expression):
    """Whether the value is one of many; NULL instead of FALSE if NULL is among them."""

    value: Expression
    values: Values
    has_null: bool


@dataclass(frozen=True, slots=True)
class Matches(Expression):
    """Whether a string contains a match of a portable regular expression (see `patterns`)."""

    value: Expression
    regex: str


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """The value of a function (see `functions`), named in capitals."""

    function: str
    arguments: tuple[Expression, ...]
    kind: Kind


@dataclass(frozen=True, slots=True)
class Case(Expression):
    """The first value whose condition is TRUE, `otherwise` if none is."""

    conditions: tuple[Expression, ...]
    values: tuple[Expression, ...]
    otherwise: Expression
    kind: Kind


@dataclass(frozen=True, slots=True)
class IsNull(Expression):
    """Whether the value is NULL."""

    value: Expression


@dataclass(frozen=True, slots=True)
class Not(Expression):
    """Negation in three-valued logic."""

    predicate: Expression


@dataclass(frozen=True, slots=True)
class All(Expression):
    """Conjunction in three-valued logic."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Any(Expression):
    """Disjunction in three-valued logic."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class HasType(Expression):
    """Whether the event is of a type, and of a stream if one is named."""

    event_type: str
    stream: str | None = None


def kind_of_value(expression: Expression) -> Kind:
    """Return the kind of an expression's value."""
    kind: Kind = getattr(expression, "kind", Kind.BOOLEAN)
    return kind


def replaced(expression: Expression, replacement: Callable[[Expression], Expression | None]) -> Expression:
    """Return an expression with all parts replaced that have a replacement, the largest parts first."""
    found = replacement(expression)
    return expression.map(lambda part: replaced(part, replacement)) if found is None else found


# Formulas: what to look for.


@dataclass(frozen=True, slots=True)
class Formula:
    """A pattern over a stream."""

    def children(self) -> Iterator[Formula]:
        """Yield the formulas directly below this one, in the order of the text."""
        return _parts(self, Formula)

    def walk(self) -> Iterator[Formula]:
        """Yield this formula and all below it, each before its children."""
        yield self
        for child in self.children():
            yield from child.walk()

    @property
    def may_be_empty(self) -> bool:
        """Whether the formula also finds nothing at all, wherever it looks."""
        return any(child.may_be_empty for child in self.children())


@dataclass(frozen=True, slots=True)
class Atom(Formula):
    """One event of a type, or of any type if none is given, that satisfies some predicates."""

    event_type: str | None
    stream: str | None
    predicates: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class As(Formula):
    """The formula; a variable also holds its marked positions."""

    formula: Formula
    variable: str


@dataclass(frozen=True, slots=True)
class Iteration(Formula):
    """The formula `least` to `most` times, one after the other; None means any number of times."""

    formula: Formula
    gap: Gap
    least: int
    most: int | None

    @property
    def may_be_empty(self) -> bool:
        """Whether there may be no round, or only empty ones."""
        return self.least == 0 or self.formula.may_be_empty


@dataclass(frozen=True, slots=True)
class Sequence(Formula):
    """Formulas one after the other; `gaps[i]` says what may lie after part i.

    `absent[i]` is what may not lie there, None if there is no such thing. `before` and `after` are what may not come
    for some time before or after all parts; `Plan` says how long.
    """

    parts: tuple[Formula, ...]
    gaps: tuple[Gap, ...]
    absent: tuple[Absent | None, ...]
    before: Absent | None = None
    after: Absent | None = None

    @property
    def may_be_empty(self) -> bool:
        """Whether all parts may be empty."""
        return all(part.may_be_empty for part in self.parts)


@dataclass(frozen=True, slots=True)
class Permutation(Formula):
    """Formulas one after the other, in any order; any events may lie in between."""

    parts: tuple[Formula, ...]

    @property
    def may_be_empty(self) -> bool:
        """Whether all parts may be empty."""
        return all(part.may_be_empty for part in self.parts)


@dataclass(frozen=True, slots=True)
class Absent:
    """Events that may not lie in a gap: the formula finds single events."""

    formula: Formula


@dataclass(frozen=True, slots=True)
class Without(Formula):
    """The formula, with nothing of something else in any of its gaps."""

    formula: Formula
    absent: Absent


@dataclass(frozen=True, slots=True)
class Or(Formula):
    """What any of the formulas finds."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Filter(Formula):
    """The formula, if each variable's events satisfy all the predicates given for it."""

    formula: Formula
    conditions: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class Project(Formula):
    """The formula, with all other variables emptied."""

    formula: Formula
    variables: frozenset[str]


# The query around the formula.


class Multiplicity(Enum):
    """How many events a variable binds in a match."""

    ONE = "exactly one"
    OPTIONAL = "at most one"
    SEVERAL = "any number"


@dataclass(frozen=True, slots=True)
class Variable:
    """A selected variable: its column in the result, with the attributes of its events that are shown."""

    name: str
    multiplicity: Multiplicity
    attributes: tuple[tuple[str, pa.DataType], ...]

    @property
    def struct(self) -> pa.StructType:
        """The struct of one event in the result."""
        return pa.struct([pa.field(name, data_type) for name, data_type in self.attributes])

    @property
    def field(self) -> pa.Field:
        """The variable's column: a struct if it binds one event, a list of structs otherwise."""
        if self.multiplicity is Multiplicity.SEVERAL:
            return pa.field(self.name, pa.list_(pa.field("item", self.struct, nullable=False)), nullable=False)
        return pa.field(self.name, self.struct, nullable=self.multiplicity is Multiplicity.OPTIONAL)


@dataclass(frozen=True, slots=True)
class EventsWindow:
    """At most `count` positions of the partition's stream from first to last event."""

    count: int


@dataclass(frozen=True, slots=True)
class AttributeWindow:
    """At most `size` between an attribute's value at the first and at the last event.

    For timestamps and dates the size is in nanoseconds.
    """

    attribute: str
    kind: Kind
    size: int | Decimal


@dataclass(frozen=True, slots=True)
class Plan:
    """A bound query.

    `attributes` are the attributes of the event types in the pattern. `named` are the attributes that the query names,
    even if the automaton does not use them. `declared` are the attributes of every event type that CREATE STREAM
    declares in a stream of FROM. `order` are the columns that order the stream. `bounds` names the attribute that
    `match_start` and `match_end` show, None for the row number.

    `silence_before` and `silence_after` say how long what NOT ... FOR names may not come before and after a match. Both
    measure the same attribute, which is that of a window on an attribute. With a silence after it, a match stands only
    at its deadline, which is what `match_end` shows.
    """

    formula: Formula
    strategy: Strategy
    sources: tuple[str, ...]
    variables: tuple[Variable, ...]
    partition_by: tuple[str, ...]
    window: EventsWindow | AttributeWindow | None
    consumption: Consumption
    limit: int | None
    attributes: tuple[tuple[str, pa.DataType], ...]
    named: frozenset[str]
    declared: Mapping[EventType, Attributes]
    order: tuple[str, ...]
    bounds: str | None
    silence_before: AttributeWindow | None = None
    silence_after: AttributeWindow | None = None

    @property
    def reach(self) -> AttributeWindow | None:
        """How far apart events may be that the same match depends on; None if no attribute bounds it."""
        if not isinstance(self.window, AttributeWindow):
            return None
        return replace(self.window, size=self.window.size + sum(silence.size for silence in self.silences))

    @property
    def silences(self) -> tuple[AttributeWindow, ...]:
        """The silences that the query asks for."""
        return tuple(silence for silence in (self.silence_before, self.silence_after) if silence is not None)

    def lacked_by(self, stream: str, event_type: str) -> frozenset[str]:
        """Return the attributes that the query may use and that events of a type do not have.

        They are NULL, even if the row has a value. A type that its stream does not declare has every column.
        """
        own = self.declared.get((stream, event_type))
        return frozenset() if own is None else frozenset(name for name, _ in self.attributes if name not in own)

    @property
    def result_schema(self) -> pa.Schema:
        """The columns of the shape `matches`."""
        types = dict.fromkeys(self.partition_by, UNKNOWN_TYPE) | dict(self.attributes)
        bound_type = pa.int64() if self.bounds is None else types[self.bounds]
        return pa.schema(
            [
                *(pa.field(name, types[name], nullable=pa.types.is_null(types[name])) for name in self.partition_by),
                pa.field(MATCH_START, bound_type),
                pa.field(MATCH_END, bound_type),
                *(variable.field for variable in self.variables),
            ]
        )
