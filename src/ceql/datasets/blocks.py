"""Streams made of blocks. Each block has its own random generator, so that any task can make any block.

A block depends only on its number and the seed. Its number decides when it begins, and it ends before the next block
begins. So many tasks can make blocks at once, and a longer stream begins with the shorter one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

N_EVENTS = 1 << 17
"""Events of a block."""

Block = Callable[[int, int], pa.RecordBatch]
"""Returns the block of a number and a seed."""


def stream(block: Block, n_events: int, seed: int) -> Iterator[pa.RecordBatch]:
    """Yield the first events of a stream, block by block."""
    for number in range(n_blocks(n_events)):
        yield beginning(block(number, seed), n_events - number * N_EVENTS)


def n_blocks(n_events: int) -> int:
    """Return how many blocks hold a number of events; the last block may be used in part.

    >>> n_blocks(0), n_blocks(N_EVENTS), n_blocks(N_EVENTS + 1)
    (0, 1, 2)
    """
    return -(-n_events // N_EVENTS)


def beginning(block: pa.RecordBatch, n_events: int) -> pa.RecordBatch:
    """Return at most `n_events` events of a block."""
    return block.slice(0, n_events) if n_events < len(block) else block


def random_for(number: int, seed: int) -> np.random.Generator:
    """Return the generator of a block."""
    return np.random.default_rng([seed, number])


def ids(number: int) -> Any:
    """Return the numbers of a block's events in the whole stream."""
    return np.arange(number * N_EVENTS, (number + 1) * N_EVENTS)


def drawn(random: np.random.Generator, weights: Sequence[int], n: int) -> Any:
    """Return `n` random positions in a list of weights, each as often as its weight says.

    >>> np.bincount(drawn(np.random.default_rng(0), [1, 0, 3], 40_000)).round(-3).tolist()
    [10000, 0, 30000]
    """
    # PERF: for the zones of a block of trips, `Generator.choice` with probabilities takes 5.8 ms, this table 0.5 ms.
    return np.repeat(np.arange(len(weights), dtype=np.int32), weights)[random.integers(0, sum(weights), n)]


def words(positions: Any, values: pa.Array) -> pa.DictionaryArray:
    """Return strings by their positions in a list of them."""
    return pa.DictionaryArray.from_arrays(pa.array(positions, pa.int32()), values)
