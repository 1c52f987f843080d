"""The semantics straight from the definitions: slow and obviously right.

A stream is a list of events, each a dict with its `type`, its `stream` where there are
several, and its attributes; one that is missing or None is NULL. Formulas are evaluated to
sets of valuations as in the paper's figure "The semantics of a CEL formula", with an empty
valuation for parts that may be missing, and with conditions at the events they concern; predicates in
SQL's three-valued logic, strategies by comparing all pairs. Nothing here uses the plan or
the automaton: only the tree that the parser gives.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from ipaddress import ip_address, ip_network
from itertools import permutations, product
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from ceql.syntax import ast
from ceql.syntax.ast import Consumption, Strategy

Event = dict[str, Any]

TYPE, STREAM = "\0type", "\0stream"
"""Where `as_declared` puts an event's type and stream, which a column of that name may not tell."""


class Valuation(NamedTuple):
    """An interval of positions and the pairs (variable, position) that hold."""

    start: int
    end: int
    held: frozenset[tuple[str, int]]

    @property
    def positions(self) -> frozenset[int]:
        """The paper's complex event: positions without variables."""
        return frozenset(position for _, position in self.held)


class Completed(NamedTuple):
    """All matches that one event completes, LIMIT not yet applied."""

    end: int
    matches: frozenset[Valuation]


def recognise(
    query: ast.Query,
    events: list[Event],
    columns: list[str],
    time_column: str | None = None,
    *,
    complete: bool = False,
) -> list[Completed]:
    """Return the matches by completing event; positions are those of the whole stream.

    `columns` are the variables that SELECT * shows, `time_column` is what durations measure. With `complete`, silences
    that the end of the stream cuts off count, too.
    """
    events = as_declared(query, events)
    _, absences = without_silences(with_conditions(query.formula))
    window = query.window
    if isinstance(window, ast.AttributeWindow | ast.DurationWindow) and window.attribute:
        time_column = window.attribute.text
    before, after = (one and Silence(_atoms(one), one.duration, time_column) for one in absences)  # type: ignore[arg-type]
    measured = [window, *(silence.duration for silence in (before, after) if silence)]
    is_present = [all(_is_measured(window, event, time_column) for window in measured) for event in events]
    partitions: dict[Any, list[int]] = defaultdict(list)
    for row, event in enumerate(events):
        key = tuple(_key(event.get(name.text)) for name in query.partition_by)
        if None not in key and is_present[row]:
            partitions[key].append(row)
    last = next((events[row] for row in range(len(events))[::-1] if is_present[row]), {})

    by_end: dict[int, frozenset[Valuation]] = {}
    key_of_end: dict[int, Any] = {}
    for key, rows in partitions.items():
        part = [events[row] for row in rows]
        found = _selected(query, columns, valuations(query.formula, part))
        within = {one for one in found if _in_window(query.window, one, part, time_column)}
        if before:
            within = {one for one in within if before.is_kept_before(part, one.start)}
        if after:
            within = {
                one
                for one in within
                if after.is_kept_after(part, one.end) and (complete or after.is_over(part[one.end], last))
            }
        for one in within:
            by_end.setdefault(rows[one.end], frozenset())
            by_end[rows[one.end]] |= {one}
            key_of_end[rows[one.end]] = key

    completed = []
    forgotten: dict[Any, int] = defaultdict(lambda: -1)
    for end in sorted(by_end):
        key = key_of_end[end]
        rows = partitions[key]
        horizon = forgotten[None] if query.consumption is Consumption.ANY else forgotten[key]
        alive = {one for one in by_end[end] if rows[one.start] > horizon}
        kept = _chosen(query.select.strategy, alive)
        if not kept:
            continue
        moved = frozenset(
            Valuation(rows[one.start], rows[one.end], frozenset((name, rows[at]) for name, at in one.held))
            for one in kept
        )
        completed.append(Completed(end, moved))
        # A match that waits for a silence forgets all events up to its deadline.
        horizon = end
        if after:
            later = (row for row in range(end, len(events)) if is_present[row])
            horizon = max(row for row in later if after.covers(events[end], events[row]))
        if query.consumption is Consumption.ANY:
            forgotten[None] = horizon
        elif query.consumption is Consumption.PARTITION:
            forgotten[key] = horizon
    return completed


