"""A streaming query gives the matches of a batch, each once, whatever happens between its micro-batches."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ceql.errors import CeqlError, DataError

pytest.importorskip("pyspark.sql")
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812

import ceql.spark
from ceql.backends.spark.query import prepare
from ceql.backends.spark.stream import match as spark_stream

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("default"),
]

START = datetime(2024, 3, 10, 6, 59, 30, tzinfo=UTC)
COLUMNS = "type string, id long, k long, v double, s string"
Events = list[dict[str, Any]]


def events(n_events: int = 90) -> Events:
    """Return events with ties, in the order of time; one in three is of no interest to any query."""
    chance = random.Random(11)
    at = START
    rows = []
    for number in range(n_events):
        at += timedelta(seconds=chance.choice([0, 1, 1, 2]))
        row = {"type": chance.choice("AABBZZ"), "id": number, "k": chance.choice([None, 1, 2, 3])}
        rows.append({**row, "v": chance.choice([None, 0.5, 2.0]), "s": chance.choice([None, "", "é"]), "t": at})
    return rows


def disordered(rows: Events, seconds: float) -> Events:
    chance = random.Random(12)
    delays = [chance.random() * seconds for _ in rows]
    order = sorted(range(len(rows)), key=lambda at: rows[at]["t"] + timedelta(seconds=delays[at]))
    return [rows[at] for at in order]


def at(seconds: float, event_type: str, **attributes: Any) -> dict[str, Any]:
    return {"type": event_type, "id": int(seconds), "k": 1, "t": START + timedelta(seconds=seconds), **attributes}


class Folder:
    """A folder into which files with events are put, one after the other."""

    def __init__(self, path: Path, time_type: str = "timestamp") -> None:
        self.path = path
        self.time_type = time_type
        self._n_files = 0
        path.mkdir()

    def put(self, rows: list[Any]) -> None:
        """Add a file; what is no event is written as it is."""
        lines = [row if isinstance(row, str) else json.dumps({**row, "t": self._shown(row["t"])}) for row in rows]
        hidden = self.path / f".{self._n_files}"
        hidden.write_text("\n".join(lines) + "\n")
        # Spark takes files in the order of their times, which may tie.
        os.utime(hidden, (1_700_000_000 + self._n_files,) * 2)
        hidden.rename(self.path / f"{self._n_files:03}.json")
        self._n_files += 1

    def _shown(self, time: datetime) -> str:
        return (time.replace(tzinfo=None) if self.time_type == "timestamp_ntz" else time).isoformat()

    def stream(self, spark: Any, n_files: int = 1) -> Any:
        """Return the events as they come, so many files at a time."""
        reader = spark.readStream.schema(f"{COLUMNS}, t {self.time_type}").option("maxFilesPerTrigger", n_files)
        return reader.json(str(self.path))

    def batch(self, spark: Any) -> Any:
        return spark.read.schema(f"{COLUMNS}, t {self.time_type}").json(str(self.path))


class Sink:
    """Starts streaming queries with one checkpoint and keeps what they give, each micro-batch once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.taken: dict[int, list[str]] = {}
        self.metrics: dict[str, int] = {}
        self.query: Any = None

    def start(self, found: Any, **trigger: Any) -> Any:
        writer = found.writeStream.outputMode("append").option("checkpointLocation", str(self.path))
        self.query = (writer.trigger(**trigger) if trigger else writer).foreachBatch(self._take).start()
        return self.query

    def run(self, found: Any) -> None:
        """Go on with all files that there are, and stop."""
        self.start(found, availableNow=True).awaitTermination()
        self.count()

    def count(self) -> None:
        """Add up what the progress of the query has counted."""
        for progress in self.query.recentProgress:
            for name, value in progress.observedMetrics["ceql"].asDict().items():
                self.metrics[name] = self.metrics.get(name, 0) + value

    def _take(self, batch: Any, number: int) -> None:
        rows = sorted(shown(batch))
        assert self.taken.setdefault(number, rows) == rows

    @property
    def rows(self) -> list[str]:
        return [row for rows in self.taken.values() for row in rows]


