"""What a micro-batch does with the events of one shard: buffer them until the watermark passes them, then match them.

A shard is a number that partition keys hash to. Its state is the state of all its keys:
- a header with the identity of the state, and the sessions of its parts, as `parts` stores them;
- events that have arrived but are not yet behind the watermark, as Arrow data, in no order.
Each is written only when it has changed, and a part is read only when there are events for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ceql.backends.spark.stream.parts import MAX_BITS, WHOLE, Parts, from_blob, is_next_bit_set, to_blob
from ceql.backends.spark.stream.rows import TIME, from_bytes, micros_of, to_bytes
from ceql.backends.spark.task_session import TaskOptions, TaskSession
from ceql.engine.intake.keys import key_hashes
from ceql.engine.intake.moments import TIME_IS_OVER
from ceql.engine.intake.order import sign_of_zero, sort_keys, sorted_rows
from ceql.engine.options import Layout, Shape
from ceql.engine.pipeline import Moment
from ceql.errors import SnapshotError
from ceql.query import normal_text
from ceql.version import __version__

MAX_PART_BYTES = 4 << 20
"""Bytes of a part's snapshot beyond which it is split.

Over 60 MB of state, a step with one event took 23, 37 and 59 ms of CPU with limits of 2, 4 and 8 MB. A step that
touched all parts took 620, 470 and 410 ms. Without parts, a step with a hundred events took 1.5 s.
"""


@dataclass(frozen=True)
class StreamTask:
    """What a shard must know.

    All of it is part of the state's identity, except the layout of the query's text and `max_part_bytes`. `keys` are
    the columns by which a state can be split; there are none if all events belong together. `reach_micros` is how long
    an event can matter; None if there is no limit.
    """

    query: str
    shape: Shape
    type_column: str | None
    time_column: str | None
    order_by: tuple[str, ...]
    order: tuple[str, ...]
    ties: tuple[str, ...]
    stream_column: str | None
    sources: tuple[str, ...]
    columns: tuple[str, ...]
    id_columns: tuple[str, ...]
    ordering: str
    n_shards: int
    keys: tuple[str, ...]
    reach_micros: int | None
    max_part_bytes: int = MAX_PART_BYTES

    @property
    def options(self) -> TaskOptions:
        """The options for recognising the matches of a part."""
        layout = Layout(self.shape, self.type_column, self.time_column, self.order_by)
        return TaskOptions(self.query, layout, self.stream_column, self.id_columns)

    def identity(self) -> dict[str, Any]:
        """Return what must be the same when a stream restarts from a checkpoint."""
        return _identity(self)


@lru_cache(maxsize=16)
def _identity(task: StreamTask) -> dict[str, Any]:
    # PERF: once per process instead of twice per shard and micro-batch; parsing takes 0.4 ms, and a step 5.
    parts = asdict(task) | {"query": normal_text(task.query), "release": __version__}
    del parts["max_part_bytes"]
    return {name: list(value) if isinstance(value, tuple) else value for name, value in parts.items()}


def _kept(blobs: list[bytes]) -> pa.Table | None:
    """Return the events of a state."""
    try:
        return from_bytes(blobs)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SnapshotError(f"the checkpoint's events are damaged: {error}") from error


class Shard:
    """The state of one shard and what events do to it; knows nothing about Spark.

    The stored state is `state_blob`, `event_blobs`, and parts by name. After a step, the first two hold what is to be
    stored; `changed_parts` has the new snapshots of parts, None for parts to be removed. `timer` is the watermark, in
    milliseconds, at which there is something to do even if no event arrives.
    """

    def __init__(
        self, task: StreamTask, state_blob: bytes | None, event_blobs: list[bytes], part_blobs: Mapping[str, bytes]
    ) -> None:
        self._task = task
        self.state_blob = state_blob
        self.event_blobs = event_blobs
        self.timer: int | None = None
        self._stored = part_blobs
        self._parts = Parts({})
        self._last: int | None = None
        self.n_events = self.n_late = 0

    @property
    def changed_parts(self) -> dict[str, bytes | None]:
        """The parts to be written, and None for parts to be removed."""
        return self._parts.changed

    @property
    def n_bytes(self) -> int:
        """Bytes of the stored state, read or not."""
        apart = self._parts.n_bytes - len(self._parts.only)
        return len(self.state_blob or b"") + apart + sum(map(len, self.event_blobs))

    def step(self, blobs: list[bytes], watermark: int) -> Iterator[pa.RecordBatch]:
        """Take events in and yield the matches that are now complete.

        The watermark is in milliseconds, 0 if there is none yet. What to store is known after the last match.
        """
        if self.state_blob is not None:
            self._last, self._parts = from_blob(self._task.identity(), self.state_blob, self._stored)
        arrived = self._on_time(from_bytes([blob for blob in blobs if blob]), watermark)
        ready, held = self._released(arrived, watermark)
        if ready is not None and len(ready):
            self._last = pc.max(micros_of(ready)).as_py()
            for name, events in self._by_part(self._in_order(ready)):
                yield from self._recognised(name, events, watermark)
        for name in [name for name, due in self._dues().items() if due <= watermark * 1000]:
            yield from self._recognised(name, None, watermark)
        self._let_go(watermark)
        # The header always stays, so that another query is noticed.
        self.state_blob = to_blob(self._task.identity(), self._last, self._parts)
        self.timer = self._next(held, watermark)

    def _on_time(self, arrived: pa.Table | None, watermark: int) -> pa.Table | None:
        """Return the events that are not late: they are after the watermark of the beginning of the micro-batch."""
        if arrived is None:
            return None
        self.n_events = len(arrived)
        micros = micros_of(arrived)
        is_on_time = pc.greater(micros, watermark * 1000)
        if self._task.ordering == "arrival" and self._last is not None:
            is_on_time = pc.and_(is_on_time, pc.greater_equal(micros, self._last))
        on_time = arrived.filter(is_on_time)
        self.n_late = self.n_events - len(on_time)
        return on_time

    def _released(self, arrived: pa.Table | None, watermark: int) -> tuple[pa.Table | None, pa.Table | None]:
        """Return the events that the watermark has passed, and those that wait for it and are stored."""
        if self._task.ordering == "arrival":
            return arrived, None
        waiting = _kept(self.event_blobs)
        if waiting is None or watermark == 0 or not pc.any(pc.less_equal(micros_of(waiting), watermark * 1000)).as_py():
            # Nothing to release: events that have just arrived are after the watermark.
            if arrived is not None and len(arrived):
                self.event_blobs = [*self.event_blobs, to_bytes(arrived)]
            tables = [table for table in (waiting, arrived) if table is not None and len(table)]
            return None, pa.concat_tables(tables) if tables else None
        whole = waiting if arrived is None else pa.concat_tables([waiting, arrived])
        is_ready = pc.less_equal(micros_of(whole), watermark * 1000)
        held = whole.filter(pc.invert(is_ready))
        self.event_blobs = [to_bytes(held)] if len(held) else []
        return whole.filter(is_ready), held if len(held) else None

    def _in_order(self, events: pa.Table) -> pa.Table:
        task = self._task
        by: list[pa.ChunkedArray] = []
        for name in task.order:
            by += sort_keys(events[name])
        if task.stream_column is not None:
            by.append(pc.index_in(events[task.stream_column], value_set=pa.array(task.sources)))
        for name in task.ties:
            by += sort_keys(events[name])
        by += [sign_of_zero(events[name]) for name in task.ties if pa.types.is_floating(events[name].type)]
        return events.take(sorted_rows(by)).combine_chunks()

    def _by_part(self, events: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """Yield the parts that have events, with their events in order."""
        if WHOLE in self._parts.parts:
            yield WHOLE, events
            return
        hashes = key_hashes([events[name].combine_chunks() for name in self._task.keys])
        # Parts may be split during this loop.
        for name, rows in list(self._parts.rows_by_part(hashes)):
            yield name, events.take(rows)

    def _recognised(self, name: str, events: pa.Table | None, watermark: int) -> Iterator[pa.RecordBatch]:
        """Yield the matches of a part's next events, and those that waited until now; then store its open matches."""
        part = self._parts.parts[name]
        session = TaskSession(self._task.options, None if part is None else self._parts.snapshot(name))
        last = 0 if part is None else part.last
        if events is not None:
            last = pc.max(micros_of(events)).as_py()
            yield from session.batches(events.drop_columns([TIME]))
        assert session.pipeline is not None
        if session.pipeline.query.plan.silences and last <= watermark * 1000 and watermark > 0:
            # Events of this time are late from now on. Events that did not wait for the watermark may lie after it.
            yield from session.batches_at(Moment(TIME_IS_OVER, watermark * 1000))
        if self._task.reach_micros is not None and watermark > 0:
            session.pipeline.expire(watermark * 1000)
        if session.pipeline.holds:
            self._keep(name, session, session.snapshot(), last)
        else:
            self._parts.drop(name)

    def _keep(self, name: str, session: TaskSession, snapshot: bytes, last: int) -> None:
        """Store a part's session, split until no part is too large or its keys cannot be separated any more."""
        may_split = len(snapshot) > self._task.max_part_bytes and self._task.keys and len(name) < MAX_BITS
        hashes = session.key_hashes() if may_split else np.empty(0, np.uint64)
        if len(hashes) < 2:
            assert session.pipeline is not None
            due = session.pipeline.next_deadline
            self._parts.put(name, snapshot, last, None if due is None else int(due))
            return
        is_second = is_next_bit_set(hashes, name)
        self._parts.split(name)
        if is_second.all() or not is_second.any():
            self._keep(f"{name}{int(is_second[0])}", session, snapshot, last)
            return
        first = TaskSession(self._task.options, snapshot)
        first.keep_keys(~is_second)
        self._keep(f"{name}0", first, first.snapshot(), last)
        session.keep_keys(is_second)
        self._keep(f"{name}1", session, session.snapshot(), last)

    def _ends(self) -> dict[str, int]:
        """Return, for each part that time can end, the watermark from which on nothing of it can match any more."""
        reach = self._task.reach_micros
        if reach is None:
            return {}
        parts = self._parts.parts.items()
        return {name: (part.last + reach) // 1000 + 1 for name, part in parts if part is not None}

    def _dues(self) -> dict[str, int]:
        """Return the first deadline of each part in which matches wait."""
        parts = self._parts.parts.items()
        return {name: part.due for name, part in parts if part is not None and part.due is not None}

    def _let_go(self, watermark: int) -> None:
        """Drop the parts whose last event has left the window. They are not read: all their events are older."""
        for name, end in self._ends().items():
            if 0 < watermark >= end:
                self._parts.drop(name)
        self._parts.join_empty()

    def _next(self, held: pa.Table | None, watermark: int) -> int | None:
        """Return when there is something to do again: to release an event or matches that wait, or to forget a part."""
        times = [*self._dues().values(), *([] if held is None else [pc.min(micros_of(held)).as_py()])]
        millis = [math.ceil(micros / 1000) for micros in times]
        # A part cannot be forgotten before the events of the shard have come.
        first = min(millis if held is not None else [*millis, *self._ends().values()], default=None)
        return None if first is None else max(first, watermark + 1)