class Silence(NamedTuple):
    """NOT ... FOR at one end of a pattern: events, how long none of them may come, and the attribute of the time."""

    atoms: list[ast.Atom]
    duration: ast.AttributeWindow | ast.DurationWindow
    time_column: str | None

    def elapsed(self, earlier: Event, later: Event) -> Any:
        """Return how much time there is between two events."""
        return _elapsed(self.duration, earlier, later, self.time_column)

    def covers(self, earlier: Event, later: Event) -> bool:
        """Whether a silence that begins or ends at one event reaches the other."""
        return bool(self.elapsed(earlier, later) <= _size(self.duration))

    def is_over(self, earlier: Event, last: Event) -> bool:
        """Whether nothing that comes after the last event, even at its time, reaches back to the earlier one."""
        elapsed, size = self.elapsed(earlier, last), _size(self.duration)
        # Between whole numbers there is no time.
        return bool(elapsed >= (math.floor(size) if _is_whole(self.duration, last) else size))

    def is_kept_before(self, part: list[Event], at: int) -> bool:
        """Whether none of the events comes shortly before an event."""
        broken = _all_positions(self.atoms, part[:at])
        return not any(self.covers(part[row], part[at]) for row in broken)

    def is_kept_after(self, part: list[Event], at: int) -> bool:
        """Whether none of the events comes shortly after an event."""
        broken = _all_positions(self.atoms, part)
        return not any(row > at and self.covers(part[at], part[row]) for row in broken)


def without_silences(
    formula: ast.Formula,
) -> tuple[ast.Formula, tuple[ast.Absence | None, ast.Absence | None]]:
    """Return a pattern without NOT ... FOR at its start and end, and these; its conditions must stand at its atoms."""
    found: dict[int, ast.Absence] = {}

    def without(part: ast.Formula) -> ast.Formula:
        if isinstance(part, ast.Sequence):
            parts, gaps = list(part.parts), list(part.gaps)
            for end in (0, -1):
                absence = parts[end]
                if isinstance(absence, ast.Absence) and absence.duration is not None:
                    found[end] = absence
                    del parts[end], gaps[end]
            return ast.Sequence(tuple(parts), tuple(gaps)) if gaps else parts[0]
        # OR between conditions makes copies, whose ends are the same.
        return _changed(part, without) if isinstance(part, ast.Or | ast.Project | ast.Without) else part

    return without(formula), (found.get(0), found.get(-1))


def as_declared(query: ast.Query, events: list[Event]) -> list[Event]:
    """Return events with the attributes that they have, beside their type and stream.

    A type that its stream declares has the attributes of the declaration, whatever the row carries; any other type has
    every column of the row.
    """
    declared = {
        (stream.name.text, event.name.text): {attribute.name.text for attribute in event.attributes}
        for stream in query.declarations
        for event in stream.events
    }
    seen = []
    for event in events:
        stream = event.get("stream")
        known = declared.get((stream or query.sources[0].text, event["type"]), event)
        attributes = {name: value for name, value in event.items() if name in known}
        seen.append({**attributes, TYPE: event["type"], STREAM: stream})
    return seen


def _is_measured(window: ast.Window | None, event: Event, time_column: str | None) -> bool:
    """Whether an event has what the window measures; without it, it is in no stream."""
    if not isinstance(window, ast.AttributeWindow | ast.DurationWindow):
        return True
    value = event.get(window.attribute.text if window.attribute else time_column)
    return value is not None and value == value


