"""What a bound query knows: how many events a variable binds, the result's columns, and where types come from."""

from __future__ import annotations

import pickle
import warnings
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

import ceql
from ceql.errors import CeqlError, CeqlWarning, DataError
from ceql.schema import ANY_STREAM, Kind, Schema, kind_of
from ceql.syntax import plan
from ceql.syntax.declare import TYPES
from ceql.syntax.plan import Multiplicity

ONE, OPTIONAL, SEVERAL = Multiplicity

TRADES = pa.schema([("type", pa.string()), ("price", pa.float64()), ("t", pa.timestamp("us", tz="UTC"))])


def bound(text: str, schema: object = None, **options: object) -> plan.Plan:
    return ceql.compile(text, schema, **options).plan  # type: ignore[arg-type]


def multiplicities(formula: str, selected: str = "*") -> dict[str, Multiplicity]:
    variables = bound(f"SELECT {selected} FROM S WHERE {formula}").variables
    return {variable.name: variable.multiplicity for variable in variables}


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("A", {"A": ONE}),
        ("A AS x", {"x": ONE}),
        ("A AS x AS y", {"x": ONE, "y": ONE}),
        ("A+", {"A": SEVERAL}),
        ("A:+ AS x", {"x": SEVERAL}),
        ("(A AS x)+", {"x": SEVERAL}),
        ("A ; B", {"A": ONE, "B": ONE}),
        ("A ; A", {"A": SEVERAL}),
        ("A AS x ; A AS y", {"x": ONE, "y": ONE}),
        ("A AS x ; B AS x", {"x": SEVERAL}),
        ("(A ; B) AS x", {"x": SEVERAL}),
        ("A OR B", {"A": OPTIONAL, "B": OPTIONAL}),
        ("A OR A ; B", {"A": ONE, "B": OPTIONAL}),
        ("A AS x OR B AS x", {"x": ONE}),
        ("(A OR B) AS x", {"x": ONE}),
        ("A OR A+", {"A": SEVERAL}),
        ("(A OR B) ; A", {"A": SEVERAL, "B": OPTIONAL}),
        ("(A OR B) ; (C OR A)", {"A": SEVERAL, "B": OPTIONAL, "C": OPTIONAL}),
        ("(A OR B)+ ; C", {"A": SEVERAL, "B": SEVERAL, "C": ONE}),
        ("A FILTER A[x = 1] OR A[x = 2]", {"A": ONE}),
        ("A+ FILTER A[x = 1] OR A[x = 2]", {"A": SEVERAL}),
        ("A AS x ; B AS y PROJECT [x]", {"x": ONE}),
        ("A AS x ; B AS y PROJECT []", {}),
        ("(A AS x ; B AS y PROJECT [x]) AS z", {"z": ONE, "x": ONE}),
        ("(A AS x ; B+ AS y PROJECT [x]) AS z", {"z": ONE, "x": ONE}),
        ("(A AS x ; B+ AS y PROJECT [x, y]) AS z", {"z": SEVERAL, "x": ONE, "y": SEVERAL}),
        ("(A AS x AS y PROJECT [x, y]) AS z", {"z": ONE, "x": ONE, "y": ONE}),
        ("((A AS x OR B) PROJECT [x]) AS z", {"z": OPTIONAL, "x": OPTIONAL}),
        ("(A PROJECT []) AS z ; B", {"z": OPTIONAL, "B": ONE}),
        ("((A PROJECT [])+ AS z) ; B", {"z": OPTIONAL, "B": ONE}),
    ],
)
def test_how_many_events_variables_bind(formula: str, expected: dict[str, Multiplicity]) -> None:
    assert multiplicities(formula) == expected


@pytest.mark.parametrize(
    ("formula", "columns"),
    [
        ("A AS x ; B", ["x", "B"]),
        ("B ; A", ["B", "A"]),
        ("(A ; B AS y) AS x", ["x", "y"]),
        ("(A AS x OR A) ; B", ["x", "A", "B"]),
        ("A ; B PROJECT [B]", ["B"]),
        ("A AS x ; B PROJECT [A, B]", ["A", "B"]),
        ("(A AS x PROJECT [A]) ; B AS y", ["A", "y"]),
        ("(A ; B PROJECT [A]) AS x", ["x"]),
        ("A+ ; A AS x ; B", ["A", "x", "B"]),
    ],
)
def test_columns_of_select_all(formula: str, columns: list[str]) -> None:
    assert list(multiplicities(formula)) == columns


