"""The command line: thin wrappers around the library, one function per command."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import pyarrow as pa
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import ceql
from ceql.backends.files import EventFile, FileError, check_suffix, read_events, write_rows
from ceql.datasets import stocks
from ceql.errors import CeqlError, DataError, QueryError
from ceql.schema import Schema
from ceql.syntax.declare import declared_schema
from ceql.syntax.parser import parse

WRONG_QUERY, WRONG_DATA = 1, 3
"""Exit codes; 2 is for wrong use of the command line."""

app = typer.Typer(
    name="ceql",
    help="Find every set of events in a stream that satisfies a pattern.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

QueryFile = Annotated[Path, typer.Argument(help="File with the query; - reads standard input.", metavar="FILE")]
SchemaFile = Annotated[
    Path | None,
    typer.Option("--schema", help="Parquet, Arrow, CSV or JSON lines file whose columns are the events' attributes."),
]
TimeColumn = Annotated[str | None, typer.Option("--time-column", help="Attribute that durations in WITHIN measure.")]


class Stage(StrEnum):
    """A stage of the compilation."""

    ast = "ast"
    plan = "plan"
    automaton = "automaton"


class Format(StrEnum):
    """How a stage is shown."""

    text = "text"
    dot = "dot"
    mermaid = "mermaid"


def _print_version(is_asked: bool) -> None:  # noqa: FBT001
    if is_asked:
        typer.echo(f"ceql {ceql.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[  # noqa: FBT002
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Find every set of events in a stream that satisfies a pattern."""


@app.command()
def check(file: QueryFile, schema: SchemaFile = None, time_column: TimeColumn = None) -> None:
    """Say whether a query is right: exit code 0 if it is, 1 with the mistake on stderr if not.

    Examples:
        ceql check fraud.ceql

        ceql check fraud.ceql --schema trades.parquet
    """
    query = _compiled(file, schema, time_column)
    typer.echo(f"{file}: ok")
    _note_unknown_types(query)


def _note_unknown_types(query: ceql.Query) -> None:
    if query.schema.is_unknown and not query.tree.declarations:
        note = "names and types of attributes are not known: give --schema, or declare them with CREATE STREAM"
        typer.echo(f"note: {note}", err=True)


@app.command()
def explain(
    file: QueryFile,
    schema: SchemaFile = None,
    time_column: TimeColumn = None,
    stage: Annotated[Stage, typer.Option(help="What to show; the plan says what the query costs.")] = Stage.plan,
    format: Annotated[Format, typer.Option(help="Text, or a graph for Graphviz or Mermaid.")] = Format.text,
) -> None:
    """Show how a query is understood, and what it costs per event.

    Examples:
        ceql explain fraud.ceql

        ceql explain fraud.ceql --stage automaton --format dot | dot -Tsvg > fraud.svg
    """
    query = _compiled(file, schema, time_column)
    typer.echo(query.explain(stage.value, format=format.value))
    _note_unknown_types(query)


class Shape(StrEnum):
    """What a row of the result is."""

    matches = "matches"
    events = "events"
    positions = "positions"


class Engine(StrEnum):
    """What runs a query."""

    local = "local"


