"""The processor alone, in the harness that Spark has for such: its states and timers are all there is between steps."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ceql
import strategies

pytest.importorskip("pyspark.sql.streaming.tws_tester")
from pyspark.sql.streaming.tws_tester import TwsTester

from ceql.backends.spark.stream.processor import ShardProcessor
from ceql.backends.spark.stream.rows import EVENTS, LATE, PACKED_ROWS, STATE_BYTES
from ceql.backends.spark.stream.steps import Steps
from ceql.backends.spark.stream.task import StreamTask
from stream_shards import FAR, SCHEMA, START, Events, arrivals, at, blobs_of, cut, expected, micros, task_of

# The harness puts matches and counters together, of which some columns are all NULL.
pytestmark = pytest.mark.filterwarnings("ignore:The behavior of DataFrame concatenation")

QUERY = "SELECT * FROM S WHERE A AS u ; B AS v PARTITION BY [k] WITHIN 3 seconds"
SECOND = 1_000_000
SHARD = 7


class Harness:
    """A processor with one shard; counters apart from matches, which are pairs of event ids."""

    def __init__(self, task: StreamTask) -> None:
        schema = ceql.compile(task.query, SCHEMA, time_column="at").result_schema
        processor = ShardProcessor(Steps(task, schema, "match_end"))
        # What the harness would take for late never is: rows come packed, and the shard itself looks at their times.
        self.tester = TwsTester(processor, timeMode="EventTime", eventTimeExtractor=lambda _: FAR)
        self.matches: list[tuple[int, int]] = []
        self.counters: Counter[str] = Counter()
        self.state_bytes: list[int] = []

    def feed(self, events: Events) -> None:
        blobs = blobs_of([event for event in events if event["k"] is not None])
        if blobs:
            self._take(self.tester.testInPandas(SHARD, pd.DataFrame({PACKED_ROWS: blobs})))

    def advance(self, watermark: int) -> None:
        if watermark > self.tester._currentWatermarkMs:
            self._take(self.tester.setWatermark(watermark))

    def kept(self) -> tuple[Any, list[Any], dict[Any, Any]]:
        """Return the three states."""
        peek = self.tester
        return (
            peek.peekValueState("session", SHARD),
            peek.peekListState("events", SHARD),
            peek.peekMapState("parts", SHARD),
        )

    def _take(self, rows: pd.DataFrame) -> None:
        for row in rows.to_dict("records"):
            if pd.isna(row[EVENTS]):
                self.matches.append((row["u"]["id"], row["v"]["id"]))
            else:
                self.counters.update({name: int(row[name]) for name in (EVENTS, LATE)})
                self.state_bytes.append(int(row[STATE_BYTES]))


@pytest.mark.parametrize("max_part_bytes", [4 << 20, 100])
@strategies.some(40)
@given(data=st.data())
def test_the_processor_alone_finds_what_the_engine_does(data: st.DataObject, max_part_bytes: int) -> None:
    task = task_of(QUERY, max_part_bytes=max_part_bytes)
    events = data.draw(arrivals(SECOND, 2))
    assume(any(event["k"] is not None for event in events))
    harness, highest = Harness(task), 0
    for batch, does_advance in cut(data.draw, events):
        harness.feed(batch)
        highest = max([highest, *map(micros, batch)])
        if does_advance:
            harness.advance(highest // 1000 - 3000)
    harness.advance(FAR)
    found = [(match["u"]["id"], match["v"]["id"]) for match in expected(task, events)]
    assert sorted(harness.matches) == sorted(found)
    assert harness.counters == {EVENTS: sum(event["k"] is not None for event in events), LATE: 0}
    _, waiting, parts = harness.kept()
    assert (waiting, parts) == ([], {})


def test_what_is_late_is_counted_and_what_waits_is_kept() -> None:
    harness = Harness(task_of(QUERY))
    harness.feed([at(1), at(2, "B")])
    assert harness.matches == []
    harness.advance(START // 1000 + 1500)
    assert len(harness.kept()[1]) == 1
    harness.feed([at(1.2)])
    assert harness.counters[LATE] == 1
    harness.advance(START // 1000 + 2000)
    assert harness.matches == [(1000, 2000)]
    assert harness.state_bytes[-1] > 0
    assert harness.kept()[1] == []
