"""The timeline in a real browser: what a person sees, points at and selects."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from browser import needs_browser, seen_in_browser

import ceql
from ceql.pictures import Timeline, timeline

pytestmark = needs_browser

START = datetime(2024, 1, 31, 9, 30)
TRADES = [
    {"type": "SELL", "name": name, "note": "<b>&", "at": START + timedelta(seconds=number)}
    for number, name in enumerate(["MSFT", "INTC", "AMZN", "MSFT", "INTC"])
]
QUERY = """SELECT * FROM Stock WHERE SELL AS first ; SELL AS `second <one>`
FILTER first[name = 'MSFT'] AND `second <one>`[name = 'INTC'] WITHIN 10 seconds"""

VISIBLE = """
    const area = document.querySelector("#lanes").getBoundingClientRect();
    const inside = (one) => {
      const { left, right, top, bottom } = one.getBoundingClientRect();
      return left >= area.left && right <= area.right && top >= area.top && bottom <= area.bottom;
    };
"""


def page() -> Timeline:
    return timeline(ceql.match(QUERY, TRADES), query=QUERY, title="fraud.parquet", total=3)


def test_lanes_dots_links_axis_and_count() -> None:
    seen = seen_in_browser(
        page().html,
        VISIBLE
        + """return {
          title: texts("h1")[0], count: texts("#count")[0], query: texts("pre")[0],
          lanes: all(".lane-name").map((one) => one.firstChild.textContent),
          dots: all(".base circle.event").filter(inside).length,
          links: all(".base path.link").map((one) => one.getTotalLength() > 20),
          axis: texts("#axis text"), items: texts(".match"),
          overlaps: all(".base circle").map((one) => [one.getAttribute("cx"), one.getAttribute("cy")].join()),
        };""",
    )
    assert (seen["title"], seen["count"], seen["query"]) == ("fraud.parquet", "3 matches", QUERY)
    assert seen["lanes"] == ["first", "second <one>"]
    assert seen["dots"] == 4
    assert seen["links"] == [True] * 3
    assert "at  31 Jan 2024" in seen["axis"]
    assert {"09:30:00", "09:30:02", "09:30:04"} <= set(seen["axis"])
    assert sorted(one[1:9] for one in seen["items"]) == ["2 events"] * 3
    assert len(set(seen["overlaps"])) == 4


def test_pointing_at_an_event_shows_its_attributes_and_its_matches() -> None:
    seen = seen_in_browser(
        page().html,
        """
        const before = { tip: document.querySelector("#tip").hidden, hot: all(".top circle").length };
        const dot = all(".base circle.event").find((one) => one.dataset.event === "0");
        point(dot, "pointerover");
        const during = {
          tip: document.querySelector("#tip").innerText, hidden: document.querySelector("#tip").hidden,
          dots: all(".top circle").length, links: all(".top path.link").length, items: all(".match.hot").length,
          dimmed: document.querySelector("#plot").classList.contains("dimmed"),
        };
        point(dot, "pointerout");
        const after = { hidden: document.querySelector("#tip").hidden, dots: all(".top circle").length };
        return { before, during, after };
        """,
    )
    assert seen["before"] == {"tip": True, "hot": 0}
    assert seen["after"] == {"hidden": True, "dots": 0}
    during = seen["during"]
    assert not during["hidden"]
    assert during["dimmed"]
    for text in ("first", "name", "MSFT", "<b>&", "2024-01-31 09:30:00", "in 2 matches of those shown"):
        assert text in during["tip"]
    # The first trade is in two matches, of three events together.
    assert (during["dots"], during["links"], during["items"]) == (3, 2, 2)


def test_selecting_with_mouse_and_keys() -> None:
    seen = seen_in_browser(
        page().html,
        """
        const selected = () => all('.match[aria-selected="true"]').map((one) => one.id);
        const rows = () => texts("#details td:first-child");
        const state = () => ({ selected: selected(), dots: all(".top circle").length, rows: rows() });
        const steps = [state()];
        document.querySelector("#match-2").click();
        steps.push(state());
        press("ArrowDown");
        steps.push(state());
        press("ArrowDown");
        steps.push(state());
        press("Home");
        steps.push(state());
        press("Escape");
        steps.push(state());
        point(all(".base circle.event")[0], "click");
        steps.push(state());
        return steps;
        """,
    )
    nothing: dict[str, Any] = {"selected": [], "dots": 0, "rows": []}
    rows = ["first", "second <one>"]
    expected = [nothing, *({"selected": [f"match-{n}"], "dots": 2, "rows": rows} for n in (2, 3, 3, 1)), nothing]
    assert seen[:6] == expected
    assert len(seen[6]["selected"]) == 1
    assert seen[6]["dots"] == 2


def test_many_matches_at_one_moment_are_all_seen() -> None:
    events = pa.table(
        {"type": ["A"] * 150 + ["B"], "at": [START] * 150 + [START + timedelta(seconds=5)], "v": range(151)}
    )
    drawn = timeline(ceql.match("SELECT * FROM S WHERE A AS x ; B AS y WITHIN 1 hour", events), total=150)
    seen = seen_in_browser(
        drawn.html,
        VISIBLE
        + """return {
          places: all(".base circle").filter(inside).map((one) => one.outerHTML.match(/cx=\\S+ cy=\\S+/)[0]),
          links: all(".base path.link").length, items: all(".match").length,
          width: document.documentElement.scrollWidth <= innerWidth,
        };""",
    )
    assert len(seen["places"]) == len(set(seen["places"])) == 151
    assert (seen["links"], seen["items"]) == (150, 150)
    assert seen["width"]


def test_two_hundred_of_many_with_numbers_nulls_and_zoom() -> None:
    rows = [{"type": "AB"[n % 2], "t": None if n == 0 else n * 1.5} for n in range(60)]
    drawn = timeline(ceql.match("SELECT * FROM S WHERE A AS x ; B AS y", rows), time="t", total=930)
    seen = seen_in_browser(
        drawn.html,
        """
        const whole = texts("#axis text");
        document.querySelector("#match-100").click();
        document.querySelector("#fit").click();
        return { count: texts("#count")[0], whole, none: all(".base circle.none").length,
          items: all(".match").length, canGoBack: !document.querySelector("#fit").disabled };
        """,
    )
    assert seen["count"] == "200 of 930 matches shown"
    assert seen["items"] == 200
    assert seen["none"] == 1
    assert seen["canGoBack"]
    assert seen["whole"][0] == "t"
    assert "NULL" in seen["whole"]
    assert {"20", "40"} <= set(seen["whole"])


def test_a_frame_in_a_notebook() -> None:
    frame = page()._repr_html_().replace('sandbox="allow-scripts"', 'sandbox="allow-scripts allow-same-origin"')
    seen = seen_in_browser(
        f"<!DOCTYPE html><html><head></head><body>{frame}</body></html>".replace(
            "<body>", '<body style="width: 900px">'
        ),
        """
        const write = () => { document.querySelector("#seen").textContent = JSON.stringify({ problems, seen: {
          lanes: [...inner().querySelectorAll(".lane-name")].map((one) => one.firstChild.textContent),
          dots: inner().querySelectorAll(".base circle").length } }); };
        const inner = () => document.querySelector("iframe").contentDocument;
        document.querySelector("iframe").addEventListener("load", write);
        return null;
        """,
    )
    assert seen == {"lanes": ["first", "second <one>"], "dots": 4}


def test_no_matches_and_matches_without_events() -> None:
    for text, said in (
        ("SELECT * FROM S WHERE X AS x", "There are no matches."),
        ("SELECT NONE FROM S WHERE SELL", "These matches hold no events: the query selects none."),
    ):
        seen = seen_in_browser(timeline(ceql.match(text, TRADES)).html, 'return texts("#chart");')
        assert seen == [said]
