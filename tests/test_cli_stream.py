"""`ceql stream`: what is read and written, how it goes on, what it says, and with which exit code it ends."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner, Result

import ceql
from ceql.backends.spark.java import JavaError
from ceql.cli import app

pytest.importorskip("pyspark.sql")
from ceql.cli import stream_on_spark
from ceql.cli.stream_on_spark import Counts, Stop

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("default"),
    pytest.mark.usefixtures("spark"),
]

QUERY = "SELECT * FROM S WHERE A AS x ; B AS y PARTITION BY [k] WITHIN 6 seconds"
START = datetime(2024, 1, 31, 9, 30, tzinfo=UTC)
EVENTS = pa.table(
    {
        # The last event is there for its time only: with it the watermark passes all others.
        "type": [*"ABCAABBCABBA", "END"],
        "id": range(13),
        "k": [1, 1, 2, 2, 1, 2, 1, 2, 1, 1, 1, 2, 1],
        "at": pa.array([*(START + timedelta(seconds=n) for n in range(12)), START + timedelta(hours=1)]),
    }
)
ENDED = r"{} events, {}, 0 late, [\d.]+ s on Spark, watermark {}\n"


class Folder:
    """A folder in which files of events arrive in `in`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "in").mkdir()
        (path / "q.ceql").write_text(QUERY)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def put(self, name: str, events: pa.Table) -> None:
        """Let a file arrive, whole: Spark takes no notice of names that begin with a dot."""
        hidden = self / f"in/.{name}"
        pa.parquet.write_table(events, hidden)
        # Spark takes files in the order of their times, which may tie.
        os.utime(hidden, (1_700_000_000 + int(name),) * 2)
        hidden.rename(self / f"in/{name}.parquet")

    def arguments(self, *more: str, input: str = "in", output: str = "out") -> list[str]:
        """Return the arguments of a command; what is given later counts."""
        paths = ["-i", str(self / input), "-o", str(self / output), "--checkpoint", str(self / "state")]
        return ["stream", str(self / "q.ceql"), *paths, "--time-column", "at", *more]

    def run(self, *more: str, input: str = "in", output: str = "out") -> Result:
        """Take the files that are there."""
        arguments = self.arguments("--trigger", "available-now", *more, input=input, output=output)
        return CliRunner().invoke(app, arguments)

    def said(self, result: Result) -> str:
        """Return what a command said, with paths as they are below this folder."""
        return result.stderr.replace(f"{self.path}/", "")

    def rows(self) -> list[dict[str, Any]]:
        """Return what was written."""
        return [row for file in (self / "out").glob("part-*") for row in pa.parquet.read_table(file).to_pylist()]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def ids(matches: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return what tells matches from each other."""
    return sorted((match["x"]["id"], match["y"]["id"]) for match in matches)


def expected() -> list[tuple[int, int]]:
    return ids(ceql.match(QUERY, EVENTS).to_arrow().to_pylist())


# --- what is read and written -------------------------------------------------------


def test_a_stream_goes_on_where_it_stopped(folder: Folder) -> None:
    folder.put("0", EVENTS.slice(0, 4))
    folder.put("1", EVENTS.slice(4, 4))
    result = folder.run("--watermark", "2 seconds", "--max-files-per-trigger", "1")
    assert result.exit_code == 0, result.stderr
    assert re.fullmatch(ENDED.format(8, r"\d match(es)?", "2024-01-31 09:30:05 UTC"), result.stderr)
    assert result.stdout == ""

    folder.put("2", EVENTS.slice(8))
    (folder / "q.ceql").write_text(QUERY.replace("6 seconds", "7 seconds"))
    result = folder.run("--watermark", "2 seconds")
    assert result.exit_code == 3
    assert folder.said(result).startswith("state: the checkpoint belongs to another query: ")
    assert "\nhint: start the changed query with a new checkpoint" in result.stderr
    assert "\tat " not in result.stderr

    # Layout is no change, and the failed run did no harm.
    (folder / "q.ceql").write_text(QUERY.replace(" ", "\n"))
    result = folder.run("--watermark", "2 seconds")
    assert result.exit_code == 0, result.stderr
    command = ["run", str(folder / "q.ceql"), "-i", str(folder / "in"), "-o", str(folder / "batch.parquet")]
    assert CliRunner().invoke(app, [*command, "--time-column", "at", "--engine", "local"]).exit_code == 0
    assert ids(folder.rows()) == ids(pa.parquet.read_table(folder / "batch.parquet").to_pylist())


def test_text_in_and_out(folder: Folder) -> None:
    lines = [json.dumps({**row, "at": row["at"].isoformat()}) for row in EVENTS.to_pylist()]
    (folder / "in/1.json").write_text("\n".join(lines))
    (folder / "q.ceql").write_text("SELECT * FROM S WHERE A AS x ; B AS y WITHIN 1 second")
    more = ["--shape", "events", "--ordering", "arrival", "--schema", "type STRING, id LONG, at TIMESTAMP"]
    result = folder.run(*more, output="out.csv")
    assert result.exit_code == 0, result.stderr
    assert re.match(r"13 events, 6 matched events, 0 late, ", result.stderr)
    files = [one.read_text().splitlines() for one in (folder / "out.csv").glob("part-*")]
    assert sorted(row["id"] for lines in files for row in csv.DictReader(lines)) == list("014589")


# --- what goes wrong ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--trigger", "often"], "'often' is not a duration: write it as 5 seconds, or available-now"),
        (["--watermark", "10"], "'10' is not a duration: write it as 10 seconds"),
        (["--schema", "type; at"], "'type; at' is not a list of columns: write it as 'type STRING, at TIMESTAMP'"),
        (["--master", "mars"], "use local, local[4], yarn, or an address"),
        (["-i", "more"], "the stream S has 2: name one folder or pattern for it"),
    ],
)
def test_wrong_use(folder: Folder, more: list[str], message: str) -> None:
    result = folder.run(*more)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("input", "more", "message"),
    [
        ("in", [], "there are no files in in yet to take the columns from\nhint: give --schema .* and --format\n"),
        ("in/*.csv", [], "there are no files in in/[*].csv yet .*\nhint: .*\n"),
        ("header", [], "there are no events in header yet to take the columns from\nhint: give --schema .*\n"),
        ("in", ["--schema", "type STRING"], "cannot tell the format of in from its suffix or its files\nhint: .*\n"),
        ("nowhere", [], "cannot read nowhere: there is no such file or folder\n"),
        ("nowhere", ["--schema", "a INT", "--format", "csv"], "cannot read nowhere: there is no such file or folder\n"),
        (
            "full",
            ["--format", "no-such"],
            "cannot read full: Spark does not have the format 'no-such'\nhint: .*\n",
        ),
        ("full", ["--type-column", "kind"], "full: .* 'kind'\nhint: .*--type-column ''.*\n"),
        (
            "full",
            ["--schema", "type STRING, k BOOLEAN, at TIMESTAMP"],
            "file:(//)?full/1.parquet: column 'k' is not of type boolean, but INT64\n",
        ),
        (
            "ns",
            ["--schema", "type STRING, k LONG, at TIMESTAMP"],
            "file:(//)?ns/1.parquet: column 'at' is not of type timestamp, but INT64\n"
            "hint: if these are nanoseconds, write it with coerce_timestamps='us', .*\n",
        ),
        ("full/1.parquet", [], "full/1.parquet is a file\nhint: name the folder .*\n"),
        ("bad", ["--schema", "type STRING, k INT, at TIMESTAMP"], "file:(//)?bad/1.csv: .*\nhint: .*PERMISSIVE .*\n"),
        ("full", ["-o", "full/out"], "the output full/out lies within the input full\nhint: name a folder elsewhere\n"),
        ("full", ["-o", "state"], "output and checkpoint are the same: state\n"),
        ("full", ["-o", "old"], "old has results already, and state is not their checkpoint\nhint: .*\n"),
        ("full", ["--checkpoint", "used"], "the checkpoint used belongs to another output than out\nhint: .*\n"),
    ],
)
def test_wrong_data(folder: Folder, input: str, more: list[str], message: str) -> None:
    for name in ("full", "ns", "bad", "old", "header", "used/offsets", "used/commits"):
        (folder / name).mkdir(parents=True)
    pa.parquet.write_table(EVENTS, folder / "full/1.parquet")
    nanoseconds = pa.table({"type": ["A"], "k": [1], "at": pa.array([1], pa.timestamp("ns"))})
    pa.parquet.write_table(nanoseconds, folder / "ns/1.parquet")
    pa.parquet.write_table(EVENTS, folder / "old/part-0.parquet")
    (folder / "bad/1.csv").write_text("type,k,at\nA,one,2024-01-31 09:30:00\n")
    (folder / "header/1.csv").write_text("type,k,at\n")
    (folder / "used/offsets/0").write_text("v1")
    (folder / "used/commits/0").write_text("v1")
    if more and more[0] in ("-o", "--checkpoint"):
        more = [more[0], str(folder / more[1])]
    result = folder.run(*more, input=input)
    assert result.exit_code == 3, result.stderr
    assert re.fullmatch(message, folder.said(result)), result.stderr


@pytest.mark.parametrize(
    ("query", "more", "code", "message"),
    [
        (QUERY, ["--schema", "type STRING, k LONG, at STRING"], 1, "q.ceql: WITHIN cannot measure 'at': .* string\n.*"),
        (QUERY.replace("[k]", "[kk]"), [], 1, "q.ceql: .*hint: did you mean 'k'[?].*"),
        ("SELECT * FROM S WHERE A ; B", [], 3, "in: without WITHIN the state .*hint: add WITHIN, .* --unbounded\n"),
    ],
)
def test_queries_that_no_stream_takes(folder: Folder, query: str, more: list[str], code: int, message: str) -> None:
    folder.put("0", EVENTS)
    (folder / "q.ceql").write_text(query)
    result = folder.run(*more)
    assert result.exit_code == code, result.stderr
    assert re.fullmatch(message, folder.said(result), re.DOTALL), result.stderr


def test_without_java(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise JavaError("Spark needs Java, but none was found", "install it")

    monkeypatch.setattr("ceql.spark.session", fail)
    result = folder.run()
    assert (result.exit_code, result.stderr) == (5, "Spark needs Java, but none was found\nhint: install it\n")


def test_bad_records_are_counted_and_kept_aside(folder: Folder) -> None:
    names = pa.array([b"a", b"\xff", b"a"]).view(pa.string())
    (folder / "q.ceql").write_text(QUERY.replace("[k]", "[name]"))
    folder.put("0", EVENTS.slice(0, 3).append_column("name", names))
    said = []
    for name in ("1", "2"):
        result = folder.run("--watermark", "1 second", "--bad-records", str(folder / "aside"))
        assert result.exit_code == 0, result.stderr
        said.append(folder.said(result))
        # The end of a match, and what lets the watermark pass it.
        folder.put(name, EVENTS.take([5, 12]).append_column("name", pa.array(["a", "a"])))
    assert re.match(r"3 events, 0 matches, 0 late, 1 bad record, [\d.]+ s on Spark", said[0]), said
    assert re.match(r"2 events, 1 match, 0 late, [\d.]+ s on Spark", said[1]), said
    aside = pa.concat_tables(map(pa.parquet.read_table, (folder / "aside").glob("*.parquet")))
    assert aside["id"].to_pylist() == [1]
    assert aside["name"].cast(pa.binary()).to_pylist() == [b"\xff"]


# --- what it says, and how it stops -------------------------------------------------


def batch(number: int, watermark: str, **observed: int) -> SimpleNamespace:
    return SimpleNamespace(
        batchId=number,
        timestamp=f"2024-01-31T09:30:{number:02}.000Z",
        numInputRows=observed.get("events", 0),
        batchDuration=500,
        eventTime={"watermark": watermark},
        observedMetrics={"ceql": SimpleNamespace(**observed)} if observed else {},
    )


def test_every_batch_is_counted_once() -> None:
    counts = Counts("matches")
    one = batch(0, "1970-01-01T00:00:00.000Z", events=1000, matches=3, late_events=0, state_bytes=1_500_000)
    assert not counts.add(SimpleNamespace(lastProgress=None, recentProgress=[]))
    assert counts.add(SimpleNamespace(lastProgress=one, recentProgress=[one]))
    assert not counts.add(SimpleNamespace(lastProgress=one, recentProgress=[one]))
    assert counts.status(START) == "2,000 events/s, 6 matches/s, no watermark yet, state 1.5 MB, 0 late"
    two = batch(1, "2024-01-31T09:29:50.000Z", events=10, matches=1, late_events=2, state_bytes=200_000)
    idle = batch(2, "2024-01-31T09:29:50.000Z")
    assert counts.add(SimpleNamespace(lastProgress=idle, recentProgress=[one, two, idle]))
    watermark = "watermark 2024-01-31 09:29:50 UTC"
    assert counts.status(START) == f"0 events/s, 0 matches/s, {watermark} (10 s ago), state 200.0 kB, 2 late"
    assert counts.status(START + timedelta(days=1)) == f"0 events/s, 0 matches/s, {watermark}, state 200.0 kB, 2 late"
    assert counts.summary(1.5) == f"1,010 events, 4 matches, 2 late, 1.50 s on Spark, {watermark}"
    counts.is_cut_off = True
    assert counts.summary(1.5).endswith("\nthe last micro-batch was abandoned: the next run repeats it")


def test_who_sees_no_events_says_nothing_of_a_watermark() -> None:
    assert Counts("matches").summary(0.5) == "0 events, 0 matches, 0 late, 0.50 s on Spark, no new events"


class Running:
    """A query whose micro-batch takes for ever, or ends while it is looked at."""

    isActive = True  # noqa: N815
    status: ClassVar[dict[str, bool]] = {"isTriggerActive": True}

    def __init__(self, n_looks: int) -> None:
        self.n_looks = n_looks

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        self.n_looks -= 1
        return batch(int(self.n_looks < 0), "1970-01-01T00:00:00.000Z")


@pytest.mark.parametrize(("n_looks", "is_done"), [(1, True), (3, True), (10**9, False)])
def test_a_running_micro_batch_is_waited_for(monkeypatch: pytest.MonkeyPatch, n_looks: int, is_done: bool) -> None:
    monkeypatch.setattr(stream_on_spark, "SECONDS_TO_FINISH", 0.1)
    assert stream_on_spark._finish_batch(Running(n_looks)) is is_done


def test_who_asks_twice_does_not_want_to_wait() -> None:
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        stop = Stop()
        assert not stop
        stop.ask(number, None)
        assert stop
        assert stop.exit_code == code
        with pytest.raises(KeyboardInterrupt):
            stop.ask(number, None)


def test_a_signal_stops_the_stream_and_another_run_goes_on(folder: Folder) -> None:
    folder.put("0", EVENTS.slice(0, 6))
    command = [sys.executable, "-m", "ceql", *folder.arguments("--master", "local[2]", "--watermark", "1 second")]
    command += ["--conf", "spark.sql.session.timeZone=UTC"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 180
        while not list(folder.path.glob("state/commits/[1-9]")) and time.monotonic() < deadline:
            assert running.poll() is None, running.communicate()
            time.sleep(0.1)
        folder.put("1", EVENTS.slice(6, 3))
        running.send_signal(signal.SIGTERM)
        stdout, stderr = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 143
    assert stdout == ""
    said = r"\d events, \d match(es)?, 0 late, [\d.]+ s on Spark, watermark .* UTC\n"
    assert re.fullmatch(rf"{said}(the last micro-batch was abandoned: .*\n)?", stderr), stderr

    folder.put("2", EVENTS.slice(9))
    result = folder.run("--watermark", "1 second")
    assert result.exit_code == 0, result.stderr
    assert ids(folder.rows()) == expected()
