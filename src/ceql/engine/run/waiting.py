"""Matches that wait until a silence after them is over; part of the kernel.

An event that completes matches is an entry in a queue, with the nodes from which its matches are enumerated. Deadlines
come in the order of the events, so one queue is enough for all partition keys.
"""

from __future__ import annotations

from ceql.engine.inlining import inlined
from ceql.engine.intake.moments import ALL_IS_OVER, TIME_IS_OVER
from ceql.engine.run.bits import U
from ceql.engine.run.modes import BREAKS_AFTER, BREAKS_BEFORE, CONSUME_ALL


@inlined
def put_due(control, symbol, time, silences, broken, waiting, roots, walk):
    """Put the roots of the first event whose silence is over on the stack; return how many there are."""
    depth = 0
    while depth == 0 and control.first_waiting < control.n_waiting:
        first = control.first_waiting
        elapsed = time - waiting.time[first]
        is_over = elapsed > silences.after or elapsed < 0 or (symbol == TIME_IS_OVER and elapsed == silences.after)
        if not (is_over or symbol == ALL_IS_OVER):
            break
        if waiting.row[first] < broken.after[waiting.key[first]]:
            control.first_waiting += 1
        else:
            depth = waiting.length[first]
            for i in range(depth):
                walk.stack_node[U(i)] = roots[waiting.first[first] + i]
                walk.stack_depth[U(i)] = 0
    return depth


@inlined
def has_room_to_wait(control, waiting, roots, n_roots):
    """Return whether one more event with some roots can wait; events that no longer wait give up their room."""
    has_room = control.n_waiting < waiting.row.shape[0] and control.n_roots + n_roots <= roots.shape[0]
    if not has_room and control.first_waiting >= control.kept_waiting:
        first, end, to = control.first_waiting, control.n_waiting, control.kept_waiting
        first_root = waiting.first[first] if first < end else control.n_roots
        shift = first_root - control.kept_roots
        for i in range(end - first):
            waiting.row[to + i] = waiting.row[first + i]
            waiting.time[to + i] = waiting.time[first + i]
            waiting.measure[to + i] = waiting.measure[first + i]
            waiting.key[to + i] = waiting.key[first + i]
            waiting.first[to + i] = waiting.first[first + i] - shift
            waiting.length[to + i] = waiting.length[first + i]
        for i in range(first_root, control.n_roots):
            roots[i - shift] = roots[i]
        control.first_waiting, control.n_waiting = to, to + end - first
        control.n_roots -= shift
        # With less than half of it free, this would have to be done too often.
        has_room = 2 * control.n_waiting <= waiting.row.shape[0] and 2 * control.n_roots + n_roots <= roots.shape[0]
    return has_room


@inlined
def wait(control, row, time, now, slot, depth, waiting, roots, walk):
    """Let the matches on the stack wait for their silence."""
    at_end, n_roots = control.n_waiting, control.n_roots
    waiting.row[at_end] = row
    waiting.time[at_end] = time
    waiting.measure[at_end] = now
    waiting.key[at_end] = slot
    waiting.first[at_end] = n_roots
    waiting.length[at_end] = depth
    for i in range(depth):
        roots[n_roots + i] = walk.stack_node[U(i)]
    control.n_waiting = at_end + 1
    control.n_roots = n_roots + depth


@inlined
def note_breaks(symbol, row, time, slot, silences, broken):
    """Note which silences of its partition key an event breaks."""
    if silences.breaks[symbol] & BREAKS_AFTER != 0:
        broken.after[slot] = row
    if silences.breaks[symbol] & BREAKS_BEFORE != 0:
        broken.was_before[slot] = 1
        broken.before[slot] = time


@inlined
def forget_runs(lists):
    """Forget the runs of the current key."""
    for word in range(lists.active.shape[0]):
        lists.active[U(word)] = 0


@inlined
def forget_due(control, consumes, row, key, lists, keys, broken, waiting):
    """Forget the runs and the waiting matches of the key of matches that are due, or of all keys."""
    due = waiting.key[control.first_waiting]
    if consumes == CONSUME_ALL:
        control.first_waiting = control.n_waiting - 1
    else:
        broken.after[due] = row
    is_current = True
    if keys is not None:
        is_current = consumes == CONSUME_ALL or key == due
        if not is_current:
            keys.length[due] = 0
            for word in range(keys.active.shape[1]):
                keys.active[due, word] = 0
    if is_current:
        forget_runs(lists)
