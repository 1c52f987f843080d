"""Reads from the arena the matches that one event completes; part of the kernel."""

from __future__ import annotations

import numpy as np

from ceql.engine.inlining import inlined
from ceql.engine.run.arena import BOTTOM, END, UNION
from ceql.engine.run.bits import U


@inlined
def enumerate_matches(control, most, size, now, row, arena, walk, output):
    """Write matches until the stack is empty or there are `most` for this event; return whether there was room.

    If there was no room, the stack is as it was before the match that did not fit, so that the next call can go on from
    there. Labels are not written if all are the same.
    """
    depth, n_matches, n_out, n_values = control.depth, control.n_matches, control.n_out, control.n_values
    kind, link, data, start = arena.kind, arena.link, arena.data, arena.start
    stack_node, stack_depth, path_row, path_label = walk.stack_node, walk.stack_depth, walk.path_row, walk.path_label
    out_start, out_end, out_offset, out_row, out_label = output
    deepest, longest = stack_node.shape[0] - 1, path_row.shape[0]
    has_labels = out_label.shape[0] > 0
    has_room = True
    while depth > 0 and n_matches < most:
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
            # Undo this descent: put the node where it began back on the stack.
            stack_node[U(base)] = base_node
            stack_depth[U(base)] = base_length
            depth = base + 1
            has_room = False
            break
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
    control.depth, control.n_matches, control.n_out, control.n_values = depth, n_matches, n_out, n_values
    return has_room
