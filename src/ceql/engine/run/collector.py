"""Garbage collection of the arena: drops nodes that have left the window, and moves the others together in place."""

from __future__ import annotations

import numpy as np

from ceql.engine.compiled import compiled_in_place
from ceql.engine.inlining import inlined
from ceql.engine.run.arena import END, UNION
from ceql.engine.run.bits import lowest, without_lowest
from ceql.engine.run.modes import CONSUME_ALL

DEAD, KEPT, IS_LEFT = -1, -2, -3
"""What happens to a node, until it has its new number. A union whose right side has expired becomes its left side."""


@compiled_in_place
def collect(control, rules, now, oldest, key_now, lists, arena, keys, pool, roots, moved_to, new_pool):
    """Drop nodes that have left the window and close the gaps, in place; the pool is written anew.

    `oldest` is the measure at the first event whose matches wait, or `now`.

    Nodes are marked in one descending pass and moved in one ascending pass, because children
    have lower numbers than parents. Where windows count events, `key_now` has the measure of each
    key; otherwise it is empty and `now` holds for all. `moved_to` is scratch, with an entry for
    each node.
    """
    moved_to[:] = DEAD
    mark_lists(rules.size, now, lists, arena, moved_to)
    control.n_pool = mark_keys(control, rules, now, key_now, arena, keys, pool, moved_to, new_pool)
    for i in range(control.n_roots):
        moved_to[roots[i]] = KEPT
    mark_children(control.n_nodes, rules.size, oldest, key_now.shape[0] == 0, arena, moved_to)
    control.n_nodes = close_gaps(control.n_nodes, arena, moved_to)
    renumber_nodes(lists, keys, new_pool, moved_to)
    for i in range(control.n_roots):
        roots[i] = moved_to[roots[i]]


@inlined
def is_alive(started, now, size):
    """Return whether a run can still be part of a match; a run that begins later than `now` can."""
    return started >= now or 0 <= now - started <= size


@compiled_in_place
def mark_lists(size, now, lists, arena, moved_to):
    """Mark the nodes in the lists of the current key, and shorten the lists."""
    for word in range(lists.active.shape[0]):
        bits = lists.active[word]
        while bits != 0:
            state = word * 64 + lowest(bits)
            bits = without_lowest(bits)
            length = 0
            for i in range(lists.length[state]):
                node = lists.nodes[state, i]
                if is_alive(arena.start[node], now, size):
                    lists.nodes[state, length] = node
                    length += 1
                    moved_to[node] = KEPT
            lists.length[state] = length
            lists.merged[state] = -1
            if length == 0:
                lists.active[word] &= ~(np.uint64(1) << np.uint64(state & 63))


@compiled_in_place
def mark_keys(control, rules, now, key_now, arena, keys, pool, moved_to, new_pool):
    """Mark the nodes in the lists of all other keys, and pack the lists one after the other; return their length."""
    n_pool = 0
    for key in range(keys.first.shape[0]):
        is_current = key == control.key
        is_forgotten = rules.consumes == CONSUME_ALL and keys.epoch[key] != control.n_emitted
        key_time = key_now[key] if key_now.shape[0] > 0 else now
        first = n_pool
        i = keys.first[key]
        end = i + keys.length[key]
        for word in range(keys.active.shape[1]):
            keys.active[key, word] = 0
        while i < end and not is_current and not is_forgotten:
            state = pool[i]
            old_length = pool[i + 1]
            i += 2
            length = 0
            for _ in range(old_length):
                node = pool[i]
                i += 1
                if is_alive(arena.start[node], key_time, rules.size):
                    new_pool[n_pool + 2 + length] = node
                    length += 1
                    moved_to[node] = KEPT
            if length > 0:
                new_pool[n_pool] = state
                new_pool[n_pool + 1] = length
                n_pool += 2 + length
                keys.active[key, state >> 6] |= np.uint64(1) << np.uint64(state & 63)
        keys.first[key] = first
        keys.length[key] = n_pool - first
        keys.room[key] = n_pool - first
    return n_pool


@compiled_in_place
def mark_children(n_nodes, size, now, has_one_clock, arena, moved_to):
    """Mark the children of marked nodes, except those that have left the window."""
    for node in range(n_nodes - 1, -1, -1):
        if moved_to[node] == DEAD or arena.link[node] == END:
            continue
        if arena.kind[node] == UNION:
            right = arena.data[node]
            if has_one_clock and not is_alive(arena.start[right], now, size):
                moved_to[node] = IS_LEFT
            elif moved_to[right] == DEAD:
                moved_to[right] = KEPT
        if moved_to[arena.link[node]] == DEAD:
            moved_to[arena.link[node]] = KEPT


@compiled_in_place
def close_gaps(n_nodes, arena, moved_to):
    """Move marked nodes together and note their new numbers; return how many there are."""
    n_kept = 0
    for node in range(n_nodes):
        if moved_to[node] == DEAD:
            continue
        link, data = arena.link[node], arena.data[node]
        if moved_to[node] == IS_LEFT:
            moved_to[node] = moved_to[link]
            continue
        arena.kind[n_kept] = arena.kind[node]
        arena.start[n_kept] = arena.start[node]
        arena.link[n_kept] = moved_to[link] if link != END else END
        arena.data[n_kept] = moved_to[data] if arena.kind[n_kept] == UNION else data
        moved_to[node] = n_kept
        n_kept += 1
    return n_kept


@compiled_in_place
def renumber_nodes(lists, keys, pool, moved_to):
    """Write the new numbers of nodes into all lists."""
    for word in range(lists.active.shape[0]):
        bits = lists.active[word]
        while bits != 0:
            state = word * 64 + lowest(bits)
            bits = without_lowest(bits)
            for i in range(lists.length[state]):
                lists.nodes[state, i] = moved_to[lists.nodes[state, i]]
    for key in range(keys.first.shape[0]):
        i = keys.first[key]
        end = i + keys.length[key]
        while i < end:
            length = pool[i + 1]
            i += 2
            for _ in range(length):
                pool[i] = moved_to[pool[i]]
                i += 1
