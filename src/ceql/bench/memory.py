"""Memory that a system takes beyond its events: measured every 10,000 events, and apart from time, as in the paper."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

import ceql
from ceql.bench.measure import (
    FAILED,
    START_LIMIT,
    TIMED_OUT,
    Outcome,
    leave_interrupts_to_parent,
    outcome_of,
    process_context,
)
from ceql.bench.naive_automaton import Search
from ceql.bench.systems import DuckDb, limit_address_space, read_table

EVERY = 10_000
"""Events between two measurements."""

LOADED = "loaded"
"""The first answer of a process."""

STATM = Path("/proc/self/statm")
PAGE = 4096


@dataclass(frozen=True)
class Memory:
    """Resident bytes, minus those before the first event."""

    average: float
    peak: float


def measured(system: str, path: Path, text: str, *, limit: float, n_bytes: int) -> Outcome | Memory:
    """Return the memory that one run takes, in a new process, or how it failed."""
    context = process_context()
    connection, other = context.Pipe(duplex=False)
    process = context.Process(target=_report, args=(other, system, path, text, n_bytes), daemon=True)
    process.start()
    other.close()
    try:
        # The first answer says that the events are loaded.
        is_answered = connection.poll(START_LIMIT) and connection.recv() and connection.poll(limit)
        answer: Outcome | Memory = connection.recv() if is_answered else Outcome(TIMED_OUT)
    except EOFError:
        answer = Outcome(FAILED, note="the process ended")
    process.kill()
    process.join()
    connection.close()
    return answer


def is_measurable() -> bool:
    """Return whether this operating system reports the memory of a process."""
    return STATM.exists()


def _report(connection: Connection, system: str, path: Path, text: str, n_bytes: int) -> None:
    leave_interrupts_to_parent()
    answers = [LOADED]
    try:
        run = WATCHED[system](path, text, n_bytes)
        connection.send(answers.pop())
        samples = run()
        connection.send(Memory(sum(samples) / len(samples), max(samples)))
    except Exception as error:
        for answer in answers:
            connection.send(answer)
        connection.send(outcome_of(error))


def _resident() -> int:
    return int(STATM.read_text().split()[1]) * PAGE


def _engine(path: Path, text: str, n_bytes: int) -> Callable[[], list[int]]:
    events = read_table(path).combine_chunks()
    ceql.Session(text, shape="positions").feed(events.slice(0, EVERY)).count()
    session = ceql.Session(text, shape="positions")
    return lambda: _watched(events, lambda part, first: session.feed(part).count())


def _naive(path: Path, text: str, n_bytes: int) -> Callable[[], list[int]]:
    limit_address_space(n_bytes)
    events = read_table(path).combine_chunks()
    query = ceql.compile(text, events.schema)
    Search(query).run(events.slice(0, 100))
    search = Search(query)

    def take(part: pa.Table, first: int) -> None:
        search.run(part, first)
        search.found.clear()

    return lambda: _watched(events, take)


def _watched(events: pa.Table, take: Callable[[pa.Table, int], object]) -> list[int]:
    """Return the memory after each part of the events, whose matches are dropped."""
    gc.collect()
    before, samples = _resident(), []
    for first in range(0, len(events), EVERY):
        take(events.slice(first, EVERY), first)
        gc.collect()
        samples.append(max(0, _resident() - before))
    return samples


def _join(path: Path, text: str, n_bytes: int) -> Callable[[], list[int]]:
    system = DuckDb(path, {"memory_bytes": n_bytes})
    system.prepare(text)

    def run() -> list[int]:
        with _sampled() as samples:
            system.count(text)
        return samples

    return run


@contextmanager
def _sampled() -> Iterator[list[int]]:
    """Sample the memory all the time: a join does not read event by event."""
    before, samples, is_over = _resident(), [0], threading.Event()

    def watch() -> None:
        while not is_over.is_set():
            samples.append(max(0, _resident() - before))
            time.sleep(0.002)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield samples
    finally:
        is_over.set()
        thread.join()


WATCHED: dict[str, Callable[[Path, str, int], Callable[[], list[int]]]] = {
    "ceql": _engine,
    "naive automaton": _naive,
    "DuckDB join": _join,
}
