"""The evaluation loop: symbols and times in, arena and matches out, compiled by Numba.

This is the paper's Algorithm 1, whose update phase takes constant time per event, on flat
arrays. The differences are:

- Only determinized states that an event changes are touched: a state that just loops over
  the event keeps its list where it is. So an event that concerns no run costs one AND.
- Lists of nodes are stacks, newest start on top. A node that is newer than all others is
  pushed. The list is merged into one node only when a transition needs it, and the merged
  node replaces its parts.
- Accepting states are enumerated from their lists, without merging them first.
- Transitions carry labels, so one event may extend a state's runs in several ways.
- Where NEXT, LAST or MAX compare matches of different starts, `choice.py` enumerates instead.
- A union keeps the order "first of the left, first of the right, the rest", so that the
  order of matches does not depend on which expired nodes have been collected.

`advance` runs until the events are used up, or until it needs help: a transition that is not
known yet, room in the arena, room for output. It then returns which, and changes nothing more.
The next call goes on where it stopped. Nothing is changed for an event before it is certain
that its update can be completed.

PERF: all steps of the loop are parts of `advance` (`inlined`), and indices are unsigned, so that
Numba does not test for negative ones: 6.3 instead of 9.4 ns per event for the paper's S3' (`make bench`).
"""

from __future__ import annotations

from typing import Any

from ceql.engine.compiled import compiled_in_place
from ceql.engine.inlining import inlined
from ceql.engine.run.arena import BOTTOM, END, UNION, set_node, set_union
from ceql.engine.run.arrays import Arena, Lists, Steps, Touched, Walk
from ceql.engine.run.bits import U, add, lowest, remove, without_lowest
from ceql.engine.run.choice import begin, choose, keep_few, write_best
from ceql.engine.run.enumeration import enumerate_matches
from ceql.engine.run.modes import CONSUME_ALL, CONSUME_NOTHING, KEEP_MAX
from ceql.engine.run.requests import DONE, FULL, GROW, MISS, PAUSE, WAIT, WORK_AT_ONCE
from ceql.engine.run.waiting import forget_due, forget_runs, has_room_to_wait, note_breaks, put_due, wait

UNKNOWN = -2
"""A transition that has not been computed yet."""
NOWHERE = -1
"""A transition that does not exist."""

LIST_CAPACITY = 16
"""Longest list of a state; a longer list is merged. This number affects only speed."""

NODES_PER_STATE, NODES_PER_STEP = 96, 20
"""The most nodes that an event makes: for a touched state, whose list is merged and then moved into another list (15
unions; 16 insertions of 3, and 2 merges of the other list), and for a marking step (its own node, and one insertion
with the same costs)."""

UPDATE, ENUMERATE, CHOOSE = 0, 1, 2
"""Phases of an event: lists are updated, then matches are enumerated, or enumerated and chosen at once. A few matches
are enumerated first and chosen afterwards."""

FEW = 64
"""Most matches of one event that `advance` compares itself."""


@inlined
def save(control, at, phase, key, n_nodes):
    """Note where the loop is, so that it can go on from there."""
    control.at, control.phase, control.key, control.n_nodes = at, phase, key, n_nodes


@inlined
def touches_key(keys, key, steps, symbol):
    """Return whether a symbol may change a state that has runs of another key."""
    is_touched = False
    for word in range(keys.active.shape[1]):
        if keys.active[key, word] & steps.touching[U(symbol), U(word)] != 0:
            is_touched = True
    return is_touched


