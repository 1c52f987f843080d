"""Pictures of automata: well-formed, complete, self-contained, and nothing covers anything else."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from importlib import resources
from pathlib import Path

import pytest
from browser import needs_browser, seen_in_browser
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import ceql
from ceql.automaton.cea import CEA
from ceql.cli import app
from ceql.explain.predicates import transition_text
from ceql.pictures.automaton_svg import MAX_STATES, automaton_svg
from ceql.pictures.layers import GAP, Box, Edge, lay_out, spread
from ceql.pictures.routes import routes
from ceql.query import Query
from strategies import SCHEMA, queries, some

SVG = "{http://www.w3.org/2000/svg}"
PAPER = sorted(Path(str(resources.files("ceql.paper"))).glob("*/*.ceql"))
OTHERS = {
    "one": "SELECT * FROM S WHERE A AS x",
    "nothing selected": "SELECT NONE FROM S WHERE A",
    "disjunction": "SELECT * FROM S WHERE (A AS x OR B AS y OR (C AS z ; D AS w)) ; E AS v",
    "nested iteration": "SELECT * FROM S WHERE (A AS x ; (B AS y ; C AS z)+)+ ; D AS w",
    "iteration over several rows": "SELECT * FROM S WHERE ("
    + " ; ".join(f"A{n} AS x{n}" for n in range(30))
    + ")+ ; B",
    "wide disjunction": "SELECT * FROM S WHERE " + " OR ".join(f"(A{n} ; B{n})" for n in range(12)),
    "contiguous": "SELECT STRICT * FROM S WHERE A : B :+ : C",
    "forbidden": "SELECT * FROM S WHERE (A AS x -> B[v > 3] AS y ; NOT (C[v < 2] OR D) ; E{2,4}) WITHOUT F",
    "silences": "SELECT * FROM S WHERE NOT (B OR C) FOR 1 hour ; A AS x ; NOT B AS b FOR 1 hour FILTER b[v > '<']",
    "needed": "SELECT * FROM S WHERE A AS x ; _ : B? : _{2} : C AS y",
}


def root_of(cea: CEA) -> ElementTree.Element:
    return ElementTree.fromstring(automaton_svg(cea))


def titles(root: ElementTree.Element) -> Counter[str]:
    """Return the whole texts of all labels."""
    return Counter(
        label.findtext(f"{SVG}title") or "" for label in root.iter(f"{SVG}text") if label.get("class") == "label"
    )


def check_complete(query: Query) -> None:
    """Check that each state and each transition is drawn once, and merged arrows once for each pair of states."""
    cea = query.automaton
    root = root_of(cea)
    states = [group.get("data-state") for group in root.iter(f"{SVG}g") if group.get("data-state")]
    assert states == [str(state) for state in range(cea.n_states)]
    assert titles(root) == Counter(f"{one.source} → {one.target}: {transition_text(one)}" for one in cea.transitions)
    arrows = [group.get("data-ends") for group in root.iter(f"{SVG}g") if group.get("data-ends")]
    assert sorted(arrows) == sorted({f"{one.source} {one.target}" for one in cea.transitions})
    circles = Counter(group.get("class") for group in root.iter(f"{SVG}g") for _ in group.findall(f"{SVG}circle"))
    assert circles["state final"] == 2
    assert circles["state initial"] == 1


@pytest.mark.parametrize("file", PAPER, ids=lambda file: f"{file.name}")
def test_queries_of_the_paper(file: Path) -> None:
    check_complete(ceql.compile(file.read_text(encoding="utf-8")))


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_other_queries(text: str) -> None:
    check_complete(ceql.compile(text))


@some(60)
@given(queries())
def test_random_queries(query: object) -> None:
    check_complete(ceql.compile(str(query), SCHEMA))


def test_the_picture_is_a_function_of_the_query() -> None:
    text = OTHERS["nested iteration"]
    assert automaton_svg(ceql.compile(text).automaton) == automaton_svg(ceql.compile(text).automaton)


def test_nothing_is_fetched() -> None:
    svg = automaton_svg(ceql.compile(OTHERS["disjunction"]).automaton)
    assert re.findall(r"https?://[^\"]+", svg) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"href|url\(|@import|<script|<image|<foreignObject", svg)


@pytest.mark.parametrize(
    "value",
    [
        '<b>&amp;"quoted"</b>',
        "</style><script>alert(1)</script>",
        "é漢字🙂",
        "]]>",
        "\x01\x1b[31m",
        "\u202e",
        "a\tb\nc",
    ],
)
def test_text_is_escaped(value: str) -> None:
    quoted = value.replace("'", "''")
    query = ceql.compile(f"SELECT * FROM S WHERE `A<&>\"` AS `x<y>` FILTER `x<y>`[s = '{quoted}']")
    root = root_of(query.automaton)
    (title,) = titles(root)
    assert '`A<&>"`' in title
    assert "`x<y>`" in title
    shown = "".join(
        one if one.isprintable() else " " if one.isspace() else "\N{REPLACEMENT CHARACTER}" for one in value
    )
    assert shown in title
    assert {one.tag for one in root.iter()} <= {
        f"{SVG}{name}" for name in ["svg", "title", "style", "g", "path", "rect", "text", "tspan", "circle"]
    }


def test_long_labels_are_cut_but_not_their_titles() -> None:
    words = " AND ".join(f"attribute_{number} = 'a value of some length'" for number in range(30))
    query = ceql.compile(f"SELECT * FROM S WHERE A AS x FILTER x[{words}] AND x[s = '{'w' * 500}']")
    root = root_of(query.automaton)
    (title,) = titles(root)
    assert "attribute_29 = 'a value of some length'" in title
    assert "w" * 500 in title
    lines = [line.text or "" for line in root.iter(f"{SVG}tspan") if line.get("x")]
    assert max(map(len, lines)) <= 26
    assert len(lines) < 10
    assert "…" in lines


def test_skipping_is_dashed_and_taking_is_not() -> None:
    root = root_of(ceql.compile("SELECT * FROM S WHERE A AS x ; B AS y").automaton)
    kinds = {group.get("data-ends"): group.get("class") for group in root.iter(f"{SVG}g") if group.get("data-ends")}
    assert kinds == {"0 2": "edge take", "2 1": "edge take", "2 2": "edge skip"}


def test_needed_events_are_dotted_and_forbidden_ones_named() -> None:
    root = root_of(ceql.compile("SELECT * FROM S WHERE A AS x : _ ; NOT C ; B AS y").automaton)
    kinds = {group.get("data-ends"): group.get("class") for group in root.iter(f"{SVG}g") if group.get("data-ends")}
    assert kinds == {"0 2": "edge take", "2 3": "edge need", "3 1": "edge take", "3 3": "edge skip"}
    assert [line.text for line in root.iter(f"{SVG}tspan") if line.get("class") == "unless"] == ["unless C"]
    assert "needed, not selected" in ElementTree.tostring(root, encoding="unicode")


def test_silences_stand_below_the_automaton() -> None:
    query = ceql.compile(OTHERS["silences"])
    root, plain = root_of(query.automaton), root_of(ceql.compile("SELECT * FROM S WHERE A AS x").automaton)
    silences = [label for label in root.iter(f"{SVG}text") if label.get("class") == "silence"]
    assert [label.text for label in silences] == [
        "may not come before a run: B OR C",
        "may not come after a run: B AND v > '<'",
    ]
    assert not [label for label in plain.iter(f"{SVG}text") if label.get("class") == "silence"]
    heights = [float(one.get("height") or 0) for one in (root, plain)]
    places = [float(label.get("y") or 0) for label in silences]
    assert heights[1] - 30 < places[0] < places[1] < heights[0]


def test_long_chains_are_wrapped_into_rows() -> None:
    widths = [float(root_of(ceql.compile(one.read_text()).automaton).get("width", "0")) for one in PAPER]
    assert max(widths) < 1250


def test_what_is_too_large_is_refused() -> None:
    query = ceql.compile("SELECT * FROM S WHERE " + " ; ".join(["A"] * (MAX_STATES + 1)))
    with pytest.raises(ceql.CeqlError, match="too many for a picture"):
        query.explain(format="svg")
    assert query._repr_svg_() is None


def test_formats_of_the_library() -> None:
    query = ceql.compile(OTHERS["one"])
    assert query.explain(format="svg") == query.explain("automaton", format="svg") == query._repr_svg_()
    with pytest.raises(ValueError, match="only the automaton is drawn"):
        query.explain("ast", format="svg")


def test_formats_of_the_command(tmp_path: Path) -> None:
    file = tmp_path / "query.ceql"
    file.write_text(OTHERS["one"])
    drawn = CliRunner().invoke(app, ["explain", str(file), "--format", "svg"])
    assert (drawn.exit_code, drawn.stdout) == (0, ceql.compile(OTHERS["one"]).explain(format="svg") + "\n")
    refused = CliRunner().invoke(app, ["explain", str(file), "--format", "svg", "--stage", "ast"])
    assert refused.exit_code == 2
    file.write_text("SELECT * FROM S WHERE " + " ; ".join(["A"] * (MAX_STATES + 1)))
    refused = CliRunner().invoke(app, ["explain", str(file), "--format", "svg"])
    assert refused.exit_code == 1
    assert "too many for a picture\nhint:" in refused.stderr


# --- the layout ---------------------------------------------------------------------

sizes = st.floats(5, 120)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Box], list[Edge]]:
    n_states = draw(st.integers(1, 12))
    states = [Box(max(34, draw(sizes)), draw(st.floats(17, 90)), 17, 17) for _ in range(n_states)]
    ends = st.tuples(st.integers(0, n_states - 1), st.integers(0, n_states - 1)).filter(lambda pair: pair[0] != pair[1])
    pairs = draw(st.lists(ends, unique=True, max_size=25)) if n_states > 1 else []
    return states, [Edge(*pair, Box(draw(sizes), *[draw(sizes)] * 2)) for pair in pairs]


@some(100)
@given(graphs(), st.floats(100, 1000))
def test_no_box_covers_another_and_all_are_inside(graph: tuple[list[Box], list[Edge]], max_width: float) -> None:
    states, edges = graph
    width, height = lay_out(states, edges, 0, len(states) - 1, max_width)
    boxes = [*states, *(edge.label for edge in edges)]
    for box in boxes:
        assert box.x - box.width / 2 >= -1e-6
        assert box.x + box.width / 2 <= width + 1e-6
        assert box.y - box.up >= -1e-6
        assert box.y + box.down <= height + 1e-6
    for one, other in itertools.combinations(boxes, 2):
        is_beside = abs(one.x - other.x) >= (one.width + other.width) / 2 - 1e-6
        upper, lower = (one, other) if one.y < other.y else (other, one)
        assert is_beside or upper.y + upper.down <= lower.y - lower.up + 1e-6


@some(100)
@given(graphs(), st.floats(100, 1000))
def test_routes_go_from_source_to_target_without_gaps(graph: tuple[list[Box], list[Edge]], max_width: float) -> None:
    states, edges = graph
    lay_out(states, edges, 0, len(states) - 1, max_width)
    for edge, curves in zip(edges, routes(states, edges), strict=True):
        for state, point in ((states[edge.source], curves[0][0]), (states[edge.target], curves[-1][3])):
            distance = ((state.x - point[0]) ** 2 + (state.y - point[1]) ** 2) ** 0.5
            assert distance == pytest.approx(state.radius)
        for before, after in itertools.pairwise(curves):
            assert before[3] == pytest.approx(after[0])


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=20), st.floats(0, GAP))
def test_spread_keeps_the_order_and_the_distance(wanted: list[float], space: float) -> None:
    found = spread(wanted, [space] * (len(wanted) - 1))
    assert all(after - before >= space - 1e-6 for before, after in itertools.pairwise(found))
    if all(after - before > space for before, after in itertools.pairwise(wanted)):
        assert found == pytest.approx(wanted)


# --- in a browser -------------------------------------------------------------------


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_what_a_browser_shows(dark: bool) -> None:
    svg = automaton_svg(ceql.compile(OTHERS["nested iteration"]).automaton)
    # Labels must fit the space that was kept for them, whatever font of fixed width there is.
    script = """
        const boxes = all(".label").map((one) => one.getBBox());
        const paper = document.querySelector("svg").viewBox.baseVal;
        return {
          states: texts(".state > text"), variables: texts(".label .variable"),
          paper: getComputedStyle(document.querySelector(".paper")).fill,
          ink: getComputedStyle(document.querySelector(".state text")).fill,
          widest: Math.max(...boxes.map((one) => one.width)),
          fits: paper.width >= document.querySelector("g").getBBox().width,
        };"""
    options = ["--blink-settings=preferredColorScheme=0"] if dark else ["--blink-settings=preferredColorScheme=1"]
    seen = seen_in_browser(f"<!DOCTYPE html><html><head></head><body>{svg}</body></html>", script, *options)
    assert sorted(seen["states"]) == [str(state) for state in range(6)]
    assert Counter(seen["variables"]) == {"x": 2, "y": 1, "z": 3, "w": 1}
    assert (seen["paper"], seen["ink"]) == (
        ("rgb(13, 17, 23)", "rgb(230, 237, 243)") if dark else ("rgb(255, 255, 255)", "rgb(36, 41, 47)")
    )
    assert 0 < seen["widest"] < 40
    assert seen["fits"]
