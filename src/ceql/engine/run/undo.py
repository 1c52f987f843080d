"""Restores a run state as it was before a batch; the cost depends only on what the batch touches.

Arena and pool only grow, so going back to their old lengths is enough. The lists of the current key, and of keys that
occur in the batch, are overwritten, so they are saved first. Everything else is saved once, just before something moves
it: a collection, new numbers for states, a match that empties the arena. Each of these costs as much as saving
everything, or frees as much.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ceql.engine.compiled import compiled
from ceql.engine.run.arrays import Broken, Keys, Lists
from ceql.engine.run.bits import members
from ceql.engine.run.state import RunState, copied, part, places

IntArray = np.ndarray[Any, np.dtype[Any]]


class Undo:
    """A run state as it was when this was made. The caller must say beforehand what is about to change."""

    def __init__(self, state: RunState) -> None:
        self._n_keys = len(state.keys.first)
        is_partitioned = len(state.broken.after) <= self._n_keys
        self._broken = None if is_partitioned else copied(state.broken)
        self._keys: list[_SomeKeys] = []
        self._whole: RunState | None = None
        self._is_begun = False

    def begin(self, state: RunState) -> None:
        """Save the clock and the lists of the current key, before any event is seen."""
        if self._is_begun:
            return
        self._is_begun = True
        self._control, self._n_matches = state.control.copy(), state.n_matches
        state.control["kept_waiting"], state.control["kept_roots"] = (
            state.control["n_waiting"],
            state.control["n_roots"],
        )
        self._active = state.lists.active.copy()
        # PERF: with few states, all lists are small, and to find the active ones takes longer than to copy all.
        self._states = slice(len(state.lists.length)) if len(self._active) == 1 else members(self._active)
        self._lists = [array[self._states].copy() for array in state.lists[1:]]
        self._is_saved = np.zeros(self._n_keys, np.bool_)
        if self._n_keys:
            self.save_keys(state, np.array([self._control["key"]], np.int32))

    def save_keys(self, state: RunState, slots: IntArray) -> None:
        """Save the data of some partition keys, before their events are seen."""
        self.begin(state)
        if self._whole is None and self._n_keys:
            new = _unsaved(slots, self._is_saved)
            if len(new):
                keys = part(state.keys, new)
                broken = part(state.broken, new) if state.has_silences else state.broken
                self._keys.append(_SomeKeys(new, keys, state.pool[places(keys.first, keys.length)], broken))

    @property
    def has_all(self) -> bool:
        """Whether everything is saved, so that anything may change."""
        return self._whole is not None

    def save_all(self, state: RunState) -> None:
        """Save the rest."""
        self.begin(state)
        if self._whole is None:
            whole = RunState()
            whole.arena = copied(part(state.arena, slice(self._control["n_nodes"])))
            whole.keys = copied(part(state.keys, slice(self._n_keys)))
            whole.lists = Lists(*map(np.zeros_like, state.lists))
            whole.pool = state.pool[: self._control["n_pool"]].copy()
            whole.broken = copied(part(state.broken, slice(self._n_keys)))
            whole.waiting, whole.roots = copied(state.waiting), state.roots.copy()
            whole.has_silences = state.has_silences
            self._put_back(whole)
            self._whole = whole
            state.control["kept_waiting"] = state.control["kept_roots"] = 0

    def undone(self, state: RunState) -> RunState:
        """Return the run state as it was; the given state must not be used afterwards."""
        if not self._is_begun:
            return state
        if self._whole is None:
            self._put_back(state)
            return state
        return self._whole

    def _put_back(self, state: RunState) -> None:
        state.control, state.n_matches = self._control.copy(), self._n_matches
        # Both may have become wider since then.
        active, *by_state = state.lists
        active[:] = 0
        active[: len(self._active)] = self._active
        for array, saved in zip(by_state, self._lists, strict=True):
            array[self._states] = saved
        for keys in self._keys:
            keys.put_back(state)
        for array in state.keys:
            array[self._n_keys :] = 0
        for array in state.broken:
            array[self._n_keys :] = 0
        if self._broken is not None:
            state.broken = copied(self._broken)


@dataclass
class _SomeKeys:
    """The data of some keys, and their entries of the pool."""

    slots: IntArray
    keys: Keys
    entries: IntArray
    broken: Broken

    def put_back(self, state: RunState) -> None:
        for array, saved in zip(state.keys, self.keys, strict=True):
            array[self.slots] = 0
            if saved.ndim == 1:
                array[self.slots] = saved
            else:
                array[self.slots, : saved.shape[1]] = saved
        state.pool[places(self.keys.first, self.keys.length)] = self.entries
        if state.has_silences:
            for array, saved in zip(state.broken, self.broken, strict=True):
                array[self.slots] = saved


@compiled
def _unsaved(slots: Any, is_saved: Any) -> Any:
    """Return the slots that are not saved yet, each once, and mark them as saved."""
    found = np.empty(min(slots.shape[0], is_saved.shape[0]), np.int64)
    n_found = 0
    for i in range(slots.shape[0]):
        slot = slots[i]
        if 0 <= slot < is_saved.shape[0] and not is_saved[slot]:
            is_saved[slot] = True
            found[n_found] = slot
            n_found += 1
    return found[:n_found]
