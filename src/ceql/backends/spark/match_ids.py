"""Identities of matches that do not depend on row numbers, which mean nothing in a part of a stream."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from ceql.engine.intake.history import Stretch
from ceql.engine.options import Shape
from ceql.engine.results.shapes import ResultBuilder
from ceql.engine.run.chunk import Chunk
from ceql.syntax import plan


class IdBuilder(ResultBuilder):
    """Names the last event of a match by the columns that identify events; the first of them orders the stream."""

    def __init__(self, shape: Shape, query: plan.Plan, events: pa.Schema, id_columns: tuple[str, ...]) -> None:
        super().__init__(shape, query, events)
        self._id_columns = id_columns

    def ends(self, chunk: Chunk, stretch: Stretch) -> Iterable[tuple[int | str, int | str]]:
        """Return a digest of each match's last event, and its moment: the value of the first column."""
        rows, of_match = np.unique(chunk.end, return_inverse=True)
        columns = stretch.columns(self._id_columns, pa.array(stretch.indices(rows)))
        events = zip(*(_as_numbers(column).to_pylist() for column in columns), strict=True)
        # -0.0 and 0.0 are the same moment.
        ends = [
            (hashlib.blake2b(repr(event).encode(), digest_size=12).hexdigest(), repr(event[0] or 0)) for event in events
        ]
        return (ends[number] for number in of_match.reshape(-1).tolist())


def _as_numbers(array: pa.Array) -> pa.Array:
    """Return times and dates as numbers: Python has no years beyond 9999, nor every time zone of Spark."""
    if pa.types.is_timestamp(array.type):
        return array.cast(pa.int64())
    return array.cast(pa.int32()) if pa.types.is_date32(array.type) else array
