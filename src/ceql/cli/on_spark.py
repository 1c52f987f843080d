"""`ceql run` on Spark: from files to files, or to the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's own documentation writes it
from pyspark.sql.types import DoubleType, FloatType

import ceql.spark
from ceql.backends.files import format_of
from ceql.backends.json_lines import shown_json
from ceql.backends.spark.batch import match, plan_job
from ceql.backends.spark.files import check_output, output_format, read_frame, without_leftovers, write_frame
from ceql.backends.spark.lines import json_lines, write_lines
from ceql.backends.spark.paths import check_there
from ceql.backends.spark.predicates import quoted
from ceql.backends.spark.query import prepare
from ceql.cli.exits import until_nobody_reads
from ceql.cli.preview import N_SHOWN, show_rows
from ceql.cli.request import Request, attributes_wanted, note_dropped, note_unseen_types
from ceql.cli.spark_jobs import counter_of, is_on_this_machine, run_job, runs_in_this_process
from ceql.cli.summary import Summary
from ceql.cli.terminal import tell
from ceql.engine.notes import tied_events
from ceql.errors import CeqlError, warn
from ceql.syntax.plan import Plan

SECONDS_TO_TELL = 2.0
"""How long to wait for Spark's observation after a job."""

MAX_TYPES = 1000
"""How many event types to look at if none of the query's types seems to occur."""


def run_on_spark(request: Request) -> Summary:
    """Run a query, and write or show its matches."""
    began = time.perf_counter()
    for paths in request.streams.values():
        check_there(paths, request.format, master=request.master, conf=request.conf)
    if request.output is not None:
        # Refuses what Spark has no format for, before it starts.
        output_format(request.output, request.output_format)
    with nullcontext() if request.output is None else without_leftovers(request.output):
        names, found, dropped = run_job(
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
        dropped=dropped,
        output=request.written_to,
        is_cut=not isinstance(found, int) and n_rows > N_SHOWN,
    )


def _run(request: Request, spark: SparkSession) -> tuple[Sequence[str], int | list[dict[str, Any]], int | None]:
    """Return the columns, the number of written rows or the rows to show, and how many events were left out."""
    inputs = [path for paths in request.streams.values() for path in paths]
    if request.output is not None and is_on_this_machine(spark, request.output):
        check_output(request.output, request.mode, inputs)
    events = {stream: _events(request, spark, stream) for stream in request.streams}
    options: dict[str, Any] = {
        "type_column": request.type_column,
        "time_column": request.time_column,
        "order_by": request.order_by,
        "params": request.params,
        "plan": request.plan,
    }
    if request.is_verbose:
        tell(ceql.spark.explain(request.text, events, **options))
    counter = _DropCounter(request, events)
    plan = options.pop("plan")
    job = plan_job(
        prepare(request.text, counter.events, shape=request.shape, **options), plan, complete=request.complete
    )
    n_tied = counter_of(spark)
    rows = match(job, n_tied)
    found: int | list[dict[str, Any]]
    if request.output is not None:
        found = _written(request, rows, request.output)
    elif request.prints_matches:
        found = _print_all(rows)
    else:
        # One more row than is shown says whether there are more.
        found = rows.limit(N_SHOWN + 1).toArrow().to_pylist()
    dropped = counter.note()
    if n_tied is not None and n_tied.value:
        warn(tied_events(n_tied.value, job.query.plan.order))
    if found in (0, []):
        note_unseen_types(request, _types(request, events))
    return rows.columns, found, dropped


class _DropCounter:
    """Counts the events without a partition key or a time while Spark reads them, if that costs nothing.

    This is only for text, which Spark reads whole: an observation would keep it from skipping parts of other files.
    """

    def __init__(self, request: Request, events: Mapping[str, DataFrame]) -> None:
        self._plan: Plan | None = None
        self._observations: list[Observation] = []
        self.events = events
        schema = dict(events) if len(events) > 1 else next(iter(events.values()))
        # The run itself reports mistakes in the query.
        with suppress(CeqlError):
            query = ceql.compile(
                request.text,
                schema,
                time_column=request.time_column,
                order_by=request.order_by,
                params=request.params,
            )
            self._plan = query.plan
            self.events = {stream: self._observed(request, query.plan, stream) for stream in events}

    def _observed(self, request: Request, query: Plan, stream: str) -> DataFrame:
        frame = self.events[stream]
        formats = {request.format or format_of(name) for name in frame.inputFiles()}
        is_left_out = list(_is_left_out(query, stream, frame, request.type_column))
        if not is_left_out or not formats <= {"csv", "json"}:
            return frame
        observation = Observation()
        self._observations.append(observation)
        return frame.observe(observation, F.count_if(reduce(or_, is_left_out)).alias("dropped"))

    def note(self) -> int | None:
        """Warn of events that were left out; return how many, None if they were not counted."""
        counts = [_told(observation) for observation in self._observations]
        if self._plan is None or not counts or None in counts:
            return None
        n_dropped = sum(count for count in counts if count is not None)
        note_dropped(self._plan, n_dropped)
        return n_dropped


def _is_left_out(query: Plan, stream: str, frame: DataFrame, type_column: str | None) -> Iterator[Column]:
    """Yield why an event of a stream is left out: it has no partition key or no time, or its type has none."""
    types = F.lit(stream) if type_column is None else F.col(quoted(type_column))
    declared = [one for source, one in query.declared if source == stream]
    for name, clause in attributes_wanted(query).items():
        if name not in frame.columns:
            yield F.lit(True)  # noqa: FBT003
            continue
        yield F.col(quoted(name)).isNull()
        if lacking := [one for one in declared if name in query.lacked_by(stream, one)]:
            yield types.isin(lacking)
        if clause in ("WITHIN", "FOR") and isinstance(frame.schema[name].dataType, DoubleType | FloatType):
            yield F.isnan(quoted(name))


def _told(observation: Observation) -> int | None:
    """Return the observation; None if Spark gives none, for example because there was nothing to do."""
    until = time.monotonic() + SECONDS_TO_TELL
    with suppress(Exception):
        told = observation._jo.future()  # type: ignore[union-attr]
        # Waiting for the count itself might never end.
        while not told.isCompleted() and time.monotonic() < until:
            time.sleep(0.01)
        return int(observation.get["dropped"]) if told.isCompleted() else None
    return None


def _written(request: Request, rows: DataFrame, output: str) -> int:
    """Return how many rows were written."""
    observation = Observation()
    observed = rows.observe(observation, F.count(F.lit(1)).alias("rows"))
    write_frame(observed, output, format=request.output_format, mode=request.mode)
    # If Spark finds that there is nothing to do, it observes nothing.
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
