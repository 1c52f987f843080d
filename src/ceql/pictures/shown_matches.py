"""The matches that a picture shows, read from Arrow batches of any of the three shapes.

Only what is shown is read, unless all matches are to be counted; counting makes no rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ceql.errors import DataError, listing
from ceql.syntax.plan import MATCH_END, MATCH_START

MAX_MATCHES = 200
"""Most matches that are shown."""
MAX_EVENTS_OF_VARIABLE = 100
"""Most events that are shown for one variable in one match."""
MAX_ROWS = 20_000
"""Most rows of shape `events` that are read: each row is an event."""

Attributes = dict[str, Any]


@dataclass
class ShownMatch:
    """A match: its events, each with the number of its variable, and how many events are left out."""

    start: Any = None
    end: Any = None
    partition: Attributes = field(default_factory=dict)
    events: list[tuple[int, Attributes]] = field(default_factory=list)
    n_left_out: int = 0


@dataclass
class ShownMatches:
    """The first matches, their variables, and how many matches there are (None if unknown)."""

    variables: list[str]
    matches: list[ShownMatch]
    total: int | None
    has_more: bool
    time: str | None = None
    """The attribute that holds each event's place, where the shape says so."""


def read_matches(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, counts_all: bool = False, total: int | None = None
) -> ShownMatches:
    """Return the first matches of some batches; `DataError` if the batches hold no matches.

    Args:
        schema: the columns of the batches.
        batches: rows of shape `matches`, `events` or `positions`.
        counts_all: whether to read to the end to count all matches.
        total: how many rows there are, if that is known.
    """
    names = schema.names
    if MATCH_START in names and MATCH_END in names:
        return _read_rows(_MatchesShape(schema), batches, counts_all=counts_all, total=total)
    if {"match_id", "variables"} <= set(names):
        return _read_events(schema, batches, counts_all=counts_all)
    if {"start", "end", "positions"} <= set(names):
        return _read_rows(_PositionsShape(), batches, counts_all=counts_all, total=total)
    others = listing(names) or "none at all"
    raise DataError(
        f"these are not matches: there are no columns {MATCH_START} and {MATCH_END}, but {others}",
        "give the result of a query",
    )


def _read_rows(
    shape: _MatchesShape | _PositionsShape, batches: Iterable[pa.RecordBatch], *, counts_all: bool, total: int | None
) -> ShownMatches:
    """Return the first matches where each has a row of its own."""
    matches: list[ShownMatch] = []
    n_read = 0
    for batch in batches:
        n_read += len(batch)
        matches += shape.matches(batch.slice(0, MAX_MATCHES - len(matches)))
        if n_read > MAX_MATCHES and (total is not None or not counts_all):
            break
    else:
        total = n_read
    return ShownMatches(shape.variables, matches, total, n_read > MAX_MATCHES, shape.time)


class _MatchesShape:
    """A row per match, a column per variable."""

    time = None

    def __init__(self, schema: pa.Schema) -> None:
        names = schema.names
        first = max(names.index(MATCH_START), names.index(MATCH_END)) + 1
        self.variables = [name for name in names[first:] if _may_hold_events(schema.field(name).type)]
        self.partition = [name for name in names if name not in (MATCH_START, MATCH_END, *self.variables)]

    def matches(self, batch: pa.RecordBatch) -> Iterator[ShownMatch]:
        starts, ends = (values_of(batch.column(name)) for name in (MATCH_START, MATCH_END))
        partition = [(name, values_of(batch.column(name))) for name in self.partition]
        columns = [_events_of(batch.column(name)) for name in self.variables]
        for row in range(len(batch)):
            match = ShownMatch(starts[row], ends[row], {name: values[row] for name, values in partition})
            for number, (events, n_left_out) in enumerate(columns):
                match.events += ((number, event) for event in events[row] if isinstance(event, dict))
                match.n_left_out += n_left_out[row]
            yield match


class _PositionsShape:
    """A row per match, with the row numbers of its events."""

    time = "row"
    variables = ["positions"]  # noqa: RUF012

    def matches(self, batch: pa.RecordBatch) -> Iterator[ShownMatch]:
        events, n_left_out = _events_of(batch.column("positions"))
        columns = zip(*(batch.column(name).to_pylist() for name in ("start", "end")), events, n_left_out, strict=True)
        for start, end, rows, n in columns:
            yield ShownMatch(start, end, {}, [(0, {"row": row}) for row in rows], n)


def _may_hold_events(data_type: pa.DataType) -> bool:
    """Whether a column can belong to a variable; text may be JSON, which CSV has instead of structs."""
    is_list = pa.types.is_list(data_type) or pa.types.is_large_list(data_type)
    inner = data_type.value_type if is_list else data_type
    return bool(pa.types.is_struct(inner) or pa.types.is_null(inner) or pa.types.is_string(data_type))