def shown(frame: Any) -> list[str]:
    return [text for (text,) in frame.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()]


@contextmanager
def time_zone(spark: Any, name: str) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", name)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.usefixtures("three_tasks")
@pytest.mark.parametrize(
    ("query", "shape", "time_type", "zone"),
    [
        (
            "SELECT * FROM S WHERE A AS x ; B+ AS y FILTER x[v IS NULL OR v > 1] PARTITION BY [k] WITHIN 8 seconds",
            "matches",
            "timestamp",
            "UTC",
        ),
        (
            "SELECT * FROM S WHERE A AS x ; B AS y PARTITION BY [k] WITHIN 8 seconds CONSUME BY ANY",
            "events",
            "timestamp_ntz",
            "America/New_York",
        ),
    ],
)
def test_a_stream_that_is_stopped_and_started_again_gives_the_matches_of_a_batch(
    spark: Any, tmp_path: Path, query: str, shape: Any, time_type: str, zone: str
) -> None:
    folder, sink = Folder(tmp_path / "in", time_type), Sink(tmp_path / "checkpoint")
    options: Any = {"time_column": "t", "order_by": ["id"], "shape": shape}
    arriving = disordered(events(), 4)
    with time_zone(spark, zone):
        for begin in range(0, 45, 15):
            folder.put(arriving[begin : begin + 15])
        sink.run(ceql.spark.match(query, folder.stream(spark, 2), watermark="5 seconds", **options))
        for begin in range(45, 90, 15):
            folder.put(arriving[begin : begin + 15])
        folder.put([at(1000, "Z", id=1000)])
        sink.run(ceql.spark.match(query, folder.stream(spark, 2), watermark="5 seconds", **options))
        expected = shown(ceql.spark.match(query, folder.batch(spark), **options))
    assert sorted(sink.rows) == sorted(expected)
    assert len(expected) > 4
    assert sink.metrics["matches"] == len(expected)
    assert sink.metrics["late_events"] == 0


def test_a_state_that_is_split_into_parts_gives_the_matches_of_a_batch(spark: Any, tmp_path: Path) -> None:
    query = "SELECT * FROM S WHERE A AS x ; B AS y PARTITION BY [k] WITHIN 60 seconds"
    folder, sink = Folder(tmp_path / "in"), Sink(tmp_path / "checkpoint")
    arriving = disordered([{**row, "k": row["id"] % 9} for row in events()], 4)

    def run() -> int:
        """Go on with all files that there are; return how many parts are kept after it."""
        options: dict[str, Any] = {"type_column": "type", "time_column": "t", "order_by": ["id"], "shape": "matches"}
        prepared = prepare(query, folder.stream(spark), **options)
        options = {"watermark": "5 seconds", "ordering": "time", "unbounded": False, "n_shards": 2}
        sink.run(spark_stream.match(prepared, **options, max_part_bytes=100))
        state = spark.read.format("statestore").option("path", str(sink.path))
        n_parts: int = state.option("stateVarName", "parts").load().count()
        return n_parts

    folder.put(arriving[:30])
    folder.put(arriving[30:60])
    assert run() > 2
    folder.put(arriving[60:])
    folder.put([at(1000, "Z", id=1000)])
    assert run() == 0
    expected = shown(ceql.spark.match(query, folder.batch(spark), time_column="t", order_by=["id"]))
    assert sorted(sink.rows) == sorted(expected)
    assert len(expected) > 4
    assert sink.metrics["late_events"] == 0


