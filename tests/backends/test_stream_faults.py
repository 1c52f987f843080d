"""A stream gives the matches of a batch, each once, though its processes are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import strategies
from ceql.backends.spark import java
from stream_files import N_FILES, PATHS, assert_each_match_once, write_files

pytest.importorskip("pyspark.sql")
import stream_driver

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("stream faults"),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc"),
]

PATIENCE = 10_000
"""How often a condition is looked at before it counts as never to come."""


class Driver:
    """A process that runs the streaming query, with all processes that it starts."""

    def __init__(self, path: Path) -> None:
        self._checkpoint = path / "checkpoint"
        self._log = (path / "log").open("ab")
        paths = [str(path / name) for name in PATHS]
        self._process = subprocess.Popen(
            [sys.executable, stream_driver.__file__, "local[2,4]", *paths],
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def numbers(self, name: str) -> set[int]:
        """Return the numbers of the micro-batches that were begun (offsets) or are done (commits)."""
        folder = self._checkpoint / name
        return {int(path.name) for path in folder.iterdir() if path.name.isdigit()} if folder.exists() else set()

    def is_inside(self, number: int) -> bool:
        """Whether a micro-batch of at least this number has begun and is not done."""
        return bool({one for one in self.numbers("offsets") if one >= number} - self.numbers("commits"))

    def is_done(self, number: int) -> bool:
        """Whether the micro-batch of this number is done."""
        return number in self.numbers("commits")

    def wait_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(PATIENCE):
            if condition():
                return
            assert self._process.poll() is None, f"the driver ended: {self._process.returncode}"
            time.sleep(0.02)
        raise AssertionError("what was waited for did not come")

    def processes(self) -> dict[int, bytes]:
        """Return the driver and all that it has started, with their command lines. Java has a session of its own."""
        parents, commands = {}, {}
        for path in Path("/proc").iterdir():
            try:
                parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                commands[int(path.name)] = (path / "cmdline").read_bytes()
            except (OSError, ValueError):
                continue
        found = [self._process.pid]
        for process in found:
            found += [child for child, parent in parents.items() if parent == process]
        return {process: commands.get(process, b"") for process in found}

    def workers(self) -> list[int]:
        """Return the Python workers: children of a daemon, which comes before them."""
        return [process for process, command in self.processes().items() if b"pyspark.daemon" in command][1:]

    def kill_a_worker(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.workers()[-1], signal.SIGKILL)

    def kill(self) -> None:
        """End the driver, its Java and its workers at once."""
        for process in self.processes():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def finish(self) -> int:
        code = self._process.wait()
        self._log.close()
        return code


@pytest.fixture
def drivers(tmp_path: Path) -> Any:
    """Start drivers, one after the other; none is left behind."""
    try:
        java.find_java()
    except java.JavaError as error:
        pytest.skip(str(error))
    started: list[Driver] = []

    def start() -> Driver:
        started.append(Driver(tmp_path))
        return started[-1]

    yield start
    for driver in started:
        if driver._process.poll() is None:
            driver.kill()


def log_of(path: Path) -> str:
    return (path / "log").read_text(errors="replace")


@pytest.mark.parametrize("attempt", range(max(1, strategies.FUZZ)))
def test_a_stream_that_is_killed_again_and_again_gives_each_match_once(
    tmp_path: Path, drivers: Any, attempt: int
) -> None:
    write_files(tmp_path / "in")
    chance = random.Random()
    first, second, third = sorted(chance.sample(range(1, N_FILES - 1), 3))

    driver = drivers()
    driver.wait_until(lambda: driver.is_inside(first))
    driver.kill()

    driver = drivers()
    driver.wait_until(lambda: driver.is_done(second))
    driver.kill()

    driver = drivers()
    driver.wait_until(lambda: driver.is_inside(third) and driver.workers() != [])
    driver.kill_a_worker()
    assert driver.finish() == 0, log_of(tmp_path)[-3000:]
    assert_each_match_once(tmp_path)
