"""Checks the content of a snapshot before it is used, because compiled code follows numbers wherever they point.

The checksum finds damage. These checks find content that no session has written: every index must be inside of its
array, and everything that the kernel assumes must hold. They take one pass over the nodes and one over the pool.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from ceql.automaton.cea import CEA
from ceql.automaton.lazy import DetState
from ceql.engine.compiled import compiled
from ceql.engine.intake.keys import has_numbers
from ceql.engine.run.arena import BOTTOM, END, UNION
from ceql.engine.run.arrays import Arena
from ceql.engine.run.bits import members
from ceql.engine.run.kernel import LIST_CAPACITY
from ceql.engine.run.memo import START, Memo
from ceql.engine.run.snapshot import Content
from ceql.errors import SnapshotError

IntArray = np.ndarray[Any, np.dtype[Any]]

MAX_COUNT = 2**62
"""More than any count; the sum of two such numbers still fits 64 bits."""


def check_names(content: Content, start: DetState, automaton: CEA) -> None:
    """Check that the automaton can have these determinized states and labels."""
    states = content["states"]
    for parts in states:
        named = [one for part in parts for one in part]
        if len(parts) != len(start) or not all(type(one) is int and 0 <= one < automaton.n_states for one in named):
            raise _forged("a state is none of the automaton's")
    distinct = {DetState(*map(frozenset, parts)) for parts in states}
    if len(distinct) != len(states) or DetState(*map(frozenset, states[START])) != start:
        raise _forged("its states are not those of a session")
    labels = [frozenset(label) for label in content["labels"]]
    if len(set(labels)) != len(labels) or not set(labels) <= {one.label for one in automaton.transitions}:
        raise _forged("its labels are not those of the query")


def check_state(
    content: Content,
    memo: Memo,
    *,
    number: Any,
    clock: Any,
    are_floats: list[bool],
    counts_rows: bool,
    key_types: list[pa.DataType],
    rows: pa.Schema | None,
) -> None:
    """Check everything else, once the memo knows the states and labels.

    `number` is the type of the window's measure, `clock` that of silences, None if there are none. `are_floats` says
    for each clock whether it has doubles, `counts_rows` whether rows are counted instead. `rows` is None if results
    show no events.
    """
    _check_counters(content, are_floats)
    _check_arrays(content, memo, number, len(key_types))
    if clock is not None:
        _check_waiting(content, number, clock, is_keyed=bool(key_types))
    _check_key_values(content, key_types)
    if rows is not None:
        _check_rows(content, rows)
    _check_nodes(content, len(memo.labels), has_rows=rows is not None, counts_rows=counts_rows)


def _check_counters(content: Content, are_floats: list[bool]) -> None:
    """Check the numbers outside of arrays; there is a clock for each of `are_floats`."""
    counters, last = [content[name] for name in ("n_events", "n_matches", "n_dropped")], content["last"]
    if not all(type(count) is int and 0 <= count < MAX_COUNT for count in counters):
        raise _forged("its counters do not count")
    for time, may_be_float in zip(last, are_floats, strict=True):
        is_number = type(time) is int or (may_be_float and type(time) is float)
        is_time = is_number and not math.isnan(time) and (may_be_float or -(2**63) <= time < 2**63)
        if time is not None and not is_time:
            raise _forged("its clock shows no time")
    if type(content["has_ended"]) is not bool:
        raise _forged("it does not say whether events may come")
    if content["first"] is not None and type(content["first"]) is not int:
        raise _forged("its clock begins at no time")
    moment, counts = content["ordinals"]
    is_numbered = all(type(one) in (int, str) and type(count) is int and count >= 0 for one, count in counts)
    if type(moment) not in (int, str) or not is_numbered:
        raise _forged("the numbers of its matches are none")


def _check_arrays(content: Content, memo: Memo, number: Any, n_key_columns: int) -> None:
    """Check the run state, given the memo that knows its states and labels, and the type of the window's measure."""
    n_nodes, n_lists, n_words = len(content["kind"]), len(content["list_length"]), len(content["active"])
    n_keys, n_pool = len(content["key_first"]), len(content["pool"])
    expected: dict[str, tuple[Any, tuple[int, ...]]] = {
        "active": (np.uint64, (n_words,)),
        "list_nodes": (np.int32, (n_lists, LIST_CAPACITY)),
        "list_length": (np.int32, (n_lists,)),
        "kind": (np.int32, (n_nodes,)),
        "link": (np.int32, (n_nodes,)),
        "data": (np.int64, (n_nodes,)),
        "start": (number, (n_nodes,)),
        **{name: (np.int64, (n_keys,)) for name in ("key_first", "key_length", "key_room", "key_epoch", "key_events")},
        "key_active": (np.uint64, (n_keys, n_words)),
        "pool": (np.int32, (n_pool,)),
    }
    if n_key_columns:
        expected["key_codes"] = (np.int64, (n_keys, n_key_columns))
    elif n_keys:
        raise _forged("it has keys, and the query has none")
    for name, (data_type, shape) in expected.items():
        array = content[name]
        if not isinstance(array, np.ndarray) or array.dtype != data_type or array.shape != shape:
            raise _forged(f"'{name}' has another type or shape")
    if not 1 <= n_words <= memo.n_words:
        raise _forged("it has more states than it names")
    key, n_emitted = content["key"], content["n_emitted"]
    if type(key) is not int or type(n_emitted) is not int or not -1 <= key < n_keys or not 0 <= n_emitted < MAX_COUNT:
        raise _forged("it does not say where it stopped")
    _check_lists(content, min(memo.size, n_lists), is_keyed=n_key_columns > 0)
    _check_keys(content, memo.size)


