"""Values, names and orders that Spark would see otherwise than the engine: the matches are the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import ceql
from spark_rows import plain, rows_of, settings

pytest.importorskip("pyspark.sql")
from pyspark.sql import DataFrame

import ceql.spark

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("default"),
]


def agrees(query: str, rows: DataFrame, **options: Any) -> int:
    """Return how many matches there are, the same on Spark as in the engine."""
    expected = ceql.match(query, rows.toArrow(), sort=True, order_by=options.get("order_by", ())).to_arrow().to_pylist()
    found = rows_of(ceql.spark.match(query, rows, **options))
    assert Counter(str(plain(row)) for row in found) == Counter(str(plain(row)) for row in expected)
    return len(expected)


@pytest.mark.parametrize("is_ansi", ["true", "false"])
def test_ansi_mode_changes_neither_matches_nor_columns(spark: Any, is_ansi: str) -> None:
    query = "SELECT x[v], y, z FROM S WHERE A AS x ; (B AS y OR C AS z) ; A AS w WITHIN 9 [t]"
    rows = spark.createDataFrame(
        [("ABCA"[number % 4], number // 2, None if number % 3 else number) for number in range(40)],
        "type string, t long, v long",
    )
    with settings(spark, {"spark.sql.ansi.enabled": is_ansi}):
        found = ceql.spark.match(query, rows)
        assert [field.nullable for field in found.schema] == [True, True, False, True, True]
        assert agrees(query, rows, order_by=["v", "type"]) > 0


@pytest.mark.parametrize(
    ("condition", "n_matches"),
    [("c != 'ab'", 3), ("NOT c IN {'ab', 'q'}", 3), ("c > 'ab'", 3), ("c = 'ab'", 0), ("c = 'ab   '", 2)],
)
def test_fixed_length_strings_are_compared_as_they_are(
    spark: Any, tmp_path: Path, condition: str, n_matches: int
) -> None:
    spark.sql(f"CREATE TABLE padded (type STRING, id INT, c CHAR(5), v VARCHAR(5)) USING parquet LOCATION '{tmp_path}'")
    try:
        spark.sql("INSERT INTO padded VALUES ('A', 1, 'ab', 'ab'), ('B', 2, 'ab', 'ab'), ('B', 3, 'xy', 'ab')")
        query = f"SELECT x[id, c] FROM S WHERE (A OR B) AS x FILTER x[{condition}]"
        assert agrees(query, spark.table("padded"), order_by=["id"]) == n_matches
    finally:
        spark.sql("DROP TABLE padded")


def test_null_comes_first_in_the_order(spark: Any) -> None:
    rows = spark.sql("SELECT * FROM VALUES ('A', 1, NULL), ('B', 1, 1), ('A', 2, 5), ('B', 2, NULL) AS t(type, t, n)")
    assert agrees("SELECT * FROM S WHERE A AS x ; B AS y WITHIN 0 [t]", rows, order_by=["t", "n"]) == 1


def test_collations_do_not_order_events(spark: Any) -> None:
    rows = spark.sql("SELECT type, s COLLATE UTF8_LCASE AS s FROM VALUES ('A', 'a'), ('B', 'B') AS t(type, s)")
    assert ceql.spark.match("SELECT * FROM S WHERE A AS x ; B AS y", rows, order_by=["s"]).count() == 0
    assert ceql.spark.match("SELECT * FROM S WHERE B AS x ; A AS y", rows, order_by=["s"]).count() == 1


@pytest.mark.parametrize("shape", ["matches", "events"])
@pytest.mark.parametrize("clause", ["WITHIN 5 seconds [at]", "PARTITION BY [at]", "PARTITION BY [day]"])
def test_times_that_python_does_not_have(spark: Any, shape: Any, clause: str) -> None:
    rows = spark.sql("""
        SELECT type, id, CAST('+12000-01-01' AS DATE) AS day, CAST('+12000-01-01 00:00:00' AS TIMESTAMP) AS at
        FROM VALUES ('A', 1), ('B', 2) AS t(type, id)
    """)
    query = f"SELECT x[id], y[id] FROM S WHERE A AS x ; B AS y {clause}"
    for zone in ("UTC", "GMT+2", "PST", "+05:30:15"):
        with settings(spark, {"spark.sql.session.timeZone": zone}):
            assert ceql.spark.match(query, rows, order_by=["id"], shape=shape).count() == 1 + (shape == "events")


def test_the_identity_of_a_match_does_not_depend_on_the_time_zone(spark: Any) -> None:
    rows = spark.sql("""
        SELECT type, id, TIMESTAMP '2024-01-31 09:30:00Z' AS at FROM VALUES ('A', 1), ('B', 2) AS t(type, id)
    """).cache()
    found = ceql.spark.match("SELECT * FROM S WHERE A AS x ; B AS y", rows, order_by=["at", "id"], shape="events")
    identities = set()
    for zone in ("UTC", "Asia/Tokyo"):
        with settings(spark, {"spark.sql.session.timeZone": zone}):
            identities |= {row.match_id for row in found.select("match_id").collect()}
    assert len(identities) == 1


def test_matches_that_end_at_the_two_zeros_have_their_own_identities(spark: Any) -> None:
    rows = spark.sql("""
        SELECT type, map('k', k) AS m, CAST(t AS DOUBLE) AS t
        FROM VALUES ('A', 0, '-1'), ('B', 1, '-0.0'), ('B', 2, '0.0'), ('B', 3, '-0.0') AS t(type, k, t)
    """)
    query = "SELECT * FROM S WHERE A AS x ; B AS y WITHIN 5 [t]"
    found = ceql.spark.match(query, rows, shape="events").groupBy("match_id").count()
    assert [row["count"] for row in found.collect()] == [2, 2, 2]


def test_names_that_look_like_variables_of_spark(spark: Any) -> None:
    table = pa.table({"type": ["A", "B"], "id": [1, 2], "${v}": [7, 7], "p${env:HOME}": ["r", "s"]})
    for query in (
        "SELECT * FROM S WHERE A AS x ; B AS y",
        "SELECT * FROM S WHERE A AS x ; B AS y PARTITION BY [`${v}`]",
        "SELECT x[id], `${env:HOME}`[id] FROM S WHERE A AS x ; B AS `${env:HOME}`",
    ):
        agrees(query, spark.createDataFrame(table), order_by=["id"])


def test_windows_beyond_all_doubles(spark: Any) -> None:
    rows = spark.sql("SELECT type, CAST(t AS DOUBLE) AS t FROM VALUES ('A', 1), ('B', 2), ('B', 3) AS t(type, t)")
    with settings(spark, {"spark.sql.shuffle.partitions": 3}):
        assert agrees("SELECT * FROM S WHERE A AS x ; B AS y WITHIN 9e399 [t]", rows, plan="shards") == 2
