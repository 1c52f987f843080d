"""The command line: thin wrappers around the library, one function per command."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

import ceql
from ceql.backends.files import FileError, read_events, write_rows
from ceql.cli.arguments import OrderBy, QueryFile, TimeColumn, columns_in, read_query
from ceql.cli.exits import EXIT_CODES, EXIT_CODES_OF_STREAMS, WRONG_DATA, fail
from ceql.cli.run import run
from ceql.cli.stream import stream
from ceql.datasets import stocks
from ceql.engine.batch import missing_column
from ceql.errors import CeqlError, DataError
from ceql.schema import Kind, kind_of

__all__ = ["app"]

app = typer.Typer(
    name="ceql",
    help="Find every set of events in a stream that satisfies a pattern.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog=EXIT_CODES)(run)
app.command(epilog=EXIT_CODES_OF_STREAMS)(stream)

SchemaFile = Annotated[
    Path | None,
    typer.Option("--schema", help="Parquet, Arrow, CSV or JSON lines file whose columns are the events' attributes."),
]
CheckedTypeColumn = Annotated[
    str | None, typer.Option("--type-column", help="Column with each event's type, which --schema must have.")
]


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
def check(
    file: QueryFile,
    schema: SchemaFile = None,
    type_column: CheckedTypeColumn = None,
    time_column: TimeColumn = None,
    order_by: OrderBy = "",
) -> None:
    """Say whether a query is right: exit code 0 if it is, 1 with the mistake on stderr if not.

    \b
    Examples:
      ceql check fraud.ceql
      ceql check fraud.ceql --schema trades.parquet
    """  # noqa: D301 - the backspace keeps lines as they are
    query = _compiled(file, schema, type_column, time_column, order_by)
    typer.echo(f"{file}: ok")
    _note_unknown_types(query)


def _note_unknown_types(query: ceql.Query) -> None:
    if query.schema.is_unknown and not query.tree.declarations:
        note = "names and types of attributes are not known: give --schema, or declare them with CREATE STREAM"
        typer.echo(f"note: {note}", err=True)


@app.command()
def explain(  # noqa: PLR0917
    file: QueryFile,
    schema: SchemaFile = None,
    type_column: CheckedTypeColumn = None,
    time_column: TimeColumn = None,
    order_by: OrderBy = "",
    stage: Annotated[Stage, typer.Option(help="What to show; the plan says what the query costs.")] = Stage.plan,
    format: Annotated[Format, typer.Option(help="Text, or a graph for Graphviz or Mermaid.")] = Format.text,
) -> None:
    """Show how a query is understood, and what it costs per event.

    \b
    Examples:
      ceql explain fraud.ceql
      ceql explain fraud.ceql --stage automaton --format dot | dot -Tsvg > fraud.svg
    """  # noqa: D301 - the backspace keeps lines as they are
    query = _compiled(file, schema, type_column, time_column, order_by)
    typer.echo(query.explain(stage.value, format=format.value))
    _note_unknown_types(query)


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

    \b
    Examples:
      ceql generate stocks --events 1000000 --out stocks.parquet
    """  # noqa: D301 - the backspace keeps lines as they are
    try:
        with write_rows(out, stocks.SCHEMA) as writer:
            for batch in stocks.stocks(events, seed):
                writer.write_batch(batch)
    except (CeqlError, OSError) as error:
        fail(f"cannot write {out}: {error}", WRONG_DATA)
    typer.echo(f"{events:,} {dataset.value} events in {out}", err=True)


def _compiled(
    file: Path, schema: Path | None, type_column: str | None, time_column: str | None, order_by: str
) -> ceql.Query:
    text = read_query(file)
    columns = None if schema is None else _read_schema(schema, type_column, columns_in(order_by))
    try:
        return ceql.compile(text, columns, time_column=time_column, order_by=columns_in(order_by))
    except CeqlError as error:
        fail(f"{file}: {error}")


def _read_schema(path: Path, type_column: str | None, order_by: list[str]) -> pa.Schema:
    """Return the columns of a file, or end the command if it lacks those that options name."""
    try:
        schema = read_events(path).schema
        for name in [*([type_column] if type_column else []), *order_by]:
            if name not in schema.names:
                raise missing_column(name, schema.names)
        if type_column and kind_of(schema.field(type_column).type) is not Kind.STRING:
            raise DataError(f"the type column '{type_column}' is of type {schema.field(type_column).type}, not string")
    except FileError as error:
        fail(str(error), WRONG_DATA)
    except DataError as error:
        fail(f"{path}: {error}", WRONG_DATA)
    return schema
