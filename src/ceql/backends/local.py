"""Matches over data in this process: Arrow tables and readers, data frames, lists of dicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any

import pyarrow as pa

from ceql.engine.options import Shape
from ceql.engine.pipeline import END_OF_ALL, END_OF_EVENTS, Moment
from ceql.engine.reading import Reading
from ceql.engine.results.matches import Found, Matches
from ceql.engine.session import Session
from ceql.errors import warn
from ceql.query import Query
from ceql.syntax.plan import Plan


def match(
    query: Query | str | PathLike[str],
    events: object,
    *,
    type_column: str | None = "type",
    time_column: str | None = None,
    order_by: str | Sequence[str] = (),
    shape: Shape = "matches",
    sort: bool = False,
    complete: bool = False,
    params: Mapping[str, object] | None = None,
    max_state_bytes: int | None = None,
) -> Matches:
    """Return the matches of a query over some events, computed while they are read.

    Args:
        query: the text of a query, the path of a file with it (a `Path`), or the result of `compile`.
        events: a pyarrow table or reader, anything that exports Arrow streams (pandas, polars,
            DuckDB), a list of dicts, or a dict of these by stream, which are merged in time order.
        type_column: the column with each event's type; None if every event has its stream's name as type.
        time_column: the column that durations in WITHIN and FOR measure, and that merges streams.
        order_by: further columns that order the events.
        shape: "matches", one row per match; "events", one row per matched event; "positions", row
            numbers only, which is the cheapest.
        sort: sort the events by time first; without it, time that runs backwards is an error.
        complete: whether nothing comes after these events. Then the matches of `NOT ... FOR` count whose time goes
            beyond the last event.
        params: the values of the query's parameters; see `ceql.compile`. They replace those of a compiled query.
        max_state_bytes: raise an error rather than hold more than this.
    """
    options: dict[str, Any] = {
        "shape": shape,
        "type_column": type_column,
        "time_column": time_column,
        "order_by": order_by,
        "sort": sort,
        "params": params,
        "max_state_bytes": max_state_bytes,
    }
    return Matches(_Rereading(query, events, options, END_OF_ALL if complete else END_OF_EVENTS))


class _Rereading:
    """Reads the events again each time that matches are read, if the events allow it."""

    def __init__(
        self, query: Query | str | PathLike[str], events: object, options: dict[str, Any], end: Moment
    ) -> None:
        self._query, self._events, self._options, self._end = query, events, options, end
        self._has_begun = False
        self._read()

    def _read(self) -> None:
        session = Session(self._query, **self._options)
        self._source = session.read(self._events, self._end)
        if isinstance(self._source, Reading):
            self._source.at_end(partial(_warn_of_unseen_types, self._source))

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self._source.schema

    @property
    def plan(self) -> Plan:
        """The plan of the query."""
        return self._source.plan

    @property
    def n_dropped(self) -> int:
        """How many events the last reading left out."""
        return self._source.n_dropped

    def begin(self) -> Iterator[Found]:
        """Begin to read; an error if an earlier reading has used up the events."""
        given = self._events.values() if isinstance(self._events, Mapping) else [self._events]
        is_gone = any(isinstance(events, pa.RecordBatchReader) for events in given)
        if self._has_begun and not is_gone:
            self._read()
        self._has_begun = True
        return self._source.begin()

    def cancel(self) -> None:
        """Stop the last reading."""
        self._source.cancel()


def _warn_of_unseen_types(reading: Reading) -> None:
    if (note := reading.pipeline.note_unseen_types()) is not None:
        warn(note)
