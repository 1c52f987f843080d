"""Whatever holds events can be read, whatever types they have; what cannot is refused by name."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ceql
from ceql.engine.session import Session

QUERY = "SELECT * FROM S WHERE A AS a ; B AS b FILTER b[x > 1]"
ROWS = [{"type": "A", "x": 1}, {"type": "B", "x": 1}, {"type": "B", "x": 2}]
TABLE = pa.Table.from_pylist(ROWS)
FOUND = [{"match_start": 0, "match_end": 2, "a": ROWS[0], "b": ROWS[2]}]


def pandas() -> Any:
    return pytest.importorskip("pandas").DataFrame(ROWS)


HOLDERS = {
    "table": lambda: TABLE,
    "chunks": lambda: pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1, 0), TABLE.slice(1)]),
    "batch": lambda: TABLE.to_batches()[0],
    "batches": lambda: [batch for part in (TABLE.slice(0, 2), TABLE.slice(2)) for batch in part.to_batches()],
    "reader": lambda: TABLE.to_reader(),
    "dicts": lambda: ROWS,
    "tuple": lambda: tuple(ROWS),
    "pandas": pandas,
    "streams": lambda: {"S": TABLE},
    "other streams": lambda: {"S": ROWS, "T": 1},
    "matches": lambda: ceql.match("SELECT * FROM S WHERE A OR B", TABLE, shape="events"),
}


@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS)
def test_whatever_holds_events(holder: Any) -> None:
    found = ceql.match(QUERY, holder()).to_arrow().to_pylist()
    assert [(row["match_start"], row["match_end"]) for row in found] == [(0, 2)]
    # Some holders have columns of their own besides.
    assert [(row["a"] | ROWS[0], row["b"] | ROWS[2]) for row in found] == [(row["a"], row["b"]) for row in found]


@pytest.mark.parametrize("events", [1, "events", b"", object(), [1], [ROWS[0], None], None])
def test_what_holds_no_events(events: Any) -> None:
    with pytest.raises(ceql.DataError):
        ceql.match(QUERY, events)


def test_a_table_can_be_read_twice_a_reader_once() -> None:
    matches = ceql.match(QUERY, TABLE)
    assert matches.count() == matches.to_arrow().num_rows == len(list(matches)) == 1
    for reader in (TABLE.to_reader(), {"S": TABLE.to_reader()}):
        matches = ceql.match(QUERY, reader)
        assert matches.count() == 1
        with pytest.raises(ceql.DataError, match="read already"):
            matches.count()


def test_a_match_is_an_object() -> None:
    (match,) = ceql.match(QUERY + " PARTITION BY [x]", [*ROWS, {"type": "A", "x": 2}, {"type": "B", "x": 2}])
    assert (match.start, match.end, match.partition) == (3, 4, {"x": 2})
    assert match["a"] == match.variables["a"] == {"type": "A", "x": 2}
    with pytest.raises(ceql.CeqlError, match="only shape='matches'"):
        list(ceql.match(QUERY, TABLE, shape="positions"))


def test_a_table_for_notebooks() -> None:
    matches = ceql.match("SELECT * FROM S WHERE A AS a", [{"type": "A", "s": "<b>"}] * 12)
    shown = matches._repr_html_()
    assert shown.count("<tr>") == 11
    assert "&lt;b&gt;" in shown
    assert "the first 10 matches" in shown
    assert "1 matches" in ceql.match(QUERY, TABLE)._repr_html_()
    assert repr(matches).startswith("Matches(match_start: int64")


def test_batches_come_while_events_are_read() -> None:
    taken = []

    def batches() -> Any:
        for part in TABLE.to_batches() * 3:
            taken.append(len(part))
            yield part

    reader = pa.RecordBatchReader.from_batches(TABLE.schema, batches())
    found = ceql.match("SELECT * FROM S WHERE A", reader).batches()
    assert len(next(found)) == 1
    assert len(taken) < 3


# --- nothing, and next to nothing ---------------------------------------------------


@pytest.mark.parametrize("shape", ["matches", "events", "positions"])
@pytest.mark.parametrize("events", [[], TABLE.slice(0, 0), TABLE.schema.empty_table().to_reader(), {"S": []}])
def test_no_events(shape: Any, events: Any) -> None:
    matches = ceql.match(QUERY, events, shape=shape)
    assert matches.to_arrow().num_rows == 0
    assert matches.schema.names[0] in ("match_start", "match_id", "start")


def test_no_events_of_a_known_schema() -> None:
    for query in (ceql.compile(QUERY, TABLE.schema), "CREATE STREAM S { EVENT A { y: int } } SELECT * FROM S WHERE A"):
        matches = ceql.match(query, [])
        assert matches.to_arrow().schema == matches.schema
        assert pa.types.is_struct(matches.schema.types[-1])
        assert matches.schema.types[-1].num_fields > 0


def test_a_session_may_be_fed_nothing() -> None:
    session = Session(QUERY)
    found = []
    for part in ([], ROWS[:1], [], TABLE.slice(0, 0), ROWS[1:], []):
        found += session.feed(part).to_arrow().to_pylist()
    assert found == FOUND


def test_dicts_of_a_later_batch_take_the_types_of_the_first() -> None:
    session = Session("SELECT * FROM S WHERE A AS a ; B AS b")
    session.feed([{"type": "A", "x": 1.5}]).count()
    assert session.feed([{"type": "B"}, {"type": "B", "x": 2}]).to_arrow()["b"].to_pylist() == [
        {"type": "B", "x": None},
        {"type": "B", "x": 2.0},
    ]
    with pytest.raises(ceql.DataError, match="values of 'x' are not all of type double"):
        session.feed([{"type": "B", "x": "two"}])


@pytest.mark.parametrize("shape", ["matches", "events", "positions"])
def test_one_event_without_attributes(shape: Any) -> None:
    (row,) = ceql.match("SELECT * FROM S WHERE A", pa.table({"type": ["A"]}), shape=shape).to_arrow().to_pylist()
    assert row["match_id"] if shape == "events" else row["start" if shape == "positions" else "match_start"] == 0


def test_no_columns_but_the_stream() -> None:
    tables = {name: pa.table({"t": times}) for name, times in (("A", [1, 3]), ("B", [2, 3]))}
    found = ceql.match("SELECT * FROM A, B WHERE A ; B", tables, type_column=None, time_column="t").to_arrow()
    # Both have an event at 3: the stream that FROM names first goes first.
    spans = [(row["match_start"], row["match_end"]) for row in found.to_pylist()]
    assert sorted(spans) == [(1, 2), (1, 3), (3, 3)]


# --- several streams ----------------------------------------------------------------


def test_streams_are_merged_by_time_and_lack_each_others_columns() -> None:
    buys = pa.table({"type": ["A", "A"], "t": [1, 5], "x": [10, 50]})
    sells = [{"type": "B", "t": 3, "y": "three"}, {"type": "A", "t": 1, "y": "one"}]
    found = ceql.match("SELECT * FROM S, T WHERE T>A AS first ; A AS last", {"T": sells, "S": buys}, time_column="t")
    assert [(row["first"], row["last"]) for row in found.to_arrow().to_pylist()] == [
        ({"type": "A", "t": 1, "x": None, "y": "one"}, {"type": "A", "t": 5, "x": 50, "y": None})
    ]


@pytest.mark.parametrize("window", ["WITHIN 5 [t]", "WITHIN 5 EVENTS"])
def test_streams_need_an_order(window: str) -> None:
    streams = {"S": TABLE.append_column("t", pa.array([1, 2, 3])), "T": [{"type": "A", "t": 2, "x": 0}]}
    query = f"SELECT * FROM S, T WHERE A ; B {window}"
    if "EVENTS" in window:
        with pytest.raises(ceql.DataError, match="no common order"):
            ceql.match(query, streams)
    else:
        assert ceql.match(query, streams).count() == 3


@pytest.mark.parametrize(
    ("streams", "message"),
    [
        ({"S": TABLE}, "FROM reads stream 'T'"),
        ({"S": TABLE, "T": TABLE}, "no column 't'"),
        ({"S": pa.table({"type": ["A"], "t": [1]}), "T": pa.table({"type": ["A"], "t": ["x"]})}, "do not fit together"),
        ({"S": TABLE, "T": 5}, "cannot read events from int"),
    ],
)
def test_streams_that_do_not_fit(streams: Any, message: str) -> None:
    with pytest.raises(ceql.DataError, match=message):
        ceql.match("SELECT * FROM S, T WHERE A ; B", streams, time_column="t").count()


def test_the_only_timestamp_orders_events() -> None:
    start = dt.datetime(2024, 1, 31)
    first, second, third = (start + dt.timedelta(seconds=seconds) for seconds in (0, 8, 16))
    streams = {"S": [{"n": 3, "at": third}, {"n": 1, "at": first}], "T": [{"n": 2, "at": second}]}
    query = "SELECT * FROM S, T WHERE S AS x ; T AS y WITHIN 10 seconds"
    assert [(one["x"]["n"], one["y"]["n"]) for one in ceql.match(query, streams, type_column=None)] == [(1, 2)]
    rows = [row | {"type": "A"} for row in [*streams["S"], *streams["T"]]]
    matches = ceql.match("SELECT * FROM S WHERE A AS x ; A AS y WITHIN 10 seconds", rows, sort=True)
    assert [(one["x"]["n"], one["y"]["n"]) for one in matches] == [(1, 2), (2, 3)]


def test_a_stream_s_type_lacks_what_it_does_not_declare() -> None:
    declared = "CREATE STREAM S { EVENT S { t: int, a: int } } CREATE STREAM T { EVENT T { t: int, b: int } }"
    streams = {"S": pa.table({"t": [1, 3], "a": [1, 1], "b": [1, 1]}), "T": pa.table({"t": [2, 4], "b": [1, 2]})}
    query = f"{declared} SELECT x[t] FROM S, T WHERE (S OR T) AS x FILTER x[b = 1]"
    assert [match["x"]["t"] for match in ceql.match(query, streams, type_column=None, order_by=["t"])] == [2]


def test_null_comes_first_and_nan_last_where_events_are_sorted() -> None:
    values = [2.0, None, float("nan"), 1.0, None]
    events = pa.table({"type": ["A"] * 5, "v": values, "n": range(5)})
    matches = ceql.match("SELECT * FROM S WHERE A AS x", events, sort=True, order_by=["v"])
    assert [match["x"]["n"] for match in matches] == [1, 4, 3, 0, 2]


# --- columns that do not fit --------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "table", "options", "message"),
    [
        (QUERY, pa.table({"x": [1]}), {}, "no type column 'type'"),
        (QUERY, TABLE, {"type_column": "kind"}, "no type column 'kind'"),
        (
            QUERY,
            TABLE,
            {"type_column": "typ"},
            r"hint: did you mean 'type'\? columns are type, .*: name one with type_column",
        ),
        (QUERY, pa.table({"type": [1], "x": [1]}), {}, "type column 'type' is of type int64, not string"),
        (QUERY, pa.table({"type": ["A"]}), {}, "no attribute 'x'"),
        (QUERY, pa.table({"type": ["A"], "x": ["1"]}), {}, "cannot compare"),
        ("SELECT * FROM S WHERE A WITHIN 5 [x]", pa.table({"type": ["A"], "x": ["1"]}), {}, "x"),
        ("SELECT * FROM S WHERE A PARTITION BY [k]", TABLE, {}, "k"),
        (QUERY, TABLE, {"time_column": "time"}, "time"),
        (QUERY, TABLE, {"sort": True, "order_by": ("time",)}, "time"),
    ],
)
def test_columns_that_do_not_fit(query: str, table: pa.Table, options: Any, message: str) -> None:
    with pytest.raises(ceql.CeqlError, match=message):
        ceql.match(query, table, **options)


def test_a_compiled_query_meets_other_types() -> None:
    query = ceql.compile(QUERY, TABLE.schema)
    with pytest.raises(ceql.DataError, match="the events do not fit the query: cannot compare"):
        ceql.match(query, pa.table({"type": ["A"], "x": ["1"]}))
    assert ceql.match(query, pa.table({"type": ["A", "B"], "x": [1.5, 2.5]})).count() == 1


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (pa.table({"type": ["A"]}), "lacks the column 'x'"),
        (pa.table({"type": ["A"], "x": [1.5]}), "column 'x' is of type double in this batch, but int64 in the first"),
        (pa.table({"type": ["A"], "X": [1]}), "lacks the column 'x'"),
    ],
)
def test_a_batch_that_differs_from_the_first(second: pa.Table, message: str) -> None:
    session = Session(QUERY)
    session.feed(TABLE.slice(0, 2)).count()
    with pytest.raises(ceql.DataError, match=message):
        session.feed(second)
    assert session.feed(TABLE.slice(2)).count() == 1


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (pa.table({"type": ["A"], "t": [2]}), "lacks the column 'x'"),
        (pa.table({"type": ["A"], "x": [1]}), "lacks the column 't'"),
        (pa.table({"type": ["A"], "t": [2], "x": ["1"]}), "column 'x' is of type string in this batch"),
        (pa.table({"type": ["A"], "t": [[2]], "x": [1]}), "column 't' is of type list<.*> in this batch"),
    ],
)
@pytest.mark.parametrize("streams", [["S"], ["S", "T"]])
def test_a_batch_that_is_sorted_differs_from_the_first(streams: list[str], second: pa.Table, message: str) -> None:
    query = f"SELECT * FROM {', '.join(streams)} WHERE A AS a ; B AS b FILTER a[x = 1]"
    session = Session(query, time_column="t", sort=True)
    whole = pa.table({"type": ["A", "B"], "t": [1, 3], "x": [1, 1]})

    def by_stream(table: pa.Table) -> dict[str, pa.Table]:
        return dict.fromkeys(streams, table.slice(0, 0)) | {"S": table}

    session.feed(by_stream(whole.slice(0, 1))).count()
    with pytest.raises(ceql.DataError, match=message):
        session.feed(by_stream(second))
    assert session.feed(by_stream(whole.slice(1))).count() == 1


def test_batches_that_differ_in_what_does_not_matter() -> None:
    session = Session("SELECT * FROM S WHERE A AS a ; B AS b")
    dictionary = pa.dictionary(pa.int8(), pa.string())
    fields = [pa.field("type", dictionary, nullable=False), pa.field("x", pa.int64(), metadata={"k": "v"})]
    parts = [
        TABLE.slice(0, 1),
        TABLE.slice(1, 1).cast(pa.schema(fields)),
        TABLE.slice(2).select(["x", "type"]).append_column("more", pa.array([1])),
    ]
    found = [row for part in parts for row in session.feed(part).to_arrow().to_pylist()]
    assert [(row["a"], row["b"]) for row in found] == [(ROWS[0], ROWS[1]), (ROWS[0], ROWS[2])]


def test_two_columns_of_one_name() -> None:
    table = pa.Table.from_arrays([pa.array(["A"]), pa.array([1]), pa.array([2])], names=["type", "x", "x"])
    with pytest.raises(ceql.DataError, match="several columns 'x'"):
        ceql.match("SELECT * FROM S WHERE A", table)


# --- types of values ----------------------------------------------------------------

D = Decimal
DAY = dt.date(2024, 1, 1)
NUMBERS: dict[pa.DataType, list[Any]] = {
    **{getattr(pa, f"{sign}int{bits}")(): [1, 3, 4] for sign in ("", "u") for bits in (8, 16, 32, 64)},
    pa.float16(): [np.float16(1), np.float16(3), np.float16(4)],
    pa.float32(): [1.0, 3.0, 4.0],
    pa.float64(): [1.0, 3.0, 4.0],
    pa.decimal32(5, 2): [D("1.00"), D("3.00"), D("4.00")],
    pa.decimal64(15, 2): [D("1.00"), D("3.00"), D("4.00")],
    pa.decimal128(5, 2): [D("1.00"), D("3.00"), D("4.00")],
    pa.decimal128(38, 10): [D(1), D(3), D(4)],
    pa.decimal256(60, 5): [D(1), D(3), D(4)],
    pa.dictionary(pa.int8(), pa.int64()): [1, 3, 4],
}
TIMES: dict[pa.DataType, list[Any]] = {
    pa.date32(): [DAY, DAY + dt.timedelta(2), DAY + dt.timedelta(3)],
    pa.date64(): [DAY, DAY + dt.timedelta(2), DAY + dt.timedelta(3)],
    **{
        pa.timestamp(unit, zone): [dt.datetime(2024, 1, day) for day in (1, 3, 4)]
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "UTC", "Europe/Berlin", "-05:00")
    },
}
TEXTS: dict[pa.DataType, list[Any]] = {
    data_type: ["", "日本語" * 9, "a"]
    for data_type in (
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.uint16(), pa.large_string()),
    )
}
OTHERS: dict[pa.DataType, list[Any]] = {pa.bool_(): [True, False, True]}


def events_of(data_type: pa.DataType, values: list[Any]) -> pa.Table:
    # Every value twice and NULL in between; an array with an offset, as slices have.
    doubled = [value for one in values for value in (one, None, one)]
    column = pa.array([None, *doubled], data_type).slice(1)
    return pa.table({"type": ["A", "A", "B"] * len(values), "x": column})


@pytest.mark.parametrize(("data_type", "values"), (NUMBERS | TIMES | TEXTS | OTHERS).items(), ids=str)
def test_keys_and_results_of_every_type(data_type: pa.DataType, values: list[Any]) -> None:
    table = events_of(data_type, values)
    for shape in ("matches", "events", "positions"):
        matches = ceql.match("SELECT * FROM S WHERE A AS a ; B AS b PARTITION BY [x]", table, shape=shape)
        found = matches.to_arrow()
        assert found.schema == matches.schema
        found.validate(full=True)
        n_distinct = len(set(values))
        if shape == "matches":
            # The boolean TRUE comes back after FALSE: its first A starts two matches.
            assert found["x"].type == data_type
            assert len(set(found["x"].to_pylist())) == n_distinct
            assert found["a"].combine_chunks().field("x").to_pylist() == found["x"].to_pylist()


@pytest.mark.parametrize(("data_type", "values"), (NUMBERS | TIMES).items(), ids=str)
def test_windows_over_every_type(data_type: pa.DataType, values: list[Any]) -> None:
    # Values at 1, 3 and 4 (or days): events without one are left out.
    table = events_of(data_type, values)
    size = "1 day" if data_type in TIMES else "1"
    found = ceql.match(f"SELECT * FROM S WHERE A AS a ; B AS b WITHIN {size} [x]", table).to_arrow()
    spans = list(zip(found["match_start"].to_pylist(), found["match_end"].to_pylist(), strict=True))
    seen = table["x"].to_pylist()
    one, three, four = seen[0], seen[3], seen[6]
    assert sorted(spans) == [(one, one), (three, three), (three, four), (four, four)]
    session = Session(f"SELECT * FROM S WHERE A AS a ; B AS b WITHIN {size} [x]")
    session.feed(table).count()
    session = Session.restore(f"SELECT * FROM S WHERE A AS a ; B AS b WITHIN {size} [x]", session.snapshot())
    with pytest.raises(ceql.DataError, match=r"time runs backwards at row 9: 'x' is .+ after .+"):
        session.feed(table).count()


@pytest.mark.parametrize(("data_type", "values"), (NUMBERS | TIMES | TEXTS | OTHERS).items(), ids=str)
def test_columns_of_every_type_are_sorted_along(data_type: pa.DataType, values: list[Any]) -> None:
    order = "x" if data_type in NUMBERS | TIMES else "t"
    rotated = [values[2], values[0], values[1]]
    table = pa.table({"type": ["A"] * 3, "t": [3, 1, 2], "x": pa.array(rotated, data_type)})
    found = ceql.match("SELECT * FROM S WHERE A AS a", table, order_by=(order,), sort=True).to_arrow()
    assert found["a"].combine_chunks().field("x").to_pylist() == pa.array(values, data_type).to_pylist()
    assert found["a"].combine_chunks().field("t").to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("data_type", "values", "said"),
    [
        (pa.timestamp("ms"), [1704067201500, 1704067200000], "2024-01-01 00:00:00.000 after 2024-01-01 00:00:01.500"),
        (pa.timestamp("ns", "UTC"), [2, 1], "1970-01-01 00:00:00.000000001Z after 1970-01-01 00:00:00.000000002Z"),
        (pa.date32(), [19724, 19723], "2024-01-01 after 2024-01-02"),
        (pa.uint64(), [2**64 - 1, 2**63], "9223372036854775808 after 18446744073709551615"),
        (pa.decimal128(30, 2), [D("2.50"), D("-1.25")], "-1.25 after 2.50"),
        (pa.float32(), [1.5, 0.5], "0.5 after 1.5"),
    ],
)
def test_time_that_runs_backwards_is_shown_as_it_is(data_type: pa.DataType, values: list[Any], said: str) -> None:
    table = pa.table({"type": ["A", "B"], "x": pa.array(values, data_type)})
    query = f"SELECT * FROM S WHERE A WITHIN {'1 day' if pa.types.is_temporal(data_type) else 1} [x]"
    with pytest.raises(ceql.DataError) as caught:
        ceql.match(query, table).count()
    assert said in str(caught.value)
    assert "sort=True" in str(caught.value)
    assert ceql.match(query, table, sort=True).count() == 1


def test_sort_goes_by_the_window_then_the_time_then_what_is_given() -> None:
    events = [
        {"type": "A", "u": 2, "t": 1, "n": 0},
        {"type": "A", "u": 1, "t": 2, "n": 1},
        {"type": "A", "u": 1, "t": 1, "n": 2},
    ]
    query = "SELECT * FROM S WHERE A AS a : A AS b WITHIN 5 [t]"
    found = ceql.match(query, events, sort=True, order_by=["u"])
    assert [(match["a"]["n"], match["b"]["n"]) for match in found] == [(2, 0), (0, 1)]


@pytest.mark.parametrize("absent", [None, float("nan")])
def test_an_event_without_time_is_left_out(absent: float | None) -> None:
    table = pa.table({"type": list("ABABAB"), "t": pa.array([1.0, absent, absent, 2.0, 9.0, absent])})
    found = ceql.match("SELECT * FROM S WHERE A : B WITHIN 1 [t]", table, shape="positions").to_arrow().to_pylist()
    assert found == [{"start": 0, "end": 3, "positions": [0, 3]}]


@pytest.mark.parametrize("data_type", [pa.float32(), pa.float64()])
def test_zeros_and_nans_are_one_key_each(data_type: pa.DataType) -> None:
    keys = pa.array([0.0, float("nan"), -0.0, -float("nan"), None], data_type)
    for column in (keys, keys.dictionary_encode()):
        session = Session("SELECT * FROM S WHERE A : A PARTITION BY [k]", shape="positions")
        found = []
        for at in range(5):
            part = pa.table({"type": ["A"], "k": pa.chunked_array([column.slice(at, 1)])})
            found += session.feed(part).to_arrow()["positions"].to_pylist()
        assert found == [[0, 2], [1, 3]]


def test_a_null_inside_a_dictionary_is_null() -> None:
    keys = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 1]), pa.array(["p", None]))
    table = pa.table({"type": ["A"] * 4, "k": keys})
    assert ceql.match("SELECT * FROM S WHERE A ; A PARTITION BY [k]", table).count() == 1
    assert ceql.match("SELECT * FROM S WHERE A FILTER A[k IS NULL]", table).count() == 2
    assert ceql.match("SELECT * FROM S WHERE A FILTER A[k != 'q']", table).count() == 2


def test_a_window_over_decimals_that_no_integer_holds() -> None:
    table = pa.table({"type": ["A"], "x": pa.array([D(10) ** 30], pa.decimal128(38, 2))})
    with pytest.raises(ceql.DataError, match="more than 18 digits"):
        ceql.match("SELECT * FROM S WHERE A WITHIN 1 [x]", table).count()


def test_declared_types_lack_the_attributes_of_others() -> None:
    for data_type in (pa.string(), pa.dictionary(pa.int8(), pa.string()), pa.string_view()):
        table = pa.table({"type": pa.array(["A", "B"], data_type), "s": pa.array(["x", "y"], data_type), "n": [1, 2]})
        declared = "CREATE STREAM S { EVENT A { s: string }, EVENT B { n: int } } "
        found = ceql.match(declared + "SELECT * FROM S WHERE A AS a ; B AS b", table).to_arrow().to_pylist()
        assert [(row["a"]["s"], row["b"]["n"]) for row in found] == [("x", 2)]
        assert all(row["a"].get("n") is None and row["b"].get("s") is None for row in found)


@pytest.mark.parametrize("library", ["polars", "duckdb"])
def test_frames_of_other_libraries_are_read_and_given(library: str) -> None:
    module = pytest.importorskip(library)
    table = pa.table({"type": ["A", "B", "A", "B"], "v": [1, None, 3, 4], "s": ["x", "é", None, ""]})
    query = "SELECT * FROM S WHERE A AS a ; B AS b FILTER a[s = 'x'] OR b[v > 3]"
    frame = module.from_arrow(table)
    assert ceql.match(query, frame).to_arrow().to_pylist() == ceql.match(query, table).to_arrow().to_pylist()
    assert len(module.from_arrow(ceql.match(query, frame).to_arrow())) == 3


def with_a_byte_more(array: pa.Array) -> pa.Array:
    """Return an array whose buffers are longer than their last value, as a file may have them."""
    buffers = [None if one is None else pa.py_buffer(one.to_pybytes() + b"\0") for one in array.buffers()]
    return pa.Array.from_buffers(array.type, len(array), buffers, array.null_count)


@pytest.mark.parametrize("key", ["s", "l", "i", "h", "f", "d", "t"])
def test_buffers_may_be_longer_than_their_values(key: str) -> None:
    columns = {
        "type": pa.array(["A", "A", "B"]),
        "s": pa.array(["p", "q", "p"]),
        "l": pa.array(["p", "q", "p"], pa.large_string()),
        "i": pa.array([1, 2, 1]),
        "h": pa.array([1, 2, 1], pa.int16()),
        "f": pa.array([1.5, 2.5, 1.5]),
        "d": pa.array([Decimal("1.50"), Decimal("2.50"), Decimal("1.50")], pa.decimal128(10, 2)),
        "t": pa.array([7, 8, 7], pa.timestamp("us")),
        "n": pa.array([1, 2, 3]),
    }
    table = pa.table({name: with_a_byte_more(column) for name, column in columns.items()})
    table.validate(full=True)
    filter = "b[s = 'p'] AND b[l = 'p'] AND b[i > 0] AND b[h > 0] AND b[f > 0] AND b[d > 0]"
    query = f"SELECT * FROM S WHERE A AS a ; B AS b FILTER {filter} PARTITION BY [{key}] WITHIN 5 [n]"
    assert [row["a"]["n"] for row in ceql.match(query, table).to_arrow().to_pylist()] == [1]
    assert ceql.match("SELECT * FROM S WHERE A ; B WITHIN 5 [d]", table.take([0, 2])).count() == 1
