"""Jobs on Spark as commands run them: a session, progress on a terminal, cancellation, errors in the user's words."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Any, TypeVar

from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession

import ceql.spark
from ceql.backends.spark.failures import SPARK_ERRORS, explained
from ceql.cli.terminal import bar

POLL_SECONDS = 0.2
SECONDS_TO_CANCEL = 5

Result = TypeVar("Result")


def run_job(
    call: Callable[[SparkSession], Result],
    *,
    master: str | None,
    conf: Mapping[str, str],
    is_verbose: bool = False,
    prints_results: bool = False,
) -> Result:
    """Return the result of a call that runs jobs in a session, and prints results itself if it says so."""
    # Only the thread that made a session finds it.
    is_new = SparkSession.getActiveSession() is None
    with _SparkProgress(prints_results=prints_results) as progress:

        def started() -> SparkSession:
            spark = session_for(master, conf, is_new=is_new, is_verbose=is_verbose)
            progress.follow(spark)
            return spark

        try:
            return _interruptible(started, call, is_new=is_new)
        except SPARK_ERRORS as error:
            raise explained(error) from error


def session_for(master: str | None, conf: Mapping[str, str], *, is_new: bool, is_verbose: bool) -> SparkSession:
    """Return the active session unchanged, or a new session, which logs nothing unless the user asks for it."""
    settings: dict[str, Any] = dict(conf)
    spark = ceql.spark.session(master, quiet=not is_verbose, **settings)
    if is_new and not is_verbose:
        # The driver's bridge to Java logs interrupted and broken calls, which our own errors report.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        if (context := _context(spark)) is not None:
            # Spark logs failed tasks with their stack traces; our error says once what they mean.
            context.setLogLevel("OFF")
    return spark


def _context(spark: SparkSession) -> Any:
    """Return the Spark context, None through Spark Connect, which has none."""
    with suppress(Exception):
        return spark.sparkContext
    return None


def counter_of(spark: SparkSession) -> Accumulator[int] | None:
    """Return a number to which tasks can add; None through Spark Connect, which has none."""
    context = _context(spark)
    return None if context is None else context.accumulator(0)


def is_on_this_machine(spark: SparkSession, path: str) -> bool:
    """Return whether this process sees the same files at a path as the session."""
    context = _context(spark)
    is_local = context is not None and str(context.master).startswith("local")
    return is_local and ("://" not in path or path.startswith("file:"))


def runs_in_this_process(spark: SparkSession) -> bool:
    """Return whether tasks run inside the driver, once each; not in `local-cluster`, which tries them again."""
    context = _context(spark)
    return context is not None and re.match(r"local(\[|$)", str(context.master)) is not None


def _interruptible(
    start: Callable[[], SparkSession], call: Callable[[SparkSession], Result], *, is_new: bool
) -> Result:
    """Return the result of a call that runs jobs in a session; if the user interrupts it, they are cancelled.

    Session and call run in their own thread: an interrupt breaks the connection to Java of the thread that it reaches,
    and the cancellation needs a connection.
    """
    session: Future[SparkSession] = Future()
    ended: Future[Result] = Future()

    def run() -> None:
        try:
            spark = start()
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
            # Not by a tag: only the thread that set a tag can interrupt its jobs.
            with suppress(Exception):
                session.result().interruptAll()
            thread.join(SECONDS_TO_CANCEL)
            if is_new:
                # A cancelled task may still write, or another job may begin, while the output is being removed.
                with suppress(Exception):
                    session.result().stop()
        raise


class _SparkProgress(AbstractContextManager["_SparkProgress"]):
    """A bar of finished tasks on a terminal, and nothing anywhere else or through Spark Connect."""

    def __init__(self, *, prints_results: bool) -> None:
        self._progress = bar("{task.description}", prints_results=prints_results)
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
