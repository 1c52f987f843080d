"""Serves the kernel: fills in transitions, collects garbage, grows arrays, and hands out raw matches.

Matches come in chunks of bounded size. However many there are, only one chunk is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ceql.automaton.cea import CEA
from ceql.engine.run import choice, kernel, modes, requests
from ceql.engine.run.arrays import (
    CHOICE,
    Broken,
    Events,
    Output,
    Record,
    Rivals,
    Rules,
    Silences,
    Walk,
    n_bytes,
    new_output,
    new_record,
    new_rivals,
    new_touched,
    new_walk,
)
from ceql.engine.run.bits import members
from ceql.engine.run.chunk import Chunk
from ceql.engine.run.collector import collect
from ceql.engine.run.memo import MIN_SYMBOLS, START, Memo
from ceql.engine.run.snapshot import Content
from ceql.engine.run.state import MIN_NODES, RunState
from ceql.engine.run.undo import Undo
from ceql.errors import DataError
from ceql.syntax.ast import Consumption, Strategy

NO_LIMIT = 2**62
VALUES_PER_MATCH = 8
"""Positions that a chunk has room for, as a multiple of its matches."""
MIN_STATES = 64
"""Determinized states that there is scratch for at first."""
MIN_DEPTH = 256
"""Positions of a match that there is room for at first."""
KEEPS = {Strategy.NEXT: modes.KEEP_NEXT, Strategy.LAST: modes.KEEP_LAST, Strategy.MAX: modes.KEEP_MAX}
"""Strategies for which the kernel compares matches; the automaton alone does the others."""
CONSUMES = {
    Consumption.NONE: modes.CONSUME_NOTHING,
    Consumption.PARTITION: modes.CONSUME_KEY,
    Consumption.ANY: modes.CONSUME_ALL,
}
BUSY_NODES = 1 << 16
"""Nodes that the arena has room for once it was full, if no limit is set.

