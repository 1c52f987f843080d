"""Chooses which of the matches of one event a strategy keeps, compiled by Numba.

NEXT, LAST and MAX compare matches of different starts, which is only possible while they are
enumerated. Only the set of positions of a match is kept, so the matches are walked through twice:
first to find the sets that win, then to write every match that has such a set. So memory does not
depend on how many labellings a set has, and output can be handed out at any moment.

NEXT and LAST have one winner, so only one match is held. MAX has many winners: the sets that no
other set contains so far. They are found by their hash.

Many labellings of the same positions would make the walks long for nothing. So after a while the
first walk begins again and notes where it has been: when it reaches a node a second time, with the
same positions behind it, it skips the node. The second walk then notes nodes that led to no match.
The positions behind a node have a number, made from the last position and the number of the others.

If there are only a few matches, `keep_few` compares them in place, in the output.

Before all this, `write_best` looks for the winner of NEXT or LAST alone, without comparing whole matches: LAST goes
back from the last event and always takes the latest position that some match has, and under NEXT that match wins which
begins first. If this does not lead to exactly one match, the above decides.
"""

from __future__ import annotations

import numpy as np

from ceql.engine.compiled import compiled_in_place
from ceql.engine.inlining import inlined
from ceql.engine.run.arena import BOTTOM, END, UNION
from ceql.engine.run.bits import U
from ceql.engine.run.modes import KEEP_LAST, KEEP_MAX, KEEP_NEXT
from ceql.engine.run.requests import CROWDED, DEEP, DONE, FULL, PAUSE, WORK_AT_ONCE

LEAVE = -1
"""Stands on the stack instead of a depth: here the walk leaves the node."""
IN_VAIN = 1 << 40
"""Added to the number of a node from which no match can be written."""

NOBODY = -1
"""The length of the best set before there is one, and of a set that another set contains."""

NOTHING = 0
"""The number of the empty set of positions."""

DROPPED = -1
"""The end of a match in the output that is not kept."""

HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@inlined
def copy_numbers(source, first, target, to, length):
    """Copy some numbers to another array, or to an earlier place of the same array."""
    for i in range(U(length)):
        target[U(to) + i] = source[U(first) + i]


@compiled_in_place
def begin(choice, n_roots, walk):
    """Put on the stack the nodes where the walks begin, and forget the data of the last event."""
    put_roots(n_roots, walk)
    choice.serial += 1
    choice.n_roots = n_roots
    choice.best_length = NOBODY
    choice.is_writing = choice.takes_notes = choice.n_steps = 0
    choice.agrees = choice.is_better = choice.fruitful = 0
    choice.n_noted = choice.n_prefixes = 0
    choice.n_kept = choice.n_dead = choice.n_kept_rows = choice.shortest = choice.longest = 0


@compiled_in_place
def put_roots(n_roots, walk):
    """Put on the stack the nodes where a walk begins."""
    for i in range(n_roots):
        walk.stack_node[i], walk.stack_depth[i], walk.stack_prefix[i] = walk.root[i], 0, NOTHING


@compiled_in_place
def is_inside(small, large):
    """Return whether a sorted set is part of a longer sorted set."""
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


@compiled_in_place
def hashed(number, value):
    """Return the hash of a sequence, given the hash of all but its last number, and that number."""
    mixed = (number ^ U(value)) * HASH_FACTOR
    return mixed ^ (mixed >> U(32))


@compiled_in_place
def find(wanted, path, serial, rivals):
    """Return the entry of the table for a set of positions; it is free if the set is not there."""
    mask = U(len(rivals.table) - 1)
    slot = wanted & mask
    while rivals.serial[slot] == serial:
        kept = rivals.table[slot]
        if rivals.hash[kept] == wanted and rivals.length[kept] == len(path):
            first = rivals.first[kept]
            is_same = True
            for i in range(len(path)):
                if rivals.row[first + i] != path[i]:
                    is_same = False
                    break
            if is_same:
                return slot
        slot = (slot + U(1)) & mask
    return slot


