"""The command line: thin wrappers around the library, one function per command."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import typer
from rich.console import Console

import ceql
from ceql.errors import CeqlError

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
    if query.schema.is_unknown and not query.tree.declarations:
        hint = "names and types of attributes were not checked: give --schema, or declare them with CREATE STREAM"
        typer.echo(f"note: {hint}", err=True)


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
    typer.echo(_compiled(file, schema, time_column).explain(stage.value, format=format.value))


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


_SCHEMA_READERS = {
    ".parquet": pa.parquet.read_schema,
    ".arrow": lambda path: pa.ipc.open_file(path).schema,
    ".feather": lambda path: pa.ipc.open_file(path).schema,
    ".csv": lambda path: pa.csv.open_csv(path).schema,
    ".json": lambda path: pa.json.open_json(path).schema,
    ".jsonl": lambda path: pa.json.open_json(path).schema,
    ".ndjson": lambda path: pa.json.open_json(path).schema,
}


def _read_schema(path: Path) -> pa.Schema:
    reader = _SCHEMA_READERS.get(path.suffix.lower())
    if reader is None:
        _fail(f"cannot tell the format of {path} by its suffix: use one of {', '.join(_SCHEMA_READERS)}")
    try:
        return reader(str(path))
    except (OSError, pa.ArrowInvalid) as error:
        _fail(f"cannot read the schema of {path}: {error}")


def _fail(message: str) -> NoReturn:
    Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(message)
    raise typer.Exit(1)
