"""`ceql run` on Spark: what is read and written, what it says, and with which exit code it ends."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import ceql
import spark_rows
from ceql.backends.spark.java import JavaError
from ceql.cli import app

pytest.importorskip("pyspark.sql")
import ceql.spark
from ceql.backends.files import read_events
from ceql.backends.spark.failures import explained
from ceql.backends.spark.files import read_frame
from ceql.backends.spark.lines import _Copier, json_lines, write_lines
from ceql.errors import JobError
from ceql.schema import Kind, kind_of
from ceql.visible import HIDDEN

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("default"),
    pytest.mark.usefixtures("spark"),
]

QUERY = "SELECT * FROM S WHERE A AS x ; B+ AS y WITHIN 5 [t] LIMIT 100"
EVENTS = pa.table(
    {
        "type": ["A", "B", "B", "A", "B"],
        "t": [0, 1, 2, 3, 9],
        "name": ["é", "b", None, "d", ""],
        "k": ["p", "p", "q", "q", "p"],
    }
)
SUMMARY = r"{}, [\d.]+ s on Spark\n"


@dataclass
class Ended:
    """How a command ended; paths in what it said are those that it was given."""

    exit_code: int
    stdout: str
    stderr: str


class Folder:
    """A folder with events in which commands run; Spark's own working folder stays that of its start."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def run(self, *arguments: str) -> Ended:
        """Run the query q.ceql."""
        given = ["run", str(self.path / "q.ceql")]
        for before, argument in zip(["", *arguments], arguments, strict=False):
            stream, is_named, path = argument.rpartition("=")
            given.append(f"{stream}{is_named}{self.path / path}" if before in ("-i", "-o") else argument)
        result = CliRunner().invoke(app, given)
        return Ended(result.exit_code, result.stdout, result.stderr.replace(f"{self.path}/", ""))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "q.ceql").write_text(QUERY)
    pa.parquet.write_table(EVENTS, tmp_path / "events.parquet")
    pa.csv.write_csv(EVENTS, tmp_path / "events.csv")
    lines = "".join(f"{json.dumps(row)}\n" for row in EVENTS.to_pylist())
    (tmp_path / "events.jsonl").write_text(lines)
    return Folder(tmp_path)


def rows(path: Path, format: str) -> list[dict[str, Any]]:
    """Return what is in a folder that Spark wrote, in an order of ours."""
    files = [one for one in path.iterdir() if one.name.startswith("part-")]
    if format == "json":
        found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    else:
        tables = [pa.csv.read_csv(one) if format == "csv" else pa.parquet.read_table(one) for one in files]
        found = [row for table in tables for row in table.to_pylist()]
    if format == "csv":
        found = [{**row, "x": json.loads(row["x"]), "y": json.loads(row["y"])} for row in found]
    return sorted(found, key=str)


def expected() -> list[dict[str, Any]]:
    return sorted(ceql.match(QUERY, EVENTS).to_arrow().to_pylist(), key=str)


# --- files --------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["parquet", "csv", "json"])
@pytest.mark.parametrize("input", ["parquet", "csv", "jsonl"])
def test_the_matches_are_those_of_the_engine(folder: Folder, input: str, output: str) -> None:
    result = folder.run("-i", f"events.{input}", "-o", f"m.{output}")
    assert result.exit_code == 0, result.stderr
    assert re.fullmatch(SUMMARY.format("3 matches"), result.stderr)
    assert result.stdout == ""
    assert rows(folder / f"m.{output}", output) == expected()


def test_folders_patterns_and_several_files(folder: Folder) -> None:
    parts = folder / "parts"
    parts.mkdir()
    for number in range(5):
        pa.csv.write_csv(EVENTS.slice(number, 1), parts / f"{number}.csv")
    for number, inputs in enumerate((["parts"], ["parts/*.csv"], ["parts/[0-3].csv", "parts/4.csv"])):
        arguments = [argument for path in inputs for argument in ("-i", path)]
        result = folder.run(*arguments, "-o", f"m{number}")
        assert result.exit_code == 0, result.stderr
        assert rows(folder / f"m{number}", "parquet") == expected()


