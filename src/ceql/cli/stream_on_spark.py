"""`ceql stream` on Spark: from files that arrive to files of matches, its status and how it is stopped."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any
from urllib.parse import quote

import typer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import NullType, StructType
from rich.filesize import decimal
from rich.text import Text

import ceql.spark
from ceql.backends.files import FileError
from ceql.backends.spark.failures import SPARK_ERRORS, explained
from ceql.backends.spark.files import (
    check_apart,
    check_checkpoint,
    check_not_a_file,
    has_files,
    output_format,
    read_frame,
    stream_frame,
    stream_writer,
)
from ceql.backends.spark.paths import check_there
from ceql.cli.exits import CANCELLED, TERMINATED
from ceql.cli.preview import counted, counted_events
from ceql.cli.spark_jobs import is_on_this_machine, session_for
from ceql.cli.stream import AVAILABLE_NOW, StreamRequest
from ceql.cli.terminal import live_line, tell
from ceql.engine.options import Shape

POLL_SECONDS = 0.3
SECONDS_TO_FINISH = 10
"""How long a micro-batch may still take after the stream was asked to stop."""
LIVE_LAG = timedelta(hours=1)
"""If the watermark is further behind the clock than this, the stream is history, and the delay means nothing."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def run_stream(request: StreamRequest) -> int:
    """Run a query until its stream ends or a signal stops it, print a summary, and return the exit code."""
    began = time.perf_counter()
    assert request.output is not None
    for paths in request.streams.values():
        check_there(paths, request.format, master=request.master, conf=request.conf, is_growing=True)
    # Refuses what Spark has no format for, before it starts.
    output_format(request.output, request.output_format)
    counts = Counts(request.shape)
    is_new = SparkSession.getActiveSession() is None
    with _status_line() as show:
        show("starting Spark")
        try:
            spark = session_for(request.master, request.conf, is_new=is_new, is_verbose=request.is_verbose)
            writers = _prepared(request, spark)
            with _stop_signals() as stop, _started(writers) as queries:
                show("waiting for events")
                _follow(queries, counts, stop, show)
        except SPARK_ERRORS as error:
            raise explained(error) from error
    tell(counts.summary(time.perf_counter() - began))
    return stop.exit_code


def _prepared(request: StreamRequest, spark: SparkSession) -> list[DataStreamWriter]:
    """Return what writes the matches, and after it what writes bad records, once they are started."""
    assert request.output is not None
    inputs = {stream: paths[0] for stream, paths in request.streams.items()}
    folders = {"output": request.output, "checkpoint": request.checkpoint}
    if request.bad_records is not None:
        folders["folder of bad records"] = request.bad_records
    if is_on_this_machine(spark, request.output):
        for path in inputs.values():
            check_not_a_file(path)
            check_apart({"input": path, **folders})
    check_checkpoint(spark, request.output, request.checkpoint)
    events = {stream: _events(request, spark, stream, path) for stream, path in inputs.items()}
    options: dict[str, Any] = {
        "type_column": request.type_column,
        "time_column": request.time_column,
        "order_by": request.order_by,
        "params": request.params,
    }
    aside = _bad_records(request, spark, events, options)
    if request.is_verbose:
        tell(ceql.spark.explain(request.text, events, **options))
    rows = ceql.spark.match(
        request.text,
        events,
        shape=request.shape,
        watermark=request.watermark,
        ordering=request.ordering,
        unbounded=request.unbounded,
        **options,
    )
    writer = stream_writer(rows, request.output, request.checkpoint, format=request.output_format)
    return [_triggered(sink, request.trigger) for sink in (writer, *aside)]


