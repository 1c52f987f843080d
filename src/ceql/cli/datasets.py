"""The commands `datasets`: event streams from the published data sets of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ceql.backends.files import FileError
from ceql.backends.json_lines import json_line
from ceql.backends.spark.paths import check_there
from ceql.cli.arguments import Master, SparkSettings, Verbose, check_master
from ceql.cli.exits import EXIT_CODES, NO_SPARK, WRONG_DATA, cancellation_told, fail, spark_troubles_told
from ceql.cli.help_text import Command, Group
from ceql.cli.request import spark_settings
from ceql.cli.terminal import say, tell
from ceql.errors import CeqlError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ceql.datasets.prepare.event_stream import Counts, EventStream
    from ceql.datasets.prepare.zones import Zones

datasets = typer.Typer(cls=Group, name="datasets", help="Prepare the data sets of the paper.", no_args_is_help=True)


class Published(StrEnum):
    """A data set of the paper."""

    stocks = "stocks"
    smart_homes = "smart-homes"
    taxis = "taxis"


class PrepareMode(StrEnum):
    """What to do if the output exists already."""

    error = "error"
    overwrite = "overwrite"


@dataclass(frozen=True)
class _Settings:
    """What to prepare, and the settings of its Spark session, named as those of other commands are."""

    dataset: Published
    raw: str
    out: str
    house: int | None
    zones: Path | None
    mode: PrepareMode
    master: str | None
    conf: Mapping[str, str]
    is_verbose: bool


@datasets.callback()
def main() -> None:
    """Prepare the data sets of the paper."""


@datasets.command(cls=Command, epilog=EXIT_CODES)
@cancellation_told()
def prepare(  # noqa: PLR0917
    dataset: Annotated[Published, typer.Argument(help="Which data set the raw files are.")],
    raw: Annotated[
        str, typer.Option(metavar="PATH", help="File, folder or quoted glob pattern in the published form.")
    ],
    out: Annotated[
        str,
        typer.Option("--out", "-o", metavar="PATH", help="Folder for the stream; wrong rows go to PATH.rejected."),
    ],
    house: Annotated[
        int | None, typer.Option(min=0, help="For smart-homes, the house; by default 28, as in the paper.")
    ] = None,
    zones: Annotated[
        Path | None, typer.Option(metavar="GEOJSON", help="For taxis, the zones of New York, with their names.")
    ] = None,
    mode: Annotated[PrepareMode, typer.Option(help="What to do if the output exists already.")] = PrepareMode.error,
    master: Master = None,
    conf: SparkSettings = [],  # noqa: B006
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON on standard output.")] = False,  # noqa: FBT002
    verbose: Verbose = False,  # noqa: FBT002
) -> None:
    """Turn a published data set into an event stream, on Spark.

    The stream is a folder of Parquet files in time order. Wrong rows are counted, and written to a folder beside it,
    each with its reason.

    \b
    Examples:
      ceql datasets prepare stocks --raw stock_data.csv.gz --out stocks.parquet
      ceql datasets prepare smart-homes --raw sorted.csv --out homes.parquet --house 28
      ceql datasets prepare taxis --raw 'trips/*.csv' --zones taxi_zones.geojson --out taxis.parquet
    """  # noqa: D301 - the backspace keeps lines as they are
    _check_options(dataset, house, zones)
    check_master(master)
    settings = _Settings(dataset, raw, out, house, zones, mode, master, spark_settings(conf), verbose)
    try:
        with spark_troubles_told("Spark could not finish", in_full=verbose):
            summary = _prepared(settings)
    except FileError as error:
        fail(str(error), WRONG_DATA)
    except CeqlError as error:
        fail(f"{raw}: {error}", WRONG_DATA)
    tell(_told(summary))
    if as_json:
        say(json_line(summary))
    if summary["n_rejected"] and summary["n_rejected"] == summary["n_rows"]:
        fail(f"every row is wrong: is {raw} the published form of {dataset.value}?", WRONG_DATA)


def _check_options(dataset: Published, house: int | None, zones: Path | None) -> None:
    if house is not None and dataset is not Published.smart_homes:
        raise typer.BadParameter("only smart-homes has houses", param_hint="--house")
    if zones is not None and dataset is not Published.taxis:
        raise typer.BadParameter("only taxis has zones", param_hint="--zones")
    if zones is None and dataset is Published.taxis:
        raise typer.BadParameter("taxis needs the zones of New York, as GeoJSON", param_hint="--zones")


def _prepared(settings: _Settings) -> dict[str, Any]:
    """Return the summary of a data set that was prepared, with a progress bar meanwhile."""
    from ceql.cli.spark_jobs import run_job
    from ceql.datasets.prepare.event_stream import rejected_path

    check_there([settings.raw], "csv", master=settings.master, conf=settings.conf)
    zones = _zones(settings)
    counts = run_job(
        lambda spark: _written(settings, spark, zones),
        master=settings.master,
        conf=settings.conf,
        is_verbose=settings.is_verbose,
    )
    return {
        "dataset": settings.dataset.value,
        "raw": settings.raw,
        "out": settings.out,
        "rejected_out": rejected_path(settings.out),
        **counts.as_dict(),
        "rows_per_second": round(counts.n_rows / counts.seconds),
    }


def _zones(settings: _Settings) -> Zones | None:
    if settings.zones is None:
        return None
    try:
        from ceql.datasets.prepare.zones import read_zones
    except ModuleNotFoundError as error:
        if error.name != "shapely":
            raise
        fail("shapely is not installed: pip install 'ceql[datasets,spark]'", NO_SPARK)
    return read_zones(settings.zones)


def _written(settings: _Settings, spark: SparkSession, zones: Zones | None) -> Counts:
    from ceql.cli.spark_jobs import is_on_this_machine
    from ceql.datasets.prepare.event_stream import check_outputs, write_stream

    is_here = is_on_this_machine(spark, settings.out)
    if is_here:
        check_outputs(settings.out, settings.raw, settings.mode.value)
    stream = _stream(settings, spark, zones)
    return write_stream(stream, settings.out, mode=settings.mode.value, is_here=is_here)


def _stream(settings: _Settings, spark: SparkSession, zones: Zones | None) -> EventStream:
    from ceql.datasets.prepare.smart_homes import PAPER_HOUSE, load_events
    from ceql.datasets.prepare.stocks import stock_events

    if settings.dataset is Published.stocks:
        return stock_events(spark, settings.raw)
    if settings.dataset is Published.smart_homes:
        return load_events(spark, settings.raw, house=PAPER_HOUSE if settings.house is None else settings.house)
    from ceql.datasets.prepare.taxis import trip_events

    assert zones is not None
    return trip_events(spark, settings.raw, zones)


def _told(summary: Mapping[str, Any]) -> str:
    """Return a summary in words: one line, and one for each reason why rows were rejected."""
    n_rows, n_events, n_rejected = summary["n_rows"], summary["n_events"], summary["n_rejected"]
    n_others = n_rows - n_events - n_rejected
    others = f", {n_others:,} not of this stream" if n_others else ""
    speed = f"{summary['seconds']:.2f} s on Spark, {summary['rows_per_second']:,} rows/s"
    lines = [f"{n_rows:,} rows, {n_events:,} events in {summary['out']}{others}, {n_rejected:,} rejected, {speed}"]
    lines += [f"  {n:,} rejected: {reason}" for reason, n in summary["rejected"].items()]
    if n_rejected:
        lines.append(f"rejected rows are in {summary['rejected_out']}")
    if not n_events:
        why = f"there are no rows in {summary['raw']}" if not n_rows else "no row is an event of it"
        lines.append(f"note: the stream is empty: {why}")
    return "\n".join(lines)
