"""`ceql generate` in one process: what it writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from ceql.backends.files import read_events
from ceql.cli import app
from ceql.datasets.generate import DATASETS, events, schema


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.stderr


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv", "jsonl"])
def test_one_file_of_any_format(tmp_path: Path, dataset: str, suffix: str) -> None:
    out = tmp_path / f"events.{suffix}"
    out.write_text("what was there before")
    code, said = run("generate", dataset, "--events", 300, "--seed", 4, "-o", out)
    assert code == 0, said
    assert said.startswith(f"300 {dataset} events in {out}, ")
    rows = [row for batch in read_events(out).batches for row in batch.to_pylist()]
    assert rows == pa.Table.from_batches(events(dataset, 300, 4)).to_pylist()


@pytest.mark.parametrize("dataset", DATASETS)
def test_parquet_of_several_blocks(tmp_path: Path, dataset: str) -> None:
    out = tmp_path / "events.parquet"
    assert run("generate", dataset, "--events", 200_000, "-o", out)[0] == 0
    assert pa.parquet.read_table(out) == pa.Table.from_batches(events(dataset, 200_000), schema(dataset))
    assert [path.name for path in tmp_path.iterdir()] == ["events.parquet"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-o", "events.txt"], 3, "cannot tell the format of"),
        (["-o", "nowhere/events.csv"], 3, "cannot write nowhere/events.csv: No such file or directory"),
        (["-o", "e.csv", "--engine", "local", "--master", "local[2]"], 2, "--master and --conf are for --engine spark"),
        (["-o", "e.csv", "--master", "somewhere"], 2, "use local, local[4], yarn, or an address"),
        (["-o", "e.csv", "--events", "-1"], 2, "--events"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    found, said = run("generate", "stocks", "--events", "10", *arguments)
    assert found == code
    assert message in " ".join(said.replace("│", " ").split())
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())
