"""Matches on a timeline: what is read, where events are placed, and what the page says without its script."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ceql
from ceql.pictures import Timeline, timeline
from ceql.pictures.places import number_of, place_events
from ceql.pictures.shown_matches import (
    MAX_EVENTS_OF_VARIABLE,
    MAX_MATCHES,
    MAX_ROWS,
    ShownMatch,
    ShownMatches,
    read_matches,
)
from ceql.pictures.timeline_html import MAX_DOTS, counted, timeline_of
from strategies import SCHEMA, queries, some
from strategies import events as random_events

START = datetime(2024, 1, 31, 9, 30)
TRADES = [
    {"type": "SELL", "name": name, "price": 100.0 + number, "at": START + timedelta(seconds=number)}
    for number, name in enumerate(["MSFT", "INTC", "AMZN", "MSFT", "INTC"])
]
QUERY = """SELECT * FROM Stock WHERE SELL AS first ; SELL AS second
FILTER first[name = 'MSFT'] AND second[name = 'INTC'] WITHIN 10 seconds"""


def data_of(page: Timeline) -> Any:
    """Return what the page's script draws."""
    return json.loads(re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.html, re.DOTALL)[0])


def stream(n_events: int) -> pa.Table:
    """Return events of which every pair is a match."""
    return pa.table({"type": ["A"] * n_events, "t": range(n_events)})


PAIRS = "SELECT * FROM S WHERE A AS x ; A AS y WITHIN 1000000 [t]"


# --- what is shown ------------------------------------------------------------------


def test_events_are_drawn_once_and_matches_are_their_numbers() -> None:
    data = data_of(timeline(ceql.match(QUERY, TRADES)))
    assert data["lanes"] == ["first", "second"]
    assert data["attributes"] == ["type", "name", "price", "at"]
    assert data["axis"] == {"kind": "time", "name": "at", "origin": 1706693400000.0, "zone": "", "note": ""}
    names = [(place, data["lanes"][lane], dict(values)[1]) for place, lane, values in data["events"]]
    assert sorted(names) == [
        (0.0, "first", "MSFT"),
        (1000.0, "second", "INTC"),
        (3000.0, "first", "MSFT"),
        (4000.0, "second", "INTC"),
    ]
    drawn = sorted([data["events"][one][0] for one in match["events"]] for match in data["matches"])
    assert drawn == [[0.0, 1000.0], [0.0, 4000.0], [3000.0, 4000.0]]
    assert {tuple(match["span"]) for match in data["matches"]} == {
        ("2024-01-31 09:30:00", "09:30:01"),
        ("2024-01-31 09:30:00", "09:30:04"),
        ("2024-01-31 09:30:03", "09:30:04"),
    }


@pytest.mark.parametrize("n_events", [0, 1, 2, 3, 20, 21, 40])
@pytest.mark.parametrize("shape", ["matches", "events", "positions"])
def test_how_many_are_shown_of_how_many(n_events: int, shape: Any) -> None:
    n_pairs = n_events * (n_events - 1) // 2
    matches = ceql.match(PAIRS, stream(n_events), shape=shape)
    shown = read_matches(matches.schema, matches.batches(), counts_all=True)
    assert len(shown.matches) == min(n_pairs, MAX_MATCHES)
    assert shown.total == n_pairs
    page = timeline(matches)
    assert len(data_of(page)["matches"]) == min(n_pairs, MAX_MATCHES)
    if n_pairs > MAX_MATCHES:
        assert counted(shown) == f"200 of {n_pairs} matches shown"
        assert "200 of more than 200 matches shown" in page.html
    else:
        assert f'<p id="count">{n_pairs} {"match" if n_pairs == 1 else "matches"}</p>' in page.html


def test_large_numbers_are_grouped() -> None:
    assert counted(ShownMatches([], [ShownMatch()] * 200, 1234567, has_more=True)) == "200 of 1,234,567 matches shown"