PERF: S3' collects 44 instead of 171 times in ten million events, and takes 7.9 instead of 8.4 ns per event.
"""
MAX_STATES = 1 << 17
"""Most determinized states known at once: those that an event needs, or met since others were forgotten."""
MIN_SETS, MIN_NOTES = 1 << 10, 1 << 12
"""Sets of positions and notes that there is room for at first, where matches have to be compared."""
STEPS_WITHOUT_NOTES = 1 << 12
"""Steps of a walk before it takes notes: with few matches, notes cost more than they save."""
MAX_IDLE_BYTES = 1 << 22
"""Most bytes for sets and notes that stay allocated while no event needs more."""
MAX_CHOICE_BYTES = 1 << 27
"""Most bytes that one event may need to choose among its matches, if `max_state_bytes` is not given."""


@dataclass(frozen=True)
class Silence:
    """How long what NOT ... FOR names may not come before and after a match, in numbers of the type of the clock.

    A length is -1 if there is no such silence.
    """

    is_awaited: bool
    before: Any
    after: Any
    number: Any


class Recognizer:
    """Runs one automaton on one run state."""

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
        has_labels: bool,
        is_float: bool,
        chunk: int,
        capacity: int,
        max_state_bytes: int | None,
        collects_always: bool,
        silence: Silence | None = None,
    ) -> None:
        self.number = np.float64 if is_float else np.int64
        consumes = CONSUMES[consumption]
        if consumes == modes.CONSUME_ALL and not is_partitioned:
            consumes = modes.CONSUME_KEY
        self._rules = Rules(
            size=self.number(np.iinfo(np.int64).max if size is None else size),
            limit=NO_LIMIT if limit is None else limit,
            consumes=consumes,
            keeps=KEEPS.get(strategy, modes.KEEP_ALL),
        )
        self.counts_events_by_key = counts_events_by_key
        self.max_state_bytes = max_state_bytes
        self.collects_always = collects_always
        self.memo = Memo(cea, strategy, capacity=capacity)
        self.state = RunState()
        self.state.arena = self.state.arena._replace(start=self.state.arena.start.astype(self.number))
        self.undo: Undo | None = None
        """Set during a batch: it must save data before anything in the state moves."""
        self._is_partitioned = is_partitioned
        self._ends_arena = consumes != modes.CONSUME_NOTHING and not is_partitioned
        self._chunk = chunk
        self._has_labels = has_labels
        self._output = new_output(chunk, VALUES_PER_MATCH * chunk, has_labels=has_labels)
        self._touched = new_touched(MIN_STATES, kernel.LIST_CAPACITY)
        self._walk = new_walk(MIN_STATES * kernel.LIST_CAPACITY, MIN_DEPTH)
        self._choice = new_record(CHOICE)
        self._choice.patience = 0 if collects_always else STEPS_WITHOUT_NOTES
        self._forget_rivals()
        self._silence = silence
        if silence is not None:
            self._prepare_silences(silence)

    def _prepare_silences(self, silence: Silence) -> None:
        state = self.state
        state.has_silences = True
        one = np.zeros(0 if self._is_partitioned else 1, np.int64)
        self._breaks = np.zeros(0, np.uint8)
        state.broken = Broken(one, one.astype(np.uint8), one.astype(silence.number))
        state.waiting = state.waiting._replace(
            time=state.waiting.time.astype(silence.number), measure=state.waiting.measure.astype(self.number)
        )

    def take(self, content: Content) -> None:
        """Restore the state from content, which must have been checked."""
        self.state.take(content)
        n_roots = int(self.state.waiting.length.max(initial=0))
        if n_roots > len(self._walk.root):
            self._walk = _resized(self._walk, n_roots, len(self._walk.path_row))

    def forget_symbols(self) -> None:
        """Forget all that is known of symbols, because they are numbered anew."""
        self.forget_states()
        self._breaks = np.zeros(0, np.uint8)

    def run(self, events: Events, masks: list[int], *, is_read: Callable[[], bool]) -> Iterator[Chunk]:
        """Update the state with some events, and yield the matches that they complete.

        `masks` are the guards that hold for each symbol. While `is_read()` is false, matches are found, but only one
        match of each event is enumerated.
        """
        if self.undo is not None:
            self.undo.begin(self.state)
        self.memo.make_room_for_symbols(len(masks))
        if self._silence is not None and len(self._breaks) < len(masks):
            new = [self.memo.broken(symbol) for symbol in masks[len(self._breaks) :]]
            self._breaks = np.concatenate([self._breaks, np.array(new, np.uint8)])
        if not self.collects_always:
            yield from self._run(events, masks, is_read)
            return
        for at in range(len(events.symbols)):
            own = slice(at, at + 1)
            event = events._replace(symbols=events.symbols[own], rows=events.rows[own], keys=events.keys[own])
            yield from self._run(event, masks, is_read)
            self.collect(self._now(event))

    def _run(self, events: Events, masks: list[int], is_read: Callable[[], bool]) -> Iterator[Chunk]:
        control = self.state.control
        control["at"] = 0
        one_each = self._rules._replace(limit=1)
        forgotten_at = -1
        while True:
            reason = self._advance(events, self._rules if is_read() else one_each)
            if reason == requests.DONE:
                break
            if reason == requests.FULL and self._must_save:
                self._save_all()
            elif reason == requests.FULL:
                yield from self._flush_full()
            elif reason == requests.MISS:
                # One event may need many transitions, all of them at once, so forget at most once per event.
                if self.memo.is_full and control["at"] != forgotten_at:
                    self.forget_states(self.memo.n_symbols)
                    forgotten_at = int(control["at"])
                self._fill(int(control["missing_symbol"]), masks)
            else:
                self._make_room(reason, events)
        if self._rivals is not None and n_bytes(self._rivals) > MAX_IDLE_BYTES:
            # One event needed this much room, and it may never be needed again.
            self._forget_rivals()
        yield from self._flush()

    def _fill(self, symbol: int, masks: list[int]) -> None:
        """Compute what all runs of the current key, and new runs, do on a symbol."""
        memo = self.memo
        for number in (START, *members(self.state.lists.active)):
            memo.fill_unknown(int(number), symbol, masks[symbol])
            if memo.size > MAX_STATES:
                raise DataError(
                    f"the query needs more than {MAX_STATES:,} states of its automaton at once",
                    "different choices for the same events multiply: name fewer alternatives, or select fewer of them",
                )

    def _advance(self, events: Events, rules: Rules) -> int:
        memo, state, output = self.memo, self.state, self._output
        if self._must_save:
            output = output._replace(start=output.start[:0])
        silence, silences = self._silence, None
        if silence is not None:
            silences = Silences(silence.is_awaited, silence.before, silence.after, events.clock, self._breaks)
        n_states = memo.state_capacity
        state.make_room_for_states(n_states, memo.n_words)
        if n_states >= len(self._touched.state):
            self._touched = new_touched(n_states, kernel.LIST_CAPACITY)
            n_roots = max(n_states * kernel.LIST_CAPACITY, len(self._walk.root))
            self._walk = _resized(self._walk, n_roots, len(self._walk.path_row))
        return int(
            kernel.advance(
                state.control,
                rules,
                events,
                memo.steps,
                state.lists,
                state.arena,
                state.keys if self._is_partitioned else None,
                state.pool,
                self._touched,
                self._walk,
                self._choice,
                self._rivals,
                silences,
                None if silences is None else state.broken,
                None if silences is None else state.waiting,
                None if silences is None else state.roots,
                output,
            )
        )

    @property
    def _must_save(self) -> bool:
        """Whether the next match would overwrite data that undoing needs. The kernel then stops there, without output.

        Such a match empties the arena, so all nodes are saved at most once.
        """
        return self._ends_arena and self.undo is not None and not self.undo.has_all

    def _save_all(self) -> None:
        if self.undo is not None:
            self.undo.save_all(self.state)

    def _flush_full(self) -> list[Chunk]:
        """Empty the output because the next match did not fit."""
        chunks = self._flush()
        if not chunks:
            # Not even one match fits: it is longer than the buffers.
            self._make_room_for_positions()
            self._output = new_output(self._chunk, 2 * len(self._output.row), has_labels=self._has_labels)
        return chunks

    def _flush(self) -> list[Chunk]:
        control, output = self.state.control, self._output
        n_out, n_values = int(control["n_out"]), int(control["n_values"])
        control["n_out"] = control["n_values"] = 0
        if n_out == 0:
            return []
        found = _chunk(output, n_out, n_values)
        has_grown = len(output.start) > self._chunk
        if not has_grown and 2 * n_out < self._chunk and 2 * n_values < len(output.row):
            return [found.copy()]
        # PERF: a full buffer is given away, not copied, which saves 7 to 14 ns per match. The allocator reuses buffers
        # that the reader drops. A buffer that grew for the rivals of one event is not needed in that size again.
        n_values = max(VALUES_PER_MATCH, len(output.row) // len(output.start)) * self._chunk
        self._output = new_output(self._chunk, n_values, has_labels=self._has_labels)
        return [found]

    def _now(self, events: Events) -> Any:
        return events.times[events.rows[min(int(self.state.control["at"]), len(events.rows) - 1)]]

    def forget_states(self, n_symbols: int = MIN_SYMBOLS) -> None:
        """Drop all transitions, and the determinized states that have no runs; the others are renumbered."""
        self._save_all()
        state, memo = self.state, self.memo
        kept = np.concatenate([[START], state.states_in_use()])
        memo.restart([memo.states[number] for number in kept], n_symbols)
        state.renumber(kept, memo.state_capacity, memo.n_words)

    def _make_room(self, reason: int, events: Events) -> None:
        if reason == requests.GROW:
            self._make_room_for_nodes(events)
        elif reason == requests.DEEP:
            self._make_room_for_positions()
        elif reason == requests.CROWDED:
            self._make_room_for_rivals()
        elif reason == requests.WAIT:
            self._make_room_for_waiting()

    def _make_room_for_nodes(self, events: Events) -> None:
        state = self.state
        self.collect(self._now(events))
        # The cost of a collection grows with the live nodes and keys, so with more of them it must be rarer.
        n_keys = len(state.keys.first)
        state.make_room_in_pool(4 * (state.pool_length + n_keys) + 4096 + int(state.control["pool_needed"]))
        wanted = 4 * state.n_nodes + 2 * n_keys + MIN_NODES + int(state.control["nodes_needed"])
        if self.max_state_bytes is None:
            wanted = max(wanted, BUSY_NODES)
        if wanted > len(state.arena.kind):
            state.make_room_for_nodes(wanted)
        if self.max_state_bytes is not None:
            check_size(state.n_bytes, self.max_state_bytes)

    def _make_room_for_waiting(self) -> None:
        self._save_all()
        self.state.pack_waiting(len(self._walk.root))
        if self.max_state_bytes is not None:
            check_size(self.state.n_bytes, self.max_state_bytes)

    def _make_room_for_positions(self) -> None:
        """Make room for matches of twice the length."""
        self._walk = _resized(self._walk, len(self._walk.root), 2 * len(self._walk.path_row))

    def _forget_rivals(self) -> None:
        n_sets = MIN_SETS if self._rules.keeps == modes.KEEP_MAX else 0
        has_rivals = self._rules.keeps != modes.KEEP_ALL
        self._rivals = new_rivals(n_sets, VALUES_PER_MATCH * n_sets, MIN_NOTES) if has_rivals else None

    def _make_room_for_rivals(self) -> None:
        assert self._rivals is not None
        self._rivals = _grown(self._rivals, self._choice)
        needed, limit = n_bytes(self._rivals), self.max_state_bytes
        if needed > MAX_CHOICE_BYTES or (limit is not None and self.state.n_bytes + needed > limit):
            self._forget_rivals()
            check_size(self.state.n_bytes + needed, limit)
            raise DataError(
                f"to choose among the matches of one event takes more than {MAX_CHOICE_BYTES >> 20} MB",
                "shorten the window, or add PARTITION BY or CONSUME BY, so that fewer matches end at the same event",
            )

    def collect(self, now: Any) -> None:
        """Drop nodes that can no longer be part of a match; `now` is the last measure."""
        state = self.state
        if self.undo is not None:
            self.undo.begin(state)
        if self.counts_events_by_key:
            key = int(state.control["key"])
            now = state.keys.events[key] if key >= 0 else 0
        elif now is None:
            return
        self._save_all()
        key_now = state.keys.events.astype(self.number) if self.counts_events_by_key else np.empty(0, self.number)
        if self._silence is not None:
            state.pack_waiting()
        oldest = state.waiting.measure[0] if int(state.control["n_waiting"]) else now
        new_pool = np.empty_like(state.pool)
        moved_to = np.empty(state.n_nodes, np.int32)
        collect(
            state.control,
            self._rules,
            self.number(now),
            self.number(oldest),
            key_now,
            state.lists,
            state.arena,
            state.keys,
            state.pool,
            state.roots,
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


def _chunk(output: Output, n_matches: int, n_values: int) -> Chunk:
    """Return the first matches of the output, in the same memory."""
    labels = output.label[:n_values] if len(output.label) else np.broadcast_to(np.int32(0), n_values)
    offsets = output.offset[: n_matches + 1]
    return Chunk(output.start[:n_matches], output.end[:n_matches], offsets, output.row[:n_values], labels)


def _grown(rivals: Rivals, choice_at: Record) -> Rivals:
    """Return the same rivals with twice the room for sets or notes, whichever have too little."""
    has_many_notes = 2 * choice_at.n_noted > len(rivals.notes)
    n_sets, n_notes = len(rivals.first), len(rivals.notes)
    if has_many_notes:
        n_notes *= 2
    else:
        n_sets *= 2
    larger = new_rivals(n_sets, VALUES_PER_MATCH * n_sets, n_notes)
    for old, new in zip(rivals[:4], larger[:4], strict=True):
        new[: len(old)] = old
    choice.pack(choice_at, larger)
    choice.move_notes(choice_at, rivals.notes, larger.notes)
    return larger


def _resized(walk: Walk, n_roots: int, depth: int) -> Walk:
    """Return a copy of a walk with more room."""
    larger = new_walk(n_roots, depth)
    for name in ("stack_node", "stack_depth", "stack_prefix", "root"):
        old = getattr(walk, name)
        getattr(larger, name)[: len(old)] = old
    # Paths are written from the end.
    for name in ("path_row", "path_label", "best_row"):
        old = getattr(walk, name)
        getattr(larger, name)[-len(old) :] = old
    return larger
