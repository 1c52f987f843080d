"""Some matches as the kernel writes them: rows of events, not yet their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

IntArray = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Chunk:
    """Some matches: rows of first and last event, and the marked rows with their labels in CSR form."""

    start: IntArray
    end: IntArray
    offsets: IntArray
    rows: IntArray
    labels: IntArray

    def __len__(self) -> int:
        return len(self.start)

    def copy(self) -> Chunk:
        """Return the same matches in arrays of their own size."""
        return Chunk(self.start.copy(), self.end.copy(), self.offsets.copy(), self.rows.copy(), self.labels.copy())

    def take(self, indices: IntArray) -> Chunk:
        """Return some of the matches."""
        lengths = np.diff(self.offsets)[indices]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        values = np.repeat(self.offsets[:-1][indices] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Chunk(self.start[indices], self.end[indices], offsets, self.rows[values], self.labels[values])


def joined(chunks: list[Chunk]) -> Chunk:
    """Return chunks as one."""
    if len(chunks) == 1:
        return chunks[0]
    shifts = np.cumsum([0] + [int(chunk.offsets[-1]) for chunk in chunks])
    offsets = [chunk.offsets[:-1] + shift for chunk, shift in zip(chunks, shifts, strict=False)]
    return Chunk(
        np.concatenate([chunk.start for chunk in chunks]),
        np.concatenate([chunk.end for chunk in chunks]),
        np.concatenate([*offsets, shifts[-1:]]),
        np.concatenate([chunk.rows for chunk in chunks]),
        np.concatenate([chunk.labels for chunk in chunks]),
    )
