"""Spark gives the same matches as the engine."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import ceql
from ceql.errors import DataError, QueryError

if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
    pytest.skip("Spark needs Java, and there is none", allow_module_level=True)

pyspark_sql = pytest.importorskip("pyspark.sql")
import ceql.spark  # noqa: E402

pytestmark = [
    pytest.mark.spark,
    # One session for all of these tests: starting another takes longer than they do.
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("default"),
]

QUERIES = {
    "sequence": "SELECT * FROM S WHERE A AS x ; B AS y FILTER x[v > 1] WITHIN 3 seconds [t]",
    "keys": "SELECT * FROM S WHERE A AS x ; B+ AS y ; C AS z PARTITION BY [k] WITHIN 8 seconds [t]",
    "two-keys": "SELECT x FROM S WHERE (A OR B) AS x ; C PARTITION BY [k], [s] WITHIN 20 seconds [t]",
    "contiguous": "SELECT * FROM S WHERE A AS x : B AS y PARTITION BY [k]",
    "max": "SELECT MAX * FROM S WHERE A+ AS x ; B AS y PARTITION BY [k] WITHIN 6 EVENTS",
    "strict": "SELECT STRICT * FROM S WHERE A AS x ; B AS y",
    "consume-partition": "SELECT * FROM S WHERE A AS x ; B AS y PARTITION BY [k] CONSUME BY PARTITION",
    "consume-any": "SELECT * FROM S WHERE A AS x ; B AS y PARTITION BY [k] CONSUME BY ANY",
    "limit": "SELECT NEXT * FROM S WHERE A AS x ; B AS y PARTITION BY [k] WITHIN 5 seconds [t] LIMIT 1",
    "optional": "SELECT * FROM S WHERE A AS x ; (B AS y OR C AS z) FILTER x[s = 'é' OR s IS NULL] WITHIN 4 seconds [t]",
}


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = pyspark_sql.SparkSession.builder.master("local[2]").appName("ceql tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "3",
        # Small batches, so that state is carried from one to the next.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
        "spark.sql.session.timeZone": "UTC",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def events() -> list[dict[str, Any]]:
    chance = random.Random(7)
    time = datetime(2024, 1, 1, tzinfo=UTC)
    rows = []
    for number in range(60):
        time += timedelta(seconds=chance.choice([0, 1, 1, 2]))
        rows.append(
            {
                "type": chance.choice("AAABBC"),
                "id": number,
                "v": chance.choice([None, 0, 1, 2, 3]),
                "s": chance.choice([None, "", "p", "é"]),
                "k": chance.choice([None, 1, 2, 3]),
                "t": time,
            }
        )
    return rows


SCHEMA = pa.schema(
    [
        ("type", pa.string()),
        ("id", pa.int64()),
        ("v", pa.int64()),
        ("s", pa.string()),
        ("k", pa.int64()),
        ("t", pa.timestamp("us", tz="UTC")),
    ]
)


def frame(spark: Any) -> Any:
    rows = [tuple(row.values()) for row in events()]
    return spark.createDataFrame(rows, "type string, id long, v long, s string, k long, t timestamp")


def plain(value: Any) -> Any:
    """Values without time zones, which Spark's rows do not carry."""
    if isinstance(value, dict):
        return tuple((name, plain(part)) for name, part in value.items())
    if isinstance(value, list):
        return tuple(plain(part) for part in value)
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


@pytest.mark.parametrize("n_partitions", [1, 3])
@pytest.mark.parametrize("name", QUERIES)
def test_spark_equals_the_engine(spark: Any, name: str, n_partitions: int) -> None:
    table = pa.Table.from_pylist(events(), SCHEMA)
    expected = ceql.match(QUERIES[name], table, order_by=["t", "id"]).to_arrow().to_pylist()
    found = ceql.spark.match(QUERIES[name], frame(spark).repartition(n_partitions), order_by=["t", "id"])
    rows = [row.asDict(recursive=True) for row in found.collect()]
    assert len(expected) > 0
    assert sorted(map(str, map(plain, rows))) == sorted(map(str, map(plain, expected)))


def test_irrelevant_rows_are_filtered_before_the_exchange(spark: Any) -> None:
    found = ceql.spark.match(QUERIES["sequence"], frame(spark))
    described = ceql.spark.explain(QUERIES["sequence"], frame(spark))
    assert "=(type, 'B')" in described.replace("`", "")
    assert found.columns == ["match_start", "match_end", "x", "y"]
    assert "none, every row is needed" in ceql.spark.explain(QUERIES["strict"], frame(spark), order_by=["t"])


@pytest.mark.parametrize(
    ("query", "options", "error", "message"),
    [
        ("SELECT * FROM S WHERE A ; B", {}, DataError, "a DataFrame has no order of its own"),
        ("SELECT * FROM S WHERE A ; B", {"order_by": ["nope"]}, DataError, "the events have no column 'nope'"),
        (QUERIES["sequence"], {"shape": "positions"}, DataError, "a distributed stream has no cheap row numbers"),
        (QUERIES["sequence"], {"shape": "events"}, DataError, "shape='events' is not supported on Spark yet"),
        (QUERIES["sequence"], {"plan": "keys"}, DataError, "plan='keys' needs a query with PARTITION BY"),
        (QUERIES["sequence"], {"type_column": "kind"}, DataError, "the events have no type column 'kind'"),
        ("SELECT * FROM S WHERE A FILTER A[w > 1]", {}, QueryError, "event type A has no attribute 'w'"),
    ],
)
def test_mistakes_are_told_before_the_job_starts(
    spark: Any, query: str, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message.replace("(", r"\(")):
        ceql.spark.match(query, frame(spark), **options)


def test_matcher_reads_in_a_chain(spark: Any) -> None:
    chained = frame(spark).transform(ceql.spark.matcher(QUERIES["keys"]))
    assert chained.count() == ceql.spark.match(QUERIES["keys"], frame(spark)).count()
