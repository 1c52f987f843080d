"""Arrow columns under another type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ceql.errors import DataError


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of a column's values, in a dictionary or not."""
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


def plain(array: pa.Array) -> pa.Array:
    """Return an array without a dictionary."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def as_type(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return an array converted to another type; `DataError` if a value does not fit."""
    if array.type == data_type:
        return array
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    try:
        if not pa.types.is_dictionary(data_type):
            return array.cast(data_type)
        encoded = array.cast(data_type.value_type).dictionary_encode()
        indices = encoded.indices.cast(data_type.index_type)
    except pa.ArrowInvalid as error:
        raise DataError(f"values do not fit type {data_type}: {error}") from error
    return pa.DictionaryArray.from_arrays(indices, encoded.dictionary, ordered=data_type.ordered)


def numbers_in(buffer: pa.Buffer, number: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the numbers in an Arrow buffer; buffers in files may have a few extra bytes at the end."""
    return np.frombuffer(buffer, number, buffer.size // np.dtype(number).itemsize)


def texts_in(array: pa.Array) -> tuple[Any, Any]:
    """Return where the strings of an array begin and end among the bytes of its UTF-8, and these bytes.

    String i begins at the first array's number i, and ends at number i + 1. Both arrays are Arrow's own memory.
    """
    _, offsets, content = array.buffers()
    width: Any = np.int64 if pa.types.is_large_string(array.type) else np.int32
    if not len(array):
        return frozen(np.zeros(1, width)), frozen(np.zeros(8, np.uint8))
    starts = numbers_in(offsets, width)[array.offset : array.offset + len(array) + 1]
    has_bytes = content is not None and content.size
    characters = np.frombuffer(content, np.uint8) if has_bytes else np.zeros(8, np.uint8)
    return frozen(starts), frozen(characters)


def frozen(array: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    """Return a read-only view. Arrow's memory is read-only, and loops are compiled only for such arrays."""
    view = array.view()
    view.flags.writeable = False
    return view
