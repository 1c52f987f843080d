"""What docs/streaming.md says of Kafka, run over a source with Kafka's columns, partitions and offsets."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import ceql
from markdown_blocks import ROOT, Code, blocks

pytest.importorskip("pyspark.sql")
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

import ceql.spark

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("default"),
]

# Spark takes no other source by the name of Kafka's.
FORMAT = "kafka_shaped"
NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
N_PARTITIONS = 3
START = datetime(2024, 1, 31, 9, 30, tzinfo=UTC)
SCHEMA = "type STRING, id LONG, account STRING, name STRING, at TIMESTAMP"
QUERY = """
SELECT * FROM Trades
WHERE SELL AS msft ; BUY AS intel
FILTER msft[name = 'MSFT'] AND intel[name = 'INTC']
PARTITION BY [account] WITHIN 1 minute
"""
Event = dict[str, Any]
Record = tuple[int, bytes | None]


class Topic:
    """A topic to which records are added; its files stand for a broker's."""

    def __init__(self, servers: Path, name: str) -> None:
        self.path = servers / name
        self.path.mkdir(parents=True)
        self._ends = dict.fromkeys(map(str, range(N_PARTITIONS)), 0)
        self.put([])

    def put(self, records: Sequence[Record]) -> None:
        """Add values to their partitions, all of them seen at once."""
        for partition, value in records:
            with (self.path / f"{partition}.log").open("a") as log:
                log.write(json.dumps(value if value is None else value.hex()) + "\n")
            self._ends[str(partition)] += 1
        hidden = self.path / ".ends"
        hidden.write_text(json.dumps(self._ends))
        hidden.replace(self.path / "ends")


class KafkaShaped(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return (
            "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
        )

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return TopicReader(self.options["kafka.bootstrap.servers"], self.options["subscribe"])


class TopicReader(DataSourceStreamReader):
    """Reads a topic by ranges of offsets, a task for each partition."""

    def __init__(self, servers: str, topic: str) -> None:
        self.servers = servers
        self.topic = topic

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return dict.fromkeys(self.latestOffset(), 0)

    def latestOffset(self) -> dict[str, int]:  # noqa: N802
        ends: dict[str, int] = json.loads(Path(self.servers, self.topic, "ends").read_text())
        return ends

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((name, start[name], end[name])) for name in end if start[name] < end[name]]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        name, begin, end = partition.value
        lines = Path(self.servers, self.topic, f"{name}.log").read_text().splitlines()
        for offset in range(begin, end):
            value = json.loads(lines[offset])
            taken = value if value is None else bytes.fromhex(value)
            yield None, taken, self.topic, int(name), offset, datetime(2024, 2, 1, tzinfo=UTC), 0


@pytest.fixture
def topic(spark: Any, tmp_path: Path) -> Iterator[Topic]:
    """Give the topic `trades`, empty. Micro-batches without rows are off, so that it is known which one does what."""
    # Spark's workers cannot import this module.
    this = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(this)
    try:
        spark.dataSource.register(KafkaShaped)
    finally:
        cloudpickle.unregister_pickle_by_value(this)
    spark.conf.set(NO_DATA_BATCHES, "false")
    yield Topic(tmp_path / "servers", "trades")
    spark.conf.unset(NO_DATA_BATCHES)


def documented(spark: Any, topic: Topic) -> Any:
    """Return the matches that the code of the page makes."""
    page = blocks(ROOT / "docs" / "streaming.md")
    (reading,) = [block for block in page if 'readStream.format("kafka")' in block.text]
    names: dict[str, Any] = {"ceql": ceql, "F": F, "spark": spark, "schema": SCHEMA, "query": QUERY}
    Code(reading, [], needs_spark=True).run(names, {"kafka": FORMAT, "host:9092": str(topic.path.parent)})
    return names["matches"]


def as_records(matches: Any) -> Any:
    """Return matches as records of a topic, as the page writes them."""
    return matches.select(F.col("account").alias("key"), F.to_json(F.struct("*")).alias("value"))


def trade(seconds: float, side: str, account: str, number: int) -> Event:
    name = {"SELL": "MSFT", "BUY": "INTC"}.get(side, "AMZN")
    return {"type": side, "id": number, "account": account, "name": name, "at": START + timedelta(seconds=seconds)}


def record(partition: int, event: Event) -> Record:
    return partition, json.dumps({**event, "at": event["at"].isoformat()}).encode()


END = record(0, trade(10_000, "HOLD", "ann", -1))
"""Moves the watermark past all trades; the micro-batch after it gives the matches that are left."""


def expected(events: list[Event]) -> list[tuple[str, Any]]:
    """Return the records of all matches, as `decoded` has them."""
    ordered = sorted(events, key=lambda event: (event["at"], event["id"]))
    matches = ceql.match(QUERY, ordered, time_column="at", order_by=["id"]).to_arrow().to_pylist()
    return sorted(((match["account"], match) for match in matches), key=repr)


def decoded(rows: Sequence[Any]) -> list[tuple[str, Any]]:
    def timed(fields: dict[str, Any]) -> dict[str, Any]:
        times = ("at", "match_start", "match_end")
        return {name: datetime.fromisoformat(value) if name in times else value for name, value in fields.items()}

    return sorted(((row.key, json.loads(row.value, object_hook=timed)) for row in rows), key=repr)


