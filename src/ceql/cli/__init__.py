"""The command line: thin wrappers around the library, one function per command."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

import ceql
from ceql.backends.files import FileError, read_events
from ceql.backends.json_lines import json_line
from ceql.cli.arguments import (
    OrderBy,
    ParamFile,
    Params,
    QueryFile,
    TimeColumn,
    TypeColumn,
    columns_in,
    read_params,
    read_query,
)
from ceql.cli.bench import bench
from ceql.cli.datasets import datasets
from ceql.cli.demo import demo
from ceql.cli.exits import EXIT_CODES, EXIT_CODES_OF_STREAMS, WRONG_DATA, WRONG_QUERY, fail, in_words_of_options
from ceql.cli.generate import generate
from ceql.cli.help_text import Command, Group
from ceql.cli.request import warnings_told
from ceql.cli.run import run
from ceql.cli.show import show
from ceql.cli.stream import stream
from ceql.cli.terminal import say, tell
from ceql.engine.intake.batch import check_type_column, missing_column
from ceql.errors import CeqlError, DataError, QueryError

__all__ = ["app"]

app = typer.Typer(
    cls=Group,
    name="ceql",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=Command, epilog=EXIT_CODES)(run)
app.command(cls=Command, epilog=EXIT_CODES_OF_STREAMS)(stream)
app.command(cls=Command)(show)
app.command(cls=Command, epilog=EXIT_CODES)(demo)
app.add_typer(bench)
app.add_typer(datasets)
app.command(cls=Command, epilog=EXIT_CODES)(generate)

SchemaFile = Annotated[
    Path | None,
    typer.Option("--schema", help="Parquet, Arrow, CSV or JSON lines file whose columns are the events' attributes."),
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
    svg = "svg"


def _print_version(is_asked: bool) -> None:  # noqa: FBT001
    if is_asked:
        say(f"ceql {ceql.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[  # noqa: FBT002
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Find every set of events in a stream that satisfies a pattern.

    \b
    Examples:
      ceql demo
      ceql check fraud.ceql --schema trades.parquet
      ceql run fraud.ceql --input trades.parquet --output fraud.parquet
      ceql show fraud.parquet --open
    """  # noqa: D301 - the backspace keeps lines as they are


@app.command(cls=Command)
def check(  # noqa: PLR0917
    file: QueryFile,
    schema: SchemaFile = None,
    type_column: TypeColumn = "type",
    time_column: TimeColumn = None,
    order_by: OrderBy = "",
    param: Params = [],  # noqa: B006
    param_file: ParamFile = None,
    json: Annotated[  # noqa: FBT002
        bool,
        typer.Option("--json", help="Print the result as JSON: the mistake with its place, or the columns of matches."),
    ] = False,
) -> None:
    """Check a query: exit code 0 if it is right, else 1, with the mistake on stderr.

    \b
    Examples:
      ceql check fraud.ceql
      ceql check fraud.ceql --schema trades.parquet
      ceql check fraud.ceql --json
    """  # noqa: D301 - the backspace keeps lines as they are
    params = read_params(param, param_file)
    if json:
        _check_as_json(file, schema, type_column, time_column, order_by, params)
        return
    query = _compiled(file, schema, type_column, time_column, order_by, params)
    say(f"{file}: ok")
    _note_unknown_types(query)


def _check_as_json(
    file: Path, schema: Path | None, type_column: str, time_column: str | None, order_by: str, params: dict[str, object]
) -> None:
    columns = None if schema is None else _read_schema(schema, type_column, columns_in(order_by))
    try:
        with warnings_told():
            query = ceql.compile(
                read_query(file), columns, time_column=time_column, order_by=columns_in(order_by), params=params
            )
    except QueryError as error:
        place = {"line": error.line, "column": error.column}
        say(json_line({"ok": False, "message": error.message, **place, "hint": error.hint}))
        raise typer.Exit(WRONG_QUERY) from None
    shown = {field.name: str(field.type) for field in query.result_schema}
    say(json_line({"ok": True, "columns": shown}))


def _note_unknown_types(query: ceql.Query) -> None:
    if query.schema.is_unknown and not query.plan.declared:
        note = "names and types of attributes are not known: give --schema, or declare them with CREATE STREAM"
        tell(f"note: {note}")


@app.command(cls=Command)
def explain(  # noqa: PLR0917
    file: QueryFile,
    schema: SchemaFile = None,
    type_column: TypeColumn = "type",
    time_column: TimeColumn = None,
    order_by: OrderBy = "",
    param: Params = [],  # noqa: B006
    param_file: ParamFile = None,
    stage: Annotated[Stage, typer.Option(help="What to show; the plan says what the query costs.")] = Stage.plan,
    format: Annotated[
        Format, typer.Option(help="Text, a graph for Graphviz or Mermaid, or a picture of the automaton.")
    ] = Format.text,
) -> None:
    """Show how ceql reads a query, and what it costs per event.

    \b
    Examples:
      ceql explain fraud.ceql
      ceql explain fraud.ceql --format svg > fraud.svg
      ceql explain fraud.ceql --stage automaton --format dot | dot -Tpdf > fraud.pdf
    """  # noqa: D301 - the backspace keeps lines as they are
    if stage is Stage.ast and format is Format.svg:
        raise typer.BadParameter("only the automaton is drawn: use --stage automaton", param_hint="--format")
    query = _compiled(file, schema, type_column, time_column, order_by, read_params(param, param_file))
    try:
        say(query.explain(stage.value, format=format.value))
    except CeqlError as error:
        fail(f"{file}: {error}")
    _note_unknown_types(query)


def _compiled(
    file: Path, schema: Path | None, type_column: str, time_column: str | None, order_by: str, params: dict[str, object]
) -> ceql.Query:
    text = read_query(file)
    columns = None if schema is None else _read_schema(schema, type_column, columns_in(order_by))
    try:
        with warnings_told():
            return ceql.compile(text, columns, time_column=time_column, order_by=columns_in(order_by), params=params)
    except CeqlError as error:
        fail(f"{file}: {error}")


def _read_schema(path: Path, type_column: str, order_by: list[str]) -> pa.Schema:
    """Return the columns of a file, or end the command if a column that an option names is missing."""
    try:
        schema = read_events(path).schema
        for name in order_by:
            if name not in schema.names:
                raise missing_column(name, schema.names)
        if type_column:
            check_type_column(type_column, schema)
    except FileError as error:
        fail(str(error), WRONG_DATA)
    except DataError as error:
        fail(f"{path}: {in_words_of_options(error)}", WRONG_DATA)
    return schema
