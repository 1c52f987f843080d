"""`ceql run` on Spark: from files to files, or to the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's own documentation writes it

import ceql.spark
from ceql.backends.json_lines import shown_json
from ceql.backends.spark_files import check_output, output_format, read_frame, without_leftovers, write_frame
from ceql.backends.spark_lines import json_lines, write_lines
from ceql.backends.spark_paths import check_there
from ceql.backends.spark_predicates import quoted
from ceql.cli.exits import until_nobody_reads
from ceql.cli.preview import N_SHOWN, show_rows
from ceql.cli.request import Request, note_unseen_types
from ceql.cli.spark_jobs import is_on_this_machine, run_job, runs_in_this_process
from ceql.cli.summary import Summary
from ceql.cli.terminal import tell

MAX_TYPES = 1000
"""Event types that are looked at where none of a query's seems to be there."""


def run_on_spark(request: Request) -> Summary:
    """Run a query, and write or show its matches."""
    began = time.perf_counter()
    for paths in request.streams.values():
        check_there(paths, request.format, master=request.master, conf=request.conf)
    if request.output is not None:
        # Refuses what Spark has no format for, before it starts.
        output_format(request.output, request.output_format)
    with nullcontext() if request.output is None else without_leftovers(request.output):
        names, found = run_job(
            lambda spark: _run(request, spark),
            master=request.master,
            conf=request.conf,
            is_verbose=request.is_verbose,
            prints_results=request.prints_matches,
        )
    if not isinstance(found, int):
        show_rows(names, found)
    n_rows = found if isinstance(found, int) else len(found)
    return Summary(
        engine="spark",
        shape=request.shape,
        rows=n_rows,
        seconds=time.perf_counter() - began,
        output=request.written_to,
        is_cut=not isinstance(found, int) and n_rows > N_SHOWN,
    )


def _run(request: Request, spark: SparkSession) -> tuple[Sequence[str], int | list[dict[str, Any]]]:
    """Return the columns, and how many rows were written or those to be shown."""
    inputs = [path for paths in request.streams.values() for path in paths]
    if request.output is not None and is_on_this_machine(spark, request.output):
        check_output(request.output, request.mode, inputs)
    events = {stream: _events(request, spark, stream) for stream in request.streams}
    options: dict[str, Any] = {
        "type_column": request.type_column,
        "time_column": request.time_column,
        "order_by": request.order_by,
        "plan": request.plan,
    }
    if request.is_verbose:
        tell(ceql.spark.explain(request.text, events, **options))
    rows = ceql.spark.match(request.text, events, shape=request.shape, **options)
    found: int | list[dict[str, Any]]
    if request.output is not None:
        found = _written(request, rows, request.output)
    elif request.prints_matches:
        found = _print_all(rows)
    else:
        # One more than is shown tells whether there are more.
        found = rows.limit(N_SHOWN + 1).toArrow().to_pylist()
    if found in (0, []):
        note_unseen_types(request.text, _types(request, events))
    return rows.columns, found


def _written(request: Request, rows: DataFrame, output: str) -> int:
    """Return how many rows were written."""
    observation = Observation()
    observed = rows.observe(observation, F.count(F.lit(1)).alias("rows"))
    write_frame(observed, output, format=request.output_format, mode=request.mode)
    # Where Spark finds on the way that there is nothing to do, it observes nothing.
    return int(observation.get.get("rows", 0))


def _types(request: Request, events: Mapping[str, DataFrame]) -> Iterator[str | None]:
    """Yield the types of the events."""
    if request.type_column is None:
        yield from events
        return
    for frame in events.values():
        for (event_type,) in frame.select(quoted(request.type_column)).distinct().limit(MAX_TYPES).collect():
            yield event_type


def _print_all(rows: DataFrame) -> int:
    """Print all rows as JSON; on a cluster this process holds those of one task at a time."""
    lines, n_rows = json_lines(rows), 0
    # Here, because a broken pipe elsewhere means that Spark is gone.
    with until_nobody_reads():
        if runs_in_this_process(rows.sparkSession):
            return write_lines(lines, sys.stdout.buffer)
        for (line,) in lines.toLocalIterator():
            sys.stdout.write(f"{shown_json(line)}\n")
            n_rows += 1
    return n_rows


def _events(request: Request, spark: SparkSession, stream: str) -> DataFrame:
    return read_frame(
        spark,
        request.streams[stream],
        format=request.format,
        options=request.options,
        declared=request.column_types(stream),
        is_complete=request.declares_all(stream),
    )