def _check_nodes(content: Content, n_labels: int, *, has_rows: bool, counts_rows: bool) -> None:
    """Check the arena: children come before parents, rows are held, and no run begins later than now."""
    n_events = content["n_events"]
    last = n_events - 1 if counts_rows else content["last"][0]
    row_ids = content["row_ids"] if has_rows else np.empty(0, np.int64)
    if len(content["kind"]) and last is None:
        raise _forged("it has open matches before any time")
    bad = _first_bad_node(
        Arena(*(content[name] for name in Arena._fields)),
        content["start"].dtype.type(0 if last is None else last),
        n_labels,
        n_events,
        row_ids,
        has_rows,
    )
    if bad >= 0:
        raise _forged(f"node {bad} is none")


def _check_waiting(content: Content, number: Any, clock: Any, *, is_keyed: bool) -> None:
    """Check the events whose matches wait for a silence, and when silences were broken."""
    n_waiting, n_roots = len(content["waiting_row"]), len(content["roots"])
    n_broken = len(content["key_first"]) if is_keyed else 1
    whole = {name: (np.int64, n_waiting) for name in ("row", "key", "first", "length")}
    waiting = {**whole, "time": (clock, n_waiting), "measure": (number, n_waiting)}
    broken = {
        "after": (np.int64, n_broken),
        "was_before": (np.uint8, n_broken),
        "before": (clock, n_broken),
    }
    expected = {f"waiting_{name}": kind for name, kind in waiting.items()}
    expected |= {f"broken_{name}": kind for name, kind in broken.items()} | {"roots": (np.int32, n_roots)}
    for name, (data_type, length) in expected.items():
        array = content[name]
        if not isinstance(array, np.ndarray) or array.dtype != data_type or array.shape != (length,):
            raise _forged(f"'{name}' has another type or shape")
    lengths, rows, keys = content["waiting_length"], content["waiting_row"], content["waiting_key"]
    if n_waiting and (lengths.min() < 1 or lengths.max() > n_roots):
        raise _forged("an event waits without matches")
    if lengths.sum() != n_roots or not np.array_equal(content["waiting_first"], np.cumsum(lengths) - lengths):
        raise _forged("events that wait do not share their roots")
    if n_roots and not 0 <= content["roots"].min() <= content["roots"].max() < len(content["kind"]):
        raise _forged("an event that waits has no nodes")
    if n_waiting and not 0 <= keys.min() <= keys.max() < n_broken:
        raise _forged("an event that waits has no key")
    is_ordered = all((np.diff(content[f"waiting_{name}"]) >= 0).all() for name in ("row", "time"))
    if n_waiting and not (is_ordered and 0 <= rows[0] <= rows[-1] < content["n_events"]):
        raise _forged("the events that wait are not in order")
    if "row_ids" in content and not np.isin(rows, content["row_ids"]).all():
        raise _forged("an event that waits is not kept")
    # Unions have no row, but come after the nodes that they unite.
    latest = np.maximum.accumulate(np.where(content["kind"] == UNION, 0, content["data"]))
    if (latest[content["roots"]] > np.repeat(rows, lengths)).any():
        raise _forged("an event waits for matches that end later")
    if (n_waiting or content["broken_was_before"].any()) and None in content["last"]:
        raise _forged("events wait before any time")


def _check_rows(content: Content, schema: pa.Schema) -> None:
    """Check the rows that are kept; nodes are checked against them afterwards."""
    row_ids, rows = content["row_ids"], content["rows"]
    is_typed = isinstance(row_ids, np.ndarray) and row_ids.dtype == np.int64 and row_ids.shape == (rows.num_rows,)
    if not is_typed or not rows.schema.equals(schema):
        raise _forged("the rows that it keeps are of another type")
    is_ordered = bool((np.diff(row_ids) > 0).all()) if len(row_ids) else True
    if not is_ordered or (len(row_ids) and not 0 <= row_ids[0] <= row_ids[-1] < content["n_events"]):
        raise _forged("the rows that it keeps are not in order")


