"""Times and counts of a system, which runs in its own process. The process is killed if it takes too long."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ceql.bench.systems import System, started, timed_count

GRACE = 3.0
"""Seconds that a system gets to stop a count when asked to, before its process is killed."""

START_LIMIT = 180.0
"""Seconds to start a system, load the events and warm up."""

DONE, TIMED_OUT, OUT_OF_MEMORY, UNSUPPORTED, FAILED = "ok", "time limit", "out of memory", "unsupported", "failed"


@dataclass(frozen=True)
class Outcome:
    """How a run ended; seconds and count are given only if it succeeded."""

    status: str
    seconds: float = 0.0
    n_matches: int = 0
    note: str = ""


def process_context() -> Any:
    """Return a way to start processes that share nothing with this one, a fast way if the system has one."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ceql.bench.systems", "ceql.bench.memory", "ceql.backends.local"])
    return context


def leave_interrupts_to_parent() -> None:
    """Ignore Ctrl-C, which goes to all processes of a terminal: the parent process ends this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Worker:
    """A process that runs a system; started when first needed, and again after it was killed."""

    def __init__(self, system: str, path: Path, settings: dict[str, Any]) -> None:
        self.arguments = (system, path, settings)
        self.process: Any = None
        self.connection: Connection | None = None

    def run(self, text: str, limit: float) -> Outcome:
        """Return how one run ended."""
        connection = self._connected()
        connection.send((text, limit))
        prepared = self._answer(connection, START_LIMIT + limit + GRACE)
        if prepared.status != DONE:
            return prepared
        return self._answer(connection, limit + GRACE)

    def close(self) -> None:
        """End the process."""
        if self.process is None:
            return
        if self.connection is not None:
            with suppress(OSError):
                self.connection.send(None)
        self.process.join(timeout=10)
        self._kill()

    def _connected(self) -> Connection:
        if self.connection is None:
            context = process_context()
            self.connection, other = context.Pipe()
            self.process = context.Process(target=serve, args=(other, *self.arguments), daemon=True)
            self.process.start()
            other.close()
        return self.connection

    def _answer(self, connection: Connection, limit: float) -> Outcome:
        try:
            if connection.poll(limit):
                answer: Outcome = connection.recv()
                return answer
        except EOFError:
            self._kill()
            return Outcome(FAILED, note="the process ended")
        self._kill()
        return Outcome(TIMED_OUT)

    def _kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
        if self.connection is not None:
            self.connection.close()
        self.process = self.connection = None


def serve(connection: Connection, name: str, path: Path, settings: dict[str, Any]) -> None:
    """Do runs until asked to end; this is the main function of a worker's process."""
    leave_interrupts_to_parent()
    try:
        system = started(name, path, settings)
    except Exception as error:
        with suppress(EOFError):
            connection.recv()
            connection.send(outcome_of(error))
        return
    while (request := connection.recv()) is not None:
        text, limit = request
        prepared = _limited(partial(_prepared, system, text), system, limit)
        connection.send(prepared)
        if prepared.status == DONE:
            connection.send(_limited(partial(_timed, system, text), system, limit))


def _prepared(system: System, text: str) -> Outcome:
    system.prepare(text)
    return Outcome(DONE)


def _timed(system: System, text: str) -> Outcome:
    return Outcome(DONE, *timed_count(system, text))


def _limited(run: Callable[[], Outcome], system: System, limit: float) -> Outcome:
    """Return how a run ended; after a time limit, the system is asked to stop it."""
    timer = threading.Timer(limit, system.interrupt)
    timer.start()
    began = time.perf_counter()
    try:
        outcome = run()
    except Exception as error:
        return Outcome(TIMED_OUT) if time.perf_counter() - began >= limit else outcome_of(error)
    finally:
        timer.cancel()
    return outcome if outcome.seconds <= limit else Outcome(TIMED_OUT)


def outcome_of(error: Exception) -> Outcome:
    """Return the outcome of a run that ended with an error."""
    from ceql.bench.steps import UnsupportedError

    if isinstance(error, UnsupportedError):
        return Outcome(UNSUPPORTED, note=str(error))
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryException":
        return Outcome(OUT_OF_MEMORY)
    return Outcome(FAILED, note=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