def _events_of(column: pa.Array) -> tuple[list[list[Attributes]], list[int]]:
    """Return the events of a variable in each match, and how many more the variable has there."""
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return _lists_of(column)
    values = values_of(column)
    if pa.types.is_string(column.type):
        values = [_parsed(value, "null") for value in values]
    lists = [value if isinstance(value, list) else [] if value is None else [value] for value in values]
    shown = [events[:MAX_EVENTS_OF_VARIABLE] for events in lists]
    return shown, [max(0, len(events) - MAX_EVENTS_OF_VARIABLE) for events in lists]


def _lists_of(column: pa.Array) -> tuple[list[list[Any]], list[int]]:
    """Return the first elements of each list, and how many more it has; only these elements become Python objects."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_pylist()
    cut = column if max(lengths, default=0) <= MAX_EVENTS_OF_VARIABLE else _cut(column)
    lists = [[] if events is None else [event for event in events if event is not None] for events in values_of(cut)]
    return lists, [max(0, length - MAX_EVENTS_OF_VARIABLE) for length in lengths]


def _cut(column: pa.Array) -> pa.Array:
    """Return lists cut to the length that is shown."""
    lists = [column.slice(row, 1).flatten().slice(0, MAX_EVENTS_OF_VARIABLE) for row in range(len(column))]
    offsets = [0]
    for events in lists:
        offsets.append(offsets[-1] + len(events))
    kind = pa.LargeListArray if pa.types.is_large_list(column.type) else pa.ListArray
    offset_type = pa.int64() if pa.types.is_large_list(column.type) else pa.int32()
    return kind.from_arrays(pa.array(offsets, offset_type), pa.concat_arrays(lists))


def _parsed(text: str | None, otherwise: str) -> Any:
    try:
        return json.loads(text or otherwise)
    except ValueError as error:
        raise DataError(f"the column of a variable has text that is not JSON: {error}") from error


def _read_events(schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, counts_all: bool) -> ShownMatches:
    """Return the first matches where each event has a row; the rows of a match follow one another."""
    shape = _EventsShape(schema)
    total = None
    for batch in batches:
        shape.add(batch)
        if not counts_all and (shape.n_matches > MAX_MATCHES or shape.n_rows > MAX_ROWS):
            break
    else:
        total = shape.n_matches
    return ShownMatches(list(shape.variables), shape.matches, total, total is None or total > len(shape.matches))


class _EventsShape:
    """A row per event, with the match that it belongs to and the variables that hold it."""

    def __init__(self, schema: pa.Schema) -> None:
        self.attributes = [name for name in schema.names if name not in ("match_id", "variables")]
        self.variables: dict[str, int] = {}
        self.matches: list[ShownMatch] = []
        self.n_matches = 0
        self.n_rows = 0
        self.last: Any = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the events to be shown from a batch, and count the matches of the others."""
        n_wanted = 0 if self.n_matches > MAX_MATCHES else max(0, MAX_ROWS - self.n_rows)
        shown = batch.slice(0, n_wanted)
        names = values_of(shown.column("variables"))
        values = list(zip(*(values_of(shown.column(name)) for name in self.attributes), strict=True))
        self.n_rows += len(batch)
        for number, match_id in enumerate(values_of(batch.column("match_id"))):
            is_shown = number < len(shown)
            if match_id != self.last:
                self.last = match_id
                self.n_matches += 1
                if is_shown and self.n_matches <= MAX_MATCHES:
                    self.matches.append(ShownMatch())
            if self.n_matches == len(self.matches):
                if is_shown:
                    self._add_event(names[number], values[number] if values else ())
                else:
                    self.matches[-1].n_left_out += 1

    def _add_event(self, names: str | list[str] | None, values: Sequence[Any]) -> None:
        held_by = _parsed(names, "[]") if isinstance(names, str) else names or []
        attributes = dict(zip(self.attributes, values, strict=False))
        for name in held_by:
            self.matches[-1].events.append((self.variables.setdefault(name, len(self.variables)), attributes))


def values_of(column: pa.Array) -> Sequence[Any]:
    """Return a column's values as Python objects; times are cut to microseconds."""
    wanted = _plain(column.type)
    values: Sequence[Any] = (column if wanted == column.type else column.cast(wanted, safe=False)).to_pylist()
    return values


def _plain(data_type: pa.DataType) -> pa.DataType:
    """Return a type whose values need only Python's own library."""
    if pa.types.is_timestamp(data_type) and data_type.unit == "ns":
        return pa.timestamp("us", data_type.tz)
    if pa.types.is_duration(data_type) and data_type.unit == "ns":
        return pa.duration("us")
    if pa.types.is_time64(data_type) and data_type.unit == "ns":
        return pa.time64("us")
    if pa.types.is_dictionary(data_type):
        return _plain(data_type.value_type)
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(_plain(field.type)) for field in data_type])
    if pa.types.is_large_list(data_type):
        return pa.large_list(data_type.value_field.with_type(_plain(data_type.value_type)))
    if pa.types.is_list(data_type):
        return pa.list_(data_type.value_field.with_type(_plain(data_type.value_type)))
    return data_type