def test_select_list_gives_order_and_attributes() -> None:
    query = ceql.compile("SELECT B, x[t, price], A FROM S WHERE A AS x ; B", TRADES)
    assert [variable.name for variable in query.plan.variables] == ["B", "x", "A"]
    assert [name for name, _ in query.plan.variables[1].attributes] == ["t", "price"]
    assert query.result_schema.names == ["match_start", "match_end", "B", "x", "A"]


# --- result schema ------------------------------------------------------------------

EVENT = pa.struct([("type", pa.string()), ("price", pa.float64()), ("t", pa.timestamp("us", tz="UTC"))])


@pytest.mark.parametrize(
    ("formula", "field"),
    [
        ("A AS x", pa.field("x", EVENT, nullable=False)),
        ("A AS x OR B PROJECT [x]", pa.field("x", EVENT, nullable=True)),
        ("A+ AS x", pa.field("x", pa.list_(pa.field("item", EVENT, nullable=False)), nullable=False)),
    ],
)
def test_type_of_a_variable(formula: str, field: pa.Field) -> None:
    assert ceql.compile(f"SELECT x FROM S WHERE {formula}", TRADES).result_schema.field("x").equals(field)


@pytest.mark.parametrize(
    ("clauses", "options", "bounds"),
    [
        ("", {}, pa.int64()),
        ("WITHIN 10 EVENTS", {}, pa.int64()),
        ("WITHIN 10 [price]", {}, pa.float64()),
        ("WITHIN 1 hour", {}, pa.timestamp("us", tz="UTC")),
        ("", {"time_column": "t"}, pa.timestamp("us", tz="UTC")),
        ("", {"order_by": ["price", "t"]}, pa.float64()),
        ("WITHIN 10 EVENTS", {"time_column": "t", "order_by": ["price"]}, pa.timestamp("us", tz="UTC")),
        ("WITHIN 10 [price]", {"time_column": "t"}, pa.float64()),
    ],
)
def test_type_of_match_start_and_end(clauses: str, options: dict[str, object], bounds: pa.DataType) -> None:
    schema = bound(f"SELECT * FROM S WHERE A {clauses}", TRADES, **options).result_schema
    assert schema.field("match_start").type == schema.field("match_end").type == bounds


def test_partition_attributes_come_first_and_are_never_null() -> None:
    schema = bound("SELECT * FROM S WHERE A PARTITION BY [type], [price]", TRADES).result_schema
    assert schema.names == ["type", "price", "match_start", "match_end", "A"]
    assert not schema.field("type").nullable
    assert not schema.field("price").nullable


def test_partition_attribute_of_nulls_only() -> None:
    schema = bound("SELECT * FROM S WHERE A PARTITION BY [k]", pa.schema([("k", pa.null())])).result_schema
    assert schema.field("k").equals(pa.field("k", pa.null()))


def test_select_none_has_no_variables() -> None:
    assert bound("SELECT NONE FROM S WHERE A", TRADES).result_schema.names == ["match_start", "match_end"]


# --- schemas ------------------------------------------------------------------------

