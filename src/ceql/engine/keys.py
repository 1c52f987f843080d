"""Partition keys to slots: small integers, the same for equal keys and for no others."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ceql.engine.compiled import compiled
from ceql.engine.numbers import stored_numbers

IntArray = np.ndarray[Any, np.dtype[Any]]

NO_KEY = -1
"""The slot of events with a NULL in their key: they belong to no partition."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def key_hashes(columns: list[pa.Array]) -> IntArray:
    """Return 64 bits for each row, equal for equal keys in every process and release: states are kept by them."""
    return _hashed(np.stack([_stable_codes(_decoded(column)) for column in columns], axis=1))


class KeyEncoder:
    """Numbers the keys that it meets, in the order in which it meets them.

    Each column is turned into 64-bit codes, equal for equal values: numbers and times as they are
    stored, everything else by a dictionary that grows. A hash table maps rows of codes to slots.
    """

    def __init__(self, n_columns: int) -> None:
        self.n_keys = 0
        self.codes = np.zeros((64, n_columns), np.int64)
        self._table = np.full(256, -1, np.int32)
        self.dictionaries: list[dict[Any, int]] = [{} for _ in range(n_columns)]
        self._of_code: list[tuple[pa.Array, IntArray] | None] = [None] * n_columns

    def encode(self, columns: list[pa.Array], rows: IntArray) -> IntArray:
        """Return the slots of some rows."""
        codes = np.empty((len(rows), len(columns)), np.int64)
        is_keyed = np.empty(0, np.bool_)
        for index, column in enumerate(columns):
            column = _decoded(column)
            codes[:, index] = self._codes(column, index)[rows]
            if column.null_count:
                is_valid = pc.is_valid(column).to_numpy(zero_copy_only=False)[rows]
                is_keyed = is_valid & is_keyed if len(is_keyed) else is_valid
        slots = np.empty(len(rows), np.int32)
        done = 0
        while done < len(rows):
            self._make_room()
            done, self.n_keys = _look_up(codes, is_keyed, slots, done, self.codes, self.n_keys, self._table)
        return slots

    def hashes(self) -> IntArray:
        """Return the hash of each key, which is that of `key_hashes`."""
        codes = self.codes[: self.n_keys].copy()
        for index, dictionary in enumerate(self.dictionaries):
            if dictionary:
                codes[:, index] = np.array([_stable_code(value) for value in dictionary])[codes[:, index]]
        return _hashed(codes)

    def restore(self, codes: IntArray, values: list[list[Any]]) -> None:
        """Take over keys, in place of those that there are."""
        self.dictionaries = [{value: code for code, value in enumerate(column)} for column in values]
        self.n_keys = len(codes)
        self.codes = np.zeros((max(64, 4 * len(codes)), self.codes.shape[1]), np.int64)
        self.codes[: len(codes)] = codes
        self._table = np.full(_power_of_two(2 * len(self.codes)), -1, np.int32)
        _index(self.codes, self.n_keys, self._table)

    def keep_only(self, is_kept: IntArray) -> None:
        """Forget all keys but some, which are numbered anew in the same order."""
        codes = self.codes[: self.n_keys][is_kept]
        values: list[list[Any]] = []
        for index, dictionary in enumerate(self.dictionaries):
            used, numbers = np.unique(codes[:, index], return_inverse=True)
            all_values = list(dictionary)
            values.append([all_values[code] for code in used.tolist()] if dictionary else [])
            if dictionary:
                codes[:, index] = numbers.reshape(-1)
        self.restore(codes, values)
        self._of_code = [None] * len(self.dictionaries)

    def _codes(self, column: pa.Array, index: int) -> IntArray:
        numbers = _numbers(column)
        if numbers is not None:
            return numbers
        encoded = _encoded(column)
        return _taken(self._codes_of(encoded.dictionary, index), encoded)

    def _codes_of(self, values: pa.Array, index: int) -> IntArray:
        """Return the code of each value of an Arrow dictionary, and 0 for NULL after the last."""
        known = self._of_code[index]
        if known is not None and known[0].equals(values):
            return known[1]
        dictionary = self.dictionaries[index]
        of_code = np.zeros(len(values) + 1, np.int64)
        for code, value in enumerate(values.to_pylist()):
            of_code[code] = dictionary.setdefault(value, len(dictionary))
        self._of_code[index] = values, of_code
        return of_code

    def _make_room(self) -> None:
        if 2 * self.n_keys >= len(self.codes):
            grown = np.zeros((2 * len(self.codes), self.codes.shape[1]), np.int64)
            grown[: self.n_keys] = self.codes[: self.n_keys]
            self.codes = grown
            self._table = np.full(_power_of_two(2 * len(grown)), -1, np.int32)
            _index(self.codes, self.n_keys, self._table)


