"""The run state: all that changes while events go by, and the only thing that is ever stored.

Lists of the active states, the arena, the lists of other partition keys, clock and counters,
as flat arrays. `undo` puts it back as it was before a batch that fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ceql.engine.run.kernel import KEY, LIST_CAPACITY, N_CONTROL, N_EMITTED, N_NODES, N_POOL
from ceql.engine.run.renumber import renumber_keys
from ceql.engine.run.snapshot import Content

IntArray = np.ndarray[Any, np.dtype[Any]]

MIN_NODES = 1 << 14
"""Nodes that the arena starts with; collection is amortised over at least so many."""

NODE_ARRAYS = ("kind", "link", "data", "start")
LIST_ARRAYS = ("list_nodes", "list_length", "list_merged")
KEY_ARRAYS = ("key_from", "key_length", "key_room", "key_epoch", "key_active", "key_events")
"""What has one entry for each node, for each determinized state, for each partition key."""


@dataclass
class RunState:
    """Arrays with room to grow; `control` says how much of each is in use."""

    control: IntArray = field(default_factory=lambda: _control())
    active: IntArray = field(default_factory=lambda: np.zeros(1, np.uint64))
    list_nodes: IntArray = field(default_factory=lambda: np.zeros((8, LIST_CAPACITY), np.int32))
    list_length: IntArray = field(default_factory=lambda: np.zeros(8, np.int32))
    list_merged: IntArray = field(default_factory=lambda: np.full(8, -1, np.int32))
    kind: IntArray = field(default_factory=lambda: np.zeros(MIN_NODES, np.int32))
    link: IntArray = field(default_factory=lambda: np.zeros(MIN_NODES, np.int32))
    data: IntArray = field(default_factory=lambda: np.zeros(MIN_NODES, np.int64))
    start: IntArray = field(default_factory=lambda: np.zeros(MIN_NODES, np.int64))
    key_from: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    key_length: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    key_room: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    key_epoch: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    key_active: IntArray = field(default_factory=lambda: np.zeros((0, 1), np.uint64))
    pool: IntArray = field(default_factory=lambda: np.zeros(0, np.int32))
    key_events: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    n_matches: int = 0

    @property
    def n_nodes(self) -> int:
        """Nodes in the arena, dead ones not yet collected included."""
        return int(self.control[N_NODES])

    @property
    def n_bytes(self) -> int:
        """Bytes that all arrays take."""
        return sum(part.nbytes for part in vars(self).values() if isinstance(part, np.ndarray))

    def content(self, n_keys: int) -> Content:
        """Return what must outlive the process; `n_keys` partition keys have slots.

        How many nodes there are, and entries of the pool, is told by the length of their arrays.
        """
        return {
            "key": int(self.control[KEY]),
            "n_emitted": int(self.control[N_EMITTED]),
            "active": self.active,
            "list_nodes": self.list_nodes,
            "list_length": self.list_length,
            **{name: getattr(self, name)[: self.n_nodes] for name in NODE_ARRAYS},
            **{name: getattr(self, name)[:n_keys] for name in KEY_ARRAYS},
            "pool": self.pool[: self.pool_length],
            "n_matches": self.n_matches,
        }

    def take(self, content: Content) -> None:
        """Put content back in place, which must have been checked."""
        self.control[KEY], self.control[N_EMITTED] = content["key"], content["n_emitted"]
        self.control[N_NODES], self.control[N_POOL] = len(content["kind"]), len(content["pool"])
        for name in ("active", "list_nodes", "list_length", *KEY_ARRAYS):
            setattr(self, name, content[name])
        self.list_merged = np.full(len(self.list_length), -1, np.int32)
        self.make_room_for_nodes(max(MIN_NODES, 2 * len(content["kind"])))
        for name in NODE_ARRAYS:
            getattr(self, name)[: len(content[name])] = content[name]
        self.pool = np.zeros(max(1024, 2 * len(content["pool"])), np.int32)
        self.pool[: len(content["pool"])] = content["pool"]
        self.n_matches = content["n_matches"]

    def make_room_for_states(self, n_states: int, n_words: int) -> None:
        """Lengthen what has one entry per determinized state."""
        if n_states > len(self.list_length):
            for name in LIST_ARRAYS:
                setattr(self, name, _grown(getattr(self, name), n_states))
        if n_words > len(self.active):
            self.active = _grown(self.active, n_words)
            wider = np.zeros((len(self.key_active), n_words), np.uint64)
            wider[:, : self.key_active.shape[1]] = self.key_active
            self.key_active = wider

    def states_in_use(self) -> IntArray:
        """Return the numbers of the determinized states that have runs, of any key."""
        sets = self.active | np.bitwise_or.reduce(self.key_active, axis=0)
        return members(sets)

    def renumber(self, kept: IntArray, n_states: int, n_words: int) -> None:
        """Give state `kept[i]` the number i, and make what has one entry per state as long as asked for."""
        numbers = np.zeros(64 * len(self.active), np.int32)
        numbers[kept] = np.arange(len(kept))
        for name in LIST_ARRAYS:
            setattr(self, name, _grown(getattr(self, name)[kept], n_states))
        in_use = numbers[members(self.active)]
        self.active = np.zeros(n_words, np.uint64)
        np.bitwise_or.at(self.active, in_use >> 6, np.uint64(1) << (in_use & 63).astype(np.uint64))
        new_active = np.zeros((len(self.key_active), n_words), np.uint64)
        renumber_keys(numbers, self.key_from, self.key_length, self.key_active, self.pool, new_active)
        self.key_active = new_active

    def make_room_for_keys(self, n_keys: int) -> None:
        """Lengthen what has one entry per partition key."""
        if n_keys > len(self.key_from):
            room = max(n_keys, 2 * len(self.key_from), 64)
            for name in KEY_ARRAYS:
                setattr(self, name, _grown(getattr(self, name), room))
            if len(self.pool) == 0:
                self.pool = np.zeros(1024, np.int32)

    def make_room_for_nodes(self, n_nodes: int) -> None:
        """Lengthen the arena."""
        for name in NODE_ARRAYS:
            setattr(self, name, _grown(getattr(self, name), n_nodes))

    def make_room_in_pool(self, length: int) -> None:
        """Lengthen the lists of other keys."""
        if length > len(self.pool):
            self.pool = _grown(self.pool, length)

    def give_back_room(self) -> None:
        """Shorten arena and pool where little of them is in use; keys that are gone give theirs back by themselves."""
        n_nodes = 4 * self.n_nodes + MIN_NODES
        if len(self.kind) > 4 * n_nodes:
            for name in NODE_ARRAYS:
                setattr(self, name, getattr(self, name)[:n_nodes].copy())
        n_entries = 4 * (self.pool_length + len(self.key_from)) + MIN_NODES
        if len(self.pool) > 4 * n_entries:
            self.pool = self.pool[:n_entries].copy()

    @property
    def pool_length(self) -> int:
        """Entries of the pool in use."""
        return int(self.control[N_POOL])


def members(states: IntArray) -> IntArray:
    """Return the numbers of the states in a set."""
    return np.flatnonzero(np.unpackbits(states.view(np.uint8), bitorder="little"))


def _control() -> IntArray:
    control = np.zeros(N_CONTROL, np.int64)
    control[KEY] = -1
    return control


def _grown(array: IntArray, length: int) -> IntArray:
    grown = np.zeros((length, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown
