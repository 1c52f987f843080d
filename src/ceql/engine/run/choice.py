"""Which of the matches that one event completes a strategy keeps, compiled by Numba.

NEXT, LAST and MAX compare matches of different starts, which is only possible when they are
enumerated. Nothing is kept of a match but its set of positions, so the matches are walked through
twice: first to find the sets that win, then to write every match that has one of them. Thus what is
held does not depend on how many labellings a set has, and output can be handed out at any moment.

NEXT and LAST have one winner: what is held is one match. MAX has many: the sets that no other one
contains so far, found again by their hash.

Many labellings of the same positions would make the walks long for nothing. So once the first has
taken a while it begins again and notes where it has been: a node that it reaches a second time, with
the same positions behind it, is left. The second walk then notes where it has been in vain. Positions
behind a node are known by a number, which they get from the number of those before, and from the last.
"""

from __future__ import annotations

import numpy as np

from ceql.engine.compiled import compiled
from ceql.engine.run.arena import BOTTOM, END, UNION
from ceql.engine.run.requests import CROWDED, DEEP, DONE, FULL, PAUSE, WORK_AT_ONCE

KEEP_ALL, KEEP_NEXT, KEEP_LAST, KEEP_MAX = 0, 1, 2, 3
"""Which of the matches that one event completes are kept. Only sets of positions are compared: equal
sets under other labels or from another start are all kept.

NEXT keeps the set that holds the smallest position by which it differs from any other, LAST the one
that holds the largest, MAX those that no other strictly contains."""

COMPARE, WRITE = 0, 1
"""The two walks."""

# Fields of a choice's own control vector.
WALK, N_ROOTS, AGREES, IS_BETTER, BEST_LENGTH, N_KEPT, N_DEAD, N_KEPT_ROWS, SHORTEST, LONGEST = range(10)
NOTES, STEPS, N_NOTED, N_PREFIXES = 10, 11, 12, 13
FRUITFUL = 14
"""While nodes up to here are on the stack, matches were written."""
SERIAL = 15
"""A number for each event for which a choice is made: entries of tables that have another are free."""
PATIENCE = 16
"""Steps of a walk before it begins to take notes; with none, `advance` does not choose among few matches by itself."""
N_CHOICE = 17

LEAVE = -1
"""The depth of a node on the stack that has been left."""
IN_VAIN = 1 << 40
"""Added to a node's number where no match can be written from it."""

NOBODY = -1
"""The length of the best set as long as there is none, and of a set that another contains."""

NOTHING = 0
"""The number of no positions at all."""

U = np.uint64
HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@compiled
def begin(choice, n_roots, root_node, stack_node, stack_depth, stack_prefix):
    """Put the nodes on the stack where the walks begin, and forget what was there for the last event."""
    put_roots(n_roots, root_node, stack_node, stack_depth, stack_prefix)
    serial, patience = choice[SERIAL] + 1, choice[PATIENCE]
    choice[:] = 0
    choice[SERIAL], choice[PATIENCE] = serial, patience
    choice[N_ROOTS] = n_roots
    choice[BEST_LENGTH] = NOBODY


@compiled
def put_roots(n_roots, root_node, stack_node, stack_depth, stack_prefix):
    """Put the nodes on the stack where a walk begins."""
    for i in range(n_roots):
        stack_node[i], stack_depth[i], stack_prefix[i] = root_node[i], 0, NOTHING


@compiled
def is_inside(small, large):
    """Return whether a sorted set is part of another, longer one."""
    if len(small) == 0:
        return True
    if large[0] > small[0] or large[-1] < small[-1]:
        return False
    i = 0
    for j in range(len(large)):
        if large[j] == small[i]:
            i += 1
            if i == len(small):
                return True
        elif large[j] > small[i]:
            return False
    return False


@compiled
def hashed(number, value):
    """Return a hash of a number that continues a hash of those before it."""
    mixed = (number ^ U(value)) * HASH_FACTOR
    return mixed ^ (mixed >> U(32))


