"""The command `run`: its options, and how it ends."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ceql.backends.files import FileError
from ceql.cli.arguments import (
    Master,
    OrderBy,
    OutputFormat,
    ParamFile,
    Params,
    QueryFile,
    ReaderOptions,
    SparkSettings,
    TimeColumn,
    TypeColumn,
    Verbose,
    check_master,
    columns_in,
    read_params,
    read_query,
)
from ceql.cli.exits import (
    WRONG_DATA,
    cancellation_told,
    fail,
    in_words_of_options,
    spark_troubles_told,
    until_nobody_reads,
)
from ceql.cli.local import run_locally
from ceql.cli.request import Request, note_many_matches, pairs, paths_by_stream, spark_settings, warnings_told
from ceql.cli.summary import Summary
from ceql.cli.terminal import say, tell
from ceql.errors import CeqlError, QueryError


class Engine(StrEnum):
    """What runs a query."""

    spark = "spark"
    local = "local"


class Shape(StrEnum):
    """What a row of the result is."""

    matches = "matches"
    events = "events"
    positions = "positions"


class Plan(StrEnum):
    """How Spark divides the work."""

    auto = "auto"
    keys = "keys"
    shards = "shards"
    single = "single"


class Mode(StrEnum):
    """What to do if the output exists already."""

    error = "error"
    overwrite = "overwrite"
    append = "append"


@cancellation_told()
def run(  # noqa: PLR0917
    file: QueryFile,
    input: Annotated[
        list[str],
        typer.Option(
            "--input",
            "-i",
            metavar="[STREAM=]PATH",
            help="File, folder or quoted glob pattern of events; with several streams in FROM, one for each by name.",
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="Where the matches go: with Spark a folder of files, with --engine local one file. "
            "Without it, the first 20 are shown.",
        ),
    ] = None,
    engine: Annotated[Engine, typer.Option(help="Spark, or this process alone, without Java.")] = Engine.spark,
    master: Master = None,
    format: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="Format of the input: parquet, csv, json, delta or any that Spark has; by default from the suffix.",
        ),
    ] = None,
    option: ReaderOptions = [],  # noqa: B006
    output_format: OutputFormat = None,
    mode: Annotated[Mode, typer.Option(help="What to do if the output exists already.")] = Mode.error,
    type_column: TypeColumn = "type",
    time_column: TimeColumn = None,
    order_by: OrderBy = "",
    param: Params = [],  # noqa: B006
    param_file: ParamFile = None,
    shape: Annotated[
        Shape, typer.Option(help="A row per match or per matched event; row numbers with --engine local.")
    ] = Shape.matches,
    sort: Annotated[  # noqa: FBT002
        bool, typer.Option("--sort", help="Sort the events by time first; Spark always does.")
    ] = False,
    complete: Annotated[  # noqa: FBT002
        bool,
        typer.Option("--complete", help="Nothing comes after these events: NOT ... FOR may last beyond the last one."),
    ] = False,
    plan: Annotated[
        Plan, typer.Option(help="How Spark divides the work: by PARTITION BY, by time, or not at all.")
    ] = Plan.auto,
    conf: SparkSettings = [],  # noqa: B006
    verbose: Verbose = False,  # noqa: FBT002
    json: Annotated[  # noqa: FBT002
        bool,
        typer.Option("--json", help="Print all matches as lines of JSON; with --output, the summary as JSON."),
    ] = False,
) -> None:
    """Find the matches of a query in files of events, on Spark.

    \b
    Examples:
      ceql run fraud.ceql --input trades.parquet
      ceql run fraud.ceql --input trades.parquet --output fraud.parquet
      ceql run fraud.ceql -i 'trades/*.csv' --option delimiter=';' -o fraud.json --time-column at
      ceql run both.ceql -i Buys=buys.parquet -i Sells=sells.parquet -o both --mode overwrite
      ceql run fraud.ceql -i trades.csv -o fraud.jsonl --engine local
      ceql run fraud.ceql -i trades.parquet --json | head
    """  # noqa: D301 - the backspace keeps lines as they are
    if output == "-":
        raise typer.BadParameter("name a file or folder; without it the first matches are shown", param_hint="--output")
    if engine is Engine.spark and shape is Shape.positions:
        raise typer.BadParameter(
            "rows of a distributed stream have no numbers: use --engine local", param_hint="--shape"
        )
    check_master(master)
    text = read_query(file)
    try:
        request = Request(
            text=text,
            params=read_params(param, param_file),
            streams=paths_by_stream(text, input),
            output=output,
            type_column=type_column or None,
            time_column=time_column,
            order_by=columns_in(order_by),
            shape=shape.value,
            sort=sort,
            complete=complete,
            format=format,
            options=pairs(option, "--option"),
            output_format=output_format,
            mode=mode.value,
            master=master,
            conf=spark_settings(conf),
            plan=plan.value,
            is_verbose=verbose,
            as_json=json,
        )
        note_many_matches(request)
        with until_nobody_reads():
            summary = run_locally(request) if engine is Engine.local else on_spark(request)
    except QueryError as error:
        fail(f"{file}: {error}")
    except FileError as error:
        fail(in_words_of_options(error), WRONG_DATA)
    except CeqlError as error:
        fail(f"{', '.join(input)}: {in_words_of_options(error)}", WRONG_DATA)
    with until_nobody_reads():
        if json and output is not None:
            say(summary.as_json())
        else:
            tell(summary.text())


def on_spark(request: Request) -> Summary:
    """Run on Spark; if Spark cannot, end the command with a hint."""
    trouble = "Spark could not finish"
    with warnings_told(), spark_troubles_told(trouble, "use --engine local", in_full=request.is_verbose):
        from ceql.cli.on_spark import run_on_spark

        return run_on_spark(request)
