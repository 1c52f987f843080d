"""What happens to the events of one shard in a micro-batch: buffered until the watermark passes them, then recognised.

A shard is a number that partition keys hash to; it has one state for all its keys:
- `session`: a header that says what the state is of, and a snapshot of the session;
- `events`: events that arrived but are not yet behind the watermark, as Arrow data, in no order.
Each is written only when it changed.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ceql.backends.spark_task import TaskError
from ceql.backends.stream_rows import (
    EVENTS,
    LATE,
    METRICS,
    PACKED_ROWS,
    STATE_BYTES,
    TIME,
    from_bytes,
    micros_of,
    sign_of_zero,
    sort_keys,
    to_bytes,
    to_frame,
)
from ceql.engine.session import Session
from ceql.errors import SnapshotError
from ceql.syntax.parser import parse
from ceql.version import __version__

FORMAT = 1
MAGIC = b"CEQLSHRD"


@dataclass(frozen=True)
class StreamTask:
    """What a shard must know; all of it is part of the state's identity, but for layout of the query's text."""

    query: str
    shape: str
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
    window_micros: int | None

    def options(self) -> dict[str, Any]:
        """Return the options of the session."""
        return {
            "shape": self.shape,
            "type_column": self.type_column,
            "time_column": self.time_column,
            "order_by": self.order_by,
            "stream_column": self.stream_column,
            "id_columns": self.id_columns,
        }

    def identity(self) -> dict[str, Any]:
        """Return what must be the same when a checkpoint is taken up again."""
        return _identity(self)


@lru_cache(maxsize=16)
def _identity(task: StreamTask) -> dict[str, Any]:
    # PERF: once per process instead of twice per shard and micro-batch; parsing takes 0.4 ms, and a step 5.
    parts = asdict(task) | {"query": str(parse(task.query)), "release": __version__}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in parts.items()}


def _kept(blobs: list[bytes]) -> pa.Table | None:
    """Return the events of a state."""
    try:
        return from_bytes(blobs)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SnapshotError(f"the checkpoint's events are damaged: {error}") from error


class Shard:
    """The state of one shard and what events do to it; knows nothing of Spark.

    `session_blob` and `event_blobs` are what is to be kept; `timer` is when, by the watermark in milliseconds,
    there is something to do even if no event arrives.
    """

    def __init__(self, task: StreamTask, session_blob: bytes | None, event_blobs: list[bytes]) -> None:
        self._task = task
        self.session_blob = session_blob
        self.event_blobs = event_blobs
        self.timer: int | None = None
        self._last: int | None = None
        self.n_events = self.n_late = 0

    @property
    def n_bytes(self) -> int:
        """Bytes of what is kept."""
        return len(self.session_blob or b"") + sum(map(len, self.event_blobs))

    def step(self, blobs: list[bytes], watermark: int) -> Iterator[pa.RecordBatch]:
        """Take events in and yield the matches that they, or those passed by the watermark, complete.

        The watermark is in milliseconds, 0 if there is none yet. What is to be kept is known after the last match.
        """
        session = self._session()
        arrived = self._on_time(from_bytes([blob for blob in blobs if blob]), watermark)
        ready, held = self._released(arrived, watermark)
        if ready is not None and len(ready):
            self._last = pc.max(micros_of(ready)).as_py()
            yield from session.feed(self._in_order(ready)).batches()
        window = self._task.window_micros
        is_held = session.expire(watermark * 1000) if window is not None and watermark else session.holds
        # The header always stays, so that another query is noticed.
        self.session_blob = self._wrapped(session.snapshot() if is_held else b"")
        self.timer = self._next(held, watermark) if is_held or self.event_blobs else None

    def _session(self) -> Session:
        if self.session_blob is None:
            return Session(self._task.query, **self._task.options())
        self._last, snapshot = self._unwrapped(self.session_blob)
        if not snapshot:
            return Session(self._task.query, **self._task.options())
        return Session.restore(self._task.query, snapshot, **self._task.options())

    def _on_time(self, arrived: pa.Table | None, watermark: int) -> pa.Table | None:
        """Return the events that are not late: those after the watermark, as it was when the micro-batch began."""
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
        """Return the events that the watermark has passed, and those that wait for it, which are kept."""
        if self._task.ordering == "arrival":
            return arrived, None
        waiting = _kept(self.event_blobs)
        if waiting is None or watermark == 0 or not pc.any(pc.less_equal(micros_of(waiting), watermark * 1000)).as_py():
            # Nothing to release: what arrived is after the watermark.
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
        keys = pa.table(by, [str(number) for number in range(len(by))])
        indices = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
        return events.drop_columns([TIME]).take(indices).combine_chunks()

    def _next(self, held: pa.Table | None, watermark: int) -> int | None:
        """Return when there is something to do again: an event is to be released, or the last one to be forgotten."""
        if held is not None:
            first: int = pc.min(micros_of(held)).as_py()
            return max(math.ceil(first / 1000), watermark + 1)
        if self._task.window_micros is None or self._last is None:
            return None
        return max((self._last + self._task.window_micros) // 1000 + 1, watermark + 1)

    def _wrapped(self, snapshot: bytes) -> bytes:
        header = json.dumps({"identity": self._task.identity(), "last": self._last}).encode()
        sizes = len(header).to_bytes(4, "little") + zlib.crc32(header).to_bytes(4, "little")
        return MAGIC + FORMAT.to_bytes(2, "little") + sizes + header + snapshot

    def _unwrapped(self, blob: bytes) -> tuple[int | None, bytes]:
        """Return the time of the last event that was recognised, and the session's snapshot."""
        if not blob.startswith(MAGIC):
            raise SnapshotError("the checkpoint's state is not one of ceql")
        version = int.from_bytes(blob[8:10], "little")
        if version != FORMAT:
            raise SnapshotError(f"the checkpoint's state has format {version}, this release reads {FORMAT}")
        end = 18 + int.from_bytes(blob[10:14], "little")
        if len(blob) < end or zlib.crc32(blob[18:end]) != int.from_bytes(blob[14:18], "little"):
            raise SnapshotError("the checkpoint's state is damaged: its header does not have its checksum")
        header = json.loads(blob[18:end])
        before, last = header["identity"], header["last"]
        now = self._task.identity()
        if before != now:
            changed = [name for name in {**now, **before} if before.get(name) != now.get(name)]
            told = "; ".join(f"{name} was {before.get(name)!r} and is {now.get(name)!r}" for name in changed)
            raise SnapshotError(
                f"the checkpoint belongs to another query: {told}",
                "start the changed query with a new checkpoint, or go back to the one that was",
            )
        return last, blob[end:]