@pytest.mark.parametrize(("whose", "window"), [("one for all", "WITHIN 12 seconds"), ("one each", "")])
def test_several_streams_are_one_in_the_order_of_time(spark: Any, tmp_path: Path, whose: str, window: str) -> None:
    query = f"SELECT * FROM R, S WHERE R>A AS x ; S>B AS y PARTITION BY [k] {window}"
    folders = {name: Folder(tmp_path / name) for name in "RS"}
    rows = events(60)
    for number, folder in enumerate(folders.values()):
        own = disordered(rows[number::2], 4)
        folder.put(own[:15])
        folder.put(own[15:])
        folder.put([at(1000, "Z")])
    streams = {name: folder.stream(spark) for name, folder in folders.items()}
    watermark = "5 seconds" if whose == "one for all" else None
    if watermark is None:
        streams = {name: stream.withWatermark("t", "5 seconds") for name, stream in streams.items()}
    sink = Sink(tmp_path / "checkpoint")
    options: Any = {"watermark": watermark, "unbounded": not window}
    sink.run(ceql.spark.match(query, streams, time_column="t", order_by=["id"], **options))
    batch = {name: folder.batch(spark) for name, folder in folders.items()}
    expected = shown(ceql.spark.match(query, batch, time_column="t", order_by=["id"]))
    assert sorted(sink.rows) == sorted(expected)
    assert len(expected) > 5


def test_irrelevant_rows_move_the_watermark_and_late_events_are_dropped_and_counted(spark: Any, tmp_path: Path) -> None:
    query = "SELECT x FROM S WHERE A AS x ; B PARTITION BY [k] WITHIN 6 seconds [t]"
    folder, sink = Folder(tmp_path / "in"), Sink(tmp_path / "checkpoint")
    watermarked = folder.stream(spark).withWatermark("t", "5 seconds")
    running = sink.start(ceql.spark.match(query, watermarked, order_by=["id"]))
    try:
        steps: list[tuple[list[Any], int]] = [
            ([at(0, "A"), at(5, "B"), "no event at all"], 0),
            ([at(9, "Z"), at(9, "A", k=None)], 0),
            ([at(10, "Z")], 1),
            ([at(5, "A"), at(6, "B"), at(30, "Z")], 2),
            ([at(25, "B"), at(26, "A"), '{"type": "A", "id": 0, "k": 1, "t": "never"}'], 2),
            ([at(27, "B"), at(100, "Z")], 3),
        ]
        for rows, n_matches in steps:
            folder.put(rows)
            running.processAllAvailable()
            assert len(sink.rows) == n_matches, rows
        sink.count()
        last = running.lastProgress
    finally:
        running.stop()
    assert {name: sink.metrics[name] for name in ("events", "matches", "late_events")} == {
        "events": 7,
        "matches": 3,
        "late_events": 2,
    }
    assert sink.metrics["state_bytes"] > 0
    # Of the two shards that there were, a header each.
    assert [operator.numRowsTotal for operator in last.stateOperators] == [2]


def test_matches_can_be_aggregated_by_the_time_of_their_end(spark: Any, tmp_path: Path) -> None:
    query = "SELECT MAX x, y FROM S WHERE A AS x ; B AS y FILTER y[s != 'é'] WITHIN 6 seconds"
    folder, sink = Folder(tmp_path / "in"), Sink(tmp_path / "checkpoint")
    arriving = disordered(events(60), 4)
    folder.put(arriving[:30])
    folder.put(arriving[30:])
    folder.put([at(1000, "Z")])
    folder.put([at(2000, "Z")])

    def counted(frame: Any, **options: Any) -> Any:
        found = ceql.spark.match(query, frame, time_column="t", order_by=["id"], **options)
        return found.groupBy(F.window("match_end", "10 seconds")).count()

    sink.run(counted(folder.stream(spark), watermark="5 seconds"))
    expected = shown(counted(folder.batch(spark)))
    assert sorted(sink.rows) == sorted(expected)
    assert len(expected) > 3


def test_a_changed_query_is_refused_and_one_laid_out_otherwise_goes_on(spark: Any, tmp_path: Path) -> None:
    query = "SELECT x FROM S WHERE A AS x ; B PARTITION BY [k] WITHIN 6 seconds"
    folder, sink = Folder(tmp_path / "in"), Sink(tmp_path / "checkpoint")
    options: Any = {"time_column": "t", "watermark": "1 second"}
    folder.put([at(0, "A")])
    sink.run(ceql.spark.match(query, folder.stream(spark), **options))
    folder.put([at(3, "B"), at(50, "Z")])
    with pytest.raises(StreamingQueryException) as error:
        sink.run(ceql.spark.match(query.replace("6", "7"), folder.stream(spark), **options))
    assert "belongs to another query" in str(error.value)
    assert "WITHIN 6 seconds' and is" in str(error.value)
    assert sink.rows == []
    sink.run(ceql.spark.match(query.replace(" WHERE", "\n  WHERE"), folder.stream(spark), **options))
    assert [json.loads(row)["x"]["type"] for row in sink.rows] == ["A"]


