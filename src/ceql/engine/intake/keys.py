"""Gives each partition key a slot: a small integer, the same for equal keys, different for different keys."""

from __future__ import annotations

import sys
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ceql.engine.compiled import compiled
from ceql.engine.intake.dictionaries import dictionary_codes, encoded
from ceql.engine.intake.numbers import stored_numbers

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

    def __init__(self, n_columns: int) -> None:
        self.n_keys = 0
        self.codes = np.zeros((64, n_columns), np.int64)
        self._table = np.full(256, -1, np.int32)
        self.dictionaries: list[dict[Any, int]] = [{} for _ in range(n_columns)]
        self._of_code: list[tuple[pa.Array, IntArray] | None] = [None] * n_columns
        self._dictionary_bytes = 0

    @property
    def n_bytes(self) -> int:
        """Bytes that the keys take; those of Python objects are estimated."""
        return self.codes.nbytes + self._table.nbytes + self._dictionary_bytes

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
        codes = np.empty((len(keyed), len(columns)), np.int64)
        for index, column in enumerate(columns):
            codes[:, index] = self._codes(column, keyed, index)
        found = slots if is_each_keyed else np.empty(len(keyed), np.int32)
        done = 0
        while done < len(keyed):
            self._make_room()
            done, self.n_keys = _look_up(codes, found, done, self.codes, self.n_keys, self._table)
        if not is_each_keyed:
            slots[is_keyed] = found
        return slots

    @property
    def size(self) -> tuple[int, ...]:
        """The numbers of keys, of bytes of values, and of values in each dictionary, for `shorten`."""
        return self.n_keys, self._dictionary_bytes, *map(len, self.dictionaries)

    def shorten(self, size: tuple[int, ...]) -> None:
        """Forget the keys that were entered after `size` was read."""
        if self.size == size:
            return
        self.n_keys, self._dictionary_bytes, *lengths = size
        for dictionary, length in zip(self.dictionaries, lengths, strict=True):
            while len(dictionary) > length:
                dictionary.popitem()
        self._of_code = [None] * len(self.dictionaries)
        self._table.fill(-1)
        _index(self.codes, self.n_keys, self._table)

    def hashes(self) -> IntArray:
        """Return the hash of each key, the same as `key_hashes` gives."""
        codes = self.codes[: self.n_keys].copy()
        for index, dictionary in enumerate(self.dictionaries):
            if dictionary:
                codes[:, index] = np.array([_stable_code(value) for value in dictionary])[codes[:, index]]
        return _hashed(codes)

    @classmethod
    def of(cls, codes: IntArray, values: list[list[Any]]) -> KeyEncoder:
        """Return an encoder that knows some keys; `ValueError` if a key, or a value of a column, occurs twice."""
        known = cls(len(values))
        known.dictionaries = [{value: code for code, value in enumerate(column)} for column in values]
        if [*map(len, known.dictionaries)] != [*map(len, values)]:
            raise ValueError("a value occurs twice")
        known._dictionary_bytes = sum(ENTRY_BYTES + sys.getsizeof(value) for column in values for value in column)
        known.n_keys = len(codes)
        known.codes = np.zeros((max(64, 4 * len(codes)), len(values)), np.int64)
        known.codes[: len(codes)] = codes
        known._table = np.full(_power_of_two(2 * len(known.codes)), -1, np.int32)
        if not _index(known.codes, known.n_keys, known._table):
            raise ValueError("a key occurs twice")
        return known

    def kept(self, is_kept: IntArray) -> KeyEncoder:
        """Return an encoder that knows only some of the keys, numbered anew in the same order."""
        codes = self.codes[: self.n_keys][is_kept]
        values: list[list[Any]] = []
        used_codes: list[IntArray] = []
        for index, dictionary in enumerate(self.dictionaries):
            used, numbers = np.unique(codes[:, index], return_inverse=True)
            used_codes.append(used)
            all_values = list(dictionary)
            values.append([all_values[code] for code in used.tolist()] if dictionary else [])
            if dictionary:
                codes[:, index] = numbers.reshape(-1)
        kept = KeyEncoder.of(codes, values)
        for index, known in enumerate(self._of_code):
            if known is not None:
                # The last entry is for values that have no code yet: their code is -1.
                renumbered = np.full(len(self.dictionaries[index]) + 1, -1, np.int64)
                renumbered[used_codes[index]] = np.arange(len(used_codes[index]))
                kept._of_code[index] = known[0], renumbered[known[1]]
        return kept

    def _codes(self, column: pa.Array, rows: IntArray, index: int) -> IntArray:
        """Return the codes of some rows, none of which is NULL."""
        numbers = _numbers(column)
        if numbers is not None:
            return numbers if len(rows) == len(numbers) else numbers[rows]
        if pa.types.is_dictionary(column.type):
            indices = column.indices.fill_null(0) if column.null_count else column.indices
            return self._codes_of(column.dictionary, np.asarray(indices)[rows], index)
        wanted = (column if len(rows) == len(column) else column.take(pa.array(rows))).dictionary_encode()
        of_code = self._entered(wanted.dictionary, index)
        codes: IntArray = of_code[np.asarray(wanted.indices)]
        return codes

    def _codes_of(self, values: pa.Array, indices: IntArray, index: int) -> IntArray:
        """Return the codes of some values of a column's own dictionary; the next batch probably has the same one."""
        known = self._of_code[index]
        if known is None or not known[0].equals(values):
            known = self._of_code[index] = values, np.full(len(values), -1, np.int64)
        of_code = known[1]
        codes: IntArray = of_code[indices]
        if len(codes) and codes.min() < 0:
            new = np.unique(indices[codes < 0])
            of_code[new] = self._entered(values.take(pa.array(new)), index)
            codes = of_code[indices]
        return codes

    def _entered(self, values: pa.Array, index: int) -> IntArray:
        """Return the codes of some values; new values get new codes."""
        dictionary = self.dictionaries[index]
        n_before = len(dictionary)
        codes = np.array([dictionary.setdefault(value, len(dictionary)) for value in values.to_pylist()], np.int64)
        n_new = len(dictionary) - n_before
        if n_new:
            self._dictionary_bytes += n_new * (ENTRY_BYTES + values.nbytes // len(values))
        return codes

    def _make_room(self) -> None:
        if 2 * self.n_keys >= len(self.codes):
            grown = np.zeros((2 * len(self.codes), self.codes.shape[1]), np.int64)
            grown[: self.n_keys] = self.codes[: self.n_keys]
            self.codes = grown
            self._table = np.full(_power_of_two(2 * len(grown)), -1, np.int32)
            _index(self.codes, self.n_keys, self._table)


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
    of_code = np.array([*map(_stable_code, column.dictionary.to_pylist()), 0], np.int64)
    codes: IntArray = of_code[dictionary_codes(column)]
    return codes


def _stable_code(value: Any) -> int:
    """Return a 32-bit hash of a value. Python's own hash differs between processes."""
    # What `repr` escapes in strings depends on the release of Python.
    return zlib.crc32((value if isinstance(value, str) else repr(value)).encode())


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
    return values.null_count > 0 or not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type))


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
