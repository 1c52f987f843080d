"""A shard as Spark calls it: its states are read and written here, and nothing else happens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ceql.backends.spark_task import TaskError
from ceql.backends.stream_rows import EVENTS, LATE, METRICS, PACKED_ROWS, STATE_BYTES, to_frame
from ceql.backends.stream_task import Shard, StreamTask


class StoredParts(Mapping[str, bytes]):
    """The parts that Spark keeps for a shard; each is read when it is asked for."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def __getitem__(self, name: str) -> bytes:
        return bytes(self._state.getValue((name,))[0])

    def __iter__(self) -> Iterator[str]:
        return (key[0] for key in self._state.keys())  # noqa: SIM118 - it is no dict

    def __len__(self) -> int:
        return sum(1 for _ in self)


class ShardProcessor(StatefulProcessor):
    """A shard as Spark calls it: its states are read and written here."""

    def __init__(self, task: StreamTask, schema: pa.Schema, event_time: str | None) -> None:
        self._task = task
        self._schema = schema
        self._event_time = event_time

    def init(self, handle: Any) -> None:
        """Name the states."""
        self._handle = handle
        # Named for the first format of states, so that one of that format is read, and refused by its number.
        self._session_state = handle.getValueState("session", "blob binary")
        self._events_state = handle.getListState("events", "blob binary")
        self._parts_state = handle.getMapState("parts", "name string", "blob binary")

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
        state_blob = bytes(self._session_state.get()[0]) if self._session_state.exists() else None
        event_blobs = [bytes(row[0]) for row in self._events_state.get()] if self._events_state.exists() else []
        shard = Shard(self._task, state_blob, event_blobs, StoredParts(self._parts_state))
        try:
            for batch in shard.step(blobs, watermark):
                yield to_frame(batch)
        except GeneratorExit:
            raise
        except Exception as error:
            where = f"shard {key[0]} of {self._task.n_shards}, query:\n{self._task.query.strip()}"
            raise TaskError(f"{type(error).__name__}: {error}\n{where}") from error
        self._write(shard, state_blob, event_blobs)
        yield self._metrics(shard, watermark)

    def _write(self, shard: Shard, state_blob: bytes | None, event_blobs: list[bytes]) -> None:
        if shard.state_blob != state_blob:
            self._session_state.update((shard.state_blob,))
        for name, blob in shard.changed_parts.items():
            if blob is None:
                self._parts_state.removeKey((name,))
            else:
                self._parts_state.updateValue((name,), (blob,))
        n_before = len(event_blobs)
        if shard.event_blobs[:n_before] == event_blobs:
            for blob in shard.event_blobs[n_before:]:
                self._events_state.appendValue((blob,))
        elif shard.event_blobs:
            self._events_state.put([(blob,) for blob in shard.event_blobs])
        else:
            self._events_state.clear()
        self._set_timer(shard.timer)

    def _set_timer(self, timer: int | None) -> None:
        timers = set(self._handle.listTimers())
        for other in timers - {timer}:
            self._handle.deleteTimer(other)
        if timer is not None and timer not in timers:
            self._handle.registerTimer(timer)

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
