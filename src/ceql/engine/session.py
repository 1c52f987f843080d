"""Feeds batches of events to the recognizer and remembers what comes between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from os import PathLike
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from ceql.automaton.lazy import DEFAULT_CAPACITY
from ceql.engine import notes
from ceql.engine.bound import Bound
from ceql.engine.intake import batch as batches
from ceql.engine.results.matches import SHAPES, Matches, Shape, result_schema
from ceql.engine.run import snapshot as snapshots
from ceql.engine.run.chunk import Chunk
from ceql.engine.run.recognizer import DEFAULT_CHUNK
from ceql.errors import CeqlError, DataError, QueryError, SnapshotError, listing
from ceql.query import Query, compile, query_text
from ceql.schema import column_names
from ceql.syntax import plan
from ceql.version import __version__

IntArray = np.ndarray[Any, np.dtype[Any]]

# What a snapshot can make Python and Arrow say that has not the form of one.
_UNREADABLE = (
    AttributeError,
    LookupError,
    OSError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
    pa.ArrowException,
)


@dataclass(frozen=True)
class Stats:
    """What a session has done and holds."""

    events: int
    matches: int
    dropped: int
    live_nodes: int
    state_bytes: int
    memo_size: int


class Session:
    """Recognises matches over batches of one stream, in the order in which they are fed.

    Any cutting of the stream into batches gives the same matches. What a session finds is read
    from the `Matches` that `feed` returns; those not read to the end when the next batch is fed are
    passed over. If anything goes wrong in a batch, the session is as it was before it.

    Threads may take turns; while one is at work, be it at reading matches, another gets a `DataError`.

    Options beyond those of `ceql.match`:

    Args:
        stream_column: where FROM names several streams and each batch is one table, in order, of them all: the
            column with the name of each event's stream.
        id_columns: for shape "events", the columns that tell events apart, which `match_id` is then made of
            instead of the row number: in a part of a stream that number says nothing. The first orders the stream.
        shares_events: for shape "matches", whether batches are as `ceql.engine.results.shared` describes them.
        max_state_bytes: how much may be held between batches.
        memo_capacity: how many computed transitions of the automaton are kept, roughly; those that are dropped are
            computed again when they are needed, so any number gives the same matches.
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
        stream_column: str | None = None,
        id_columns: Sequence[str] = (),
        shares_events: bool = False,
        sort: bool = False,
        max_state_bytes: int | None = None,
        memo_capacity: int = DEFAULT_CAPACITY,
        chunk_size: int = DEFAULT_CHUNK,
    ) -> None:
        if shape not in SHAPES:
            raise ValueError(f"unknown shape {shape!r}: choose one of {', '.join(SHAPES)}")
        self._given = query = query if isinstance(query, Query) else query_text(query)
        self.shape: Shape = shape
        self.type_column = type_column
        self.time_column = time_column
        self.order_by = column_names(order_by)
        self.stream_column = stream_column
        self.id_columns = tuple(id_columns)
        self.shares_events = shares_events
        self.sort = sort
        # Untyped as long as the events are not known, so that a wrong query is told at once.
        self._draft = query if isinstance(query, Query) else _compiled(query, None, (), time_column, ())
        self.options = {"max_state_bytes": max_state_bytes, "capacity": memo_capacity, "chunk": chunk_size}
        self.collects_always = False
        self.warns = True
        self._bound: Bound | None = None
        self._turn = _Turn()
        self._unread: Iterator[Chunk] | None = None
        self._is_read = True

    @property
    def query(self) -> Query | None:
        """The query, bound to the events' schema by the first batch."""
        return self._bound.query if self._bound is not None else None

    @property
    def stats(self) -> Stats:
        """Counters, and the size of what is held between batches.

        `events`, `matches` and `dropped` (events without partition key or time) count from the start; `live_nodes` and
        `state_bytes` say how much is held for open matches, `memo_size` how many determinized states are known.
        Any thread may look at any time.
        """
        bound = self._bound
        if bound is None:
            return Stats(0, 0, 0, 0, 0, 0)
        state = bound.recognizer.state
        return Stats(
            state.n_events,
            state.n_matches,
            state.n_dropped,
            state.n_nodes,
            bound.n_bytes,
            bound.recognizer.memo.size,
        )

    def feed(self, events: object) -> Matches:
        """Return the matches that some more events complete, to be read lazily.

        `events` is whatever `ceql.match` takes: one table of events, or a dict of them by stream.
        """
        with self._turn:
            self._finish()
            schema, parts, streams = self._parts(events)
            if not schema.names:
                return self._no_matches()
            batches.check_names(schema)
            bound = self._bound or self._bind(schema)
            bound.check_schema(schema)
            running = self._unread = self._recognise(bound, parts, streams)
        is_read = False

        def start() -> Iterator[tuple[int, Callable[[], pa.RecordBatch]]]:
            nonlocal is_read
            if is_read:
                raise DataError("these matches have been read already, and their events are gone")
            is_read = True
            while (found := self._next(bound, running)) is not None:
                yield found

        return Matches(bound.schema, bound.query.plan, start)

    def snapshot(self) -> bytes:
        """Return all that the session must remember, as bytes that `restore` takes, in any process."""
        with self._turn:
            self._finish()
            if self._bound is None:
                return snapshots.write(self._identity(), {"is_bound": False})
            content = {"is_bound": True, **self._bound.content()}
            return snapshots.write(self._identity(), content)

    @property
    def holds(self) -> bool:
        """Whether anything is held that a later event could complete."""
        return self._bound is not None and not self._bound.is_idle

    def expire(self, now: Any) -> bool:
        """Let go of all that cannot match an event at `now` or later; return whether anything is still held.

        `now` is a value of the attribute that WITHIN measures. Without it a session lets go when it is fed.
        """
        with self._turn:
            self._finish()
            if self._bound is None:
                return False
            if self._bound.measure.attribute is not None:
                self._bound.expire(self._bound.measure.stored(now))
            return self.holds

    def key_hashes(self) -> IntArray:
        """Return the hash of each partition key that has anything open, as `intake.keys.key_hashes` gives it."""
        with self._turn:
            self._finish()
            if self._bound is None:
                return np.empty(0, np.uint64)
            self._bound.expire()
            return self._bound.key_hashes()

    def keep_keys(self, is_kept: IntArray) -> None:
        """Let go of all but some partition keys, told in the order of `key_hashes`, to which nothing was fed since.

        What is fed afterwards must be of those keys only: another session may go on with the others.
        """
        with self._turn:
            if self._bound is not None:
                self._bound.keep_keys(is_kept)

    @classmethod
    def restore(cls, query: Query | str | PathLike[str], snapshot: bytes, **options: Any) -> Session:
        """Return a session that goes on where the one that made the snapshot was.

        `options` are those of the constructor, and must be the same; a snapshot of another query,
        shape or release is refused.
        """
        session = cls(query, **options)
        try:
            content = snapshots.read(session._identity(), snapshot)
            if content["is_bound"]:
                schema = content["events"].schema
                session._bound = session._bind(schema)
                session._bound.take(content)
        except SnapshotError:
            raise
        except CeqlError as error:
            raise SnapshotError(f"the snapshot does not fit the query: {error.message}", error.hint) from error
        except _UNREADABLE as error:
            raise SnapshotError(f"the snapshot is damaged: {error!r}") from error
        return session

    def _identity(self) -> str:
        return snapshots.fingerprint(__version__, self._draft.tree, self.shape, self.type_column, *self._order())

    def _order(self) -> tuple[str | None, tuple[str, ...]]:
        """Return the time column and the columns that order events: those of the query where none are given here."""
        if isinstance(self._given, Query):
            return self.time_column or self._given.time_column, self.order_by or self._given.order_by
        return self.time_column, self.order_by

    def _next(self, bound: Bound, running: Iterator[Chunk]) -> tuple[int, Callable[[], pa.RecordBatch]] | None:
        """Return the next matches of the last batch; None after the last."""
        with self._turn:
            self._check_is_last(running)
            chunk = next(running, None)
            if chunk is None:
                self._unread = None
                return None
        return len(chunk), partial(self._build, bound, running, chunk)

    def _build(self, bound: Bound, running: Iterator[Chunk], chunk: Chunk) -> pa.RecordBatch:
        with self._turn:
            self._check_is_last(running)
            return bound.build(chunk)

    def _check_is_last(self, running: Iterator[Chunk]) -> None:
        if self._unread is not running:
            raise DataError("these matches were passed over when the session went on to the next batch")

    def _finish(self) -> None:
        """Run to the end of the last batch, passing over matches that were not read."""
        if self._unread is not None:
            self._is_read = False
            try:
                for _ in self._unread:
                    pass
            finally:
                self._is_read, self._unread = True, None

    def _no_matches(self) -> Matches:
        """Return the matches of an empty list: it has no columns that the query could be bound to."""
        query = self._draft
        columns = {name: data_type for stream in query.schema.streams for name, data_type in stream.columns.items()}
        schema = result_schema(self.shape, query.plan, pa.schema(list(columns.items())))
        return Matches(schema, query.plan, lambda: iter(()))

    def _parts(self, events: object) -> tuple[pa.Schema, Iterator[pa.RecordBatch], IntArray | None]:
        like = None if self._bound is None else self._bound.events_schema
        if self.stream_column is not None:
            table, streams = batches.split(events, self.stream_column, self._sources())
            return table.schema, iter(table.to_batches() or [_no_rows(table.schema)]), streams
        if isinstance(events, Mapping):
            sources = self._sources()
            if len(sources) > 1:
                table, streams = batches.merged(events, sources, self._sort_columns, like)
                return table.schema, iter(table.combine_chunks().to_batches() or [_no_rows(table.schema)]), streams
            events = batches.stream_of(events, sources[0])
        elif len(self._sources()) > 1:
            raise DataError(
                f"FROM reads the streams {listing(self._sources())}, but the events are one table",
                "give the events as a dict from streams to tables",
            )
        schema, parts = batches.read(events, like)
        if self.sort and schema.names:
            order = self._sort_columns(schema)
            if not order:
                raise DataError("there is nothing to sort by", "name the columns with time_column or order_by")
            table = pa.Table.from_batches(list(parts), schema)
            table, _ = batches.in_order(table, order, np.zeros(len(table), np.int32))
            parts = iter(table.to_batches())
        return schema, parts, None

    def _sorting(self) -> str | None:
        """Return what sorts each batch before it is run over, None if nothing does."""
        if self.stream_column is None and len(self._sources()) > 1:
            return "streams are merged"
        return "sort=True sorts" if self.sort and self.stream_column is None else None

    def _sources(self) -> list[str]:
        return [name.text for name in self._draft.tree.sources]

    def _sort_columns(self, schema: pa.Schema) -> list[str]:
        """Return the columns that order the stream: the window's attribute, the time, and those given."""
        # Only with their types is it known which column durations measure.
        window = self._compiled(schema).plan.window
        time_column, order_by = self._order()
        measured = [window.attribute] if isinstance(window, plan.AttributeWindow) else []
        return list(dict.fromkeys([*measured, *([] if time_column is None else [time_column]), *order_by]))

    def _compiled(self, schema: pa.Schema) -> Query:
        """Return the query bound to the types that the events really have."""
        text = self._given if isinstance(self._given, str) else self._given.text
        time_column, order_by = self._order()
        try:
            return _compiled(text, schema, tuple(self._sources()), time_column, order_by)
        except QueryError as error:
            if isinstance(self._given, Query) and not self._given.schema.is_unknown:
                raise DataError(f"the events do not fit the query: {error.message}", error.hint) from error
            raise

    def _bind(self, schema: pa.Schema) -> Bound:
        time_column, order_by = self._order()
        for name in (time_column, *order_by):
            if name is not None and name not in schema.names:
                raise batches.missing_column(name, schema.names)
        return Bound(
            self._compiled(schema),
            schema,
            shape=self.shape,
            type_column=self.type_column,
            time_column=time_column,
            order=tuple(self._sort_columns(schema)),
            id_columns=self.id_columns,
            shares_events=self.shares_events,
            collects_always=self.collects_always,
            sorting=self._sorting(),
            **self.options,
        )

    def _recognise(self, bound: Bound, parts: Iterator[pa.RecordBatch], streams: IntArray | None) -> Iterator[Chunk]:
        undo, was_bound = bound.begin_batch(), self._bound
        n_tied = bound.ties.n_events
        self._bound = bound
        try:
            done = 0
            for part in parts:
                own_streams = None if streams is None else streams[done : done + len(part)]
                done += len(part)
                yield from bound.run(part, own_streams, lambda: self._is_read)
                bound.forget()
            bound.end_batch()
        except GeneratorExit:
            raise
        except BaseException:
            undo()
            bound.ties.begin_anew()
            bound.ties.n_events = n_tied
            self._bound = was_bound
            raise
        if self.warns and (note := self.tied_events()) is not None:
            self.warns = False
            notes.warn(note)

    def tied_events(self) -> str | None:
        """Return how many events tie, where the matches depend on their order; None if none do."""
        ties = None if self._bound is None else self._bound.ties
        return notes.tied_events(ties.n_events, ties.order) if ties is not None and ties.n_events else None

    def unseen_types(self) -> str | None:
        """Return which event types in the query never came; None if all did, matches were found, or nothing came."""
        if self._bound is None or not self.stats.events or self.stats.matches:
            return None
        return notes.unseen_types(self._bound.types_named, self._bound.types_seen)


@lru_cache(maxsize=32)
def _compiled(
    text: str, schema: pa.Schema | None, sources: tuple[str, ...], time_column: str | None, order_by: tuple[str, ...]
) -> Query:
    """Return a query bound to the schema that all its streams have.

    PERF: kept, because a stream makes a session for each of its shards in each micro-batch, 13 ms instead of 4.
    """
    described = schema if len(sources) <= 1 else dict.fromkeys(sources, schema)
    return compile(text, described, time_column=time_column, order_by=order_by)


class _Turn:
    """Lets one in at a time, and refuses a second one: batches that are fed at the same time have no order."""

    def __init__(self) -> None:
        self._lock = Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise DataError(
                "the session is at work already: another thread uses it, or the reader of its own events does",
                "let threads take turns, or give each a session of its own",
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema)