@inlined
def put_away(control, key, lists, keys, pool):
    """Pack the lists of the current key into the pool; return whether there was room."""
    needed = 0
    for word in range(lists.active.shape[0]):
        bits = lists.active[U(word)]
        while bits != 0:
            needed += 2 + lists.length[U(word * 64 + lowest(bits))]
            bits = without_lowest(bits)
    has_room = True
    if needed > keys.room[key]:
        room = needed + needed // 2 + 4
        if control.n_pool + room > pool.shape[0]:
            control.nodes_needed, control.pool_needed = 0, room
            has_room = False
        else:
            keys.first[key] = control.n_pool
            keys.room[key] = room
            control.n_pool += room
    if has_room:
        keys.length[key] = needed
        keys.epoch[key] = control.n_emitted
        i = keys.first[key]
        for word in range(lists.active.shape[0]):
            bits = lists.active[U(word)]
            keys.active[key, word] = bits
            while bits != 0:
                state = word * 64 + lowest(bits)
                bits = without_lowest(bits)
                pool[i] = state
                pool[i + 1] = lists.length[U(state)]
                i += 2
                for j in range(lists.length[U(state)]):
                    pool[i] = lists.nodes[U(state), U(j)]
                    i += 1
    return has_room


@inlined
def take_out(key, is_forgotten, lists, keys, pool):
    """Make the packed lists of another key the current lists; they are empty if CONSUME BY ANY has forgotten them."""
    for word in range(lists.active.shape[0]):
        lists.active[U(word)] = 0
    if not is_forgotten:
        i = keys.first[key]
        end = i + keys.length[key]
        while i < end:
            state = pool[i]
            length = pool[i + 1]
            i += 2
            for j in range(length):
                lists.nodes[U(state), U(j)] = pool[i]
                i += 1
            lists.length[U(state)] = length
            lists.merged[U(state)] = -1
            add(lists.active, state)


@inlined
def find_touched(symbol, steps, lists, touched):
    """Note the states that an event changes.

    Return how many states there are, how many steps they take, and whether all their transitions are known.
    """
    n_touched, n_steps, are_known = 0, 0, True
    for word in range(lists.active.shape[0]):
        bits = lists.active[U(word)] & steps.touching[U(symbol), U(word)]
        while bits != 0:
            state = word * 64 + lowest(bits)
            bits = without_lowest(bits)
            step = state * steps.n_symbols + symbol
            are_known &= steps.unmarked[U(step)] != UNKNOWN
            n_steps += steps.marks_to[U(step)] - steps.marks_from[U(step)]
            touched.state[U(n_touched)] = state
            n_touched += 1
    return n_touched, n_steps, are_known


@inlined
def sort_by_rank(states, n_states, rank):
    """Sort states by rank, which does not depend on the numbers that the memo gave them (Shell's sort)."""
    gap = n_states // 2
    while gap > 0:
        for k in range(gap, n_states):
            state = states[U(k)]
            i = k
            while i >= gap and rank[U(states[U(i - gap)])] > rank[U(state)]:
                states[U(i)] = states[U(i - gap)]
                i -= gap
            states[U(i)] = state
        gap //= 2


@inlined
def take_touched(n_touched, n_nodes, now, size, symbol, steps, lists, arena, touched):
    """Take out the lists of touched states, merged where a step extends them.

    Return how many of these states have live runs, and the number of nodes.
    """
    n_live = 0
    for k in range(n_touched):
        state = touched.state[U(k)]
        step = state * steps.n_symbols + symbol
        target = steps.unmarked[U(step)]
        has_marks = steps.marks_to[U(step)] > steps.marks_from[U(step)]
        length = lists.length[U(state)]
        age = now - arena.start[U(lists.nodes[U(state), U(length - 1)])]
        if age > size or age < 0 or (target == NOWHERE and not has_marks):
            remove(lists.active, state)
            continue
        node = -1
        if has_marks:
            node = lists.merged[U(state)]
            if node < 0:
                node = lists.nodes[U(state), 0]
                for i in range(1, length):
                    set_union(arena, n_nodes, lists.nodes[U(state), U(i)], node)
                    if i == length - 1 and length > 2:
                        lists.nodes[U(state), 0] = node
                        lists.nodes[U(state), 1] = lists.nodes[U(state), U(i)]
                        lists.length[U(state)] = 2
                    node = n_nodes
                    n_nodes += 1
                lists.merged[U(state)] = node
                length = lists.length[U(state)]
        touched.state[U(n_live)] = state
        touched.node[U(n_live)] = node
        touched.length[U(n_live)] = 0
        if target != state:
            remove(lists.active, state)
            if target != NOWHERE:
                touched.length[U(n_live)] = length
                for i in range(length):
                    touched.moved[U(n_live), U(i)] = lists.nodes[U(state), U(i)]
        n_live += 1
    return n_live, n_nodes


