"""Synthetic streams that Spark makes: the same events as in one process, and in the order of the files' names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from ceql.cli import app
from ceql.datasets.blocks import N_EVENTS
from ceql.datasets.generate import DATASETS, events, generated, schema

pytest.importorskip("pyspark.sql")
pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.filterwarnings("default")]

N_THREE_BLOCKS = 2 * N_EVENTS + 1000


def plain(table: pa.Table) -> pa.Table:
    """Return a table as Spark has it: in one piece, without dictionaries."""
    fields = [(one.name, pa.string() if pa.types.is_dictionary(one.type) else one.type) for one in table.schema]
    return table.cast(pa.schema(fields)).combine_chunks().replace_schema_metadata()


def made_here(dataset: str, n_events: int, seed: int = 0) -> pa.Table:
    return plain(pa.Table.from_batches(events(dataset, n_events, seed), schema(dataset)))


def written(folder: Path) -> tuple[pa.Table, int]:
    """Return the rows of a folder in the order of its files' names, and how many files these are."""
    files = sorted(folder.glob("part-*"))
    tables = [pa.parquet.ParquetFile(file).read().replace_schema_metadata() for file in files]
    return plain(pa.concat_tables(tables)), len(files)


@pytest.mark.parametrize(("dataset", "n_partitions"), [("stocks", 1), *((dataset, 3) for dataset in DATASETS)])
def test_partitions_make_no_difference(spark: Any, tmp_path: Path, dataset: str, n_partitions: int) -> None:
    frame = generated(spark, dataset, N_THREE_BLOCKS, 5, n_partitions=n_partitions)
    frame.write.parquet(str(tmp_path / "events"))
    table, n_files = written(tmp_path / "events")
    assert n_files == n_partitions
    assert table == made_here(dataset, N_THREE_BLOCKS, 5)


def test_the_frame_has_a_task_for_each_two_million_events(spark: Any) -> None:
    frame = generated(spark, "taxis", 100_000_000)
    assert frame.rdd.getNumPartitions() == 48
    assert frame.columns == schema("taxis").names
    assert {name for name, kind in frame.dtypes if kind == "string"} == {
        "type", "medallion", "hack_license", "pickup_loc", "dropoff_loc", "payment_type"
    }  # fmt: skip


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.stderr


@pytest.mark.usefixtures("spark")
def test_the_command_writes_a_folder_and_replaces_it(tmp_path: Path) -> None:
    out = tmp_path / "homes"
    for n_events in (2000, 1000):
        code, said = run("generate", "smart-homes", "--events", n_events, "-o", out, "--engine", "spark")
        assert (code, said.split(" in ")[0]) == (0, f"{n_events:,} smart-homes events")
    assert written(out)[0] == made_here("smart-homes", 1000)
    (out / "notes.txt").write_text("mine")
    code, said = run("generate", "smart-homes", "--events", 10, "-o", out, "--engine", "spark")
    assert code == 3
    assert "it holds files that Spark did not write, such as notes.txt" in said
    assert written(out)[0].num_rows == 1000


def test_no_events(spark: Any, tmp_path: Path) -> None:
    generated(spark, "stocks", 0).write.parquet(str(tmp_path / "none"))
    assert spark.read.parquet(str(tmp_path / "none")).count() == 0


def test_a_format_that_spark_has_not(tmp_path: Path) -> None:
    code, said = run("generate", "stocks", "--events", 10, "-o", tmp_path / "s.arrow", "--engine", "spark")
    assert code == 3
    assert "Spark has no format for" in said
    assert not list(tmp_path.iterdir())