def test_formats_by_name(folder: Folder, spark: Any) -> None:
    spark.read.parquet("file:" + str(folder / "events.parquet")).write.orc(str(folder / "events"))
    result = folder.run("-i", "events", "-o", "m", "--output-format", "json")
    assert result.exit_code == 0, result.stderr
    assert rows(folder / "m", "json") == expected()
    result = folder.run("-i", "events", "--format", "orc", "-o", "m2")
    assert result.exit_code == 0, result.stderr


def test_options_for_reading(folder: Folder) -> None:
    (folder / "bare.txt").write_text("A|0\nB|1\n")
    (folder / "q.ceql").write_text("SELECT * FROM S WHERE A AS x ; B AS y WITHIN 5 [_c1]")
    options = ["--format", "csv", "--option", "delimiter=|", "--option", "HEADER=false", "--type-column", "_c0"]
    result = folder.run("-i", "bare.txt", "-o", "m.json", *options)
    assert result.exit_code == 0, result.stderr
    assert rows(folder / "m.json", "json")[0]["y"] == {"_c0": "B", "_c1": 1}


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_declared_types_decide_what_text_holds(folder: Folder, suffix: str) -> None:
    declared = "CREATE STREAM S { EVENT A { t: int, code: string, at: timestamp } }"
    (folder / "q.ceql").write_text(f"{declared} SELECT * FROM S WHERE A AS x WITHIN 1 [t]")
    (folder / "e.csv").write_text("at,other,type,code,t\n2024-01-31 09:30:00,1.5,A,007,1\n")
    (folder / "e.jsonl").write_text('{"type": "A", "code": "007", "t": 1, "at": "2024-01-31T09:30:00"}\n')
    result = folder.run("-i", f"e.{suffix}", "-o", "m.json")
    assert result.exit_code == 0, result.stderr
    assert rows(folder / "m.json", "json")[0]["x"] == {"t": 1, "code": "007", "at": "2024-01-31T09:30:00.000000Z"}


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_times_are_found_in_text_and_mean_utc(folder: Folder, spark: Any, suffix: str) -> None:
    (folder / "e.csv").write_text("type,at\nA,2024-01-31 09:30:00\nB,2024-01-31 09:30:05\n")
    lines = [f'{{"type": "{kind}", "at": "2024-01-31T09:30:0{second}"}}\n' for kind, second in (("A", 0), ("B", 5))]
    (folder / "e.jsonl").write_text("".join(lines))
    (folder / "q.ceql").write_text("SELECT * FROM S WHERE A AS x ; B AS y WITHIN 5 seconds")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        result = folder.run("-i", f"e.{suffix}", "-o", "m.json")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert result.exit_code == 0, result.stderr
    assert rows(folder / "m.json", "json")[0]["match_end"] == "2024-01-31T09:30:05.000000Z"


def test_a_header_alone_is_an_empty_stream(folder: Folder) -> None:
    (folder / "empty.csv").write_text("type,t,name\n")
    queries = [
        "SELECT * FROM S WHERE A AS x FILTER x[name LIKE 'a%'] AND x[t > 1.5] PARTITION BY [name] WITHIN 5 seconds",
        "SELECT * FROM S WHERE A AS x ; B+ AS y WITHIN 5 [t] LIMIT 3",
    ]
    for query, output in zip(queries, (["--json"], ["-o", "m.csv"]), strict=True):
        (folder / "q.ceql").write_text(query)
        result = folder.run("-i", "empty.csv", *output)
        assert result.exit_code == 0, result.stderr
        assert re.search(SUMMARY.format("0 matches"), result.stderr)


