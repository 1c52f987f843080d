"""Garbage collection of the arena: what has left the window goes, what is left closes up, in place."""

from __future__ import annotations

import numpy as np

from ceql.engine.compiled import compiled
from ceql.engine.run.arena import CONSUME_ALL, END, UNION
from ceql.engine.run.kernel import BIT_OF, DE_BRUIJN, KEY, N_EMITTED, N_NODES, N_POOL


@compiled
def collect(
    control,
    size,
    now,
    key_now,
    active,
    list_nodes,
    list_length,
    list_merged,
    kind,
    link,
    data,
    start,
    key_from,
    key_length,
    key_room,
    key_epoch,
    key_active,
    pool,
    consumes,
    # scratch: what becomes of each node, and the pool written anew
    moved_to,
    new_pool,
):
    """Drop what has left the window and close the gaps, in place; return the new length of the pool.

    Nodes are marked in one descending pass and moved in one ascending pass, because children
    have lower numbers than parents. A union whose right side has expired becomes its left side.
    `key_now` gives each key's own measure where windows count events, else it is empty and `now`
    holds for all.
    """
    n_nodes = control[N_NODES]
    dead, kept, is_left = -1, -2, -3
    for node in range(n_nodes):
        moved_to[node] = dead

    for word in range(active.shape[0]):
        bits = active[word]
        while bits != 0:
            low = bits & (~bits + np.uint64(1))
            bits ^= low
            state = word * 64 + BIT_OF[(low * DE_BRUIJN) >> np.uint64(58)]
            length = 0
            for i in range(list_length[state]):
                node = list_nodes[state, i]
                if start[node] >= now or 0 <= now - start[node] <= size:
                    list_nodes[state, length] = node
                    length += 1
                    moved_to[node] = kept
            list_length[state] = length
            list_merged[state] = -1
            if length == 0:
                active[word] &= ~low

    n_pool = 0
    for key in range(key_from.shape[0]):
        is_current = key == control[KEY]
        is_forgotten = consumes == CONSUME_ALL and key_epoch[key] != control[N_EMITTED]
        key_time = key_now[key] if key_now.shape[0] > 0 else now
        first = n_pool
        i = key_from[key]
        end = i + key_length[key]
        for word in range(key_active.shape[1]):
            key_active[key, word] = 0
        while i < end and not is_current and not is_forgotten:
            state = pool[i]
            old_length = pool[i + 1]
            i += 2
            length = 0
            for _ in range(old_length):
                node = pool[i]
                i += 1
                if start[node] >= key_time or 0 <= key_time - start[node] <= size:
                    new_pool[n_pool + 2 + length] = node
                    length += 1
                    moved_to[node] = kept
            if length > 0:
                new_pool[n_pool] = state
                new_pool[n_pool + 1] = length
                n_pool += 2 + length
                key_active[key, state >> 6] |= np.uint64(1) << np.uint64(state & 63)
        key_from[key] = first
        key_length[key] = n_pool - first
        key_room[key] = n_pool - first

    for node in range(n_nodes - 1, -1, -1):
        if moved_to[node] == dead or link[node] == END:
            continue
        if kind[node] == UNION:
            right = data[node]
            if key_now.shape[0] == 0 and start[right] < now and not 0 <= now - start[right] <= size:
                moved_to[node] = is_left
            elif moved_to[right] == dead:
                moved_to[right] = kept
        if moved_to[link[node]] == dead:
            moved_to[link[node]] = kept

    n_kept = 0
    for node in range(n_nodes):
        if moved_to[node] == dead:
            continue
        if moved_to[node] == is_left:
            moved_to[node] = moved_to[link[node]]
            continue
        kind[n_kept] = kind[node]
        start[n_kept] = start[node]
        link[n_kept] = moved_to[link[node]] if link[node] != END else END
        data[n_kept] = moved_to[data[node]] if kind[node] == UNION else data[node]
        moved_to[node] = n_kept
        n_kept += 1
    control[N_NODES] = n_kept

    for word in range(active.shape[0]):
        bits = active[word]
        while bits != 0:
            low = bits & (~bits + np.uint64(1))
            bits ^= low
            state = word * 64 + BIT_OF[(low * DE_BRUIJN) >> np.uint64(58)]
            for i in range(list_length[state]):
                list_nodes[state, i] = moved_to[list_nodes[state, i]]
    for key in range(key_from.shape[0]):
        i = key_from[key]
        end = i + key_length[key]
        while i < end:
            length = new_pool[i + 1]
            i += 2
            for _ in range(length):
                new_pool[i] = moved_to[new_pool[i]]
                i += 1
    control[N_POOL] = n_pool
    return n_pool
