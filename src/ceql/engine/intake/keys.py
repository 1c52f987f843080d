"""Gives each partition key a slot: a small integer, the same for equal keys, different for different keys."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ceql.engine.compiled import compiled
from ceql.engine.intake.dictionaries import dictionary_codes, encoded
from ceql.engine.intake.numbers import stored_numbers
from ceql.engine.intake.strings import Strings, stable_codes

IntArray = np.ndarray[Any, np.dtype[Any]]

NO_KEY = -1
"""The slot of events with a NULL in their key: they belong to no partition."""

ENTRY_BYTES = 180
"""Roughly the bytes that Python takes for an entry of a dictionary and its code, without the value itself."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def key_hashes(columns: list[pa.Array]) -> IntArray:
    """Return a 64-bit hash for each row. Stored states need it to be the same in every process and release."""
    return _hashed(np.stack([_stable_codes(_decoded(column)) for column in columns], axis=1))


class KeyEncoder:
    """Numbers keys in the order in which they first occur.

    Each column is turned into 64-bit codes, equal for equal values: numbers and times as they are
    stored, everything else by a dictionary that grows. A hash table maps rows of codes to slots.
    """

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        """Make an encoder for columns with values of these types, which may have Arrow's dictionaries."""
        self.n_keys = 0
        self.codes = np.zeros((64, len(types)), np.int64)
        self._table = np.full(256, -1, np.int32)
        self.dictionaries: list[Strings | Objects] = [Strings() if _is_string(one) else Objects() for one in types]
        self._types = list(types)

    @property
    def n_bytes(self) -> int:
        """Bytes that the keys take; those of Python objects are estimated."""
        return self.codes.nbytes + self._table.nbytes + sum(dictionary.n_bytes for dictionary in self.dictionaries)

    @property
    def _is_one_string(self) -> bool:
        """Whether keys are single strings. Then the number of a string is the slot of its key."""
        return len(self._types) == 1 and _is_string(self._types[0])

    def encode(self, columns: list[pa.Array], rows: IntArray) -> IntArray:
        """Return the slots of some rows; the keys of other rows are not entered."""
        columns = [_decoded(column) for column in columns]
        slots = np.full(len(rows), NO_KEY, np.int32)
        is_keyed = np.ones(len(rows), np.bool_)
        for column in columns:
            if column.null_count:
                is_keyed &= pc.is_valid(column).to_numpy(zero_copy_only=False)[rows]
        is_each_keyed = bool(is_keyed.all())
        keyed = rows if is_each_keyed else rows[is_keyed]
        found = self._slots(columns, keyed)
        if is_each_keyed:
            return found
        slots[is_keyed] = found
        return slots

    def _slots(self, columns: list[pa.Array], rows: IntArray) -> IntArray:
        """Return the slots of some rows without NULL."""
        if self._is_one_string:
            found = self.dictionaries[0].codes(columns[0], rows)
            self._number_strings()
            return found
        codes = np.empty((len(rows), len(columns)), np.int64)
        for index, column in enumerate(columns):
            codes[:, index] = self._codes(column, rows, index)
        found, done = np.empty(len(rows), np.int32), 0
        while done < len(rows):
            self._make_room()
            done, self.n_keys = _look_up(codes, found, done, self.codes, self.n_keys, self._table)
        return found

    @property
    def size(self) -> tuple[int, ...]:
        """The numbers of keys, and of values in each dictionary, for `shorten`."""
        return self.n_keys, *map(len, self.dictionaries)

    def shorten(self, size: tuple[int, ...]) -> None:
        """Forget the keys that were entered after `size` was read."""
        if self.size == size:
            return
        self.n_keys, *lengths = size
        for index, length in enumerate(lengths):
            if length < len(self.dictionaries[index]):
                self.dictionaries[index] = self.dictionaries[index].kept(np.arange(length))
        if not self._is_one_string:
            self._table.fill(-1)
            _index(self.codes, self.n_keys, self._table)

    def hashes(self) -> IntArray:
        """Return the hash of each key, the same as `key_hashes` gives."""
        codes = self.codes[: self.n_keys].copy()
        for index, dictionary in enumerate(self.dictionaries):
            if len(dictionary):
                codes[:, index] = dictionary.stable_codes()[codes[:, index]]
        return _hashed(codes)

    def values(self) -> list[pa.ChunkedArray]:
        """Return the values of each column that codes stand for, in the order of the codes; none for numbers."""
        return [known.values(one) for known, one in zip(self.dictionaries, self._types, strict=True)]

    @classmethod
    def of(cls, codes: IntArray, values: Sequence[pa.ChunkedArray]) -> KeyEncoder:
        """Return an encoder that knows some keys; `ValueError` if a key, or a value of a column, occurs twice."""
        known = cls([column.type for column in values])
        for dictionary, column in zip(known.dictionaries, values, strict=True):
            for chunk in column.chunks:
                dictionary.add(chunk)
            if len(dictionary) != len(column):
                raise ValueError("a value occurs twice")
        return known._with_keys(codes)

    def _with_keys(self, codes: IntArray) -> KeyEncoder:
        """Enter keys into an encoder that has none, but knows their values."""
        if self._is_one_string:
            if len(np.unique(codes)) != len(codes):
                raise ValueError("a key occurs twice")
            self.dictionaries = [self.dictionaries[0].kept(codes[:, 0])]
            self._number_strings()
            return self
        self.n_keys = len(codes)
        self.codes = np.zeros((max(64, 4 * len(codes)), codes.shape[1]), np.int64)
        self.codes[: len(codes)] = codes
        self._table = np.full(_power_of_two(2 * len(self.codes)), -1, np.int32)
        if not _index(self.codes, self.n_keys, self._table):
            raise ValueError("a key occurs twice")
        return self

    def kept(self, is_kept: IntArray) -> KeyEncoder:
        """Return an encoder that knows only some of the keys, numbered anew in the same order."""
        kept = KeyEncoder(self._types)
        codes = self.codes[: self.n_keys][is_kept]
        for index, dictionary in enumerate(self.dictionaries):
            if len(dictionary):
                used, numbers = np.unique(codes[:, index], return_inverse=True)
                kept.dictionaries[index] = dictionary.kept(used)
                codes[:, index] = numbers.reshape(-1)
        return kept._with_keys(codes)

    def _codes(self, column: pa.Array, rows: IntArray, index: int) -> IntArray:
        """Return the codes of some rows, none of which is NULL."""
        numbers = _numbers(column)
        if numbers is not None:
            return numbers if len(rows) == len(numbers) else numbers[rows]
        return self.dictionaries[index].codes(column, rows)

    def _number_strings(self) -> None:
        """Enter keys for new strings."""
        n_before, self.n_keys = self.n_keys, len(self.dictionaries[0])
        if self.n_keys > len(self.codes):
            self.codes = np.arange(2 * self.n_keys).reshape(-1, 1)
        self.codes[n_before : self.n_keys, 0] = np.arange(n_before, self.n_keys)

    def _make_room(self) -> None:
        if 2 * self.n_keys >= len(self.codes):
            grown = np.zeros((2 * len(self.codes), self.codes.shape[1]), np.int64)
            grown[: self.n_keys] = self.codes[: self.n_keys]
            self.codes = grown
            self._table = np.full(_power_of_two(2 * len(grown)), -1, np.int32)
            _index(self.codes, self.n_keys, self._table)


