"""The query as the user wrote it: frozen nodes with spans.

`str(node)` is query text that parses to an equal tree. Spans take no part in equality.
Chains of `;`, `:`, OR, AND and arithmetic are one node with many parts, so that a flat
query of any length is a shallow tree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from ceql.errors import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NOWHERE = Span(0, 0)

RESERVED = frozenset(
    (
        "select",
        "from",
        "where",
        "filter",
        "project",
        "partition",
        "by",
        "within",
        "consume",
        "limit",
        "create",
        "as",
        "and",
        "or",
        "not",
        "in",
        "between",
        "like",
        "rlike",
        "is",
        "null",
        "true",
        "false",
        "_",
    )
)
"""Words that need backticks as names; the grammar's NAME excludes the same words."""

_PLAIN_NAME = re.compile(r"[^\W\d]\w*")


class Strategy(Enum):
    """Which of the matches that end at one event are kept."""

    ALL = "ALL"
    NEXT = "NEXT"
    LAST = "LAST"
    MAX = "MAX"
    STRICT = "STRICT"


class Gap(Enum):
    """What may lie between two parts that follow one another."""

    ANY = ";"
    NOTHING = ":"
    UNFIT = "->"
    """Events with which the second part cannot begin."""


class Consumption(Enum):
    """What is forgotten once a match is found."""

    NONE = "NONE"
    PARTITION = "PARTITION"
    ANY = "ANY"


@dataclass(frozen=True, slots=True)
class Node:
    """A piece of a query. `level` is its binding strength among its kind; stronger is higher."""

    level: ClassVar[int] = 9

    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)

    def children(self) -> Iterator[Node]:
        """Yield the nodes directly below this one, in the order of the text."""
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, Node):
                yield value
            elif isinstance(value, tuple):
                yield from (part for part in value if isinstance(part, Node))

    def at_least(self, level: int) -> str:
        """Return the node's text, in parentheses if it binds weaker than `level`."""
        return str(self) if self.level >= level else f"({self})"


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A name of a stream, event type, variable or attribute, without its backticks."""

    text: str

    def __str__(self) -> str:
        return quoted_name(self.text)


def quoted_name(name: str) -> str:
    """Return a name as a query must write it.

    >>> quoted_name("price"), quoted_name("Create Fine"), quoted_name("from")
    ('price', '`Create Fine`', '`from`')
    """
    is_plain = _PLAIN_NAME.fullmatch(name) and name.lower() not in RESERVED and name.lower() != "none"
    return name if is_plain else "`" + name.replace("`", "``") + "`"


def _joined(parts: Iterable[object], separator: str = ", ") -> str:
    return separator.join(map(str, parts))


class Formula(Node):
    """What to look for in the stream."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Atom(Formula):
    """`R` or `S>R`: one event of a type, from one stream or from any; `_`: one event of any type.

    `R[p]` also demands that the event satisfies a predicate.
    """

    event_type: Name | None
    stream: Name | None = None
    predicate: Predicate | None = None

    def __str__(self) -> str:
        name = "_" if self.event_type is None else str(self.event_type)
        condition = "" if self.predicate is None else f"[{self.predicate}]"
        return (f"{self.stream}>" if self.stream else "") + name + condition


@dataclass(frozen=True, slots=True)
class As(Formula):
    """`f AS x`: variable x also holds every position that f marks."""

    level: ClassVar[int] = 3

    formula: Formula
    variable: Name

    def __str__(self) -> str:
        return f"{self.formula.at_least(3)} AS {self.variable}"


@dataclass(frozen=True, slots=True)
class Iteration(Formula):
    """`f+`, `f*`, `f?`, `f{n}`, `f{n,}`, `f{n,m}`: f several times, one after the other, with `gap` between rounds."""

    level: ClassVar[int] = 3

    formula: Formula
    gap: Gap
    least: int
    most: int | None
    """How many rounds there are; None means any number."""

    def __str__(self) -> str:
        # A `?` right after another repetition is refused: elsewhere it would make that lazy.
        is_twice = self.most == 1 and isinstance(self.formula, Iteration)
        return self.formula.at_least(4 if is_twice else 3) + repetition_text(self.gap, self.least, self.most)