@compiled_in_place
def pack(choice, rivals):
    """Move the sets that no other set contains together, and build the table anew."""
    rivals.serial[:] = 0
    serial = choice.serial
    n_kept, n_rows = 0, 0
    for old in range(choice.n_kept):
        length = rivals.length[old]
        if length == NOBODY:
            continue
        first = rivals.first[old]
        copy_numbers(rivals.row, first, rivals.row, n_rows, length)
        rivals.first[n_kept], rivals.length[n_kept], rivals.hash[n_kept] = n_rows, length, rivals.hash[old]
        slot = find(rivals.hash[n_kept], rivals.row[n_rows : n_rows + length], serial, rivals)
        rivals.table[slot], rivals.serial[slot] = n_kept, serial
        n_kept += 1
        n_rows += length
    choice.n_kept, choice.n_kept_rows, choice.n_dead = n_kept, n_rows, 0


@inlined
def is_crowded(choice, notes):
    """Return whether there is too little room for another note: a search in a full table would never end."""
    return 4 * choice.n_noted > 3 * len(notes)


@compiled_in_place
def is_noted(choice, prefix, what, notes):
    """Return whether there is an entry for a prefix and a node."""
    mask = U(len(notes) - 1)
    slot = hashed(hashed(HASH_FACTOR, prefix), what) & mask
    while notes[slot, 0] == choice.serial:
        if notes[slot, 1] == prefix and notes[slot, 2] == what:
            return True
        slot = (slot + U(1)) & mask
    return False


@compiled_in_place
def note(choice, prefix, what, notes):
    """Return the entry for a prefix and a node (or the complement of a row), and whether it was there before."""
    serial = choice.serial
    mask = U(len(notes) - 1)
    slot = hashed(hashed(HASH_FACTOR, prefix), what) & mask
    while notes[slot, 0] == serial:
        if notes[slot, 1] == prefix and notes[slot, 2] == what:
            return slot, True
        slot = (slot + U(1)) & mask
    notes[slot, 0], notes[slot, 1], notes[slot, 2] = serial, prefix, what
    choice.n_noted += 1
    return slot, False


@compiled_in_place
def move_notes(choice, old, new):
    """Copy all notes of the current event to a larger table."""
    choice.n_noted = 0
    for i in range(len(old)):
        if old[i, 0] == choice.serial:
            slot, _ = note(choice, old[i, 1], old[i, 2], new)
            new[slot, 3] = old[i, 3]


@compiled_in_place
def keep_if_maximal(choice, wanted, path, rivals):
    """Add a set unless another set contains it, and drop the sets that it contains; return the work done.

    If there is no room, nothing changes and the result is negative.
    """
    serial = choice.serial
    if choice.n_kept == 0:
        choice.shortest = choice.longest = len(path)
    slot = find(wanted, path, serial, rivals)
    if rivals.serial[slot] == serial:
        return len(path)
    if choice.n_kept == len(rivals.first) or choice.n_kept_rows + len(path) > len(rivals.row):
        if 2 * choice.n_dead < choice.n_kept:
            return -1
        pack(choice, rivals)
        slot = find(wanted, path, serial, rivals)
        if choice.n_kept == len(rivals.first) or choice.n_kept_rows + len(path) > len(rivals.row):
            return -1
    work = len(path)
    # Sets of equal length do not contain one another.
    if choice.shortest != len(path) or choice.longest != len(path):
        for kept in range(choice.n_kept):
            length = rivals.length[kept]
            work += 1
            if length == NOBODY or length == len(path):
                continue
            other = rivals.row[rivals.first[kept] : rivals.first[kept] + length]
            work += length
            if length > len(path):
                if is_inside(path, other):
                    return work
            elif is_inside(other, path):
                rivals.length[kept] = NOBODY
                choice.n_dead += 1
    new = choice.n_kept
    rivals.first[new], rivals.length[new], rivals.hash[new] = choice.n_kept_rows, len(path), wanted
    copy_numbers(path, 0, rivals.row, choice.n_kept_rows, len(path))
    rivals.table[slot], rivals.serial[slot] = new, serial
    choice.n_kept += 1
    choice.n_kept_rows += len(path)
    choice.shortest = min(choice.shortest, len(path))
    choice.longest = max(choice.longest, len(path))
    return work


