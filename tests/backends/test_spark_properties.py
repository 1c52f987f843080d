"""Spark equals the engine, and both the definitions, whatever the plan and however the rows are laid out."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import inf, nan
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ceql
import kernel_runner
import strategies
from ceql.syntax import ast
from ceql.syntax.ast import Consumption
from reference import has_few_valuations, recognise, valuations
from spark_rows import settings

pytest.importorskip("pyspark.sql")
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

import ceql.spark
from ceql.automaton.properties import why_not_by_key, why_not_by_time
from ceql.backends.spark import pruning as spark_pruning
from ceql.backends.spark.predicates import row_conditions
from ceql.backends.spark.query import prepare
from ceql.backends.spark.shards import MEASURE, _measured
from ceql.syntax.plan import AttributeWindow

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("default"),
]

MAX_MATCHES = 300
SHAPES = ("matches", "events")
TYPES = {**dict(zip(strategies.SCHEMA.names, strategies.SCHEMA.types, strict=True)), "id": pa.int64()}
Events = list[dict[str, Any]]
Rows = list[dict[str, Any]]


@contextmanager
def runtime(spark: Any, n_partitions: int, batch_rows: int) -> Iterator[None]:
    values = {
        "spark.sql.shuffle.partitions": n_partitions,
        "spark.sql.execution.arrow.maxRecordsPerBatch": batch_rows,
        # Else all rows of a small example come to one task.
        "spark.sql.adaptive.coalescePartitions.enabled": False,
    }
    with settings(spark, values):
        yield


def collected(found: dict[Any, Any]) -> dict[Any, Rows]:
    """Return the rows of several DataFrames, which one job computes."""
    tags = list(found)
    parts = [
        found[tag].select(F.lit(number).alias("tag"), F.to_json(F.struct("*"), {"ignoreNullFields": "false"}))
        for number, tag in enumerate(tags)
    ]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.union(part)
    rows: dict[Any, Rows] = {tag: [] for tag in tags}
    for number, text in whole.collect():
        rows[tags[number]].append(json.loads(text))
    return rows


def frame(spark: Any, table: pa.Table, n_partitions: int = 1) -> Any:
    """Return rows as a DataFrame, in so many partitions; some are empty if the rows are few."""
    size = -(-len(table) // n_partitions)
    parts = [
        spark.createDataFrame(table.slice(number * size, size), _spark_schema(table.schema)).coalesce(1)
        for number in range(n_partitions)
    ]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.union(part)
    return whole


def _spark_schema(schema: pa.Schema) -> Any:
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def plans(query: ceql.Query) -> list[str]:
    why_not = {"keys": why_not_by_key(query.plan), "shards": why_not_by_time(query.plan)}
    return ["single", *(name for name, reason in why_not.items() if reason is None)]


def prunings(query: ceql.Query) -> st.SearchStrategy[bool | None]:
    return st.sampled_from([True, None]) if len(row_conditions(query, "type", TYPES)[1]) > 1 else st.none()


def multiset(rows: Rows) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def grouped(rows: Rows) -> dict[str, Counter[str]]:
    """Return rows of shape "events" by match."""
    groups: dict[str, Rows] = defaultdict(list)
    for row in rows:
        groups[row["match_id"]].append({name: value for name, value in row.items() if name != "match_id"})
    return {match_id: multiset(group) for match_id, group in groups.items()}


def unnamed(groups: dict[str, Counter[str]]) -> list[list[tuple[str, int]]]:
    """Return the matches without what they are called."""
    return sorted(sorted(group.items()) for group in groups.values())


def engine_rows(query: str, events: Events, shape: Any, order_by: list[str], *, complete: bool = False) -> Rows:
    table = kernel_runner.table(events, TYPES)
    matches = ceql.match(query, table, shape=shape, order_by=order_by, complete=complete)
    rows: Rows = matches.to_arrow().to_pylist()
    return rows


@st.composite
def trees(draw: Any, kind: str) -> ast.Query:
    """Return a query that can run by a plan."""
    tree: ast.Query = draw(strategies.queries(depth=4, declares=True, silences=True))
    if draw(st.booleans()):
        formula = draw(strategies.rich_formulas(3))
        tree = replace(tree, declarations=(), formula=formula, select=replace(tree.select, selected=None))
    if kind == "keys":
        tree = replace(tree, partition_by=(ast.Name("k"),))
        if tree.consumption is Consumption.ANY:
            tree = replace(tree, consumption=Consumption.PARTITION)
    elif kind == "shards":
        size = draw(st.sampled_from([2, 0, 1, 5, Decimal("1.5"), 100]))
        window = ast.AttributeWindow(size, ast.Name("t"))
        tree = replace(tree, partition_by=(), consumption=Consumption.NONE, window=window)
    return replace(tree, limit=draw(st.sampled_from([None, None, 1, 2])))


layouts = st.tuples(st.sampled_from([7, 2, 1]), st.sampled_from([1, 3]))
input_partitions = st.sampled_from([1, 2, 7])


@pytest.mark.parametrize("kind", ["keys", "shards", "any"])
@strategies.some(10)
@given(data=st.data(), layout=layouts, shape=st.sampled_from(SHAPES))
def test_spark_equals_the_engine_equals_the_definitions(
    spark: Any, kind: str, data: st.DataObject, layout: tuple[int, int], shape: Any
) -> None:
    tree = data.draw(trees(kind))
    events = [{**event, "id": number} for number, event in enumerate(data.draw(strategies.events(12)))]
    assume(has_few_valuations(tree.formula, events, MAX_MATCHES))
    order_by = ["t", "id"]
    unlimited = ceql.compile(str(replace(tree, limit=None)), pa.schema(list(TYPES.items())))
    complete = data.draw(st.booleans())
    found = kernel_runner.recognise(unlimited, [kernel_runner.table(events, TYPES)], complete=complete)
    assume(len(found) > 0)
    columns = [variable.name for variable in unlimited.plan.variables]
    assert found == recognise(unlimited.tree, events, columns, complete=complete)
    query, shuffled = str(tree), kernel_runner.table(data.draw(st.permutations(events)), TYPES)
    with runtime(spark, *layout):
        rows = collected(
            {
                plan: ceql.spark.match(
                    query,
                    frame(spark, shuffled, data.draw(input_partitions)),
                    order_by=order_by,
                    plan=plan,  # type: ignore[arg-type]
                    shape=shape,
                    prune=data.draw(prunings(unlimited)),
                    complete=complete,
                )
                for plan in plans(unlimited)
            }
        )
    expected = engine_rows(query, events, shape, order_by, complete=complete)
    for plan in plans(unlimited):
        if shape == "matches":
            assert multiset(rows[plan]) == multiset(expected), plan
        else:
            assert unnamed(grouped(rows[plan])) == unnamed(grouped(expected)), plan
            assert grouped(rows[plan]) == grouped(rows["single"]), plan


@pytest.mark.parametrize("kind", ["keys", "shards"])
@strategies.some(6)
@given(data=st.data(), layout=layouts, shape=st.sampled_from(SHAPES))
def test_neither_plan_nor_layout_changes_how_ties_are_broken(
    spark: Any, kind: Any, data: st.DataObject, layout: tuple[int, int], shape: Any
) -> None:
    tree = data.draw(trees(kind))
    events = [{**event, "t": event["t"] // 3} for event in data.draw(strategies.events(12))]
    assume(has_few_valuations(tree.formula, events, MAX_MATCHES) and valuations(tree.formula, events))
    tables = [kernel_runner.table(data.draw(st.permutations(events)), TYPES).drop_columns(["id"]) for _ in range(3)]
    with runtime(spark, *layout):
        rows = collected(
            {
                number: ceql.spark.match(
                    str(tree), frame(spark, tables[number], n_partitions), order_by=["t"], plan=plan, shape=shape
                )
                for number, (plan, n_partitions) in enumerate([("single", 1), ("single", 7), (kind, 2)])
            }
        )
    assert multiset(rows[1]) == multiset(rows[0])
    assert multiset(rows[2]) == multiset(rows[0])


PATTERNS = {
    "sequence": "SELECT * FROM S WHERE A AS a ; B AS b",
    "contiguous": "SELECT * FROM S WHERE A AS a : B AS b",
    "max": "SELECT MAX * FROM S WHERE A+ AS a ; B AS b",
    "limited": "SELECT LAST * FROM S WHERE (A OR B)+ AS a ; B AS b",
}
TIMELINES = {
    "a cut inside every match": (2, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    "cuts on ties": (1, [0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 3]),
    "windows longer than shards": (9, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20]),
    "a window longer than time": (2**62, [-(2**63), -(2**62), -7, -1, 0, 5, 6, 2**62, 2**62 + 1, 2**63 - 2, 2**63 - 1]),
    "a window of one moment": (0, [0, 0, 1, 1, 1, 2, 2, 5, 5, 5]),
    "more shards than times": (3, [0, 0, 0, 0, 4, 4, 4, 4]),
    "all at one time": (3, [7] * 8),
    "one event": (3, [7]),
    "no events": (3, []),
}


def test_shards_are_exact_wherever_they_are_cut(spark: Any) -> None:
    events = {
        name: [
            {"type": "AAB"[number % 3], "x": None, "s": None, "t": time, "k": None, "id": number}
            for number, time in enumerate(times)
        ]
        for name, (_, times) in TIMELINES.items()
    }
    found, expected = {}, {}
    for number, (name, (size, _)) in enumerate(TIMELINES.items()):
        for pattern, select in list(PATTERNS.items())[number % 2 :: 2]:
            query, table = f"{select} WITHIN {size} [t]", kernel_runner.table(events[name], TYPES)
            with runtime(spark, 6 if pattern in ("sequence", "max") else 2, 1):
                found[name, pattern] = ceql.spark.match(query, frame(spark, table), order_by=["id"], plan="shards")
            expected[name, pattern] = multiset(engine_rows(query, events[name], "matches", ["id"]))
    with runtime(spark, 2, 1):
        rows = collected(found)
    assert {tag: multiset(one) for tag, one in rows.items()} == expected
    assert sum(one.total() for one in expected.values()) > 50


SPRING, AUTUMN = datetime(2024, 3, 10, 6, 40), datetime(2024, 11, 3, 5, 10)
"""A little before the clocks of New York are changed, in UTC."""
STEPS = [0, 0, 1, 2, 2, 4, 5, 5, 6, 8, 9, 9, 10, 12, 13, 15, 16, 16, 20, 21]


def moments(start: datetime) -> list[datetime]:
    return [start + timedelta(minutes=10 * step) for step in STEPS]


def local(times: list[datetime], hours: int) -> list[datetime]:
    return [time - timedelta(hours=hours) for time in times]


MEASURES: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "int": ("WITHIN 3 [int]", pa.int32(), [*STEPS, 2**31 - 2, 2**31 - 1, -(2**31), None]),
    "long": ("WITHIN 3.5 [long]", pa.int64(), [2**53 + step for step in STEPS] + [2**63 - 1, -(2**63), None]),
    "float": ("WITHIN 0.3 [float]", pa.float32(), [step / 10 for step in STEPS] + [nan, inf, -inf, None, -0.0]),
    "double": (
        "WITHIN 0.3 [double]",
        pa.float64(),
        [1e9 + step / 10 for step in STEPS] + [nan, nan, inf, inf, -inf, -inf, None, -0.0, 0.0, 0.3],
    ),
    "money": (
        "WITHIN 0.02 [money]",
        pa.decimal128(9, 2),
        [Decimal(step) / 100 for step in STEPS] + [None, Decimal("9999999.99"), Decimal("-9999999.99")],
    ),
    "fine": (
        "WITHIN 3 [fine]",
        pa.decimal128(38, 18),
        [step % 5 + Decimal(step).scaleb(-18) for step in STEPS]
        + [None, Decimal("-9"), Decimal("9"), Decimal("0.000000000000000004"), Decimal("3.000000000000000004")],
    ),
    "wide": ("WITHIN 1e40 [wide]", pa.decimal128(20, 0), [Decimal(step) for step in STEPS]),
    "at": ("WITHIN 30 minutes [at]", pa.timestamp("us", "UTC"), [*moments(SPRING), *moments(AUTUMN), None]),
    "wall": (
        "WITHIN 30 minutes [wall]",
        pa.timestamp("us"),
        [*local(moments(SPRING), 5), *local(moments(AUTUMN), 4), datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59)],
    ),
    "day": (
        "WITHIN 3 days [day]",
        pa.date32(),
        [date(2024, 3, 1) + timedelta(days=step) for step in STEPS] + [date(1, 1, 1), date(9999, 12, 31), None],
    ),
}


@pytest.fixture
def new_york(spark: Any) -> Iterator[None]:
    with settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        yield


def measured(name: str) -> pa.Table:
    _, data_type, values = MEASURES[name]
    chance = random.Random(5)
    rows = [{"type": chance.choice("AB"), "id": number, name: value} for number, value in enumerate(values * 2)]
    table = kernel_runner.table(rows, {"type": pa.string(), "id": pa.int64(), name: data_type})
    return table.sort_by([(name, "ascending"), ("id", "ascending")])


def pairs(rows: Rows) -> Counter[tuple[int, int]]:
    return Counter((row["a"]["id"], row["b"]["id"]) for row in rows)


@pytest.mark.usefixtures("new_york")
@pytest.mark.parametrize("options", [{"plan": "shards"}, {"prune": True}], ids=str)
def test_every_type_of_attribute_is_measured(spark: Any, options: dict[str, Any]) -> None:
    found, expected = {}, {}
    with runtime(spark, 6, 3):
        for name, (window, _, _) in MEASURES.items():
            query, table = f"SELECT a[id], b[id] FROM S WHERE A AS a ; B AS b {window}", measured(name)
            expected[name] = pairs(ceql.match(query, table, order_by=[name]).to_arrow().to_pylist())
            shuffled = table.take(random.Random(5).sample(range(len(table)), len(table)))
            matches = ceql.spark.match(query, frame(spark, shuffled), order_by=["id"], **options)
            found[name] = matches.select("a", "b")
        rows = collected(found)
    assert {name: pairs(one) for name, one in rows.items()} == expected
    assert all(one.total() > 10 for one in expected.values())


ROUNDED = ("float", "double", "money", "fine", "wide", "long")
"""What windows of these reach is longer than they are, by a little or by less than one unit."""


@pytest.mark.usefixtures("new_york")
def test_a_halo_holds_the_window_and_no_more(spark: Any) -> None:
    found, expected = {}, {}
    for name, (text, data_type, _) in MEASURES.items():
        table = measured(name)
        query = ceql.compile(f"SELECT a[id], b[id] FROM S WHERE (A OR B) AS a ; (A OR B) AS b {text}", table.schema)
        assert isinstance(query.plan.window, AttributeWindow)
        measure, after_window = _measured(query.plan.window, data_type)
        place = {row: at for at, row in enumerate(table["id"].to_pylist())}
        events = frame(spark, table.select(["id", name]).append_column("place", pa.array(list(place.values()))))
        events = events.withColumn(MEASURE, measure).withColumn("after", after_window)
        first, then = events.alias("first"), events.alias("then")
        is_reached = (F.col("first.place") < F.col("then.place")) & (
            F.col(f"then.{MEASURE}") <= F.coalesce("first.after", f"then.{MEASURE}")
        )
        reached = first.join(F.broadcast(then), is_reached & F.col(f"first.{MEASURE}").isNotNull())
        found[name] = reached.select(F.struct("first.id").alias("a"), F.struct("then.id").alias("b"))
        expected[name] = pairs(ceql.match(query, table).to_arrow().to_pylist())
    rows = {name: pairs(one) for name, one in collected(found).items()}
    assert {name: expected[name] - rows[name] for name in MEASURES} == {name: Counter() for name in MEASURES}
    exact = [name for name in MEASURES if name not in ROUNDED]
    assert {name: rows[name] for name in exact} == {name: expected[name] for name in exact}


SPARSE = {
    "time": ("SELECT * FROM S WHERE A AS a ; B AS b WITHIN 2 [t]", lambda event: abs(event["t"] - 50) < 6),
    "key": ("SELECT * FROM S WHERE A AS a ; B AS b PARTITION BY [k]", lambda event: event["k"] == 3),
    "both": (
        "SELECT * FROM S WHERE A AS a ; B AS b PARTITION BY [k] WITHIN 2 [t]",
        lambda event: event["k"] == 3 and abs(event["t"] - 50) < 6,
    ),
    "never": ("SELECT * FROM S WHERE A AS a ; B AS b ; C AS c", lambda _: False),
}


@pytest.mark.parametrize("n_slots", [None, 4])
@pytest.mark.parametrize("name", SPARSE)
def test_only_rows_near_a_rare_event_are_left(
    spark: Any, name: str, n_slots: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if n_slots is not None:
        monkeypatch.setattr(spark_pruning, "N_SLOTS", n_slots)
    events = [
        {"type": "B" if number == 253 else "A", "x": None, "s": None, "t": number // 5, "k": number % 5, "id": number}
        for number in range(500)
    ]
    (query, is_near), table = SPARSE[name], kernel_runner.table(events, TYPES)
    prepared = prepare(
        query, frame(spark, table), type_column="type", time_column=None, order_by=["id"], shape="matches"
    )
    left = {row.id for row in spark_pruning.near_others(prepared, prepared.frame).collect()}
    matches = ceql.match(query, table, order_by=["id"]).to_arrow().to_pylist()
    assert {event["id"] for match in matches for event in (match["a"], match["b"])} <= left
    if n_slots is None:
        assert left <= {event["id"] for event in events if is_near(event)}
    elif name != "never":
        assert len(left) > len(matches)


@pytest.mark.parametrize("event_type", ["C", "A"])
def test_all_rows_are_left_if_all_needed_events_occur(spark: Any, event_type: str) -> None:
    rows = [{"type": "AB"[number % 2], "t": number, "id": number} for number in range(6)]
    events = frame(spark, kernel_runner.table(rows, {"type": pa.string(), "t": pa.int64(), "id": pa.int64()}), 3)
    query = f"SELECT * FROM S WHERE A AS a ; B AS b ; {event_type} AS c"
    prepared = prepare(query, events, type_column="type", time_column=None, order_by=["id"], shape="matches")
    left = spark_pruning.all_or_none(prepared, prepared.frame)
    assert left.columns == prepared.frame.columns
    assert left.count() == (0 if event_type == "C" else 6)