def test_both_engines_read_the_same_from_text(folder: Folder, spark: Any) -> None:
    times = ["2024-01-31T10:20:30.123456789Z", "2024-01-31 10:20", "2024-01-31T10:20:30.5+02:00", "2024-01-31T10"]
    cells = {
        "type": ["A", "B", "C", "D"],
        "at": times,
        "day": ["2024-01-31", "2024-02-29", None, "2024-01-01"],
        "clock": ["10:00", "10:01", "10:02", "10:03"],
        "year": ["2024-05", "2023-01", "1999-12", "2000-01"],
        "key": ["NULL", "NA", None, "nan"],
        "x": [1.5, None, 2, -3e9],
        "n": [1, 2, None, 4],
        "flag": [True, None, False, True],
    }
    lines = [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]
    texts = [["" if value is None else str(value) for value in row.values()] for row in lines]
    (folder / "e.csv").write_text(
        "".join(f"{','.join(row)}\n" for row in [cells, *texts]).replace("10:02,1999-12,", '10:02,1999-12,""')
    )
    (folder / "e.jsonl").write_text("".join(f"{json.dumps(row | {'id': '1234'})}\n" for row in lines))
    (folder / "e.json").write_text(json.dumps(lines, indent=1))
    for name in ("e.csv", "e.jsonl", "e.json"):
        events = read_events(folder / name)
        local = pa.Table.from_batches(events.batches, events.schema)
        on_spark = read_frame(spark, [str(folder / name)]).toArrow().select(local.column_names)
        assert on_spark.to_pylist() == local.to_pylist()
        kinds = [[kind_of(data_type) for data_type in schema.types] for schema in (on_spark.schema, local.schema)]
        assert kinds[0] == kinds[1]
        assert local.column_names[: len(cells)] == list(cells)
        assert kinds[0][1] is Kind.TIMESTAMP


@pytest.mark.parametrize("arguments", [["-o", "m"], [], ["--json"]])
def test_events_without_key_or_time_are_counted_and_told(folder: Folder, arguments: list[str]) -> None:
    (folder / "e.csv").write_text("type,k,t\nA,p,1\nA,,2\nB,p,3\nB,q,\n")
    (folder / "q.ceql").write_text("SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 5 [t]")
    result = folder.run("-i", "e.csv", *arguments)
    assert result.exit_code == 0, result.stderr
    warning, summary = result.stderr.splitlines()
    assert warning == "warning: 2 events were left out: NULL in 'k' (PARTITION BY) or 't' (WITHIN)"
    assert summary.startswith("2 events left out, ")


def test_events_whose_type_has_no_key_or_whose_time_is_no_number_are_counted(folder: Folder) -> None:
    (folder / "e.csv").write_text("type,k,t\nA,p,1.5\nC,p,2.5\nA,p,NaN\nB,p,3.5\nZ,p,4.5\n")
    (folder / "q.ceql").write_text(
        "CREATE STREAM S { EVENT A { k: string, t: double }, EVENT B { k: string, t: double }, EVENT C { t: double } }"
        "SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 5 [t]"
    )
    for engine in ("spark", "local"):
        result = folder.run("-i", "e.csv", "--json", "--engine", engine, "--sort")
        assert result.exit_code == 0, result.stderr
        warning = "warning: 2 events were left out: NULL in 'k' (PARTITION BY) or 't' (WITHIN)\n"
        assert result.stderr.startswith(warning), engine


@pytest.mark.parametrize("clauses", ["", "PARTITION BY [k]"])
def test_ties_on_which_matches_depend_are_told(folder: Folder, clauses: str) -> None:
    (folder / "e.csv").write_text("type,k,t\nA,p,1\nB,p,1\nA,q,2\nB,q,2\nC,q,2\nA,p,9\n")
    (folder / "q.ceql").write_text(f"SELECT * FROM S WHERE A AS x : B AS y {clauses} WITHIN 5 [t]")
    note = "note: 3 events tie with an earlier event in 't', and their order can change the matches; order them with "
    for plan in ("keys", "single") if clauses else ("shards", "single"):
        result = folder.run("-i", "e.csv", "--json", "--plan", plan)
        assert result.exit_code == 0, result.stderr
        assert result.stderr.startswith(note), plan
        assert result.stderr.count("tie") == 1
    result = folder.run("-i", "e.csv", "--json", "--order-by", "type")
    assert "tie" not in result.stderr