READER = pa.table({"type": ["A"], "x": [1]})
SPARK = spark.StructType(
    [
        spark.StructField("b", spark.BooleanType()),
        spark.StructField("i8", spark.ByteType()),
        spark.StructField("i16", spark.ShortType()),
        spark.StructField("i32", spark.IntegerType()),
        spark.StructField("i64", spark.LongType()),
        spark.StructField("f32", spark.FloatType()),
        spark.StructField("f64", spark.DoubleType()),
        spark.StructField("s", spark.StringType()),
        spark.StructField("v", spark.VarcharType(10)),
        spark.StructField("c", spark.CharType(3)),
        spark.StructField("raw", spark.BinaryType()),
        spark.StructField("day", spark.DateType()),
        spark.StructField("t", spark.TimestampType()),
        spark.StructField("local", spark.TimestampNTZType()),
        spark.StructField("dec", spark.DecimalType(12, 3)),
        spark.StructField("nothing", spark.NullType()),
        spark.StructField("list", spark.ArrayType(spark.LongType())),
        spark.StructField("map", spark.MapType(spark.StringType(), spark.DoubleType())),
        spark.StructField("struct", spark.StructType([spark.StructField("x", spark.LongType())])),
    ]
)
FROM_SPARK = {
    "b": pa.bool_(),
    "i8": pa.int8(),
    "i16": pa.int16(),
    "i32": pa.int32(),
    "i64": pa.int64(),
    "f32": pa.float32(),
    "f64": pa.float64(),
    "s": pa.string(),
    "v": pa.string(),
    "c": pa.string(),
    "raw": pa.binary(),
    "day": pa.date32(),
    "t": pa.timestamp("us", tz="UTC"),
    "local": pa.timestamp("us"),
    "dec": pa.decimal128(12, 3),
    "nothing": pa.null(),
    "list": pa.list_(pa.int64()),
    "map": pa.map_(pa.string(), pa.float64()),
    "struct": pa.struct([("x", pa.int64())]),
}


@pytest.mark.parametrize(
    ("source", "columns"),
    [
        (READER.schema, {"type": pa.string(), "x": pa.int64()}),
        (READER, {"type": pa.string(), "x": pa.int64()}),
        (READER.to_reader(), {"type": pa.string(), "x": pa.int64()}),
        (SPARK, FROM_SPARK),
    ],
)
def test_schema_of_one_table(source: object, columns: dict[str, pa.DataType]) -> None:
    schema = Schema.of(source)
    (stream,) = schema.streams
    assert (stream.name, dict(stream.columns), stream.event_types) == (ANY_STREAM, columns, None)
    assert Schema.of(schema) is schema
    assert not schema.is_unknown


def test_compile_takes_what_match_takes() -> None:
    duckdb = pytest.importorskip("duckdb")
    table = pa.table({"type": ["A", "B"], "x": [1, 2]})
    text = "SELECT * FROM S WHERE A AS a ; B AS b FILTER b[x > 1]"
    expected = ceql.compile(text, table.schema).result_schema
    relation = duckdb.sql("SELECT * FROM (VALUES ('A', 1::bigint), ('B', 2)) AS events(type, x)")
    for events in (table, table.to_pandas(), relation, table.to_pylist(), table.to_batches(), table.to_reader()):
        query = ceql.compile(text, events, order_by="x")
        assert query.result_schema.field("b").equals(expected.field("b"))
        assert query.order_by == ("x",)
        # What was asked for its schema can still be read.
        assert ceql.match(query, events).count() == 1
    assert ceql.compile("SELECT * FROM S, T WHERE S>A ; T>B", {"S": table.to_pylist(), "T": relation}, order_by="x")


def test_schema_of_a_dict_of_tables() -> None:
    schema = Schema.of({"S": READER, "T": SPARK})
    assert [stream.name for stream in schema.streams] == ["S", "T"]
    assert dict(schema.streams[1].columns) == FROM_SPARK


def test_schema_of_something_else_is_an_error() -> None:
    with pytest.raises(CeqlError, match="cannot read a schema from list"):
        Schema.of(["a"])


@pytest.mark.parametrize(
    "data_type", [spark.DayTimeIntervalType(), spark.ArrayType(spark.YearMonthIntervalType())], ids=str
)
def test_spark_types_without_counterpart(data_type: spark.DataType) -> None:
    with pytest.raises(DataError, match=r"column 'x' is of Spark's type interval .*, which events cannot have"):
        Schema.of(spark.StructType([spark.StructField("x", data_type)]))


