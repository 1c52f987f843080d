"""Feeds batches of events to the recognizer and keeps the state between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from os import PathLike
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from ceql.engine.intake import batch as batches
from ceql.engine.intake.moments import TIME_COMES
from ceql.engine.options import DEFAULT_CAPACITY, DEFAULT_CHUNK, Layout, Limits, Shape
from ceql.engine.pipeline import END_OF_ALL, Moment, Pipeline
from ceql.engine.reading import Reading
from ceql.engine.results.matches import Found, Matches, Source
from ceql.engine.results.shapes import result_schema
from ceql.engine.setup import Setup
from ceql.errors import DataError, listing, warn
from ceql.query import Draft, Query, read_draft
from ceql.schema import Schema, column_names
from ceql.syntax import plan

IntArray = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Stats:
    """What a session has done, and what it holds."""

    events: int
    matches: int
    dropped: int
    live_nodes: int
    state_bytes: int
    memo_size: int


class Session:
    """Recognises matches over batches of one stream, in the order in which they are fed.

    However the stream is cut into batches, the matches are the same. Read them from the `Matches` that `feed` returns;
    matches that are not read when the next batch is fed are skipped. If a batch fails, the session is as it was before
    the batch.

    Threads may take turns. While one thread feeds or reads matches, another thread gets a `DataError`.

    Options beyond those of `ceql.match`:

    Args:
        max_state_bytes: the most that may be held between batches.
        memo_capacity: roughly how many computed transitions of the automaton are kept; others are computed again when
            needed, so any number gives the same matches.
        chunk_size: how many matches, at most, make a batch of the result.
    """

    def __init__(
        self,
        query: Query | str | PathLike[str],
        *,
        shape: Shape = "matches",
        type_column: str | None = "type",
        time_column: str | None = None,
        order_by: str | Sequence[str] = (),
        sort: bool = False,
        params: Mapping[str, object] | None = None,
        max_state_bytes: int | None = None,
        memo_capacity: int = DEFAULT_CAPACITY,
        chunk_size: int = DEFAULT_CHUNK,
    ) -> None:
        if isinstance(query, Query):
            time_column, order_by = time_column or query.time_column, order_by or query.order_by
        layout = Layout(shape, type_column, time_column, column_names(order_by))
        if isinstance(query, Query):
            draft, self._schema, self._plan = query.draft.given(params), query.schema, query.plan
        else:
            draft, self._schema = read_draft(query).given(params), Schema.unknown()
            # A wrong query is an error at once, although the types of the events are not known yet.
            self._plan = _untyped_plan(draft, layout.time_column, layout.order_by)
        self._sort = sort
        self._setup = Setup(
            draft,
            layout,
            Limits(max_state_bytes, memo_capacity, chunk_size),
            sorting="streams are merged" if len(draft.sources) > 1 else "sort=True sorts" if sort else None,
            is_typed=not self._schema.is_unknown,
        )
        self.warns = True
        self._settled: Pipeline | None = None
        self._reading: Reading | None = None
        self._turn = _Turn()
        self._has_ended = False
        """Whether the session was finished before its first batch."""

    @property
    def query(self) -> Query | None:
        """The query, bound to the events' schema by the first batch."""
        return None if self.pipeline is None else self.pipeline.query

    @property
    def limits(self) -> Limits:
        """How much may be held; another choice counts from the first batch on."""
        return self._setup.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._setup = replace(self._setup, limits=limits)

    @property
    def stats(self) -> Stats:
        """Counters, and the size of the state that is held between batches.

        `events`, `matches` and `dropped` (events without partition key or time) count from the start. `live_nodes` and
        `state_bytes` say how much is held for open matches, `memo_size` how many determinized states are known. Any
        thread may read them at any time.
        """
        pipeline = self.pipeline
        if pipeline is None:
            return Stats(0, 0, 0, 0, 0, 0)
        return Stats(
            pipeline.intake.n_events,
            pipeline.run.n_matches,
            pipeline.encoder.n_dropped,
            pipeline.run.n_nodes,
            pipeline.n_bytes,
            pipeline.run.n_states,
        )

    def feed(self, events: object) -> Matches:
        """Return the matches that these events complete, to be read lazily.

        `events` is anything that `ceql.match` takes: one table of events, or a dict of tables by stream.
        """
        return Matches(self.read(events))

    def advance(self, now: Any) -> Matches:
        """Return the matches that are complete when the clock shows `now`, to be read lazily.

        These are matches of `NOT ... FOR` at the end of a pattern: nothing that may not come has come before `now`.
        `now` is a value of the attribute that FOR and WITHIN measure; no earlier event may be fed afterwards. A session
        that has not been fed does not note the time.
        """
        if now is None:
            raise DataError("advance needs a time", "finish says that no event comes any more")
        return Matches(self._reach(Moment(TIME_COMES, now)))

    def finish(self) -> Matches:
        """Return the matches that are complete if no event comes any more; no event may be fed afterwards."""
        return Matches(self._reach(END_OF_ALL))

    def _reach(self, moment: Moment) -> Source:
        with self._turn:
            self._settle()
            self._check_goes_on()
            if self._settled is None:
                self._has_ended = moment.now is None
                return self._no_matches()
            self._settled.check_moment(moment)
            reading = self._reading = Reading(self._settled, (), None, self._turn, moment)
        return reading

    def read(self, events: object, moment: Moment | None = None) -> Source:
        """Return the source of the matches that these events complete, and then a moment after them; see `feed`."""
        with self._turn:
            self._settle()
            self._check_goes_on()
            schema, parts, streams = self._parts(events)
            if not len(schema):
                return self._no_matches()
            pipeline = self._settled
            if pipeline is None:
                batches.check_names(schema)
                pipeline = self._setup.bind(schema)
            pipeline.intake.check_schema(schema)
            reading = self._reading = Reading(pipeline, parts, streams, self._turn, moment)
        reading.at_end(self._warn_of_ties)
        return reading

    def snapshot(self) -> bytes:
        """Return the state of the session as bytes, which `restore` takes in any process."""
        with self._turn:
            self._settle()
            return self._setup.write(self._settled)

    @property
    def holds(self) -> bool:
        """Whether the session holds a partial match that a later event could complete."""
        return self.pipeline is not None and self.pipeline.holds

    def expire(self, now: Any) -> bool:
        """Forget partial matches that no event at `now` or later can complete; return whether any are left.

        `now` is a value of the attribute that WITHIN measures. Without this call, a session forgets when it is fed.
        """
        with self._turn:
            self._settle()
            if self._settled is not None:
                self._settled.expire(now)
            return self.holds

    @classmethod
    def restore(cls, query: Query | str | PathLike[str], snapshot: bytes, **options: Any) -> Session:
        """Return a session that continues where the snapshot was taken.

        `options` are those of the constructor, and must be the same; a snapshot of another query,
        shape or release is refused.
        """
        session = cls(query, **options)
        session._settled = session._setup.read(snapshot)
        return session

    @property
    def pipeline(self) -> Pipeline | None:
        """The pipeline, as far as the last batch was read; None before the first batch, or if that failed."""
        if self._reading is not None and not self._reading.has_failed:
            return self._reading.pipeline
        return self._settled

    def _check_goes_on(self) -> None:
        if self._has_ended or (self._settled is not None and self._settled.has_ended):
            raise DataError("the session is finished: it takes no more events", "begin a new session")

    def _settle(self) -> None:
        """Run to the end of the last batch, and skip matches that were not read."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.pass_over()
            if not reading.has_failed:
                self._settled = reading.pipeline

    def _no_matches(self) -> Source:
        """Return the matches of an empty list, which has no columns to bind the query to."""
        columns = {name: data_type for stream in self._schema.streams for name, data_type in stream.columns.items()}
        schema = result_schema(self._setup.layout.shape, self._plan, pa.schema(list(columns.items())))
        return _Nothing(schema, self._plan)

    def _parts(self, events: object) -> tuple[pa.Schema, Iterator[pa.RecordBatch], IntArray | None]:
        like = None if self._settled is None else self._settled.intake.known_types
        sources = self._setup.draft.sources
        if isinstance(events, Mapping):
            if len(sources) > 1:
                table, streams = batches.merged(events, sources, self._order_of, like)
                return table.schema, iter(table.combine_chunks().to_batches() or [_no_rows(table.schema)]), streams
            events = batches.stream_of(events, sources[0])
        elif len(sources) > 1:
            raise DataError(
                f"FROM reads the streams {listing(sources)}, but the events are one table",
                "give the events as a dict from streams to tables",
            )
        schema, parts = batches.read(events, like)
        if self._sort and schema.names:
            order = self._order_of(schema)
            if not order:
                raise DataError("there is nothing to sort by", "name the columns with time_column or order_by")
            table = pa.Table.from_batches(list(parts), schema)
            table, _ = batches.in_order(table, order, np.zeros(len(table), np.int32))
            parts = iter(table.to_batches())
        return schema, parts, None

    def _order_of(self, schema: pa.Schema) -> tuple[str, ...]:
        if self._settled is not None:
            # Before they are sorted: the query is right, whatever these columns are.
            self._settled.intake.check_schema(schema)
            return self._settled.query.plan.order
        # Only the types of the columns show which column durations measure.
        return self._setup.query(schema).plan.order

    def _warn_of_ties(self) -> None:
        if self.warns and self.pipeline is not None and (note := self.pipeline.note_ties()) is not None:
            self.warns = False
            warn(note)


@lru_cache(maxsize=32)
def _untyped_plan(draft: Draft, time_column: str | None, order_by: tuple[str, ...]) -> plan.Plan:
    # PERF: kept, because the same query is often matched again: S24 over no events in 4.3 instead of 6.2 ms.
    return draft.plan(Schema.unknown(), time_column, order_by)


@dataclass(frozen=True)
class _Nothing:
    """Where there are no matches."""

    schema: pa.Schema
    plan: plan.Plan
    n_dropped: int = 0

    def begin(self) -> Iterator[Found]:
        return iter(())

    def cancel(self) -> None:
        """Do nothing: there is nothing to stop."""


class _Turn:
    """Lets one thread in at a time, and refuses a second: batches that are fed at the same time have no order."""

    def __init__(self) -> None:
        self._lock = Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise DataError(
                "the session is already in use: by another thread, or by the reader of its own events",
                "let threads take turns, or give each thread its own session",
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    # Not `from_pylist`, which lacks dictionaries of times.
    return pa.record_batch([pa.nulls(0, field.type) for field in schema], schema=schema)
