"""The documentation is true: its links lead somewhere, its code runs, its pictures show what is found."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
from pathlib import Path, PurePath
from typing import Any

import pytest
import typer

import ceql
from ceql.cli import app
from markdown_blocks import (
    ROOT,
    Block,
    Code,
    Example,
    anchors,
    blocks,
    claimed,
    found,
    links,
    pictures,
    python_of,
    short_examples,
)

DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = sorted([*ROOT.glob("*.md"), *DOCS, *(ROOT / "examples").rglob("*.md")])
MAPS = [ROOT / "docs" / "how_it_works.md", ROOT / "CONTRIBUTING.md"]
BLOCKS = [block for page in PAGES for block in blocks(page)]


def test_pages_are_found() -> None:
    assert {"README.md", "language.md", "tutorial.md"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = [link for link in links(page) if not _leads_somewhere(page, link)]
    assert not broken


def _leads_somewhere(page: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return True
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists() or not target.is_relative_to(ROOT):
        return False
    return not anchor or (target.suffix == ".md" and anchor in anchors(target))


def test_a_link_to_nowhere_is_noticed(tmp_path: Path) -> None:
    page = ROOT / "docs" / "language.md"
    assert _leads_somewhere(page, "#strategies")
    assert _leads_somewhere(page, "spark.md#order")
    assert not _leads_somewhere(page, "#no-such-heading")
    assert not _leads_somewhere(page, "no_such_page.md")


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    assert {page.name for page in DOCS} - {"README.md"} <= set(links(index))


@pytest.mark.parametrize("page", MAPS, ids=lambda page: page.name)
def test_modules_that_are_named_exist(page: Path) -> None:
    files = {path for folder in ("src/ceql", "tests", "docs") for path in (ROOT / folder).rglob("*")}
    known = {path.relative_to(ROOT).as_posix() for path in [*files, *ROOT.glob("*.*")]}
    named = re.findall(r"`([\w/*]+\.(?:py|lark|toml|md))`", page.read_text(encoding="utf-8"))
    missing = [name for name in named if not any(PurePath(path).match(name) for path in known)]
    assert named
    assert not missing


def test_the_map_names_every_package_and_backend() -> None:
    page = (ROOT / "docs" / "how_it_works.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "ceql"
    packages = [path.name for path in source.iterdir() if (path / "__init__.py").exists()]
    backends = [path.name for path in (source / "backends").glob("[a-z]*.py")]
    assert [name for name in packages if f"{name}/" not in page] == []
    assert [name for name in backends if name not in page] == []


@pytest.mark.parametrize("block", [one for one in BLOCKS if one.info == "ceql"], ids=str)
def test_queries_compile(block: Block) -> None:
    assert ceql.compile(block.text).text == block.text


@pytest.mark.parametrize("example", [one for page in PAGES for one in pictures(page)], ids=str)
def test_pictures_show_what_is_found(example: Example) -> None:
    assert found(example) == claimed(example)


@pytest.mark.parametrize("example", [one for page in PAGES for one in short_examples(page)], ids=str)
def test_short_examples_show_what_is_found(example: Example) -> None:
    assert found(example) == claimed(example)


def test_a_picture_that_lies_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    picture = "position  0  1  2\nevent     A  B  B\nmatch 1   x  y\n"
    query = "```ceql\nSELECT * FROM S WHERE A AS x ; B AS y\n```\n\n"
    page.write_text(f"{query}```matches\n{picture}```\n", encoding="utf-8")
    (half,) = pictures(page)
    page.write_text(f"{query}```matches\n{picture}match 2   x     y\n```\n", encoding="utf-8")
    (whole,) = pictures(page)
    assert found(half) != claimed(half)
    assert found(whole) == claimed(whole)


@pytest.mark.parametrize("block", [one for one in BLOCKS if one.info == "python norun"], ids=str)
def test_code_that_is_not_run_is_python(block: Block) -> None:
    assert ast.parse(block.text).body


def without_spark(page: Path) -> list[Code]:
    return [code for code in python_of(page) if not code.needs_spark]


@pytest.mark.parametrize("page", [page for page in DOCS if without_spark(page)], ids=lambda page: page.name)
def test_code_prints_what_the_page_shows(page: Path) -> None:
    names: dict[str, Any] = {}
    for code in without_spark(page):
        assert code.run(names) == code.printed, code.block


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "page", [page for page in DOCS if any(code.needs_spark for code in python_of(page))], ids=lambda page: page.name
)
def test_code_on_spark_prints_what_the_page_shows(spark: Any, page: Path, tmp_path: Path) -> None:
    names: dict[str, Any] = {"spark": spark}
    places = ("trades", "matches", "checkpoint", "bad_records", "checkpoint_bad")
    folders = {f"{name}/": str(tmp_path / name) for name in places}
    try:
        for code in python_of(page):
            assert code.run(names, folders) == code.printed, code.block
    finally:
        for query in spark.streams.active:
            query.stop()


# --- commands -------------------------------------------------------------------------


def commands(block: Block) -> list[list[str]]:
    """Return the calls of `ceql` in a block of shell commands, as lists of arguments."""
    lines = block.text.replace("\\\n", " ").splitlines()
    calls = [shlex.split(re.split(r"\s[|>]|\s&&", line)[0], comments=True) for line in lines]
    return [call[1:] for call in calls if call[:1] == ["ceql"]]


COMMANDS = [(str(block), call) for block in BLOCKS if block.info == "sh" for call in commands(block)]


@pytest.mark.parametrize("call", [call for _, call in COMMANDS], ids=[place for place, _ in COMMANDS])
def test_commands_are_those_of_the_command_line(call: list[str]) -> None:
    assert parsed(call)


def parsed(call: list[str]) -> dict[str, Any]:
    """Return the arguments of a call as the command would get them; nothing runs."""
    command: Any = typer.main.get_command(app)
    arguments = list(call)
    while hasattr(command, "commands"):
        name = arguments.pop(0)
        assert name in command.commands
        command = command.commands[name]
    return dict(command.make_context(command.name, arguments).params)


def test_the_page_on_the_command_line_has_every_command() -> None:
    shown = {call[0] for place, call in COMMANDS if place.startswith("command_line.md")}
    known: Any = typer.main.get_command(app)
    assert shown == set(known.commands)


def test_a_wrong_option_is_noticed() -> None:
    assert parsed(["check", "fraud.ceql"])["file"] == Path("fraud.ceql")
    with pytest.raises(Exception, match="No such option"):
        parsed(["check", "fraud.ceql", "--no-such-option"])


# --- the reference of the API ------------------------------------------------------------


def test_the_reference_is_up_to_date() -> None:
    pytest.importorskip("pyspark")
    make_api = runpy.run_path(str(ROOT / "docs" / "make_api.py"))
    page = make_api["PAGE"].read_text(encoding="utf-8")
    assert page == make_api["reference"](), "run `python docs/make_api.py`"


def functions_of(path: Path) -> set[str]:
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        names |= {node.name} if isinstance(node, ast.FunctionDef | ast.ClassDef) else set()
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return names


def test_walks_lead_through_functions_that_exist() -> None:
    page = (ROOT / "docs" / "how_it_works.md").read_text(encoding="utf-8")
    section = page.partition("## Three walks")[2].partition("\n## ")[0]
    walks = [re.findall(r"^\d+\. `(\S+\.py)`, `(\S+)`: ", walk, re.MULTILINE) for walk in section.split("\n**")[1:]]
    assert len(walks) == 3
    for walk in walks:
        assert 1 < len(walk) <= 12
        for path, function in walk:
            assert function in functions_of(ROOT / "src" / "ceql" / path), f"{path} has no {function}"
