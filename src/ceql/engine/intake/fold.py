"""Compiled loops over whole columns, for `symbols`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numba
import numpy as np
import pyarrow as pa
from numba import types
from numba.extending import intrinsic

from ceql.engine.compiled import compiled, compiled_in_place
from ceql.engine.intake.columns import texts_in

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
TABLE_BITS = 10

FEW_STRINGS = 8
"""Most strings that Python looks up: a call of compiled code costs more."""


@compiled_in_place
def fold(first: Any, of_first: Any, classes: Any, flat: Any, width: Any, sets: Any) -> None:
    """Write the set of guards of each row after this column; before it, the set is `of_first[first[row]]`.

    `flat` is the column's table, row after row of `width` entries.
    """
    # PERF: unsigned indices into a flat table need no test for negative numbers: 0.6 instead of 1.2 ns per event
    # for dictionary codes.
    width = np.uint64(width)
    for i in range(np.uint64(sets.shape[0])):
        sets[i] = flat[np.uint64(of_first[np.uint64(first[i])]) * width + np.uint64(classes[i])]


@compiled_in_place
def keep(first: Any, of_first: Any, classes: Any, flat: Any, width: Any, may_drop: Any, symbols: Any, rows: Any) -> Any:
    """Do the last column's step. Write the symbol and the number of each relevant row, and return how many there are.

    A row's set of guards before the step is `of_first[first[row]]`. `flat` is the column's table, row after row of
    `width` entries. Without `may_drop` all rows are kept.
    """
    # PERF: one pass does the last two steps and chooses rows: all of encoding takes 2.3 instead of 4.5 ns per event.
    width = np.uint64(width)
    n_kept = np.uint64(0)
    least = np.int32(1 if may_drop else 0)
    for i in range(np.uint64(classes.shape[0])):
        symbol = flat[np.uint64(of_first[np.uint64(first[i])]) * width + np.uint64(classes[i])]
        # Write first and count afterwards: the CPU would predict a branch here wrongly half of the time.
        symbols[n_kept] = symbol
        rows[n_kept] = i
        n_kept += np.uint64(symbol >= least)
    return n_kept


@compiled
def classify_numbers(values: Any, is_valid: Any, cuts: Any) -> Any:
    """Return how many of the n cuts each value has reached; n + 1 for NaN and n + 2 for NULL."""
    n_cuts = cuts.shape[0]
    classes = np.empty(values.shape[0], np.int32)
    has_nulls = is_valid.shape[0] > 0
    if n_cuts > 16:
        # PERF: a binary search for a block of values together, step by step, because it always has the same steps.
        # Without branches, which would often be predicted wrongly, and vectorised: 120 cuts in 4 instead of 14 to 27 ns
        # per value. NaN has reached no cut.
        reached = np.empty(256, np.int64)
        for begin in range(0, values.shape[0], 256):
            block = values[begin : begin + 256]
            reached[:] = 0
            n_left = n_cuts
            while n_left > 0:
                # The answer is among the n_left + 1 numbers from reached[i] on.
                half = (n_left + 1) >> 1
                for i in range(np.uint64(block.shape[0])):
                    reached[i] += half if block[i] >= cuts[np.uint64(reached[i] + half - 1)] else 0
                n_left -= half
            for i in range(np.uint64(block.shape[0])):
                classes[np.uint64(begin) + i] = reached[i]
    for i in range(values.shape[0]):
        value = values[i]
        if has_nulls and not is_valid[i]:
            classes[i] = n_cuts + 2
        elif value != value:
            classes[i] = n_cuts + 1
        elif n_cuts <= 16:
            few = 0
            for j in range(n_cuts):
                few += value >= cuts[j]
            classes[i] = few
    return classes


class StringTable:
    """A hash table of the strings that a query mentions."""

    def __init__(self, constants: Iterable[str]) -> None:
        self.constants = list(constants)
        self.number_of = {constant: number for number, constant in enumerate(self.constants)}
        encoded = [constant.encode("utf-8") for constant in self.constants]
        self.offsets = np.concatenate([[0], np.cumsum([len(constant) for constant in encoded])]).astype(np.int64)
        self.heads = np.array([int.from_bytes(constant[:8], "little") for constant in encoded], np.uint64)
        self.bytes = np.frombuffer(b"".join(encoded) + b"\0" * 8, np.uint8)
        self.first = np.full(1 << TABLE_BITS, -1, np.int32)
        self.following = np.full(len(encoded), -1, np.int32)
        for number, constant in enumerate(encoded):
            head = int.from_bytes(constant[:8], "little")
            slot = int(((head ^ len(constant)) * int(MULTIPLIER)) % 2**64) >> (64 - TABLE_BITS)
            self.following[number] = self.first[slot]
            self.first[slot] = number


def classify_strings(array: pa.Array, table: StringTable) -> Any:
    """Return each string's number among the table's constants, n for all others and n + 1 for NULL."""
    if len(array) <= FEW_STRINGS:
        # PERF: one string takes 4 instead of 28 us on a busy machine. S3 fed with dicts of one event takes 203 instead
        # of 227 us for each, and the first match in a fresh process needs less compiled code.
        other, null = len(table.constants), len(table.constants) + 1
        texts = array.to_pylist()
        return np.array([null if text is None else table.number_of.get(text, other) for text in texts], np.int32)
    starts, characters = texts_in(array)
    validity = array.buffers()[0]
    bits = np.frombuffer(validity, np.uint8) if validity is not None and array.null_count else np.empty(0, np.uint8)
    classes = np.empty(len(array), np.int32)
    _classify_strings(
        starts,
        characters,
        bits,
        array.offset,
        table.heads,
        table.offsets,
        table.bytes,
        table.first,
        table.following,
        classes,
    )
    return classes


def _load_word_uncompiled(array: Any, index: Any) -> Any:
    return np.uint64(int.from_bytes(array[index : index + 8].tobytes(), "little"))


@intrinsic
def _load_word_compiled(_context: Any, array: Any, _index: Any) -> Any:
    """Load eight bytes at any offset. NumPy views cannot, because they must be aligned."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from llvmlite import ir

        structure = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.gep(structure.data, [arguments[1]], source_etype=ir.IntType(8))
        word = builder.bitcast(address, ir.IntType(64).as_pointer())
        return builder.load(word, align=1, typ=ir.IntType(64))

    return types.uint64(array, types.int64), generate


