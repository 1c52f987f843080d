"""Renumbers determinized states in the lists of all partition keys, so that states without runs can be dropped."""

from __future__ import annotations

import numpy as np

from ceql.engine.compiled import compiled_in_place
from ceql.engine.run.bits import lowest, without_lowest


@compiled_in_place
def renumber_keys(numbers, keys, pool, new_active):
    """Replace each state by `numbers[state]`: in packed lists in place; the new sets are written to `new_active`."""
    for key in range(keys.first.shape[0]):
        for word in range(keys.active.shape[1]):
            bits = keys.active[key, word]
            while bits != 0:
                number = numbers[word * 64 + lowest(bits)]
                bits = without_lowest(bits)
                new_active[key, number >> 6] |= np.uint64(1) << np.uint64(number & 63)
        i = keys.first[key]
        end = i + keys.length[key]
        while i < end:
            pool[i] = numbers[pool[i]]
            i += 2 + pool[i + 1]
