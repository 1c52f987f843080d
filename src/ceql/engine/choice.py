"""Chooses among the matches that one event completes, where NEXT, LAST or MAX compare different starts."""

from __future__ import annotations

import numpy as np

from ceql.engine.chunk import Chunk, joined
from ceql.syntax.ast import Strategy


def chosen(strategy: Strategy, found: list[Chunk]) -> Chunk:
    """Return the matches that a strategy keeps, in the order in which they were found.

    Only sets of positions are compared: equal sets under other labels or from another start
    are all kept.
    """
    candidates = joined(found)
    positions = [
        tuple(candidates.rows[first:last].tolist())
        for first, last in zip(candidates.offsets[:-1], candidates.offsets[1:], strict=True)
    ]
    if strategy is Strategy.MAX:
        kept = _maximal({one: frozenset(one) for one in positions})
    else:
        kept = {_best(strategy, positions)}
    return candidates.take(np.array([index for index, one in enumerate(positions) if one in kept], np.int64))


def _best(strategy: Strategy, positions: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the set that holds the smallest (for LAST: the largest) position by which it differs from any other.

    For LAST that is the greatest set when positions are read from the last one down; for NEXT the
    least when read from the first one up, except that a longer set beats its own beginning.
    """
    if strategy is Strategy.LAST:
        return max(positions, key=lambda one: one[::-1])
    return min(positions, key=lambda one: (*one, float("inf")))


def _maximal(sets: dict[tuple[int, ...], frozenset[int]]) -> set[tuple[int, ...]]:
    """Return the sets that no other strictly contains."""
    by_size = sorted(sets.items(), key=lambda item: -len(item[1]))
    kept: list[tuple[tuple[int, ...], frozenset[int]]] = []
    for one, members in by_size:
        if not any(members < larger for _, larger in kept):
            kept.append((one, members))
    return {one for one, _ in kept}