TIMED = "SELECT * FROM S WHERE A AS x ; B AS y WITHIN 6 seconds"

NAMES_OF_FILES = ("checkpoint/sources/*/*", "checkpoint/state/*/_metadata/v2/*", "out/_spark_metadata/*")
"""Where a checkpoint and the output of files have absolute paths."""


def test_a_checkpoint_can_be_moved_if_the_paths_in_it_are_changed(spark: Any, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    folder = Folder(old / "in")

    def run(place: Path) -> list[tuple[int, int]]:
        found = ceql.spark.match(TIMED, folder.stream(spark), time_column="t", watermark="1 second")
        writer = found.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
        writer.trigger(availableNow=True).start(str(place / "out")).awaitTermination()
        return sorted((row.x.id, row.y.id) for row in spark.read.parquet(str(place / "out")).collect())

    folder.put([at(0, "A"), at(1, "B"), at(3, "A")])
    assert run(old) == [(0, 1)]
    old.rename(new)
    folder.path = new / "in"
    for path in [path for pattern in NAMES_OF_FILES for path in new.glob(pattern)]:
        if path.suffix == ".crc":
            path.unlink()
        else:
            path.write_text(path.read_text().replace(str(old), str(new)))
    folder.put([at(4, "B"), at(50, "Z")])
    assert run(new) == [(0, 1), (0, 4), (3, 4)]


def test_another_delay_is_accepted_and_the_watermark_never_goes_back(spark: Any, tmp_path: Path) -> None:
    folder, sink = Folder(tmp_path / "in"), Sink(tmp_path / "checkpoint")
    n_late = []
    for delay, rows in (
        ("20 seconds", [at(11, "A"), at(30, "Z")]),
        # Until the first micro-batch is done the watermark is the old one, 10 seconds after the start.
        ("2 seconds", [at(15, "B"), at(31, "Z")]),
        ("50 seconds", [at(29, "B"), at(40, "Z")]),
    ):
        folder.put(rows)
        sink.run(ceql.spark.match(TIMED, folder.stream(spark), time_column="t", watermark=delay))
        n_late.append(sink.metrics["late_events"])
    assert [(json.loads(row)["x"]["id"], json.loads(row)["y"]["id"]) for row in sink.rows] == [(11, 15)]
    assert n_late == [0, 0, 1]
    assert sink.query.lastProgress.eventTime["watermark"] == "2024-03-10T06:59:59.000Z"


def test_a_stream_whose_state_is_damaged_fails(spark: Any, tmp_path: Path) -> None:
    folder, sink = Folder(tmp_path / "in"), Sink(tmp_path / "checkpoint")
    folder.put([at(0, "A")])
    found = ceql.spark.match(TIMED, folder.stream(spark), time_column="t", watermark="1 second")
    sink.run(found)
    for path in (sink.path / "state" / "0").rglob("*"):
        if path.suffix in (".zip", ".changelog", ".sst"):
            content = path.read_bytes()
            path.write_bytes(content[: len(content) // 2])
    folder.put([at(3, "B"), at(50, "Z")])
    with pytest.raises(StreamingQueryException):
        sink.run(found)
    assert sink.rows == []


@pytest.mark.skipif(shutil.which("mount") is None, reason="a small disk needs the command mount")
def test_a_stream_whose_disk_is_full_fails_and_goes_on_when_there_is_room(spark: Any, tmp_path: Path) -> None:
    folder, sink = Folder(tmp_path / "in"), Sink(tmp_path / "checkpoint")
    rows = events()
    for begin in range(0, 90, 15):
        folder.put(rows[begin : begin + 15])
    folder.put([at(1000, "Z", id=1000)])
    found = ceql.spark.match(TIMED, folder.stream(spark), time_column="t", order_by=["id"], watermark="1 second")
    sink.path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "none", sink.path], check=False).returncode:
        pytest.skip("a small disk cannot be made here")
    try:
        with pytest.raises(StreamingQueryException, match="No space left on device"):
            sink.run(found)
        subprocess.run(["mount", "-o", "remount,size=64m", sink.path], check=True)
        sink.run(found)
    finally:
        subprocess.run(["umount", "-l", sink.path], check=True)
    expected = shown(ceql.spark.match(TIMED, folder.batch(spark), time_column="t", order_by=["id"]))
    assert sorted(sink.rows) == sorted(expected)
    assert len(expected) > 4


TEXT_KEYS = "SELECT x, y FROM S WHERE A AS x ; B AS y PARTITION BY [s] WITHIN 6 seconds"
OPTIONS: Any = {"time_column": "t", "order_by": ["id"]}
FAR = 10**7
"""So many days after 1970, the year is beyond 9999."""


def decoded(frame: Any) -> Any:
    """Return rows whose text may be any bytes, and whose dates may be any days: files of JSON would not have them."""
    text = F.unhex("s").cast("string")
    return frame.withColumn("s", text).withColumn("day", F.expr("date_from_unix_date(int(v))"))


def test_a_stream_goes_on_after_bad_records_and_counts_them(spark: Any, tmp_path: Path) -> None:
    folder, sink = Folder(tmp_path / "in"), Sink(tmp_path / "checkpoint")
    folder.put([at(0, "A", s="41", v=1), at(1, "A", s="ff", v=1), at(2, "B", s="ff", v=1)])
    folder.put([at(3, "A", s="41", v=FAR), at(4, "B", s="41", v=1)])
    n_bad = 0
    for _ in range(2):
        found = ceql.spark.match(TEXT_KEYS, decoded(folder.stream(spark)), watermark="1 second", **OPTIONS)
        sink.run(found)
        n_bad += sum(one.observedMetrics["ceql_input"].bad_records for one in sink.query.recentProgress if one.sources)
        folder.put([at(5, "B", s="41", v=1), at(50, "Z", s="ff", v=None), at(40, "Z", s="", v=None)])
    pairs = [(json.loads(row)["x"]["id"], json.loads(row)["y"]["id"]) for row in sink.rows]
    assert pairs == [(0, 4), (0, 5)]
    assert n_bad == 4
    # A bad record has no time either: the watermark is that of the last good one.
    assert sink.query.lastProgress.eventTime["watermark"] == "2024-03-10T07:00:09.000Z"


def test_bad_records_can_be_kept_aside(spark: Any, tmp_path: Path) -> None:
    folder, sink = Folder(tmp_path / "in"), Sink(tmp_path / "checkpoint")
    folder.put([at(0, "A", s="41", v=FAR), at(1, "A", s="ff", v=1), at(2, "Z", s="ff", v=1), at(3, "A", s=None, v=1)])
    # The query shows all columns, unless it is told which there are.
    declared = "CREATE STREAM S { EVENT A { s: string, t: timestamp }, EVENT B { s: string, t: timestamp } } "
    for text, expected in ((TEXT_KEYS, [0, 1, 2]), (declared + TEXT_KEYS, [1, 2])):
        bad = ceql.spark.bad_records(text, decoded(folder.batch(spark)), **OPTIONS)
        assert sorted(row.id for row in bad.select("id").collect()) == expected
    aside = ceql.spark.bad_records(TEXT_KEYS, {"S": decoded(folder.stream(spark))}, **OPTIONS)["S"]
    sink.start(aside.select("id", F.hex("s").alias("s")), availableNow=True).awaitTermination()
    assert sink.rows == ['{"id":0,"s":"41"}', '{"id":1,"s":"FF"}', '{"id":2,"s":"FF"}']


MISTAKES: dict[str, tuple[str, dict[str, Any], str]] = {
    "no time": ("SELECT * FROM S WHERE A WITHIN 3 EVENTS", {"order_by": ["id"]}, "needs a timestamp"),
    "time of another type": (
        "SELECT * FROM S WHERE A WITHIN 3 [id]",
        {"watermark": "1 second"},
        "'id' is of type int64",
    ),
    "silence of another type": (
        "SELECT * FROM S WHERE A ; NOT B FOR 3 [id]",
        {"time_column": "t", "watermark": "1 second"},
        "on a stream FOR must measure a timestamp, but 'id' is of type int64",
    ),
    "silence without watermark": (
        "SELECT * FROM S WHERE A ; NOT B FOR 3 seconds",
        {"time_column": "t"},
        "no watermark on 't'",
    ),
    "silence after matches without window": (
        "SELECT * FROM S WHERE A ; C ; NOT B FOR 3 seconds",
        {"time_column": "t", "watermark": "1 second"},
        "grows for ever",
    ),
    "complete": (TIMED, {"time_column": "t", "watermark": "1 second", "complete": True}, "a stream has no end"),
    "no watermark": (TIMED, {"time_column": "t"}, "no watermark on 't'"),
    "no window": ("SELECT * FROM S WHERE A ; B", {"time_column": "t", "watermark": "1 second"}, "grows for ever"),
    "plan": (TIMED, {"time_column": "t", "watermark": "1 second", "plan": "keys"}, "is for batch DataFrames"),
    "duration without unit": (TIMED, {"time_column": "t", "watermark": "10"}, "'10' is not a duration"),
    "duration of unknown unit": (
        TIMED,
        {"time_column": "t", "watermark": "10 parsecs"},
        "'10 parsecs' is not a duration",
    ),
    "negative duration": (TIMED, {"time_column": "t", "watermark": "-1 seconds"}, "is not a duration"),
    "shape": (TIMED, {"time_column": "t", "watermark": "1 second", "shape": "positions"}, "no cheap row numbers"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_told_before_anything_starts(spark: Any, tmp_path: Path, name: str) -> None:
    query, options, message = MISTAKES[name]
    with pytest.raises(CeqlError, match=message):
        ceql.spark.match(query, Folder(tmp_path / "in").stream(spark), **options)


def test_a_watermark_on_some_of_the_streams_is_not_enough(spark: Any, tmp_path: Path) -> None:
    streams = {name: Folder(tmp_path / name).stream(spark) for name in "RS"}
    streams["R"] = streams["R"].withWatermark("t", "5 seconds")
    with pytest.raises(DataError, match="no watermark on 't'"):
        ceql.spark.match("SELECT * FROM R, S WHERE R>A ; S>B WITHIN 12 seconds", streams, time_column="t")


def test_an_unknown_ordering_is_refused(spark: Any, tmp_path: Path) -> None:
    options: Any = {"time_column": "t", "watermark": "1 second", "ordering": "chance"}
    with pytest.raises(ValueError, match="unknown ordering 'chance'"):
        ceql.spark.match(TIMED, Folder(tmp_path / "in").stream(spark), **options)


@pytest.mark.parametrize("option", [{"watermark": "1 second"}, {"ordering": "arrival"}, {"unbounded": True}])
def test_options_of_streams_are_refused_for_batches(spark: Any, tmp_path: Path, option: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=f"{next(iter(option))} is only for streaming DataFrames"):
        ceql.spark.match(TIMED, Folder(tmp_path / "in").batch(spark), time_column="t", **option)


def test_streams_and_batches_cannot_be_mixed(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "in")
    frames = {"R": folder.stream(spark), "S": folder.batch(spark)}
    with pytest.raises(DataError, match="some of the streams are streaming"):
        ceql.spark.match("SELECT * FROM R, S WHERE A WITHIN 1 second", frames, time_column="t", watermark="1 second")


def test_the_plan_of_a_stream_is_explained(spark: Any, tmp_path: Path) -> None:
    stream = Folder(tmp_path / "in").stream(spark)
    told = ceql.spark.explain(f"{TIMED.replace('WITHIN', 'PARTITION BY [k] WITHIN')}", stream, time_column="t")
    assert f"keys k are hashed to {spark_stream.DEFAULT_SHARDS} shards" in told
    assert "one shard has all events" in ceql.spark.explain(TIMED, stream, time_column="t")
