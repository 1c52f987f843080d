"""Turns rows into the events that a run sees. Each event that concerns the run has a symbol, a time and a key slot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ceql.automaton.cea import Guard
from ceql.engine.intake.classes import Columns, columns_of
from ceql.engine.intake.columns import plain_type
from ceql.engine.intake.fold import keep_keyed, keep_where
from ceql.engine.intake.intake import Rows
from ceql.engine.intake.keys import NO_KEY, KeyEncoder
from ceql.engine.intake.measure import Measure
from ceql.engine.intake.moments import TIME_COMES
from ceql.engine.intake.symbols import SymbolEncoder
from ceql.engine.intake.ties import Ties
from ceql.syntax import plan

IntArray = np.ndarray[Any, np.dtype[Any]]

BLOCK = 1 << 18
"""Events that go through predicates and kernel together: many, so that the cost of Python per block does not matter."""

FEW_ROWS = 1 << 12
"""With fewer rows, a fresh array costs nothing."""

NO_SLOTS = np.empty(0, np.int32)
NO_TIMES = np.empty(0, np.int64)


@dataclass(frozen=True)
class Block:
    """Events on their way to a run. The arrays are overwritten when the next block is made."""

    symbols: IntArray
    """The symbol of each event: `masks[symbol]` has a bit for each guard that holds."""
    rows: IntArray
    """The row of each event, counted from `first_row`."""
    slots: IntArray
    """The slot of each event's partition key; empty without PARTITION BY."""
    first_row: int
    times: IntArray
    """The measure of each row, even if it is no event."""
    masks: list[int]
    n_keys: int
    slots_of_all: IntArray
    """The slot of each row, where the window counts the events of a key; otherwise empty."""
    clock: IntArray
    """The time of each row, in which silences are measured; empty if there are none."""


