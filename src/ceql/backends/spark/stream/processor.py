"""A shard as Spark calls it: gets the stored states from Spark, and does nothing else."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    from ceql.backends.spark.stream.steps import Steps

# PERF: each time a stream starts, Spark starts a process on the driver only to call `init`. A processor that is sent by
# value does not import ceql there, which takes a second. So the methods import what they need.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


class ShardProcessor(StatefulProcessor):
    """A shard as Spark calls it. It names the states, and `Steps` does the rest."""

    def __init__(self, steps: Steps) -> None:
        self._pickled_steps = pickle.dumps(steps)

    def init(self, handle: Any) -> None:
        """Name the states."""
        self._handle = handle
        # The first format of states used the same names, so that its states are found, and refused by their number.
        self._session_state = handle.getValueState("session", "blob binary")
        self._events_state = handle.getListState("events", "blob binary")
        self._parts_state = handle.getMapState("parts", "name string", "blob binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        """Take in the events of a micro-batch."""
        from ceql.backends.spark.stream.rows import PACKED_ROWS

        yield from self._step(key, [bytes(blob) for frame in rows for blob in frame[PACKED_ROWS]], timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803
        """Process events that the watermark has passed since then."""
        yield from self._step(key, [], timerValues)

    def close(self) -> None:
        """Do nothing: everything is in the states."""

    def _step(self, key: Any, blobs: list[bytes], timer_values: Any) -> Iterator[Any]:
        from ceql.backends.spark.stream.steps import Stored

        stored = Stored(self._handle, self._session_state, self._events_state, self._parts_state)
        watermark = max(0, timer_values.getCurrentWatermarkInMs())
        yield from pickle.loads(self._pickled_steps).step(stored, key[0], blobs, watermark)