@compiled_in_place
def choose(control, choice, keeps, limit, size, now, row, arena, walk, rivals, output):
    """Write those matches of the nodes on the stack that are kept; return why it stopped.

    The next call goes on where this one stopped.
    """
    depth, n_out, n_values, n_matches = control.depth, control.n_out, control.n_values, control.n_matches
    kind, link, data, start = arena
    stack_node, stack_depth, stack_prefix, path_row, path_label, _, best_row = walk
    notes = rivals.notes
    has_labels = output.label.shape[0] > 0
    deepest, longest = stack_node.shape[0] - 1, path_row.shape[0]
    work = WORK_AT_ONCE
    reason = DONE
    while True:
        is_writing = choice.is_writing == 1
        begins_to_note = not is_writing and not choice.takes_notes and choice.n_steps >= choice.patience
        if begins_to_note or (depth == 0 and not is_writing):
            if begins_to_note:
                choice.takes_notes = 1
            else:
                choice.is_writing = 1
            choice.agrees = choice.is_better = 0
            depth = choice.n_roots
            put_roots(depth, walk)
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
        has_notes = choice.takes_notes == 1
        is_fruitful = depth < choice.fruitful
        choice.fruitful = min(choice.fruitful, depth)
        if length == LEAVE:
            if not is_fruitful:
                if is_crowded(choice, notes):
                    # The node stays on the stack until there is room.
                    depth += 1
                    reason = CROWDED
                    break
                note(choice, prefix, np.int64(node) + IN_VAIN, notes)
            continue
        # All paths, also the best one, are written from their end. The first position from the end that differs decides
        # LAST; for NEXT and LAST only the best path is written. So a branch is left as soon as it differs.
        follows = keeps != KEEP_MAX and (is_writing or keeps == KEEP_LAST) and choice.best_length != NOBODY
        agrees = min(choice.agrees, length)
        is_better = choice.is_better == 1
        choice.is_better = 0
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
                if is_crowded(choice, notes):
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
                    has_more = length < choice.best_length
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
                    choice.n_prefixes += 1
                    notes[slot, 3] = choice.n_prefixes
                prefix = notes[slot, 3]
            node = link[node]
        choice.agrees = agrees
        choice.n_steps += n_steps
        work -= n_steps
        if is_left:
            continue
        first = longest - length
        is_kept = is_whole
        if is_whole and keeps == KEEP_MAX:
            wanted = HASH_FACTOR
            for i in range(first, longest):
                wanted = hashed(wanted, path_row[i])
            if is_writing:
                slot = find(wanted, path_row[first:], choice.serial, rivals)
                is_kept = rivals.serial[slot] == choice.serial
            else:
                done = keep_if_maximal(choice, wanted, path_row[first:], rivals)
                if done < 0:
                    reason = CROWDED
                work -= done
        elif is_whole and is_writing:
            is_kept = length == choice.best_length
        elif is_whole and keeps == KEEP_NEXT and choice.best_length != NOBODY:
            i, j = first, longest - choice.best_length
            while i < longest and j < longest and path_row[i] == best_row[j]:
                i += 1
                j += 1
            is_better = i < longest and (j == longest or path_row[i] < best_row[j])
        if is_writing and is_kept and (n_out >= len(output.start) or n_values + length > len(output.row)):
            reason = FULL
        if reason != DONE:
            # The walk goes on with the node at which it stopped.
            stack_node[depth] = node
            stack_depth[depth] = length - (is_whole and kind[node] != BOTTOM)
            stack_prefix[depth] = prefix
            depth += 1
            choice.is_better = is_better
            break
        if is_writing and is_kept:
            copy_numbers(path_row, first, output.row, n_values, length)
            if has_labels:
                copy_numbers(path_label, first, output.label, n_values, length)
            n_values += length
            output.start[n_out] = data[node]
            output.end[n_out] = row
            n_out += 1
            output.offset[n_out] = n_values
            n_matches += 1
            choice.fruitful = depth
        elif not is_writing and keeps != KEEP_MAX and (is_better or choice.best_length == NOBODY):
            copy_numbers(path_row, first, best_row, first, length)
            choice.best_length = choice.agrees = length
    control.depth, control.n_out, control.n_values, control.n_matches = depth, n_out, n_values, n_matches
    return reason