class ShardProcessor(StatefulProcessor):
    """A shard as Spark calls it: its states are read and written here."""

    def __init__(self, task: StreamTask, schema: pa.Schema, event_time: str | None) -> None:
        self._task = task
        self._schema = schema
        self._event_time = event_time

    def init(self, handle: Any) -> None:
        """Name the states."""
        self._handle = handle
        self._session_state = handle.getValueState("session", "blob binary")
        self._events_state = handle.getListState("events", "blob binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        """Take in the events of a micro-batch."""
        yield from self._step(key, [bytes(blob) for frame in rows for blob in frame[PACKED_ROWS]], timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803
        """Go on with events that the watermark has passed since."""
        yield from self._step(key, [], timerValues)

    def close(self) -> None:
        """Let go of nothing: all is in the states."""

    def _step(self, key: Any, blobs: list[bytes], timer_values: Any) -> Iterator[Any]:
        watermark = max(0, timer_values.getCurrentWatermarkInMs())
        session_blob = bytes(self._session_state.get()[0]) if self._session_state.exists() else None
        event_blobs = [bytes(row[0]) for row in self._events_state.get()] if self._events_state.exists() else []
        shard = Shard(self._task, session_blob, event_blobs)
        try:
            for batch in shard.step(blobs, watermark):
                yield to_frame(batch)
        except GeneratorExit:
            raise
        except Exception as error:
            where = f"shard {key[0]} of {self._task.n_shards}, query:\n{self._task.query.strip()}"
            raise TaskError(f"{type(error).__name__}: {error}\n{where}") from error
        self._write(shard, session_blob, event_blobs)
        yield self._metrics(shard, watermark)

    def _write(self, shard: Shard, session_blob: bytes | None, event_blobs: list[bytes]) -> None:
        if shard.session_blob != session_blob:
            self._session_state.update((shard.session_blob,))
        n_before = len(event_blobs)
        if shard.event_blobs[:n_before] == event_blobs:
            for blob in shard.event_blobs[n_before:]:
                self._events_state.appendValue((blob,))
        elif shard.event_blobs:
            self._events_state.put([(blob,) for blob in shard.event_blobs])
        else:
            self._events_state.clear()
        timers = set(self._handle.listTimers())
        for timer in timers - {shard.timer}:
            self._handle.deleteTimer(timer)
        if shard.timer is not None and shard.timer not in timers:
            self._handle.registerTimer(shard.timer)

    def _metrics(self, shard: Shard, watermark: int) -> pd.DataFrame:
        row: dict[str, Any] = dict.fromkeys(self._schema.names)
        if self._event_time is not None:
            # Spark reads the event time of every row, and none may be behind the watermark.
            row[self._event_time] = pd.Timestamp(watermark + 1, unit="ms", tz="UTC")
        row |= {EVENTS: shard.n_events, LATE: shard.n_late, STATE_BYTES: shard.n_bytes}
        return pd.DataFrame(
            {
                name: pd.Series([value], dtype=None if name in METRICS or name == self._event_time else object)
                for name, value in row.items()
            }
        )
