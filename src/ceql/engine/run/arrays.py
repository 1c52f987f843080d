"""The data of the compiled loops: arrays in named groups, and two records of numbers.

A group is a tuple of arrays with entries for the same things. Compiled code changes entries in place; when an array
must grow, a new group replaces the old one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

IntArray = np.ndarray[Any, np.dtype[Any]]


class Rules(NamedTuple):
    """What a query asks for, as numbers."""

    size: Any
    """The greatest distance between the measures of the first and the last event of a match."""
    limit: int
    """Most matches that one event may complete."""
    consumes: int
    """What a match forgets: one of CONSUME_NOTHING, CONSUME_KEY, CONSUME_ALL."""
    keeps: int
    """Which matches are kept: one of KEEP_ALL, KEEP_NEXT, KEEP_LAST, KEEP_MAX."""


class Events(NamedTuple):
    """Events in the order of the stream; those that concern no run are left out."""

    symbols: IntArray
    rows: IntArray
    """Rows count from `first_row`."""
    first_row: int
    times: IntArray
    """The measure of every row, even if it is no event."""
    keys: IntArray
    """Slots of partition keys; empty without PARTITION BY."""
    clock: IntArray
    """The time of every row, in which silences are measured; empty if there are none."""


class Steps(NamedTuple):
    """The determinized automaton as far as it is known. Tables have an entry for `state * n_symbols + symbol`."""

    n_symbols: int
    unmarked: IntArray
    """The next state of a run that does not take the event: UNKNOWN, NOWHERE or a number."""
    marks_from: IntArray
    marks_to: IntArray
    """The range of steps in `label` and `target` for runs that take the event."""
    label: IntArray
    target: IntArray
    touching: IntArray
    """By symbol, the set of states that it may change: all states that do more than loop."""
    accepts: IntArray
    """The set of states in which a match is complete."""
    is_over: IntArray
    """Whether a state is complete and no run goes on from it."""
    rank: IntArray
    """The place of a state in an order that does not depend on when it was met."""


class Lists(NamedTuple):
    """The runs of the current key: for each state, the nodes of its runs; the runs that began last are at the end."""

    active: IntArray
    """The set of states that have runs."""
    nodes: IntArray
    length: IntArray
    merged: IntArray
    """The union of the whole list, or -1 if it has not been made yet."""


class Arena(NamedTuple):
    """The nodes, which share what open matches have in common; `arena.py` says what the fields mean."""

    kind: IntArray
    link: IntArray
    data: IntArray
    start: IntArray


class Keys(NamedTuple):
    """The runs of all other keys. Their lists are packed in the pool: state, length, nodes, and so on."""

    first: IntArray
    """Where in the pool a key's entries begin."""
    length: IntArray
    room: IntArray
    """Entries in use, and entries that there is room for."""
    epoch: IntArray
    """How many events had completed matches when the key was put away: CONSUME BY ANY forgets runs from before."""
    active: IntArray
    """The set of states that have runs."""
    events: IntArray
    """Events of the key so far, where the window counts them."""


class Silences(NamedTuple):
    """What may not come before or after a match, and for how long."""

    is_awaited: bool
    """Whether a match must wait for a silence after it."""
    before: Any
    after: Any
    """How long each silence lasts; -1 if there is none."""
    times: IntArray
    """The time of every row, in which silences are measured."""
    breaks: IntArray
    """By symbol, which silences the event breaks: bits BREAKS_BEFORE and BREAKS_AFTER."""


class Broken(NamedTuple):
    """When the silences of each partition key were last broken; one entry without PARTITION BY."""

    after: IntArray
    """The row of the last event that breaks the silence after a match: matches that wait since earlier rows fail."""
    was_before: IntArray
    before: IntArray
    """Whether an event has broken the silence before a match, and the time of the last one."""


class Waiting(NamedTuple):
    """Events that have completed matches which wait for their silence, in the order of the stream."""

    row: IntArray
    time: IntArray
    measure: IntArray
    """The event: its row, its time, and what the window measures."""
    key: IntArray
    """The slot of its partition key; 0 without PARTITION BY."""
    first: IntArray
    length: IntArray
    """Its entries in the array of roots: the nodes from which its matches are enumerated."""


class Touched(NamedTuple):
    """Scratch: the states that one event changes, with the nodes taken out of their lists."""

    state: IntArray
    node: IntArray
    """The union of the list, for steps that take the event."""
    length: IntArray
    moved: IntArray
    """The list itself, for runs that get to another state without taking the event."""


class Walk(NamedTuple):
    """Scratch: where the enumeration of one event's matches is. It goes on from here after the output was full."""

    stack_node: IntArray
    stack_depth: IntArray
    """Nodes that are still to be visited, and the length of the path up to each."""
    stack_prefix: IntArray
    """Where matches are compared: a number for the positions up to each node."""
    path_row: IntArray
    path_label: IntArray
    """The current match, written from its end, so that it can be copied in the order of time."""
    root: IntArray
    """The nodes that the enumeration began with."""
    best_row: IntArray
    """The positions that are best so far under NEXT and LAST, written from the end."""