@compiled
def find(wanted, path, serial, kept_row, kept_from, kept_length, kept_hash, table, table_serial):
    """Return where the table has a set of positions, or the free entry where it would have it."""
    mask = U(len(table) - 1)
    slot = wanted & mask
    while table_serial[slot] == serial:
        one = table[slot]
        if kept_hash[one] == wanted and kept_length[one] == len(path):
            first = kept_from[one]
            is_same = True
            for i in range(len(path)):
                if kept_row[first + i] != path[i]:
                    is_same = False
                    break
            if is_same:
                return slot
        slot = (slot + U(1)) & mask
    return slot


@compiled
def pack(choice, kept_row, kept_from, kept_length, kept_hash, table, table_serial):
    """Move the sets together that no other contains, and make the table anew."""
    table_serial[:] = 0
    serial = choice[SERIAL]
    n_kept, n_rows = 0, 0
    for one in range(choice[N_KEPT]):
        length = kept_length[one]
        if length == NOBODY:
            continue
        first = kept_from[one]
        kept_row[n_rows : n_rows + length] = kept_row[first : first + length]
        kept_from[n_kept], kept_length[n_kept], kept_hash[n_kept] = n_rows, length, kept_hash[one]
        path = kept_row[n_rows : n_rows + length]
        slot = find(kept_hash[n_kept], path, serial, kept_row, kept_from, kept_length, kept_hash, table, table_serial)
        table[slot], table_serial[slot] = n_kept, serial
        n_kept += 1
        n_rows += length
    choice[N_KEPT], choice[N_KEPT_ROWS], choice[N_DEAD] = n_kept, n_rows, 0


@compiled
def is_noted(choice, prefix, what, notes):
    """Return whether there is an entry for a prefix and a node."""
    mask = U(len(notes) - 1)
    slot = hashed(hashed(HASH_FACTOR, prefix), what) & mask
    while notes[slot, 0] == choice[SERIAL]:
        if notes[slot, 1] == prefix and notes[slot, 2] == what:
            return True
        slot = (slot + U(1)) & mask
    return False


@compiled
def note(choice, prefix, what, notes):
    """Return the entry for a prefix and a node (or the complement of a row), and whether it was there before."""
    serial = choice[SERIAL]
    mask = U(len(notes) - 1)
    slot = hashed(hashed(HASH_FACTOR, prefix), what) & mask
    while notes[slot, 0] == serial:
        if notes[slot, 1] == prefix and notes[slot, 2] == what:
            return slot, True
        slot = (slot + U(1)) & mask
    notes[slot, 0], notes[slot, 1], notes[slot, 2] = serial, prefix, what
    choice[N_NOTED] += 1
    return slot, False


@compiled
def move_notes(choice, old, new):
    """Copy all notes of the current event to a larger table."""
    choice[N_NOTED] = 0
    for i in range(len(old)):
        if old[i, 0] == choice[SERIAL]:
            slot, _ = note(choice, old[i, 1], old[i, 2], new)
            new[slot, 3] = old[i, 3]