def test_several_streams(folder: Folder) -> None:
    (folder / "q.ceql").write_text("SELECT * FROM S, T WHERE S>A AS x ; T>B AS y WITHIN 5 [t]")
    result = folder.run("-i", "T=events.csv", "-i", "S=events.parquet", "-o", "m")
    assert result.exit_code == 0, result.stderr
    assert [(row["match_start"], row["match_end"]) for row in rows(folder / "m", "parquet")] == [(0, 1), (0, 2)]


@pytest.mark.parametrize("plan", ["keys", "single"])
def test_plans(folder: Folder, plan: str) -> None:
    (folder / "q.ceql").write_text("SELECT * FROM S WHERE A AS x ; B AS y PARTITION BY [k] WITHIN 9 [t]")
    result = folder.run("-i", "events.parquet", "-o", "m", "--plan", plan, "--verbose")
    assert result.exit_code == 0, result.stderr
    assert result.stderr.startswith(f"plan: {plan}, because you asked for it")
    assert re.fullmatch(SUMMARY.format("2 matches"), result.stderr.splitlines(keepends=True)[-1])


def test_a_plan_that_is_not_possible(folder: Folder) -> None:
    result = folder.run("-i", "events.parquet", "-o", "m", "--plan", "keys")
    assert result.exit_code == 3
    assert "leave the choice to --plan auto" in result.stderr


# --- what is shown ------------------------------------------------------------------


def test_without_output_the_first_matches_are_shown(folder: Folder) -> None:
    result = folder.run("-i", "events.parquet")
    assert result.exit_code == 0, result.stderr
    assert re.fullmatch(SUMMARY.format("3 matches"), result.stderr)
    assert "match_start" in result.stdout
    assert "type=A t=0 name=é k=p" in result.stdout
    (folder / "q.ceql").write_text("SELECT * FROM S WHERE A AS x")
    pa.parquet.write_table(pa.table({"type": ["A"] * 30, "t": range(30)}), folder / "many.parquet")
    result = folder.run("-i", "many.parquet", "--order-by", "t")
    assert re.fullmatch(r"the first 20 matches, .* s on Spark; --output writes all\n", result.stderr)
    assert "t=19" in result.stdout
    assert "t=20" not in result.stdout


def test_matches_come_as_json_to_standard_output(folder: Folder) -> None:
    result = folder.run("-i", "events.parquet", "--json")
    assert sorted(map(json.loads, result.stdout.splitlines()), key=str) == expected()
    assert re.fullmatch(SUMMARY.format("3 matches"), result.stderr)


