"""Runs one query: its automaton, and the run state that the events of a stream change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ceql.automaton.cea import CEA
from ceql.automaton.lazy import DetState
from ceql.automaton.properties import compared_by
from ceql.engine.intake.events import Block
from ceql.engine.intake.keys import NO_KEY, count_events, positions_by_key
from ceql.engine.intake.measure import Measure
from ceql.engine.intake.moments import ALL_IS_OVER
from ceql.engine.options import Limits
from ceql.engine.run import check_content
from ceql.engine.run.arena import UNION
from ceql.engine.run.arrays import Events
from ceql.engine.run.chunk import Chunk
from ceql.engine.run.memo import START
from ceql.engine.run.recognizer import Recognizer, Silence
from ceql.engine.run.snapshot import Content
from ceql.engine.run.state import grown, part
from ceql.engine.run.undo import Undo
from ceql.syntax import plan

IntArray = np.ndarray[Any, np.dtype[Any]]


class Run:
    """Finds the matches of one query among the events that it is given, block by block."""

    def __init__(
        self,
        query: plan.Plan,
        automaton: CEA,
        measure: Measure,
        limits: Limits,
        *,
        has_labels: bool,
        silence: Silence | None = None,
    ) -> None:
        self._automaton = automaton
        self._is_partitioned = bool(query.partition_by)
        self._counts_events_by_key = isinstance(query.window, plan.EventsWindow) and self._is_partitioned
        self._masks: list[int] | None = None
        self._silence = silence
        self.recognizer = Recognizer(
            automaton,
            compared_by(query, automaton),
            query.consumption,
            size=measure.size,
            limit=query.limit,
            counts_events_by_key=self._counts_events_by_key,
            is_partitioned=self._is_partitioned,
            has_labels=has_labels,
            is_float=measure.is_float,
            chunk=limits.chunk_size,
            capacity=limits.memo_capacity,
            max_state_bytes=limits.max_state_bytes,
            collects_always=limits.collects_always,
            silence=silence,
        )

    @property
    def n_matches(self) -> int:
        """Matches found so far."""
        return self.recognizer.state.n_matches

    @property
    def n_nodes(self) -> int:
        """Nodes held for open matches."""
        return self.recognizer.state.n_nodes

    @property
    def n_waiting(self) -> int:
        """Events whose matches wait for a silence to be over."""
        return len(self.recognizer.state.in_waiting.row)

    @property
    def n_states(self) -> int:
        """Determinized states that are known."""
        return self.recognizer.memo.size

    @property
    def n_bytes(self) -> int:
        """Bytes of the run state."""
        return self.recognizer.state.n_bytes

    @property
    def labels(self) -> list[frozenset[str]]:
        """What the labels in chunks mean: the variables that hold an event."""
        return self.recognizer.memo.labels

    def advance(self, block: Block, *, is_read: Callable[[], bool]) -> Iterator[Chunk]:
        """Yield the matches that some events complete; not all of them while `is_read()` is false."""
        recognizer = self.recognizer
        if block.masks is not self._masks:
            if self._masks is not None:
                # Symbols were numbered anew, and the tables of transitions use the old numbers.
                recognizer.forget_symbols()
            self._masks = block.masks
        times = block.times
        if self._is_partitioned:
            self._make_room_for_keys(block)
        if self._counts_events_by_key and len(block.slots_of_all):
            times = positions_by_key(block.slots_of_all, recognizer.state.keys.events)
        if len(block.symbols):
            events = Events(block.symbols, block.rows, block.first_row, times, block.slots, block.clock)
            for chunk in recognizer.run(events, block.masks, is_read=is_read):
                recognizer.state.n_matches += len(chunk)
                yield chunk
        if self._counts_events_by_key:
            # Not earlier: a collection in between may see too few events of a key, never too many.
            count_events(block.slots_of_all, recognizer.state.keys.events)

    def _make_room_for_keys(self, block: Block) -> None:
        state, undo = self.recognizer.state, self.recognizer.undo
        state.make_room_for_keys(block.n_keys)
        slots = block.slots_of_all if self._counts_events_by_key else block.slots
        if undo is not None and len(slots):
            undo.save_keys(state, slots)
        if undo is not None and self._silence is not None and len(block.symbols):
            # Matches whose silence is over may consume the runs of keys that have no events here.
            undo.save_keys(state, self._keys_due(block, self._silence))

    def _keys_due(self, block: Block, silence: Silence) -> IntArray:
        """Return the slots of the keys whose waiting matches may be due in a block."""
        waiting = self.recognizer.state.in_waiting
        elapsed = block.clock[block.rows[-1]] - waiting.time
        is_due = (elapsed >= silence.after) | (elapsed < 0) | (block.symbols[-1] == ALL_IS_OVER)
        slots: IntArray = waiting.key[is_due].astype(np.int32)
        return slots

    def begin_batch(self) -> RunBefore:
        """Return what `go_back` needs to undo everything until `end_batch`."""
        undo = self.recognizer.undo = Undo(self.recognizer.state)
        return RunBefore(undo, self.recognizer.memo.states)

    def go_back(self, before: RunBefore) -> None:
        """Restore the run as it was at the beginning of the batch."""
        recognizer, memo = self.recognizer, self.recognizer.memo
        recognizer.state = before.undo.undone(recognizer.state)
        recognizer.undo = None
        if memo.states is not before.states:
            memo.restart(before.states, memo.n_symbols)

    def end_batch(self) -> None:
        """Make a batch final."""
        self.recognizer.undo = None

    def collect(self, now: Any) -> None:
        """Drop everything that cannot match an event at `now` or later."""
        self.recognizer.collect(now)

    def give_back_room(self) -> None:
        """Shorten arrays that have far more room than they need."""
        self.recognizer.state.give_back_room()

    def rows_needed(self) -> IntArray:
        """Return the numbers of the rows in open matches."""
        state = self.recognizer.state
        rows: IntArray = state.arena.data[: state.n_nodes][state.arena.kind[: state.n_nodes] != UNION]
        return np.concatenate([rows, state.in_waiting.row]) if state.has_silences else rows

    def keys_needed(self, n_keys: int, time: Any = None) -> IntArray:
        """Return whether each partition key has open matches, or a broken silence; call `collect` just before.

        `time` is what the clock shows.
        """
        state = self.recognizer.state
        is_needed: IntArray = state.keys.length[:n_keys] > 0
        current = int(state.control["key"])
        if current >= 0:
            is_needed[current] = state.lists.active.any()
        if self._silence is not None:
            is_needed[state.in_waiting.key] = True
            is_needed |= self._is_broken(time)[:n_keys]
        return is_needed

    def _is_broken(self, time: Any) -> IntArray:
        """Return whether the silence before a match is still broken, for each partition key."""
        broken = self.recognizer.state.broken
        is_broken: IntArray = broken.was_before != 0
        if self._silence is not None and is_broken.any():
            elapsed = time - broken.before
            is_broken &= (elapsed >= 0) & (elapsed <= self._silence.before)
        return is_broken

    def remembers(self, time: Any) -> bool:
        """Whether an event has broken a silence of matches that may begin after some time."""
        return bool(self._is_broken(time).any())

    @property
    def next_deadline(self) -> Any:
        """The first deadline of matches that wait, in units of the clock; None if none wait."""
        waiting = self.recognizer.state.in_waiting
        return waiting.time[0] + self._silence.after if self._silence is not None and len(waiting.time) else None

    def drop_keys(self, is_dropped: IntArray, n_events: int) -> None:
        """Drop the open matches of some partition keys; their slots stay."""
        state = self.recognizer.state
        state.keys.length[: len(is_dropped)][is_dropped] = 0
        if state.has_silences:
            # No later row can be waiting yet.
            state.broken.after[: len(is_dropped)][is_dropped] = n_events
            state.broken.was_before[: len(is_dropped)][is_dropped] = 0
        current = int(state.control["key"])
        if current >= 0 and is_dropped[current]:
            state.lists.active[:] = 0

    def renumber_keys(self, is_kept: IntArray) -> None:
        """Renumber the slots of the kept keys from 0 in the same order; the other keys must have no open matches."""
        state = self.recognizer.state
        slots = np.cumsum(is_kept) - 1
        current = int(state.control["key"])
        state.control["key"] = slots[current] if current >= 0 and is_kept[current] else NO_KEY
        kept = part(state.keys, np.flatnonzero(is_kept))
        state.keys = grown(kept, max(64, 2 * len(kept.first)))
        if state.has_silences:
            state.broken = grown(part(state.broken, np.flatnonzero(is_kept)), len(state.keys.first))
            waiting = state.in_waiting
            waiting.key[:] = slots[waiting.key]

    def content(self, n_keys: int) -> Content:
        """Return what a snapshot must hold; `n_keys` partition keys have slots."""
        memo = self.recognizer.memo
        return {
            "states": [[sorted(part) for part in state] for state in memo.states],
            "labels": [sorted(label) for label in memo.labels],
            **self.recognizer.state.content(n_keys),
        }

    def take(
        self, content: Content, measures: list[Measure], key_types: list[pa.DataType], rows: pa.Schema | None
    ) -> None:
        """Restore the run from content, or raise an error if no session can have written it.

        The rest of the content is also checked, because compiled code follows numbers from one part to the other. There
        is a clock for each of `measures`, the window's first; `rows` is None if no rows are kept.
        """
        memo = self.recognizer.memo
        check_content.check_names(content, memo.states[START], self._automaton)
        for parts in content["states"]:
            memo.number(DetState(*(frozenset(part) for part in parts)))
        for label in content["labels"]:
            memo.label_id(frozenset(label))
        check_content.check_state(
            content,
            memo,
            number=self.recognizer.number,
            clock=None if self._silence is None else self._silence.number,
            are_floats=[measure.is_float for measure in measures],
            counts_rows=measures[0].counts_rows,
            key_types=key_types,
            rows=rows,
        )
        self.recognizer.take(content)


class RunBefore:
    """A run as it was at the beginning of a batch."""

    def __init__(self, undo: Undo, states: list[DetState]) -> None:
        self.undo = undo
        self.states = states
        """The memo's list of states. It only grows, unless the memo restarts with another list."""
