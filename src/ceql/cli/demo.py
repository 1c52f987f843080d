"""The command `demo`: a stream, a pattern, and its matches on Spark, for a first look."""

from __future__ import annotations

import shutil
import sys
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.parquet as pq
import typer

import ceql
from ceql.backends.files import write_rows
from ceql.cli.exits import WRONG_DATA, cancellation_told, fail, reason
from ceql.cli.preview import show_rows
from ceql.cli.request import Request
from ceql.cli.run import on_spark
from ceql.cli.terminal import say
from ceql.datasets import stocks
from ceql.errors import CeqlError
from ceql.explain.cost import cost_contract
from ceql.pictures.shown_matches import read_matches
from ceql.pictures.text_timeline import marks_since_start, text_timeline

N_SHOWN = 6
WIDTH = 64
TIME = "stock_time"


@cancellation_told()
def demo(
    folder: Annotated[Path, typer.Option(help="Where the files of the demo go.")] = Path("ceql-demo"),
    events: Annotated[int, typer.Option(min=1, help="How many trades.")] = 1_000_000,
) -> None:
    """Show what this is: generate trades, find a pattern in them on Spark, show the matches.

    \b
    Examples:
      ceql demo
      ceql demo --events 10000000 --folder /tmp/demo
    """  # noqa: D301 - the backspace keeps lines as they are
    trades, query, found = folder / "trades.parquet", folder / "pattern.ceql", folder / "matches"
    text = resources.files("ceql.cli").joinpath("demo.ceql").read_text()
    _write(folder, text, query, trades, events)
    _say(f"A pattern, in {query}:", "", text.rstrip())
    _say(f"{events:,} trades, in {trades}. Spark looks for the pattern:")
    try:
        summary = on_spark(_request(text, trades, found))
    except CeqlError as error:
        fail(str(error), WRONG_DATA)
    matches = pq.read_table(found)
    show_rows(matches.column_names, matches.slice(0, N_SHOWN).to_pylist())
    _say("The same in time: m is Microsoft, i is Intel, c is Cisco", "", *_timeline(matches))
    _say(f"{events:,} trades, {summary.text()}, most of it to start Spark. What the pattern costs:", *_costs(text))
    _say(
        "Next:",
        f"  {_program()} show {found}",
        f"  {_program()} explain {query} --schema {trades}",
        f"  {_program()} run {query} --input {trades} --engine local",
    )


def _write(folder: Path, text: str, query: Path, trades: Path, n_events: int) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        query.write_text(text)
        with write_rows(trades, stocks.SCHEMA) as writer:
            for batch in stocks.stocks(n_events):
                writer.write_batch(batch)
    except OSError as error:
        fail(f"cannot write to {folder}: {reason(error)}", WRONG_DATA)


def _request(text: str, trades: Path, found: Path) -> Request:
    return Request(
        text=text,
        streams={"Stock": [str(trades)]},
        output=str(found),
        type_column="type",
        time_column=None,
        order_by=["id"],
        shape="matches",
        sort=False,
        complete=False,
        format=None,
        options={},
        output_format=None,
        mode="overwrite",
        master=None,
        conf={},
        plan="auto",
        is_verbose=False,
        as_json=False,
    )


def _timeline(matches: pa.Table) -> list[str]:
    shown = read_matches(matches.schema, matches.slice(0, N_SHOWN).to_batches())
    letters = "".join(name[0] for name in shown.variables)
    marks = [marks_since_start(match.events, letters, TIME) for match in shown.matches]
    lines = text_timeline(marks, WIDTH, lambda millis: f"{millis / 1000:g} s")
    begins = [_clock(match.start) for match in shown.matches] + ["since"]
    return [f"  {begin:<10}{line}" for begin, line in zip(begins, lines, strict=True)]


def _clock(millis: int) -> str:
    """Return the time of day, given in milliseconds since midnight."""
    return f"{datetime.fromtimestamp(millis / 1000, UTC):%H:%M:%S}"


def _costs(text: str) -> list[str]:
    query = ceql.compile(text)
    return [f"  {line}" for line in cost_contract(query.plan, query.automaton)]


def _program() -> str:
    """Return the command of this program: its name, if the shell finds it."""
    called = sys.argv[0]
    found = shutil.which("ceql")
    return "ceql" if found is not None and Path(found).resolve() == Path(called).resolve() else called


def _say(*lines: str) -> None:
    say("\n".join(["", *lines]))