def test_json_is_the_same_for_both_engines(folder: Folder, spark: Any) -> None:
    nan, infinity = float("nan"), float("inf")
    events = pa.table(
        {
            "type": ["A"] * 3,
            "at": pa.array([0, 1_500_001, 10**15], pa.timestamp("us", "UTC")),
            "here": pa.array([0, None, 1], pa.timestamp("us")),
            "day": pa.array([0, None, 19000], pa.date32()),
            "x": [nan, infinity, 0.1],
            "y": pa.array([-infinity, None, 0.1], pa.float32()),
            "price": pa.array([Decimal("12345678901234567890.10"), None, Decimal("0.01")], pa.decimal128(22, 2)),
            "bytes": [b"\xff", b"", None],
            "text": ["\x7f\x9b\u202e", "é\n", None],
            "values": [[nan, 1.5], None, []],
            "map": pa.array([[("k", nan)], None, []], pa.map_(pa.string(), pa.float64())),
        }
    )
    pa.parquet.write_table(events, folder / "e.parquet")
    (folder / "q.ceql").write_text("SELECT * FROM S WHERE A+ AS x WITHIN 90 minutes [at] LIMIT 9")

    def parsed(lines: str) -> list[Any]:
        assert not HIDDEN.search(lines.replace("\n", "")), ascii(lines)
        return sorted((json.loads(line, parse_constant=pytest.fail) for line in lines.splitlines()), key=str)

    with spark_rows.settings(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        printed = folder.run("-i", "e.parquet", "--json")
        written = folder.run("-i", "e.parquet", "-o", "m.json")
    locally = folder.run("-i", "e.parquet", "--json", "--engine", "local")
    assert printed.exit_code == written.exit_code == locally.exit_code == 0, printed.stderr
    assert len(parsed(locally.stdout)) == 4
    assert parsed(printed.stdout) == parsed(locally.stdout) == rows(folder / "m.json", "json")
    assert folder.run("-i", "e.parquet", "-o", "m.jsonl", "--engine", "local").exit_code == 0
    assert (folder / "m.jsonl").read_text() == locally.stdout
    assert "1970-01-01T00:00:01.500001Z" in locally.stdout


def test_types_that_no_event_has_are_told_where_nothing_is_found(folder: Folder) -> None:
    (folder / "q.ceql").write_text("SELECT * FROM S WHERE A ; fial WITHIN 5 [t]")
    for output in ([], ["-o", "m"]):
        result = folder.run("-i", "events.parquet", *output)
        note = "note: there is no event of type fial; there are: A, B\n"
        assert re.fullmatch(note + SUMMARY.format("0 matches"), result.stderr), result.stderr


def test_what_the_query_warns_of_is_told_once(folder: Folder) -> None:
    (folder / "q.ceql").write_text("SELECT * FROM S WHERE A AS x FILTER x[t = NULL] WITHIN 5 [t]")
    result = folder.run("-i", "events.parquet", "-o", "m")
    note = "note: t = NULL is never true: write t IS NULL\n"
    assert re.fullmatch(note + SUMMARY.format("0 matches"), result.stderr), result.stderr


def test_matched_events(folder: Folder) -> None:
    result = folder.run("-i", "events.parquet", "-o", "m", "--shape", "events")
    assert result.exit_code == 0, result.stderr
    assert re.fullmatch(SUMMARY.format("7 matched events"), result.stderr)
    assert len(rows(folder / "m", "parquet")) == 7


# --- an output that is there --------------------------------------------------------


def test_modes(folder: Folder) -> None:
    command = ["-i", "events.parquet", "-o", "m"]
    assert folder.run(*command).exit_code == 0
    result = folder.run(*command)
    hint = "hint: --mode overwrite replaces it, --mode append adds to it"
    assert (result.exit_code, result.stderr) == (3, f"m exists already\n{hint}\n")
    assert folder.run(*command, "--mode", "append").exit_code == 0
    assert len(rows(folder / "m", "parquet")) == 6
    assert folder.run(*command, "--mode", "overwrite").exit_code == 0
    assert len(rows(folder / "m", "parquet")) == 3


def test_nothing_but_results_is_overwritten(folder: Folder) -> None:
    other = folder / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")
    result = folder.run("-i", "events.parquet", "-o", "other", "--mode", "overwrite")
    assert result.exit_code == 3
    assert "such as thesis.tex" in result.stderr
    result = folder.run("-i", "events.parquet", "-o", "events.parquet", "--mode", "overwrite")
    assert (result.exit_code, result.stderr) == (3, "input and output are the same: events.parquet\n")
    assert (other / "thesis.tex").read_text() == "years of work"
    assert pa.parquet.read_table(folder / "events.parquet") == EVENTS


# --- what goes wrong ----------------------------------------------------------------


def test_a_wrong_query(folder: Folder) -> None:
    (folder / "q.ceql").write_text(QUERY.replace("[t]", "[tt]"))
    result = folder.run("-i", "events.parquet", "-o", "m")
    assert result.exit_code == 1
    assert result.stderr.startswith("q.ceql: ")
    assert "hint: did you mean 't'?" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-i", "nope.csv"], "cannot read nope.csv: there is no such file or folder\n"),
        (["-i", "nope/*.csv"], "cannot read nope/[*].csv: there is no such file or folder\n"),
        (["-i", "bad.parquet"], "cannot read bad.parquet: file:bad.parquet: .*\n"),
        (["-i", "empty.csv"], "cannot read empty.csv: there is no line with column names\n"),
        (["-i", "bad.jsonl"], "cannot read bad.jsonl: .*\n"),
        (["-i", "empty.jsonl"], "cannot read empty.jsonl: there are no events to take the columns from\n"),
        (["-i", "empty"], "cannot tell the format of empty from its suffix or its files\nhint: give --format\n"),
        (["-i", "mixed"], "mixed has files of several formats: csv, json\nhint: give --format\n"),
        (["-i", "q.ceql"], "cannot tell the format of q.ceql from its suffix or its files\nhint: give --format\n"),
        (["-i", "a.arrow"], "Spark has no format for a.arrow\nhint: use Parquet, or --engine local\n"),
        (
            ["-i", "a.csv", "--format", "no-such"],
            "cannot read a.csv: Spark does not have the format 'no-such'\nhint: it has parquet, .*\n",
        ),
        (
            ["-i", "a.csv", "--format", "delta"],
            "cannot read a.csv: Spark does not have the format 'delta'\n"
            "hint: name its package in --conf spark.jars.packages=...\n",
        ),
        (["-i", "events.csv", "--type-column", "kind"], "events.csv: .* 'kind'\nhint: .*--type-column ''.*\n"),
        (["-i", "ragged.csv"], "file:(//)?ragged.csv: .*\nhint: .*mode=PERMISSIVE .*\n"),
        (["-i", "headers"], "file:(//)?headers/2.csv: .*\n"),
        (
            ["-i", "ns.parquet"],
            "cannot read ns.parquet: it has times in nanoseconds, which Spark does not read\n"
            "hint: write it with coerce_timestamps='us', .*\n",
        ),
        (["-i", "cells.tsv"], "cannot tell the format of cells.tsv .*\nhint: give --format csv --option .*\n"),
        (["-i", "cells.csv"], "cannot read cells.csv: .*separated by ';'\nhint: give --option delimiter=';'\n"),
        (["-i", "null.parquet"], "null.parquet: 't' is NULL in some event.*\nhint: .*\nbatch 1 of a task, .*\n"),
    ],
)
def test_wrong_data(folder: Folder, arguments: list[str], message: str) -> None:
    (folder / "bad.parquet").write_text("no parquet")
    (folder / "empty.csv").write_text("")
    (folder / "empty.jsonl").write_text("")
    (folder / "a.arrow").write_text("no arrow")
    (folder / "bad.jsonl").write_text('{"type": "A", "t": 0}\n{"type": \n')
    (folder / "ragged.csv").write_text("type,t\nA,1\nB,2,3\n")
    (folder / "cells.tsv").write_text("type\tt\nA\t1\n")
    (folder / "cells.csv").write_text("type;t\nA;1\n")
    nanoseconds = pa.table({"type": ["A"], "t": pa.array([1], pa.timestamp("ns"))})
    pa.parquet.write_table(nanoseconds, folder / "ns.parquet")
    for name in ("empty", "mixed", "headers"):
        (folder / name).mkdir()
    (folder / "mixed" / "1.csv").write_text("type,t\nA,1\n")
    (folder / "mixed" / "1.json").write_text('{"type": "A", "t": 1}\n')
    (folder / "headers" / "1.csv").write_text("type,t,u\n" + "A,1,1\n" * 9)
    (folder / "headers" / "2.csv").write_text("type,u,t\nB,2,2\n")
    pa.parquet.write_table(pa.table({"type": ["A", "B"], "t": pa.array([1, None])}), folder / "null.parquet")
    (folder / "q.ceql").write_text("SELECT * FROM S WHERE A AS x ; B AS y")
    result = folder.run(*arguments, "-o", "m", "--order-by", "t")
    assert result.exit_code == 3, result.stderr
    assert re.fullmatch(message, result.stderr), result.stderr
    assert result.stdout == ""