def _key(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return None if value is None else (type(value).__name__ if isinstance(value, bool | str) else "", value)


# --- formulas -----------------------------------------------------------------------

NOTHING = None
"""What a formula finds that finds nothing at all; it is neutral in sequences."""

Found = set["Valuation | None"]


def valuations(formula: ast.Formula, stream: list[Event]) -> set[Valuation]:
    """Return the set that the paper's figure assigns to a formula, without the empty valuation.

    Silences around the formula are left out.
    """
    bare, _ = without_silences(with_conditions(formula))
    return {one for one in _found(bare, stream) if one is not NOTHING}


def _found(formula: ast.Formula, stream: list[Event], forbidden: frozenset[int] = frozenset()) -> Found:
    """Return the valuations of a formula whose conditions all stand at its atoms.

    The forbidden positions lie in no gap.
    """
    match formula:
        case ast.Atom():
            name = "" if formula.event_type is None else formula.event_type.text
            return {Valuation(at, at, frozenset({(name, at)})) for at in _positions(formula, stream)}
        case ast.As():
            return {
                one and Valuation(one.start, one.end, one.held | {(formula.variable.text, at) for at in one.positions})
                for one in _found(formula.formula, stream, forbidden)
            }
        case ast.Or():
            return set().union(*(_found(part, stream, forbidden) for part in formula.parts))
        case ast.Sequence():
            return _in_sequence(formula, stream, forbidden)
        case ast.Permutation():
            gaps = (ast.Gap.ANY,) * (len(formula.parts) - 1)
            orders = (ast.Sequence(parts, gaps) for parts in permutations(formula.parts))
            return set().union(*(_found(order, stream, forbidden) for order in orders))
        case ast.Iteration():
            once = _found(formula.formula, stream, forbidden)
            breaking = forbidden | _awaited(formula.gap, formula.formula, stream)
            found: Found = {NOTHING} if formula.least == 0 else set()
            rounds: Found = {NOTHING}
            # More rounds than this only add empty ones.
            for number in range(1, formula.least + len(stream) + 1 if formula.most is None else formula.most + 1):
                rounds = _followed(rounds, once, formula.gap, breaking)
                found |= rounds if number >= formula.least else set()
            return found
        case ast.Project():
            kept = {name.text for name in formula.variables}
            return {
                one and Valuation(one.start, one.end, frozenset(pair for pair in one.held if pair[0] in kept))
                for one in _found(formula.formula, stream, forbidden)
            }
        case ast.Without():
            return _found(formula.formula, stream, forbidden | _all_positions(_atoms(formula.absent), stream))
    raise AssertionError(formula)


def _positions(atom: ast.Atom, stream: list[Event]) -> set[int]:
    """Return where an event is that an atom may take."""
    return {
        at
        for at, event in enumerate(stream)
        if (atom.event_type is None or event.get(TYPE, event.get("type")) == atom.event_type.text)
        and (atom.stream is None or event.get(STREAM, event.get("stream")) in (None, atom.stream.text))
        and (atom.predicate is None or value_of(atom.predicate, event) is True)
    }


def _all_positions(atoms: list[ast.Atom], stream: list[Event]) -> frozenset[int]:
    return frozenset().union(*(_positions(atom, stream) for atom in atoms))


def _in_sequence(formula: ast.Sequence, stream: list[Event], forbidden: frozenset[int]) -> Found:
    found = _found(formula.parts[0], stream, forbidden)
    absent: list[ast.Atom] = []
    for gap, part in zip(formula.gaps, formula.parts[1:], strict=True):
        if isinstance(part, ast.Absence):
            absent = _atoms(part)
            continue
        breaking = forbidden | _all_positions(absent, stream) | _awaited(gap, part, stream)
        found = _followed(found, _found(part, stream, forbidden), gap, breaking)
        absent = []
    return found


def _awaited(gap: ast.Gap, following: ast.Formula, stream: list[Event]) -> frozenset[int]:
    """Return the positions that `->` may not skip: those with which the next part can begin."""
    return _all_positions(_first_atoms(following) if gap is ast.Gap.UNFIT else [], stream)


def _atoms(formula: ast.Formula) -> list[ast.Atom]:
    if isinstance(formula, ast.Atom):
        return [formula]
    return [atom for child in formula.children() if isinstance(child, ast.Formula) for atom in _atoms(child)]


def _first_atoms(formula: ast.Formula) -> list[ast.Atom]:
    """Return the atoms with which a formula can begin."""
    match formula:
        case ast.Atom():
            return [formula]
        case ast.Sequence():
            first: list[ast.Atom] = []
            for part in formula.parts:
                first += [] if isinstance(part, ast.Absence) else _first_atoms(part)
                if not may_be_empty(part):
                    break
            return first
        case ast.Or() | ast.Permutation():
            return [atom for part in formula.parts for atom in _first_atoms(part)]
    return _first_atoms(formula.formula)  # type: ignore[attr-defined]


def may_be_empty(formula: ast.Formula) -> bool:
    """Return whether a formula also finds nothing at all."""
    match formula:
        case ast.Atom() | ast.Absence():
            return False
        case ast.Iteration():
            return formula.least == 0 or may_be_empty(formula.formula)
        case ast.Or():
            return any(map(may_be_empty, formula.parts))
        case ast.Sequence() | ast.Permutation():
            return all(may_be_empty(part) for part in formula.parts)
    return may_be_empty(formula.formula)  # type: ignore[attr-defined]


def with_conditions(formula: ast.Formula) -> ast.Formula:
    """Return the formula with each condition at the atoms whose events it concerns, and OR as alternatives.

    A condition must hold for all events of a variable, so it can be asked of each.
    """
    changed = _changed(formula, with_conditions)
    if not isinstance(changed, ast.Filter):
        return changed
    return _conditioned(changed.formula, changed.condition)


def _conditioned(formula: ast.Formula, condition: ast.Condition) -> ast.Formula:
    match condition:
        case ast.AllConditions():
            for part in condition.parts:
                formula = _conditioned(formula, part)
            return formula
        case ast.AnyCondition():
            return ast.Or(tuple(_conditioned(formula, part) for part in condition.parts))
        case ast.VariableCondition():
            name, predicate = condition.variable.text, condition.predicate
            return _asked(formula, predicate, lambda label: name in label, lambda label: name in label)
    raise AssertionError(condition)


Concerns = Callable[[frozenset[str]], bool]


def _asked(formula: ast.Formula, predicate: ast.Predicate, concerns: Concerns, of_absent: Concerns) -> ast.Formula:
    """Return the formula with a predicate at those atoms whose names the condition concerns.

    AS around a gap does not hold what NOT forbids there, so atoms under NOT are decided by themselves.
    """

    def below(part: ast.Formula, concerns: Concerns = concerns, of_absent: Concerns = of_absent) -> ast.Formula:
        return _asked(part, predicate, concerns, of_absent)

    match formula:
        case ast.Atom():
            if not concerns(frozenset({"" if formula.event_type is None else formula.event_type.text})):
                return formula
            parts = (predicate,) if formula.predicate is None else (formula.predicate, predicate)
            return replace(formula, predicate=ast.AllPredicates(parts) if len(parts) > 1 else predicate)
        case ast.As():
            name = formula.variable.text
            return _changed(
                formula, lambda part: below(part, lambda label: concerns(label | {name} if label else label))
            )
        case ast.Project():
            kept = {name.text for name in formula.variables}
            own, absent = (lambda label: concerns(label & kept)), (lambda label: of_absent(label & kept))
            return _changed(formula, lambda part: below(part, own, absent))
        case ast.Absence():
            return _changed(formula, lambda part: below(part, of_absent))
        case ast.Without():
            return replace(formula, formula=below(formula.formula), absent=below(formula.absent, of_absent))
    return _changed(formula, below)


def _changed(formula: ast.Formula, change: Callable[[ast.Formula], ast.Formula]) -> ast.Formula:
    """Return the formula with the formulas directly below it changed."""
    changed: dict[str, Any] = {}
    for name in formula.__dataclass_fields__:
        value = getattr(formula, name)
        if isinstance(value, ast.Formula):
            changed[name] = change(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], ast.Formula):
            changed[name] = tuple(map(change, value))
    return replace(formula, **changed)