def _numbers(column: pa.Array) -> IntArray | None:
    """Return integers that are equal for equal values; None where the type has no such integers."""
    if pa.types.is_boolean(column.type):
        return np.asarray(column.cast(pa.int64()).fill_null(0))
    is_small_decimal = pa.types.is_decimal128(column.type) and column.type.precision <= 18
    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or is_small_decimal
    if not (is_number or pa.types.is_timestamp(column.type) or pa.types.is_date32(column.type)):
        return None
    values, _ = stored_numbers(column)
    if values.dtype == np.float64:
        # Equal numbers must have equal bits: there are two zeros and many NaNs.
        values = np.where(np.isnan(values), np.nan, values + 0.0).view(np.int64)
    return values


def _encoded(column: pa.Array) -> pa.DictionaryArray:
    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()


def _taken(of_code: IntArray, encoded: pa.DictionaryArray) -> IntArray:
    """Return what each value of a dictionary has, row by row; what comes after the last is for NULL."""
    indices = encoded.indices
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(len(encoded.dictionary))
    taken: IntArray = of_code[np.asarray(indices)]
    return taken


def _stable_codes(column: pa.Array) -> IntArray:
    numbers = _numbers(column)
    if numbers is not None:
        return numbers
    encoded = _encoded(column)
    return _taken(np.array([*map(_stable_code, encoded.dictionary.to_pylist()), 0], np.int64), encoded)


def _stable_code(value: Any) -> int:
    """Return 32 bits of a value, as Python's own hash differs between processes."""
    # What `repr` escapes in strings depends on the release of Python.
    return zlib.crc32((value if isinstance(value, str) else repr(value)).encode())


def _hashed(codes: IntArray) -> IntArray:
    """Return the codes of each row as one number whose first bits depend on all of theirs."""
    hashed = np.zeros(len(codes), np.uint64)
    for index in range(codes.shape[1]):
        hashed = (hashed ^ codes[:, index].view(np.uint64)) * _MULTIPLIER
        hashed ^= hashed >> np.uint64(29)
    return hashed * _MULTIPLIER


def _decoded(column: pa.Array) -> pa.Array:
    must_decode = pa.types.is_dictionary(column.type) and _must_decode(column.dictionary)
    return column.dictionary_decode() if must_decode else column


def _must_decode(values: pa.Array) -> bool:
    """Whether a dictionary's codes cannot stand for its values: only strings are entered as they are, and no NULL."""
    return values.null_count > 0 or not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type))


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


@compiled
def _look_up(codes: Any, is_keyed: Any, slots: Any, done: Any, known: Any, n_known: Any, table: Any) -> Any:
    """Fill in slots from row `done` on, where `is_keyed` (empty if all are); stop when a new key finds no room."""
    # PERF: unsigned indices, as in the kernel.
    mask = np.uint64(table.shape[0] - 1)
    n_columns = codes.shape[1]
    for i in range(done, codes.shape[0]):
        row = np.uint64(i)
        if is_keyed.shape[0] > 0 and not is_keyed[row]:
            slots[row] = NO_KEY
            continue
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
def _index(known: Any, n_known: Any, table: Any) -> None:
    """Enter the known keys into an empty table."""
    mask = table.shape[0] - 1
    for slot in range(n_known):
        hashed = np.uint64(0)
        for j in range(known.shape[1]):
            hashed = (hashed ^ np.uint64(known[slot, j])) * _MULTIPLIER
            hashed ^= hashed >> np.uint64(29)
        place = np.int64(hashed & np.uint64(mask))
        while table[place] >= 0:
            place = (place + 1) & mask
        table[place] = slot


@compiled
def count_events(slots: Any, counts: Any, positions: Any) -> None:
    """Write each event's position in its own partition's stream, counting on from `counts`."""
    for i in range(slots.shape[0]):
        slot = slots[i]
        if slot >= 0:
            positions[i] = counts[slot]
            counts[slot] += 1