def trades(n_events: int) -> list[Event]:
    chance = random.Random(4)
    seconds, events = 0, []
    for number in range(n_events):
        seconds += chance.choice([0, 1, 2, 5])
        side, account = chance.choice(["SELL", "BUY", "HOLD"]), chance.choice(["ann", "bob", "cid", "dan"])
        events.append(trade(seconds, side, account, number))
    return events


NO_EVENTS: dict[str, bytes | None] = {
    "tombstone": None,
    "nothing": b"",
    "text": b"no event at all",
    "no text": b"\xff\xfe\x00",
    "another shape": b"[1, 2]",
    "cut off": b'{"at": "2024-01-31T09:31:00Z", "type": "SELL", "id": 7, "account": "ann", "name": "MS',
    "no time": b'{"at": "soon", "type": "SELL", "id": 7, "account": "ann", "name": "MSFT"}',
}


def arriving(events: list[Event], n_parts: int) -> list[list[Record]]:
    """Return the records as they come: by account, some partitions behind others, and much that is no event."""
    chance = random.Random(19)
    partition = {"ann": 0, "bob": 1, "cid": 1, "dan": 2}
    behind = [0, 3, 8]
    order = sorted(events, key=lambda event: event["at"] + timedelta(seconds=behind[partition[event["account"]]]))
    records = [record(partition[event["account"]], event) for event in order]
    for value in list(NO_EVENTS.values()) * 3:
        records.insert(chance.randrange(len(records)), (chance.randrange(N_PARTITIONS), value))
    cuts = sorted(chance.sample(range(1, len(records)), n_parts - 1))
    return [records[begin:end] for begin, end in zip([0, *cuts], [*cuts, None], strict=True)]


class Sink:
    """Takes each micro-batch once, by its number."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.taken: dict[int, list[Any]] = {}
        self.fails_at_next = False

    def start(self, records: Any) -> Any:
        writer = records.writeStream.option("checkpointLocation", str(self.checkpoint))
        return writer.foreachBatch(self._take).start()

    def _take(self, batch: Any, number: int) -> None:
        rows = sorted(batch.collect())
        assert self.taken.setdefault(number, rows) == rows
        if self.fails_at_next:
            self.fails_at_next = False
            raise RuntimeError("the sink has failed")

    def unfinished(self) -> int:
        """Return the number of the micro-batch whose offsets are written, and which is not done."""
        offsets, commits = (
            {int(path.name) for path in (self.checkpoint / name).iterdir() if path.name.isdigit()}
            for name in ("offsets", "commits")
        )
        (number,) = offsets - commits
        return number


def total(progress: Sequence[Any], name: str) -> int:
    return sum(one.observedMetrics["ceql"][name] for one in progress)


def test_a_topic_read_with_a_stop_and_a_fault_gives_each_match_once(spark: Any, topic: Topic, tmp_path: Path) -> None:
    events = trades(80)
    first, second, third, fourth = arriving(events, 4)
    sink = Sink(tmp_path / "checkpoint")
    progress: list[Any] = []

    def run(*puts: Sequence[Record]) -> None:
        running = sink.start(as_records(documented(spark, topic)))
        try:
            for records in puts:
                topic.put(records)
                running.processAllAvailable()
        finally:
            running.stop()
            progress.extend(running.recentProgress)

    run(first, second)
    sink.fails_at_next = True
    with pytest.raises(StreamingQueryException, match="the sink has failed"):
        run(third)
    failed = sink.unfinished()
    assert sink.taken[failed]
    # What comes before the restart is not for the micro-batch that is done again.
    topic.put([*fourth, END])
    run([], [END])
    rows_read = {one.batchId: one.numInputRows for one in progress}
    assert (rows_read[failed], rows_read[failed + 1]) == (len(third), len(fourth) + 1)
    found = [row for rows in sink.taken.values() for row in rows]
    assert decoded(found) == expected(events)
    assert len(found) > 30
    assert total(progress, "events") == sum(event["type"] != "HOLD" for event in events)
    assert total(progress, "matches") == len(found)
    assert total(progress, "late_events") == 0


def test_one_watermark_holds_for_all_partitions(spark: Any, topic: Topic) -> None:
    ahead = [trade(0, "SELL", "ann", 0), trade(30, "BUY", "ann", 1)]
    in_time = [trade(21, "SELL", "bob", 2), trade(25, "BUY", "bob", 3)]
    too_late = [trade(5, "SELL", "bob", 4), trade(20, "BUY", "bob", 5)]
    behind = in_time + too_late
    running = as_records(documented(spark, topic)).writeStream.format("memory").queryName("matches_of_a_topic").start()
    try:
        for put in ([record(0, one) for one in ahead], [record(1, one) for one in behind] + [END], [END]):
            topic.put(put)
            running.processAllAvailable()
    finally:
        running.stop()
    assert decoded(spark.table("matches_of_a_topic").collect()) == expected(ahead + in_time)
    assert total(running.recentProgress, "late_events") == len(too_late)