def repetition_text(gap: Gap, least: int, most: int | None) -> str:
    """Return the sign of a repetition, as in `f:+`.

    >>> [repetition_text(Gap.UNFIT, *bounds) for bounds in ((1, None), (0, 1), (2, 2), (2, None), (0, 3))]
    ['->+', '->?', '->{2}', '->{2,}', '->{0,3}']
    """
    signs = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    bounds = str(least) if most == least else f"{least},{'' if most is None else most}"
    return ("" if gap is Gap.ANY else gap.value) + signs.get((least, most), f"{{{bounds}}}")


@dataclass(frozen=True, slots=True)
class Absence(Formula):
    """`NOT f` between two parts of a sequence: nothing of f lies there.

    With a duration, `NOT f FOR 10 minutes`: nothing of f comes so long before or after the other parts.
    """

    level: ClassVar[int] = 3

    formula: Formula
    duration: Window | None = None

    def __str__(self) -> str:
        duration = "" if self.duration is None else f" FOR {self.duration.length}"
        return f"NOT {self.formula.at_least(3)}{duration}"


@dataclass(frozen=True, slots=True)
class Sequence(Formula):
    """`f ; g : h`: one after the other; `gaps[i]` says what may lie after part i."""

    level: ClassVar[int] = 2

    parts: tuple[Formula, ...]
    gaps: tuple[Gap, ...]

    def __str__(self) -> str:
        first, *rest = self.parts
        following = (f" {gap.value} {part.at_least(3)}" for gap, part in zip(self.gaps, rest, strict=True))
        return first.at_least(3) + "".join(following)


@dataclass(frozen=True, slots=True)
class Permutation(Formula):
    """`PERMUTE(f, g)`: each once, one after the other, in any order."""

    parts: tuple[Formula, ...]

    def __str__(self) -> str:
        return f"PERMUTE({_joined(self.parts)})"


@dataclass(frozen=True, slots=True)
class Or(Formula):
    """`f OR g`: what either finds."""

    level: ClassVar[int] = 1

    parts: tuple[Formula, ...]

    def __str__(self) -> str:
        return _joined((part.at_least(2) for part in self.parts), " OR ")


@dataclass(frozen=True, slots=True)
class Filter(Formula):
    """`f FILTER conditions`: what f finds, if the variables' events satisfy the conditions."""

    level: ClassVar[int] = 0

    formula: Formula
    condition: Condition

    def __str__(self) -> str:
        return f"{self.formula} FILTER {self.condition}"


@dataclass(frozen=True, slots=True)
class Project(Formula):
    """`f PROJECT [x, ...]`: what f finds, with all other variables emptied."""

    level: ClassVar[int] = 0

    formula: Formula
    variables: tuple[Name, ...]

    def __str__(self) -> str:
        return f"{self.formula} PROJECT [{_joined(self.variables)}]"


@dataclass(frozen=True, slots=True)
class Without(Formula):
    """`f WITHOUT g`: what f finds, if nothing of g lies between its events."""

    level: ClassVar[int] = 0

    formula: Formula
    absent: Formula

    def __str__(self) -> str:
        return f"{self.formula} WITHOUT {self.absent.at_least(9)}"


class Condition(Node):
    """What the events held by variables must satisfy."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class VariableCondition(Condition):
    """`x[predicate]`: every event that x holds satisfies the predicate."""

    variable: Name
    predicate: Predicate

    def __str__(self) -> str:
        return f"{self.variable}[{self.predicate}]"


@dataclass(frozen=True, slots=True)
class AllConditions(Condition):
    """Conditions joined by AND."""

    level: ClassVar[int] = 1

    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return _joined((part.at_least(2) for part in self.parts), " AND ")


@dataclass(frozen=True, slots=True)
class AnyCondition(Condition):
    """Conditions joined by OR: the union of what each lets through."""

    level: ClassVar[int] = 0

    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return _joined((part.at_least(1) for part in self.parts), " OR ")


class Predicate(Node):
    """A value computed from one event; as a condition it must be boolean."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class AnyPredicate(Predicate):
    """Predicates joined by OR."""

    level: ClassVar[int] = 0

    parts: tuple[Predicate, ...]

    def __str__(self) -> str:
        return _joined((part.at_least(1) for part in self.parts), " OR ")