@pytest.mark.parametrize(
    ("data_type", "kind"),
    [
        (pa.bool_(), Kind.BOOLEAN),
        (pa.uint64(), Kind.INTEGER),
        (pa.float16(), Kind.FLOAT),
        (pa.decimal256(50, 2), Kind.DECIMAL),
        (pa.large_string(), Kind.STRING),
        (pa.string_view(), Kind.STRING),
        (pa.dictionary(pa.int8(), pa.large_string()), Kind.STRING),
        (pa.timestamp("ns"), Kind.LOCAL_TIMESTAMP),
        (pa.timestamp("s", tz="Europe/Berlin"), Kind.TIMESTAMP),
        (pa.date64(), Kind.DATE),
        (pa.null(), Kind.UNKNOWN),
        (pa.binary(), Kind.OTHER),
        (pa.time64("us"), Kind.OTHER),
        (pa.duration("us"), Kind.DURATION),
        (pa.list_(pa.int8()), Kind.LIST),
        (pa.map_(pa.string(), pa.int8()), Kind.OTHER),
    ],
)
def test_kinds(data_type: pa.DataType, kind: Kind) -> None:
    assert kind_of(data_type) is kind


@pytest.mark.parametrize("word", TYPES)
def test_declared_types(word: str) -> None:
    text = f"CREATE STREAM S {{ EVENT A {{ x: {word.upper()} }} }} SELECT * FROM S WHERE A"
    assert dict(bound(text).attributes) == {"x": TYPES[word]}


@pytest.mark.parametrize(
    ("written", "data_type"),
    [
        ("decimal", pa.decimal128(38, 18)),
        ("decimal(5)", pa.decimal128(5, 0)),
        ("decimal(5, 2)", pa.decimal128(5, 2)),
        ("DECIMAL(38,38)", pa.decimal128(38, 38)),
    ],
)
def test_declared_decimals(written: str, data_type: pa.DataType) -> None:
    assert dict(bound(f"CREATE STREAM S {{ EVENT A {{ x: {written} }} }} SELECT * FROM S WHERE A").attributes) == {
        "x": data_type
    }


DECLARED = """CREATE STREAM S { EVENT A { x: int, s: string }, EVENT B { x: double, y: boolean }, EVENT C { z: date } }
CREATE STREAM T { EVENT B { x: int } }
"""


@pytest.mark.parametrize(
    ("query", "attributes"),
    [
        ("SELECT * FROM S WHERE A", {"x": pa.int64(), "s": pa.string()}),
        ("SELECT * FROM S WHERE C", {"z": pa.date32()}),
        ("SELECT * FROM S WHERE A ; B", {"x": pa.float64(), "s": pa.string(), "y": pa.bool_()}),
        ("SELECT * FROM S, T WHERE T>B", {"x": pa.int64()}),
        ("SELECT * FROM S, T WHERE B", {"x": pa.float64(), "y": pa.bool_()}),
    ],
)
def test_attributes_are_those_of_the_types_in_the_pattern(query: str, attributes: dict[str, pa.DataType]) -> None:
    assert dict(bound(DECLARED + query).attributes) == attributes


def test_declared_attributes_keep_the_types_of_the_data() -> None:
    text = "CREATE STREAM S { EVENT A { x: int, s: string, t: timestamp } } SELECT * FROM S WHERE A"
    data = {
        "x": pa.int8(),
        "s": pa.dictionary(pa.int32(), pa.string()),
        "t": pa.timestamp("ns", tz="UTC"),
        "more": pa.float64(),
    }
    assert dict(bound(text, pa.schema(list(data.items()))).attributes) == {name: data[name] for name in ("x", "s", "t")}


def test_a_column_of_nulls_fits_every_declared_type() -> None:
    text = "CREATE STREAM S { EVENT A { x: int } } SELECT * FROM S WHERE A FILTER A[x > 1]"
    assert dict(bound(text, pa.schema([("x", pa.null())])).attributes) == {"x": pa.null()}


def test_unknown_schema_accepts_every_name() -> None:
    query = ceql.compile(
        "SELECT x[a, b] FROM S, T WHERE S>A AS x FILTER x[a = 1 AND a = 'x'] PARTITION BY [k] WITHIN 1 h"
    )
    assert query.schema.is_unknown
    assert query.plan.window == plan.AttributeWindow("time", Kind.TIMESTAMP, 3600 * 10**9)
    assert query.result_schema.names == ["k", "match_start", "match_end", "x"]


