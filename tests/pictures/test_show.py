"""The command `show`: what it reads, writes and says."""

from __future__ import annotations

import json
import re
import webbrowser
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner, Result

import ceql
from ceql.backends.files import write_rows
from ceql.cli import app

EVENTS = pa.table({"type": ["A", "B", "C", "A", "B"], "t": [1, 2, 3, 4, 5], "s": ["<", "é", None, "</script>", "x"]})
QUERY = "SELECT * FROM S WHERE A AS x ; (B AS y OR C AS z) WITHIN 10 [t]"
PAIRS = "SELECT * FROM S WHERE A AS x ; B+ AS y WITHIN 10 [t]"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["show", *(str(one) for one in arguments)])


def write(path: Path, query: str = QUERY, shape: Any = "matches", events: pa.Table = EVENTS) -> ceql.Matches:
    matches = ceql.match(query, events, shape=shape)
    with write_rows(path, matches.schema) as writer:
        for batch in matches.batches():
            writer.write_batch(batch)
    return matches


def drawn(page: Path) -> Any:
    """Return the places of each match's events by variable, the lanes, and the axis."""
    text = page.read_text(encoding="utf-8")
    data = json.loads(re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)[0])
    matches = [
        [(data["lanes"][data["events"][one][1]], data["events"][one][0]) for one in match["events"]]
        for match in data["matches"]
    ]
    return sorted(matches), data["lanes"], data["axis"]["name"]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".jsonl", ".json.gz", ".csv"])
@pytest.mark.parametrize("query", [QUERY, PAIRS])
def test_every_format_shows_the_same(tmp_path: Path, suffix: str, query: str) -> None:
    file = tmp_path / f"found{suffix}"
    count = write(file, query).count()
    result = run(file)
    page = tmp_path / f"found{suffix}.html"
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"{count} matches: see {page}\n")
    expected = {
        QUERY: [[("x", 0), ("y", 1)], [("x", 0), ("y", 4)], [("x", 0), ("z", 2)], [("x", 3), ("y", 4)]],
        PAIRS: [[("x", 0), ("y", 1)], [("x", 0), ("y", 1), ("y", 4)], [("x", 0), ("y", 4)], [("x", 3), ("y", 4)]],
    }
    assert drawn(page) == (expected[query], ["x", "y", "z"] if query == QUERY else ["x", "y"], "t")


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".csv"])
def test_other_shapes(tmp_path: Path, suffix: str) -> None:
    for shape, lanes, name in (("events", ["x", "y", "z"], "t"), ("positions", ["positions"], "row")):
        write(tmp_path / f"{shape}{suffix}", shape=shape)
        result = run(tmp_path / f"{shape}{suffix}", "--out", tmp_path / "page.html")
        assert result.exit_code == 0, result.stderr
        matches, shown_lanes, axis = drawn(tmp_path / "page.html")
        assert (len(matches), sorted(shown_lanes), axis) == (4, lanes, name)


def test_all_are_counted(tmp_path: Path) -> None:
    events = pa.table({"type": ["A"] * 70, "t": range(70)})
    for name in ("found.parquet", "found.jsonl", "found.arrow"):
        for shape in ("matches", "events", "positions"):
            write(tmp_path / name, "SELECT * FROM S WHERE A AS x ; A AS y", shape, events)
            assert run(tmp_path / name).stderr.startswith("200 of 2,415 matches shown: see ")
            assert '<p id="count">200 of 2,415 matches shown</p>' in (tmp_path / f"{name}.html").read_text()


def test_a_folder_of_files_as_spark_writes_them(tmp_path: Path) -> None:
    folder = tmp_path / "found.json"
    folder.mkdir()
    # Spark leaves out what is NULL, and leaves empty files and its own beside the others.
    (folder / "part-0.json").write_text('{"match_start":1,"match_end":2,"x":{"t":1},"y":{"t":2}}\n')
    (folder / "part-1.json").write_text('{"match_start":1,"match_end":3,"x":{"t":1},"z":{"t":3}}\n\n')
    (folder / "part-2.json").write_text("")
    (folder / "_SUCCESS").write_text("")
    (folder / ".part-0.json.crc").write_bytes(b"\0")
    result = run(f"{folder}/")
    assert result.stderr == f"2 matches: see {folder}.html\n"
    assert drawn(tmp_path / "found.json.html") == ([[("x", 0), ("y", 1)], [("x", 0), ("z", 2)]], ["x", "y", "z"], "t")
    table = ceql.match(QUERY, EVENTS).to_arrow()
    (tmp_path / "found").mkdir()
    for number in range(2):
        pa.parquet.write_table(table.slice(2 * number, 2), tmp_path / "found" / f"part-{number}.snappy.parquet")
    assert run(tmp_path / "found").stderr == f"4 matches: see {tmp_path / 'found.html'}\n"