@app.command()
def run(  # noqa: PLR0917
    file: QueryFile,
    input: Annotated[Path, typer.Option("--input", "-i", help="File of events: Parquet, Arrow, CSV or JSON lines.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the matches; the suffix gives the format.")],
    engine: Annotated[Engine, typer.Option(help="What runs the query.")] = Engine.local,
    type_column: Annotated[
        str, typer.Option(help="Column with each event's type; empty if every event has its stream's name as type.")
    ] = "type",
    time_column: TimeColumn = None,
    order_by: Annotated[str, typer.Option(help="Further columns that order the events, separated by commas.")] = "",
    shape: Annotated[Shape, typer.Option(help="A row per match or per matched event, or row numbers.")] = Shape.matches,
    sort: Annotated[bool, typer.Option("--sort", help="Sort the events by time first.")] = False,  # noqa: FBT002
) -> None:
    """Find the matches of a query in a file and write them to another.

    Examples:
        ceql run fraud.ceql --input trades.parquet --output fraud.parquet

        ceql run fraud.ceql -i trades.csv -o fraud.jsonl --type-column kind --time-column at
    """
    text = _read_query(file)
    began = time.perf_counter()
    try:
        _check_output(input, output)
        events = read_events(input, _column_types(text, type_column))
        with _progress(events) as show:
            matches = ceql.match(
                text,
                events.reader(show),
                type_column=type_column or None,
                time_column=time_column,
                order_by=[name for name in order_by.split(",") if name],
                shape=shape.value,
                sort=sort,
            )
            n_matches = _write(matches, output)
    except QueryError as error:
        _fail(f"{file}: {error}")
    except FileError as error:
        _fail(str(error), WRONG_DATA)
    except CeqlError as error:
        _fail(f"{input}: {error}", WRONG_DATA)
    except OSError as error:
        _fail(f"cannot write {output}: {error.strerror or error}", WRONG_DATA)
    seconds = time.perf_counter() - began
    rate = f"{events.n_read / seconds:,.0f} events/s"
    found = "1 match" if n_matches == 1 else f"{n_matches:,} matches"
    typer.echo(f"{events.n_read:,} events, {found}, {seconds:.2f} s, {rate}", err=True)


def _check_output(input: Path, output: Path) -> None:
    """Refuse what could not be written before anything is read."""
    check_suffix(output)
    if output.exists() and input.exists() and output.samefile(input):
        raise FileError(f"input and output are the same file: {output}")
    if not output.absolute().parent.is_dir():
        raise FileError(f"cannot write {output}: there is no folder {output.parent}")


def _column_types(text: str, type_column: str) -> dict[str, pa.DataType]:
    """Return what the query itself says of the columns: declared types, and that event types are strings."""
    declared = declared_schema(parse(text).declarations, Schema.unknown())
    events = [attributes for stream in declared.streams for attributes in (stream.event_types or {}).values()]
    types = {name: data_type for attributes in events for name, data_type in attributes.items()}
    return types | ({type_column: pa.string()} if type_column else {})


def _write(matches: ceql.Matches, output: Path) -> int:
    """Write matches to a file; return how many there were."""
    n_matches = 0
    with write_rows(output, matches.schema) as writer:
        for n_in_batch, make in matches.start():
            writer.write_batch(make())
            n_matches += n_in_batch
    return n_matches


@contextmanager
def _progress(events: EventFile) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal while events are read, and nothing anywhere else."""
    columns = (TextColumn("{task.completed:,} events"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("events", total=events.n_rows)
        yield lambda n_rows: progress.advance(task, n_rows)


class Dataset(StrEnum):
    """A synthetic stream."""

    stocks = "stocks"


@app.command()
def generate(
    dataset: Annotated[Dataset, typer.Argument(help="What the events are like.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write; the suffix gives the format.")],
    events: Annotated[int, typer.Option(min=0, help="How many events.")] = 1_000_000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same events.")] = 0,
) -> None:
    """Write a synthetic stream of events.

    Examples:
        ceql generate stocks --events 1000000 --out stocks.parquet
    """
    try:
        with write_rows(out, stocks.SCHEMA) as writer:
            for batch in stocks.stocks(events, seed):
                writer.write_batch(batch)
    except (CeqlError, OSError) as error:
        _fail(f"cannot write {out}: {error}", WRONG_DATA)
    typer.echo(f"{events:,} {dataset.value} events in {out}", err=True)


def _compiled(file: Path, schema: Path | None, time_column: str | None) -> ceql.Query:
    text = _read_query(file)
    try:
        return ceql.compile(text, None if schema is None else _read_schema(schema), time_column=time_column)
    except CeqlError as error:
        _fail(f"{file}: {error}")


def _read_query(file: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        _fail(f"cannot read {file}: {error.strerror}")
    except UnicodeDecodeError as error:
        _fail(f"{file}: not UTF-8 at byte {error.start}")


def _read_schema(path: Path) -> pa.Schema:
    try:
        return read_events(path).schema
    except DataError as error:
        _fail(str(error), WRONG_DATA)


def _fail(message: str, code: int = WRONG_QUERY) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(code)