class TooManyError(Exception):
    """The set would be larger than anybody wants to wait for."""


_MOST_PAIRS: ContextVar[float] = ContextVar("_MOST_PAIRS", default=math.inf)


def has_few_valuations(formula: ast.Formula, stream: list[Event], most: int) -> bool:
    """Return whether a formula has no more valuations than that, and few enough on the way to them."""
    token = _MOST_PAIRS.set(100 * most)
    try:
        return len(valuations(formula, stream)) <= most
    except TooManyError:
        return False
    finally:
        _MOST_PAIRS.reset(token)


def _followed(first: Found, second: Found, gap: ast.Gap, breaking: frozenset[int]) -> Found:
    if len(first) * len(second) > _MOST_PAIRS.get():
        raise TooManyError
    return {
        (one or other) if one is NOTHING or other is NOTHING else Valuation(one.start, other.end, one.held | other.held)
        for one, other in product(first, second)
        if one is NOTHING
        or other is NOTHING
        or (one.end + 1 == other.start)
        or (
            gap is not ast.Gap.NOTHING
            and one.end < other.start
            and breaking.isdisjoint(range(one.end + 1, other.start))
        )
    }


# --- predicates ---------------------------------------------------------------------


ITEM = "\0item"
"""Where the item is in the event, while a comparison looks into a list."""


