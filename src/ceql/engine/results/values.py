"""Values of the events in matches, many at once.

Matches repeat events, and a variable often has the same text in all matches: its type, or an attribute that FILTER
compares to a constant. So the places of a variable are looked up once for all columns, numbers and codes of
dictionaries are copied by compiled loops, and a text that is always the same is written without looking at each match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ceql.engine.compiled import compiled
from ceql.engine.intake.columns import numbers_in
from ceql.engine.intake.history import Stretch

IntArray = np.ndarray[Any, np.dtype[Any]]

MIN_PLACES = 512
"""Fewer values are left to Arrow, which needs less preparation."""


@dataclass(frozen=True)
class Places:
    """Rows of some events: every `step`-th of `rows`, from `begin` on."""

    rows: IntArray
    begin: int = 0
    step: int = 1

    def __len__(self) -> int:
        return -(-(len(self.rows) - self.begin) // self.step)

    def listed(self) -> IntArray:
        """Return the rows as an array of their own."""
        return self.rows[self.begin :: self.step]


@dataclass(frozen=True)
class _Known:
    """The indices of some places and the columns taken there. The places are held, so that no others get their id."""

    places: Places
    indices: IntArray
    columns: dict[str, pa.Array]


class Values:
    """Takes values from a stretch of the history.

    PERF: rows of the paper's S3, three events of six attributes each, take 25 instead of 42 ns per match
    beyond the search for matches. Each column has its own loop, which is simple enough to be unrolled.
    """

    def __init__(self, stretch: Stretch) -> None:
        self._stretch = stretch
        self._words: dict[str, IntArray | None] = {}
        self._codes: dict[str, tuple[IntArray, pa.Array]] = {}
        self._known: dict[tuple[int, int, int], _Known] = {}

    def at(self, names: Sequence[str], places: Places) -> list[pa.Array]:
        """Return the values of some columns at some places; the same places give the same arrays again."""
        stretch = self._stretch
        if len(places) < max(MIN_PLACES, len(stretch) // 2):
            return stretch.columns(names, pa.array(stretch.indices(places.listed())))
        key = id(places.rows), places.begin, places.step
        if key not in self._known:
            self._known[key] = _Known(places, self._indices_of(places), {})
        known = self._known[key]
        for name in names:
            if name not in known.columns:
                known.columns[name] = self._column_at(name, known.indices)
        return [known.columns[name] for name in names]

    def _indices_of(self, places: Places) -> IntArray:
        first = self._stretch.first_row
        if first is None:
            return self._stretch.indices(places.listed())
        indices = np.empty(len(places), np.int64)
        _count_from(places.rows, first, places.begin, places.step, indices)
        return indices

    def _column_at(self, name: str, indices: IntArray) -> pa.Array:
        column = self._stretch.array(name)
        if name not in self._words:
            self._words[name] = _words(column)
        words = self._words[name]
        if words is not None:
            return _taken(column, words, indices)
        constant = self._constant_at(name, indices) if _is_text(column) else None
        return column.take(pa.array(indices)) if constant is None else constant

    def _constant_at(self, name: str, indices: IntArray) -> pa.Array | None:
        """Return a text column without NULL if it is the same text at all places."""
        if name not in self._codes:
            encoded = self._stretch.array(name).dictionary_encode()
            self._codes[name] = encoded.indices.to_numpy(), encoded.dictionary
        codes, texts = self._codes[name]
        code = int(_common_code(codes, indices))
        return None if code < 0 else _repeated(texts[code], len(indices))


def _is_text(column: pa.Array) -> bool:
    return (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)) and not column.null_count


def _words(column: pa.Array) -> IntArray | None:
    """Return the numbers or codes of a column as integers of their width; None if not all are 32 or 64 bits."""
    is_coded = pa.types.is_dictionary(column.type)
    width = column.type.index_type.bit_width if is_coded else _width(column.type)
    if width not in (32, 64) or column.null_count:
        return None
    # A dictionary may itself hold NULL, but codes are taken as they are.
    words = numbers_in(column.buffers()[1], np.int32 if width == 32 else np.int64)
    return words[column.offset : column.offset + len(column)]


def _width(data_type: pa.DataType) -> int:
    return data_type.bit_width if pa.types.is_primitive(data_type) else 0


def _taken(column: pa.Array, words: IntArray, indices: IntArray) -> pa.Array:
    """Return the values of a column at some indices."""
    # Arrow reuses memory, while NumPy's comes from the system page by page.
    buffer = pa.allocate_buffer(words.itemsize * len(indices))
    _take(words, indices, np.frombuffer(buffer, words.dtype))
    if not pa.types.is_dictionary(column.type):
        return pa.Array.from_buffers(column.type, len(indices), [None, buffer], 0)
    codes = pa.Array.from_buffers(column.type.index_type, len(indices), [None, buffer], 0)
    return pa.DictionaryArray.from_arrays(codes, column.dictionary, ordered=column.type.ordered, safe=False)


def _repeated(text: pa.Scalar, n_values: int) -> pa.Array:
    """Return an array that repeats a text."""
    letters: bytes = text.as_buffer().to_pybytes()
    width = np.dtype(np.int64 if pa.types.is_large_string(text.type) else np.int32)
    buffer = pa.allocate_buffer((n_values + 1) * width.itemsize)
    offsets = np.frombuffer(buffer, width)
    np.multiply(_count_to(n_values + 1, width), len(letters), out=offsets)
    return pa.Array.from_buffers(text.type, n_values, [None, buffer, pa.py_buffer(letters * n_values)], 0)


def _count_to(n: int, width: np.dtype[Any]) -> IntArray:
    return np.arange(n, dtype=width)


@compiled
def have_same_labels(offsets: Any, labels: Any, length: Any) -> Any:
    """Return whether all matches have this length, and the same labels in the same order."""
    # Without an early exit the loops can be vectorised; mostly all are the same.
    differs = False
    for match in range(np.uint64(offsets.shape[0])):
        differs |= offsets[match] != np.int64(match) * length
    for at in range(np.uint64(length), np.uint64(labels.shape[0])):
        differs |= labels[at] != labels[at - np.uint64(length)]
    return not differs


@compiled
def _count_from(rows: Any, first: Any, begin: Any, step: Any, indices: Any) -> None:
    """Write every `step`-th of `rows` from `begin` on, counted from `first`."""
    # Unsigned indices need no test for negative numbers, here and below.
    for place in range(np.uint64(indices.shape[0])):
        indices[place] = rows[np.uint64(begin) + place * np.uint64(step)] - first


@compiled
def _take(words: Any, indices: Any, values: Any) -> None:
    """Write the words at some indices."""
    for place in range(np.uint64(values.shape[0])):
        values[place] = words[np.uint64(indices[place])]


@compiled
def _common_code(codes: Any, indices: Any) -> Any:
    """Return the code at all indices, -1 if codes differ."""
    code = codes[indices[0]]
    for place in range(np.uint64(indices.shape[0])):
        if codes[np.uint64(indices[place])] != code:
            return -1
    return code