def _bad_records(
    request: StreamRequest, spark: SparkSession, events: dict[str, DataFrame], options: dict[str, Any]
) -> Iterator[DataStreamWriter]:
    """Yield what writes the bad records of each stream, as Parquet, which takes any bytes for text."""
    if request.bad_records is None:
        return
    found = ceql.spark.bad_records(request.text, events, shape=request.shape, **options)
    assert isinstance(found, Mapping)
    for stream, rows in found.items():
        below = f"/{quote(stream, safe='')}" if len(found) > 1 else ""
        path, checkpoint = f"{request.bad_records}{below}", f"{request.checkpoint.rstrip('/')}/bad_records{below}"
        check_checkpoint(spark, path, checkpoint)
        yield stream_writer(rows, path, checkpoint, format="parquet")


def _triggered(writer: DataStreamWriter, trigger: str | None) -> DataStreamWriter:
    if trigger == AVAILABLE_NOW:
        return writer.trigger(availableNow=True)
    return writer if trigger is None else writer.trigger(processingTime=trigger)


def _events(request: StreamRequest, spark: SparkSession, stream: str, path: str) -> DataFrame:
    if request.schema is not None:
        schema = _given_schema(request.schema)
    elif not has_files(spark, path):
        raise _unknown_columns("files", path)
    else:
        schema = read_frame(
            spark,
            [path],
            format=request.format,
            options=request.options,
            declared=request.column_types(stream),
            is_complete=request.declares_all(stream),
        ).schema
        if any(field.dataType == NullType() for field in schema):
            raise _unknown_columns("events", path)
    return stream_frame(
        spark, path, schema, format=request.format, options=request.options, max_files=request.max_files
    )


def _unknown_columns(what: str, path: str) -> FileError:
    return FileError(
        f"there are no {what} in {path} yet to take the columns from",
        "give --schema 'type STRING, at TIMESTAMP, ...' and --format",
    )


def _given_schema(text: str) -> StructType:
    try:
        schema = StructType.fromDDL(text)
    except SPARK_ERRORS as error:
        raise typer.BadParameter(
            f"'{text}' is not a list of columns: write it as 'type STRING, at TIMESTAMP'", param_hint="--schema"
        ) from error
    return schema if isinstance(schema, StructType) else StructType().add("value", schema)


# --- while it runs ------------------------------------------------------------------


class Stop:
    """Whether a signal asked to stop, and which exit code that gives."""

    def __init__(self) -> None:
        self.exit_code = 0

    def __bool__(self) -> bool:
        return self.exit_code != 0

    def ask(self, number: int, _: FrameType | None) -> None:
        """Ask to stop; the second request does not wait."""
        if self:
            raise KeyboardInterrupt
        self.exit_code = CANCELLED if number == signal.SIGINT else TERMINATED


