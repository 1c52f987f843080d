"""New numbers for determinized states in the lists of all partition keys, so that states without runs can go."""

from __future__ import annotations

import numpy as np

from ceql.engine.compiled import compiled
from ceql.engine.run.kernel import BIT_OF, DE_BRUIJN


@compiled
def renumber_keys(numbers, key_from, key_length, key_active, pool, new_active):
    """Replace each state by `numbers[state]`: in the packed lists in place, in the sets written to `new_active`."""
    for key in range(key_from.shape[0]):
        for word in range(key_active.shape[1]):
            bits = key_active[key, word]
            while bits != 0:
                low = bits & (~bits + np.uint64(1))
                bits ^= low
                number = numbers[word * 64 + BIT_OF[(low * DE_BRUIJN) >> np.uint64(58)]]
                new_active[key, number >> 6] |= np.uint64(1) << np.uint64(number & 63)
        i = key_from[key]
        end = i + key_length[key]
        while i < end:
            pool[i] = numbers[pool[i]]
            i += 2 + pool[i + 1]
