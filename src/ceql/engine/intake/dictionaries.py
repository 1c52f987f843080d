"""Columns as Arrow's dictionaries: each distinct value once, and a code for each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

IntArray = np.ndarray[Any, np.dtype[Any]]


def encoded(column: pa.Array) -> pa.DictionaryArray:
    """Return a column with a dictionary; it may have one already."""
    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()


def dictionary_codes(column: pa.DictionaryArray) -> IntArray:
    """Return the code of each row; NULL has the code after the last value."""
    indices = column.indices
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(len(column.dictionary))
    return np.asarray(indices).astype(np.int32, copy=False)


def combined(codes: list[IntArray], sizes: list[int]) -> tuple[IntArray, IntArray]:
    """Return a row with each combination of codes that occurs, and the number of each row's combination.

    The codes of a column are less than its size.
    """
    joined, n_joined = np.zeros(len(codes[0]), np.int64), 1
    for own, size in zip(codes, sizes, strict=True):
        if n_joined * size >= 2**63:
            distinct, joined = np.unique(joined, return_inverse=True)
            joined, n_joined = joined.reshape(-1), len(distinct)
        joined = joined * size + own
        n_joined *= size
    _, first_row, of_row = np.unique(joined, return_index=True, return_inverse=True)
    return first_row, of_row.reshape(-1)