@compiled
def keep_if_maximal(choice, wanted, path, kept_row, kept_from, kept_length, kept_hash, table, table_serial):
    """Add a set unless another one contains it, and let go of those that it contains; return the work done.

    The work is negative if there was no room, and nothing has changed then.
    """
    serial = choice[SERIAL]
    if choice[N_KEPT] == 0:
        choice[SHORTEST] = choice[LONGEST] = len(path)
    slot = find(wanted, path, serial, kept_row, kept_from, kept_length, kept_hash, table, table_serial)
    if table_serial[slot] == serial:
        return len(path)
    if choice[N_KEPT] == len(kept_from) or choice[N_KEPT_ROWS] + len(path) > len(kept_row):
        if 2 * choice[N_DEAD] < choice[N_KEPT]:
            return -1
        pack(choice, kept_row, kept_from, kept_length, kept_hash, table, table_serial)
        slot = find(wanted, path, serial, kept_row, kept_from, kept_length, kept_hash, table, table_serial)
        if choice[N_KEPT] == len(kept_from) or choice[N_KEPT_ROWS] + len(path) > len(kept_row):
            return -1
    work = len(path)
    # Sets of one length do not contain one another.
    if choice[SHORTEST] != len(path) or choice[LONGEST] != len(path):
        for one in range(choice[N_KEPT]):
            length = kept_length[one]
            work += 1
            if length == NOBODY or length == len(path):
                continue
            other = kept_row[kept_from[one] : kept_from[one] + length]
            work += length
            if length > len(path):
                if is_inside(path, other):
                    return work
            elif is_inside(other, path):
                kept_length[one] = NOBODY
                choice[N_DEAD] += 1
    new = choice[N_KEPT]
    kept_from[new], kept_length[new], kept_hash[new] = choice[N_KEPT_ROWS], len(path), wanted
    kept_row[choice[N_KEPT_ROWS] : choice[N_KEPT_ROWS] + len(path)] = path
    table[slot], table_serial[slot] = new, serial
    choice[N_KEPT] += 1
    choice[N_KEPT_ROWS] += len(path)
    choice[SHORTEST] = min(choice[SHORTEST], len(path))
    choice[LONGEST] = max(choice[LONGEST], len(path))
    return work


