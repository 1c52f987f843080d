"""`ceql run` and `ceql generate`: from file to file, and nothing lost when it goes wrong."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import ceql
from ceql.backends.spark.paths import path_here
from ceql.cli import app

QUERY = "SELECT * FROM S WHERE A AS x ; B+ AS y WITHIN 5 [t] LIMIT 100"
EVENTS = pa.table({"type": ["A", "B", "B", "A"], "t": [0, 1, 2, 3], "name": ["é", "b", None, "d"]})
WRITERS = {
    "parquet": pa.parquet.write_table,
    "csv": pa.csv.write_csv,
    "arrow": lambda table, path: pa.ipc.new_file(path, table.schema).write_table(table),
    "jsonl": lambda table, path: Path(path).write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist())),
}


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "q.ceql").write_text(QUERY)
    for suffix, write in WRITERS.items():
        if suffix == "arrow":
            with pa.ipc.new_file(str(tmp_path / "events.arrow"), EVENTS.schema) as writer:
                writer.write_table(EVENTS)
        else:
            write(EVENTS, str(tmp_path / f"events.{suffix}"))
    return tmp_path


def rows(path: Path) -> list[dict[str, object]]:
    if path.name.endswith(".parquet"):
        return pa.parquet.read_table(path).to_pylist()
    if path.name.endswith(".arrow"):
        return pa.ipc.open_file(str(path)).read_all().to_pylist()
    text = gzip.decompress(path.read_bytes()).decode() if path.name.endswith(".gz") else path.read_text()
    if ".csv" in path.name:
        return pa.csv.read_csv(pa.py_buffer(text.encode())).to_pylist()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("output", ["parquet", "arrow", "jsonl", "jsonl.gz", "csv", "csv.gz"])
@pytest.mark.parametrize("input", WRITERS)
def test_run_writes_the_matches(folder: Path, input: str, output: str) -> None:
    target = folder / f"matches.{output}"
    code, said = run("run", "--engine", "local", folder / "q.ceql", "-i", folder / f"events.{input}", "-o", target)
    assert code == 0, said
    assert said.startswith("4 events, 3 matches, ")
    found = rows(target)
    assert [row["match_end"] for row in found] == [1, 2, 2]
    nested = found[0]["x"] if "csv" not in output else json.loads(str(found[0]["x"]))
    assert nested == {"type": "A", "t": 0, "name": "é"}


@pytest.mark.parametrize("shape", ["events", "positions"])
def test_run_in_other_shapes(folder: Path, shape: str) -> None:
    code, said = run(
        "run",
        "--engine",
        "local",
        folder / "q.ceql",
        "-i",
        folder / "events.parquet",
        "-o",
        folder / "m.parquet",
        "--shape",
        shape,
    )
    assert code == 0, said
    expected = ceql.match(QUERY, EVENTS, shape=shape).to_arrow()  # type: ignore[arg-type]
    assert pa.parquet.read_table(folder / "m.parquet").to_pylist() == expected.to_pylist()


def test_a_failed_run_leaves_an_older_result_alone(folder: Path) -> None:
    target = folder / "m.jsonl"
    target.write_text("older\n")
    backwards = EVENTS.set_column(1, "t", pa.array([3, 2, 1, 0]))
    pa.parquet.write_table(backwards, folder / "backwards.parquet")
    options = ["--engine", "local", "--mode", "overwrite"]
    code, said = run("run", folder / "q.ceql", "-i", folder / "backwards.parquet", "-o", target, *options)
    assert code == 3
    assert "time runs backwards at row 1" in said
    assert target.read_text() == "older\n"
    assert not list(folder.glob("*.unfinished")) + list(folder.glob(".*.unfinished"))
    code, said = run("run", folder / "q.ceql", "-i", folder / "backwards.parquet", "-o", target, *options, "--sort")
    assert code == 0, said


def test_an_older_result_is_replaced_only_if_that_is_asked_for(folder: Path) -> None:
    target = folder / "m.jsonl"
    target.write_text("older\n")
    command = ["run", "--engine", "local", folder / "q.ceql", "-i", folder / "events.csv", "-o", target]
    assert run(*command) == (3, f"{target} exists already\nhint: --mode overwrite replaces it\n")
    assert target.read_text() == "older\n"
    assert run(*command, "--mode", "overwrite")[0] == 0
    assert len(rows(target)) == 3


@pytest.mark.parametrize("shape", ["matches", "events", "positions"])
def test_without_output_the_matches_are_shown(folder: Path, shape: str) -> None:
    arguments = ["run", "--engine", "local", folder / "q.ceql", "-i", folder / "events.csv", "--shape", shape]
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.stderr
    first, *others = [line.rstrip() for line in result.stdout.splitlines() if line.strip()]
    schema = ceql.match(QUERY, EVENTS, shape=shape).schema  # type: ignore[arg-type]
    assert first.split() == schema.names
    assert len(others) > 3
    assert result.stderr.startswith("4 events, 7 matched events, " if shape == "events" else "4 events, 3 matches, ")


def test_only_the_first_of_many_matches_are_shown(folder: Path) -> None:
    (folder / "q.ceql").write_text("SELECT * FROM S WHERE A AS x")
    pa.parquet.write_table(pa.table({"type": ["A"] * 30, "[red]": range(30)}), folder / "many.parquet")
    arguments = ["run", "--engine", "local", str(folder / "q.ceql"), "-i", str(folder / "many.parquet")]
    result = CliRunner().invoke(app, arguments)
    assert "type=A [red]=19" in result.stdout
    assert "[red]=20" not in result.stdout
    assert re.fullmatch(r"the first 20 matches, [\d.]+ s; --output writes all\n", result.stderr)


def test_matches_come_as_json_to_standard_output_all_of_them(folder: Path) -> None:
    (folder / "q.ceql").write_text("SELECT * FROM S WHERE A AS x")
    pa.parquet.write_table(pa.table({"type": ["A"] * 30, "n": range(30)}), folder / "many.parquet")
    arguments = ["run", "--engine", "local", str(folder / "q.ceql"), "-i", str(folder / "many.parquet"), "--json"]
    result = CliRunner().invoke(app, arguments)
    assert [json.loads(line)["x"]["n"] for line in result.stdout.splitlines()] == list(range(30))
    assert result.stderr.startswith("30 events, 30 matches, ")


def test_with_output_the_summary_is_json(folder: Path) -> None:
    files = ["-i", str(folder / "events.csv"), "-o", str(folder / "m.jsonl")]
    result = CliRunner().invoke(app, ["run", "--engine", "local", str(folder / "q.ceql"), *files, "--json"])
    told = json.loads(result.stdout)
    assert told.pop("seconds") > 0
    output = str(folder / "m.jsonl")
    assert told == {"engine": "local", "shape": "matches", "rows": 3, "events": 4, "dropped": 0, "output": output}
    assert result.stderr == ""


def test_events_without_key_or_time_are_counted_and_told(folder: Path) -> None:
    (folder / "e.csv").write_text("type,k,t\nA,p,1\nA,,2\nB,p,3\nB,q,\n")
    (folder / "q.ceql").write_text("SELECT * FROM S WHERE A ; B PARTITION BY [k] WITHIN 5 [t]")
    arguments = ["run", "--engine", "local", folder / "q.ceql", "-i", folder / "e.csv", "-o", folder / "m.jsonl"]
    code, said = run(*arguments)
    assert code == 0, said
    warning, summary = said.splitlines()
    assert warning == "warning: 2 events were left out: NULL in 'k' (PARTITION BY) or 't' (WITHIN)"
    assert summary.startswith("4 events, 2 of them left out, 1 match, ")
    result = CliRunner().invoke(app, [*map(str, arguments), "--mode", "overwrite", "--json"])
    assert json.loads(result.stdout)["dropped"] == 2


def test_silences_beyond_the_last_event_count_only_if_nothing_comes(folder: Path) -> None:
    (folder / "e.csv").write_text("type,t\nA,1\nA,\nA,9\n")
    (folder / "q.ceql").write_text("SELECT * FROM S WHERE A AS a ; NOT B FOR 5 [t]")
    arguments = ["run", "--engine", "local", folder / "q.ceql", "-i", folder / "e.csv", "-o", folder / "m.jsonl"]
    code, said = run(*arguments)
    assert code == 0, said
    warning, summary = said.splitlines()
    assert warning == "warning: 1 event was left out: NULL in 't' (FOR)"
    assert summary.startswith("3 events, 1 of them left out, 1 match, ")
    code, said = run(*arguments, "--complete", "--mode", "overwrite")
    assert code == 0, said
    ends = [json.loads(line)["match_end"] for line in (folder / "m.jsonl").read_text().splitlines()]
    assert ends == [6, 14]


@pytest.mark.parametrize(
    ("query", "is_warned_of"),
    [
        ("SELECT * FROM S WHERE B+ AS y WITHIN 5 [t]", True),
        ("SELECT * FROM S WHERE A ; (A OR B+) AS y", True),
        ("SELECT * FROM S WHERE (A ; B):+", True),
        ("SELECT * FROM S WHERE (A AS x OR B AS y):+", True),
        ("SELECT * FROM S WHERE A : B:+ AS y", False),
        ("SELECT * FROM S WHERE (A : B):+ AS y", False),
        ("SELECT * FROM S WHERE B+ AS y LIMIT 3", False),
        ("SELECT MAX * FROM S WHERE B+ AS y", False),
        ("SELECT * FROM S WHERE A ; B", False),
    ],
)
def test_a_query_whose_matches_may_explode_is_warned_of_before_it_runs(
    folder: Path, query: str, is_warned_of: bool
) -> None:
    (folder / "q.ceql").write_text(query)
    code, said = run("run", "--engine", "local", folder / "q.ceql", "-i", folder / "events.csv")
    assert code == 0, said
    operator = ":+" if ":+" in query else "+"
    warning = (
        f"warning: {operator} under ALL finds every subset of the repeated events, exponentially many; "
        "add LIMIT n, or select MAX, NEXT or LAST\n"
    )
    assert said.startswith(warning) == is_warned_of
    assert said.count("warning") == is_warned_of


@pytest.mark.parametrize(
    ("query", "type_column", "note"),
    [
        ("SELECT * FROM S WHERE A ; fial", "type", "note: there is no event of type fial; there are: A, B\n"),
        ("SELECT * FROM S WHERE C OR D", "type", "note: there is no event of types C, D; there are: A, B\n"),
        ("SELECT * FROM S WHERE T", "", "note: there is no event of type T; there are: S\n"),
        ("SELECT * FROM S WHERE A AS x FILTER x[t > 9]", "type", ""),
    ],
)
def test_types_that_no_event_has_are_told_where_nothing_is_found(
    folder: Path, query: str, type_column: str, note: str
) -> None:
    (folder / "q.ceql").write_text(query)
    files = [folder / "q.ceql", "-i", folder / "events.csv"]
    code, said = run("run", "--engine", "local", *files, "--type-column", type_column)
    assert code == 0, said
    assert re.fullmatch(re.escape(note) + r"4 events, 0 matches, [\d.]+ s\n", said)


def test_what_the_query_warns_of_is_told_once(folder: Path) -> None:
    declared = "CREATE STREAM S { EVENT A { t: int } }"
    (folder / "q.ceql").write_text(f"{declared} SELECT * FROM S WHERE A AS x FILTER x[t = NULL]")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code, said = run("run", "--engine", "local", folder / "q.ceql", "-i", folder / "events.csv")
    assert code == 0, said
    assert said.count("t = NULL") == said.count("note: t = NULL is never true: write t IS NULL\n") == 1


def test_ties_on_which_matches_depend_are_told(folder: Path) -> None:
    (folder / "q.ceql").write_text("SELECT * FROM S WHERE A : B WITHIN 9 [t]")
    (folder / "ties.csv").write_text("type,t,id\nA,1,1\nB,1,2\nA,1,3\nB,2,4\n")
    files = [folder / "q.ceql", "-i", folder / "ties.csv", "--engine", "local", "-o", folder / "found.jsonl"]
    note = "note: 2 events tie with an earlier event in 't', and their order can change the matches; "
    code, said = run("run", *files)
    assert code == 0, said
    assert said.startswith(f"{note}order them with order_by\n4 events, 2 matches, ")
    code, said = run("run", *files, "--order-by", "id", "--mode", "overwrite")
    assert code == 0, said
    assert said.startswith("4 events, 2 matches, ")


def test_very_many_matches_are_told_of_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ceql.cli.local.MANY", 2)
    code, said = run("run", "--engine", "local", folder / "q.ceql", "-i", folder / "events.csv", "-o", folder / "m.csv")
    assert code == 0
    assert said.startswith("note: more than 2 rows so far; LIMIT n or CONSUME BY ANY give fewer\n4 events, 3 matches")


def test_folders_and_patterns_are_one_stream(folder: Path) -> None:
    parts = folder / "parts"
    parts.mkdir()
    for number in range(4):
        pa.csv.write_csv(EVENTS.slice(number, 1), parts / f"{number}.csv")
    (parts / "_SUCCESS").write_text("")
    target = folder / "m.jsonl"
    for paths in ([parts], [parts / "*.csv"], [parts / f"{number}.csv" for number in range(4)]):
        inputs = [argument for path in paths for argument in ("-i", path)]
        code, said = run("run", "--engine", "local", folder / "q.ceql", *inputs, "-o", target, "--mode", "overwrite")
        assert code == 0, said
        assert said.startswith("4 events, 3 matches, ")
        assert [row["match_end"] for row in rows(target)] == [1, 2, 2]


def test_files_of_one_stream_have_the_same_columns(folder: Path) -> None:
    pa.csv.write_csv(EVENTS.drop_columns(["name"]), folder / "other.csv")
    inputs = ["-i", folder / "events.csv", "-i", folder / "other.csv"]
    code, said = run("run", "--engine", "local", folder / "q.ceql", *inputs, "-o", folder / "m.jsonl", "--sort")
    assert code == 3
    assert f"its columns differ from those of {folder / 'events.csv'}" in said


def test_several_streams_are_given_by_name(folder: Path) -> None:
    (folder / "q.ceql").write_text("SELECT * FROM S, T WHERE S>A AS x ; T>B AS y WITHIN 5 [t]")
    code, said = run(
        *("run", "--engine", "local", folder / "q.ceql", "-o", folder / "m.jsonl"),
        *("-i", f"T={folder / 'events.csv'}", "-i", f"S={folder / 'events.parquet'}"),
    )
    assert code == 0, said
    assert [(row["match_start"], row["match_end"]) for row in rows(folder / "m.jsonl")] == [(0, 1), (0, 2)]


def test_options_for_reading_csv(folder: Path) -> None:
    (folder / "bare.txt").write_text("A;0\nB;1\n")
    (folder / "q.ceql").write_text("SELECT * FROM S WHERE A AS x ; B AS y WITHIN 5 [f1]")
    code, said = run(
        *("run", "--engine", "local", folder / "q.ceql", "-i", folder / "bare.txt", "-o", folder / "m.jsonl"),
        *("--format", "csv", "--option", "delimiter=;", "--option", "header=false", "--type-column", "f0"),
    )
    assert code == 0, said
    assert rows(folder / "m.jsonl")[0]["y"] == {"f0": "B", "f1": 1}


@pytest.mark.parametrize(
    ("query", "arguments", "message"),
    [
        ("S", ["--engine", "local", "--master", "local"], "--engine spark"),
        ("S", ["--engine", "local", "--plan", "keys"], "--engine spark"),
        ("S", ["--engine", "local", "--mode", "append"], "--engine spark"),
        ("S", ["--engine", "local", "--format", "orc"], "--engine local reads parquet"),
        ("S", ["--engine", "local", "--option", "quote=x"], "--engine local has header"),
        ("S", ["--option", "header"], "is not KEY=VALUE"),
        ("S", ["--conf", "memory=4g"], "'memory' is not a Spark setting: their names have dots"),
        ("S", ["--conf", "=x"], "is not KEY=VALUE"),
        ("S", ["--option", "\x1b[31mx"], r"'\x1b[31mx' is not KEY=VALUE"),
        ("S", ["--shape", "positions"], "--engine local"),
        ("S", ["--master", "somewhere"], "begins with spark://"),
        ("S", ["--output", "-"], "name a file or folder"),
        ("S, T", [], "does not say which stream it is"),
        ("S, T", ["--input", "T=b.csv"], "does not say which stream it is"),
    ],
)
def test_wrong_use(folder: Path, query: str, arguments: list[str], message: str) -> None:
    (folder / "q.ceql").write_text(f"SELECT * FROM {query} WHERE A")
    code, said = run("run", folder / "q.ceql", "-i", "a.csv", *arguments)
    assert code == 2
    assert message in re.sub(r"[\s│]+", " ", said)


def test_who_reads_may_stop(folder: Path) -> None:
    types = ["A"] * 300 + ["B"] * 300
    pa.parquet.write_table(pa.table({"type": types, "t": range(600)}), folder / "many.parquet")
    (folder / "q.ceql").write_text("SELECT * FROM S WHERE A AS x ; B AS y")
    command = [sys.executable, "-m", "ceql", "run", "--engine", "local", "q.ceql", "-i", "many.parquet", "--json"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"match_start":')
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_a_stream_that_is_not_given(folder: Path) -> None:
    (folder / "q.ceql").write_text("SELECT * FROM S, T WHERE A")
    code, said = run("run", folder / "q.ceql", "-i", "S=a.csv")
    assert code == 2
    assert "add --input T=PATH" in re.sub(r"[\s│]+", " ", said)


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (["run", "-i", "nope.csv"], "nope.csv"),
        (["run", "-i", "events.csv", "-i", "nope"], "nope"),
        (["run", "-i", "nope/*.csv"], "nope/*.csv"),
        (["run", "-i", "file:nope.csv", "--master", "local[2]"], "file:nope.csv"),
        (["run", "-i", "S=nope.csv", "--format", "csv"], "nope.csv"),
        (["stream", "-i", "nope", "-o", "m", "--checkpoint", "c"], "nope"),
    ],
)
def test_a_wrong_path_is_told_before_spark_starts(
    folder: Path, arguments: list[str], missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.chdir(folder)
    monkeypatch.setattr("ceql.spark.session", lambda *_, **__: pytest.fail("Spark is started"))
    command, *others = arguments
    code, said = run(command, "q.ceql", *others)
    assert (code, said) == (3, f"cannot read {missing}: there is no such file or folder\n")


@pytest.mark.parametrize(
    ("path", "master", "conf", "environ", "is_here"),
    [
        ("a/b.csv", None, {}, {}, True),
        ("/a/*.csv", "local[4]", {"spark.driver.memory": "1g"}, {}, True),
        ("file:/a", "yarn", {}, {"HADOOP_CONF_DIR": "/etc/hadoop"}, True),
        ("file:///a", "sc://host", {}, {}, False),
        ("hdfs:///a", None, {}, {}, False),
        ("s3a://b/a", "local", {}, {}, False),
        ("abfss:a", "local", {}, {}, False),
        ("a/{b,c}.csv", None, {}, {}, False),
        ("a", "yarn", {}, {}, False),
        ("a", None, {"spark.master": "spark://host:7077"}, {}, False),
        ("a", None, {"spark.hadoop.fs.defaultFS": "hdfs://host"}, {}, False),
        ("a", None, {}, {"HADOOP_CONF_DIR": "/etc/hadoop"}, False),
        ("a", None, {}, {"SPARK_REMOTE": "sc://host"}, False),
    ],
)
def test_what_may_lie_elsewhere_is_left_to_spark(
    path: str, master: str | None, conf: dict[str, str], environ: dict[str, str], is_here: bool
) -> None:
    assert (path_here(path, master, conf, environ) is not None) == is_here


def test_without_pyspark(folder: Path) -> None:
    code = "import sys; sys.modules['pyspark'] = None; from ceql.cli import app; app()"
    command = [sys.executable, "-c", code, "run", "q.ceql", "-i", "events.parquet"]
    done = subprocess.run([*command, "-o", "m"], cwd=folder, capture_output=True, text=True, check=False)
    missing = "PySpark is not installed: pip install 'ceql[spark]', or use --engine local\n"
    assert (done.returncode, done.stdout, done.stderr) == (5, "", missing)
    done = subprocess.run([*command, "--engine", "local"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_mistake_in_a_declaration_is_one_in_the_query(folder: Path) -> None:
    (folder / "q.ceql").write_text("CREATE STREAM S { EVENT A { x: integr } } SELECT * FROM S WHERE A")
    code, said = run("run", "--engine", "local", folder / "q.ceql", "-i", folder / "events.csv")
    assert code == 1
    assert "unknown type 'integr'" in said


@pytest.mark.parametrize(
    ("input", "output", "code", "message"),
    [
        ("events.csv", "events.csv", 3, "input and output are the same file"),
        ("nope.csv", "m.csv", 3, "No such file or directory"),
        ("nope/", "m.csv", 3, "there is no such file or folder"),
        ("events.csv", "m.txt", 3, "cannot tell the format of"),
        ("events.csv", "nowhere/m.csv", 3, "there is no folder"),
        ("mixed.csv", "m.csv", 3, "conversion error"),
    ],
)
def test_files_that_cannot_be_used(folder: Path, input: str, output: str, code: int, message: str) -> None:
    lines = "".join(f"A,{number},{number}\n" for number in range(2_000_000))
    if input == "mixed.csv":
        (folder / input).write_text(f"type,t,v\n{lines}A,2000000,half\n")
    before = (folder / "events.csv").read_bytes()
    found, said = run("run", "--engine", "local", folder / "q.ceql", "-i", folder / input, "-o", folder / output)
    assert found == code
    assert message in said
    assert "Traceback" not in said
    assert (folder / "events.csv").read_bytes() == before


@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize(
    "query",
    [
        QUERY,
        "SELECT * FROM S WHERE A AS x FILTER x[name LIKE 'a%'] AND x[t > 1.5] PARTITION BY [name] WITHIN 5 seconds",
        "SELECT * FROM S WHERE A AS x ; B AS y WITHIN 5 seconds [t]",
        "CREATE STREAM S { EVENT A { t: int } } SELECT * FROM S WHERE A AS x WITHIN 5 [t]",
        "SELECT MAX * FROM S WHERE A+ AS x FILTER x[t + 1 = 2] CONSUME BY ANY",
    ],
)
def test_a_header_alone_is_an_empty_stream(folder: Path, query: str, end: str) -> None:
    (folder / "q.ceql").write_text(query)
    (folder / "empty.csv").write_text("type,t,name" + end)
    command = ["run", "--engine", "local", folder / "q.ceql", "-i", folder / "empty.csv"]
    for output in ([], ["-o", folder / "m.parquet"], ["-o", folder / "m.csv"], ["--json", "--sort", "--order-by", "t"]):
        code, said = run(*command, *output)
        assert code == 0, said
        assert "0 events, 0 matches, " in said


def test_declared_types_decide_what_csv_holds(folder: Path) -> None:
    (folder / "q.ceql").write_text("CREATE STREAM S { EVENT A { code: string } } SELECT * FROM S WHERE A AS x")
    (folder / "codes.csv").write_text("type,code\nA,007\n")
    assert (
        run("run", "--engine", "local", folder / "q.ceql", "-i", folder / "codes.csv", "-o", folder / "m.jsonl")[0] == 0
    )
    assert rows(folder / "m.jsonl")[0]["x"] == {"code": "007"}


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_generate_gives_the_same_events_for_the_same_seed(tmp_path: Path, suffix: str) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert run("generate", "stocks", "--events", 500, "--seed", seed, "-o", tmp_path / f"{name}.{suffix}")[0] == 0
    first, second, third = (rows(tmp_path / f"{name}.{suffix}") for name in "abc")
    assert len(first) == 500
    assert first == second != third
    times = [row["stock_time"] for row in first]
    assert times == sorted(times)  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("options", "n_matches"),
    [
        (["--param", 'names=["b"]', "--param", "limit=0"], 1),
        (["--param", "names=b", "--param", "limit=1"], 0),
        (["--param-file", "params.json"], 2),
        (["--param-file", "params.json", "--param", "limit=1"], 1),
    ],
)
def test_parameters_come_from_options_and_from_a_file(folder: Path, options: list[str], n_matches: int) -> None:
    (folder / "q.ceql").write_text("SELECT * FROM S WHERE (A OR B) AS x FILTER x[name IN $names AND t > $limit]")
    (folder / "params.json").write_text('{"names": ["b", "d"], "limit": 0}')
    options = [str(folder / option) if option.endswith(".json") else option for option in options]
    out = folder / "out.jsonl"
    code, _ = run("run", folder / "q.ceql", "-i", folder / "events.parquet", "-o", out, "--engine", "local", *options)
    assert code == 0
    assert len(rows(out)) == n_matches
    for command in ("check", "explain"):
        assert run(command, folder / "q.ceql", "--schema", folder / "events.parquet", *options)[0] == 0


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ([], 1, "parameter '$names' has no value"),
        (["--param", "names"], 2, "'names' is not NAME=VALUE"),
        (["--param-file", "none.json"], 3, "cannot read"),
        (["--param-file", "q.ceql"], 3, "not JSON"),
        (["--param-file", "list.json"], 3, "not a JSON object"),
    ],
)
def test_parameters_that_cannot_be_read(folder: Path, options: list[str], code: int, message: str) -> None:
    (folder / "q.ceql").write_text("SELECT * FROM S WHERE A AS x FILTER x[name IN $names]")
    (folder / "list.json").write_text("[1]")
    options = [str(folder / option) if "." in option else option for option in options]
    found, told = run("run", folder / "q.ceql", "-i", folder / "events.parquet", "--engine", "local", *options)
    assert found == code
    assert message in " ".join(re.sub(r"[│╭╮╰╯─]", "", told).split())
