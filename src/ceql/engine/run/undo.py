"""Puts a run state back as it was before a batch, at the cost of what the batch touches.

An arena is only added to, and so is the pool, so that going back to their lengths is enough. What is overwritten are
the lists of the current key and those of keys that occur in the batch; they are saved first. All else is saved once,
just before something moves it: a collection, new numbers for states, a match that ends the arena. Each of these costs
or pays for as much as there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ceql.engine.compiled import compiled
from ceql.engine.run.kernel import KEY, N_NODES, N_POOL
from ceql.engine.run.state import KEY_ARRAYS, LIST_ARRAYS, NODE_ARRAYS, RunState, members

IntArray = np.ndarray[Any, np.dtype[Any]]


class Undo:
    """What a run state was when this was made, as long as it is told what is about to change."""

    def __init__(self, state: RunState) -> None:
        self._control, self._active = state.control.copy(), state.active.copy()
        self._n_matches = state.n_matches
        self._states = members(state.active)
        self._lists = {name: getattr(state, name)[self._states] for name in LIST_ARRAYS}
        self._n_keys = len(state.key_from)
        self._is_saved = np.zeros(self._n_keys, np.bool_)
        self._keys: list[_Keys] = []
        self._whole: RunState | None = None
        self.save_keys(state, state.control[KEY : KEY + 1].astype(np.int32))

    def save_keys(self, state: RunState, slots: IntArray) -> None:
        """Save what is kept of some partition keys, before events of theirs are seen."""
        if self._whole is None:
            new = _unsaved(slots, self._is_saved)
            if len(new):
                rows = {name: getattr(state, name)[new] for name in KEY_ARRAYS}
                self._keys.append(_Keys(new, rows, state.pool[_places(rows)]))

    @property
    def has_all(self) -> bool:
        """Whether all is saved, so that anything may change."""
        return self._whole is not None

    def save_all(self, state: RunState) -> None:
        """Save the rest."""
        if self._whole is None:
            whole = RunState()
            for name in NODE_ARRAYS:
                setattr(whole, name, getattr(state, name)[: self._control[N_NODES]].copy())
            for name in KEY_ARRAYS:
                setattr(whole, name, getattr(state, name)[: self._n_keys].copy())
            for name in LIST_ARRAYS:
                setattr(whole, name, np.zeros_like(getattr(state, name)))
            whole.active = np.zeros_like(state.active)
            whole.pool = state.pool[: self._control[N_POOL]].copy()
            self._put_back(whole)
            self._whole = whole

    def undone(self, state: RunState) -> RunState:
        """Return the run state as it was; the one given is used up."""
        if self._whole is None:
            self._put_back(state)
            return state
        return self._whole

    def _put_back(self, state: RunState) -> None:
        state.control[:] = self._control
        state.n_matches = self._n_matches
        # Both may have got wider since.
        state.active[:] = 0
        state.active[: len(self._active)] = self._active
        for name, lists in self._lists.items():
            getattr(state, name)[self._states] = lists
        for keys in self._keys:
            keys.put_back(state)
        for name in KEY_ARRAYS:
            getattr(state, name)[self._n_keys :] = 0


@dataclass
class _Keys:
    """What is kept of some keys: their rows of all arrays by key, and their entries of the pool."""

    slots: IntArray
    rows: dict[str, IntArray]
    entries: IntArray

    def put_back(self, state: RunState) -> None:
        for name, rows in self.rows.items():
            array = getattr(state, name)
            array[self.slots] = 0
            if rows.ndim == 1:
                array[self.slots] = rows
            else:
                array[self.slots, : rows.shape[1]] = rows
        state.pool[_places(self.rows)] = self.entries


def _places(rows: dict[str, IntArray]) -> IntArray:
    """Return where in the pool the entries of some keys are."""
    lengths = rows["key_length"]
    before = np.cumsum(lengths) - lengths
    places: IntArray = np.repeat(rows["key_from"] - before, lengths) + np.arange(int(lengths.sum()))
    return places


@compiled
def _unsaved(slots: Any, is_saved: Any) -> Any:
    """Return those of some slots that are not saved, each once, and note that they are."""
    found = np.empty(min(slots.shape[0], is_saved.shape[0]), np.int64)
    n_found = 0
    for i in range(slots.shape[0]):
        slot = slots[i]
        if 0 <= slot < is_saved.shape[0] and not is_saved[slot]:
            is_saved[slot] = True
            found[n_found] = slot
            n_found += 1
    return found[:n_found]
