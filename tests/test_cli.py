"""The commands `check` and `explain`: what they print, where, and with which exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from typer.testing import CliRunner, Result

import ceql
from ceql.cli import app

GOOD = "SELECT * FROM S WHERE A AS x ; B+ AS y FILTER x[price > 1.5] WITHIN 10 EVENTS"
EVENTS = pa.table({"type": ["A", "B"], "price": [1.0, 2.0], "t": [1, 2]})


def run(*arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments], input=stdin)


@pytest.fixture
def query(tmp_path: Path) -> Path:
    path = tmp_path / "query.ceql"
    path.write_text(GOOD, encoding="utf-8")
    return path


def write_events(path: Path) -> Path:
    match path.suffix:
        case ".parquet":
            pa.parquet.write_table(EVENTS, path)
        case ".arrow" | ".feather":
            pa.feather.write_feather(EVENTS, path)
        case ".csv":
            pa.csv.write_csv(EVENTS, path)
        case _:
            path.write_text('{"type": "A", "price": 1.0, "t": 1}\n{"type": "B", "price": 2.0, "t": 2}\n')
    return path


# --- check --------------------------------------------------------------------------


def test_check_says_ok_and_what_it_could_not_check(query: Path) -> None:
    result = run("check", query)
    assert result.exit_code == 0
    assert result.stdout == f"{query}: ok\n"
    assert result.stderr.startswith("note: names and types of attributes are not known")


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather", ".csv", ".jsonl", ".ndjson", ".JSON"])
def test_check_against_a_file_of_events(query: Path, tmp_path: Path, suffix: str) -> None:
    events = write_events(tmp_path / f"events{suffix}")
    result = run("check", query, "--schema", events)
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{query}: ok\n", "")
    query.write_text(GOOD.replace("price", "pric"), encoding="utf-8")
    result = run("check", query, "--schema", events)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "event type A has no attribute 'pric'" in result.stderr
    assert "hint: did you mean 'price'?" in result.stderr


@pytest.mark.parametrize("command", ["check", "explain"])
def test_warnings_are_notes(query: Path, tmp_path: Path, command: str) -> None:
    events = write_events(tmp_path / "events.parquet")
    query.write_text("SELECT * FROM S WHERE A AS x FILTER x['type' = 'A']", encoding="utf-8")
    result = run(command, query, "--schema", events)
    note = "note: 'type' = 'A' uses no attribute: write the attribute type without quotes\n"
    assert (result.exit_code, result.stderr) == (0, note)


def test_check_shows_the_mistake_as_the_library_does(query: Path) -> None:
    text = "SELECT *\nFROM S\nWHERE A ; ) ; B"
    query.write_text(text, encoding="utf-8")
    with pytest.raises(ceql.QueryError) as caught:
        ceql.compile(text)
    result = run("check", query)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"{query}: {caught.value}\n"


@pytest.mark.parametrize(
    "formula", ["X :A: :heart: Y", "[bold]A[/bold]", "A https://a.b/c 'x' 1.5", "A" + " ; AB" * 99 + " )"]
)
def test_excerpts_are_shown_as_they_are(query: Path, formula: str) -> None:
    text = f"SELECT * FROM S WHERE {formula}"
    query.write_text(text, encoding="utf-8")
    with pytest.raises(ceql.QueryError) as caught:
        ceql.compile(text)
    assert run("check", query).stderr == f"{query}: {caught.value}\n"


def test_declared_types_need_no_note(query: Path) -> None:
    query.write_text("CREATE STREAM S { EVENT A { x: int } }\nSELECT * FROM S WHERE A", encoding="utf-8")
    assert run("check", query).stderr == ""


def test_time_column(query: Path, tmp_path: Path) -> None:
    query.write_text("SELECT * FROM S WHERE A ; B WITHIN 1 hour", encoding="utf-8")
    events = tmp_path / "events.parquet"
    times = pa.array([0, 1], pa.timestamp("us", tz="UTC"))
    pa.parquet.write_table(pa.table({"type": ["A", "B"], "sent": times, "got": times}), events)
    assert run("check", query, "--schema", events).exit_code == 1
    assert run("check", query, "--schema", events, "--time-column", "got").exit_code == 0


def test_columns_that_options_name_must_be_in_the_schema(query: Path, tmp_path: Path) -> None:
    events = write_events(tmp_path / "events.parquet")
    for command in ("check", "explain"):
        known = ["--type-column", "type", "--order-by", "t,price"]
        assert run(command, query, "--schema", events, *known).exit_code == 0
        result = run(command, query, "--schema", events, "--type-column", "typ")
        assert (result.exit_code, result.stdout) == (3, "")
        assert result.stderr.startswith(
            f"{events}: the events have no type column 'typ'\n"
            "hint: did you mean 'type'? columns are type, price, t: name one with --type-column, "
        )
        assert run(command, query, "--schema", events, "--order-by", "t,pric").exit_code == 3
        result = run(command, query, "--schema", events, "--type-column", "t")
        assert (result.exit_code, result.stderr) == (3, f"{events}: the type column 't' is of type int64, not string\n")


# --- reading ------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["check", "explain"])
def test_a_dash_reads_standard_input(command: str) -> None:
    assert run(command, "-", stdin=GOOD.encode()).exit_code == 0
    result = run(command, "-", stdin=b"SELECT")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("-: the query ends too early, after 'SELECT'\n")


@pytest.mark.parametrize("command", ["check", "explain"])
def test_files_that_cannot_be_read(command: str, tmp_path: Path) -> None:
    missing = tmp_path / "missing.ceql"
    for path, reason in ((missing, "No such file or directory"), (tmp_path, "Is a directory")):
        result = run(command, path)
        assert (result.exit_code, result.stdout) == (3, "")
        assert result.stderr == f"cannot read {path}: {reason}\n"


@pytest.mark.parametrize("query", [GOOD, "\ncreate stream S { }\nSELECT * FROM S WHERE A", GOOD * 100])
@pytest.mark.parametrize("command", [["check"], ["run", "-i", "e.csv", "--engine", "local"]])
def test_a_query_where_its_file_is_expected(command: list[str], query: str) -> None:
    result = run(*command, query)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("expected a file, not a query\nhint: put the query into a file, or pass -")


def test_a_file_may_be_called_as_queries_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "select all").write_text(GOOD)
    assert run("check", "select all").exit_code == 0


def test_text_that_is_not_utf_8(query: Path) -> None:
    query.write_bytes("SELECT * FROM S WHERE Größe".encode("latin-1"))
    result = run("check", query)
    assert (result.exit_code, result.stderr) == (3, f"{query}: not UTF-8 at byte 24\n")


@pytest.mark.parametrize("text", [b"\xef\xbb\xbf" + GOOD.encode(), GOOD.replace(" ", "\r\n").encode()])
def test_byte_order_mark_and_line_ends_of_windows(query: Path, text: bytes) -> None:
    query.write_bytes(text)
    assert run("check", query).exit_code == 0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("missing.parquet", None),
        ("events.parquet", b"no parquet"),
        ("events.arrow", b"no arrow"),
        ("events.csv", b""),
        ("events.jsonl", b"{"),
        ("events.xlsx", b""),
        ("events", b""),
    ],
)
def test_schemas_that_cannot_be_read(query: Path, tmp_path: Path, name: str, content: bytes | None) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    result = run("check", query, "--schema", path)
    assert result.exit_code not in (0, 2)
    assert result.stdout == ""
    assert name in result.stderr
    assert "Traceback" not in result.stderr


# --- explain ------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["ast", "plan", "automaton"])
@pytest.mark.parametrize("format", ["text", "dot", "mermaid"])
def test_explain_prints_what_the_library_explains(query: Path, stage: str, format: str) -> None:
    result = run("explain", query, "--stage", stage, "--format", format)
    assert result.exit_code == 0
    assert result.stderr.startswith("note: names and types of attributes are not known")
    assert result.stdout == ceql.compile(GOOD).explain(stage, format=format) + "\n"  # type: ignore[arg-type]
    assert len(result.stdout) > 50


@pytest.mark.parametrize("stage", ["ast", "plan", "automaton"])
def test_graphs_are_whole(query: Path, stage: str) -> None:
    dot = run("explain", query, "--stage", stage, "--format", "dot").stdout
    assert dot.startswith("digraph query {\n")
    assert dot.endswith("}\n")
    assert dot.count('"') % 2 == 0
    mermaid = run("explain", query, "--stage", stage, "--format", "mermaid").stdout.splitlines()
    assert mermaid[0].startswith("flowchart ")
    assert len(mermaid) > 3


@pytest.mark.parametrize(
    ("clauses", "said"),
    [
        ("", "state: without WITHIN nothing expires"),
        ("WITHIN 10 EVENTS", "first and last event at most 10 positions apart"),
        ("WITHIN 1 hour [t]", "first and last event at most 3600 seconds apart in t"),
        ("PARTITION BY [k]", "parallel: partitions are independent"),
        ("CONSUME BY ANY", "one task only: CONSUME BY ANY"),
        ("LIMIT 3", "LIMIT 3 caps them"),
    ],
)
def test_the_plan_says_what_a_query_costs(query: Path, clauses: str, said: str) -> None:
    query.write_text(f"SELECT * FROM S WHERE A ; B+ {clauses}", encoding="utf-8")
    result = run("explain", query)
    assert result.exit_code == 0
    assert said in result.stdout
    assert "update: constant time per event" in result.stdout


# --- use ----------------------------------------------------------------------------


def test_version() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"ceql {ceql.__version__}\n")


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["check", "--help"], ["explain", "-h"]])
def test_help(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 0
    assert "Usage" in result.stdout


@pytest.mark.parametrize("command", [[], ["run"], ["stream"], ["show"], ["bench", "paper"], ["datasets", "prepare"]])
def test_flags_in_help_have_no_value(command: list[str]) -> None:
    shown = run(*command, "--help").stdout
    assert "--help" in shown
    assert "bool" not in shown.lower()


@pytest.mark.parametrize("command", ["check", "explain", "run", "generate"])
def test_help_has_examples_before_options(command: str) -> None:
    shown = run(command, "--help").stdout
    assert f"  ceql {command} " in shown.partition("Options")[0].partition("Examples:")[2]


@pytest.mark.parametrize("arguments", [["check"], ["explain"], ["unknown"], ["explain", "-", "--stage", "none"]])
def test_wrong_use_has_exit_code_2(arguments: list[str]) -> None:
    result = run(*arguments, stdin=GOOD.encode())
    assert result.exit_code == 2
    assert "Usage" in result.stderr


def test_check_tells_a_program_what_is_wrong_and_where(tmp_path: Path) -> None:
    path = tmp_path / "q.ceql"
    path.write_text("SELECT * FROM S\nWHERE A AS x FILTER y[p > 1]")
    result = CliRunner().invoke(app, ["check", str(path), "--json"])
    told = json.loads(result.stdout)
    assert (result.exit_code, told["ok"], told["line"], told["column"]) == (1, False, 2, 21)
    assert "'y'" in told["message"]
    assert result.stderr == ""


def test_check_tells_a_program_what_the_result_has(tmp_path: Path) -> None:
    path = tmp_path / "q.ceql"
    path.write_text("CREATE STREAM S { EVENT A { p: int } }\nSELECT x FROM S WHERE A AS x ; A")
    result = CliRunner().invoke(app, ["check", str(path), "--json"])
    told = json.loads(result.stdout)
    assert (result.exit_code, told["ok"], list(told["columns"])) == (0, True, ["match_start", "match_end", "x"])