class Rivals(NamedTuple):
    """Data for choosing among the matches of one event: sets of positions, and notes on where a walk has been.

    Table sizes are powers of two, because entries are found by bits of a hash. An entry is free if its serial is not
    the serial of the event.
    """

    row: IntArray
    """The positions of all sets, one set after the other."""
    first: IntArray
    length: IntArray
    hash: IntArray
    """By set: where its positions begin, how many there are, and their hash."""
    table: IntArray
    serial: IntArray
    """Numbers of sets by hash."""
    notes: IntArray
    """By hash: serial, prefix, node or row, number."""


class Output(NamedTuple):
    """Finished matches: one entry for each, and its positions between two offsets."""

    start: IntArray
    end: IntArray
    offset: IntArray
    row: IntArray
    label: IntArray
    """Empty where all labels are the same."""


Record = Any
"""One of the records below: named numbers, which compiled code and Python both change in place."""

CONTROL = np.dtype(
    (
        np.record,
        [
            ("at", np.int64),  # the current event
            ("phase", np.int64),  # its phase: UPDATE, ENUMERATE or CHOOSE
            ("key", np.int64),  # the slot of the partition key that `Lists` belongs to, or -1
            ("n_nodes", np.int64),  # nodes in the arena
            ("n_pool", np.int64),  # entries in the pool
            ("n_emitted", np.int64),  # events that have completed matches
            ("n_out", np.int64),  # matches in the output
            ("n_values", np.int64),  # positions in the output
            ("n_matches", np.int64),  # matches of the current event in the output
            ("depth", np.int64),  # nodes on the stack
            ("is_due", np.int64),  # whether these are of matches whose silence is over, the first that wait
            ("first_waiting", np.int64),
            ("n_waiting", np.int64),  # the events in `Waiting` that are in use are those between these two
            ("n_roots", np.int64),  # roots of waiting events
            ("kept_waiting", np.int64),
            ("kept_roots", np.int64),  # entries before these two may not be overwritten: undoing needs them
            ("missing_symbol", np.int64),  # with MISS: the symbol without transitions
            ("nodes_needed", np.int64),  # with GROW: the most nodes that the event may need
            ("pool_needed", np.int64),  # with GROW: the most entries of the pool that it may need
        ],
    )
)
"""Where the kernel is, and how much of each array is in use."""

CHOICE = np.dtype(
    (
        np.record,
        [
            ("serial", np.int64),  # the number of the event for which a choice is made
            ("patience", np.int64),  # steps of a walk before it takes notes; if 0, `keep_few` is not used
            ("is_writing", np.int64),  # whether this is the second walk, which writes
            ("takes_notes", np.int64),
            ("n_roots", np.int64),
            ("n_steps", np.int64),  # steps taken so far
            ("agrees", np.int64),  # positions that the path has in common with the best path
            ("is_better", np.int64),  # whether the path at which the walk stopped is known to be better
            ("best_length", np.int64),  # positions of the best path, NOBODY if there is none
            ("fruitful", np.int64),  # matches were written while the nodes up to this place were on the stack
            ("n_noted", np.int64),
            ("n_prefixes", np.int64),
            ("n_kept", np.int64),  # sets, including those that others have turned out to contain
            ("n_dead", np.int64),  # sets that others contain
            ("n_kept_rows", np.int64),
            ("shortest", np.int64),
            ("longest", np.int64),  # lengths of sets
        ],
    )
)
"""How far the choice among the matches of one event is."""


def new_record(fields: np.dtype[Any]) -> Record:
    """Return a record with every number 0."""
    return np.zeros(1, fields)[0]


def new_touched(n_states: int, list_capacity: int) -> Touched:
    """Return scratch for some states and the new run."""
    n_entries = n_states + 1
    return Touched(
        state=np.zeros(n_entries, np.int32),
        node=np.zeros(n_entries, np.int32),
        length=np.zeros(n_entries, np.int32),
        moved=np.zeros((n_entries, list_capacity), np.int32),
    )


def new_walk(n_roots: int, depth: int) -> Walk:
    """Return scratch for matches of less than `depth` positions."""
    room = depth + n_roots
    return Walk(
        stack_node=np.zeros(room, np.int32),
        stack_depth=np.zeros(room, np.int32),
        stack_prefix=np.zeros(room, np.int64),
        path_row=np.zeros(depth, np.int64),
        path_label=np.zeros(depth, np.int32),
        root=np.zeros(n_roots, np.int32),
        best_row=np.zeros(depth, np.int64),
    )


def new_rivals(n_sets: int, n_rows: int, n_notes: int) -> Rivals:
    """Return room for sets with a total number of positions, and for notes."""
    return Rivals(
        row=np.empty(n_rows, np.int64),
        first=np.empty(n_sets, np.int64),
        length=np.empty(n_sets, np.int64),
        hash=np.empty(n_sets, np.uint64),
        table=np.empty(2 * n_sets, np.int32),
        serial=np.zeros(2 * n_sets, np.int64),
        notes=np.zeros((n_notes, 4), np.int64),
    )


def new_output(n_matches: int, n_values: int, *, has_labels: bool) -> Output:
    """Return room for matches with a total number of positions."""
    output = Output(
        start=np.empty(n_matches, np.int64),
        end=np.empty(n_matches, np.int64),
        offset=np.empty(n_matches + 1, np.int32),
        row=np.empty(n_values, np.int64),
        label=np.empty(n_values if has_labels else 0, np.int32),
    )
    output.offset[0] = 0
    return output


def n_bytes(group: tuple[IntArray, ...]) -> int:
    """Return the bytes that the arrays of a group take."""
    return sum(array.nbytes for array in group)