@dataclass(frozen=True, slots=True)
class AllPredicates(Predicate):
    """Predicates joined by AND."""

    level: ClassVar[int] = 1

    parts: tuple[Predicate, ...]

    def __str__(self) -> str:
        return _joined((part.at_least(2) for part in self.parts), " AND ")


@dataclass(frozen=True, slots=True)
class Not(Predicate):
    """`NOT p`."""

    level: ClassVar[int] = 2

    predicate: Predicate

    def __str__(self) -> str:
        return f"NOT {self.predicate.at_least(2)}"


@dataclass(frozen=True, slots=True)
class Compare(Predicate):
    """`a < b`; the operator is one of = != < <= > >=."""

    level: ClassVar[int] = 3

    left: Predicate
    operator: str
    right: Predicate

    def __str__(self) -> str:
        return f"{self.left.at_least(4)} {self.operator} {self.right.at_least(4)}"


@dataclass(frozen=True, slots=True)
class InSet(Predicate):
    """`a IN {1, 2}`."""

    level: ClassVar[int] = 3

    value: Predicate
    items: tuple[Constant | Duration | Parameter, ...]
    is_negated: bool

    def __str__(self) -> str:
        return f"{self.value.at_least(4)} {_not(self.is_negated)}IN {{{_joined(self.items)}}}"


@dataclass(frozen=True, slots=True)
class InRange(Predicate):
    """`a IN {1..9}`, both ends included."""

    level: ClassVar[int] = 3

    value: Predicate
    low: Constant
    high: Constant
    is_negated: bool

    def __str__(self) -> str:
        return f"{self.value.at_least(4)} {_not(self.is_negated)}IN {{{self.low} .. {self.high}}}"


@dataclass(frozen=True, slots=True)
class Between(Predicate):
    """`a BETWEEN b AND c`, both ends included."""

    level: ClassVar[int] = 3

    value: Predicate
    low: Predicate
    high: Predicate
    is_negated: bool

    def __str__(self) -> str:
        bounds = f"{self.low.at_least(4)} AND {self.high.at_least(4)}"
        return f"{self.value.at_least(4)} {_not(self.is_negated)}BETWEEN {bounds}"


@dataclass(frozen=True, slots=True)
class Like(Predicate):
    """`a LIKE 'x%'`, `a ILIKE 'x%'`, or `a RLIKE 'x.*'` when the pattern is a regular expression."""

    level: ClassVar[int] = 3

    value: Predicate
    pattern: Constant | Parameter
    is_regex: bool
    is_negated: bool
    ignores_case: bool = False

    @property
    def word(self) -> str:
        """The operator."""
        return "RLIKE" if self.is_regex else "ILIKE" if self.ignores_case else "LIKE"

    def __str__(self) -> str:
        return f"{self.value.at_least(4)} {_not(self.is_negated)}{self.word} {self.pattern}"


@dataclass(frozen=True, slots=True)
class IsNull(Predicate):
    """`a IS NULL`."""

    level: ClassVar[int] = 3

    value: Predicate
    is_negated: bool

    def __str__(self) -> str:
        return f"{self.value.at_least(4)} IS {_not(self.is_negated)}NULL"


@dataclass(frozen=True, slots=True)
class Arithmetic(Predicate):
    """A chain of + and -, or of *, / and %, evaluated from the left."""

    operands: tuple[Predicate, ...]
    operators: tuple[str, ...]

    @property
    def level(self) -> int:  # type: ignore[override]
        """Products bind stronger than sums."""
        return 4 if self.operators[0] in "+-" else 5

    def __str__(self) -> str:
        first, *rest = (operand.at_least(self.level + 1) for operand in self.operands)
        return first + "".join(f" {sign} {text}" for sign, text in zip(self.operators, rest, strict=True))


