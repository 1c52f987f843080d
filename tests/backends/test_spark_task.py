"""What a task does, without Spark around it."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import ceql
from ceql.backends.spark import task as spark_task
from ceql.backends.spark.task import TaskError, _Skew, recognise
from ceql.backends.spark.task_session import TaskOptions
from ceql.engine.options import Layout, Shape
from ceql.version import __version__

QUERY = "SELECT * FROM S WHERE A AS x ; B AS y PARTITION BY [k] WITHIN 3 [t]"
TABLE = pa.table(
    {
        "type": ["A", "B", "A", "A", "B", "B", "A", "B"],
        "k": [1, 1, 2, 1, 2, 1, 2, 2],
        "t": [0, 1, 1, 2, 3, 4, 9, 9],
    }
)


def options(query: str, shape: Shape = "matches", id_columns: tuple[str, ...] = ()) -> dict[str, Any]:
    return asdict(TaskOptions(query, Layout(shape), id_columns=id_columns))


def batches(table: pa.Table, size: int) -> Iterator[pa.RecordBatch]:
    return iter(table.to_batches(max_chunksize=size))


def rows(found: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in found for row in batch.to_pylist()]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_state_is_carried_from_batch_to_batch(size: int) -> None:
    expected = ceql.match(QUERY, TABLE).to_arrow().to_pylist()
    assert len(expected) == 4
    assert rows(recognise(batches(TABLE, size), options(QUERY), keys=["k"])) == expected


@pytest.mark.parametrize("n_batches", [0, 1, 2])
def test_a_task_without_rows_has_no_matches(n_batches: int) -> None:
    empty = pa.RecordBatch.from_pylist([], TABLE.schema)
    assert rows(recognise(iter([empty] * n_batches), options(QUERY), keys=["k"])) == []


@pytest.mark.parametrize("size", [1, 100])
def test_ties_are_told_at_the_end_of_a_task(size: int) -> None:
    query = QUERY.replace(" ; ", " : ")
    with pytest.warns(ceql.CeqlWarning) as caught:
        rows(recognise(batches(TABLE, size), options(query), keys=["k"]))
    assert [str(one.message).partition(",")[0] for one in caught] == ["1 event ties with an earlier event in 't'"]


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize(("n_halo", "n_counted"), [(0, 3), (2, 2), (5, 0)])
def test_ties_are_counted_once_by_the_task_whose_rows_they_are(size: int, n_halo: int, n_counted: int) -> None:
    table = pa.table({"type": ["A"] * 6, "k": [1] * 6, "t": [1, 1, 2, 2, 2, 3]})
    table = table.append_column("halo", pa.array([row < n_halo for row in range(len(table))]))
    added: list[int] = []
    counter = SimpleNamespace(add=added.append)
    query = "SELECT * FROM S WHERE A AS x : A AS y WITHIN 5 [t]"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows(recognise(batches(table, size), options(query), halo_column="halo", n_tied=counter))
    assert added == [n_counted]


def test_columns_are_called_as_told() -> None:
    spark_worker = pytest.importorskip("ceql.backends.spark.worker")
    numbered = TABLE.rename_columns(["c0", "c1", "c2"])
    run = spark_worker.on_workers(
        "ceql.backends.spark.task", "recognise", ("type", "k", "t"), options(QUERY), keys=["k"]
    )
    found = rows(run(batches(numbered, 3)))
    assert found == ceql.match(QUERY, TABLE).to_arrow().to_pylist()


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("n_halo", [0, 1, 4, 8])
@pytest.mark.parametrize("shape", ["matches", "events"])
def test_what_ends_in_the_halo_is_left_to_others(size: int, n_halo: int, shape: Any) -> None:
    query = QUERY.replace("PARTITION BY [k] ", "")
    table = TABLE.append_column("halo", pa.array([row < n_halo for row in range(len(TABLE))]))
    told = options(query, shape, ("t", "k", "type"))
    found = rows(recognise(batches(table, size), told, halo_column="halo"))
    whole = rows(recognise(batches(TABLE, 100), told))
    ends = [row["match_end"] for row in rows(recognise(batches(TABLE, 100), options(query)))]
    n_before = sum(end < TABLE["t"].to_pylist()[n_halo] for end in ends) if n_halo < len(TABLE) else len(ends)
    per_match = 2 if shape == "events" else 1
    assert len(ends) > 0
    assert found == whole[n_before * per_match :]


def test_an_error_tells_where_it_happened() -> None:
    table = TABLE.set_column(2, "t", pa.array([0, 1, 1, 2, 3, 2, 9, 9]))
    with pytest.raises(TaskError) as caught:
        rows(recognise(batches(table, 4), options(QUERY), keys=["k"]))
    assert str(caught.value).splitlines()[1:] == [
        "hint: sort the events, or pass sort=True (--sort on the command line)",
        "batch 2 of a task, rows 5 to 8 of its rows",
        "partition keys in it: k = 2; k = 1",
        "query:",
        QUERY,
    ]
    assert str(caught.value).startswith("DataError: time runs backwards at row 5: 't' is 2 after 3")


def test_an_error_names_few_of_many_keys() -> None:
    table = pa.table({"type": ["A"] * 9, "k": [f"k{row}" for row in range(9)], "t": [1, *range(8)]})
    with pytest.raises(TaskError, match=r"keys in it: k = 'k0'; k = 'k1'; k = 'k2'; and 6 more\n"):
        rows(recognise(batches(table, 9), options(QUERY), keys=["k"]))


def test_a_null_in_what_orders_the_events_is_an_error() -> None:
    table = pa.table({"type": ["A", "B"], "k": [1, None], "t": [1, 2]})
    with pytest.raises(TaskError, match="DataError: 'k' is NULL in some event"):
        rows(recognise(batches(table, 9), options("SELECT * FROM S WHERE A"), required="k"))


def test_a_reader_may_stop_early() -> None:
    found = recognise(batches(TABLE, 1), options(QUERY), keys=["k"])
    assert len(next(found)) == 1
    found.close()
    assert list(found) == []


@pytest.mark.parametrize(
    ("keys", "values", "is_told"),
    [
        (["k"], [7] * 10, True),
        (["k"], [7] * 9 + [8], True),
        (["k"], [7] * 8 + [8] * 2, False),
        (["k"], [7] * 3, False),
        ([], [7] * 10, False),
    ],
    ids=["one key", "nearly one key", "two keys", "few rows", "no keys"],
)
def test_one_key_with_nearly_all_rows_is_told(
    monkeypatch: pytest.MonkeyPatch, keys: list[str], values: list[int], is_told: bool
) -> None:
    monkeypatch.setattr(spark_task, "MIN_SKEWED_ROWS", 5)
    skew = _Skew(keys)
    for batch in batches(pa.table({"k": values}), 1):
        skew.count(batch)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        skew.warn()
    told = f"one partition key has nearly all of the {len(values)} rows of a task: k = 7; "
    told += "one task does the work of this key alone"
    assert [str(one.message) for one in caught] == ([told] if is_told else [])


LOADING = """
import pickle, sys
run = pickle.load(sys.stdin.buffer)
print("loaded")
try:
    run(iter(()))
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({}, "Spark's workers have no ceql {version}, in {python}: install the driver's version on every node"),
        (
            {
                "version.py": "__version__ = '0.0'",
                "backends/__init__.py": "",
                "backends/spark/task.py": "recognise = 1",
            },
            "Spark's workers have ceql 0.0, the driver has {version}, in {python}: install the driver's version",
        ),
    ],
    ids=["no such module", "another version"],
)
def test_a_worker_without_this_release_says_so_when_the_task_runs(
    tmp_path: Path, modules: dict[str, str], message: str
) -> None:
    spark_worker = pytest.importorskip("ceql.backends.spark.worker")
    from pyspark import cloudpickle

    for name, text in {"__init__.py": "", **modules}.items():
        (tmp_path / "ceql" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "ceql" / name).write_text(text)
    run = spark_worker.on_workers("ceql.backends.spark.task", "recognise", tuple(TABLE.column_names), QUERY)
    ran = subprocess.run(
        [sys.executable, "-c", LOADING],
        input=cloudpickle.dumps(run),
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        check=True,
    )
    loaded, told = ran.stdout.decode().splitlines()
    assert loaded == "loaded"
    assert told.startswith(message.format(version=__version__, python=sys.executable))