class Objects:
    """Numbers values that are neither numbers nor strings, in the order in which they first occur."""

    def __init__(self) -> None:
        self._codes: dict[Any, int] = {}
        self.n_bytes = 0
        """Bytes that the values take, roughly."""

    def __len__(self) -> int:
        return len(self._codes)

    def codes(self, column: pa.Array, rows: IntArray) -> IntArray:
        """Return the numbers of the values in some rows, none of which is NULL; new values are entered."""
        wanted = (column if len(rows) == len(column) else column.take(pa.array(rows))).dictionary_encode()
        codes: IntArray = self.add(wanted.dictionary)[np.asarray(wanted.indices)]
        return codes

    def add(self, values: pa.Array) -> IntArray:
        """Return the numbers of some values; new values are entered."""
        return self._entered(values.to_pylist())

    def values(self, data_type: pa.DataType) -> pa.ChunkedArray:
        """Return the values in order."""
        values = pa.array(list(self._codes), data_type)
        return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])

    def kept(self, codes: IntArray) -> Objects:
        """Return some of the values, numbered anew in the given order."""
        values = list(self._codes)
        kept = Objects()
        kept._entered([values[code] for code in codes.tolist()])
        return kept

    def stable_codes(self) -> IntArray:
        """Return a 32-bit hash of each value. Python's own hash differs between processes."""
        return np.array([_stable_code(value) for value in self._codes], np.int64)

    def _entered(self, values: list[Any]) -> IntArray:
        known = self._codes
        n_before = len(known)
        codes = np.array([known.setdefault(value, len(known)) for value in values], np.int64)
        for value in islice(reversed(known), len(known) - n_before):
            self.n_bytes += ENTRY_BYTES + sys.getsizeof(value)
        return codes


def has_numbers(data_type: pa.DataType) -> bool:
    """Whether values of a type are stored as 64-bit numbers that can serve as codes."""
    is_small_decimal = pa.types.is_decimal128(data_type) and data_type.precision <= 18
    is_number = pa.types.is_boolean(data_type) or pa.types.is_integer(data_type) or pa.types.is_floating(data_type)
    is_time = pa.types.is_timestamp(data_type) or pa.types.is_date32(data_type)
    return bool(is_number or is_small_decimal or is_time)