@dataclass(frozen=True, slots=True)
class Negative(Predicate):
    """`-a`; a minus before a number is part of the number instead."""

    level: ClassVar[int] = 6

    value: Predicate

    def __str__(self) -> str:
        text = self.value.at_least(6)
        return f"-({text})" if text.startswith("-") else f"-{text}"


@dataclass(frozen=True, slots=True)
class Call(Predicate):
    """`LOWER(a)`; the function's name is in capitals."""

    function: Name
    arguments: tuple[Predicate, ...]

    def __str__(self) -> str:
        return f"{self.function.text}({_joined(self.arguments)})"


@dataclass(frozen=True, slots=True)
class Branch(Node):
    """`WHEN p THEN v` of a CASE."""

    condition: Predicate
    value: Predicate

    def __str__(self) -> str:
        return f"WHEN {self.condition} THEN {self.value}"


@dataclass(frozen=True, slots=True)
class Case(Predicate):
    """`CASE WHEN p THEN v ELSE w END`, or `CASE a WHEN b THEN v END`, where a is compared with b."""

    compared: Predicate | None
    branches: tuple[Branch, ...]
    otherwise: Predicate | None

    def __str__(self) -> str:
        compared = "" if self.compared is None else f" {_case_operand(self.compared)}"
        otherwise = "" if self.otherwise is None else f" ELSE {self.otherwise}"
        return f"CASE{compared} {_joined(self.branches, ' ')}{otherwise} END"


def _case_operand(value: Predicate) -> str:
    """Return what CASE compares; in parentheses where CASE would otherwise be read as a name."""
    text = value.at_least(4)
    return f"({text})" if text.startswith("-") else text


@dataclass(frozen=True, slots=True)
class Attribute(Predicate):
    """An attribute of the event, or a part of it.

    `variable` is what stands before the first dot: a variable, or an attribute that has parts. `parts` is what stands
    after the second dot.
    """

    name: Name
    variable: Name | None = None
    parts: tuple[Name, ...] = ()

    @property
    def path(self) -> tuple[Name, ...]:
        """All names, from the left."""
        return ((self.variable,) if self.variable else ()) + (self.name, *self.parts)

    def __str__(self) -> str:
        return _joined(self.path, ".")


ConstantValue = int | Decimal | str | bool | None


@dataclass(frozen=True, slots=True)
class Constant(Predicate):
    """A number (integer, or exact decimal), string, boolean or NULL."""

    level: ClassVar[int] = 6

    value: ConstantValue

    def __str__(self) -> str:
        if isinstance(self.value, str):
            return "'" + self.value.replace("'", "''") + "'"
        return "NULL" if self.value is None else str(self.value).upper()


@dataclass(frozen=True, slots=True)
class Parameter(Predicate):
    """`$limit`: a value, or a list of values, that is given beside the query."""

    name: str

    def __str__(self) -> str:
        return f"${self.name}"


@dataclass(frozen=True, slots=True)
class InList(Predicate):
    """`a IN $blocklist`."""

    level: ClassVar[int] = 3

    value: Predicate
    values: Parameter
    is_negated: bool

    def __str__(self) -> str:
        return f"{self.value.at_least(4)} {_not(self.is_negated)}IN {self.values}"


@dataclass(frozen=True, slots=True)
class Duration(Predicate):
    """`1 hour 30 minutes`."""

    parts: tuple[tuple[int | Decimal, str], ...]

    def __str__(self) -> str:
        return _duration(self.parts)


def _duration(parts: tuple[tuple[int | Decimal, str], ...]) -> str:
    return " ".join(f"{amount} {unit}" for amount, unit in parts)


def _not(is_negated: bool) -> str:  # noqa: FBT001
    return "NOT " if is_negated else ""