@pytest.mark.parametrize(
    ("clause", "window"),
    [
        ("", None),
        ("WITHIN 5 EVENTS", plan.EventsWindow(5)),
        ("WITHIN 2.5 [price]", plan.AttributeWindow("price", Kind.FLOAT, Decimal("2.5"))),
        ("WITHIN 1 hour 30 minutes", plan.AttributeWindow("t", Kind.TIMESTAMP, 5400 * 10**9)),
        ("WITHIN 0.5 seconds [t]", plan.AttributeWindow("t", Kind.TIMESTAMP, 5 * 10**8)),
        ("WITHIN 1 week", plan.AttributeWindow("t", Kind.TIMESTAMP, 7 * 86400 * 10**9)),
        ("WITHIN 3 us", plan.AttributeWindow("t", Kind.TIMESTAMP, 3000)),
        ("WITHIN 0 seconds", plan.AttributeWindow("t", Kind.TIMESTAMP, 0)),
    ],
)
def test_windows(clause: str, window: object) -> None:
    assert bound(f"SELECT * FROM S WHERE A ; B {clause}", TRADES).window == window


def test_queries_survive_pickling() -> None:
    query = ceql.compile("SELECT * FROM S WHERE A ; B WITHIN 1 hour", TRADES, time_column="t", order_by=["t"])
    copy = pickle.loads(pickle.dumps(query))
    assert copy == query
    assert copy.result_schema.equals(query.result_schema)


@pytest.mark.parametrize(
    ("condition", "zone", "is_warned_of"),
    [
        ("t > '2024-01-31 10:00'", "Europe/Berlin", True),
        ("x = 1 AND NOT t IN {'2024-01-31 10:00Z', '2024-01-31'}", "Europe/Berlin", True),
        ("t BETWEEN '2024-01-31' AND '2024-02-01'", "+02:00", True),
        ("t > '2024-01-31 10:00+01:00'", "Europe/Berlin", False),
        ("t > '2024-01-31 10:00'", "UTC", False),
        ("t > '2024-01-31 10:00'", None, False),
    ],
)
def test_times_without_zone_are_warned_of_where_the_column_has_another(
    condition: str, zone: str | None, is_warned_of: bool
) -> None:
    schema = pa.schema([("type", pa.string()), ("x", pa.int64()), ("t", pa.timestamp("us", zone))])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ceql.compile(f"SELECT * FROM S WHERE A AS a FILTER a[{condition}]", schema)
    assert [one.category for one in caught] == [CeqlWarning] * is_warned_of


@pytest.mark.parametrize(
    ("condition", "warning"),
    [
        (
            "'activity' = 'IV'",
            "'activity' = 'IV' uses no attribute: write the attribute activity without quotes",
        ),
        ("age > 1 AND NOT 'IV' != 'activity'", "write the attribute activity without quotes"),
        (
            "'ER unit' LIKE 'a%'",
            "'ER unit' LIKE 'a%' uses no attribute: write the attribute `ER unit` with backticks",
        ),
        ("'activity' IN {'IV', 'CRP'}", "write the attribute activity without quotes"),
        ("'activity' BETWEEN 'a' AND 'b'", "write the attribute activity without quotes"),
        ("'activity' IS NULL", "write the attribute activity without quotes"),
        ("age = NULL", "age = NULL is never true: write age IS NULL"),
        ("age > 1 OR NULL != `ER unit`", "NULL != `ER unit` is never true: write `ER unit` IS NOT NULL"),
    ],
)
def test_comparisons_that_look_at_no_event_are_warned_of(condition: str, warning: str) -> None:
    schema = pa.schema(
        [("type", pa.string()), ("activity", pa.string()), ("ER unit", pa.string()), ("age", pa.int64())]
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ceql.compile(f"SELECT * FROM S WHERE A AS a FILTER a[{condition}]", schema)
    assert [one.category for one in caught] == [CeqlWarning]
    assert str(caught[0].message).endswith(warning)


@pytest.mark.parametrize(
    "condition", ["activity = 'age'", "'a' = 'b'", "activity IN {'age', NULL}", "NULL = NULL", "1 < 2"]
)
def test_other_constants_are_not_warned_of(condition: str) -> None:
    schema = pa.schema([("type", pa.string()), ("activity", pa.string()), ("age", pa.int64())])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ceql.compile(f"SELECT * FROM S WHERE A AS a FILTER a[{condition}]", schema)
