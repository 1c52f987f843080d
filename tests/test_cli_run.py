"""`ceql run` and `ceql generate`: from file to file, and nothing lost when it goes wrong."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import ceql
from ceql.cli import app

QUERY = "SELECT * FROM S WHERE A AS x ; B+ AS y WITHIN 5 [t]"
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
    code, said = run("run", folder / "q.ceql", "-i", folder / f"events.{input}", "-o", target)
    assert code == 0, said
    assert said.startswith("4 events, 3 matches, ")
    found = rows(target)
    assert [row["match_end"] for row in found] == [1, 2, 2]
    nested = found[0]["x"] if "csv" not in output else json.loads(str(found[0]["x"]))
    assert nested == {"type": "A", "t": 0, "name": "é"}


@pytest.mark.parametrize("shape", ["events", "positions"])
def test_run_in_other_shapes(folder: Path, shape: str) -> None:
    code, said = run(
        "run", folder / "q.ceql", "-i", folder / "events.parquet", "-o", folder / "m.parquet", "--shape", shape
    )
    assert code == 0, said
    expected = ceql.match(QUERY, EVENTS, shape=shape).to_arrow()  # type: ignore[arg-type]
    assert pa.parquet.read_table(folder / "m.parquet").to_pylist() == expected.to_pylist()


def test_a_failed_run_leaves_an_older_result_alone(folder: Path) -> None:
    target = folder / "m.jsonl"
    target.write_text("older\n")
    backwards = EVENTS.set_column(1, "t", pa.array([3, 2, 1, 0]))
    pa.parquet.write_table(backwards, folder / "backwards.parquet")
    code, said = run("run", folder / "q.ceql", "-i", folder / "backwards.parquet", "-o", target)
    assert code == 3
    assert "time runs backwards at row 1" in said
    assert target.read_text() == "older\n"
    assert not list(folder.glob("*.unfinished")) + list(folder.glob(".*.unfinished"))
    code, said = run("run", folder / "q.ceql", "-i", folder / "backwards.parquet", "-o", target, "--sort")
    assert code == 0, said


@pytest.mark.parametrize(
    ("input", "output", "code", "message"),
    [
        ("events.csv", "events.csv", 3, "input and output are the same file"),
        ("nope.csv", "m.csv", 3, "No such file or directory"),
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
    found, said = run("run", folder / "q.ceql", "-i", folder / input, "-o", folder / output)
    assert found == code
    assert message in said
    assert "Traceback" not in said
    assert (folder / "events.csv").read_bytes() == before


def test_declared_types_decide_what_csv_holds(folder: Path) -> None:
    (folder / "q.ceql").write_text("CREATE STREAM S { EVENT A { code: string } } SELECT * FROM S WHERE A AS x")
    (folder / "codes.csv").write_text("type,code\nA,007\n")
    assert run("run", folder / "q.ceql", "-i", folder / "codes.csv", "-o", folder / "m.jsonl")[0] == 0
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
