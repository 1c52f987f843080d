"""Steps of a shard: read what Spark keeps for it, take events in, and write what has changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa

from ceql.backends.spark.stream.rows import EVENTS, LATE, METRICS, STATE_BYTES, to_frame
from ceql.backends.spark.stream.task import Shard, StreamTask
from ceql.backends.spark.task import TaskError


class StoredParts(Mapping[str, bytes]):
    """The parts that Spark keeps for a shard; each is read only when it is needed."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def __getitem__(self, name: str) -> bytes:
        return bytes(self._state.getValue((name,))[0])

    def __iter__(self) -> Iterator[str]:
        return (key[0] for key in self._state.keys())  # noqa: SIM118 - it is no dict

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True)
class Stored:
    """What Spark keeps for a shard: its states, and timers in `handle`."""

    handle: Any
    session: Any
    events: Any
    parts: Any


@dataclass(frozen=True)
class Steps:
    """Steps of a task's shards; `schema` is the schema of the matches, `event_time` the column that Spark reads."""

    task: StreamTask
    schema: pa.Schema
    event_time: str | None

    def step(self, stored: Stored, number: int, blobs: list[bytes], watermark: int) -> Iterator[pd.DataFrame]:
        """Yield the matches that more events (packed) and the watermark complete; then counters."""
        state_blob = bytes(stored.session.get()[0]) if stored.session.exists() else None
        event_blobs = [bytes(row[0]) for row in stored.events.get()] if stored.events.exists() else []
        shard = Shard(self.task, state_blob, event_blobs, StoredParts(stored.parts))
        try:
            for batch in shard.step(blobs, watermark):
                yield to_frame(batch)
        except GeneratorExit:
            raise
        except Exception as error:
            where = f"shard {number} of {self.task.n_shards}, query:\n{self.task.query.strip()}"
            raise TaskError(f"{type(error).__name__}: {error}\n{where}") from error
        _write(stored, shard, state_blob, event_blobs)
        yield self._metrics(shard, watermark)

    def _metrics(self, shard: Shard, watermark: int) -> pd.DataFrame:
        row: dict[str, Any] = dict.fromkeys(self.schema.names)
        if self.event_time is not None:
            # Spark reads the event time of every row; it must not be behind the watermark.
            row[self.event_time] = pd.Timestamp(watermark + 1, unit="ms", tz="UTC")
        row |= {EVENTS: shard.n_events, LATE: shard.n_late, STATE_BYTES: shard.n_bytes}
        return pd.DataFrame(
            {
                name: pd.Series([value], dtype=None if name in METRICS or name == self.event_time else object)
                for name, value in row.items()
            }
        )


def _write(stored: Stored, shard: Shard, state_blob: bytes | None, event_blobs: list[bytes]) -> None:
    """Write what has changed."""
    if shard.state_blob != state_blob:
        stored.session.update((shard.state_blob,))
    for name, blob in shard.changed_parts.items():
        if blob is None:
            stored.parts.removeKey((name,))
        else:
            stored.parts.updateValue((name,), (blob,))
    n_before = len(event_blobs)
    if shard.event_blobs[:n_before] == event_blobs:
        for blob in shard.event_blobs[n_before:]:
            stored.events.appendValue((blob,))
    elif shard.event_blobs:
        stored.events.put([(blob,) for blob in shard.event_blobs])
    else:
        stored.events.clear()
    _set_timer(stored, shard.timer)


def _set_timer(stored: Stored, timer: int | None) -> None:
    timers = set(stored.handle.listTimers())
    for other in timers - {timer}:
        stored.handle.deleteTimer(other)
    if timer is not None and timer not in timers:
        stored.handle.registerTimer(timer)