@compiled
def choose(
    choice,
    counts,
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
    table,
    table_serial,
    notes,
    out_start,
    out_end,
    out_offset,
    out_row,
    out_label,
):
    """Write the matches that are kept of those on the stack; return why it stopped.

    `counts` are the depth of the stack, the matches and positions in the output, and the matches
    written for this event; their new values are returned too. Called again, it goes on where it was.
    """
    depth, n_out, n_values, n_matches = counts
    has_labels = out_label.shape[0] > 0
    deepest, longest = stack_node.shape[0] - 1, path_row.shape[0]
    work = WORK_AT_ONCE
    reason = DONE
    while True:
        is_writing = choice[WALK] == WRITE
        begins_to_note = not is_writing and not choice[NOTES] and choice[STEPS] >= choice[PATIENCE]
        if begins_to_note or (depth == 0 and not is_writing):
            if begins_to_note:
                choice[NOTES] = 1
            else:
                choice[WALK] = WRITE
            choice[AGREES] = choice[IS_BETTER] = 0
            depth = choice[N_ROOTS]
            put_roots(depth, root_node, stack_node, stack_depth, stack_prefix)
            continue
        if depth == 0 or (is_writing and n_matches >= limit):
            depth = 0
            break
        if work < 0:
            reason = PAUSE
            break
        depth -= 1
        node = stack_node[depth]
        length = np.int64(stack_depth[depth])
        prefix = stack_prefix[depth]
        has_notes = choice[NOTES] == 1
        is_fruitful = depth < choice[FRUITFUL]
        choice[FRUITFUL] = min(choice[FRUITFUL], depth)
        if length == LEAVE:
            if not is_fruitful:
                note(choice, prefix, np.int64(node) + IN_VAIN, notes)
            continue
        # Paths are written from their end, and the best one too. LAST is decided by the first position from the end
        # that differs; for NEXT and LAST only the best one is written. So a branch is left as soon as it differs.
        follows = keeps != KEEP_MAX and (is_writing or keeps == KEEP_LAST) and choice[BEST_LENGTH] != NOBODY
        agrees = min(choice[AGREES], length)
        is_better = choice[IS_BETTER] == 1
        choice[IS_BETTER] = 0
        is_left, is_whole = False, False
        n_steps = 0
        while True:
            n_steps += 1
            what = kind[node]
            is_first = link[node] == END
            if depth >= deepest - 1 or (what >= 0 and length == longest):
                reason = DEEP
                break
            if has_notes and not is_first:
                if 4 * choice[N_NOTED] > 3 * len(notes):
                    reason = CROWDED
                    break
                if not is_writing:
                    _, is_left = note(choice, prefix, np.int64(node), notes)
                else:
                    is_left = is_noted(choice, prefix, np.int64(node) + IN_VAIN, notes)
                if is_left:
                    break
                if is_writing:
                    stack_node[depth] = node
                    stack_depth[depth] = LEAVE
                    stack_prefix[depth] = prefix
                    depth += 1
            if what == UNION:
                right = data[node]
                if 0 <= now - start[right] <= size:
                    stack_node[depth] = right
                    stack_depth[depth] = length
                    stack_prefix[depth] = prefix
                    depth += 1
                node = link[node]
                continue
            if what != BOTTOM:
                at = longest - 1 - length
                path_row[at] = data[node]
                if has_labels:
                    path_label[at] = what
                if follows and not is_better:
                    has_more = length < choice[BEST_LENGTH]
                    if has_more and best_row[at] == path_row[at]:
                        agrees = length + 1
                    elif is_writing or (has_more and best_row[at] > path_row[at]):
                        is_left = True
                        break
                    else:
                        is_better = True
                length += 1
            if is_first:
                is_whole = True
                break
            if has_notes and what != BOTTOM:
                slot, was_there = note(choice, prefix, ~data[node], notes)
                if not was_there:
                    choice[N_PREFIXES] += 1
                    notes[slot, 3] = choice[N_PREFIXES]
                prefix = notes[slot, 3]
            node = link[node]
        choice[AGREES] = agrees
        choice[STEPS] += n_steps
        work -= n_steps
        if is_left:
            continue
        first = longest - length
        is_kept = is_whole
        if is_whole and keeps == KEEP_MAX:
            wanted = HASH_FACTOR
            for i in range(first, longest):
                wanted = hashed(wanted, path_row[i])
            path = path_row[first:]
            if is_writing:
                slot = find(
                    wanted, path, choice[SERIAL], kept_row, kept_from, kept_length, kept_hash, table, table_serial
                )
                is_kept = table_serial[slot] == choice[SERIAL]
            else:
                done = keep_if_maximal(
                    choice, wanted, path, kept_row, kept_from, kept_length, kept_hash, table, table_serial
                )
                if done < 0:
                    reason = CROWDED
                work -= done
        elif is_whole and is_writing:
            is_kept = length == choice[BEST_LENGTH]
        elif is_whole and keeps == KEEP_NEXT and choice[BEST_LENGTH] != NOBODY:
            i, j = first, longest - choice[BEST_LENGTH]
            while i < longest and j < longest and path_row[i] == best_row[j]:
                i += 1
                j += 1
            is_better = i < longest and (j == longest or path_row[i] < best_row[j])
        if is_writing and is_kept and (n_out >= out_start.shape[0] or n_values + length > out_row.shape[0]):
            reason = FULL
        if reason != DONE:
            # The node that it stopped at is the next one when it goes on.
            stack_node[depth] = node
            stack_depth[depth] = length - (is_whole and kind[node] != BOTTOM)
            stack_prefix[depth] = prefix
            depth += 1
            choice[IS_BETTER] = is_better
            break
        if is_writing and is_kept:
            out_row[n_values : n_values + length] = path_row[first:]
            if has_labels:
                out_label[n_values : n_values + length] = path_label[first:]
            n_values += length
            out_start[n_out] = data[node]
            out_end[n_out] = row
            n_out += 1
            out_offset[n_out] = n_values
            n_matches += 1
            choice[FRUITFUL] = depth
        elif not is_writing and keeps != KEEP_MAX and (is_better or choice[BEST_LENGTH] == NOBODY):
            best_row[first:] = path_row[first:]
            choice[BEST_LENGTH] = choice[AGREES] = length
    return reason, depth, n_out, n_values, n_matches