@pytest.mark.parametrize("shape", ["matches", "events", "positions"])
def test_no_more_is_read_than_is_shown(shape: Any) -> None:
    n_read = 0

    def events() -> Iterator[pa.RecordBatch]:
        nonlocal n_read
        for first in range(0, 100_000, 50):
            n_read += 50
            yield pa.record_batch({"type": ["A"] * 50, "t": range(first, first + 50)})

    matches = ceql.match(
        "SELECT * FROM S WHERE A AS x : A AS y WITHIN 5 [t]",
        pa.RecordBatchReader.from_batches(pa.schema([("type", pa.string()), ("t", pa.int64())]), events()),
        shape=shape,
    )
    assert "200 of more than 200 matches shown" in matches._repr_html_()
    assert n_read < 50_000


def test_all_shapes_show_the_same_places() -> None:
    pages = [timeline(ceql.match(PAIRS, stream(5), shape=shape)) for shape in ("matches", "events", "positions")]  # type: ignore[arg-type]
    places = [
        sorted([data["events"][one][0] for one in match["events"]] for match in data["matches"])
        for data in map(data_of, pages)
    ]
    assert places[0] == places[1] == places[2]
    assert len(places[0]) == 10


def test_long_matches_of_the_shape_events_are_cut() -> None:
    n_events = MAX_ROWS + 10
    table = pa.table(
        {
            "match_id": ["0"] * n_events + ["1"] * 2,
            "variables": [["x"]] * n_events + [["x"], ["y"]],
            "t": [*range(n_events), 0, 1],
        }
    )
    shown = read_matches(table.schema, table.to_batches(max_chunksize=5000), counts_all=True)
    assert (shown.total, len(shown.matches), shown.has_more) == (2, 1, True)
    assert len(shown.matches[0].events) + shown.matches[0].n_left_out == n_events
    assert "1 of more than 1 matches shown" in timeline(table).html


def test_long_lists_are_cut_and_the_rest_is_counted() -> None:
    n_events = 3 * MAX_EVENTS_OF_VARIABLE
    events = pa.table({"type": ["A"] * n_events + ["B"], "t": range(n_events + 1)})
    matches = ceql.match("SELECT MAX * FROM S WHERE A+ AS x ; B AS y", events)
    data = data_of(timeline(matches))
    (match,) = data["matches"]
    assert data["note"] == "only the first events of long matches are drawn"
    assert len(match["events"]) == MAX_EVENTS_OF_VARIABLE + 1
    assert match["more"] == n_events - MAX_EVENTS_OF_VARIABLE


def test_the_number_of_dots_is_bounded() -> None:
    matches = [ShownMatch(0, 500, {}, [(0, {"t": time}) for time in range(500)]) for _ in range(200)]
    data = data_of(timeline_of(ShownMatches(["x"], matches, 200, has_more=False)))
    assert sum(len(match["events"]) for match in data["matches"]) <= MAX_DOTS
    assert {len(match["events"]) + match["more"] for match in data["matches"]} == {500}


def test_equal_events_are_one_between_matches_and_two_within() -> None:
    twice = [(0, {"t": 1}), (0, {"t": 1})]
    shown = ShownMatches(["x"], [ShownMatch(1, 1, {}, twice), ShownMatch(1, 1, {}, twice)], 2, has_more=False)
    data = data_of(timeline_of(shown))
    assert [match["events"] for match in data["matches"]] == [[0, 1], [0, 1]]


def test_variables_that_an_alternative_leaves_empty() -> None:
    events = [{"type": "A", "t": 1}, {"type": "B", "t": 2}, {"type": "C", "t": 3}]
    data = data_of(timeline(ceql.match("SELECT * FROM S WHERE (A AS x OR B AS y) ; C AS z WITHIN 9 [t]", events)))
    assert data["lanes"] == ["x", "y", "z"]
    assert sorted([data["events"][one][1] for one in match["events"]] for match in data["matches"]) == [[0, 2], [1, 2]]


@some(50)
@given(queries(depth=3), random_events())
def test_random_matches_keep_all_their_events(query: object, rows: list[dict[str, Any]]) -> None:
    matches = ceql.match(str(query), pa.Table.from_pylist(rows, SCHEMA))
    expected = [sum(_n_events(match[one.name]) for one in matches.plan.variables) for match in matches]
    data = data_of(timeline(matches))
    assert [len(match["events"]) + match["more"] for match in data["matches"]] == expected[:MAX_MATCHES]


