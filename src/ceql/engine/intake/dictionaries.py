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
