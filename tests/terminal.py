"""Commands on a pseudo-terminal, as a user has one: what goes there, and what goes elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass
class Ended:
    """How a command ended. `terminal` is all that reached the terminal, `stdout` what went elsewhere."""

    exit_code: int
    stdout: bytes
    terminal: bytes


def run_on_terminal(arguments: Sequence[str], folder: Path, *, stdout: str = "file") -> Ended:
    """Run `ceql` in a folder with standard error on a terminal, and standard output in a file, a pipe or there, too."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    said: list[bytes] = []
    reader = threading.Thread(target=_read, args=(ours, said))
    environment = {**os.environ, "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "ceql", *arguments]
    with (folder / "stdout").open("w+b") as file:
        target = {"file": file, "pipe": subprocess.PIPE, "terminal": theirs}[stdout]
        process = subprocess.Popen(command, cwd=folder, env=environment, stdin=theirs, stdout=target, stderr=theirs)
        os.close(theirs)
        reader.start()
        piped, _ = process.communicate()
        reader.join()
        os.close(ours)
        file.seek(0)
        return Ended(process.returncode, piped or file.read(), b"".join(said))


def _read(terminal: int, said: list[bytes]) -> None:
    # Where nobody has it open any more, reading a terminal is an error on Linux, and the end elsewhere.
    try:
        while data := os.read(terminal, 1 << 16):
            said.append(data)
    except OSError:
        pass
