"""The evaluation loop: symbols and times in, arena and matches out, compiled by Numba.

This is the paper's Algorithm 1 with its update phase in constant time per event, on flat
arrays. What differs:

- Only determinized states that an event changes are touched: a state that just loops over
  the event keeps its list where it is. So an event that concerns no run costs one AND.
- Lists of nodes are stacks, newest start on top. A node that is newer than all others is
  pushed; the list is merged into one node only when a transition needs it, and the merged
  part replaces what it was merged from.
- Accepting states are enumerated from their lists, without merging them first.
- Transitions carry labels, so one event may extend a state's runs in several ways.
- Where NEXT, LAST or MAX compare matches of different starts, `choice.py` enumerates instead.
- `union` keeps the order "first of the left, first of the right, the rest", so that the
  order of matches does not depend on which expired nodes have been collected.

`advance` runs until the events are used up, or until it needs help: a transition that is not
known yet, room in the arena, room for output. It then says which and changes nothing more;
called again, it goes on where it was. Nothing is changed for an event before it is certain
that its update can be completed.
"""

from __future__ import annotations

import numpy as np

from ceql.engine.compiled import compiled
from ceql.engine.run.arena import BOTTOM, CONSUME_ALL, CONSUME_NOTHING, END, UNION
from ceql.engine.run.choice import KEEP_ALL, KEEP_MAX, KEEP_NEXT, PATIENCE, begin, choose
from ceql.engine.run.requests import DONE, FULL, GROW, MISS, PAUSE, WORK_AT_ONCE

UNKNOWN = -2
"""A transition that has not been computed yet."""
NOWHERE = -1
"""A transition that does not exist."""

LIST_CAPACITY = 16
"""Longest list of one state; a longer one is merged. Its length changes speed only."""

# Fields of the control vector.
AT, PHASE, MISS_SYMBOL, N_NODES, KEY, N_POOL, N_OUT, N_VALUES, DEPTH, N_EMITTED, N_MATCHES = range(11)
NODES_NEEDED, POOL_NEEDED = 11, 12
"""With GROW: the nodes and the entries of the pool that the next event needs at most."""
N_CONTROL = 16

NODES_PER_STATE, NODES_PER_STEP = 96, 20
"""The most nodes that an event makes for a state that it touches, whose list is merged and then moved into another's
(15 unions; 16 insertions of 3, and 2 merges of that list), and for a step that marks it (its own node, the same for one
insertion)."""

UPDATE, ENUMERATE, CHOOSE = 0, 1, 2
"""Phases of one event: the lists are brought up to date, then matches are enumerated, or chosen among while that is
done. A few matches are enumerated first and chosen among then."""

FEW = 64
"""Matches of one event that are compared in `advance` itself."""

U = np.uint64
"""Unsigned indices spare Numba's test for negative ones."""

DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
BIT_OF = np.zeros(64, np.int64)
for _bit in range(64):
    BIT_OF[int((np.uint64((int(DE_BRUIJN) << _bit) & (2**64 - 1))) >> np.uint64(58))] = _bit
"""A power of two's exponent is `BIT_OF[(power * DE_BRUIJN) >> 58]`."""