def _numbers(column: pa.Array) -> IntArray | None:
    """Return integers that are equal for equal values; None where the type has no such integers."""
    if not has_numbers(column.type):
        return None
    if pa.types.is_boolean(column.type):
        return np.asarray(column.cast(pa.int64()).fill_null(0))
    values, _ = stored_numbers(column)
    if values.dtype == np.float64:
        # Equal numbers must have equal bits: there are two zeros and many NaNs.
        values = np.where(np.isnan(values), np.nan, values + 0.0).view(np.int64)
    return values


def _stable_codes(column: pa.Array) -> IntArray:
    numbers = _numbers(column)
    if numbers is not None:
        return numbers
    column = encoded(column)
    values = column.dictionary
    found = stable_codes(values) if _is_string(values.type) else [_stable_code(value) for value in values.to_pylist()]
    codes: IntArray = np.array([*found, 0], np.int64)[dictionary_codes(column)]
    return codes


def _stable_code(value: Any) -> int:
    """Return a 32-bit hash of a value that is no string. What `repr` escapes in strings depends on Python's release."""
    return zlib.crc32(repr(value).encode())


def _hashed(codes: IntArray) -> IntArray:
    """Return a hash for each row of codes. All bits of the codes influence its first bits."""
    hashed = np.zeros(len(codes), np.uint64)
    for index in range(codes.shape[1]):
        hashed = (hashed ^ codes[:, index].view(np.uint64)) * _MULTIPLIER
        hashed ^= hashed >> np.uint64(29)
    return hashed * _MULTIPLIER


def _decoded(column: pa.Array) -> pa.Array:
    must_decode = pa.types.is_dictionary(column.type) and _must_decode(column.dictionary)
    return column.dictionary_decode() if must_decode else column


def _must_decode(values: pa.Array) -> bool:
    """Whether a column must be decoded because its dictionary contains NULL, or values that are not strings."""
    return values.null_count > 0 or not _is_string(values.type)


def _is_string(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


@compiled
def _look_up(codes: Any, slots: Any, done: Any, known: Any, n_known: Any, table: Any) -> Any:
    """Fill in slots from row `done` on; stop at a new key for which there is no room."""
    # PERF: unsigned indices, as in the kernel.
    mask = np.uint64(table.shape[0] - 1)
    n_columns = codes.shape[1]
    for i in range(done, codes.shape[0]):
        row = np.uint64(i)
        hashed = np.uint64(0)
        for j in range(n_columns):
            hashed = (hashed ^ np.uint64(codes[row, np.uint64(j)])) * _MULTIPLIER
            hashed ^= hashed >> np.uint64(29)
        place = hashed & mask
        while True:
            slot = table[place]
            if slot < 0:
                if n_known == known.shape[0]:
                    return i, n_known
                for j in range(n_columns):
                    known[n_known, j] = codes[row, np.uint64(j)]
                table[place] = n_known
                slot = n_known
                n_known += 1
                break
            same = True
            for j in range(n_columns):
                if known[np.uint64(slot), np.uint64(j)] != codes[row, np.uint64(j)]:
                    same = False
            if same:
                break
            place = (place + np.uint64(1)) & mask
        slots[row] = slot
    return codes.shape[0], n_known


@compiled
def _index(known: Any, n_known: Any, table: Any) -> Any:
    """Enter the known keys into an empty table; return whether all differ."""
    all_differ = True
    mask = table.shape[0] - 1
    for slot in range(n_known):
        hashed = np.uint64(0)
        for j in range(known.shape[1]):
            hashed = (hashed ^ np.uint64(known[slot, j])) * _MULTIPLIER
            hashed ^= hashed >> np.uint64(29)
        place = np.int64(hashed & np.uint64(mask))
        while table[place] >= 0:
            same = True
            for j in range(known.shape[1]):
                if known[table[place], j] != known[slot, j]:
                    same = False
            all_differ = all_differ and not same
            place = (place + 1) & mask
        table[place] = slot
    return all_differ


@compiled
def count_events(slots: Any, counts: Any) -> None:
    """Add events to the counts of their keys."""
    for i in range(slots.shape[0]):
        if slots[i] >= 0:
            counts[slots[i]] += 1


@compiled
def positions_by_key(slots: Any, counts: Any) -> Any:
    """Return each event's position in the stream of its own partition; `counts` has the partitions' lengths so far."""
    positions = np.zeros(slots.shape[0], np.int64)
    # Count up, then down again: the cost of a copy would grow with the number of keys.
    for i in range(slots.shape[0]):
        if slots[i] >= 0:
            positions[i] = counts[slots[i]]
            counts[slots[i]] += 1
    for i in range(slots.shape[0]):
        if slots[i] >= 0:
            counts[slots[i]] -= 1
    return positions