@inlined
def take_steps(n_live, n_nodes, now, row, begins, n_begun, symbol, steps, lists, arena, touched):
    """Move and extend the runs that were taken out, the new run first; return the number of nodes."""
    for k in range(-1, n_live):
        if k < 0:
            extended = END
            step = symbol
            target = begins
            n_moved = 0
            if begins != NOWHERE:
                set_node(arena, n_nodes, BOTTOM, END, row, now)
                touched.moved[U(n_live), 0] = n_nodes
                n_nodes += 1
                n_moved = 1
            moved = n_live
            n_marks = n_begun
        else:
            extended = touched.node[U(k)]
            step = touched.state[U(k)] * steps.n_symbols + symbol
            target = steps.unmarked[U(step)]
            n_moved = touched.length[U(k)]
            moved = k
            n_marks = steps.marks_to[U(step)] - steps.marks_from[U(step)]
        # Items 0 .. n_moved - 1 are the moved list, oldest first; then come the marking steps.
        for item in range(n_moved + n_marks):
            if item < n_moved:
                node = touched.moved[U(moved), U(item)]
                to = target
            else:
                mark = steps.marks_from[U(step)] + item - n_moved
                to = steps.target[U(mark)]
                begun = now if k < 0 else arena.start[U(extended)]
                set_node(arena, n_nodes, steps.label[U(mark)], extended, row, begun)
                node = n_nodes
                n_nodes += 1
            bit = U(1) << U(to & 63)
            if lists.active[U(to >> 6)] & bit == 0:
                lists.active[U(to >> 6)] |= bit
                lists.nodes[U(to), 0] = node
                lists.length[U(to)] = 1
                lists.merged[U(to)] = -1
            else:
                n_nodes = insert(node, to, n_nodes, lists, arena)
    return n_nodes


@inlined
def insert(node, to, n_nodes, lists, arena):
    """Add a node to a list that is not empty, in the order of starts; return the number of nodes."""
    length = lists.length[U(to)]
    if length == LIST_CAPACITY:
        merged = lists.nodes[U(to), 0]
        for i in range(1, length - 1):
            set_union(arena, n_nodes, lists.nodes[U(to), U(i)], merged)
            merged = n_nodes
            n_nodes += 1
        lists.nodes[U(to), 0] = merged
        lists.nodes[U(to), 1] = lists.nodes[U(to), U(length - 1)]
        length = 2
    begun = arena.start[U(node)]
    i = length - 1
    while i >= 0 and arena.start[U(lists.nodes[U(to), U(i)])] > begun:
        i -= 1
    if 0 <= i < length - 1 and arena.start[U(lists.nodes[U(to), U(i)])] == begun:
        # In the union of two nodes with the same newest start, the newest of each come first.
        left = lists.nodes[U(to), U(i)]
        rest = -1
        if arena.kind[U(left)] == UNION:
            rest = arena.data[U(left)]
            left = arena.link[U(left)]
        right = node
        if arena.kind[U(right)] == UNION and rest >= 0:
            other = arena.data[U(right)]
            right = arena.link[U(right)]
            if arena.start[U(other)] > arena.start[U(rest)]:
                rest, other = other, rest
            set_union(arena, n_nodes, rest, other)
            rest = n_nodes
            n_nodes += 1
        if rest >= 0:
            set_union(arena, n_nodes, right, rest)
            right = n_nodes
            n_nodes += 1
        set_union(arena, n_nodes, left, right)
        lists.nodes[U(to), U(i)] = n_nodes
        n_nodes += 1
    else:
        for j in range(length, i + 1, -1):
            lists.nodes[U(to), U(j)] = lists.nodes[U(to), U(j - 1)]
        lists.nodes[U(to), U(i + 1)] = node
        length += 1
    lists.length[U(to)] = length
    lists.merged[U(to)] = -1
    return n_nodes


