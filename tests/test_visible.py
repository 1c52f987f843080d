"""Names and values of events never drive a terminal: control characters are shown as escapes."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner, Result

import ceql
from ceql.cli import app
from ceql.visible import HIDDEN, visible, visible_lines

# Clears the screen, writes the clipboard, the same introduced by one character, deletes, turns text around.
EVIL = "\x1b[2J\x1b]52;c;aGk=\x07\x9b31m\x7f\u202e\r"
SHOWN = r"\x1b[2J\x1b]52;c;aGk=\x07\x9b31m\x7f\u202e\r"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    columns = {"type": ["A", EVIL], "t": [0, 1], f"k{EVIL}": [f"two\nlines{EVIL}"] * 2}
    pa.parquet.write_table(pa.table(columns), tmp_path / "e.parquet")
    return tmp_path


def run(folder: Path, query: str, *arguments: str, command: str = "run") -> Result:
    (folder / "q.ceql").write_text(query, encoding="utf-8")
    given = ["-i", str(folder / "e.parquet"), "--engine", "local"] if command == "run" else []
    result = CliRunner().invoke(app, [command, str(folder / "q.ceql"), *given, *arguments])
    for said in (result.stdout, result.stderr):
        assert not HIDDEN.search(said), ascii(said)
    return result


def test_in_a_table(folder: Path) -> None:
    result = run(folder, "SELECT * FROM S WHERE A AS x")
    assert result.exit_code == 0, result.stderr
    assert rf"k{SHOWN}=two\nlines{SHOWN}" in result.stdout


def test_in_json(folder: Path) -> None:
    result = run(folder, "SELECT * FROM S WHERE A AS x", "--json")
    assert json.loads(result.stdout)["x"][f"k{EVIL}"] == f"two\nlines{EVIL}"


def test_in_notes(folder: Path) -> None:
    result = run(folder, "SELECT * FROM S WHERE B AS x")
    assert result.exit_code == 0, result.stderr
    assert f"there are: {SHOWN}, A\n" in result.stderr


@pytest.mark.parametrize("attribute", ["none", f"`k{EVIL}_`"])
def test_in_hints_and_excerpts(folder: Path, attribute: str) -> None:
    result = run(folder, f"SELECT * FROM S WHERE A AS x FILTER x[{attribute} = 1]")
    assert result.exit_code == 1
    assert SHOWN in result.stderr


@pytest.mark.parametrize("stage", ["ast", "plan", "automaton"])
@pytest.mark.parametrize("format", ["text", "dot", "mermaid"])
def test_in_explanations(folder: Path, stage: str, format: str) -> None:
    query = f"SELECT * FROM `S{EVIL}` WHERE `A{EVIL}` AS x FILTER x[s = '{EVIL}'] PARTITION BY [`k{EVIL}`]"
    result = run(folder, query, "--stage", stage, "--format", format, command="explain")
    assert result.exit_code == 0, result.stderr
    shown = SHOWN.replace("\\", "\\\\") if format == "dot" else SHOWN
    assert f"A{shown}" in result.stdout
    assert ceql.compile(query).explain(stage, format=format) == result.stdout.removesuffix("\n")  # type: ignore[arg-type]


def test_in_errors_of_the_library() -> None:
    with pytest.raises(ceql.CeqlError) as caught:
        ceql.match("SELECT * FROM S WHERE A", [{"type": "A"}], type_column=EVIL)
    assert SHOWN in str(caught.value)
    assert not HIDDEN.search(str(caught.value))
    assert not HIDDEN.search(repr(ceql.match("SELECT * FROM S WHERE A AS x", [{"type": "A", EVIL: 1}])))


def test_text_in_other_languages_stays_as_it_is() -> None:
    text = "Größe 東京 שלום می‌خواهم 👩‍👩‍👧 a\u0301 \u00a0"
    assert visible(text) == visible_lines(text) == text
    assert visible(text.encode("latin-1", "ignore").decode("utf-8", "surrogateescape")).isprintable()