@inlined
def write_best(control, choice, keeps, n_roots, size, now, row, arena, walk, output):
    """Write the match that NEXT or LAST keeps, if it is easily found to be the only one; return whether it is written.

    Else the stack is as it was.

    PERF: over `BUY+` of one stock, with about 65 of these events in a window of 1,000, an event took 144 instead of
    577 ns under NEXT, and 127 instead of 641 ns under LAST; 47 ns under ALL with LIMIT 1 (a busy machine, by turns).
    """
    kind, link, data, start = arena.kind, arena.link, arena.data, arena.start
    stack_node, stack_depth, reached = walk.stack_node, walk.stack_depth, walk.stack_prefix
    path_row, path_label = walk.path_row, walk.path_label
    deepest, longest = stack_node.shape[0] - 1, path_row.shape[0]
    has_labels = output.label.shape[0] > 0
    depth, length, n_steps = n_roots, 0, 0
    n_found, began = 0, 0
    is_clear = True
    if keeps == KEEP_LAST:
        # The stack has the nodes that all the positions of the path lead to, `reached` those of the next position.
        while depth > 0 and is_clear:
            latest, n_reached, label = -1, 0, 0
            is_alike = True
            while depth > 0 and is_clear:
                depth -= 1
                node = stack_node[U(depth)]
                while kind[U(node)] == UNION and is_clear:
                    right = data[U(node)]
                    age = now - start[U(right)]
                    if 0 <= age <= size:
                        stack_node[U(depth)] = right
                        depth += 1
                    node = link[U(node)]
                    n_steps += 1
                    is_clear = depth < deepest
                n_steps += 1
                if kind[U(node)] == BOTTOM:
                    n_found += 1
                    began = data[U(node)]
                elif data[U(node)] >= latest:
                    if data[U(node)] > latest:
                        latest, n_reached, label = data[U(node)], 0, kind[U(node)]
                        is_alike = True
                    is_alike = is_alike and kind[U(node)] == label
                    reached[U(n_reached)] = node
                    n_reached += 1
                is_clear = is_clear and n_steps < choice.patience + 4 * length
            if n_reached > 0:
                # Matches without this position lose.
                n_found = 0
                is_clear = is_clear and is_alike and length < longest
                if is_clear:
                    length += 1
                    path_row[U(longest - length)] = latest
                    path_label[U(longest - length)] = label
                    for i in range(n_reached):
                        node = reached[U(i)]
                        if link[U(node)] == END:
                            n_found += 1
                            began = latest
                        else:
                            stack_node[U(depth)] = link[U(node)]
                            depth += 1
    else:
        # First it is found out where the first match begins, and then, on the second way, which match this is.
        is_known = False
        while depth > 0 and is_clear:
            depth -= 1
            node = stack_node[U(depth)]
            length = stack_depth[U(depth)]
            is_open = True
            while is_open and is_clear:
                n_steps += 1
                what = kind[U(node)]
                is_clear = depth < deepest and length < longest and n_steps < choice.patience
                if what == UNION:
                    right = data[U(node)]
                    age = now - start[U(right)]
                    if 0 <= age <= size:
                        # Earlier events are rather on the right.
                        stack_node[U(depth)] = link[U(node)]
                        stack_depth[U(depth)] = length
                        depth += 1
                        node = right
                    else:
                        node = link[U(node)]
                elif is_clear:
                    # A match whose first event is not marked does not win by its beginning.
                    is_clear = what != BOTTOM
                    length += 1
                    path_row[U(longest - length)] = data[U(node)]
                    path_label[U(longest - length)] = what
                    is_open = link[U(node)] != END
                    if is_open:
                        node = link[U(node)]
            if is_clear and is_known and data[U(node)] == began:
                break
            if is_clear and not is_known:
                if n_found == 0 or data[U(node)] < began:
                    n_found, began = 0, data[U(node)]
                n_found += data[U(node)] == began
                if depth == 0 and n_found == 1:
                    is_known = True
                    depth = n_roots
                    for i in range(n_roots):
                        stack_node[U(i)], stack_depth[U(i)] = walk.root[U(i)], 0
    n_out, n_values = control.n_out, control.n_values
    has_room = n_out < output.start.shape[0] and n_values + length <= output.row.shape[0]
    is_written = is_clear and n_found == 1 and has_room
    if is_written:
        for i in range(U(length)):
            output.row[U(n_values) + i] = path_row[U(longest - length) + i]
        if has_labels:
            for i in range(U(length)):
                output.label[U(n_values) + i] = path_label[U(longest - length) + i]
        output.start[U(n_out)], output.end[U(n_out)] = began, row
        output.offset[U(n_out + 1)] = n_values + length
        control.n_out, control.n_values, control.n_matches = n_out + 1, n_values + length, 1
    else:
        for i in range(n_roots):
            stack_node[U(i)], stack_depth[U(i)] = walk.root[U(i)], 0
    return is_written