@dataclass(frozen=True, slots=True)
class Selected(Node):
    """`x` or `x[a, b]` in SELECT: a variable, with all of its events' attributes or some."""

    variable: Name
    attributes: tuple[Name, ...] | None = None

    def __str__(self) -> str:
        return str(self.variable) + (f"[{_joined(self.attributes)}]" if self.attributes else "")


@dataclass(frozen=True, slots=True)
class Select(Node):
    """The SELECT clause; `selected` is None for `*` and empty for NONE."""

    strategy: Strategy
    selected: tuple[Selected, ...] | None

    def __str__(self) -> str:
        strategy = "" if self.strategy is Strategy.ALL else f"{self.strategy.value} "
        return f"SELECT {strategy}" + ("*" if self.selected is None else _joined(self.selected) or "NONE")


class Window(Node):
    """The WITHIN clause, or what stands after FOR."""

    __slots__ = ()

    @property
    def length(self) -> str:
        """How long it is, in the words of the query."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"WITHIN {self.length}"


@dataclass(frozen=True, slots=True)
class EventsWindow(Window):
    """`WITHIN n EVENTS`."""

    count: int

    @property
    def length(self) -> str:
        """How long it is, as in `3 EVENTS`."""
        return f"{self.count} EVENTS"


@dataclass(frozen=True, slots=True)
class AttributeWindow(Window):
    """`WITHIN n [attribute]`."""

    size: int | Decimal
    attribute: Name

    @property
    def length(self) -> str:
        """How long it is, as in `3 [t]`."""
        return f"{self.size} [{self.attribute}]"


@dataclass(frozen=True, slots=True)
class DurationWindow(Window):
    """`WITHIN 1 hour 30 minutes`, measured on an attribute if one is named."""

    parts: tuple[tuple[int | Decimal, str], ...]
    attribute: Name | None = None

    @property
    def length(self) -> str:
        """How long it is, as in `3 minutes`."""
        return _duration(self.parts) + (f" [{self.attribute}]" if self.attribute else "")


@dataclass(frozen=True, slots=True)
class AttributeDeclaration(Node):
    """`price: double` in CREATE STREAM; `arguments` are those of `decimal(10, 2)`."""

    name: Name
    type_name: Name
    arguments: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}: {self.type_name}" + (f"({_joined(self.arguments)})" if self.arguments else "")


@dataclass(frozen=True, slots=True)
class EventDeclaration(Node):
    """`EVENT R { ... }` in CREATE STREAM."""

    name: Name
    attributes: tuple[AttributeDeclaration, ...]

    def __str__(self) -> str:
        return f"EVENT {self.name} {{{_joined(self.attributes)}}}"


@dataclass(frozen=True, slots=True)
class StreamDeclaration(Node):
    """`CREATE STREAM S { ... }`."""

    name: Name
    events: tuple[EventDeclaration, ...]

    def __str__(self) -> str:
        return f"CREATE STREAM {self.name} {{ {_joined(self.events)} }}"


@dataclass(frozen=True, slots=True)
class Query(Node):
    """A whole query with the declarations before it."""

    declarations: tuple[StreamDeclaration, ...]
    select: Select
    sources: tuple[Name, ...]
    formula: Formula
    partition_by: tuple[Name, ...] = ()
    window: Window | None = None
    consumption: Consumption = Consumption.NONE
    limit: int | None = None

    def __str__(self) -> str:
        lines = [
            *map(str, self.declarations),
            str(self.select),
            f"FROM {_joined(self.sources)}",
            f"WHERE {self.formula}",
        ]
        if self.partition_by:
            lines.append("PARTITION BY " + _joined(f"[{name}]" for name in self.partition_by))
        if self.window is not None:
            lines.append(str(self.window))
        if self.consumption is not Consumption.NONE:
            lines.append(f"CONSUME BY {self.consumption.value}")
        if self.limit is not None:
            lines.append(f"LIMIT {self.limit}")
        return "\n".join(lines)
