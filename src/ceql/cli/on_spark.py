"""`ceql run` on Spark: its session, its progress, its cancellation and its errors."""

from __future__ import annotations

import logging
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from types import TracebackType
from typing import Any, TypeVar

import typer
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's own documentation writes it
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import ceql.spark
from ceql.backends.spark_failures import SPARK_ERRORS, explained
from ceql.backends.spark_files import check_output, output_format, read_frame, without_leftovers, write_frame
from ceql.cli.preview import N_SHOWN, show_rows
from ceql.cli.request import Request
from ceql.cli.summary import Summary

POLL_SECONDS = 0.2
SECONDS_TO_CANCEL = 5

Result = TypeVar("Result")


def run_on_spark(request: Request) -> Summary:
    """Run a query, and write or show its matches."""
    began = time.perf_counter()
    if request.output is not None:
        # Refuses what Spark has no format for, before it starts.
        output_format(request.output, request.output_format)
    # Only the thread that made a session finds it.
    is_new = SparkSession.getActiveSession() is None
    with _SparkProgress() as progress:

        def started() -> SparkSession:
            spark = session_for(request, is_new=is_new)
            progress.follow(spark)
            return spark

        try:
            names, found = _interruptible(started, lambda spark: _run(request, spark))
        except SPARK_ERRORS as error:
            raise explained(error) from error
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
    is_here = request.output is not None and is_on_this_machine(spark, request.output)
    if request.output is not None and is_here:
        check_output(request.output, request.mode, inputs)
    events = {stream: _events(request, spark, stream) for stream in request.streams}
    options: dict[str, Any] = {
        "type_column": request.type_column,
        "time_column": request.time_column,
        "order_by": request.order_by,
        "plan": request.plan,
    }
    if request.is_verbose:
        typer.echo(ceql.spark.explain(request.text, events, **options), err=True)
    rows = ceql.spark.match(request.text, events, shape=request.shape, **options)
    if request.output is None and request.as_json:
        return rows.columns, _print_all(rows)
    if request.output is None:
        # One more than is shown tells whether there are more.
        return rows.columns, rows.limit(N_SHOWN + 1).toArrow().to_pylist()
    observation = Observation()
    observed = rows.observe(observation, F.count(F.lit(1)).alias("rows"))
    with without_leftovers(request.output) if is_here else nullcontext():
        write_frame(observed, request.output, format=request.output_format, mode=request.mode)
    return rows.columns, int(observation.get["rows"])


def _print_all(rows: DataFrame) -> int:
    """Print all rows as JSON; this process holds those of one task at a time."""
    lines = rows.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}))
    n_rows = 0
    for (line,) in lines.toLocalIterator():
        sys.stdout.write(f"{line}\n")
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


def session_for(request: Request, *, is_new: bool) -> SparkSession:
    """Return the active session as it is, or a new one that says nothing of its own unless that is asked for."""
    conf: dict[str, Any] = dict(request.conf)
    spark = ceql.spark.session(request.master, quiet=not request.is_verbose, **conf)
    if is_new and not request.is_verbose:
        # The driver's bridge to Java reports interrupted and broken calls, which are told as errors of ours.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        if (context := _context(spark)) is not None:
            # Failed tasks are logged with their stack traces; what they mean is told once, by us.
            context.setLogLevel("OFF")
    return spark


def _context(spark: SparkSession) -> Any:
    """Return the Spark context, None through Spark Connect, which has none."""
    with suppress(Exception):
        return spark.sparkContext
    return None


def is_on_this_machine(spark: SparkSession, path: str) -> bool:
    """Return whether what a session reads or writes at a path is there for this process, too."""
    context = _context(spark)
    is_local = context is not None and str(context.master).startswith("local")
    return is_local and ("://" not in path or path.startswith("file:"))


def _interruptible(start: Callable[[], SparkSession], call: Callable[[SparkSession], Result]) -> Result:
    """Return the result of a call that runs jobs in a session; if the user interrupts it, they are cancelled.

    Session and call have a thread of their own, because an interrupt breaks the connection to Java of the thread
    that it reaches, and the cancellation needs one.
    """
    tag = f"ceql-{uuid.uuid4()}"
    session: Future[SparkSession] = Future()
    ended: Future[Result] = Future()

    def run() -> None:
        try:
            spark = start()
            spark.addTag(tag)
            session.set_result(spark)
            ended.set_result(call(spark))
        except BaseException as error:
            ended.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        return ended.result()
    except KeyboardInterrupt:
        if session.done():
            with suppress(Exception):
                session.result().interruptTag(tag)
            # There may be an unfinished output to remove.
            thread.join(SECONDS_TO_CANCEL)
        raise


class _SparkProgress(AbstractContextManager["_SparkProgress"]):
    """A bar of finished tasks on a terminal, and nothing anywhere else or through Spark Connect."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._progress.add_task("starting Spark", total=None)
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> _SparkProgress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
        self._progress.stop()

    def follow(self, spark: SparkSession) -> None:
        """Show the tasks of a session from now on."""
        self._progress.update(self._task, description="running")
        context = _context(spark)
        if context is not None and not self._progress.disable:
            self._thread = threading.Thread(target=self._poll, args=(context.statusTracker(),), daemon=True)
            self._thread.start()

    def _poll(self, tracker: Any) -> None:
        stages: dict[int, tuple[int, int]] = {}
        while not self._is_over.wait(POLL_SECONDS):
            with suppress(Exception):
                for number in {*stages, *tracker.getActiveStageIds()}:
                    if (stage := tracker.getStageInfo(number)) is not None:
                        stages[number] = (stage.numCompletedTasks, stage.numTasks)
            n_done = sum(done for done, _ in stages.values())
            n_tasks = sum(tasks for _, tasks in stages.values())
            if n_tasks:
                text = f"stage {max(stages) + 1}, {n_done:,} of {n_tasks:,} tasks"
                self._progress.update(self._task, description=text, completed=n_done, total=n_tasks)
