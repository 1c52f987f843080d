"""Matches over data in this process: Arrow tables and readers, data frames, lists of dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

import pyarrow as pa

from ceql.engine.notes import warn
from ceql.engine.results.matches import Matches, Shape
from ceql.engine.session import Session
from ceql.query import Query


def match(
    query: Query | str | PathLike[str],
    events: object,
    *,
    type_column: str | None = "type",
    time_column: str | None = None,
    order_by: str | Sequence[str] = (),
    shape: Shape = "matches",
    sort: bool = False,
    max_state_bytes: int | None = None,
) -> Matches:
    """Return the matches of a query over some events, computed while they are read.

    Args:
        query: the text of a query, the path of a file with it (a `Path`), or what `compile` made of it.
        events: a pyarrow table or reader, anything that hands over Arrow streams (pandas, polars,
            DuckDB), a list of dicts, or a dict of these by stream, which are merged in time order.
        type_column: the column with each event's type; None if that is the name of its stream.
        time_column: the column that durations in WITHIN measure, and by which streams are merged.
        order_by: further columns that order the events.
        shape: "matches", one row per match; "events", one row per matched event; "positions", row
            numbers only, which is the cheapest.
        sort: sort the events first, by time; otherwise time that runs backwards is an error.
        max_state_bytes: an error instead of more memory than this.
    """
    sessions: list[Session] = []

    def begin() -> tuple[Session, Matches]:
        session = Session(
            query,
            shape=shape,
            type_column=type_column,
            time_column=time_column,
            order_by=order_by,
            sort=sort,
            max_state_bytes=max_state_bytes,
        )
        sessions[:] = [session]
        return session, session.feed(events)

    given = events.values() if isinstance(events, Mapping) else [events]
    session, first = begin()
    pending = [(session, first)]

    def start() -> Iterator[tuple[int, Callable[[], Any]]]:
        # What can be read only once has been used up by the first reading.
        if not pending and any(isinstance(one, pa.RecordBatchReader) for one in given):
            return first.start()
        return _until_the_end(*(pending.pop() if pending else begin()))

    return Matches(first.schema, first.plan, start, lambda: sessions[-1].stats.dropped)


def _until_the_end(session: Session, matches: Matches) -> Iterator[tuple[int, Callable[[], Any]]]:
    """Yield matches, then say what never came if there were none."""
    yield from matches.start()
    if (note := session.unseen_types()) is not None:
        warn(note)
