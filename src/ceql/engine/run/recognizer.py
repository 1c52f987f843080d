"""Serves the kernel: fills in transitions, collects, grows, and hands out raw matches.

What comes out are chunks of bounded size, so that however many matches there are, never more
than one chunk of them is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ceql.automaton.cea import CEA
from ceql.automaton.lazy import DEFAULT_CAPACITY
from ceql.engine.run import choice, kernel, requests
from ceql.engine.run.arena import CONSUME_ALL, CONSUME_KEY, CONSUME_NOTHING
from ceql.engine.run.chunk import Chunk
from ceql.engine.run.collector import collect
from ceql.engine.run.memo import MIN_SYMBOLS, START, Memo
from ceql.engine.run.state import MIN_NODES, RunState, members
from ceql.engine.run.undo import Undo
from ceql.errors import DataError
from ceql.syntax.ast import Consumption, Strategy

IntArray = np.ndarray[Any, np.dtype[Any]]

NO_LIMIT = 2**62
DEFAULT_CHUNK = 1 << 15
"""Matches in one chunk."""
VALUES_PER_MATCH = 8
"""Positions that a chunk has room for, as a multiple of its matches."""
KEEPS = {Strategy.NEXT: choice.KEEP_NEXT, Strategy.LAST: choice.KEEP_LAST, Strategy.MAX: choice.KEEP_MAX}
"""What the kernel has to compare; the other strategies are done by the automaton alone."""
CONSUMES = {
    Consumption.NONE: CONSUME_NOTHING,
    Consumption.PARTITION: CONSUME_KEY,
    Consumption.ANY: CONSUME_ALL,
}
MAX_STATES = 1 << 17
"""Determinized states that may be known at once: what an event needs, or has been met since others were forgotten."""
MIN_SETS, MIN_NOTES = 1 << 10, 1 << 12
"""Sets of positions and notes that there is room for at first, where matches have to be compared."""
STEPS_WITHOUT_NOTES = 1 << 12
"""How long matches are compared before it is noted where it was: notes cost more than they spare when there are few."""
MAX_IDLE_BYTES = 1 << 22
"""How much room for them stays while no event needs more."""
MAX_CHOICE_BYTES = 1 << 30
"""How much one event may need to choose among its matches, where `max_state_bytes` says nothing."""


@dataclass
class Events:
    """Events as the kernel sees them: symbol, row, and slot of the partition key where there is one.

    Rows count from `first_row`; `times` has the measure of all rows, of those that are no events too.
    """

    symbols: IntArray
    rows: IntArray
    first_row: int
    times: IntArray
    keys: IntArray

    def one(self, at: int) -> Events:
        """Return a single event."""
        own = slice(at, at + 1)
        return Events(self.symbols[own], self.rows[own], self.first_row, self.times, self.keys[own])


class Recognizer:
    """One automaton at work on one run state."""

    def __init__(
        self,
        cea: CEA,
        strategy: Strategy,
        consumption: Consumption,
        *,
        size: float | None,
        limit: int | None,
        counts_events_by_key: bool,
        is_partitioned: bool,
        has_labels: bool = True,
        is_float: bool = False,
        chunk: int = DEFAULT_CHUNK,
        capacity: int = DEFAULT_CAPACITY,
        max_state_bytes: int | None = None,
        collects_always: bool = False,
    ) -> None:
        number = np.float64 if is_float else np.int64
        self.size = number(np.iinfo(np.int64).max if size is None else size)
        self.number = number
        self.limit = NO_LIMIT if limit is None else limit
        self.consumes = CONSUMES[consumption]
        if self.consumes == CONSUME_ALL and not is_partitioned:
            self.consumes = CONSUME_KEY
        self._keeps = KEEPS.get(strategy, choice.KEEP_ALL)
        self.counts_events_by_key = counts_events_by_key
        self.max_state_bytes = max_state_bytes
        self.collects_always = collects_always
        self.memo = Memo(cea, strategy, capacity=capacity)
        self.state = RunState()
        self.state.start = self.state.start.astype(number)
        self.undo: Undo | None = None
        """What has to be told before anything in the state moves, in the middle of a batch."""
        self._ends_arena = self.consumes != CONSUME_NOTHING and not is_partitioned
        self._chunk = chunk
        self._has_labels = has_labels
        self._output = _Output(chunk, VALUES_PER_MATCH * chunk, has_labels=has_labels)
        self._scratch = _Scratch(64)
        self._scratch.choice[choice.PATIENCE] = 0 if collects_always else STEPS_WITHOUT_NOTES
        self._forget_rivals()

    def run(self, events: Events, masks: list[int], *, is_read: bool = True) -> Iterator[Chunk]:
        """Bring the state up to date with some events, yielding the matches they complete.

        `masks` are the guards that hold for each symbol. With `is_read=False` matches are not
        enumerated, only found.
        """
        self.memo.make_room_for_symbols(len(masks))
        limit = self.limit if is_read else 1
        pieces = [events] if not self.collects_always else [events.one(at) for at in range(len(events.symbols))]
        for piece in pieces:
            yield from self._run(piece, masks, limit)
            if self.collects_always:
                self.collect(self._now(piece))

    def _run(self, events: Events, masks: list[int], limit: int) -> Iterator[Chunk]:
        state = self.state
        state.control[kernel.AT] = 0
        forgotten_at = -1
        while True:
            reason = self._advance(events, limit)
            if reason == requests.DONE:
                break
            if reason == requests.FULL and self._must_save:
                self._save_all()
            elif reason == requests.FULL:
                yield from self._flush_full()
            elif reason == requests.MISS:
                # One event may need many transitions, all of them at once: what it needs is not forgotten before.
                if self.memo.is_full and int(state.control[kernel.AT]) != forgotten_at:
                    self.forget_states(self.memo.n_symbols)
                    forgotten_at = int(state.control[kernel.AT])
                self._fill(int(state.control[kernel.MISS_SYMBOL]), masks)
            else:
                self._make_room(reason, events)
        if self._rivals.n_bytes > MAX_IDLE_BYTES:
            # So much was needed by one event, and may never be again.
            self._forget_rivals()
        yield from self._flush()

    def _fill(self, symbol: int, masks: list[int]) -> None:
        """Compute what all runs do on a symbol, those of the current key and new ones."""
        memo = self.memo
        for number in (START, *members(self.state.active)):
            memo.fill_unknown(int(number), symbol, masks[symbol])
            if memo.size > MAX_STATES:
                raise DataError(
                    f"the query needs more than {MAX_STATES:,} states of its automaton at once",
                    "different choices for the same events multiply: name fewer alternatives, or select fewer of them",
                )

    def _advance(self, events: Events, limit: int) -> int:
        memo, state, output, rivals = self.memo, self.state, self._output, self._rivals
        n_matches = 0 if self._must_save else len(output.start)
        state.make_room_for_states(memo.state_capacity, memo.n_words)
        scratch = self._scratch = self._scratch.for_states(memo.state_capacity)
        return int(
            kernel.advance(
                state.control,
                self.size,
                limit,
                self.consumes,
                self._keeps,
                events.symbols,
                events.rows,
                events.first_row,
                events.times,
                events.keys,
                memo.n_symbols,
                memo.unmarked,
                memo.marks_from,
                memo.marks_to,
                memo.step_label,
                memo.step_target,
                memo.touching,
                memo.accepts,
                memo.is_over,
                memo.rank,
                state.active,
                state.list_nodes,
                state.list_length,
                state.list_merged,
                state.kind,
                state.link,
                state.data,
                state.start,
                state.key_from,
                state.key_length,
                state.key_room,
                state.key_epoch,
                state.key_active,
                state.pool,
                scratch.touched_state,
                scratch.touched_node,
                scratch.touched_length,
                scratch.touched_list,
                scratch.stack_node,
                scratch.stack_depth,
                scratch.path_row,
                scratch.path_label,
                scratch.choice,
                scratch.root_node,
                scratch.stack_prefix,
                scratch.best_row,
                rivals.row,
                rivals.first,
                rivals.length,
                rivals.hash,
                rivals.table,
                rivals.table_serial,
                rivals.notes,
                output.start[:n_matches],
                output.end,
                output.offset,
                output.row,
                output.label,
            )
        )

    @property
    def _must_save(self) -> bool:
        """Whether the next match would overwrite what undoing needs. The kernel is stopped there, without output.

        It ends the arena, so that all nodes of it are saved at most once.
        """
        return self._ends_arena and self.undo is not None and not self.undo.has_all

    def _save_all(self) -> None:
        if self.undo is not None:
            self.undo.save_all(self.state)

    def _flush_full(self) -> list[Chunk]:
        """Empty the output because the next match did not fit."""
        chunks = self._flush()
        if not chunks:
            # Not even one match fitted: it is longer than the buffers.
            self._scratch = self._scratch.deeper()
            self._output = _Output(self._chunk, 2 * len(self._output.row), has_labels=self._has_labels)
        return chunks

    def _flush(self) -> list[Chunk]:
        control = self.state.control
        n_out, n_values = int(control[kernel.N_OUT]), int(control[kernel.N_VALUES])
        control[kernel.N_OUT] = control[kernel.N_VALUES] = 0
        if n_out == 0:
            return []
        output = self._output
        found = output.chunk(n_out, n_values)
        has_grown = len(output.start) > self._chunk
        if not has_grown and 2 * n_out < self._chunk and 2 * n_values < len(output.row):
            return [found.copy()]
        # PERF: a full buffer is given away rather than copied, 7 to 14 ns per match; the allocator reuses those that
        # the reader lets go. One that grew for the rivals of one event is not needed in that size again.
        n_values = max(VALUES_PER_MATCH, len(output.row) // len(output.start)) * self._chunk
        self._output = _Output(self._chunk, n_values, has_labels=self._has_labels)
        return [found]

    def _now(self, events: Events) -> Any:
        return events.times[events.rows[min(int(self.state.control[kernel.AT]), len(events.rows) - 1)]]

    def forget_states(self, n_symbols: int = MIN_SYMBOLS) -> None:
        """Drop all transitions, and the determinized states in which there is no run; the others are renumbered."""
        self._save_all()
        state, memo = self.state, self.memo
        kept = np.concatenate([[START], state.states_in_use()])
        memo.restart([memo.states[number] for number in kept], n_symbols)
        state.renumber(kept, memo.state_capacity, memo.n_words)

    def _make_room(self, reason: int, events: Events) -> None:
        if reason == requests.GROW:
            self._make_room_for_nodes(events)
        elif reason == requests.DEEP:
            self._scratch = self._scratch.deeper()
        elif reason == requests.CROWDED:
            self._make_room_for_rivals()

    def _make_room_for_nodes(self, events: Events) -> None:
        state = self.state
        self.collect(self._now(events))
        # A collection costs as much as there are live nodes and keys, so it must be as rare.
        n_keys = len(state.key_from)
        nodes_needed, pool_needed = state.control[kernel.NODES_NEEDED], state.control[kernel.POOL_NEEDED]
        state.make_room_in_pool(4 * (state.pool_length + n_keys) + 4096 + int(pool_needed))
        wanted = 4 * state.n_nodes + 2 * n_keys + MIN_NODES + int(nodes_needed)
        if wanted > len(state.kind):
            state.make_room_for_nodes(wanted)
        check_size(state.n_bytes, self.max_state_bytes)

    def _forget_rivals(self) -> None:
        compares = self._keeps != choice.KEEP_ALL
        self._rivals = _Rivals(MIN_SETS if self._keeps == choice.KEEP_MAX else 0, MIN_NOTES if compares else 0)

    def _make_room_for_rivals(self) -> None:
        self._rivals = self._rivals.grown(self._scratch.choice)
        n_bytes, limit = self._rivals.n_bytes, self.max_state_bytes
        if n_bytes > MAX_CHOICE_BYTES or (limit is not None and self.state.n_bytes + n_bytes > limit):
            self._forget_rivals()
            check_size(self.state.n_bytes + n_bytes, limit)
            raise DataError(
                f"to choose among the matches of one event takes more than {MAX_CHOICE_BYTES >> 20} MB",
                "shorten the window, or add PARTITION BY or CONSUME BY, so that fewer matches end at the same event",
            )

    def collect(self, now: Any) -> None:
        """Drop from the arena what can no longer be part of a match, `now` being the last measure."""
        state = self.state
        if self.counts_events_by_key:
            key = int(state.control[kernel.KEY])
            now = state.key_events[key] if key >= 0 else 0
        elif now is None:
            return
        self._save_all()
        moved_to = np.empty(state.n_nodes, np.int32)
        new_pool = np.empty_like(state.pool)
        key_now = state.key_events.astype(self.number) if self.counts_events_by_key else np.empty(0, self.number)
        collect(
            state.control,
            self.size,
            self.number(now),
            key_now,
            state.active,
            state.list_nodes,
            state.list_length,
            state.list_merged,
            state.kind,
            state.link,
            state.data,
            state.start,
            state.key_from,
            state.key_length,
            state.key_room,
            state.key_epoch,
            state.key_active,
            state.pool,
            self.consumes,
            moved_to,
            new_pool,
        )
        state.pool = new_pool


def check_size(n_bytes: int, limit: int | None) -> None:
    """Refuse to hold more than the user allows."""
    if limit is not None and n_bytes > limit:
        raise DataError(
            f"the state takes {n_bytes} bytes, more than max_state_bytes = {limit}",
            "shorten the window, add PARTITION BY or CONSUME BY, or raise the limit",
        )


class _Output:
    """Buffers that the kernel writes matches to; without labels it writes none."""

    def __init__(self, chunk: int, n_values: int, *, has_labels: bool) -> None:
        self.start = np.empty(chunk, np.int64)
        self.end = np.empty(chunk, np.int64)
        self.offset = np.empty(chunk + 1, np.int32)
        self.offset[0] = 0
        self.row = np.empty(n_values, np.int64)
        self.label = np.empty(n_values if has_labels else 0, np.int32)

    def chunk(self, n_matches: int, n_values: int) -> Chunk:
        """Return the first matches, in the same memory."""
        labels = self.label[:n_values] if len(self.label) else np.broadcast_to(np.int32(0), n_values)
        return Chunk(
            self.start[:n_matches], self.end[:n_matches], self.offset[: n_matches + 1], self.row[:n_values], labels
        )


class _Rivals:
    """What is held to choose among the matches of one event: sets of positions, and notes on where a walk has been.

    Sizes are powers of two, because entries are found by bits of a hash. Serials of 0 mean that an entry is free.
    """

    def __init__(self, n_sets: int, n_notes: int) -> None:
        self.row = np.empty(VALUES_PER_MATCH * n_sets, np.int64)
        self.first = np.empty(n_sets, np.int64)
        self.length = np.empty(n_sets, np.int64)
        self.hash = np.empty(n_sets, np.uint64)
        self.table = np.empty(2 * n_sets, np.int32)
        self.table_serial = np.zeros(2 * n_sets, np.int64)
        self.notes = np.zeros((n_notes, 4), np.int64)

    @property
    def n_bytes(self) -> int:
        return sum(array.nbytes for array in vars(self).values())

    def grown(self, control: IntArray) -> _Rivals:
        """Return the same with twice the room for what there is little room for."""
        has_many_notes = 2 * control[choice.N_NOTED] > len(self.notes)
        n_sets, n_notes = len(self.first), len(self.notes)
        larger = _Rivals(n_sets if has_many_notes else 2 * n_sets, 2 * n_notes if has_many_notes else n_notes)
        for name in ("row", "first", "length", "hash"):
            getattr(larger, name)[: len(getattr(self, name))] = getattr(self, name)
        choice.pack(control, larger.row, larger.first, larger.length, larger.hash, larger.table, larger.table_serial)
        choice.move_notes(control, self.notes, larger.notes)
        return larger


class _Scratch:
    """What the kernel needs while it works; its enumeration is resumed from here when output was full."""

    def __init__(self, n_states: int, depth: int = 256) -> None:
        self.touched_state = np.zeros(n_states + 1, np.int32)
        self.touched_node = np.zeros(n_states + 1, np.int32)
        self.touched_length = np.zeros(n_states + 1, np.int32)
        self.touched_list = np.zeros((n_states + 1, kernel.LIST_CAPACITY), np.int32)
        room = depth + n_states * kernel.LIST_CAPACITY
        self.stack_node = np.zeros(room, np.int32)
        self.stack_depth = np.zeros(room, np.int32)
        self.path_row = np.zeros(depth, np.int64)
        self.path_label = np.zeros(depth, np.int32)
        self.choice = np.zeros(choice.N_CHOICE, np.int64)
        self.root_node = np.zeros(n_states * kernel.LIST_CAPACITY, np.int32)
        self.stack_prefix = np.zeros(room, np.int64)
        self.best_row = np.zeros(depth, np.int64)

    def for_states(self, n_states: int) -> _Scratch:
        if n_states < len(self.touched_state):
            return self
        return self._resized(n_states, len(self.path_row))

    def deeper(self) -> _Scratch:
        return self._resized(len(self.touched_state) - 1, 2 * len(self.path_row))

    def _resized(self, n_states: int, depth: int) -> _Scratch:
        larger = _Scratch(n_states, depth)
        larger.stack_node[: len(self.stack_node)] = self.stack_node
        larger.stack_depth[: len(self.stack_depth)] = self.stack_depth
        larger.stack_prefix[: len(self.stack_prefix)] = self.stack_prefix
        larger.choice[:] = self.choice
        larger.root_node[: len(self.root_node)] = self.root_node
        # Paths are written from the end.
        larger.best_row[-len(self.best_row) :] = self.best_row
        larger.path_row[-len(self.path_row) :] = self.path_row
        larger.path_label[-len(self.path_label) :] = self.path_label
        return larger
