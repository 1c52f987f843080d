"""One batch of events on its way through a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import numpy as np
import pyarrow as pa

from ceql.engine.pipeline import Moment, Pipeline
from ceql.engine.results.matches import Found
from ceql.engine.run.chunk import Chunk
from ceql.errors import DataError
from ceql.syntax import plan

IntArray = np.ndarray[Any, np.dtype[Any]]


class Reading:
    """Finds the matches that a batch completes, while they are read; they can be read once.

    After an error or a cancellation, the pipeline is as it was before the batch.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        parts: Iterable[pa.RecordBatch],
        streams: IntArray | None = None,
        turn: AbstractContextManager[object] | None = None,
        moment: Moment | None = None,
    ) -> None:
        """Begin to read.

        `streams` numbers each row's stream, if there are several. `turn` is entered for each step, and keeps other
        threads out. `moment` comes after the last row.
        """
        self.pipeline = pipeline
        self.is_done = False
        """Whether the batch has ended, with or without an error."""
        self.has_failed = False
        self._turn = nullcontext() if turn is None else turn
        self._before = pipeline.begin_batch()
        self._chunks = self._run(parts, streams, moment)
        self._has_begun = False
        self._is_read = True
        self._is_passed_over = False
        self._is_cancelled = False
        self._at_end: list[Callable[[], None]] = []

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self.pipeline.builder.schema

    @property
    def plan(self) -> plan.Plan:
        """The plan of the query."""
        return self.pipeline.query.plan

    @property
    def n_dropped(self) -> int:
        """How many events of the batch were left out because a key or the window's time is NULL."""
        return self.pipeline.encoder.n_dropped - self._before.n_dropped

    def begin(self) -> Iterator[Found]:
        """Return the matches, part by part; the second call is an error."""
        if self._has_begun:
            raise DataError("these matches have been read already, and their events are gone")
        self._has_begun = True
        return iter(self)

    def __iter__(self) -> Iterator[Found]:
        while (chunk := self._next()) is not None:
            yield Found(chunk, self.build)

    def build(self, chunk: Chunk) -> pa.RecordBatch:
        """Return the rows of some matches of this reading."""
        with self._turn:
            self._check_is_current()
            return self.pipeline.build(chunk)

    def at_end(self, act: Callable[[], None]) -> None:
        """Register an action for the end of the batch, if it ends without an error."""
        self._at_end.append(act)

    def pass_over(self) -> None:
        """Run to the end of the batch and skip matches that were not read; the caller must hold the turn."""
        self._is_passed_over, self._is_read = True, False
        if not self.is_done:
            for _ in self._chunks:
                pass

    def cancel(self) -> None:
        """Stop; the pipeline is as it was before the batch. Any thread may call this.

        If another thread is reading, it gets a `DataError` as soon as it notices.
        """
        self._is_cancelled = True
        # If another thread has the turn, it stops by itself.
        with suppress(DataError), self._turn:
            self._stop()

    def _next(self) -> Chunk | None:
        with self._turn:
            self._check_is_current()
            return next(self._chunks, None)

    def _check_is_current(self) -> None:
        if self._is_passed_over:
            raise DataError("these matches were skipped when the session took the next batch")
        self._check_goes_on()

    def _check_goes_on(self) -> None:
        if self._is_cancelled:
            raise DataError("the reading of these matches was cancelled")

    def _checked(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            self._check_goes_on()
            yield chunk

    def _asks_for_matches(self) -> bool:
        self._check_goes_on()
        return self._is_read

    def _stop(self) -> None:
        if not self.is_done:
            self.pipeline.go_back(self._before)
            self.is_done = self.has_failed = True

    def _run(self, parts: Iterable[pa.RecordBatch], streams: IntArray | None, moment: Moment | None) -> Iterator[Chunk]:
        try:
            done = 0
            for part in parts:
                own_streams = None if streams is None else streams[done : done + len(part)]
                done += len(part)
                yield from self._checked(self.pipeline.recognise(part, own_streams, self._asks_for_matches))
            if moment is not None:
                yield from self._checked(self.pipeline.reach(moment, self._asks_for_matches))
            self.pipeline.end_batch()
        except GeneratorExit:
            raise
        except BaseException:
            self._stop()
            raise
        self.is_done = True
        for act in self._at_end:
            act()
