"""A shard's state in parts: nothing of it shows in the matches, and a micro-batch writes what it touches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import strategies
from ceql.errors import SnapshotError
from ceql.syntax.ast import Consumption, Name
from reference import has_few_valuations

pytest.importorskip("pyspark.sql")
from ceql.backends.spark.stream.parts import WHOLE, Parts
from ceql.backends.spark.stream.task import Shard
from stream_shards import (
    FAR,
    MAX_MATCHES,
    START,
    Events,
    State,
    Stream,
    arrivals,
    at,
    blobs_of,
    by_time,
    cut,
    expected,
    fed,
    micros,
    multiset,
    task_of,
    timed_queries,
)

QUERY = "SELECT * FROM S WHERE A AS u ; B AS v PARTITION BY [k] WITHIN 6 seconds"
TINY = 100
"""Fewer bytes than any snapshot has, so that each key gets a part of its own."""


def run(stream: Stream, batches: Iterator[tuple[Events, bool]]) -> int:
    """Run micro-batches, each from what was kept of the one before; return how many parts a shard had at most."""
    n_parts = 0
    for batch, does_advance in batches:
        stream.batch(batch)
        n_parts = max(n_parts, *(len(parts) for _, _, parts in stream.states.values()), 0)
        if does_advance:
            stream.advance()
    return n_parts


@pytest.mark.parametrize("shape", ["matches", "events"])
@strategies.some(25)
@given(data=st.data(), unit=st.sampled_from([1_000_000, 1_500]), max_part_bytes=st.sampled_from([TINY, 3000]))
def test_a_stream_whose_state_is_split_finds_what_a_batch_finds(
    shape: str, data: st.DataObject, unit: int, max_part_bytes: int
) -> None:
    consumption = data.draw(st.sampled_from([Consumption.NONE, Consumption.PARTITION]))
    tree = replace(data.draw(timed_queries(unit)), partition_by=(Name("k"),), consumption=consumption)
    events = data.draw(arrivals(unit, 0))
    assume(has_few_valuations(tree.formula, events, MAX_MATCHES))
    task = task_of(str(tree), shape=shape, max_part_bytes=max_part_bytes, n_shards=2)
    stream = Stream(task, -(-unit // 1000))
    run(stream, cut(data.draw, events))
    stream.finish()
    assert stream.n_late == 0
    assert multiset(stream.found) == multiset(expected(task, [event for event in events if event["k"] is not None]))
    if task.reach_micros is not None:
        assert stream.n_bytes == 0
        assert stream.timers == {}


QUERIES = {
    "matches": QUERY,
    "events": "SELECT * FROM S WHERE A AS u ; B+ AS v PARTITION BY [k] WITHIN 3 seconds",
    "consume": "SELECT * FROM S WHERE A AS u ; B AS v PARTITION BY [k, s] WITHIN 9 seconds CONSUME BY PARTITION",
    "count": "SELECT LAST u, v FROM S WHERE A AS u ; A AS u ; B AS v PARTITION BY [s] WITHIN 5 EVENTS",
    "unbounded": "SELECT NEXT u, v FROM S WHERE A AS u ; B AS v PARTITION BY [k]",
}


@pytest.mark.parametrize("ordering", ["time", "arrival"])
@pytest.mark.parametrize("name", QUERIES)
def test_random_micro_batches_over_many_parts(name: str, ordering: str) -> None:
    chance = random.Random(f"{name} {ordering}")
    task = task_of(QUERIES[name], ordering=ordering, max_part_bytes=TINY, n_shards=1)
    task = replace(task, shape="events" if name == "events" else "matches")
    stream = Stream(task, 2000)
    events = [
        at(number / 4, chance.choice("AAB"), k=chance.randrange(12), s=chance.choice(["", "a", "é", "key 1", "key 2"]))
        for number in range(80)
    ]
    delays = {event["id"]: chance.random() * 3 for event in events}
    arriving = sorted(events, key=lambda event: event["id"] / 1000 + delays[event["id"]])
    held: Events = []

    def batches() -> Iterator[tuple[Events, bool]]:
        while arriving:
            batch = [arriving.pop(0) for _ in range(min(len(arriving), chance.randrange(12)))]
            last = max(map(micros, held), default=0) if ordering == "arrival" else 0
            kept = [event for event in batch if micros(event) > stream.watermark * 1000 and micros(event) >= last]
            held.extend(sorted(kept, key=by_time))
            yield batch, chance.random() < 0.7

    assert run(stream, batches()) > 2
    stream.finish()
    assert multiset(stream.found) == multiset(expected(task, held) if ordering == "time" else fed(task, held))
    assert stream.n_late == len(events) - len(held)
    assert stream.found
    if task.reach_micros is not None:
        assert stream.n_bytes == 0
        assert stream.timers == {}


class Counted(dict[str, bytes]):
    """Parts that note which of them were read."""

    def __init__(self, parts: dict[str, bytes]) -> None:
        super().__init__(parts)
        self.read: list[str] = []

    def __getitem__(self, name: str) -> bytes:
        self.read.append(name)
        return super().__getitem__(name)


LIMIT = 60_000


def large_state() -> State:
    """Return the state of a shard with 50 open matches of each of 400 keys, all from the same fifth of a second."""
    stream = Stream(task_of(QUERY, n_shards=1, ordering="arrival", max_part_bytes=LIMIT), 0)
    stream.batch([at(number / 100_000, k=number % 400, s="x" * 30) for number in range(20_000)])
    assert len(stream.states) == 1
    return stream.states[0]


def test_a_micro_batch_writes_the_part_that_it_touches() -> None:
    task = task_of(QUERY, n_shards=1, ordering="arrival", max_part_bytes=LIMIT)
    state, events, parts = large_state()
    total = sum(map(len, parts.values()))
    assert total > 20 * LIMIT
    assert max(map(len, parts.values())) <= LIMIT
    counted = Counted(parts)
    shard = Shard(task, state, events, counted)
    found = list(shard.step(blobs_of([at(1, "B", k=7)]), 0))
    assert sum(map(len, found)) == 50
    assert list(shard.changed_parts) == counted.read
    assert len(counted.read) == 1
    assert shard.state_blob is not None
    assert len(shard.state_blob) + sum(len(blob or b"") for blob in shard.changed_parts.values()) < 2 * LIMIT
    assert shard.n_bytes > total


def test_parts_that_fall_silent_leave_by_time_and_are_not_read() -> None:
    task = task_of(QUERY, n_shards=1, ordering="arrival", max_part_bytes=LIMIT)
    state, events, parts = large_state()
    counted = Counted(parts)
    shard = Shard(task, state, events, counted)
    list(shard.step(blobs_of([at(1, "A", k=7)]), 0))
    (touched,) = counted.read
    second = START // 1000 + 6200
    assert shard.timer is not None
    assert second - 10 < shard.timer <= second
    kept = Counted({**parts, touched: shard.changed_parts[touched] or b""})
    shard = Shard(task, shard.state_blob, [], kept)
    assert list(shard.step([], second)) == []
    assert kept.read == []
    assert shard.changed_parts == dict.fromkeys(set(parts) - {touched})
    assert shard.timer == START // 1000 + 7001
    last = Counted({touched: kept[touched]})
    shard = Shard(task, shard.state_blob, [], last)
    assert list(shard.step([], FAR)) == []
    assert last.read == []
    assert shard.changed_parts == {touched: None}
    assert shard.timer is None


def test_when_all_have_left_there_is_one_part_again() -> None:
    task = task_of(QUERY, n_shards=1, max_part_bytes=TINY)
    stream = Stream(task, 0)
    stream.batch([at(0, k=number) for number in range(10)])
    stream.batch([], until=START + 1_000_000)
    stream.advance()
    stream.batch([])
    assert len(stream.states[0][2]) == 10
    stream.finish()
    state, _, parts = stream.states[0]
    assert parts == {}
    assert b'"parts": {"": null}' in (state or b"")


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        (QUERY, [1]),
        (QUERY.replace("6 seconds", "6 seconds CONSUME BY ANY"), range(10)),
        (QUERY.replace("PARTITION BY [k] ", ""), range(10)),
    ],
)
def test_what_belongs_together_stays_together(query: str, keys: Any) -> None:
    stream = Stream(task_of(query, n_shards=1, ordering="arrival", max_part_bytes=TINY), 0)
    stream.batch([at(0, k=key) for key in keys])
    ((_, _, parts),) = stream.states.values()
    assert parts == {}
    assert stream.n_bytes > TINY


def test_the_limit_may_change_at_a_restart() -> None:
    stream = Stream(task_of(QUERY, n_shards=1, ordering="arrival"), 0)
    n_parts = []
    for second, limit in enumerate([10**6, TINY, 10**6]):
        stream.task = replace(stream.task, max_part_bytes=limit)
        stream.batch([at(second, k=key) for key in range(10)])
        n_parts.append(len(stream.states[0][2]))
    stream.batch([at(3, "B", k=key) for key in range(10)])
    assert n_parts == [0, 10, 10]
    assert len(stream.found) == 30


def split_state() -> tuple[Any, dict[str, bytes]]:
    task = task_of(QUERY, n_shards=1, ordering="arrival", max_part_bytes=TINY)
    stream = Stream(task, 0)
    stream.batch([at(0, k=key) for key in range(4)])
    state, _, parts = stream.states[0]
    assert len(parts) == 4

    def step(parts: dict[str, bytes]) -> list[Any]:
        return list(Shard(task, state, [], parts).step(blobs_of([at(1, "B", k=key) for key in range(4)]), 0))

    return step, parts


def test_parts_that_are_missing_or_surplus_or_mixed_up_are_noticed() -> None:
    step, parts = split_state()
    assert sum(map(len, step(parts))) == 4
    one, other, *_ = parts
    with pytest.raises(SnapshotError, match=f"damaged: it lacks the parts {one}$"):
        step({name: blob for name, blob in parts.items() if name != one})
    with pytest.raises(SnapshotError, match=f"damaged: it should not have the parts {one}0$"):
        step({**parts, f"{one}0": b""})
    with pytest.raises(SnapshotError, match="damaged: part"):
        step({**parts, one: parts[other], other: parts[one]})


@given(data=st.data())
@strategies.some(50)
def test_a_damaged_part_is_refused(data: st.DataObject) -> None:
    step, parts = SPLIT
    name = data.draw(st.sampled_from(sorted(parts)))
    blob = parts[name]
    place = data.draw(st.integers(0, len(blob) - 1))
    flipped = blob[:place] + bytes([blob[place] ^ 0x55]) + blob[place + 1 :]
    with pytest.raises(SnapshotError):
        step({**parts, name: data.draw(st.sampled_from([blob[:place], flipped]))})


SPLIT = split_state()


@given(data=st.data(), hashes=st.lists(st.integers(0, 2**64 - 1), min_size=1))
@strategies.some(100)
def test_every_key_has_one_part_whatever_is_split_and_emptied(data: st.DataObject, hashes: list[int]) -> None:
    parts = Parts({})
    for _ in range(data.draw(st.integers(0, 20))):
        name = data.draw(st.sampled_from(sorted(parts.parts)))
        match data.draw(st.sampled_from(["split", "put", "drop", "join"])):
            case "split" if len(name) < 60:
                parts.split(name)
            case "put":
                parts.put(name, b"snapshot", 0, None)
            case "drop":
                parts.drop(name)
            case _:
                parts.join_empty()
        found = {row: name for name, rows in parts.rows_by_part(np.array(hashes, np.uint64)) for row in rows.tolist()}
        for row, hashed in enumerate(hashes):
            assert [name for name in parts.parts if f"{hashed:064b}".startswith(name)] == [found[row]]
    for name in parts.parts:
        parts.drop(name)
    parts.join_empty()
    assert parts.parts == {WHOLE: None}
    assert all(blob is None for blob in parts.changed.values())