class EventEncoder:
    """Finds the events that concern a run among the rows of a stream."""

    def __init__(
        self,
        query: plan.Plan,
        guards: tuple[Guard, ...],
        schema: pa.Schema,
        *,
        time_column: str | None,
        sees_all: bool,
        max_symbols: int,
        sorting: str | None,
    ) -> None:
        """Bind the encoder to a stream's columns.

        With `sees_all`, events count even if no guard holds. `sorting` is for hints, see `Measure`.
        """
        read = columns_read(guards)
        self._read = [(index, name) for index, name in enumerate(schema.names) if name in read]
        self.symbols = SymbolEncoder(guards)
        self.measure = Measure(query.window, schema, sorting)
        self.key_types = [plain_type(schema.field(name).type) for name in query.partition_by]
        self.keys = KeyEncoder(self.key_types) if query.partition_by else None
        self.ties = Ties(query.order if sees_all else ())
        self.n_dropped = 0
        self.clock: Measure | None = None
        """What silences are measured in; None if there are none."""
        self.clocks = [self.measure]
        """The measures that must not run backwards: the window's, that of silences, and the time column."""
        for silence in query.silences:
            is_shared = silence.attribute == self.measure.attribute and not self.measure.counts_rows
            self.clock = self.clock or (self.measure if is_shared else Measure.timing(silence, schema, sorting))
        self._waits = query.silence_after is not None
        if self.clock is not None and self.clock is not self.measure:
            self.clocks.append(self.clock)
        self._ordering = None
        if time_column is not None and time_column not in [clock.attribute for clock in self.clocks]:
            measured = self.clocks[-1].attribute
            self._ordering = Measure.ordering(time_column, schema, sorting, measured=measured)
        if self._ordering is not None:
            self.clocks.append(self._ordering)
        self._guards = guards
        self._sources, self._partition_by = query.sources, query.partition_by
        self.sees_all, self._max_symbols = sees_all, max_symbols
        self._counts_events_by_key = isinstance(query.window, plan.EventsWindow) and self.keys is not None
        # PERF: allocated once; fresh arrays of this size come from the system page by page.
        self._symbols = np.empty(BLOCK, np.int32)
        self._rows = np.arange(BLOCK, dtype=np.int32)
        self._counts = NO_TIMES

    def encode(self, rows: Rows) -> Iterator[Block]:
        """Yield the events among some rows, block by block; then the time that they have come to, if matches wait."""
        self.ties.read(rows.batch, rows.streams)
        times, clock, is_timed = self._times(rows)
        self.n_dropped += self._count_dropped(rows.batch, is_timed)
        for begin in range(0, len(rows), BLOCK):
            own = slice(begin, min(begin + BLOCK, len(rows)))
            n_kept = self._encode_symbols(self._columns(rows, own), own.stop - begin, is_timed[own])
            symbols, numbers = self._symbols[:n_kept], self._rows[:n_kept]
            slots, slots_of_all = NO_SLOTS, NO_SLOTS
            if self.keys is not None:
                part = rows.batch.slice(begin, own.stop - begin)
                if self._counts_events_by_key:
                    slots_of_all = self._slots(part, np.arange(len(part)))
                    if len(is_timed):
                        slots_of_all = np.where(is_timed[own], slots_of_all, NO_KEY)
                    slots = slots_of_all[numbers]
                else:
                    slots = self._slots(part, numbers)
                n_kept = int(keep_keyed(slots, symbols, numbers))
            self.ties.count(begin, numbers[:n_kept], slots[:n_kept])
            yield Block(
                symbols[:n_kept],
                numbers[:n_kept],
                slots[:n_kept],
                rows.first + begin,
                self._positions(rows.first + begin, own.stop - begin) if times is None else times[own],
                self.symbols.masks,
                0 if self.keys is None else self.keys.n_keys,
                slots_of_all,
                clock[own],
            )
        if self._waits and self.clock is not None and self.clock.last is not None:
            yield self.moment(TIME_COMES, rows.first + len(rows))

    def moment(self, symbol: int, n_rows: int) -> Block:
        """Return what stands for the time that the clock shows after some rows, with a symbol of `moments`."""
        assert self.clock is not None
        measured = self.measure.now(n_rows)
        return Block(
            np.array([symbol], np.int32),
            np.zeros(1, np.int32),
            NO_SLOTS if self.keys is None else np.array([NO_KEY], np.int32),
            n_rows - 1,
            np.array([0 if measured is None else measured], self.measure.number),
            self.symbols.masks,
            0 if self.keys is None else self.keys.n_keys,
            NO_SLOTS,
            np.array([0 if self.clock.last is None else self.clock.last], self.clock.number),
        )

    def _positions(self, first: int, n_rows: int) -> IntArray:
        """Return the positions of some rows in the stream."""
        if n_rows < FEW_ROWS:
            return np.arange(first, first + n_rows)
        # PERF: a fresh array for all rows of a batch costs 2 ns per event, because the system gives it page by page.
        if n_rows > len(self._counts):
            self._counts = np.arange(first, first + n_rows)
        self._counts += first - self._counts[0]
        return self._counts[:n_rows]

    def _times(self, rows: Rows) -> tuple[IntArray | None, IntArray, IntArray]:
        """Check that time does not run backwards; return each row's measure and time, and which rows have them.

        The measure is None where it is the row's position.
        """
        times, is_timed = self.measure.of(rows.batch, rows.first)
        clock = NO_TIMES if self.clock is None or times is None else times
        if self.clock is not None and self.clock is not self.measure:
            own, is_timed = self.clock.of(rows.batch, rows.first)
            assert own is not None
            clock = own
            if self.measure.attribute is None and not self._partition_by and (self.n_dropped or len(is_timed)):
                # A row without a time is no event, so it has no position.
                n_before = self.n_dropped + (np.cumsum(~is_timed) if len(is_timed) else 0)
                times = np.arange(rows.first, rows.first + len(rows)) - n_before
                self.measure.last = times[-1] if len(times) else self.measure.last - n_before
        if self._ordering is not None:
            # Rows that no window measures are left out, so their order does not matter.
            self._ordering.of(rows.batch, rows.first, is_timed)
        return times, clock, is_timed

    def _count_dropped(self, part: pa.RecordBatch, is_timed: IntArray) -> int:
        """Return how many rows belong to no partition, or have no value that the window could measure."""
        if not self._partition_by and not len(is_timed):
            return 0
        keys = [part.column(name) for name in self._partition_by if part.column(name).null_count]
        if not keys:
            return len(is_timed) - int(np.count_nonzero(is_timed))
        is_kept = is_timed if len(is_timed) else np.ones(len(part), np.bool_)
        for key in keys:
            is_kept = is_kept & pc.is_valid(key).to_numpy(zero_copy_only=False)
        return len(part) - int(np.count_nonzero(is_kept))

    def _encode_symbols(self, columns: Columns, n_rows: int, is_timed: IntArray) -> int:
        """Write to the buffers the symbol and row of each event that the run must see; return how many there are.

        Rows without a measure are left out. So are rows that satisfy no guard, where that is possible.
        """
        symbols, numbers = self._symbols[:n_rows], self._rows[:n_rows]
        if len(self.symbols.masks) > self._max_symbols:
            self.symbols = SymbolEncoder(self._guards)
        if self.sees_all:
            self.symbols.encode(columns, symbols)
            numbers[:] = np.arange(n_rows)
        else:
            n_rows = self.symbols.encode(columns, symbols, numbers)
        return int(keep_where(is_timed, symbols, numbers, n_rows)) if len(is_timed) else n_rows

    def _slots(self, part: pa.RecordBatch, numbers: IntArray) -> IntArray:
        """Return the slot of the partition key of some rows."""
        assert self.keys is not None
        return self.keys.encode([part.column(name) for name in self._partition_by], numbers)

    def _columns(self, rows: Rows, own: slice) -> Columns:
        types = self._sources[0] if rows.types is None else _sliced(rows.types, own)
        arrays = {name: _sliced(rows.batch.column(index), own) for index, name in self._read}
        if rows.streams is None:
            return Columns(arrays, types)
        streams = rows.streams[own]
        if rows.types is None:
            types = pa.DictionaryArray.from_arrays(pa.array(streams), pa.array(list(self._sources)))
        return Columns(arrays, types, streams, self._sources)


def _sliced(column: pa.Array, own: slice) -> pa.Array:
    """Return some rows of a column."""
    length = own.stop - own.start
    return column if len(column) == length else column.slice(own.start, length)


def columns_read(guards: tuple[Guard, ...]) -> set[str]:
    """Return the columns that some guards look at."""
    return {name for guard in guards for predicate in guard for name in columns_of(predicate)}
