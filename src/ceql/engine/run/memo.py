"""The determinized automaton as tables that the kernel reads, filled one transition at a time.

Everything here may be dropped at any time and computed again: no match depends on the
numbers of states and symbols.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np

from ceql.automaton.cea import CEA, Label
from ceql.automaton.lazy import Determinizer, DetState
from ceql.engine.run.arrays import Steps
from ceql.engine.run.bits import add, remove
from ceql.engine.run.kernel import NOWHERE, UNKNOWN
from ceql.engine.run.modes import BREAKS_AFTER, BREAKS_BEFORE
from ceql.syntax.ast import Strategy

IntArray = np.ndarray[Any, np.dtype[Any]]

START = 0
"""The number of the determinized state in which every run begins; it never has a list."""

_ALL_BITS = np.uint64(2**64 - 1)


ENTRIES_PER_TRANSITION = 64
"""Table entries for each transition that is to be kept: most entries are never used."""

MIN_STATES, MIN_SYMBOLS = 8, 8

MANY_STATES = 1 << 16
"""With more states, those without runs are forgotten, even if the tables are small."""


class Memo:
    """Tables over (state, symbol), in rows of `n_symbols` entries; both dimensions grow by doubling.

    They grow until `is_full`. The caller, who knows which states are still needed, then calls `restart`.
    """

    def __init__(self, cea: CEA, strategy: Strategy, *, capacity: int) -> None:
        self._determinizer = Determinizer(cea, strategy)
        self._final_only = frozenset((cea.final,))
        self.capacity = capacity
        self.labels: list[Label] = []
        self._label_ids: dict[Label, int] = {}
        self.restart([self._determinizer.start], MIN_SYMBOLS)

    def restart(self, states: Sequence[DetState], n_symbols: int) -> None:
        """Forget all transitions and all other states; the given states are numbered in order, START is the first."""
        self.states: list[DetState] = []
        self._state_ids: dict[DetState, int] = {}
        self._by_rank: list[tuple[tuple[int, ...], ...]] = []
        self._state_capacity = MIN_STATES
        self.steps = Steps(
            n_symbols=n_symbols,
            unmarked=np.full(MIN_STATES * n_symbols, UNKNOWN, np.int32),
            marks_from=np.zeros(MIN_STATES * n_symbols, np.int32),
            marks_to=np.zeros(MIN_STATES * n_symbols, np.int32),
            label=np.zeros(16, np.int32),
            target=np.zeros(16, np.int32),
            touching=np.full((n_symbols, 1), _ALL_BITS, np.uint64),
            accepts=np.zeros(1, np.uint64),
            is_over=np.zeros(MIN_STATES, np.bool_),
            rank=np.zeros(MIN_STATES, np.int32),
        )
        self._n_steps = 0
        for state in states:
            self.number(state)
        # There is twice the room that is needed at once, so that restarts are rare.
        self._max_entries = max(ENTRIES_PER_TRANSITION * self.capacity, 2 * len(states) * n_symbols)

    @property
    def is_full(self) -> bool:
        """Whether the tables are larger than they should be."""
        return self.size * self.n_symbols > self._max_entries or self.size > MANY_STATES

    @property
    def n_symbols(self) -> int:
        """Symbols that the tables have entries for."""
        return self.steps.n_symbols

    @property
    def n_words(self) -> int:
        """64-bit words in a set of states."""
        return len(self.steps.accepts)

    @property
    def state_capacity(self) -> int:
        """States that the tables have room for."""
        return self._state_capacity

    @property
    def size(self) -> int:
        """Determinized states known so far."""
        return len(self.states)

    def number(self, state: DetState) -> int:
        """Return a state's number; a new state gets a new number."""
        known = self._state_ids.get(state)
        if known is not None:
            return known
        number = len(self.states)
        if number == self._state_capacity:
            self._resize(2 * self._state_capacity, self.n_symbols)
        self.states.append(state)
        self._state_ids[state] = number
        if self._determinizer.accepts(state):
            add(self.steps.accepts, number)
        self.steps.is_over[number] = state.runs == self._final_only
        # Ranks order states by their content, not by when they were met.
        key = tuple(tuple(sorted(part)) for part in state)
        rank = bisect_left(self._by_rank, key)
        self._by_rank.insert(rank, key)
        ranks = self.steps.rank[:number]
        ranks += ranks >= rank
        self.steps.rank[number] = rank
        return number

    def make_room_for_symbols(self, n_symbols: int) -> None:
        """Widen the tables so that symbols below `n_symbols` have entries."""
        if n_symbols > self.n_symbols:
            self._resize(self._state_capacity, max(n_symbols, 2 * self.n_symbols))

    def fill_unknown(self, state: int, symbol: int, guards: int) -> None:
        """Compute the transitions of one state on one symbol, if that has not been done."""
        if self.steps.unmarked[state * self.n_symbols + symbol] == UNKNOWN:
            self.fill(state, symbol, guards)

    def fill(self, state: int, symbol: int, guards: int) -> None:
        """Compute the transitions of one state on one symbol, given as the set of guards that hold."""
        unmarked = NOWHERE
        marks = []
        for label, following in self._determinizer.steps(self.states[state], guards):
            target = self.number(following)
            if label:
                marks.append((self.label_id(label), target))
            else:
                unmarked = target
        if self._n_steps + len(marks) > len(self.steps.label):
            room = 2 * (self._n_steps + len(marks))
            self.steps = self.steps._replace(
                label=np.resize(self.steps.label, room), target=np.resize(self.steps.target, room)
            )
        steps = self.steps
        entry = state * self.n_symbols + symbol
        steps.marks_from[entry] = self._n_steps
        for label_id, target in marks:
            steps.label[self._n_steps] = label_id
            steps.target[self._n_steps] = target
            self._n_steps += 1
        steps.marks_to[entry] = self._n_steps
        steps.unmarked[entry] = unmarked
        if unmarked == state and not marks and not self._determinizer.accepts(self.states[state]):
            remove(steps.touching[symbol], state)

    def broken(self, guards: int) -> int:
        """Return which silences an event breaks that satisfies some guards, as bits."""
        before, after = self._determinizer.broken(guards)
        return before * BREAKS_BEFORE | after * BREAKS_AFTER

    def label_id(self, label: Label) -> int:
        """Return a label's number; a new label gets a new number."""
        if label not in self._label_ids:
            self._label_ids[label] = len(self.labels)
            self.labels.append(label)
        return self._label_ids[label]

    def _resize(self, n_states: int, n_symbols: int) -> None:
        old, used = self.steps, len(self.states)
        shape = self._state_capacity, old.n_symbols

        def by_transition(entries: IntArray, empty: int) -> IntArray:
            table = np.full((n_states, n_symbols), empty, np.int32)
            table[:used, : old.n_symbols] = entries.reshape(shape)[:used]
            return table.reshape(-1)

        n_words = (n_states + 63) // 64
        touching = np.full((n_symbols, n_words), _ALL_BITS, np.uint64)
        touching[: old.n_symbols, : self.n_words] = old.touching
        accepts = np.zeros(n_words, np.uint64)
        accepts[: self.n_words] = old.accepts
        is_over, rank = np.zeros(n_states, np.bool_), np.zeros(n_states, np.int32)
        is_over[:used], rank[:used] = old.is_over[:used], old.rank[:used]
        self.steps = Steps(
            n_symbols=n_symbols,
            unmarked=by_transition(old.unmarked, UNKNOWN),
            marks_from=by_transition(old.marks_from, 0),
            marks_to=by_transition(old.marks_to, 0),
            label=old.label,
            target=old.target,
            touching=touching,
            accepts=accepts,
            is_over=is_over,
            rank=rank,
        )
        self._state_capacity = n_states