@compiled
def advance(
    control,
    size,
    limit,
    consumes,
    keeps,
    # the events: symbol, row counted from the first, slot of the partition key; the measure of every row
    symbols,
    rows,
    first_row,
    times,
    keys,
    # the memo: for state * n_symbols + symbol, the target without mark and the range of marking steps
    n_symbols,
    unmarked,
    marks_from,
    marks_to,
    step_label,
    step_target,
    touching,
    accepts,
    is_over,
    rank,
    # the lists of the current key's states
    active,
    list_nodes,
    list_length,
    list_merged,
    # the arena
    kind,
    link,
    data,
    start,
    # the lists of all other keys, packed
    key_from,
    key_length,
    key_room,
    key_epoch,
    key_active,
    pool,
    # scratch: touched states with their merged nodes and moved lists; the enumeration's stack and path
    touched_state,
    touched_node,
    touched_length,
    touched_list,
    stack_node,
    stack_depth,
    path_row,
    path_label,
    # the choice among matches: where their paths begin, the best one, those that no other contains
    choice,
    root_node,
    stack_prefix,
    best_row,
    kept_row,
    kept_from,
    kept_length,
    kept_hash,
    kept_table,
    kept_serial,
    notes,
    # the output: one entry per match, its positions in CSR form
    out_start,
    out_end,
    out_offset,
    out_row,
    out_label,
):
    """Run over the events from `control[AT]` on; return why it stopped.

    PERF: one function without helpers, because Numba counts references of every array that is
    passed to another function, which is slow in this loop. Indices are unsigned, which spares
    the test for negative ones: 6.3 instead of 9.4 ns per event for the paper's S3' (`make bench`).
    """
    n_events = symbols.shape[0]
    n_words = active.shape[0]
    has_keys = keys.shape[0] > 0
    has_labels = out_label.shape[0] > 0
    capacity = kind.shape[0]
    n_nodes = control[N_NODES]
    at = control[AT]
    phase = control[PHASE]
    key = control[KEY]
    work = WORK_AT_ONCE

    while at < n_events:
        symbol = symbols[U(at)]
        now = times[U(rows[U(at)])]
        row = first_row + rows[U(at)]

        if phase == UPDATE:
            # --- an event of another key that concerns none of its runs is skipped as it is
            begins = unmarked[U(symbol)]
            n_steps = marks_to[U(symbol)] - marks_from[U(symbol)]
            if has_keys and keys[U(at)] != key:
                other = keys[U(at)]
                if begins == NOWHERE and n_steps == 0:
                    concerned = False
                    if consumes != CONSUME_ALL or key_epoch[other] == control[N_EMITTED]:
                        for word in range(n_words):
                            if key_active[other, word] & touching[U(symbol), U(word)] != 0:
                                concerned = True
                    if not concerned:
                        at += 1
                        continue
                # --- put the lists of the last key away
                if key >= 0:
                    needed = 0
                    for word in range(n_words):
                        bits = active[U(word)]
                        while bits != 0:
                            low = bits & (~bits + U(1))
                            bits ^= low
                            state = word * 64 + BIT_OF[(low * DE_BRUIJN) >> U(58)]
                            needed += 2 + list_length[U(state)]
                    if needed > key_room[key]:
                        room = needed + needed // 2 + 4
                        if control[N_POOL] + room > pool.shape[0]:
                            control[AT], control[N_NODES], control[KEY] = at, n_nodes, key
                            control[NODES_NEEDED], control[POOL_NEEDED] = 0, room
                            return GROW
                        key_from[key] = control[N_POOL]
                        key_room[key] = room
                        control[N_POOL] += room
                    key_length[key] = needed
                    key_epoch[key] = control[N_EMITTED]
                    i = key_from[key]
                    for word in range(n_words):
                        bits = active[U(word)]
                        key_active[key, word] = bits
                        while bits != 0:
                            low = bits & (~bits + U(1))
                            bits ^= low
                            state = word * 64 + BIT_OF[(low * DE_BRUIJN) >> U(58)]
                            pool[i] = state
                            pool[i + 1] = list_length[U(state)]
                            i += 2
                            for j in range(list_length[U(state)]):
                                pool[i] = list_nodes[U(state), U(j)]
                                i += 1
                # --- and take out those of this one; CONSUME BY ANY has forgotten what is older than its match
                key = other
                for word in range(n_words):
                    active[U(word)] = 0
                if consumes != CONSUME_ALL or key_epoch[key] == control[N_EMITTED]:
                    i = key_from[key]
                    end = i + key_length[key]
                    while i < end:
                        state = pool[i]
                        length = pool[i + 1]
                        i += 2
                        for j in range(length):
                            list_nodes[U(state), U(j)] = pool[i]
                            i += 1
                        list_length[U(state)] = length
                        list_merged[U(state)] = -1
                        active[U(state >> 6)] |= U(1) << U(state & 63)

            # --- which states does this event touch, and are all their transitions known?
            n_touched = 0
            if begins == UNKNOWN:
                control[AT], control[N_NODES], control[KEY] = at, n_nodes, key
                control[MISS_SYMBOL] = symbol
                return MISS
            for word in range(n_words):
                bits = active[U(word)] & touching[U(symbol), U(word)]
                while bits != 0:
                    low = bits & (~bits + U(1))
                    bits ^= low
                    state = word * 64 + BIT_OF[(low * DE_BRUIJN) >> U(58)]
                    step = state * n_symbols + symbol
                    if unmarked[U(step)] == UNKNOWN:
                        control[AT], control[N_NODES], control[KEY] = at, n_nodes, key
                        control[MISS_SYMBOL] = symbol
                        return MISS
                    n_steps += marks_to[U(step)] - marks_from[U(step)]
                    touched_state[U(n_touched)] = state
                    n_touched += 1
            if n_touched == 0 and n_steps == 0 and begins == NOWHERE:
                at += 1
                continue
            # --- in the order of rank, which does not depend on the numbers that the memo gave (Shell's sort)
            gap = n_touched // 2
            while gap > 0:
                for k in range(gap, n_touched):
                    state = touched_state[U(k)]
                    i = k
                    while i >= gap and rank[U(touched_state[U(i - gap)])] > rank[U(state)]:
                        touched_state[U(i)] = touched_state[U(i - gap)]
                        i -= gap
                    touched_state[U(i)] = state
                gap //= 2
            # INVARIANT: no more nodes than this are made below, for this event.
            needed = (n_touched + 1) * NODES_PER_STATE + n_steps * NODES_PER_STEP
            if n_nodes + needed > capacity:
                control[AT], control[N_NODES], control[KEY] = at, n_nodes, key
                control[NODES_NEEDED], control[POOL_NEEDED] = needed, 0
                return GROW
            work -= n_touched + n_steps
            if work < 0:
                control[AT], control[N_NODES], control[KEY] = at, n_nodes, key
                return PAUSE

            # --- take the touched lists out, merged where a marking transition extends them
            n_live = 0
            for k in range(n_touched):
                state = touched_state[U(k)]
                step = state * n_symbols + symbol
                target = unmarked[U(step)]
                has_marks = marks_to[U(step)] > marks_from[U(step)]
                length = list_length[U(state)]
                age = now - start[U(list_nodes[U(state), U(length - 1)])]
                if age > size or age < 0 or (target == NOWHERE and not has_marks):
                    active[U(state >> 6)] &= ~(U(1) << U(state & 63))
                    continue
                node = -1
                if has_marks:
                    node = list_merged[U(state)]
                    if node < 0:
                        node = list_nodes[U(state), 0]
                        for i in range(1, length):
                            kind[U(n_nodes)] = UNION
                            link[U(n_nodes)] = list_nodes[U(state), U(i)]
                            data[U(n_nodes)] = node
                            start[U(n_nodes)] = start[U(list_nodes[U(state), U(i)])]
                            if i == length - 1 and length > 2:
                                list_nodes[U(state), 0] = node
                                list_nodes[U(state), 1] = list_nodes[U(state), U(i)]
                                list_length[U(state)] = 2
                            node = n_nodes
                            n_nodes += 1
                        list_merged[U(state)] = node
                        length = list_length[U(state)]
                touched_state[U(n_live)] = state
                touched_node[U(n_live)] = node
                touched_length[U(n_live)] = 0
                if target != state:
                    active[U(state >> 6)] &= ~(U(1) << U(state & 63))
                    if target != NOWHERE:
                        touched_length[U(n_live)] = length
                        for i in range(length):
                            touched_list[U(n_live), U(i)] = list_nodes[U(state), U(i)]
                n_live += 1

            # --- apply the transitions: the new run first, then the touched states
            for k in range(-1, n_live):
                if k < 0:
                    extended = END
                    step = symbol
                    target = begins
                    n_moved = 0
                    if begins != NOWHERE:
                        kind[U(n_nodes)] = BOTTOM
                        link[U(n_nodes)] = END
                        data[U(n_nodes)] = row
                        start[U(n_nodes)] = now
                        touched_list[U(n_live), 0] = n_nodes
                        n_nodes += 1
                        n_moved = 1
                    moved = n_live
                else:
                    extended = touched_node[U(k)]
                    step = touched_state[U(k)] * n_symbols + symbol
                    target = unmarked[U(step)]
                    n_moved = touched_length[U(k)]
                    moved = k
                n_marks = marks_to[U(step)] - marks_from[U(step)]
                # Items 0 .. n_moved - 1 are the moved list, oldest first; then come the marking steps.
                for item in range(n_moved + n_marks):
                    if item < n_moved:
                        node = touched_list[U(moved), U(item)]
                        to = target
                    else:
                        mark = marks_from[U(step)] + item - n_moved
                        to = step_target[U(mark)]
                        kind[U(n_nodes)] = step_label[U(mark)]
                        link[U(n_nodes)] = extended
                        data[U(n_nodes)] = row
                        start[U(n_nodes)] = now if k < 0 else start[U(extended)]
                        node = n_nodes
                        n_nodes += 1
                    bit = U(1) << U(to & 63)
                    if active[U(to >> 6)] & bit == 0:
                        active[U(to >> 6)] |= bit
                        list_nodes[U(to), 0] = node
                        list_length[U(to)] = 1
                        list_merged[U(to)] = -1
                        continue
                    length = list_length[U(to)]
                    if length == LIST_CAPACITY:
                        merged = list_nodes[U(to), 0]
                        for i in range(1, length - 1):
                            kind[U(n_nodes)] = UNION
                            link[U(n_nodes)] = list_nodes[U(to), U(i)]
                            data[U(n_nodes)] = merged
                            start[U(n_nodes)] = start[U(list_nodes[U(to), U(i)])]
                            merged = n_nodes
                            n_nodes += 1
                        list_nodes[U(to), 0] = merged
                        list_nodes[U(to), 1] = list_nodes[U(to), U(length - 1)]
                        length = 2
                    born = start[U(node)]
                    i = length - 1
                    while i >= 0 and start[U(list_nodes[U(to), U(i)])] > born:
                        i -= 1
                    if 0 <= i < length - 1 and start[U(list_nodes[U(to), U(i)])] == born:
                        # The union of two nodes with the same newest start: first the newest of each.
                        left = list_nodes[U(to), U(i)]
                        rest = -1
                        if kind[U(left)] == UNION:
                            rest = data[U(left)]
                            left = link[U(left)]
                        right = node
                        if kind[U(right)] == UNION and rest >= 0:
                            other = data[U(right)]
                            right = link[U(right)]
                            if start[U(other)] > start[U(rest)]:
                                rest, other = other, rest
                            kind[U(n_nodes)] = UNION
                            link[U(n_nodes)] = rest
                            data[U(n_nodes)] = other
                            start[U(n_nodes)] = start[U(rest)]
                            rest = n_nodes
                            n_nodes += 1
                        if rest >= 0:
                            kind[U(n_nodes)] = UNION
                            link[U(n_nodes)] = right
                            data[U(n_nodes)] = rest
                            start[U(n_nodes)] = born
                            right = n_nodes
                            n_nodes += 1
                        kind[U(n_nodes)] = UNION
                        link[U(n_nodes)] = left
                        data[U(n_nodes)] = right
                        start[U(n_nodes)] = born
                        list_nodes[U(to), U(i)] = n_nodes
                        n_nodes += 1
                    else:
                        for j in range(length, i + 1, -1):
                            list_nodes[U(to), U(j)] = list_nodes[U(to), U(j - 1)]
                        list_nodes[U(to), U(i + 1)] = node
                        length += 1
                    list_length[U(to)] = length
                    list_merged[U(to)] = -1

            # --- does any list accept? Put those on the stack, in the order of rank.
            n_touched = 0
            for word in range(n_words):
                bits = active[U(word)] & accepts[U(word)]
                while bits != 0:
                    low = bits & (~bits + U(1))
                    bits ^= low
                    state = word * 64 + BIT_OF[(low * DE_BRUIJN) >> U(58)]
                    i = n_touched
                    while i > 0 and rank[U(touched_state[U(i - 1)])] > rank[U(state)]:
                        touched_state[U(i)] = touched_state[U(i - 1)]
                        i -= 1
                    touched_state[U(i)] = state
                    n_touched += 1
            depth = 0
            for k in range(n_touched - 1, -1, -1):
                state = touched_state[U(k)]
                for i in range(list_length[U(state)]):
                    node = list_nodes[U(state), U(i)]
                    age = now - start[U(node)]
                    if 0 <= age <= size:
                        stack_node[U(depth)] = node
                        stack_depth[U(depth)] = 0
                        depth += 1
                if is_over[U(state)]:
                    active[U(state >> 6)] &= ~(U(1) << U(state & 63))
            if depth == 0:
                at += 1
                continue
            control[DEPTH] = depth
            control[N_MATCHES] = 0
            phase = ENUMERATE
            if keeps != KEEP_ALL:
                for i in range(depth):
                    root_node[U(i)] = stack_node[U(i)]

        # --- enumerate the matches that this event completes
        # Labels are not written where all are the same.
        depth = control[DEPTH]
        n_out = control[N_OUT]
        n_values = control[N_VALUES]
        n_matches = control[N_MATCHES]
        deepest, longest = stack_node.shape[0] - 1, path_row.shape[0]
        n_roots, first_out, first_value = depth, n_out, n_values
        most = limit if keeps == KEEP_ALL else FEW if choice[PATIENCE] > 0 else 0
        has_all = phase == ENUMERATE
        while depth > 0 and n_matches < most and phase == ENUMERATE:
            depth -= 1
            node = stack_node[U(depth)]
            length = np.int64(stack_depth[U(depth)])
            base, base_node, base_length = depth, node, length
            # The path is written from its end, so that it can be copied in the order of time.
            following = link[U(node)]
            while following != END and length < longest and depth < deepest:
                what = kind[U(node)]
                if what == UNION:
                    right = data[U(node)]
                    age = now - start[U(right)]
                    if 0 <= age <= size:
                        stack_node[U(depth)] = right
                        stack_depth[U(depth)] = length
                        depth += 1
                else:
                    length += 1
                    path_row[U(longest - length)] = data[U(node)]
                    if has_labels:
                        path_label[U(longest - length)] = what
                node = following
                following = link[U(node)]
            is_whole = following == END and length < longest
            if is_whole and kind[U(node)] != BOTTOM:
                length += 1
                path_row[U(longest - length)] = data[U(node)]
                if has_labels:
                    path_label[U(longest - length)] = kind[U(node)]
            if not is_whole or n_out >= out_start.shape[0] or n_values + length > out_row.shape[0]:
                if keeps != KEEP_ALL:
                    has_all = False
                    break
                # Undo this descent: the node that it began with goes back on the stack.
                stack_node[U(base)] = base_node
                stack_depth[U(base)] = base_length
                depth = base + 1
                control[AT], control[N_NODES], control[KEY], control[PHASE] = at, n_nodes, key, ENUMERATE
                control[DEPTH], control[N_OUT], control[N_VALUES], control[N_MATCHES] = (
                    depth,
                    n_out,
                    n_values,
                    n_matches,
                )
                return FULL
            for i in range(U(length)):
                out_row[U(n_values) + i] = path_row[U(longest - length) + i]
            if has_labels:
                for i in range(U(length)):
                    out_label[U(n_values) + i] = path_label[U(longest - length) + i]
            n_values += length
            out_start[U(n_out)] = data[U(node)]
            out_end[U(n_out)] = row
            n_out += 1
            out_offset[U(n_out)] = n_values
            n_matches += 1
        if keeps != KEEP_ALL and has_all and depth == 0:
            # PERF: calling `choose` costs a microsecond. Over a million events of ten names, S3 with NEXT takes 52
            # instead of 101 ns per event, and MAX over a `+` 56 instead of 133.
            best = first_out
            for one in range(first_out + 1, n_out if keeps != KEEP_MAX else 0):
                a, a_end = out_offset[U(best)], out_offset[U(best + 1)]
                b, b_end = out_offset[U(one)], out_offset[U(one + 1)]
                if keeps == KEEP_NEXT:
                    while a < a_end and b < b_end and out_row[U(a)] == out_row[U(b)]:
                        a += 1
                        b += 1
                    if b < b_end and (a == a_end or out_row[U(b)] < out_row[U(a)]):
                        best = one
                else:
                    while a < a_end and b < b_end and out_row[U(a_end - 1)] == out_row[U(b_end - 1)]:
                        a_end -= 1
                        b_end -= 1
                    if b < b_end and (a == a_end or out_row[U(b_end - 1)] > out_row[U(a_end - 1)]):
                        best = one
            # An end of -1 marks what goes until all are compared.
            for one in range(first_out, n_out):
                is_kept = True
                for other in range(first_out if keeps == KEEP_MAX else best, n_out if keeps == KEEP_MAX else best + 1):
                    a, a_end = out_offset[U(one)], out_offset[U(one + 1)]
                    b, b_end = out_offset[U(other)], out_offset[U(other + 1)]
                    is_longer = b_end - b > a_end - a
                    if keeps == KEEP_MAX and not is_longer:
                        continue
                    while a < a_end and b < b_end and out_row[U(b)] <= out_row[U(a)]:
                        a += out_row[U(b)] == out_row[U(a)]
                        b += 1
                    is_inside = a == a_end
                    is_kept = not is_inside if keeps == KEEP_MAX else is_inside and not is_longer
                    if not is_kept:
                        break
                if not is_kept:
                    out_end[U(one)] = -1
            n_candidates = n_matches
            n_matches, n_values, n_out = 0, first_value, first_out
            for one in range(first_out, first_out + n_candidates):
                if out_end[U(one)] < 0 or n_matches >= limit:
                    continue
                from_value, to_value = out_offset[U(one)], out_offset[U(one + 1)]
                for i in range(from_value, to_value):
                    out_row[U(n_values)] = out_row[U(i)]
                    if has_labels:
                        out_label[U(n_values)] = out_label[U(i)]
                    n_values += 1
                out_start[U(n_out)] = out_start[U(one)]
                out_end[U(n_out)] = row
                n_out += 1
                out_offset[U(n_out)] = n_values
                n_matches += 1
        elif keeps != KEEP_ALL:
            if phase == ENUMERATE:
                begin(choice, n_roots, root_node, stack_node, stack_depth, stack_prefix)
                depth, n_out, n_values, n_matches = n_roots, first_out, first_value, 0
                phase = CHOOSE
            reason, depth, n_out, n_values, n_matches = choose(
                choice,
                (depth, n_out, n_values, n_matches),
                keeps,
                limit,
                size,
                now,
                row,
                kind,
                link,
                data,
                start,
                stack_node,
                stack_depth,
                stack_prefix,
                root_node,
                path_row,
                path_label,
                best_row,
                kept_row,
                kept_from,
                kept_length,
                kept_hash,
                kept_table,
                kept_serial,
                notes,
                out_start,
                out_end,
                out_offset,
                out_row,
                out_label,
            )
            if reason != DONE:
                control[AT], control[N_NODES], control[KEY], control[PHASE] = at, n_nodes, key, CHOOSE
                control[DEPTH], control[N_OUT], control[N_VALUES], control[N_MATCHES] = (
                    depth,
                    n_out,
                    n_values,
                    n_matches,
                )
                return reason
        control[N_OUT], control[N_VALUES], control[N_MATCHES] = n_out, n_values, n_matches
        control[DEPTH] = 0
        if n_matches > 0:
            control[N_EMITTED] += 1
            if consumes != CONSUME_NOTHING:
                for word in range(n_words):
                    active[U(word)] = 0
                if not has_keys:
                    n_nodes = 0
        phase = UPDATE
        control[PHASE] = UPDATE
        at += 1

    control[AT], control[N_NODES], control[KEY], control[PHASE] = at, n_nodes, key, UPDATE
    return DONE
