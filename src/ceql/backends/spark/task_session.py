"""A query that runs over the rows of one task: they come in order, rows of several streams together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

from ceql.backends.spark.match_ids import IdBuilder
from ceql.backends.spark.shared_events import SharedBuilder
from ceql.engine.intake import batch as batches
from ceql.engine.options import Layout
from ceql.engine.pipeline import Moment, Pipeline
from ceql.engine.reading import Reading
from ceql.engine.setup import Results, Setup
from ceql.parameters import Parameters
from ceql.query import Draft, read_draft

IntArray = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class TaskOptions:
    """What a task must know to recognise matches.

    Args:
        query: the text of the query.
        layout: the meaning of the columns, and the shape of the result.
        stream_column: the column with the name of each event's stream, if FROM names several.
        id_columns: for shape "events", the columns that identify events.
        shares_events: for shape "matches", whether each event is handed over once, as `shared_events` describes it.
        params: the values of the query's parameters, as `Parameters` stores them.
    """

    query: str
    layout: Layout
    stream_column: str | None = None
    id_columns: tuple[str, ...] = ()
    shares_events: bool = False
    params: bytes = b""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> TaskOptions:
        """Return options from the plain values that `asdict` gives, which reach a worker without any code."""
        return cls(**{**values, "layout": Layout(**values["layout"])})

    @property
    def setup(self) -> Setup:
        """The setup from which pipelines are made."""
        shape = self.layout.shape
        results: Results | None = None
        if self.shares_events:
            results = partial(SharedBuilder, shape)
        elif self.id_columns:
            results = partial(IdBuilder, shape, id_columns=self.id_columns)
        return Setup(_draft(self.query, self.params), self.layout, results=results)


class TaskSession:
    """A pipeline that is bound to the first rows, or goes on from a snapshot."""

    def __init__(self, options: TaskOptions, snapshot: bytes | None = None) -> None:
        self._setup = options.setup
        self._stream_column = options.stream_column
        self.pipeline: Pipeline | None = None if snapshot is None else self._setup.read(snapshot)

    def read(self, events: pa.RecordBatch | pa.Table) -> Reading:
        """Return the matches that the next rows complete, to be read before any others."""
        streams = None
        if self._stream_column is not None:
            events, streams = batches.split(events, self._stream_column, self._setup.draft.sources)
        batches.check_names(events.schema)
        if self.pipeline is None:
            self.pipeline = self._setup.bind(events.schema)
        self.pipeline.intake.check_schema(events.schema)
        parts = [events] if isinstance(events, pa.RecordBatch) else events.to_batches(max_chunksize=batches.MAX_ROWS)
        return Reading(self.pipeline, parts, streams)

    def reach(self, moment: Moment) -> Reading:
        """Return the matches that are complete at a moment, to be read before any others; some rows have been read."""
        assert self.pipeline is not None
        return Reading(self.pipeline, (), moment=moment)

    def batches_at(self, moment: Moment) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the matches that are complete at a moment."""
        if self.pipeline is not None:
            for found in self.reach(moment).begin():
                yield found.rows()

    def batches(self, events: pa.RecordBatch | pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the matches that the next rows complete."""
        for found in self.read(events).begin():
            yield found.rows()

    @property
    def n_tied(self) -> int:
        """How many events tie, where the matches depend on their order."""
        return 0 if self.pipeline is None else self.pipeline.n_tied

    def snapshot(self) -> bytes:
        """Return everything that must be stored."""
        return self._setup.write(self.pipeline)

    def key_hashes(self) -> IntArray:
        """Return the hash, as `intake.keys.key_hashes` gives it, of each partition key that has open matches."""
        if self.pipeline is None:
            return np.empty(0, np.uint64)
        self.pipeline.expire()
        return self.pipeline.key_hashes()

    def keep_keys(self, is_kept: IntArray) -> None:
        """Drop all but some partition keys, given in the order of `key_hashes`; no events may be read in between.

        Later events must be of the kept keys only: another session may go on with the other keys.
        """
        if self.pipeline is not None:
            self.pipeline.keep_keys(is_kept)


@lru_cache(maxsize=16)
def _draft(query: str, params: bytes) -> Draft:
    # PERF: a stream has a session for each of its shards in each micro-batch, and reading the text takes 0.4 ms.
    return replace(read_draft(query), parameters=Parameters.from_bytes(params))