@contextmanager
def _stop_signals() -> Iterator[Stop]:
    """Note Ctrl-C and SIGTERM instead of ending at once.

    An exception from a signal would break the connection to Java, which stopping needs. This also replaces the
    handler that Spark installs for Ctrl-C, which cancels all jobs.
    """
    stop = Stop()
    before = {number: signal.signal(number, stop.ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _started(writers: list[DataStreamWriter]) -> Iterator[list[Any]]:
    """Start all writers; if one fails, stop the others."""
    queries: list[Any] = []
    try:
        for writer in writers:
            queries.append(writer.start())
        yield queries
    except SPARK_ERRORS:
        for query in queries:
            with suppress(*SPARK_ERRORS):
                query.stop()
        raise


def _follow(queries: list[Any], counts: Counts, stop: Stop, show: Any) -> None:
    """Show the progress of the first query until all queries end; after a request to stop, let them finish."""
    # Wait for each query, so that each can report its failure.
    while not stop and not all([query.awaitTermination(POLL_SECONDS) for query in queries]):
        if counts.add(queries[0]):
            show(counts.status(datetime.now(UTC)))
    if stop:
        show("stopping")
        counts.is_cut_off = not all([_finish_batch(query) for query in queries])
        for query in queries:
            query.stop()
    counts.add(queries[0])


def _finish_batch(query: Any) -> bool:
    """Wait for the running micro-batch, and return whether it is done: an abandoned one may leave files behind."""
    deadline = time.monotonic() + SECONDS_TO_FINISH
    before = _last_batch(query)
    while query.isActive and query.status["isTriggerActive"] and _last_batch(query) == before:
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS / 10)
    return True


def _last_batch(query: Any) -> tuple[int, str] | None:
    last = query.lastProgress
    return None if last is None else (last.batchId, last.timestamp)


@dataclass
class Counts:
    """The numbers of a query's progress, added up over its micro-batches."""

    shape: Shape
    n_events: int = 0
    n_matches: int = 0
    n_late: int = 0
    n_bad: int = 0
    watermark: datetime | None = None
    state_bytes: int = 0
    events_per_second: float = 0.0
    matches_per_second: float = 0.0
    is_cut_off: bool = False
    """Whether the last micro-batch was abandoned."""
    _seen: set[tuple[int, str]] = field(default_factory=set)

    def add(self, query: Any) -> bool:
        """Add the micro-batches since the last call, and return whether there were any."""
        last = _last_batch(query)
        if last is None or last in self._seen:
            return False
        recent = {(progress.batchId, progress.timestamp): progress for progress in query.recentProgress}
        for name, progress in recent.items():
            if name not in self._seen:
                self._add(progress)
        # Spark keeps only the last progress reports, so we need not remember more.
        self._seen = set(recent)
        return True

    def _add(self, progress: Any) -> None:
        observed = progress.observedMetrics.get("ceql")
        n_matches = 0
        if observed is not None:
            n_matches = observed.matches
            self.n_late += observed.late_events
            self.state_bytes = observed.state_bytes
        if (of_input := progress.observedMetrics.get("ceql_input")) is not None:
            self.n_bad += of_input.bad_records
        self.n_events += progress.numInputRows
        self.n_matches += n_matches
        seconds = max(progress.batchDuration, 1) / 1000
        self.events_per_second, self.matches_per_second = progress.numInputRows / seconds, n_matches / seconds
        if "watermark" in progress.eventTime:
            watermark = datetime.fromisoformat(progress.eventTime["watermark"])
            # Before the first events it stands at the epoch.
            self.watermark = watermark if watermark > EPOCH else None

    def status(self, now: datetime) -> str:
        """Return the current status of the stream in one line."""
        rates = f"{self.events_per_second:,.0f} events/s, {self.matches_per_second:,.0f} matches/s"
        return f"{rates}, {self._watermark(now)}, state {decimal(self.state_bytes)}, {self._left_out()}"

    def summary(self, seconds: float) -> str:
        """Return the summary of the stream in one line."""
        rows = counted(self.n_matches, self.shape)
        events = counted_events(self.n_events)
        text = f"{events}, {rows}, {self._left_out()}, {seconds:.2f} s on Spark, {self._watermark()}"
        return f"{text}\nthe last micro-batch was abandoned: the next run repeats it" if self.is_cut_off else text

    def _left_out(self) -> str:
        """Return how many events were late, and how many rows could be none, which is told if there are any."""
        bad = f", {self.n_bad:,} bad {'record' if self.n_bad == 1 else 'records'}" if self.n_bad else ""
        return f"{self.n_late:,} late{bad}"

    def _watermark(self, now: datetime | None = None) -> str:
        if self.watermark is None:
            # A checkpoint may have one, which Spark tells with the next events.
            return "no watermark yet" if self.n_events else "no new events"
        text = f"watermark {self.watermark:%Y-%m-%d %H:%M:%S} UTC"
        if now is not None and timedelta() <= now - self.watermark < LIVE_LAG:
            text += f" ({(now - self.watermark).total_seconds():,.0f} s ago)"
        return text


@contextmanager
def _status_line() -> Iterator[Any]:
    """Give what shows a text on a line of its own on a terminal, in place of the one before, and nowhere else."""
    line = live_line()
    if line is None:
        yield lambda _: None
        return
    with line:
        yield lambda text: line.update(Text(text, no_wrap=True, overflow="ellipsis"))
