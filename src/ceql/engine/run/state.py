"""The run state: everything that events change, and the only thing that is ever stored.

It has the lists of the active states, the arena, the lists of other partition keys, clock and
counters, as flat arrays. `undo` restores it if a batch fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from ceql.engine.run.arrays import (
    CONTROL,
    Arena,
    Broken,
    IntArray,
    Keys,
    Lists,
    Record,
    Waiting,
    n_bytes,
    new_record,
)
from ceql.engine.run.bits import members
from ceql.engine.run.kernel import LIST_CAPACITY
from ceql.engine.run.renumber import renumber_keys
from ceql.engine.run.snapshot import Content

Group = TypeVar("Group", Arena, Broken, Keys, Lists, Waiting)

MIN_NODES = 1 << 14
"""Nodes that the arena has room for at first; collection is amortised over at least this many."""

MIN_STATES = 8
"""Determinized states that there are lists for at first."""

MIN_WAITING = 1 << 10
"""Events with waiting matches that there is room for at first."""


@dataclass
class RunState:
    """Groups of arrays with room to grow; `control` says how much of each is in use."""

    control: Record = field(default_factory=lambda: _control())
    lists: Lists = field(default_factory=lambda: _lists())
    arena: Arena = field(default_factory=lambda: _arena())
    keys: Keys = field(default_factory=lambda: _keys())
    pool: IntArray = field(default_factory=lambda: np.zeros(0, np.int32))
    broken: Broken = field(default_factory=lambda: _broken())
    waiting: Waiting = field(default_factory=lambda: _waiting())
    roots: IntArray = field(default_factory=lambda: np.zeros(0, np.int32))
    has_silences: bool = False
    n_matches: int = 0

    @property
    def n_nodes(self) -> int:
        """Nodes in the arena, including dead nodes that are not yet collected."""
        return int(self.control["n_nodes"])

    @property
    def n_bytes(self) -> int:
        """Bytes that all arrays take."""
        groups = (self.lists, self.arena, self.keys, self.broken, self.waiting)
        return sum(map(n_bytes, groups)) + self.pool.nbytes + self.roots.nbytes

    @property
    def in_waiting(self) -> Waiting:
        """The events whose matches wait for their silence."""
        return part(self.waiting, slice(int(self.control["first_waiting"]), int(self.control["n_waiting"])))

    def content(self, n_keys: int) -> Content:
        """Return what a snapshot must hold; `n_keys` partition keys have slots.

        The lengths of the arrays say how many nodes and pool entries there are. A collection must have come before.
        """
        active, nodes, lengths, _ = self.lists
        return {
            "key": int(self.control["key"]),
            "n_emitted": int(self.control["n_emitted"]),
            "active": active,
            "list_nodes": nodes,
            "list_length": lengths,
            **part(self.arena, slice(self.n_nodes))._asdict(),
            **{f"key_{name}": array for name, array in part(self.keys, slice(n_keys))._asdict().items()},
            "pool": self.pool[: self.pool_length],
            "n_matches": self.n_matches,
            **(self._silences(n_keys) if self.has_silences else {}),
        }

    def _silences(self, n_keys: int) -> Content:
        n_broken = n_keys if len(self.keys.first) or n_keys else len(self.broken.after)
        return {
            **{f"broken_{name}": array for name, array in part(self.broken, slice(n_broken))._asdict().items()},
            **{f"waiting_{name}": array for name, array in self.in_waiting._asdict().items()},
            "roots": self.roots[: int(self.control["n_roots"])],
        }

    def take(self, content: Content) -> None:
        """Restore the state from content, which must have been checked."""
        control = self.control
        control["key"], control["n_emitted"] = content["key"], content["n_emitted"]
        control["n_nodes"], control["n_pool"] = len(content["kind"]), len(content["pool"])
        lengths = content["list_length"]
        self.lists = Lists(content["active"], content["list_nodes"], lengths, np.full(len(lengths), -1, np.int32))
        self.keys = Keys(*(content[f"key_{name}"] for name in Keys._fields))
        stored = Arena(*(content[name] for name in Arena._fields))
        self.arena = grown(stored, max(MIN_NODES, 2 * len(stored.kind)))
        self.pool = _grown(content["pool"], max(1024, 2 * len(content["pool"])))
        self.n_matches = content["n_matches"]
        if self.has_silences:
            self.broken = Broken(*(content[f"broken_{name}"] for name in Broken._fields))
            self.waiting = Waiting(*(content[f"waiting_{name}"] for name in Waiting._fields))
            self.roots = content["roots"]
            control["n_waiting"], control["n_roots"] = len(self.waiting.row), len(self.roots)

    def make_room_for_states(self, n_states: int, n_words: int) -> None:
        """Lengthen the arrays that have one entry per determinized state."""
        active, *by_state = self.lists
        if n_states > len(self.lists.length):
            self.lists = Lists(active, *(_grown(array, n_states) for array in by_state))
        if n_words > len(active):
            self.lists = self.lists._replace(active=_grown(active, n_words))
            wider = np.zeros((len(self.keys.active), n_words), np.uint64)
            wider[:, : len(active)] = self.keys.active
            self.keys = self.keys._replace(active=wider)

    def states_in_use(self) -> IntArray:
        """Return the numbers of the determinized states that have runs of any key."""
        return members(self.lists.active | np.bitwise_or.reduce(self.keys.active, axis=0))

    def renumber(self, kept: IntArray, n_states: int, n_words: int) -> None:
        """Give state `kept[i]` the number i, and resize the arrays that have one entry per state."""
        active, *by_state = self.lists
        numbers = np.zeros(64 * len(active), np.int32)
        numbers[kept] = np.arange(len(kept))
        in_use = numbers[members(active)]
        new_active = np.zeros(n_words, np.uint64)
        np.bitwise_or.at(new_active, in_use >> 6, np.uint64(1) << (in_use & 63).astype(np.uint64))
        self.lists = Lists(new_active, *(_grown(array[kept], n_states) for array in by_state))
        new_active = np.zeros((len(self.keys.active), n_words), np.uint64)
        renumber_keys(numbers, self.keys, self.pool, new_active)
        self.keys = self.keys._replace(active=new_active)

    def make_room_for_keys(self, n_keys: int) -> None:
        """Lengthen the arrays that have one entry per partition key."""
        if n_keys > len(self.keys.first):
            self.keys = grown(self.keys, max(n_keys, 2 * len(self.keys.first), 64))
            if self.has_silences:
                self.broken = grown(self.broken, len(self.keys.first))
            if len(self.pool) == 0:
                self.pool = np.zeros(1024, np.int32)

    def make_room_for_nodes(self, n_nodes: int) -> None:
        """Lengthen the arena."""
        self.arena = grown(self.arena, n_nodes)

    def make_room_in_pool(self, length: int) -> None:
        """Lengthen the lists of other keys."""
        if length > len(self.pool):
            self.pool = _grown(self.pool, length)

    def pack_waiting(self, n_roots: int = 0) -> None:
        """Drop events whose matches no longer wait; then there is room for one more, and for some roots."""
        waiting = self.in_waiting
        kept = part(waiting, waiting.row >= self.broken.after[waiting.key])
        roots = self.roots[places(kept.first, kept.length)]
        n_waiting = len(kept.row)
        packed = kept._replace(first=np.cumsum(kept.length) - kept.length)
        self.waiting = grown(packed, 2 * n_waiting + MIN_WAITING)
        self.roots = _grown(roots, 2 * len(roots) + MIN_WAITING + n_roots)
        self.control["first_waiting"], self.control["n_waiting"] = 0, n_waiting
        self.control["n_roots"] = len(roots)

    def give_back_room(self) -> None:
        """Shorten arena and pool if little of them is in use; `Run.renumber_keys` shortens the arrays of keys."""
        n_nodes = 4 * self.n_nodes + MIN_NODES
        if len(self.arena.kind) > 4 * n_nodes:
            self.arena = copied(part(self.arena, slice(n_nodes)))
        n_entries = 4 * (self.pool_length + len(self.keys.first)) + MIN_NODES
        if len(self.pool) > 4 * n_entries:
            self.pool = self.pool[:n_entries].copy()

    @property
    def pool_length(self) -> int:
        """Entries of the pool in use."""
        return int(self.control["n_pool"])


def part(group: Group, rows: slice | IntArray) -> Group:
    """Return a group with some entries of each array."""
    return type(group)(*(array[rows] for array in group))


def copied(group: Group) -> Group:
    """Return a copy of a group."""
    return type(group)(*(array.copy() for array in group))


def grown(group: Group, length: int) -> Group:
    """Return a group with more entries; new entries are 0."""
    return type(group)(*(_grown(array, length) for array in group))


def places(first: IntArray, length: IntArray) -> IntArray:
    """Return the places of entries that lie together from `first` on, those of the first range first."""
    before = np.cumsum(length) - length
    found: IntArray = np.repeat(first - before, length) + np.arange(int(length.sum()))
    return found


def _grown(array: IntArray, length: int) -> IntArray:
    longer = np.zeros((length, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


def _control() -> Record:
    control = new_record(CONTROL)
    control["key"] = -1
    return control


def _lists() -> Lists:
    return Lists(
        active=np.zeros(1, np.uint64),
        nodes=np.zeros((MIN_STATES, LIST_CAPACITY), np.int32),
        length=np.zeros(MIN_STATES, np.int32),
        merged=np.full(MIN_STATES, -1, np.int32),
    )


def _arena() -> Arena:
    return Arena(
        kind=np.zeros(MIN_NODES, np.int32),
        link=np.zeros(MIN_NODES, np.int32),
        data=np.zeros(MIN_NODES, np.int64),
        start=np.zeros(MIN_NODES, np.int64),
    )


def _broken() -> Broken:
    return Broken(after=np.zeros(0, np.int64), was_before=np.zeros(0, np.uint8), before=np.zeros(0, np.int64))


def _waiting() -> Waiting:
    return Waiting(
        row=np.zeros(0, np.int64),
        time=np.zeros(0, np.int64),
        measure=np.zeros(0, np.int64),
        key=np.zeros(0, np.int64),
        first=np.zeros(0, np.int64),
        length=np.zeros(0, np.int64),
    )


def _keys() -> Keys:
    return Keys(
        first=np.zeros(0, np.int64),
        length=np.zeros(0, np.int64),
        room=np.zeros(0, np.int64),
        epoch=np.zeros(0, np.int64),
        active=np.zeros((0, 1), np.uint64),
        events=np.zeros(0, np.int64),
    )
