"""Strings as small integers: a growing table of distinct strings, without a Python object for each."""

from __future__ import annotations

import zlib
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from ceql.engine.compiled import compiled
from ceql.engine.intake.columns import texts_in
from ceql.engine.intake.fold import load_word

IntArray = np.ndarray[Any, np.dtype[Any]]

PADDING = 8
"""Bytes after the last string, so that eight bytes can be read from the beginning of each."""

MAX_CHUNK = 2**31 - 1
"""Most bytes of an array of strings with short offsets."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_LOW = np.uint64(0xFFFFFFFF)


class Strings:
    """Numbers strings in the order in which they first occur, and keeps a copy of each.

    The copies lie one after the other in `_content`; string i ends at `_ends[i + 1]`. An entry of the hash table has 32
    bits of the string's hash, then its number plus one; 0 is an empty entry. All arrays have room for more.
    """

    def __init__(self) -> None:
        self._n_strings = 0
        self._content = np.zeros(512 + PADDING, np.uint8)
        self._ends = np.zeros(64, np.int64)
        self._table = np.zeros(128, np.uint64)
        self._of_index: tuple[pa.Array, IntArray] | None = None

    def __len__(self) -> int:
        return self._n_strings

    @property
    def n_bytes(self) -> int:
        """Bytes that the strings and their table take."""
        return self._content.nbytes + self._ends.nbytes + self._table.nbytes

    def codes(self, column: pa.Array, rows: IntArray) -> IntArray:
        """Return the numbers of the strings in some rows, none of which is NULL; new strings are entered.

        A column may have a dictionary without NULL. Strings of the dictionary that are in no row are not entered.
        """
        if not pa.types.is_dictionary(column.type):
            return self._entered(column, rows.astype(np.int32, copy=False), np.empty(0, np.int32))
        values = column.dictionary
        # The next rows probably have the same dictionary.
        if self._of_index is None or not self._of_index[0].equals(values):
            self._of_index = values, np.full(len(values), -1, np.int32)
        indices = column.indices.fill_null(0) if column.null_count else column.indices
        wanted = np.asarray(indices)[rows].astype(np.int32, copy=False)
        return self._entered(values, wanted, self._of_index[1])

    def add(self, values: pa.Array) -> IntArray:
        """Return the numbers of all strings of an array without NULL; new strings are entered."""
        return self._entered(values, np.arange(len(values), dtype=np.int32), np.empty(0, np.int32))

    def values(self, data_type: pa.DataType) -> pa.ChunkedArray:
        """Return the strings in order, as strings of a type with long or short offsets."""
        strings, ends = self._strings(), self._ends[: len(self) + 1]
        if pa.types.is_large_string(data_type):
            return pa.chunked_array([strings])
        parts, begin = [], 0
        while begin < len(self):
            end = int(np.searchsorted(ends, ends[begin] + MAX_CHUNK, side="right")) - 1
            parts.append(strings.slice(begin, end - begin).cast(data_type))
            begin = end
        return pa.chunked_array(parts, data_type)

    def kept(self, codes: IntArray) -> Strings:
        """Return some of the strings, numbered anew in the given order; none may be given twice."""
        kept = Strings()
        kept.add(self._strings().take(pa.array(codes)))
        if self._of_index is not None:
            # The last entry is for strings that have no number yet: theirs is -1.
            renumbered = np.full(len(self) + 1, -1, np.int32)
            renumbered[codes] = np.arange(len(codes))
            kept._of_index = self._of_index[0], renumbered[self._of_index[1]]
        return kept

    def stable_codes(self) -> IntArray:
        """Return the CRC-32 of each string."""
        return stable_codes(self._strings())

    def _strings(self) -> pa.Array:
        """Return all strings. Nothing is copied: what was entered never changes."""
        buffers = [None, pa.py_buffer(self._ends), pa.py_buffer(self._content)]
        return pa.Array.from_buffers(pa.large_string(), len(self), buffers)

    def _entered(self, values: pa.Array, indices: IntArray, of_index: IntArray) -> IntArray:
        """Return the numbers of some values; `of_index` has those that are known (or -1), or is empty."""
        starts, characters = texts_in(values)
        codes = np.empty(len(indices), np.int32)
        done = 0
        while True:
            done, self._n_strings, needed = _enter(
                indices,
                of_index,
                starts,
                characters,
                self._content,
                self._ends,
                self._table,
                self._n_strings,
                done,
                codes,
            )
            if done == len(indices):
                return codes
            self._make_room(needed)

    def _make_room(self, n_bytes: int) -> None:
        """Make room for another string of some bytes."""
        used = int(self._ends[len(self)])
        if used + n_bytes + PADDING > len(self._content):
            grown = np.empty(max(2 * used, used + n_bytes) + PADDING, np.uint8)
            grown[:used] = self._content[:used]
            self._content = grown
        if len(self) + 1 == len(self._ends):
            ends = np.zeros(2 * len(self._ends), np.int64)
            ends[: len(self._ends)] = self._ends
            table = np.zeros(2 * len(self._table), np.uint64)
            _enter_again(self._table, table)
            self._ends, self._table = ends, table


def stable_codes(values: pa.Array) -> IntArray:
    """Return the CRC-32 of the UTF-8 of each string, which is the same in every process and release."""
    starts, characters = texts_in(values)
    content, ends = memoryview(characters), starts.tolist()
    found = [zlib.crc32(content[begin:end]) for begin, end in pairwise(ends)]
    return np.array(found, np.int64)


@compiled
def _hash(characters: Any, begin: Any, length: Any, head: Any) -> Any:
    """Return 32 bits that depend on all bits of a string; `head` has its first eight bytes, or all and zeros."""
    hashed = (head ^ np.uint64(length) * _MULTIPLIER) * _MULTIPLIER
    hashed ^= hashed >> np.uint64(32)
    if length > 8:
        # The last word may overlap the one before.
        for at in range(begin + 8, begin + length - 8, 8):
            hashed = (hashed ^ load_word(characters, at)) * _MULTIPLIER
            hashed ^= hashed >> np.uint64(32)
        hashed = (hashed ^ load_word(characters, begin + length - 8)) * _MULTIPLIER
        hashed ^= hashed >> np.uint64(32)
    return (hashed * _MULTIPLIER) >> np.uint64(32)


@compiled
def _are_equal(left: Any, left_begin: Any, right: Any, right_begin: Any, length: Any) -> Any:
    """Whether two strings of the same length, eight bytes or more, are equal."""
    for j in range(0, length - 8, 8):
        if load_word(left, left_begin + j) != load_word(right, right_begin + j):
            return False
    return load_word(left, left_begin + length - 8) == load_word(right, right_begin + length - 8)


@compiled
def _copy(source: Any, begin: Any, target: Any, own: Any, length: Any) -> None:
    # PERF: unsigned indices need no test for negative numbers, so eight bytes and more are copied at a time.
    first, own = np.uint64(begin), np.uint64(own)
    for j in range(np.uint64(length)):
        target[own + j] = source[first + j]


@compiled
def _enter(
    indices: Any,
    of_index: Any,
    starts: Any,
    characters: Any,
    content: Any,
    ends: Any,
    table: Any,
    n_known: Any,
    done: Any,
    codes: Any,
) -> Any:
    """Write the numbers of strings from `done` on; stop at a new string for which there is no room.

    Return where it stopped, the number of strings, and the bytes of the string that has no room.
    """
    mask = np.uint64(table.shape[0] - 1)
    has_known = of_index.shape[0] > 0
    for i in range(done, indices.shape[0]):
        index = np.uint64(indices[i])
        if has_known and of_index[index] >= 0:
            codes[i] = of_index[index]
            continue
        begin = np.int64(starts[index])
        length = np.int64(starts[index + np.uint64(1)]) - begin
        head = np.uint64(0)
        if begin + 8 <= characters.shape[0]:
            head = load_word(characters, begin)
            if length < 8:
                head &= (np.uint64(1) << np.uint64(8 * length)) - np.uint64(1)
        else:
            for j in range(length):
                head |= np.uint64(characters[begin + j]) << np.uint64(8 * j)
        hashed = _hash(characters, begin, length, head)
        place = hashed & mask
        code = np.int64(-1)
        while table[place] != 0:
            if table[place] >> np.uint64(32) == hashed:
                known = np.uint64((table[place] & _LOW) - np.uint64(1))
                own = ends[known]
                if ends[known + np.uint64(1)] - own == length:
                    if length >= 8:
                        same = _are_equal(characters, begin, content, own, length)
                    else:
                        word = load_word(content, own) & ((np.uint64(1) << np.uint64(8 * length)) - np.uint64(1))
                        same = word == head
                    if same:
                        code = np.int64(known)
                        break
            place = (place + np.uint64(1)) & mask
        if code < 0:
            own = ends[n_known]
            if n_known + 1 == ends.shape[0] or own + length + PADDING > content.shape[0]:
                return i, n_known, length
            _copy(characters, begin, content, own, length)
            ends[n_known + 1] = own + length
            table[place] = hashed << np.uint64(32) | np.uint64(n_known + 1)
            code = np.int64(n_known)
            n_known += 1
        codes[i] = code
        if has_known:
            of_index[index] = code
    return indices.shape[0], n_known, 0


@compiled
def _enter_again(table: Any, larger: Any) -> None:
    """Enter the entries of a table into a larger one."""
    mask = np.uint64(larger.shape[0] - 1)
    for i in range(table.shape[0]):
        if table[i] != 0:
            place = (table[i] >> np.uint64(32)) & mask
            while larger[place] != 0:
                place = (place + np.uint64(1)) & mask
            larger[place] = table[i]