load_word: Any = _load_word_uncompiled if numba.config.DISABLE_JIT else _load_word_compiled  # type: ignore[attr-defined]


@compiled_in_place
def _classify_strings(
    starts: Any,
    characters: Any,
    bits: Any,
    first_bit: Any,
    heads: Any,
    offsets: Any,
    constants: Any,
    first: Any,
    following: Any,
    classes: Any,
) -> None:
    n_constants = following.shape[0]
    n_bytes = characters.shape[0]
    for i in range(classes.shape[0]):
        if bits.shape[0] > 0:
            bit = first_bit + i
            if not (bits[bit >> 3] >> (bit & 7)) & 1:
                classes[i] = n_constants + 1
                continue
        begin = np.int64(starts[i])
        length = np.int64(starts[i + 1]) - begin
        head = np.uint64(0)
        if begin + 8 <= n_bytes:
            head = load_word(characters, begin)
            if length < 8:
                head &= (np.uint64(1) << np.uint64(8 * length)) - np.uint64(1)
        else:
            for j in range(min(length, np.int64(8))):
                head |= np.uint64(characters[begin + j]) << np.uint64(8 * j)
        slot = ((head ^ np.uint64(length)) * MULTIPLIER) >> np.uint64(64 - TABLE_BITS)
        number = first[slot]
        while number >= 0:
            if heads[number] == head and offsets[number + 1] - offsets[number] == length:
                same = True
                for j in range(8, length):
                    if characters[begin + j] != constants[offsets[number] + j]:
                        same = False
                        break
                if same:
                    break
            number = following[number]
        classes[i] = number if number >= 0 else n_constants


@compiled
def first_decrease(values: Any, at_least: Any) -> Any:
    """Return the position of the first value that is less than the value before it (or than `at_least`), or -1."""
    if values.shape[0] == 0:
        return -1
    if values[0] < at_least:
        return 0
    # Without an early exit the loop can be vectorised; hardly any stream runs backwards.
    is_any = False
    for i in range(1, values.shape[0]):
        is_any |= values[i] < values[i - 1]
    if is_any:
        for i in range(1, values.shape[0]):
            if values[i] < values[i - 1]:
                return i
    return -1


@compiled
def keep_where(is_kept: Any, symbols: Any, rows: Any, n_rows: Any) -> Any:
    """Leave only the events whose row is kept, in place; return how many are left."""
    n_kept = 0
    for i in range(n_rows):
        symbols[n_kept], rows[n_kept] = symbols[i], rows[i]
        n_kept += is_kept[rows[i]]
    return n_kept


@compiled
def keep_keyed(slots: Any, symbols: Any, rows: Any) -> Any:
    """Leave only the events that have a partition key, in place; return how many are left."""
    n_kept = 0
    for i in range(slots.shape[0]):
        symbols[n_kept], rows[n_kept], slots[n_kept] = symbols[i], rows[i], slots[i]
        n_kept += slots[i] >= 0
    return n_kept
