"""Spark gives the same matches as the engine."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import reduce
from math import nan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ceql
from ceql.errors import DataError, QueryError
from spark_rows import plain, rows_of, same_rows, settings

pytest.importorskip("pyspark.sql")
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import ceql.spark
from ceql.backends.spark import pruning as spark_pruning

pytestmark = [
    pytest.mark.spark,
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


@pytest.mark.usefixtures("three_tasks", "generated")
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
    assert "type" in described
    assert found.columns == ["match_start", "match_end", "x", "y"]
    assert "none, every row is needed" in ceql.spark.explain(QUERIES["strict"], frame(spark), order_by=["t"])


@pytest.mark.parametrize(
    ("query", "options", "error", "message"),
    [
        ("SELECT * FROM S WHERE A ; B", {}, DataError, "a DataFrame has no order of its own"),
        ("SELECT * FROM S WHERE A ; B", {"order_by": ["nope"]}, DataError, "the events have no column 'nope'"),
        (QUERIES["sequence"], {"shape": "positions"}, DataError, "a distributed stream has no cheap row numbers"),
        (
            QUERIES["sequence"],
            {"plan": "keys"},
            DataError,
            "plan='keys' is not possible: the query has no PARTITION BY",
        ),
        (QUERIES["keys"], {"plan": "shards"}, DataError, "plan='shards' is not possible: the query has PARTITION BY"),
        (QUERIES["strict"], {"plan": "shards", "order_by": ["t"]}, DataError, "shards need WITHIN over a time"),
        (QUERIES["sequence"], {"plan": "none"}, ValueError, "unknown plan 'none'"),
        (QUERIES["two-keys"], {"prune": True}, DataError, "prune=True is not possible: no two different events"),
        (QUERIES["strict"], {"prune": True, "order_by": ["t"]}, DataError, "prune=True is not possible"),
        (QUERIES["sequence"], {"type_column": "v"}, DataError, "the type column 'v' is of type int64, not string"),
        (QUERIES["sequence"], {"type_column": "kind"}, DataError, "the events have no type column 'kind'"),
        ("SELECT * FROM S WHERE A FILTER A[w > 1]", {}, QueryError, "event type A has no attribute 'w'"),
        ("SELECT * FROM S, T WHERE A WITHIN 3 seconds [t]", {}, DataError, "the events are one DataFrame"),
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


@pytest.fixture
def new_york(spark: Any) -> Iterator[None]:
    with settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        yield


# Several streams


def orders_and_trades(spark: Any) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    types = {
        "Trades": pa.schema([("type", pa.string()), ("t", pa.int64()), ("price", pa.float64())]),
        "Orders": pa.schema([("t", pa.int32()), ("type", pa.string()), ("price", pa.int32()), ("by", pa.string())]),
    }
    chance = random.Random(3)
    tables = {
        name: pa.Table.from_pylist(
            [{"type": chance.choice("AB"), "t": at // 3, "price": at % 5, "by": "me"} for at in range(20)], schema
        )
        for name, schema in types.items()
    }
    return {name: spark.createDataFrame(table) for name, table in tables.items()}, tables


@pytest.mark.usefixtures("three_tasks")
@pytest.mark.parametrize("type_column", ["type", None])
@pytest.mark.parametrize("plan", ["single", "shards"])
def test_streams_of_different_columns_are_merged_in_the_order_of_from(spark: Any, plan: Any, type_column: Any) -> None:
    first, then = ("A", "Trades>B") if type_column else ("Orders", "Trades")
    query = f"SELECT * FROM Orders, Trades WHERE {first} AS x ; {then} AS y FILTER y[price > 1] WITHIN 2 [t]"
    frames, tables = orders_and_trades(spark)
    # Within a stream the engine goes by row, Spark by what the query sees.
    tables = {
        name: table.sort_by([(one, "ascending") for one in ("t", "type", "price")]) for name, table in tables.items()
    }
    found = ceql.spark.match(query, frames, type_column=type_column, plan=plan)
    assert same_rows(found, ceql.match(query, tables, type_column=type_column))


def test_equal_events_of_two_streams_are_told_apart(spark: Any) -> None:
    events = spark.createDataFrame([("X", 1, 1), ("X", 1, 2), ("X", 1, 1)], "type string, t int, v int")
    query = "SELECT * FROM P, Q WHERE X AS x WITHIN 3 [t]"
    ids = [row.match_id for row in ceql.spark.match(query, {"P": events, "Q": events}, shape="events").collect()]
    assert len(set(ids)) == len(ids) == 6


def test_streams_that_do_not_fit_are_told(spark: Any) -> None:
    one = spark.createDataFrame([("X", 1, 1)], "type string, t int, v int")
    query = "SELECT * FROM P, Q WHERE X AS x WITHIN 3 [t]"
    cases = [
        ({"P": one}, "FROM reads stream 'Q', which the events lack"),
        ({"P": one, "Q": one.withColumn("v", one.type)}, "the columns of the streams do not fit together"),
        (
            {"P": one.withColumn("s", F.struct("t")), "Q": one.withColumn("s", F.struct("v"))},
            "the columns of the streams do not fit together",
        ),
        (
            {
                "P": one.withColumn("d", F.lit(1).cast("decimal(38, 0)")),
                "Q": one.withColumn("d", F.lit(1).cast("decimal(38, 18)")),
            },
            "the columns of the streams do not fit together",
        ),
        ({"P": one, "Q": one.withColumnRenamed("v", "V")}, "the events have several columns 'v'"),
        ({"P": one, "Q": pa.table({"t": [1]})}, "the events are a pyarrow Table, not a Spark DataFrame"),
    ]
    for frames, message in cases:
        with pytest.raises(DataError, match=message):
            ceql.spark.match(query, frames)


# Columns


NAMES = ["a.b", "a`b", "two words", "Upper", "select", "é", "from.`x`.y"]


@pytest.mark.usefixtures("three_tasks")
@pytest.mark.parametrize("shape", ["matches", "events"])
@pytest.mark.parametrize("plan", ["keys", "shards"])
def test_columns_may_have_any_name(spark: Any, plan: Any, shape: Any) -> None:
    names = dict(zip(["type", "k", "t"], NAMES[:3], strict=True))
    quoted = {role: "`" + name.replace("`", "``") + "`" for role, name in names.items()}
    table = pa.table(
        {
            names["type"]: ["A", "B", "A", "B"],
            names["k"]: [1, 1, 2, 2],
            names["t"]: [1, 2, 3, 4],
            **{name: ["p", None, "q", "r"] for name in NAMES[3:]},
        }
    )
    partition = f"PARTITION BY [{quoted['k']}]" if plan == "keys" else ""
    query = f"SELECT * FROM S WHERE A AS x ; B AS y FILTER x[Upper = 'p'] {partition} WITHIN 9 [{quoted['t']}]"
    options = {"type_column": names["type"], "order_by": ["two words", "a.b"]}
    found = ceql.spark.match(query, spark.createDataFrame(table), plan=plan, shape=shape, **options)
    expected = ceql.match(query, table, shape=shape, **options)
    if shape == "events":
        assert Counter(row["Upper"] for row in rows_of(found)) == Counter(
            row["Upper"] for row in expected.to_arrow().to_pylist()
        )
    else:
        assert same_rows(found, expected)
    assert found.columns == expected.schema.names


VALUES = """
    SELECT 'A' AS type, id AS t, map('k', id) AS pairs, named_struct('p', id, 'q', array(1.5D, NULL)) AS nested,
        array('x', NULL) AS many, cast('bytes' AS binary) AS raw, cast(NULL AS void) AS nothing,
        cast(id AS decimal(20, 2)) / 4 AS quarter, date'2024-03-10' AS day, id % 2 = 0 AS is_even,
        timestamp'2024-03-10 01:30:00' + make_dt_interval(0, 0, 30 * cast(id AS int)) AS at,
        timestamp_ntz'2024-03-10 01:30:00' + make_dt_interval(0, 0, 30 * cast(id AS int)) AS wall,
        cast(id AS float) AS single, cast(id AS tinyint) AS small
    FROM range(4)