def test_times_of_json_are_times(tmp_path: Path) -> None:
    file = tmp_path / "found.jsonl"
    file.write_text(
        '{"match_start":"2024-01-31T09:30:00.000Z","match_end":"2024-01-31T09:30:01.500Z",'
        '"x":{"at":"2024-01-31T09:30:00.000Z"},"y":[{"at":"2024-01-31T09:30:01.500Z"}]}\n'
    )
    run(file)
    assert drawn(Path(f"{file}.html")) == ([[("x", 0), ("y", 1500.0)]], ["x", "y"], "at")


def test_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: not opened.append(address))
    file, page, query = tmp_path / "found.parquet", tmp_path / "a page.html", tmp_path / "query.ceql"
    write(file)
    query.write_text(QUERY)
    result = run(file, "--out", page, "--query", query, "--time", "t", "--open")
    assert (result.exit_code, result.stderr) == (0, f"4 matches: see {page}\n")
    assert QUERY in page.read_text()
    assert opened == [page.as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    assert run(file, "--open").stderr.endswith("no browser could be opened\n")


def test_no_matches(tmp_path: Path) -> None:
    for name in ("none.parquet", "none.jsonl", "none.arrow"):
        write(tmp_path / name, events=EVENTS.slice(0, 1))
        result = run(tmp_path / name)
        assert (result.exit_code, result.stderr) == (0, f"0 matches: see {tmp_path / name}.html\n")


def test_mistakes_are_told(tmp_path: Path) -> None:
    file = tmp_path / "found.parquet"
    write(file)
    pa.parquet.write_table(EVENTS, tmp_path / "events.parquet")
    (tmp_path / "bad.jsonl").write_text('{"match_start": 1}\n{"match_end":\n')
    (tmp_path / "list.jsonl").write_text("[1]\n")
    (tmp_path / "mixed.jsonl").write_text(
        '{"match_start":1,"match_end":2,"x":{"t":1}}\n{"match_start":1,"match_end":2,"x":3}\n'
    )
    (tmp_path / "found.out").write_text("")
    (tmp_path / "empty").mkdir()
    for arguments, code, said in (
        ((tmp_path / "nothing.parquet",), 3, "cannot read"),
        ((tmp_path / "nothing.jsonl",), 3, "cannot read"),
        ((tmp_path / "nothing.out",), 3, "there is no such file or folder"),
        ((tmp_path / "found.out",), 3, "from its suffix\nhint: it shows what ceql run writes: .parquet, "),
        ((tmp_path / "empty",), 3, "the folder has no files of a known format\nhint: it shows what ceql run writes: "),
        ((tmp_path / "events.parquet",), 3, "these are not matches: there are no columns match_start and match_end"),
        ((tmp_path / "bad.jsonl",), 3, "line 2 is not JSON"),
        ((tmp_path / "list.jsonl",), 3, "line 1 is not an object"),
        ((tmp_path / "mixed.jsonl",), 3, "cannot read"),
        ((file, "--time", "tt"), 3, "no event has an attribute 'tt'\nhint: did you mean 't'? there are: type, t, s"),
        ((file, "--time", "s"), 3, "the attribute 's' holds neither times nor numbers"),
        ((file, "--out", tmp_path / "nowhere" / "page.html"), 3, "cannot write"),
        ((file, "--query", tmp_path / "nothing.ceql"), 3, "cannot read"),
    ):
        result = run(*arguments)
        assert result.exit_code == code, arguments
        assert said in result.stderr
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize("name", ["timeline.html", "timeline.css", "timeline.js", "automaton.css"])
def test_files_that_come_with_the_package(name: str) -> None:
    assert resources.files("ceql.pictures").joinpath(name).read_text(encoding="utf-8").strip()
