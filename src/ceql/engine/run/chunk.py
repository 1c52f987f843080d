"""Some matches as the kernel writes them: rows of events, not yet their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

IntArray = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Chunk:
    """Some matches: the rows of first and last events, and the marked rows with their labels in CSR form."""

    start: IntArray
    end: IntArray
    offsets: IntArray
    rows: IntArray
    labels: IntArray

    def __len__(self) -> int:
        return len(self.start)

    def part(self, begin: int, end: int) -> Chunk:
        """Return some of the matches, in the same memory."""
        offsets = self.offsets[begin : end + 1]
        own = slice(offsets[0], offsets[-1])
        return Chunk(self.start[begin:end], self.end[begin:end], offsets - offsets[0], self.rows[own], self.labels[own])

    def copy(self) -> Chunk:
        """Return the same matches in arrays that have just their size."""
        return Chunk(self.start.copy(), self.end.copy(), self.offsets.copy(), self.rows.copy(), self.labels.copy())