@inlined
def put_complete(now, size, steps, lists, arena, touched, walk):
    """Put the nodes of complete matches on the stack, in the order of rank; return how many there are."""
    n_states = 0
    for word in range(lists.active.shape[0]):
        bits = lists.active[U(word)] & steps.accepts[U(word)]
        while bits != 0:
            state = word * 64 + lowest(bits)
            bits = without_lowest(bits)
            i = n_states
            while i > 0 and steps.rank[U(touched.state[U(i - 1)])] > steps.rank[U(state)]:
                touched.state[U(i)] = touched.state[U(i - 1)]
                i -= 1
            touched.state[U(i)] = state
            n_states += 1
    depth = 0
    for k in range(n_states - 1, -1, -1):
        state = touched.state[U(k)]
        for i in range(lists.length[U(state)]):
            node = lists.nodes[U(state), U(i)]
            age = now - arena.start[U(node)]
            if 0 <= age <= size:
                walk.stack_node[U(depth)] = node
                walk.stack_depth[U(depth)] = 0
                depth += 1
        if steps.is_over[U(state)]:
            remove(lists.active, state)
    return depth


@compiled_in_place
def advance(
    control: Any,
    rules: Any,
    events: Any,
    steps: Steps,
    lists: Lists,
    arena: Arena,
    keys: Any,
    pool: Any,
    touched: Touched,
    walk: Walk,
    choice: Any,
    rivals: Any,
    silences: Any,
    broken: Any,
    waiting: Any,
    roots: Any,
    output: Any,
) -> Any:
    """Run over the events from `control.at` on; return why it stopped, as a number of `requests.py`.

    `arrays.py` says what the arguments hold. Without PARTITION BY, `keys` is None. Where matches are not compared,
    `rivals` is None. Without NOT ... FOR, `silences` is None.
    """
    size, limit, consumes, keeps = rules
    symbols, rows, first_row, times, key_of, _ = events
    n_events = symbols.shape[0]
    capacity = arena.kind.shape[0]
    at, phase, key, n_nodes = control.at, control.phase, control.key, control.n_nodes
    work = WORK_AT_ONCE

    while at < n_events:
        symbol = symbols[U(at)]
        now = times[U(rows[U(at)])]
        row = first_row + rows[U(at)]
        if silences is not None:
            time = silences.times[U(rows[U(at)])]
            slot = 0
            if keys is not None:
                slot = key_of[U(at)]
            if phase == UPDATE:
                depth = put_due(control, symbol, time, silences, broken, waiting, roots, walk)
                if depth > 0:
                    control.depth, control.n_matches, control.is_due = depth, 0, 1
                    phase = ENUMERATE
                    if rivals is not None:
                        for i in range(depth):
                            walk.root[U(i)] = walk.stack_node[U(i)]
                elif symbol < 0:
                    at += 1
                    continue

        if phase == UPDATE:
            begins = steps.unmarked[U(symbol)]
            n_begun = steps.marks_to[U(symbol)] - steps.marks_from[U(symbol)]
            if silences is not None:
                since = time - broken.before[slot]
                if broken.was_before[slot] != 0 and 0 <= since <= silences.before:
                    begins, n_begun = NOWHERE, 0
            # This test stands alone, so that `merged` can leave out what follows.
            if keys is not None:  # noqa: SIM102
                if key_of[U(at)] != key:
                    other = key_of[U(at)]
                    is_forgotten = consumes == CONSUME_ALL and keys.epoch[other] != control.n_emitted
                    if begins == NOWHERE and n_begun == 0:
                        is_touched = touches_key(keys, other, steps, symbol)
                        if is_forgotten or not is_touched:
                            if silences is not None:
                                note_breaks(symbol, row, time, slot, silences, broken)
                            at += 1
                            continue
                    if key >= 0:
                        has_room = put_away(control, key, lists, keys, pool)
                        if not has_room:
                            save(control, at, phase, key, n_nodes)
                            return GROW
                    take_out(other, is_forgotten, lists, keys, pool)
                    key = other
            n_touched, n_steps, are_known = find_touched(symbol, steps, lists, touched)
            if begins == UNKNOWN or not are_known:
                control.missing_symbol = symbol
                save(control, at, phase, key, n_nodes)
                return MISS
            n_steps += n_begun
            if n_touched == 0 and n_steps == 0 and begins == NOWHERE:
                if silences is not None:
                    note_breaks(symbol, row, time, slot, silences, broken)
                at += 1
                continue
            sort_by_rank(touched.state, n_touched, steps.rank)
            # INVARIANT: the code below makes no more nodes than this for the event.
            needed = (n_touched + 1) * NODES_PER_STATE + n_steps * NODES_PER_STEP
            if n_nodes + needed > capacity:
                control.nodes_needed, control.pool_needed = needed, 0
                save(control, at, phase, key, n_nodes)
                return GROW
            if silences is not None:
                has_room = True
                if silences.is_awaited:
                    has_room = has_room_to_wait(control, waiting, roots, walk.root.shape[0])
                if not has_room:
                    save(control, at, phase, key, n_nodes)
                    return WAIT
            work -= n_touched + n_steps
            if work < 0:
                save(control, at, phase, key, n_nodes)
                return PAUSE
            if silences is not None:
                note_breaks(symbol, row, time, slot, silences, broken)
            n_live, n_nodes = take_touched(n_touched, n_nodes, now, size, symbol, steps, lists, arena, touched)
            n_nodes = take_steps(n_live, n_nodes, now, row, begins, n_begun, symbol, steps, lists, arena, touched)
            depth = put_complete(now, size, steps, lists, arena, touched, walk)
            if depth == 0:
                at += 1
                continue
            if silences is not None:  # noqa: SIM102
                if silences.is_awaited:
                    wait(control, row, time, now, slot, depth, waiting, roots, walk)
                    at += 1
                    continue
            control.depth, control.n_matches = depth, 0
            phase = ENUMERATE
            if rivals is not None:
                for i in range(depth):
                    walk.root[U(i)] = walk.stack_node[U(i)]

        if silences is not None:  # noqa: SIM102
            if control.is_due != 0:
                now, row = waiting.measure[control.first_waiting], waiting.row[control.first_waiting]
        if rivals is None:
            has_room = enumerate_matches(control, limit, size, now, row, arena, walk, output)
            if not has_room:
                save(control, at, phase, key, n_nodes)
                return FULL
        else:
            if phase == ENUMERATE:
                n_roots, first_out, first_value = control.depth, control.n_out, control.n_values
                few = FEW if choice.patience > 0 else 0
                is_written, has_room = False, True
                if keeps != KEEP_MAX and few > 0:
                    is_written = write_best(control, choice, keeps, n_roots, size, now, row, arena, walk, output)
                if not is_written:
                    has_room = enumerate_matches(control, few, size, now, row, arena, walk, output)
                if is_written:
                    control.depth = 0
                elif has_room and control.depth == 0:
                    keep_few(control, keeps, limit, first_out, first_value, row, output)
                else:
                    begin(choice, n_roots, walk)
                    control.depth, control.n_out, control.n_values = n_roots, first_out, first_value
                    control.n_matches = 0
                    phase = CHOOSE
            if phase == CHOOSE:
                reason = choose(control, choice, keeps, limit, size, now, row, arena, walk, rivals, output)
                if reason != DONE:
                    save(control, at, phase, key, n_nodes)
                    return reason
        control.depth = 0
        if control.n_matches > 0:
            control.n_emitted += 1
            if consumes != CONSUME_NOTHING:
                if silences is None:  # noqa: SIM114
                    forget_runs(lists)
                elif control.is_due == 0:
                    forget_runs(lists)
                else:
                    # Waiting matches of the current event are not among those that are due.
                    done = first_row + rows[U(at)] + (1 if symbol < 0 else 0)
                    forget_due(control, consumes, done, key, lists, keys, broken, waiting)
                if keys is None:
                    n_nodes = 0
        phase = UPDATE
        if silences is not None:  # noqa: SIM102
            if control.is_due != 0:
                control.is_due = 0
                control.first_waiting += 1
                continue
        at += 1

    save(control, at, phase, key, n_nodes)
    return DONE
