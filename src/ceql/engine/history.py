"""The events that open matches may still need, so that results can show their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

IntArray = np.ndarray[Any, np.dtype[Any]]


MAX_JOINED = 1 << 14
"""Rows up to which small batches are put together."""


class History:
    """Rows of the stream by their number: some old ones one by one, then all from some row on."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._ids: list[IntArray] = []
        self._batches: list[pa.RecordBatch] = []
        self._table: pa.Table | None = None
        self._all_ids: IntArray = np.empty(0, np.int64)

    def copy(self) -> History:
        """Return an independent copy; the rows are shared."""
        copied = History(self.schema)
        copied._ids, copied._batches = list(self._ids), list(self._batches)
        return copied

    @property
    def n_rows(self) -> int:
        """How many rows are held."""
        return sum(len(ids) for ids in self._ids)

    @property
    def n_bytes(self) -> int:
        """Bytes of the rows that are held."""
        return sum(batch.nbytes for batch in self._batches)

    def append(self, first_row: int, batch: pa.RecordBatch) -> None:
        """Add the next rows of the stream."""
        self.append_rows(np.arange(first_row, first_row + len(batch), dtype=np.int64), batch)

    def append_rows(self, ids: IntArray, batch: pa.RecordBatch) -> None:
        """Add rows with given, increasing numbers above all that are held."""
        if len(ids):
            self._ids.append(ids)
            self._batches.append(batch)
            self._table = None
            while self._is_last_small():
                self._ids[-2:] = [np.concatenate(self._ids[-2:])]
                self._batches[-2:] = [pa.concat_batches(self._batches[-2:])]

    def _is_last_small(self) -> bool:
        """Whether the last two batches should be one: lengths that double keep the number of batches small."""
        if len(self._ids) < 2:
            return False
        before, last = len(self._ids[-2]), len(self._ids[-1])
        return before <= 2 * last and before + last <= MAX_JOINED

    def column(self, name: str, rows: IntArray) -> pa.Array:
        """Return a column's values at some rows; a negative row gives NULL."""
        return self.columns([name], rows)[0]

    def columns(self, names: Sequence[str], rows: IntArray) -> list[pa.Array]:
        """Return the values of some columns at some rows; a negative row gives NULL."""
        self._join()
        assert self._table is not None
        indices = np.searchsorted(self._all_ids, rows)
        positions = pa.array(indices, mask=rows < 0) if len(rows) and rows.min() < 0 else pa.array(indices)
        taken = (self._table[name].take(positions) for name in names)
        return [one.combine_chunks() if isinstance(one, pa.ChunkedArray) else one for one in taken]

    def keep_only(self, rows: IntArray) -> None:
        """Forget all rows but these."""
        self._join()
        assert self._table is not None
        kept = np.unique(rows)
        indices = np.searchsorted(self._all_ids, kept)
        table = self._table.take(pa.array(indices)).combine_chunks()
        self._ids, self._batches, self._table = [], [], None
        for batch in table.to_batches():
            self.append_rows(kept, batch)

    def snapshot(self) -> tuple[IntArray, pa.Table]:
        """Return the held rows with their numbers."""
        self._join()
        assert self._table is not None
        return self._all_ids, self._table

    def _join(self) -> None:
        if self._table is None:
            self._table = pa.Table.from_batches(self._batches, self.schema).unify_dictionaries()
            self._all_ids = np.concatenate(self._ids) if self._ids else np.empty(0, np.int64)