def value_of(node: ast.Predicate, event: Event) -> Any:
    """Return a predicate's value on one event, None for NULL."""
    looked_into = None if isinstance(node, ast.Call) else _list_in(node)
    if looked_into is not None and ITEM not in event:
        items = value_of(looked_into, event)
        values = None if items is None else [value_of(node, {**event, ITEM: item}) for item in items]
        return None if values is None else True if True in values else None if None in values else False
    match node:
        case ast.Call() if node.function.text == "ANY":
            return event[ITEM]
        case ast.Constant():
            return node.value
        case ast.Attribute():
            # What stands before the first dot is an attribute with parts, or the variable that holds the event.
            first, *others = (name.text for name in node.path)
            value = event if others and not isinstance(event.get(first), dict) else event.get(first)
            for name in others:
                value = None if value is None else value.get(name)
            return value
        case ast.Not():
            value = value_of(node.predicate, event)
            return None if value is None else not value
        case ast.AllPredicates():
            values = [value_of(part, event) for part in node.parts]
            return False if False in values else None if None in values else True
        case ast.AnyPredicate():
            values = [value_of(part, event) for part in node.parts]
            return True if True in values else None if None in values else False
        case ast.Compare():
            left, right = value_of(node.left, event), value_of(node.right, event)
            if not isinstance(node.left, ast.Constant) and not isinstance(node.right, ast.Constant):
                left, right = _as_doubles(left, right)
            return compare(left, node.operator, right)
        case ast.Between() | ast.InRange():
            low = value_of(ast.Compare(node.value, ">=", node.low), event)
            high = value_of(ast.Compare(node.value, "<=", node.high), event)
            both = False if False in (low, high) else None if None in (low, high) else True
            return _negated(both, node.is_negated)
        case ast.InSet():
            value = value_of(node.value, event)
            equal = [compare(value, "=", value_of(item, event)) for item in node.items]
            return _negated(True if True in equal else None if None in equal else False, node.is_negated)
        case ast.IsNull():
            return (value_of(node.value, event) is None) != node.is_negated
        case ast.Like():
            value = value_of(node.value, event)
            if value is None:
                return None
            pattern = str(node.pattern.value)
            if node.ignores_case:
                value, pattern = value.lower(), pattern.lower()
            regex = re.sub(r"(?<!\\)\$", r"\\Z", pattern) if node.is_regex else _like(pattern)
            flags = re.IGNORECASE if regex.startswith("(?i)") else re.ASCII
            return _negated(re.search(regex, value, flags) is not None, node.is_negated)
        case ast.Call():
            arguments = [value_of(argument, event) for argument in node.arguments]
            if node.function.text == "COALESCE":
                return next((value for value in arguments if value is not None), None)
            return None if None in arguments else _CALLS[node.function.text](*arguments)
        case ast.Case():
            for branch in node.branches:
                asked = branch.condition
                asked = asked if node.compared is None else ast.Compare(node.compared, "=", asked)
                if value_of(asked, event) is True:
                    return value_of(branch.value, event)
            return None if node.otherwise is None else value_of(node.otherwise, event)
        case ast.Duration():
            return _length(node.parts)
        case ast.Negative():
            value = value_of(node.value, event)
            if isinstance(value, timedelta):
                return -value
            return None if value is None else _in_range(-_number(value))
        case ast.Arithmetic():
            result = value_of(node.operands[0], event)
            for operator, operand in zip(node.operators, node.operands[1:], strict=True):
                result = _calculate(result, operator, value_of(operand, event))
            return result
    raise AssertionError(node)


def _list_in(node: ast.Node) -> ast.Predicate | None:
    """Return the list that a comparison looks into."""
    if isinstance(node, ast.AllPredicates | ast.AnyPredicate | ast.Not | ast.Case):
        return None
    if isinstance(node, ast.Call) and node.function.text == "ANY":
        return node.arguments[0]
    return next(filter(None, map(_list_in, node.children())), None)


def compare(left: Any, operator: str, right: Any) -> bool | None:
    """Compare as SQL does: NULL with nothing, NaN as the greatest number and equal to itself."""
    if left is None or right is None:
        return None
    left, right = _comparable(left, right), _comparable(right, left)
    nan_left, nan_right = left != left, right != right
    if nan_left or nan_right:
        left, right = nan_left, nan_right
    return {
        "=": lambda: left == right,
        "!=": lambda: left != right,
        "<": lambda: left < right,
        "<=": lambda: left <= right,
        ">": lambda: left > right,
        ">=": lambda: left >= right,
    }[operator]()