"""


@pytest.mark.usefixtures("new_york", "three_tasks")
@pytest.mark.parametrize(("plan", "pattern"), [("single", "A AS x ; A+ AS y"), ("shards", "A AS x ; A AS y")])
def test_values_of_every_type_come_back_as_they_were(spark: Any, plan: Any, pattern: str) -> None:
    events = spark.sql(VALUES)
    before = {row.t: row for row in events.collect()}
    found = ceql.spark.match(f"SELECT * FROM S WHERE {pattern} WITHIN 45 minutes [at]", events, plan=plan)
    assert not found.schema["x"].nullable
    rows = [row.asDict() for row in found.collect()]
    for row in rows:
        row["y"] = row["y"] if isinstance(row["y"], list) else [row["y"]]
    assert [found.schema["x"].dataType.fieldNames()] == [events.columns]
    assert {type(one.dataType) for one in found.schema["x"].dataType} == {type(one.dataType) for one in events.schema}
    assert sorted((row["x"].t, [one.t for one in row["y"]]) for row in rows) == [(0, [1]), (1, [2]), (2, [3])]
    for row in rows:
        assert row["x"] == before[row["x"].t]
        assert row["y"] == [before[one.t] for one in row["y"]]
        assert (row["match_start"], row["match_end"]) == (row["x"]["at"], row["y"][-1]["at"])
    by_event = ceql.spark.match("SELECT * FROM S WHERE A AS x WITHIN 45 minutes [at]", events, shape="events")
    assert by_event.columns == ["match_id", "variables", *events.columns]
    assert sorted(row[2:] for row in by_event.collect()) == sorted(tuple(row) for row in before.values())


@pytest.mark.usefixtures("new_york")
def test_constants_mean_the_same_in_every_time_zone(spark: Any) -> None:
    table = pa.table(
        {
            "type": ["A"] * 5,
            "at": pa.array([datetime(2024, 3, 10, hour) for hour in range(5, 10)], pa.timestamp("us", "UTC")),
            "wall": pa.array([datetime(2024, 3, 10, hour) for hour in range(5)], pa.timestamp("us")),
        }
    )
    schema = "type string, at timestamp, wall timestamp_ntz"
    query = (
        "SELECT * FROM S WHERE A AS x ; A AS y FILTER x[at >= '2024-03-10 06:00:00'] AND "
        "y[wall <= '2024-03-10 03:00:00'] WITHIN 5 hours [at]"
    )
    found = ceql.spark.match(query, spark.createDataFrame(table, schema)).select("x.wall", "y.wall").collect()
    expected = ceql.match(query, table).to_arrow().to_pylist()
    assert sorted(map(tuple, found)) == sorted((row["x"]["wall"], row["y"]["wall"]) for row in expected)
    assert len(found) == 3


def test_values_that_sort_as_equal_are_told_apart(spark: Any) -> None:
    rows = [("A", 1, value, key, {"m": mapped}) for value in (0.0, -0.0) for key in ("a", "A") for mapped in (1, 2)]
    columns = "type string, t int, v double, c string collate utf8_lcase, m map<string, int>"
    query = "SELECT NEXT * FROM S WHERE A+ AS x ; A AS y WITHIN 3 [t] LIMIT 2"
    results = []
    for seed in range(3):
        shuffled = random.Random(seed).sample(rows * 2, 2 * len(rows))
        found = ceql.spark.match(query, spark.createDataFrame(shuffled, columns).coalesce(1), shape="events")
        results.append(Counter(str(tuple(row)) for row in found.collect()))
    assert results[0].total() > 0
    assert results == [results[0]] * 3


@pytest.mark.parametrize("selected", ["NONE", "u[t]", "*"])
def test_declared_attributes_are_there_for_tasks(spark: Any, selected: str) -> None:
    query = f"""
        CREATE STREAM S {{ EVENT A {{ x: int, t: int }}, EVENT B {{ y: int, t: int, z: string }} }}
        SELECT {selected} FROM S WHERE A AS u ; B AS v FILTER v[y = 2] WITHIN 3 [t]
    """
    table = pa.table({"type": ["A", "B"], "x": [1, 1], "y": [2, 2], "t": [1, 2], "z": ["p", "q"], "w": [0, 0]})
    assert same_rows(ceql.spark.match(query, spark.createDataFrame(table)), ceql.match(query, table))


@pytest.mark.parametrize("condition", ["s = 'a' AND FALSE", "s = 'a' AND NULL", "s = 'a' OR TRUE"])
def test_attributes_that_cannot_matter_are_there_for_tasks(spark: Any, condition: str) -> None:
    query = f"SELECT x[t] FROM S WHERE A ; A AS x FILTER x[{condition}]"
    table = pa.table({"type": ["A", "A"], "t": [1, 2], "s": ["a", "b"], "w": [0, 0]})
    found = ceql.spark.match(query, spark.createDataFrame(table), order_by="t")
    assert len(rows_of(found)) == ceql.match(query, table, order_by="t").count()


@pytest.mark.parametrize("pattern", ["S>A AS a ; T>A AS b FILTER b[x > 1]", "A AS a FILTER a[x IS NULL OR x = 1]"])
def test_a_type_may_have_other_attributes_in_another_stream(spark: Any, pattern: str) -> None:
    query = f"""
        CREATE STREAM S {{ EVENT A {{ x: int, t: int }} }} CREATE STREAM T {{ EVENT A {{ y: int, t: int }} }}
        SELECT * FROM S, T WHERE {pattern} WITHIN 9 [t]
    """
    tables = {
        "S": pa.table({"type": ["A", "A"], "x": [1, 5], "y": [5, 5], "t": [1, 2]}),
        "T": pa.table({"type": ["A", "A"], "x": [1, 5], "y": [5, 5], "t": [3, 4]}),
    }
    frames = {name: spark.createDataFrame(table) for name, table in tables.items()}
    expected = sorted(str(plain(row)) for row in ceql.match(query, tables).to_arrow().to_pylist())
    assert len(expected) == (0 if "S>" in pattern else 3)
    assert sorted(str(plain(row)) for row in rows_of(ceql.spark.match(query, frames))) == expected


@pytest.mark.parametrize("pattern", ["_[x IS NULL] AS a", "A ; NOT _[x IS NULL] ; C", "A ; C WITHOUT _[x IS NULL]"])
@pytest.mark.parametrize("streams", [("S",), ("S", "T")])
def test_any_event_may_lack_a_declared_attribute(spark: Any, pattern: str, streams: tuple[str, ...]) -> None:
    declared = "EVENT A { x: int, t: int }, EVENT B { t: int }, EVENT C { x: int, t: int }"
    query = f"CREATE STREAM S {{ {declared} }} "
    query += "CREATE STREAM T { EVENT A { x: int, t: int } } " if "T" in streams else ""
    query += f"SELECT * FROM {', '.join(streams)} WHERE {pattern} WITHIN 9 [t]"
    # B has a value in a column that it does not declare. Z is not declared, and has every column.
    table = pa.table({"type": ["A", "B", "C", "A", "Z", "C"], "x": [1] * 6, "t": [1, 2, 3, 4, 5, 6]})
    tables = {name: table if name == "S" else table.slice(3, 1) for name in streams}
    frames = {name: spark.createDataFrame(rows) for name, rows in tables.items()}
    assert same_rows(ceql.spark.match(query, frames), ceql.match(query, tables))


# What cannot be


def test_events_that_cannot_be_read_are_told(spark: Any) -> None:
    good = frame(spark)
    cases = [
        (good.select("*", good.v.alias("T")), "the events have several columns 't'"),
        (good.withColumn("__ceql_halo", good.v), "the events have a column '__ceql_halo'"),
        (events(), "the events are a list, not a Spark DataFrame"),
        (good.toPandas(), "the events are a pandas DataFrame, not a Spark DataFrame"),
        (good.withColumn("span", F.expr("INTERVAL 1 DAY")), "column 'span' is of Spark's type interval day, which"),
    ]
    for wrong, message in cases:
        with pytest.raises(DataError, match=message):
            ceql.spark.match(QUERIES["sequence"], wrong)
    with pytest.raises(DataError, match="column 'm' is or contains a map, and maps have no order"):
        ceql.spark.match(QUERIES["sequence"], good.withColumn("m", F.create_map("type", "v")), order_by=["m"])
    with pytest.raises(DataError, match=r"the events are a Spark DataFrame\nhint: use ceql\.spark\.match"):
        ceql.match(QUERIES["sequence"], good)


def test_an_event_without_a_place_in_the_order_is_an_error(spark: Any) -> None:
    found = ceql.spark.match("SELECT * FROM S WHERE A AS x ; B AS y", frame(spark), order_by=["v", "id"])
    with pytest.raises(Exception, match="'v' is NULL in some event, so this event has no place in the order"):
        found.collect()


def test_an_error_in_a_task_names_query_key_and_batch(spark: Any) -> None:
    table = pa.table(
        {"type": ["A", "B"], "k": ["p'q", "p'q"], "d": pa.array([Decimal(1), Decimal(10**30)], pa.decimal128(38, 2))}
    )
    query = "SELECT * FROM S WHERE A AS x ; B AS y PARTITION BY [k] WITHIN 3 [d]"
    with pytest.raises(Exception, match="a window cannot measure 'd'") as caught:
        ceql.spark.match(query, spark.createDataFrame(table)).collect()
    for part in ["batch 1 of a task, rows 1 to 2 of its rows", 'partition keys in it: k = "p\'q"', f"query:\n{query}"]:
        assert part in str(caught.value)


# How it runs


def test_a_compiled_query_keeps_its_columns(spark: Any) -> None:
    query = ceql.compile(
        "SELECT * FROM S WHERE A AS x ; B AS y WITHIN 3 seconds", SCHEMA, time_column="t", order_by=["id"]
    )
    table = pa.Table.from_pylist(events(), SCHEMA)
    assert same_rows(ceql.spark.match(query, frame(spark)), ceql.match(query, table))


@pytest.mark.usefixtures("three_tasks")
@pytest.mark.parametrize("shape", ["matches", "events"])
def test_matching_starts_no_job(spark: Any, shape: Any) -> None:
    context, group = spark.sparkContext, f"lazily {shape}"
    events = frame(spark)
    context.setJobGroup(group, "none")
    try:
        lazy = [ceql.spark.match(QUERIES[name], events, shape=shape, order_by=["id"]) for name in ("keys", "strict")]
        lazy.append(ceql.spark.match(QUERIES["sequence"], events, shape=shape, plan="shards"))
        assert all(one.columns for one in lazy)
        assert list(context.statusTracker().getJobIdsForGroup(group)) == []
        assert lazy[0].count() > 0
        assert len(context.statusTracker().getJobIdsForGroup(group)) > 0
    finally:
        context._jsc.clearJobGroup()


@pytest.mark.usefixtures("three_tasks")
@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        (
            "keys",
            {},
            "plan: keys, because partitions are independent: rows with the same k go to one task, and each task runs "
            "over its keys\norder: t; ties by type, id, v, s, k\ncolumns read: type, id, v, s, k, t\n"
            "row filter: rows that satisfy no predicate are left out\n  in Spark: ",
        ),
        (
            "sequence",
            {"plan": "shards", "order_by": ["id"]},
            "plan: shards, because you asked for it: 3 tasks each run over a piece of the timeline and the window "
            "before it\norder: t, id; ties by type, v, s, k\n",
        ),
        (
            "sequence",
            {},
            "plan: single, because the query has no PARTITION BY, and shards are for 8 cores or more: one task runs "
            "over all rows\n",
        ),
        (
            "consume-any",
            {"order_by": "t"},
            "plan: single, because CONSUME BY ANY makes partitions depend on one another; the query has PARTITION BY: ",
        ),
        ("strict", {"time_column": "t"}, "plan: single, because the query has no PARTITION BY; shards need WITHIN"),
    ],
)
def test_the_plan_is_explained(spark: Any, name: str, options: dict[str, Any], expected: str) -> None:
    assert ceql.spark.explain(QUERIES[name], frame(spark), **options).startswith(expected)


@pytest.mark.usefixtures("three_tasks")
def test_shards_are_chosen_where_there_are_cores(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ceql.backends.spark.batch.MIN_CORES_FOR_SHARDS", 2)
    told = ceql.spark.explain(QUERIES["sequence"], frame(spark))
    assert told.startswith("plan: shards, because the query has no PARTITION BY, and 2 cores share the work: ")
    spark.conf.set("spark.sql.shuffle.partitions", 1)
    told = ceql.spark.explain(QUERIES["sequence"], frame(spark))
    assert told.startswith("plan: single, because spark.sql.shuffle.partitions = 1 leaves one shard: ")


# Rows without a chance


def chance(query: str, events: Any, **options: Any) -> str:
    told = ceql.spark.explain(query, events, order_by=["id"], **options)
    return next(line for line in told.splitlines() if line.startswith("rows without a chance: ")).partition(": ")[2]


def test_it_is_asked_whether_events_occur_where_that_is_quick(
    spark: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, folder = QUERIES["sequence"], str(tmp_path / "events")
    frame(spark).write.parquet(folder)
    stored = spark.read.parquet(folder)
    assert "bytes of events are few" in chance(query, stored)
    monkeypatch.setattr(spark_pruning, "MIN_BYTES", 1)
    left_out = "all are left out if an event that every match needs does not occur at all"
    plain_frames = [stored, stored.where("v > 0").select("*", (F.col("v") + 1).alias("w")), stored.union(stored)]
    assert all(chance(query, one).startswith(left_out) for one in plain_frames)
    assert chance(query, stored, prune=False) == "kept, because of prune=False"
    assert chance(query, frame(spark), prune=True).startswith("left out if an event that every match needs is not near")
    computed = {
        "a join": stored.join(frame(spark).select("id"), "id"),
        "a limit, whose rows may be others the second time": stored.limit(20),
        "chance": stored.where(F.rand() < 2),
        "a function in Python": stored.withColumn("w", F.udf(str)("s")),
        "text": spark.read.schema(stored.schema).json(str(tmp_path)),
        "rows of the driver": frame(spark),
    }
    assert {
        why: chance(query, one).startswith("kept, because the rows do not come straight")
        for why, one in computed.items()
    } == dict.fromkeys(computed, True)
    found = ceql.spark.match(query, stored, order_by=["id"])
    assert "LeftSemi" in found._jdf.queryExecution().toString()
    assert same_rows(found, ceql.match(query, pa.Table.from_pylist(events(), SCHEMA), order_by=["t"]))
    cached = frame(spark).cache()
    assert chance(query, cached).startswith(left_out)
    cached.unpersist()


RARE = {
    "x > 1": nan,
    "x != 3": nan,
    "x = 0": -0.0,
    "x <= 0": -0.0,
    "x IN {0.0, 7.0}": -0.0,
    "x IS NULL": None,
}
"""Conditions, and a value that satisfies each, of which the statistics of a file say otherwise or nothing."""


def test_events_are_found_of_which_statistics_do_not_know(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_pruning, "MIN_BYTES", 1)
    found = []
    for number, (condition, value) in enumerate(RARE.items()):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"type": ["A", "B"], "id": [1, 2], "x": pa.array([3.0, value], pa.float64())}), path)
        query = f"SELECT * FROM S WHERE A AS a ; B AS b FILTER b[{condition}]"
        stored = spark.read.parquet(str(path))
        assert chance(query, stored).startswith("all are left out if an event that every match needs does not occur")
        found.append(ceql.spark.match(query, stored, order_by=["id"]).select(F.lit(condition)))
    assert sorted(row[0] for row in reduce(DataFrame.union, found).collect()) == sorted(RARE)


@pytest.mark.parametrize("words", [["a", "b"], [f"word {number}" for number in range(5000)] + ["a", "b"]])
def test_parameters_reach_the_tasks(spark: Any, words: list[str]) -> None:
    rows = [("A", "a", 1), ("A", "c", 2), ("B", "b", 3), ("B", "x", 4)]
    frame = spark.createDataFrame(rows, "type string, s string, t long")
    query = "SELECT * FROM S WHERE A AS x ; B AS y FILTER x[s IN $words] AND y[s IN $words AND t > $least]"
    found = ceql.spark.match(query, frame, order_by="t", params={"words": words, "least": 1})
    assert [(row.x.s, row.y.s) for row in found.collect()] == [("a", "b")]
    bound = ceql.compile(query, frame, order_by="t", params={"words": words, "least": 9})
    assert frame.transform(ceql.spark.matcher(bound, params={"least": 2})).count() == 1
    assert ceql.spark.match(bound, frame).count() == 0
    assert "row filter" in ceql.spark.explain(bound, frame)
