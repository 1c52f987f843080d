"""The events that open matches may still need, so that results can show their values."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

IntArray = np.ndarray[Any, np.dtype[Any]]


MAX_JOINED = 1 << 14
"""Most rows of a batch that is made by joining small batches."""

MAX_RECENT = 32
"""Batches that are joined together, and most rows of each."""

MAX_STRETCH = 1 << 16
"""A stretch of up to this many rows is copied as a whole, however few of them are wanted."""


class History:
    """Rows of the stream by number: old rows that are still needed, then all rows from some number on."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._ids: list[IntArray] = []
        self._batches: list[pa.RecordBatch] = []
        self._widest: list[int | None] = []
        self._joined: tuple[slice, IntArray, pa.Table] | None = None
        self._recent: list[tuple[IntArray, pa.RecordBatch]] = []
        """Small batches that are not among the others yet: to join each by itself takes long."""
        self.n_rows = 0
        """How many rows are held."""
        self.n_settled_bytes = 0
        """Bytes of the rows that are held, without the last few rows."""

    def copy(self) -> History:
        """Return an independent copy; the rows are shared."""
        copied = History(self.schema)
        copied._ids, copied._batches, copied._widest = list(self._ids), list(self._batches), list(self._widest)
        copied._recent, copied.n_rows, copied.n_settled_bytes = list(self._recent), self.n_rows, self.n_settled_bytes
        return copied

    @property
    def n_bytes(self) -> int:
        """Bytes of the rows that are held."""
        return self.n_settled_bytes + sum(int(batch.nbytes) for _, batch in list(self._recent))

    @property
    def widest(self) -> int:
        """Roughly the most bytes that the values of a row take."""
        # PERF: computed once for each batch, when results are first wanted. Otherwise a run without matches would take
        # a tenth longer.
        self._settle()
        known = zip(self._batches, self._widest, strict=True)
        widest = [_widest(batch.columns) if n_bytes is None else n_bytes for batch, n_bytes in known]
        self._widest = [*widest]
        return max(widest, default=0)

    def append(self, first_row: int, batch: pa.RecordBatch) -> None:
        """Add the next rows of the stream."""
        self.append_rows(np.arange(first_row, first_row + len(batch), dtype=np.int64), batch)

    def append_rows(self, ids: IntArray, batch: pa.RecordBatch) -> None:
        """Add rows with their numbers, which increase and are greater than all numbers held so far."""
        if len(ids):
            self._recent.append((ids, batch))
            self.n_rows += len(ids)
            self._joined = None
            if len(self._recent) == MAX_RECENT or len(ids) > MAX_RECENT:
                self._settle()

    def _settle(self) -> None:
        """Put recent batches among the others."""
        if not self._recent:
            return
        recent, self._recent = self._recent, []
        ids, batches = zip(*recent, strict=True)
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        self._ids.append(ids[0] if len(ids) == 1 else np.concatenate(ids))
        self._batches.append(batch)
        self._widest.append(None)
        self.n_settled_bytes += batch.nbytes
        while self._is_last_small():
            joined = pa.concat_batches(self._batches[-2:])
            self.n_settled_bytes += joined.nbytes - sum(batch.nbytes for batch in self._batches[-2:])
            self._ids[-2:] = [np.concatenate(self._ids[-2:])]
            self._batches[-2:], self._widest[-2:] = [joined], [None]

    def _is_last_small(self) -> bool:
        """Whether to join the last two batches. So lengths double from batch to batch, and batches stay few."""
        if len(self._ids) < 2:
            return False
        before, last = len(self._ids[-2]), len(self._ids[-1])
        return before <= 2 * last and before + last <= MAX_JOINED

    def stretch(self, rows: IntArray) -> Stretch:
        """Return the held rows from the first to the last of some rows, to look these up."""
        return self.between(int(rows.min()), int(rows.max()), rows)

    def between(self, first: int, last: int, *wanted: IntArray) -> Stretch:
        """Return the held rows from `first` to `last`, to look up some of them."""
        # PERF: Arrow joins all chunks of a column that it takes rows from, so it gets only the chunks it needs.
        self._settle()
        begin = max(0, bisect_right(self._ids, first, key=lambda ids: int(ids[0])) - 1)
        end = bisect_right(self._ids, last, key=lambda ids: int(ids[0]))
        ids, table = self._join(slice(begin, end))
        own = slice(int(np.searchsorted(ids, first)), int(np.searchsorted(ids, last, side="right")))
        return Stretch(ids[own], table[own], wanted)

    def keep_only(self, rows: IntArray) -> None:
        """Forget all rows but these."""
        ids, table = self.snapshot()
        kept = np.unique(rows)
        table = table.take(pa.array(np.searchsorted(ids, kept))).combine_chunks()
        self._ids, self._batches, self._widest, self._joined = [], [], [], None
        self.n_rows = self.n_settled_bytes = 0
        for batch in table.to_batches():
            self.append_rows(kept, batch)

    def snapshot(self) -> tuple[IntArray, pa.Table]:
        """Return the held rows with their numbers."""
        self._settle()
        return self._join(slice(0, len(self._ids)))

    def _join(self, own: slice) -> tuple[IntArray, pa.Table]:
        """Return the rows of some batches with their numbers."""
        if self._joined is None or self._joined[0] != own:
            some = self._ids[own]
            ids = some[0] if len(some) == 1 else np.concatenate([np.empty(0, np.int64), *some])
            table = pa.Table.from_batches(self._batches[own], self.schema).unify_dictionaries()
            self._joined = (own, ids, table)
        return self._joined[1:]


