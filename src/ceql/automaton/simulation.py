"""Which states of an automaton can do whatever another state can do, with the same events marked.

A state follows another if for each of the other's steps it has a step that marks the same, is taken on at least the
same events, and leads to a state that follows the other's target; only the final state follows the final state. Labels
do not count, because strategies compare only which events are marked.

This is decided for the pairs of states that occur, together with all pairs that they lead to.
"""

from __future__ import annotations

from collections.abc import Sequence

Move = tuple[int, int, int, int]
"""A transition: the bit of its guard (0 for TRUE), the bits of its exceptions, the number of its label, its target."""

Pair = tuple[int, int]
"""The state that should follow, and the state that it should follow."""

MAX_PAIRS = 1 << 15
"""Most pairs that are looked at. States of other pairs count as different, which is always safe."""


class Simulation:
    """Decides which states follow which, when it is asked; answers are kept."""

    def __init__(self, outgoing: Sequence[Sequence[Move]], is_marking: Sequence[bool], final: int) -> None:
        self._outgoing = outgoing
        self._is_marking = is_marking
        self._final = final
        self._known: dict[Pair, bool] = {}

    def follows(self, follower: int, leader: int) -> bool:
        """Return whether a state can do whatever another can do; False if that would take too long to find out."""
        if follower == leader:
            return True
        pair = follower, leader
        if pair not in self._known and len(self._known) < MAX_PAIRS:
            self._decide(pair)
        return self._known.get(pair, False)

    def _decide(self, first: Pair) -> None:
        """Assume that all pairs hold to which one leads, and take back those that fail, until none does."""
        choices: dict[Pair, list[list[Pair]]] = {}
        needed_by: dict[Pair, list[Pair]] = {}
        pending, failed = [first], []
        while pending:
            pair = pending.pop()
            if pair in choices or pair in self._known:
                continue
            choices[pair] = self._choices(pair)
            if pair[1] == self._final or not all(choices[pair]):
                failed.append(pair)
                continue
            for other in {other for choice in choices[pair] for other in choice}:
                needed_by.setdefault(other, []).append(pair)
                pending.append(other)
        self._known.update(dict.fromkeys(choices, True))
        self._known.update(dict.fromkeys(failed, False))
        while failed:
            for pair in needed_by.get(failed.pop(), ()):
                if self._known[pair] and not all(any(map(self._known.get, choice)) for choice in choices[pair]):
                    self._known[pair] = False
                    failed.append(pair)

    def _choices(self, pair: Pair) -> list[list[Pair]]:
        """Return for each step of the leader the pairs of which one must hold; steps that need none are left out."""
        follower, leader = pair
        found = []
        for move in self._outgoing[leader]:
            targets = {other[3] for other in self._outgoing[follower] if self._covers(other, move)}
            if move[3] not in targets:
                pairs = sorted((target, move[3]) for target in targets)
                found.append([other for other in pairs if self._known.get(other, True)])
        return found

    def _covers(self, other: Move, move: Move) -> bool:
        """Return whether a step marks the same as another, and is taken on all events on which the other is taken."""
        guard, unless, label, _ = move
        is_same_mark = self._is_marking[other[2]] == self._is_marking[label]
        return is_same_mark and other[0] in (0, guard) and not other[1] & ~unless