def _n_events(value: Any) -> int:
    return len(value) if isinstance(value, list) else value is not None


# --- where ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, ("number", 3)),
        (2**63 - 1, ("number", 2**63 - 1)),
        (2.5, ("number", 2.5)),
        (Decimal("2.5"), ("number", 2.5)),
        (float("nan"), None),
        (float("-inf"), None),
        (True, None),
        (None, None),
        ("text", None),
        ("2024-99-99", None),
        ("12", None),
        (date(1970, 1, 2), ("time", 86_400_000_000)),
        (datetime(1970, 1, 1, 0, 0, 1), ("time", 1_000_000)),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), ("time", 1_000_000)),
        ("1970-01-01 00:00:01", ("time", 1_000_000)),
        ("1970-01-01T00:00:01.000Z", ("time", 1_000_000)),
        ("1970-01-01T02:00:01+02:00", ("time", 1_000_000)),
        (timedelta(seconds=2), ("number", 2.0)),
        ([1], None),
    ],
)
def test_numbers_of_values(value: Any, number: Any) -> None:
    assert number_of(value) == number


@pytest.mark.parametrize(
    ("clause", "options", "name"),
    [
        ("WITHIN 100 [t]", {}, "t"),
        ("WITHIN 1 hour", {}, "at"),
        ("", {"time_column": "at"}, "at"),
        ("", {"order_by": ["u"]}, "u"),
        ("", {}, "at"),
    ],
)
def test_the_attribute_of_the_bounds_is_found(clause: str, options: Any, name: str) -> None:
    events = [
        {"type": "AB"[n % 2], "v": (n * 7) % 5, "u": 3.5 * n, "at": START + timedelta(minutes=n), "t": 10 * n}
        for n in range(8)
    ]
    matches = ceql.match(f"SELECT * FROM S WHERE A AS x ; B AS y {clause}", events, **options)
    data = data_of(timeline(matches))
    assert data["axis"]["name"] == name
    assert data["axis"]["note"] == ""
    assert all(place is not None for place, *_ in data["events"])


def test_an_attribute_may_be_named() -> None:
    matches = ceql.match(QUERY, TRADES)
    data = data_of(timeline(matches, time="price"))
    assert data["axis"] == {"kind": "number", "name": "price", "origin": 100.0, "zone": "", "note": ""}
    with pytest.raises(ceql.DataError, match="no event has an attribute 'pric'") as caught:
        timeline(matches, time="pric")
    assert "did you mean 'price'?" in str(caught.value)
    with pytest.raises(ceql.DataError, match="'name' holds neither times nor numbers"):
        timeline(matches, time="name")


def test_events_without_a_time_keep_their_place_in_the_match() -> None:
    rows: list[dict[str, Any]] = [{"type": "A", "t": None}, {"type": "B", "t": 5}, {"type": "B", "t": float("nan")}]
    data = data_of(timeline(ceql.match("SELECT * FROM S WHERE A AS x ; B AS y", rows), time="t"))
    assert [place for place, *_ in data["events"]] == [0.0, None, None]
    assert all(len(match["events"]) == 2 for match in data["matches"])


def test_places_are_spaced_evenly_where_nothing_says_more() -> None:
    rows = [{"type": one, "s": "text"} for one in "AXBXC"]
    data = data_of(timeline(ceql.match("SELECT * FROM S WHERE A AS x ; B AS y ; C AS z", rows)))
    assert [place for place, *_ in data["events"]] == [0.0, 2.0, 4.0]
    assert data["axis"]["name"] == "row"
    assert "spaced evenly" in data["axis"]["note"]
    data = data_of(timeline(ceql.match("SELECT * FROM S WHERE A AS x ; B AS y ; C AS z", rows, shape="events")))
    assert [place for place, *_ in data["events"]] == [0.0, 1.0, 2.0]
    assert "in their order" in data["axis"]["note"]


def test_large_integers_keep_their_distance() -> None:
    first = 2**62
    events = pa.table({"type": ["A", "B"], "t": [first, first + 1]})
    data = data_of(timeline(ceql.match("SELECT * FROM S WHERE A AS x ; B AS y WITHIN 5 [t]", events)))
    assert [place for place, *_ in data["events"]] == [0.0, 1.0]
    assert dict(data["events"][1][2])[1] == str(first + 1)