@inlined
def keep_few(control, keeps, limit, first_out, first_value, row, output):
    """Drop from the output the matches of one event that are not kept; they begin at `first_out`.

    PERF: this is part of the kernel, because calling `choose` costs a microsecond. Over a million events of
    ten names, S3 with NEXT takes 52 instead of 101 ns per event, and MAX over a `+` 56 instead of 133.
    """
    out_start, out_end, out_offset, out_row, out_label = output
    n_out = control.n_out
    best = first_out
    if keeps != KEEP_MAX:
        for other in range(first_out + 1, n_out):
            is_better = is_better_match(keeps, other, best, out_offset, out_row)
            if is_better:
                best = other
    # All are compared before any is moved.
    for match in range(first_out, n_out):
        is_kept = True
        for other in range(first_out if keeps == KEEP_MAX else best, n_out if keeps == KEEP_MAX else best + 1):
            a, a_end = out_offset[U(match)], out_offset[U(match + 1)]
            b, b_end = out_offset[U(other)], out_offset[U(other + 1)]
            is_longer = b_end - b > a_end - a
            if keeps == KEEP_MAX and not is_longer:
                continue
            while a < a_end and b < b_end and out_row[U(b)] <= out_row[U(a)]:
                a += out_row[U(b)] == out_row[U(a)]
                b += 1
            is_part = a == a_end
            is_kept = not is_part if keeps == KEEP_MAX else is_part and not is_longer
            if not is_kept:
                break
        if not is_kept:
            out_end[U(match)] = DROPPED
    n_matches, n_values, n_kept = 0, first_value, first_out
    for match in range(first_out, n_out):
        if out_end[U(match)] == DROPPED or n_matches >= limit:
            continue
        from_value, to_value = out_offset[U(match)], out_offset[U(match + 1)]
        for i in range(from_value, to_value):
            out_row[U(n_values)] = out_row[U(i)]
            if out_label.shape[0] > 0:
                out_label[U(n_values)] = out_label[U(i)]
            n_values += 1
        out_start[U(n_kept)] = out_start[U(match)]
        out_end[U(n_kept)] = row
        n_kept += 1
        out_offset[U(n_kept)] = n_values
        n_matches += 1
    control.n_out, control.n_values, control.n_matches = n_kept, n_values, n_matches


@inlined
def is_better_match(keeps, match, best, out_offset, out_row):
    """Return whether a match of the output beats another: by the first difference for NEXT, by the last for LAST."""
    a, a_end = out_offset[U(best)], out_offset[U(best + 1)]
    b, b_end = out_offset[U(match)], out_offset[U(match + 1)]
    if keeps == KEEP_NEXT:
        while a < a_end and b < b_end and out_row[U(a)] == out_row[U(b)]:
            a += 1
            b += 1
        is_better = b < b_end and (a == a_end or out_row[U(b)] < out_row[U(a)])
    else:
        while a < a_end and b < b_end and out_row[U(a_end - 1)] == out_row[U(b_end - 1)]:
            a_end -= 1
            b_end -= 1
        is_better = b < b_end and (a == a_end or out_row[U(b_end - 1)] > out_row[U(a_end - 1)])
    return is_better
