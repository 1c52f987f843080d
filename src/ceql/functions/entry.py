"""What a function is: the types that it takes and gives, and its meaning on one value, on columns, and for Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ceql.schema import Kind

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Taken:
    """What an argument may be: some kinds, in the words of errors; `is_same`: all such arguments are of one kind."""

    what: str
    kinds: frozenset[Kind]
    is_same: bool = False


TEXT = Taken("a string", frozenset((Kind.STRING,)))
NUMBER = Taken("a number", frozenset((Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL)))
AMOUNT = Taken("a number or a duration", NUMBER.kinds | {Kind.DURATION})
INTEGER = Taken("an integer", frozenset((Kind.INTEGER,)))
SAME = Taken(
    "a boolean, number, string, time or duration", frozenset(kind for kind in Kind if kind.is_comparable), is_same=True
)


@dataclass(frozen=True)
class Function:
    """One function.

    Args:
        name: its name, in capitals.
        takes: what each argument may be.
        gives: the kind of its value; None for the kind that its arguments have in common (see `common_kind`).
        of: its value for arguments that are not NULL, in Python; None is NULL. Integers that do not fit 64 bits
            become NULL by themselves. Where the value is a double, numbers come as floats.
        arrow: the same for whole columns: each argument is an Arrow array, or a Python value that is the same for all
            rows and not NULL. At least one is an array. Integers have 64 bits, strings are large_string, times have
            no zone, and all times and durations have one unit. A result of None means: ask `of`, value by value.
        spark: the same as a Spark column: gets the module `pyspark.sql.functions`, then a column for each argument,
            or the Python value of a constant integer. Times and durations come, and are given, as microseconds.
            Without it, or if it gives None, Spark is not asked.
        optional: how many of the last arguments may be left out.
        repeats: whether the last argument may be given several times.
        takes_null: whether `of` and `arrow` get NULLs too; otherwise a NULL among the arguments makes the value NULL.
        ascii_only: whether Spark's answer is right only where all texts are ASCII.
        check: what is wrong with a constant, as a hint; None if nothing is. It gets the kinds of all arguments, then
            the number of the constant and its value.
    """

    name: str
    takes: tuple[Taken, ...]
    gives: Kind | None
    of: Callable[..., Any]
    arrow: Callable[..., Any] | None = None
    spark: Callable[..., Any] | None = None
    optional: int = 0
    repeats: bool = False
    takes_null: bool = False
    ascii_only: bool = False
    check: Callable[[Sequence[Kind], int, Any], str | None] | None = None

    def taken(self, number: int) -> Taken:
        """Return what the argument of some number may be."""
        return self.takes[min(number, len(self.takes) - 1)]

    def value(self, kind: Kind, arguments: Sequence[Any]) -> Any:
        """Return the function's value, which is of a kind, for any arguments."""
        converted = [self.argument(kind, number, value) for number, value in enumerate(arguments)]
        if not self.takes_null and None in converted:
            return None
        return as_kind(kind, self.of(*converted))

    def argument(self, kind: Kind, number: int, value: Any) -> Any:
        """Return an argument as the function computes with it, if its value is of a kind."""
        own = self.kind_of_argument(kind, number)
        return value if own is None else as_kind(own, value)

    def kind_of_argument(self, kind: Kind, number: int) -> Kind | None:
        """Return the kind in which an argument is computed with, if the value is of a kind; None for any."""
        taken = self.taken(number)
        if len(taken.kinds) == 1:
            return next(iter(taken.kinds))
        return kind if taken.kinds >= NUMBER.kinds else None


def as_kind(kind: Kind, value: Any) -> Any:
    """Return a value as a computed one of a kind: decimals as doubles, and integers within 64 bits, or else NULL.

    >>> as_kind(Kind.FLOAT, 1), as_kind(Kind.INTEGER, 2**63), as_kind(Kind.STRING, "a")
    (1.0, None, 'a')
    """
    if kind is Kind.FLOAT and value is not None:
        return float(value)
    if kind is Kind.INTEGER and value is not None and not INT64_MIN <= value <= INT64_MAX:
        return None
    return value


def computed_kind(kind: Kind) -> Kind:
    """Return the kind in which numbers compute: decimals compute as doubles."""
    return {Kind.DECIMAL: Kind.FLOAT, Kind.NULL: Kind.INTEGER}.get(kind, kind)


def common_kind(kinds: Collection[Kind]) -> Kind | None:
    """Return the kind of a value that may come from any of several; None if they do not fit together.

    >>> common_kind([Kind.INTEGER, Kind.NULL]), common_kind([Kind.INTEGER, Kind.DECIMAL])
    (<Kind.INTEGER: 'integer'>, <Kind.FLOAT: 'double'>)
    """
    found = set(kinds) - {Kind.NULL}
    if Kind.UNKNOWN in found:
        return Kind.UNKNOWN
    if found and all(kind.is_numeric for kind in found):
        return Kind.INTEGER if found == {Kind.INTEGER} else Kind.FLOAT
    if len(found) > 1 or not all(kind.is_comparable for kind in found):
        return None
    return next(iter(found), Kind.NULL)