class Stretch:
    """A piece of the history to take values from; a long piece has only the wanted rows."""

    def __init__(self, ids: IntArray, table: pa.Table, wanted: Sequence[IntArray]) -> None:
        self._ids = ids
        self._table = table
        self._kept: pa.Array | None = None
        self._arrays: dict[str, pa.Array] = {}
        if len(ids) > max(MAX_STRETCH, 4 * sum(map(len, wanted))):
            self._ids = np.unique(np.concatenate(wanted))
            self._kept = pa.array(np.searchsorted(ids, self._ids))

    def __len__(self) -> int:
        return len(self._ids)

    def indices(self, rows: IntArray) -> IntArray:
        """Return the indices of some rows in the stretch, which must hold all of them."""
        n_held, span = len(self._ids), int(self._ids[-1] - self._ids[0]) + 1
        offsets: IntArray = rows - self._ids[0]
        if span == n_held:
            return offsets
        # PERF: a table instead of a search: rows of the paper's Q1 took 242 instead of 328 ns per match, when rows were
        # forgotten after each batch. The table must not be much larger than the rows.
        if span > 4 * (n_held + len(rows)):
            return np.searchsorted(self._ids, rows)
        index_at: IntArray = np.zeros(span, np.int64)
        index_at[self._ids - self._ids[0]] = np.arange(n_held)
        return index_at[offsets]

    def rows(self, indices: IntArray) -> IntArray:
        """Return the numbers of the rows at some indices."""
        found: IntArray = self._ids[indices]
        return found

    def row_bytes(self, indices: IntArray) -> IntArray:
        """Return how many bytes the values of the rows at some indices take, roughly."""
        sizes = _row_bytes(self.array(name) for name in self._table.column_names)
        found: IntArray = np.broadcast_to(sizes, len(self))[indices]
        return found

    def columns(self, names: Iterable[str], indices: pa.Array) -> list[pa.Array]:
        """Return the values of some columns at some indices; NULL gives NULL."""
        return [self.array(name).take(indices) for name in names]

    @property
    def first_row(self) -> int | None:
        """The number of the first row if no row is missing after it, so that indices can be computed from it."""
        span = int(self._ids[-1] - self._ids[0]) + 1
        return int(self._ids[0]) if span == len(self._ids) else None

    def array(self, name: str) -> pa.Array:
        """Return a column as one array; it is cached, because several variables ask for the same column."""
        if name not in self._arrays:
            column = self._table[name] if self._kept is None else self._table[name].take(self._kept)
            self._arrays[name] = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        return self._arrays[name]


def _widest(columns: Iterable[pa.Array]) -> int:
    """Return the most bytes that the values of a row take."""
    plain = (column.dictionary if pa.types.is_dictionary(column.type) else column for column in columns)
    return sum(int(_value_bytes(column).max(initial=0)) for column in plain)


def _row_bytes(columns: Iterable[pa.Array]) -> IntArray:
    """Return how many bytes the values of each row take."""
    sizes: IntArray = np.zeros(1, np.int64)
    for column in columns:
        if not pa.types.is_dictionary(column.type):
            sizes = sizes + _value_bytes(column)
        elif len(column.dictionary):
            of_word = np.broadcast_to(_value_bytes(column.dictionary), len(column.dictionary))
            sizes = sizes + of_word[column.indices.fill_null(0).to_numpy()]
    return sizes


def _value_bytes(column: pa.Array) -> IntArray:
    """Return how many bytes each value takes: exact for text, the average of the column for others."""
    if not _is_text(column.type):
        return np.array([-(-column.nbytes // max(1, len(column)))])
    lengths = pc.binary_length(column)
    found: IntArray = (lengths.fill_null(0) if lengths.null_count else lengths).to_numpy()
    return found


def _is_text(data_type: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    return any(test(data_type) for test in tests)
