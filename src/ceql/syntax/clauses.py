"""Binds what the clauses say: PARTITION BY, WITHIN and FOR, and the attribute of `match_start` and `match_end`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa

from ceql.errors import did_you_mean, listing
from ceql.schema import Kind, kind_of
from ceql.syntax import ast, plan
from ceql.syntax.mistakes import Mistake
from ceql.syntax.parser import MAX_COUNT, UNBOUNDED_HINT
from ceql.syntax.scope import PATTERN, Scope
from ceql.syntax.times import UNITS

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_partition(query: ast.Query, scope: Scope) -> None:
    """Refuse partition keys that events lack, or that cannot be compared."""
    seen: set[str] = set()
    for name in query.partition_by:
        if name.text in seen:
            raise Mistake(f"PARTITION BY names '{name.text}' twice", name.span)
        seen.add(name.text)
        data_type = scope.type_of_attribute(name, scope.pattern_types, PATTERN)
        if kind_of(data_type) in (Kind.LIST, Kind.DURATION, Kind.OTHER):
            message = f"PARTITION BY cannot compare '{name.text}': it is of type {data_type}"
            raise Mistake(message, name.span, "use a boolean, number, string, timestamp or date")


def window_of(
    query: ast.Query, scope: Scope, time_column: str | None
) -> plan.EventsWindow | plan.AttributeWindow | None:
    """Return what WITHIN measures, and the size of the window."""
    match query.window:
        case ast.EventsWindow() as window:
            return plan.EventsWindow(window.count)
        case None:
            return None
    return _measured(query.window, _Clause("WITHIN", scope, time_column))


def silences_of(
    durations: Sequence[ast.Window | None],
    window: plan.EventsWindow | plan.AttributeWindow | None,
    scope: Scope,
    time_column: str | None,
) -> list[plan.AttributeWindow | None]:
    """Return what FOR measures, and for how long: the attribute of WITHIN, or else the time."""
    measured = window if isinstance(window, plan.AttributeWindow) else None
    elsewhere = "WITHIN" if measured is not None else "the other FOR"
    found: list[plan.AttributeWindow | None] = []
    for duration in durations:
        if duration is None:
            found.append(None)
            continue
        if measured is None:
            clause = _Clause("FOR", scope, time_column)
        else:
            clause = _Clause("FOR", scope, measured.attribute, elsewhere)
        silence = _measured(duration, clause)
        if measured is not None and silence.attribute != measured.attribute:
            message = f"FOR measures '{silence.attribute}', but {elsewhere} measures '{measured.attribute}'"
            raise Mistake(message, duration.span, "all clauses of a query must measure the same attribute")
        measured = silence
        found.append(silence)
    return found


@dataclass(frozen=True)
class _Clause:
    """What measures an attribute: WITHIN or FOR. Durations that name none measure `time_column`.

    `elsewhere` is the clause that measures this column already, if there is one.
    """

    keyword: str
    scope: Scope
    time_column: str | None
    elsewhere: str | None = None


def _measured(window: ast.Window, clause: _Clause) -> plan.AttributeWindow:
    """Return a window on an attribute."""
    if isinstance(window, ast.DurationWindow):
        return _duration_window(window, clause)
    assert isinstance(window, ast.AttributeWindow)
    kind = _kind_measured(window.attribute, clause)
    if kind.is_time:
        message = f"{clause.keyword} {window.size} needs a unit, because '{window.attribute.text}' is a {kind.value}"
        raise Mistake(message, window.span, f"write {clause.keyword} {window.size} seconds [{window.attribute}]")
    return plan.AttributeWindow(window.attribute.text, kind, window.size)


def _kind_measured(attribute: ast.Name, clause: _Clause) -> Kind:
    """Return the kind of an attribute that is measured, which every type in the pattern must have, with an order."""
    scope = clause.scope
    data_type = scope.type_of_attribute(attribute, scope.pattern_types, PATTERN)
    for event_type, attributes in scope.ordered(scope.named_types):
        if not scope.is_unknown and attribute.text not in attributes:
            message = f"event type {event_type} has no attribute '{attribute.text}', which {clause.keyword} measures"
            raise Mistake(message, attribute.span, f"{event_type} has: {listing(attributes)}")
    kind = kind_of(data_type)
    if not (kind.is_numeric or kind.is_time or kind is Kind.UNKNOWN):
        shown = data_type if kind is Kind.OTHER else kind.value
        message = f"{clause.keyword} cannot measure '{attribute.text}': it is of type {shown}"
        raise Mistake(message, attribute.span, "use a number, timestamp or date")
    return kind


def _duration_window(window: ast.DurationWindow, clause: _Clause) -> plan.AttributeWindow:
    scope = clause.scope
    nanoseconds = sum(Decimal(amount) * UNITS[unit.removesuffix("s")] for amount, unit in window.parts)
    if nanoseconds > MAX_COUNT:
        if clause.keyword == "FOR":
            raise Mistake("FOR is longer than 292 years", window.span, "write a shorter time")
        raise Mistake("the window is longer than 292 years", window.span, UNBOUNDED_HINT)
    attribute = window.attribute or _time_attribute(window, clause, nanoseconds)
    kind = _kind_measured(attribute, clause)
    if not (kind.is_time or kind is Kind.UNKNOWN):
        measured = attribute.text
        what = f"{clause.elsewhere} measures '{measured}'," if clause.elsewhere is not None else f"'{measured}' is"
        message = f"a duration needs a timestamp or date, but {what} of type {kind.value}"
        raise Mistake(message, attribute.span, _as_number(clause.keyword, attribute.text, nanoseconds))
    # If nothing is known about the attribute, the duration shows that it is a time.
    kind = Kind.TIMESTAMP if scope.is_unknown else kind
    return plan.AttributeWindow(attribute.text, kind, int(nanoseconds))


def _time_attribute(window: ast.DurationWindow, clause: _Clause, nanoseconds: int | Decimal) -> ast.Name:
    """Return the attribute that a duration measures if the query names none."""
    scope, time_column = clause.scope, clause.time_column
    attributes = scope.attributes_of(scope.pattern_types)
    if time_column is not None:
        if not scope.is_unknown and time_column not in attributes:
            hint = did_you_mean(time_column, attributes) or f"they have: {listing(attributes)}"
            raise Mistake(f"the events in the pattern have no time column '{time_column}'", window.span, hint)
        return ast.Name(time_column, span=window.span)
    if scope.is_unknown:
        return ast.Name("time", span=window.span)
    times = [name for name, data_type in attributes.items() if kind_of(data_type).is_time]
    if len(times) == 1:
        return ast.Name(times[0], span=window.span)
    if times:
        message = f"a duration needs one timestamp or date, but there are several: {listing(times)}"
        hint = f"name it: {clause.keyword} {window.length} [{ast.quoted_name(times[0])}]"
        raise Mistake(message, window.span, hint)
    untyped = [name for name, data_type in attributes.items() if kind_of(data_type) is Kind.UNKNOWN]
    if untyped:
        # In a file that has only a header, any column may be the time.
        return ast.Name(next(filter(_sounds_like_time, untyped), untyped[0]), span=window.span)
    hint = _hint_without_time(clause.keyword, attributes, nanoseconds)
    raise Mistake("a duration needs a timestamp or date, but the events have none", window.span, hint)


def _hint_without_time(keyword: str, attributes: dict[str, pa.DataType], nanoseconds: int | Decimal) -> str:
    integers = [name for name, data_type in attributes.items() if kind_of(data_type) is Kind.INTEGER]
    strings = [name for name, data_type in attributes.items() if kind_of(data_type) is Kind.STRING]
    if (text := next(filter(_sounds_like_time, strings), None)) is not None:
        return f"'{text}' is of type string: turn it into a timestamp when the events are read"
    if integers:
        return _as_number(keyword, next(filter(_sounds_like_time, integers), integers[0]), nanoseconds)
    return "count events instead: WITHIN n EVENTS" if keyword == "WITHIN" else "give the events a time"


def _sounds_like_time(name: str) -> bool:
    return re.search("time|date|(^|_)(at|ts|when)($|_)", name.lower()) is not None


def _as_number(keyword: str, attribute: str, nanoseconds: int | Decimal) -> str:
    """Return the hint to write a duration as a number, in the largest usual unit that loses nothing."""
    units = ("millisecond", "microsecond", "nanosecond")
    unit = next((unit for unit in units if nanoseconds % UNITS[unit] == 0), "nanosecond")
    window = f"{keyword} {int(nanoseconds) // UNITS[unit]} [{ast.quoted_name(attribute)}]"
    return f"write {window} if '{attribute}' counts {unit}s"


def attribute_measured(
    window: plan.EventsWindow | plan.AttributeWindow | None, silences: Sequence[plan.AttributeWindow | None]
) -> str | None:
    """Return the attribute that WITHIN and FOR measure; None if neither measures one."""
    return next((part.attribute for part in (window, *silences) if isinstance(part, plan.AttributeWindow)), None)


def order_of(attribute: str | None, time_column: str | None, order_by: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that order the stream: the attribute measured, the time column, and those of `order_by`."""
    measured = [] if attribute is None else [attribute]
    time = [] if time_column is None else [time_column]
    return tuple(dict.fromkeys([*measured, *time, *order_by]))


def bounds_of(
    attribute: str | None, time_column: str | None, order_by: Sequence[str], attributes: dict[str, pa.DataType]
) -> str | None:
    """Return the attribute that `match_start` and `match_end` show, None for the row number.

    It is the attribute that WITHIN or FOR measures, if there is one.
    """
    if attribute is not None:
        candidates = [attribute]
    else:
        candidates = [time_column, *order_by[:1]] if time_column is not None else list(order_by[:1])
    return next((name for name in candidates if name in attributes), None)