def _check_key_values(content: Content, types: list[pa.DataType]) -> None:
    """Check the values that the codes of keys stand for, given the types of the key columns."""
    for index, data_type in enumerate(types):
        values, codes = content[f"key_values_{index}"]["value"], content["key_codes"][:, index]
        if values.type != data_type or values.null_count:
            raise _forged("the values of its keys are of another type")
        if has_numbers(data_type):
            if len(values):
                raise _forged("it names keys that are numbers")
        elif len(codes) and not 0 <= codes.min() <= codes.max() < len(values):
            raise _forged("a key has no value")


def _check_lists(content: Content, n_states: int, *, is_keyed: bool) -> None:
    """Check the lists of the current key."""
    states = members(content["active"])
    lengths, key = content["list_length"], content["key"]
    if len(states) and (states[0] <= START or states[-1] >= n_states):
        raise _forged("a list belongs to no state")
    if len(states) and key < 0 and is_keyed:
        raise _forged("a list belongs to no key")
    if key >= 0 and content["key_length"][key]:
        raise _forged("a key has its lists twice")
    if len(states) and not _are_lists(content["list_nodes"][states], lengths[states], content["start"]):
        raise _forged("a list has no nodes")


def _check_keys(content: Content, n_states: int) -> None:
    """Check the lists of all other keys: they lie one after the other, as a collection leaves them."""
    lengths, counts, n_pool = content["key_length"], content["key_events"], len(content["pool"])
    is_inside = not len(lengths) or (lengths.min() >= 0 and lengths.max() <= n_pool)
    if not is_inside or lengths.sum() != n_pool:
        raise _forged("its keys do not share the pool")
    is_dense = np.array_equal(content["key_first"], np.cumsum(lengths) - lengths)
    if not is_dense or not np.array_equal(content["key_room"], lengths):
        raise _forged("its keys do not share the pool")
    if len(counts) and not 0 <= counts.min() <= counts.max() <= content["n_events"]:
        raise _forged("the events of a key are not counted")
    bad = _first_bad_key(lengths, content["key_active"], content["pool"], content["start"], n_states)
    if bad >= 0:
        raise _forged(f"the lists of key {bad} are none")


def _are_lists(nodes: IntArray, lengths: IntArray, start: IntArray) -> bool:
    """Whether each row begins with a list of nodes in the order of their starts."""
    is_used = np.arange(LIST_CAPACITY) < lengths[:, np.newaxis]
    is_node = (nodes >= 0) & (nodes < len(start))
    if lengths.min() < 1 or lengths.max() > LIST_CAPACITY or not is_node[is_used].all():
        return False
    begun = start[np.where(is_used, nodes, nodes[:, :1])]
    return bool((~is_used[:, 1:] | (begun[:, 1:] >= begun[:, :-1])).all())


def _forged(what: str) -> SnapshotError:
    return SnapshotError(f"the snapshot is damaged: {what}")


@compiled
def _first_bad_node(
    arena: Any,
    last: Any,
    n_labels: Any,
    n_events: Any,
    row_ids: Any,
    has_rows: Any,
) -> Any:
    """Return the first node that the kernel cannot have made, or -1. Rows never decrease from node to node."""
    kind, link, data, start = arena
    row = 0
    at = 0
    for node in range(kind.shape[0]):
        what, following, value = kind[node], link[node], data[node]
        if what == UNION:
            if not (0 <= following < node and 0 <= value < node):
                return node
            if start[node] != start[following] or start[value] > start[node]:
                return node
            continue
        if what < BOTTOM or what >= n_labels or value < row or value >= n_events:
            return node
        if following == END:
            if not start[node] <= last:
                return node
        elif what == BOTTOM or not 0 <= following < node or start[node] != start[following]:
            return node
        row = value
        if has_rows:
            while at < row_ids.shape[0] and row_ids[at] < row:
                at += 1
            if at == row_ids.shape[0] or row_ids[at] != row:
                return node
    return -1


@compiled
def _first_bad_key(key_length: Any, key_active: Any, pool: Any, start: Any, n_states: Any) -> Any:
    """Return the first key whose lists the kernel cannot have packed, or -1; the lists fill the pool exactly."""
    at = 0
    for key in range(key_length.shape[0]):
        end = at + key_length[key]
        last_state = 0
        n_lists = 0
        while at < end:
            if end - at < 3:
                return key
            state, length = pool[at], pool[at + 1]
            at += 2
            if not (last_state < state < n_states and 0 < length <= LIST_CAPACITY and length <= end - at):
                return key
            last_state = state
            word = state >> 6
            if word >= key_active.shape[1] or (key_active[key, word] >> np.uint64(state & 63)) & np.uint64(1) == 0:
                return key
            n_lists += 1
            for i in range(at, at + length):
                if not 0 <= pool[i] < start.shape[0] or (i > at and not start[pool[i - 1]] <= start[pool[i]]):
                    return key
            at += length
        for word in range(key_active.shape[1]):
            bits = key_active[key, word]
            while bits != 0:
                bits &= bits - np.uint64(1)
                n_lists -= 1
        if n_lists != 0:
            return key
    return -1
