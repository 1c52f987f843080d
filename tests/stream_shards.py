"""Shards of a stream without Spark around them: micro-batches, a watermark that follows the events, timers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume
from hypothesis import strategies as st

import ceql
import strategies
from ceql.syntax import ast
from ceql.syntax.ast import Consumption

pytest.importorskip("pyspark.sql")
from ceql.backends.spark.stream.match import reach_micros
from ceql.backends.spark.stream.rows import SHARD, TIME, pack_by_shard
from ceql.backends.spark.stream.task import Shard, StreamTask
from ceql.backends.spark.task_session import TaskSession
from ceql.engine.pipeline import END_OF_ALL

START = 1_704_067_200_000_000
MICROS = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([*strategies.SCHEMA, ("at", MICROS), ("id", pa.int64())])
MAX_MATCHES = 300
FAR = 4_000_000_000_000
SNAPSHOT = b"CEQLSNAP"
Events = list[dict[str, Any]]
Rows = list[dict[str, Any]]
State = tuple[bytes | None, list[bytes], dict[str, bytes]]


def task_of(query: str, schema: pa.Schema = SCHEMA, **changes: Any) -> StreamTask:
    """Return what shards are told of a query over events that are ordered by time, then `id`."""
    compiled = ceql.compile(query, schema, time_column="at")
    plan = compiled.plan
    is_divisible = bool(plan.partition_by) and plan.consumption is not Consumption.ANY
    task = StreamTask(
        query=query,
        shape="matches",
        type_column="type",
        time_column="at",
        order_by=("id",),
        order=("at", "id"),
        ties=("type", "x", "s", "k"),
        stream_column=None,
        sources=("S",),
        columns=tuple(f"{one.name} {one.type}" for one in schema),
        id_columns=("at", "id", "k"),
        ordering="time",
        n_shards=3 if is_divisible else 1,
        keys=plan.partition_by if is_divisible else (),
        reach_micros=reach_micros(compiled, "at"),
    )
    return replace(task, **changes)


def table(events: Events, schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(events, schema)


def blobs_of(events: Events, schema: pa.Schema = SCHEMA) -> list[bytes]:
    """Return events of one shard as they come from the packing side."""
    rows = table(events, schema)
    batch = rows.append_column(TIME, rows["at"].cast(MICROS)).append_column(
        SHARD, pa.array([0] * len(rows), pa.int32())
    )
    return [blob for part in pack_by_shard(iter(batch.to_batches())) for blob in part["rows"].to_pylist()]


@dataclass
class Stream:
    """Shards as Spark runs them: micro-batches, a watermark that follows the events, timers."""

    task: StreamTask
    delay: int
    schema: pa.Schema = SCHEMA
    watermark: int = 0
    states: dict[int, State] = field(default_factory=dict)
    timers: dict[int, int] = field(default_factory=dict)
    found: Rows = field(default_factory=list)
    n_events: int = 0
    n_late: int = 0
    highest: int = 0

    def batch(self, events: Events, *, until: int = 0) -> None:
        """Run a micro-batch; `until` is the time of a row that no shard gets to see."""
        by_shard: dict[int, Events] = {}
        for event in events:
            if self.task.n_shards == 1 or event["k"] is not None:
                by_shard.setdefault(hash(event.get("k")) % self.task.n_shards, []).append(event)
        for shard, own in by_shard.items():
            self._step(shard, own)
        for shard, timer in list(self.timers.items()):
            if timer <= self.watermark:
                self._step(shard, [])
        self.highest = max([self.highest, until, *(micros(event) for event in events)])

    def advance(self) -> None:
        """Let the watermark follow, as it does between micro-batches."""
        self.watermark = max(self.watermark, self.highest // 1000 - self.delay)

    def finish(self) -> None:
        """Let all events pass the watermark and all windows end, by rows that no shard gets to see."""
        self.batch([], until=FAR * 1000)
        self.advance()
        while any(timer <= self.watermark for timer in self.timers.values()):
            self.batch([])

    def _step(self, number: int, events: Events) -> None:
        before = self.states.get(number, (None, [], {}))
        shard = Shard(self.task, *before)
        for batch in shard.step(blobs_of(events, self.schema) if events else [], self.watermark):
            self.found += batch.to_pylist()
        parts = {**before[2], **shard.changed_parts}
        kept = {name: blob for name, blob in parts.items() if blob is not None}
        assert shard.state_blob is not None
        self.states[number] = shard.state_blob, shard.event_blobs, kept
        self.timers.pop(number, None)
        if shard.timer is not None:
            assert shard.timer > self.watermark, "a timer in the past would never rest"
            self.timers[number] = shard.timer
        self.n_events += shard.n_events
        self.n_late += shard.n_late

    @property
    def n_bytes(self) -> int:
        """Bytes that are kept for what is open or waits; the headers stay."""
        return sum(
            len((state or b"").partition(SNAPSHOT)[2]) + sum(map(len, [*events, *parts.values()]))
            for state, events, parts in self.states.values()
        )


def micros(event: dict[str, Any]) -> int:
    return int((event["at"] - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))


def multiset(rows: Rows) -> Counter[str]:
    return Counter(map(repr, rows))


def expected(task: StreamTask, events: Events, schema: pa.Schema = SCHEMA) -> Rows:
    """Return what the engine finds in all events at once."""
    return fed(task, sorted(events, key=by_time), schema)


def fed(task: StreamTask, events: Events, schema: pa.Schema = SCHEMA) -> Rows:
    """Return what the engine finds in some events, after which none comes."""
    session = TaskSession(task.options)
    batches = [*session.batches(table(events, schema)), *session.batches_at(END_OF_ALL)]
    rows: Rows = [row for batch in batches for row in batch.to_pylist()]
    return rows


def by_time(event: dict[str, Any]) -> Any:
    return event["at"], event["id"]


@st.composite
def timed_queries(draw: Any, unit: int, *, silences: bool = True) -> ast.Query:
    """Return a query whose window, if it has one by attribute, is a duration on `at`, and perhaps its silences."""
    tree: ast.Query = draw(strategies.queries(depth=4))
    if draw(st.booleans()):
        tree = replace(tree, formula=draw(strategies.rich_formulas(3)), select=replace(tree.select, selected=None))
    if isinstance(tree.window, ast.AttributeWindow) or draw(st.booleans()):
        size = draw(st.sampled_from([2, 0, 1, 5, 40])) * unit
        tree = replace(tree, window=ast.DurationWindow(((size, "microseconds"),)))
    if silences and draw(st.sampled_from([False, False, True])):
        times = st.sampled_from([2, 0, 1, 5]).map(lambda size: ast.DurationWindow(((size * unit, "microseconds"),)))
        tree = replace(tree, formula=draw(strategies.silent(tree.formula, times)))
        assume(not tree.select.selected or {one.variable.text for one in tree.select.selected} <= bound(tree))
    return replace(tree, limit=draw(st.sampled_from([None, None, 1, 2])))


def bound(tree: ast.Query) -> frozenset[str]:
    return strategies.bound_variables(tree.formula)


@st.composite
def arrivals(draw: Any, unit: int, max_lateness: int) -> Events:
    """Return events in the order in which they arrive: each up to so many units after its time."""
    events = draw(strategies.events(12))
    start = datetime.fromtimestamp(START // 10**6, UTC)
    placed = [
        {**event, "at": start + timedelta(microseconds=event["t"] * unit), "id": number}
        for number, event in enumerate(events)
    ]
    late = draw(st.lists(st.integers(0, max_lateness), min_size=len(placed), max_size=len(placed)))
    return [event for _, event in sorted(zip(late, placed, strict=True), key=lambda pair: pair[0] + pair[1]["t"])]


def cut(draw: Any, events: Events) -> Iterator[tuple[Events, bool]]:
    """Yield micro-batches, some of them empty, and whether the watermark moves on after each."""
    done = 0
    while done < len(events):
        size = draw(st.sampled_from([3, 2, 1, 5, 0]))
        yield events[done : done + size], draw(st.sampled_from([True, True, False]))
        done += size


def at(seconds: float, event_type: str = "A", **attributes: Any) -> dict[str, Any]:
    moment = datetime.fromtimestamp(START // 10**6, UTC) + timedelta(seconds=seconds)
    return {"type": event_type, "at": moment, "id": int(seconds * 1000), "k": 1, "t": 0, **attributes}
