"""Places events on the axis: chooses the attribute, and turns its values into numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

from ceql.errors import DataError, did_you_mean, listing
from ceql.pictures.shown_matches import ShownMatch, ShownMatches

Kind = Literal["time", "number"]
Number = int | float

_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d.*)?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Axis:
    """The axis: times in milliseconds since 1970, or numbers; offsets are relative to the origin."""

    kind: Kind
    name: str
    origin: float
    zone: str = ""
    note: str = ""


def number_of(value: Any) -> tuple[Kind, Number] | None:
    """Return a value as a number on an axis, None if it has no place there; times are in microseconds.

    >>> number_of(2.5), number_of("1970-01-01T00:00:01Z"), number_of("one")
    (('number', 2.5), ('time', 1000000), None)
    """
    match value:
        case bool() | None:
            return None
        case int():
            return "number", value
        case float() | Decimal():
            return ("number", float(value)) if math.isfinite(value) else None
        case datetime():
            moment = value if value.tzinfo else value.replace(tzinfo=UTC)
            return "time", (moment - _EPOCH) // timedelta(microseconds=1)
        case date():
            return "time", (value - _EPOCH.date()) // timedelta(microseconds=1)
        case timedelta():
            return "number", value.total_seconds()
        case str() if _DATE.fullmatch(value):
            return _number_of_text(value)
    return None


def _number_of_text(text: str) -> tuple[Kind, Number] | None:
    """Return the time that text stands for: JSON and CSV have no other way to write one."""
    try:
        return number_of(datetime.fromisoformat(text))
    except ValueError:
        return None


def _has_zone(value: Any) -> bool:
    if isinstance(value, str):
        return re.search(r":\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)$", value) is not None
    return isinstance(value, datetime) and value.tzinfo is not None


def place_events(shown: ShownMatches, time: str | None) -> tuple[Axis, list[list[float | None]]]:
    """Return the axis, and the place of each event of each match; `DataError` if no event has such an attribute.

    Args:
        shown: the matches.
        time: the attribute that holds the places; if it is None, one is looked for.
    """
    name = time or shown.time or _attribute_of_places(shown)
    if name is None:
        return _evenly(shown)
    places = [[number_of(attributes.get(name)) for _, attributes in match.events] for match in shown.matches]
    kinds = {place[0] for row in places for place in row if place is not None}
    if time is not None:
        _check_attribute(shown, time, has_places=bool(kinds))
    kind: Kind = "time" if "time" in kinds else "number"
    numbers = [[None if place is None or place[0] != kind else place[1] for place in row] for row in places]
    has_zone = any(_has_zone(attributes.get(name)) for match in shown.matches for _, attributes in match.events)
    return _axis(kind, name, numbers, zone="UTC" if has_zone else "")


def _axis(
    kind: Kind, name: str, numbers: list[list[Number | None]], *, zone: str = "", note: str = ""
) -> tuple[Axis, list[list[float | None]]]:
    """Return the axis and the places on it. The origin is subtracted before numbers lose digits."""
    first = min((number for row in numbers for number in row if number is not None), default=0)
    scale = 1000 if kind == "time" else 1
    places = [[None if number is None else (number - first) / scale for number in row] for row in numbers]
    return Axis(kind, name, first / scale, zone, note), places


def _check_attribute(shown: ShownMatches, name: str, *, has_places: bool) -> None:
    known = list(dict.fromkeys(key for match in shown.matches for _, attributes in match.events for key in attributes))
    if not known:
        return
    if name not in known:
        hint = did_you_mean(name, known)
        raise DataError(
            f"no event has an attribute '{name}'", f"{hint + ' ' if hint else ''}there are: {listing(known)}"
        )
    if not has_places:
        raise DataError(f"the attribute '{name}' holds neither times nor numbers")


def _attribute_of_places(shown: ShownMatches) -> str | None:
    """Return the attribute that `match_start` and `match_end` show, or else the most likely one."""
    names = list(dict.fromkeys(key for match in shown.matches for _, attributes in match.events for key in attributes))
    scores = [(_score(shown.matches, name), name) for name in names]
    best = max((score for score, _ in scores), default=0)
    if best:
        return next(name for score, name in scores if score == best)
    times = (name for name in names if "time" in _kinds(shown.matches, name))
    return next(times, None) or next((name for name in names if _is_in_order(shown.matches, name)), None)


def _score(matches: Iterable[ShownMatch], name: str) -> int:
    """Return at how many ends of matches an attribute has the value in the result; 0 if it lies outside of a match."""
    score = 0
    for match in matches:
        start, end = number_of(match.start), number_of(match.end)
        values = _values(match, name)
        if start is None or end is None or not values:
            continue
        if {kind for kind, _ in values} != {start[0]} or min(values) < start or (max(values) > end):
            return 0
        score += (min(values) == start) + (max(values) == end and not match.n_left_out)
    return score


def _values(match: ShownMatch, name: str) -> list[tuple[Kind, Number]]:
    found = (number_of(attributes.get(name)) for _, attributes in match.events)
    return [value for value in found if value is not None]


def _kinds(matches: Iterable[ShownMatch], name: str) -> set[Kind]:
    return {kind for match in matches for kind, _ in _values(match, name)}


def _is_in_order(matches: Sequence[ShownMatch], name: str) -> bool:
    """Whether an attribute orders the events of every match, and is not the same for all of them."""
    if any(match.start is not None for match in matches):
        return False
    rows = [_values(match, name) for match in matches]
    return all(row == sorted(row) for row in rows) and any(row and row[0] != row[-1] for row in rows)


def _evenly(shown: ShownMatches) -> tuple[Axis, list[list[float | None]]]:
    """Return evenly spaced places between the ends of each match, because the result has no places."""
    kinds = {place[0] for match in shown.matches if (place := number_of(match.start)) is not None}
    kind: Kind = "time" if kinds == {"time"} else "number"
    has_ends = len(kinds) == 1
    note = "only the ends of matches are known: the events between them are spaced evenly"
    if not has_ends:
        note = "the result does not say when events happened: they are shown in their order"
    numbers: list[list[Number | None]] = [list(_steps(match, has_ends=has_ends)) for match in shown.matches]
    name = "" if kind == "time" else "row" if has_ends else "order"
    return _axis(kind, name, numbers, note=note if any(match.events for match in shown.matches) else "")


def _steps(match: ShownMatch, *, has_ends: bool) -> Iterator[Number]:
    start, end = number_of(match.start), number_of(match.end)
    n_steps = max(1, len(match.events) - 1)
    for number in range(len(match.events)):
        if not has_ends or start is None or end is None:
            yield number
        else:
            yield start[1] + (end[1] - start[1]) * number / n_steps
