"""The command `stream`: its options, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

import typer

from ceql.backends.files import FileError
from ceql.backends.spark.durations import is_duration
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
from ceql.cli.exits import WRONG_DATA, cancellation_told, fail, in_words_of_options, spark_troubles_told
from ceql.cli.request import Request, note_many_matches, pairs, paths_by_stream, spark_settings
from ceql.errors import CeqlError, QueryError, SnapshotError

AVAILABLE_NOW = "available-now"
DEFAULT_WATERMARK = "10 seconds"

OrderingName = Literal["time", "arrival"]


class StreamShape(StrEnum):
    """What a row of the result is."""

    matches = "matches"
    events = "events"


class Ordering(StrEnum):
    """What events wait for."""

    time = "time"
    arrival = "arrival"


@dataclass(frozen=True)
class StreamRequest(Request):
    """A query over files that keep coming. If `trigger` is None, files are read as soon as they come."""

    checkpoint: str
    schema: str | None
    watermark: str
    ordering: OrderingName
    unbounded: bool
    max_files: int | None
    trigger: str | None
    bad_records: str | None


@cancellation_told()
def stream(  # noqa: PLR0917
    file: QueryFile,
    input: Annotated[
        list[str],
        typer.Option(
            "--input",
            "-i",
            metavar="[STREAM=]PATH",
            help="Folder or quoted glob pattern where files of events arrive; with several streams in FROM, one each.",
        ),
    ],
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="PATH", help="Folder to which the files of matches are added."),
    ],
    checkpoint: Annotated[
        str,
        typer.Option(
            metavar="PATH", help="Folder that remembers how far the stream was read; a new run with it continues there."
        ),
    ],
    master: Master = None,
    format: Annotated[
        str | None,
        typer.Option(metavar="FORMAT", help="Format of the input: parquet, csv, json or any that Spark streams."),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help="Columns of the input: 'type STRING, at TIMESTAMP, ...'; by default from the files in the folder.",
        ),
    ] = None,
    option: ReaderOptions = [],  # noqa: B006
    output_format: OutputFormat = None,
    type_column: TypeColumn = "type",
    time_column: TimeColumn = None,
    order_by: OrderBy = "",
    param: Params = [],  # noqa: B006
    param_file: ParamFile = None,
    watermark: Annotated[
        str,
        typer.Option(metavar="DURATION", help="How late an event may be, compared with the latest event so far."),
    ] = DEFAULT_WATERMARK,
    ordering: Annotated[
        Ordering,
        typer.Option(
            help="time: events wait for the watermark and come in time order; arrival: they are taken as they come."
        ),
    ] = Ordering.time,
    trigger: Annotated[
        str | None,
        typer.Option(
            metavar=f"DURATION|{AVAILABLE_NOW}",
            help=f"How often to look for new files, by default all the time; {AVAILABLE_NOW} reads these and stops.",
        ),
    ] = None,
    max_files_per_trigger: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The most files to take at once, by default all new files.")
    ] = None,
    bad_records: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Folder for the rows, as Parquet, that are left out because Python cannot hold them.",
        ),
    ] = None,
    shape: Annotated[StreamShape, typer.Option(help="A row per match or per matched event.")] = StreamShape.matches,
    unbounded: Annotated[  # noqa: FBT002
        bool, typer.Option("--unbounded", help="Allow a query without WITHIN, whose state grows for ever.")
    ] = False,
    conf: SparkSettings = [],  # noqa: B006
    verbose: Verbose = False,  # noqa: FBT002
) -> None:
    """Find the matches of a query in files that keep arriving in a folder, until you stop it.

    \b
    Examples:
      ceql stream fraud.ceql --input trades --output fraud --checkpoint state
      ceql stream fraud.ceql -i trades -o fraud --checkpoint state \\
        --trigger available-now
      ceql stream fraud.ceql -i 'trades/*.json' -o fraud.json --checkpoint state \\
        --time-column at --schema 'type STRING, account LONG, at TIMESTAMP' \\
        --watermark '2 minutes' --trigger '5 seconds'
    """  # noqa: D301 - the backspace keeps lines as they are
    check_master(master)
    _check_duration(watermark, "--watermark", DEFAULT_WATERMARK)
    if trigger is not None and trigger != AVAILABLE_NOW:
        _check_duration(trigger, "--trigger", f"5 seconds, or {AVAILABLE_NOW}")
    text = read_query(file)
    try:
        request = StreamRequest(
            text=text,
            params=read_params(param, param_file),
            streams=_one_path_each(paths_by_stream(text, input)),
            output=output,
            type_column=type_column or None,
            time_column=time_column,
            order_by=columns_in(order_by),
            shape=shape.value,
            sort=False,
            complete=False,
            format=format,
            options=pairs(option, "--option"),
            output_format=output_format,
            mode="append",
            master=master,
            conf=spark_settings(conf),
            plan="auto",
            is_verbose=verbose,
            as_json=False,
            checkpoint=checkpoint,
            schema=schema,
            watermark=watermark,
            ordering=ordering.value,
            unbounded=unbounded,
            max_files=max_files_per_trigger,
            trigger=trigger,
            bad_records=bad_records,
        )
        note_many_matches(request)
        code = _on_spark(request)
    except QueryError as error:
        fail(f"{file}: {error}")
    except FileError as error:
        fail(in_words_of_options(error), WRONG_DATA)
    except SnapshotError as error:
        fail(f"{checkpoint}: {error}", WRONG_DATA)
    except CeqlError as error:
        fail(f"{', '.join(input)}: {in_words_of_options(error)}", WRONG_DATA)
    raise typer.Exit(code)


def _one_path_each(streams: dict[str, list[str]]) -> dict[str, list[str]]:
    for name, paths in streams.items():
        if len(paths) > 1:
            raise typer.BadParameter(
                f"the stream {name} has {len(paths)}: name one folder or pattern for it", param_hint="--input"
            )
    return streams


def _check_duration(text: str, option: str, example: str) -> None:
    if not is_duration(text):
        raise typer.BadParameter(f"'{text}' is not a duration: write it as {example}", param_hint=option)


def _on_spark(request: StreamRequest) -> int:
    with spark_troubles_told("Spark could not continue", in_full=request.is_verbose):
        from ceql.cli.stream_on_spark import run_stream

        return run_stream(request)