def _as_doubles(left: Any, right: Any) -> tuple[Any, Any]:
    """Two columns compare as doubles if one is a double: only constants compare exactly."""
    is_double = isinstance(left, float) or isinstance(right, float)
    return (float(left), float(right)) if is_double and left is not None and right is not None else (left, right)


def _rounded(value: Any, places: int = 0) -> Any:
    if isinstance(value, int) and places >= 0:
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return value
    unit = Decimal(10) ** -places
    with localcontext() as context:
        context.prec = 400
        rounded = (Decimal(str(value)) / unit).to_integral_value(ROUND_HALF_UP) * unit
    return _in_range(int(rounded)) if isinstance(value, int) else float(rounded)


def _substring(text: str, start: int, length: int | None = None) -> str:
    """Count from 1, or from the end if the start is negative; 0 is as 1."""
    first = max(start, 1) if start >= 0 else len(text) + start + 1
    last = len(text) if length is None else first + length - 1
    return "".join(letter for at, letter in enumerate(text, 1) if first <= at <= last)


def _in_network(ip: str, *nets: str) -> bool | None:
    try:
        address = ip_address(ip)
    except ValueError:
        return None
    return any(address in ip_network(net, strict=False) for net in nets)


def _least(*values: Any) -> Any:
    values = tuple(map(_comparable, values, (*values[1:], values[0])))
    return next(one for one in values if not any(compare(other, "<", one) for other in values))


def _greatest(*values: Any) -> Any:
    values = tuple(map(_comparable, values, (*values[1:], values[0])))
    return next(one for one in values if not any(compare(other, ">", one) for other in values))


def _seen_in(time: date, zone: str) -> Any:
    return time.astimezone(ZoneInfo(zone)) if isinstance(time, datetime) and time.tzinfo else time


_CALLS: dict[str, Any] = {
    "LOWER": str.lower,
    "UPPER": str.upper,
    "LENGTH": len,
    "TRIM": lambda text: re.sub(r"\A +| +\Z", "", text),
    "SUBSTR": _substring,
    "CONCAT": lambda *texts: "".join(texts),
    "STARTS_WITH": lambda text, part: text[: len(part)] == part,
    "ENDS_WITH": lambda text, part: text[len(text) - len(part) :] == part if len(part) <= len(text) else False,
    "CONTAINS": lambda text, part: text.find(part) >= 0,
    "ABS": lambda value: _in_range(value if value >= type(value)(0) else -value),
    "ROUND": _rounded,
    "FLOOR": lambda value: value if isinstance(value, int) or not math.isfinite(value) else float(math.floor(value)),
    "CEIL": lambda value: value if isinstance(value, int) or not math.isfinite(value) else float(math.ceil(value)),
    "LEAST": _least,
    "GREATEST": _greatest,
    "CIDR_MATCH": _in_network,
    "DATE": lambda time, zone="UTC": date.fromisoformat(str(_seen_in(time, zone))[:10]),
    "HOUR": lambda time, zone="UTC": _seen_in(time, zone).hour,
    "MINUTE": lambda time, zone="UTC": _seen_in(time, zone).minute,
    "DAY_OF_WEEK": lambda time, zone="UTC": _seen_in(time, zone).isoweekday(),
}
"""The functions on values that are not NULL; strings of these tests have no letter that other cases have several of."""


def _length(parts: tuple[tuple[int | Decimal, str], ...]) -> timedelta:
    nanoseconds = sum(Decimal(amount) * _NANOSECONDS[unit.removesuffix("s")] for amount, unit in parts)
    return timedelta(microseconds=float(nanoseconds / 1000))


def _comparable(value: Any, other: Any) -> Any:
    if isinstance(value, str) and isinstance(other, datetime):
        moment = datetime.fromisoformat(value)
        return moment if other.tzinfo is None else moment.replace(tzinfo=moment.tzinfo or UTC)
    if isinstance(value, str) and isinstance(other, date):
        return date.fromisoformat(value)
    return float(value) if isinstance(value, Decimal) and isinstance(other, float) else value


def _negated(value: bool | None, is_negated: bool) -> bool | None:
    return value if value is None or not is_negated else not value


def _like(pattern: str) -> str:
    regex, escaped = "", False
    for character in pattern:
        if not escaped and character == "\\":
            escaped = True
            continue
        wild = None if escaped else {"%": "(?s:.*)", "_": "(?s:.)"}.get(character)
        regex += wild or re.escape(character)
        escaped = False
    return rf"\A{regex}\Z"