def test_nanoseconds_and_dictionaries_and_zones() -> None:
    times = pa.array([1_000_000_001, 2_000_000_002], pa.timestamp("ns", "UTC"))
    events = pa.table({"type": pa.array(["A", "B"]).dictionary_encode(), "at": times})
    matches = ceql.match("SELECT * FROM S WHERE A AS x ; B+ AS y WITHIN 5 seconds", events)
    data = data_of(timeline(matches))
    assert data["axis"] == {"kind": "time", "name": "at", "origin": 1000.0, "zone": "UTC", "note": ""}
    assert [place for place, *_ in data["events"]] == [0.0, 1000.0]


@given(
    st.lists(
        st.lists(st.one_of(st.none(), st.integers(), st.floats(), st.datetimes(), st.text()), max_size=5), max_size=5
    )
)
def test_every_event_has_a_place_or_none(rows: list[list[Any]]) -> None:
    matches = [ShownMatch(None, None, {}, [(0, {"v": value}) for value in row]) for row in rows]
    axis, places = place_events(ShownMatches(["x"], matches, len(rows), has_more=False), None)
    assert [len(one) for one in places] == [len(one) for one in rows]
    assert all(place is None or place >= 0 for row in places for place in row)
    assert axis.kind in ("time", "number")


# --- the page -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["</script><script>alert(1)</script>", "<!-- <script>", "&amp;\"'", "é漢字🙂\u2028", "{{data}}", "\\1"]
)
def test_text_is_escaped(text: str) -> None:
    events = [{"type": "A", text: text, "t": 1}]
    page = timeline(ceql.match("SELECT * FROM S WHERE A AS x WITHIN 1 [t]", events), title=text, query=text)
    data = data_of(page)
    assert text in data["attributes"]
    assert text in [value for _, value in data["events"][0][2]]
    assert page.html.count("<script") == 2
    assert page.html.count("</script>") == 2
    assert f"<title>{html.escape(text)}</title>" in page.html
    assert f"<pre>{html.escape(text.strip())}</pre>" in page.html
    framed = page._repr_html_()
    assert framed.count("<") == 2
    assert "&lt;h1&gt;" in framed


def test_nothing_is_fetched() -> None:
    page = timeline(ceql.match(QUERY, TRADES)).html
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"""\b(src|href)=|@import|url\((?!#)|fetch\(|XMLHttpRequest|import\(""", page)
    assert "default-src 'none'" in page


def test_the_page_is_a_function_of_the_matches() -> None:
    assert timeline(ceql.match(QUERY, TRADES)) == timeline(ceql.match(QUERY, TRADES))


def test_a_query_is_shown_only_if_it_is_known() -> None:
    assert "<details>" not in timeline(ceql.match(QUERY, TRADES)).html
    assert "SELL AS first ; SELL AS second" in timeline(ceql.match(QUERY, TRADES), query=QUERY).html


def test_anything_that_has_matches_is_drawn() -> None:
    matches = ceql.match(QUERY, TRADES)
    table = matches.to_arrow()
    pages = [timeline(one) for one in (matches, table, table.to_reader())]
    assert pages[0] == pages[1] == pages[2]
    with pytest.raises(ceql.DataError, match="a list is not the result of a query"):
        timeline([1, 2])
    with pytest.raises(ceql.DataError, match="these are not matches: there are no columns match_start"):
        timeline(pa.table({"a": [1]}))


def test_a_notebook_shows_a_timeline_and_a_table() -> None:
    shown = ceql.match(QUERY, TRADES)._repr_html_()
    assert shown.startswith("<iframe ")
    assert "sandbox" in shown
    assert "3 matches as a table" in shown
    none = ceql.match(QUERY, TRADES[:1])._repr_html_()
    assert "<iframe" not in none
    assert "0 matches" in none


def test_a_session_is_read_once() -> None:
    session = ceql.Session(QUERY)
    assert "<iframe" in session.feed(TRADES[:2])._repr_html_()
    assert session.feed(TRADES[2:]).count() == 2
