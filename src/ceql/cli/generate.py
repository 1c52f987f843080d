"""The command `generate`: its options, and the writing of events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ceql.backends.files import FileError, write_rows
from ceql.cli.arguments import Master, SparkSettings, check_master
from ceql.cli.exits import WRONG_DATA, cancellation_told, fail, reason, spark_troubles_told
from ceql.cli.request import spark_settings
from ceql.cli.terminal import bar, tell
from ceql.datasets import generate as streams
from ceql.errors import CeqlError


class Dataset(StrEnum):
    """A synthetic stream."""

    stocks = "stocks"
    smart_homes = "smart-homes"
    taxis = "taxis"


class Engine(StrEnum):
    """What writes the events."""

    local = "local"
    spark = "spark"


@cancellation_told()
def generate(
    dataset: Annotated[Dataset, typer.Argument(help="The kind of events.")],
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="File to write, with Spark a folder; the suffix gives the format. Existing output is replaced.",
        ),
    ],
    *,
    events: Annotated[int, typer.Option(min=0, help="How many events.")] = 1_000_000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same events.")] = 0,
    engine: Annotated[
        Engine | None, typer.Option(help="Spark, or this process alone; Spark if --master or --conf is given.")
    ] = None,
    master: Master = None,
    conf: SparkSettings = [],  # noqa: B006
) -> None:
    """Write a synthetic stream of events: stock trades, loads of smart plugs, or taxi trips.

    \b
    Examples:
      ceql generate stocks --events 1000000 --out stocks.parquet
      ceql generate taxis --events 10000 --seed 7 --out taxis.csv
      ceql generate smart-homes --events 100000000 --out homes --engine spark
      ceql generate stocks --events 1000000000 --out s3a://b/stocks --master yarn

    Events come in time order. They do not depend on the engine, the cores or the number of files. A longer stream with
    the same seed begins with the same events.
    """  # noqa: D301 - the backspace keeps lines as they are
    check_master(master)
    is_for_spark = bool(master or conf)
    if engine is Engine.local and is_for_spark:
        raise typer.BadParameter("--master and --conf are for --engine spark", param_hint="--engine")
    began = time.perf_counter()
    try:
        if engine is Engine.spark or is_for_spark:
            _write_on_spark(out, dataset, events, seed, master=master, conf=spark_settings(conf))
        else:
            _write_locally(Path(out), dataset, events, seed)
    except FileError as error:
        fail(str(error), WRONG_DATA)
    except (CeqlError, OSError) as error:
        fail(f"cannot write {out}: {reason(error)}", WRONG_DATA)
    tell(f"{events:,} {dataset.value} events in {out}, {time.perf_counter() - began:.2f} s")


def _write_locally(out: Path, dataset: Dataset, n_events: int, seed: int) -> None:
    with write_rows(out, streams.schema(dataset)) as writer, _progress(n_events) as show:
        for batch in streams.events(dataset, n_events, seed):
            writer.write_batch(batch)
            show(len(batch))


def _write_on_spark(
    out: str, dataset: Dataset, n_events: int, seed: int, *, master: str | None, conf: dict[str, str]
) -> None:
    with spark_troubles_told("Spark could not finish", "use --engine local", in_full=False):
        from ceql.cli.generate_on_spark import write_on_spark

        write_on_spark(out, dataset.value, n_events, seed, master=master, conf=conf)


@contextmanager
def _progress(n_events: int) -> Iterator[Callable[[int], None]]:
    """Show how many events were written."""
    with bar("{task.completed:,} events") as progress:
        task = progress.add_task("events", total=n_events)
        yield lambda n: progress.advance(task, n)