def _number(value: Any) -> Any:
    """Arithmetic takes 64-bit integers and doubles; other numbers become doubles."""
    return float(value) if isinstance(value, Decimal) or _in_range(value) is None else value


def _in_range(value: Any) -> Any:
    return None if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


def _calculate(left: Any, operator: str, right: Any) -> Any:
    if left is None or right is None:
        return None
    if isinstance(left, timedelta | date) or isinstance(right, timedelta | date):
        left, right = _comparable(left, right), _comparable(right, left)
        return left + right if operator == "+" else left - right
    left, right = _number(left), _number(right)
    if operator in "/%" and right == 0:
        return None
    match operator:
        case "+":
            return _in_range(left + right)
        case "-":
            return _in_range(left - right)
        case "*":
            return _in_range(left * right)
        case "/":
            return float(left) / float(right)
    if isinstance(left, int) and isinstance(right, int):
        return left - right * _towards_zero(left, right)
    return math.nan if math.isinf(left) else math.fmod(left, right)


def _towards_zero(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


# --- SELECT and WITHIN --------------------------------------------------------------


def _selected(query: ast.Query, columns: list[str], found: set[Valuation]) -> set[Valuation]:
    if query.select.selected is None:
        kept = set(columns)
        # SELECT * shows every position: the columns must not hide one.
        assert all(
            {at for name, at in one.held if name in kept} == {at for name, at in one.held if name} for one in found
        )
    else:
        kept = {item.variable.text for item in query.select.selected}
    return {Valuation(one.start, one.end, frozenset(pair for pair in one.held if pair[0] in kept)) for one in found}


_NANOSECONDS = {"nanosecond": 1, "microsecond": 10**3, "millisecond": 10**6, "second": 10**9, "minute": 60 * 10**9}
_NANOSECONDS |= {"hour": 3600 * 10**9, "day": 86400 * 10**9, "week": 7 * 86400 * 10**9}


def _in_window(window: ast.Window | None, one: Valuation, stream: list[Event], time_column: str | None) -> bool:
    match window:
        case None:
            return True
        case ast.EventsWindow():
            return one.end - one.start <= window.count
        case ast.AttributeWindow() | ast.DurationWindow():
            return bool(_elapsed(window, stream[one.start], stream[one.end], time_column) <= _size(window))
    raise AssertionError(window)


def _elapsed(
    window: ast.AttributeWindow | ast.DurationWindow, earlier: Event, later: Event, time_column: str | None
) -> Any:
    """Return how far apart two events are in what WITHIN or FOR measures; for times, in nanoseconds."""
    name = window.attribute.text if window.attribute else time_column
    first, last = earlier[name], later[name]
    if isinstance(window, ast.DurationWindow):
        return (last - first) // timedelta(microseconds=1) * 1000
    # Infinity, too, is at distance 0 from itself.
    return Decimal(0) if first == last else Decimal(last) - Decimal(first)


def _is_whole(window: ast.AttributeWindow | ast.DurationWindow, event: Event) -> bool:
    return isinstance(window, ast.AttributeWindow) and isinstance(event[window.attribute.text], int)


def _size(window: ast.AttributeWindow | ast.DurationWindow) -> Any:
    if isinstance(window, ast.AttributeWindow):
        return window.size
    return sum(Decimal(amount) * _NANOSECONDS[unit.removesuffix("s")] for amount, unit in window.parts)


def _chosen(strategy: Strategy, found: set[Valuation]) -> set[Valuation]:
    """Return the matches that a strategy keeps of those that end at one event."""
    match strategy:
        case Strategy.ALL:
            return found
        case Strategy.STRICT:
            return {
                one
                for one in found
                if one.positions and max(one.positions) - min(one.positions) + 1 == len(one.positions)
            }
        case Strategy.MAX:
            return {one for one in found if not any(one.positions < other.positions for other in found)}
        case Strategy.NEXT:
            return {one for one in found if not any(_first_differing(one, other, min) for other in found)}
        case Strategy.LAST:
            return {one for one in found if not any(_first_differing(one, other, max) for other in found)}
    raise AssertionError(strategy)


def _first_differing(one: Valuation, other: Valuation, which: Any) -> bool:
    """Whether the smallest (or largest) position that only one of them has belongs to the other."""
    differing = one.positions ^ other.positions
    return bool(differing) and which(differing) in other.positions