def test_a_failed_job(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ceql.backends.spark.worker.__version__", "0.0.0")
    result = folder.run("-i", "events.parquet", "-o", "m")
    assert result.exit_code == 4
    assert re.fullmatch(
        "Spark could not finish: Spark's workers have ceql .*, the driver has 0.0.0, .*\n", result.stderr
    )
    result = folder.run("-i", "events.parquet", "-o", "m", "--verbose")
    assert "Traceback" in result.stderr


def test_a_worker_that_dies(spark: Any) -> None:
    def die(_: Any) -> Any:
        import os

        os._exit(1)

    with pytest.raises(Exception, match="worker") as caught:
        spark.range(1).mapInArrow(die, "id long").collect()
    told = explained(caught.value)
    assert isinstance(told, JobError)
    assert str(told).startswith("Python worker exited unexpectedly (crashed).")
    assert "\tat " not in str(told)


def test_without_java(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise JavaError("Spark needs Java, but none was found", "install it")

    monkeypatch.setattr("ceql.spark.session", fail)
    ended = folder.run("-i", "events.parquet")
    message = "Spark needs Java, but none was found\nhint: install it; or use --engine local\n"
    assert (ended.exit_code, ended.stderr) == (5, message)


def test_a_failed_job_leaves_nothing_in_the_way(folder: Folder) -> None:
    pa.parquet.write_table(pa.table({"type": ["A", "B"], "t": pa.array([1, None])}), folder / "null.parquet")
    (folder / "q.ceql").write_text("SELECT * FROM S WHERE A AS x ; B AS y")
    assert folder.run("-i", "null.parquet", "-o", "m", "--order-by", "t").exit_code == 3
    assert not (folder / "m").exists()


def test_who_reads_may_stop(spark: Any) -> None:
    # All matches of the one task would not fit into memory.
    events = pa.table({"type": ["A"] * 300 + ["B"] * 300, "t": range(600)})
    rows = ceql.spark.match(
        "SELECT * FROM S WHERE A AS x ; A AS y ; B AS z ; B AS w", spark.createDataFrame(events), order_by=["t"]
    )
    reading, writing = os.pipe()
    read = []

    def read_some() -> None:
        with os.fdopen(reading, "rb") as lines:
            read.extend(next(lines) for _ in range(3))

    reader = threading.Thread(target=read_some)
    reader.start()
    with os.fdopen(writing, "wb", buffering=0) as file, pytest.raises(BrokenPipeError):
        write_lines(json_lines(rows), file)
    reader.join()
    assert [json.loads(line)["w"]["type"] for line in read] == ["B"] * 3


def test_lines_of_several_tasks_are_whole(spark: Any) -> None:
    rows = spark.range(0, 20_000, 1, 5).selectExpr("id", "repeat('é', CAST(id % 100 AS INT)) AS s")
    file = io.BytesIO()
    assert write_lines(json_lines(rows), file) == 20_000
    assert sorted(json.loads(line)["id"] for line in file.getvalue().splitlines()) == list(range(20_000))
    empty = io.BytesIO()
    assert (write_lines(json_lines(rows.where("false")), empty), empty.getvalue()) == (0, b"")


def test_nobody_waits_for_connections_that_say_nothing() -> None:
    file = io.BytesIO()
    with ExitStack() as stack:
        copier = stack.enter_context(_Copier(file, lambda: None))

        def connected(said: bytes) -> socket.socket:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", copier.port)))
            connection.sendall(said)
            return connection

        began = time.monotonic()
        for said in (b"", copier.secret[:-1], bytes(32), b"") * 2:
            connected(said)
        half = connected(copier.secret[:7])
        task = connected(copier.secret + b"one\n")
        half.sendall(copier.secret[7:] + b"two\n")
        task.sendall(b"three\n")
        task.close()
        half.close()
        copier.__exit__()
        assert sorted(file.getvalue().split()) == [b"one", b"three", b"two"]
        # Eight that say nothing would take ten seconds each.
        assert time.monotonic() - began < 40


def test_interruption_cancels_the_job(folder: Folder, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled: list[str] = []

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ceql.cli.on_spark.write_frame", interrupt)
    monkeypatch.setattr(type(spark), "interruptAll", lambda _: cancelled.append("all"))
    result = folder.run("-i", "events.parquet", "-o", "m")
    assert (result.exit_code, result.stderr) == (130, "cancelled\n")
    assert len(cancelled) == 1
    assert spark.getTags() == set()


def test_nothing_but_the_summary_is_said(folder: Folder) -> None:
    command = [sys.executable, "-m", "ceql", "run", "q.ceql", "-i", "events.parquet", "-o", "m", "--master", "local[1]"]
    done = subprocess.run(command, cwd=folder.path, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert re.fullmatch(SUMMARY.format("3 matches"), done.stderr)
