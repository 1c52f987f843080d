"""The three shapes of the same matches, to the last type."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import ceql
from ceql.engine.session import Session

EVENTS = pa.table(
    {
        "type": list("ABBAC"),
        "t": pa.array([10, 20, 30, 40, 50], pa.timestamp("s", "UTC")),
        "n": pa.array([1, 2, 3, 4, 5], pa.int8()),
        "k": pa.array(["p", "p", "p", "p", "p"]),
    }
)


def rows(query: str, events: Any = EVENTS, **options: Any) -> list[dict[str, Any]]:
    matches = ceql.match(query, events, **options)
    found = matches.to_arrow()
    assert found.schema.equals(matches.schema, check_metadata=True)
    found.validate(full=True)
    return found.to_pylist()


def numbers(value: Any) -> Any:
    """Return the attribute n of an event or of a list of events."""
    if isinstance(value, list):
        return [event["n"] for event in value]
    return None if value is None else value["n"]


def test_one_none_or_several_events_of_a_variable() -> None:
    query = "SELECT * FROM S WHERE A AS one ; (B+ AS several OR A AS none) ; C"
    schema = ceql.match(query, EVENTS).schema
    assert pa.types.is_struct(schema.field("one").type)
    assert not schema.field("one").nullable
    assert pa.types.is_list(schema.field("several").type)
    assert not schema.field("several").nullable
    assert pa.types.is_struct(schema.field("none").type)
    assert schema.field("none").nullable
    found = [
        (numbers(row["one"]), numbers(row["several"]), numbers(row["none"]), numbers(row["C"])) for row in rows(query)
    ]
    assert sorted(found, key=str) == sorted(
        [(1, [2], None, 5), (1, [3], None, 5), (1, [2, 3], None, 5), (1, [], 4, 5)], key=str
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM S WHERE A AS a ; B AS b ; C AS c",
        "SELECT * FROM S WHERE A AS a ; (B AS b OR A AS c) ; C AS d",
        "SELECT * FROM S WHERE A AS a ; (B+ AS b OR A AS c) ; C AS d",
        "SELECT * FROM S WHERE (A AS a ; B) AS b ; C AS c",
        "SELECT b FROM S WHERE (A AS a OR B AS b) ; C",
    ],
)
def test_a_row_does_not_depend_on_the_matches_beside_it(query: str) -> None:
    alone, by_two, together = (
        Session(query, chunk_size=size).feed(EVENTS).to_arrow().to_pylist() for size in (1, 2, 100)
    )
    assert alone == by_two == together
    assert len(alone) >= 2


def test_attributes_are_those_that_select_lists() -> None:
    query = "SELECT a[n], b, C[t, n] FROM S WHERE A AS a ; B AS b ; C"
    schema = ceql.match(query, EVENTS).schema
    assert [field.name for field in schema.field("a").type] == ["n"]
    assert [field.name for field in schema.field("C").type] == ["t", "n"]
    assert [field.name for field in schema.field("b").type] == EVENTS.column_names
    assert sorted((row["a"]["n"], row["b"]["n"], row["C"]["n"]) for row in rows(query)) == [(1, 2, 5), (1, 3, 5)]


def test_compiled_and_bound_queries_agree_on_the_schema() -> None:
    query = "SELECT a, b FROM S WHERE A AS a ; B+ AS b PARTITION BY [k] WITHIN 1 hour [t]"
    assert ceql.compile(query, EVENTS.schema).result_schema == ceql.match(query, EVENTS).schema


SECOND = EVENTS["t"].to_pylist()


@pytest.mark.parametrize(
    ("window", "options", "bounds"),
    [
        ("", {}, (0, 1)),
        ("", {"time_column": "t"}, (SECOND[0], SECOND[1])),
        ("", {"order_by": ("n", "t")}, (1, 2)),
        ("WITHIN 5 [n]", {"time_column": "t"}, (1, 2)),
        ("WITHIN 1 minute", {"time_column": "t"}, (SECOND[0], SECOND[1])),
        ("WITHIN 5 EVENTS", {"time_column": "t", "order_by": ("n",)}, (SECOND[0], SECOND[1])),
    ],
)
def test_where_a_match_starts_and_ends(window: str, options: Any, bounds: Any) -> None:
    row = rows(f"SELECT * FROM S WHERE A : B {window}", **options)[0]
    assert (row["match_start"], row["match_end"]) == bounds


def test_partition_attributes_come_first() -> None:
    matches = ceql.match("SELECT a FROM S WHERE A AS a ; B PARTITION BY [k], [n]", EVENTS)
    assert matches.schema.names == ["k", "n", "match_start", "match_end", "a"]
    assert [matches.schema.field(name).nullable for name in ("k", "n")] == [False, False]
    assert rows("SELECT a FROM S WHERE A AS a ; B PARTITION BY [k]")[0]["k"] == "p"


def test_events_of_one_match_share_its_id() -> None:
    found = rows("SELECT * FROM S WHERE A AS a ; B AS b ; C AS c", shape="events")
    assert list(found[0]) == ["match_id", "variables", *EVENTS.column_names]
    by_match: dict[str, list[Any]] = {}
    for row in found:
        by_match.setdefault(row["match_id"], []).append((row["variables"], row["n"]))
    assert sorted(by_match.values()) == [
        [(["a"], 1), (["b"], 2), (["c"], 5)],
        [(["a"], 1), (["b"], 3), (["c"], 5)],
    ]


def test_an_event_of_two_variables_is_one_row() -> None:
    found = rows("SELECT * FROM S WHERE (A AS x ; C) AS y", shape="events")
    assert [(row["variables"], row["n"]) for row in found[:2]] in (
        [(["x", "y"], 4), (["y"], 5)],
        [(["x", "y"], 1), (["y"], 5)],
    )


def test_ids_differ_over_partitions_and_batches() -> None:
    session = Session("SELECT * FROM S WHERE A ; B PARTITION BY [n]", shape="events", chunk_size=1)
    table = pa.table({"type": ["A", "A", "B"] * 8, "n": [at // 3 % 2 for at in range(24)]})
    found = [row for at in range(0, 24, 5) for row in session.feed(table.slice(at, 5)).to_arrow().to_pylist()]
    n_matches = ceql.match("SELECT * FROM S WHERE A ; B PARTITION BY [n]", table).count()
    assert len({row["match_id"] for row in found}) == n_matches == len(found) / 2


def test_positions_have_no_variables_and_no_duplicates() -> None:
    query = "SELECT * FROM S WHERE (A AS x OR A AS y) ; C"
    assert len(rows(query)) == 4
    found = rows(query, shape="positions")
    assert sorted((row["start"], row["end"], row["positions"]) for row in found) == [(0, 4, [0, 4]), (3, 4, [3, 4])]


@pytest.mark.parametrize("shape", ["matches", "positions", "events"])
def test_a_match_that_selects_nothing(shape: str) -> None:
    found = rows("SELECT NONE FROM S WHERE A ; C", shape=shape)
    if shape == "events":
        assert found == []
    elif shape == "matches":
        assert sorted((row["match_start"], row["match_end"]) for row in found) == [(0, 4), (3, 4)]
        assert list(found[0]) == ["match_start", "match_end"]
    else:
        assert sorted((row["start"], row["positions"]) for row in found) == [(0, []), (3, [])]
    assert ceql.match("SELECT NONE FROM S WHERE A ; C", EVENTS, shape=shape).count() == 2  # type: ignore[arg-type]


def test_names_that_a_shape_adds_are_refused() -> None:
    table = EVENTS.append_column("Match_ID", EVENTS["n"])
    with pytest.raises(ceql.CeqlError, match="match_id"):
        ceql.match("SELECT * FROM S WHERE A", table, shape="events")
    assert ceql.match("SELECT * FROM S WHERE A", table, shape="positions").count() == 2


@pytest.mark.parametrize("index_type", [pa.int8(), pa.int32(), pa.uint16()], ids=str)
@pytest.mark.parametrize("shape", ["matches", "events"])
def test_dictionaries_that_differ_between_batches(index_type: pa.DataType, shape: Any) -> None:
    data_type = pa.dictionary(index_type, pa.string())
    session = Session("SELECT * FROM S WHERE A AS a ; A AS b PARTITION BY [k] WITHIN 400 EVENTS", shape=shape)
    seen = []
    # 300 values altogether: more than the codes of one byte, but not in any one result.
    for first in (0, 100, 0, 200, 100):
        names = [f"v{at}" for at in range(first, first + 100)]
        table = pa.table({"type": pa.array(["A"] * 100, data_type), "k": pa.array(names, data_type)})
        matches = session.feed(table)
        found = matches.to_arrow()
        assert found.schema == matches.schema
        assert found["k"].type == data_type
        found.validate(full=True)
        seen.append(found["k"].to_pylist()[:: 2 if shape == "events" else 1])
        session = Session.restore(
            "SELECT * FROM S WHERE A AS a ; A AS b PARTITION BY [k] WITHIN 400 EVENTS", session.snapshot(), shape=shape
        )
    again = [[f"v{at}" for at in range(first, first + 100)] for first in (0, 100)]
    assert seen == [[], [], again[0], [], again[1]]


@pytest.mark.parametrize(
    "data_type",
    [
        pa.list_(pa.int64()),
        pa.struct([("y", pa.string())]),
        pa.map_(pa.string(), pa.int64()),
        pa.binary(),
        pa.binary_view(),
        pa.time64("us"),
        pa.duration("ms"),
        pa.null(),
        pa.list_(pa.dictionary(pa.int32(), pa.string())),
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", ["matches", "events"])
def test_columns_that_no_predicate_reads_are_carried_along(data_type: pa.DataType, shape: Any) -> None:
    column = pa.array([None, None, None, None, None], data_type)
    table = EVENTS.append_column("more", column)
    session = Session("SELECT * FROM S WHERE A AS a ; B+ AS b ; C", shape=shape)
    found = []
    for at in range(5):
        matches = session.feed(table.slice(at, 1))
        part = matches.to_arrow()
        assert part.schema == matches.schema
        found += part.to_pylist()
        session = Session.restore("SELECT * FROM S WHERE A AS a ; B+ AS b ; C", session.snapshot(), shape=shape)
    assert len(found) == (3 if shape == "matches" else 10)


def test_pandas_and_arrow_streams() -> None:
    pytest.importorskip("pandas")
    matches = ceql.match("SELECT a[n], b[n] FROM S WHERE A AS a : B AS b", EVENTS)
    assert matches.to_pandas()["a"].tolist() == [{"n": 1}]
    assert pa.table(matches) == matches.to_arrow()


def test_times_within_events_are_times_in_pandas_too() -> None:
    pandas = pytest.importorskip("pandas")
    at = pandas.to_datetime(["2024-01-31 10:00:00.000000001", "2024-01-31 10:00:01.000000000"])
    frame = pandas.DataFrame({"type": ["A", "B"], "at": at.astype("datetime64[ns]")})
    found = ceql.match("SELECT * FROM S WHERE A AS x ; B+ AS y WITHIN 5 seconds", frame).to_pandas()
    assert found["x"][0]["at"] == at[0]
    assert found["y"][0][0]["at"] == at[1]
    assert found["match_end"][0] == at[1]
