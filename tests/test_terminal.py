"""The command line on a terminal: results go where they belong, and nothing in them drives the terminal."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from terminal import Ended, run_on_terminal

N_MATCHES = 3000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "q.ceql").write_text("SELECT * FROM S WHERE A AS x WITHIN 5 [t]")
    long_text = "a text that is longer than the lines of a terminal " * 3
    table = pa.table({"type": ["A"] * N_MATCHES, "t": range(N_MATCHES), "text": [long_text] * N_MATCHES})
    pa.parquet.write_table(table, tmp_path / "e.parquet")
    return tmp_path


def run(folder: Path, engine: str, *arguments: str, stdout: str = "file") -> Ended:
    master = ["--master", "local[1]"] if engine == "spark" else []
    return run_on_terminal(
        ["run", "q.ceql", "-i", "e.parquet", "--engine", engine, *master, *arguments], folder, stdout=stdout
    )


def found(lines: bytes) -> list[int]:
    return [json.loads(line)["x"]["t"] for line in lines.splitlines()]


def test_matches_of_the_local_engine_go_to_standard_output(folder: Path) -> None:
    ended = run(folder, "local", "--json")
    assert ended.exit_code == 0, ended.terminal
    assert found(ended.stdout) == list(range(N_MATCHES))
    assert f"{N_MATCHES:,} matches".encode() in ended.terminal
    assert b"match_start" not in ended.terminal
    assert b"events \x1b[" in ended.terminal, "there is no bar"


def test_matches_on_the_terminal_are_whole_lines(folder: Path) -> None:
    ended = run(folder, "local", "--json", stdout="terminal")
    *lines, summary = ended.terminal.splitlines()
    assert found(b"\n".join(lines)) == list(range(N_MATCHES))
    assert summary.startswith(b"3,000 events, 3,000 matches, ")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_leaves_nothing_unfinished(tmp_path: Path, name: str) -> None:
    number = getattr(signal, name)
    command = [sys.executable, "-m", "ceql", "generate", "stocks", "--events", str(10**12), "-o", "s.parquet"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) as process:
        while not list(tmp_path.iterdir()):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        _, said = process.communicate()
    assert (process.returncode, said) == (128 + number, b"cancelled\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "exit_code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_ends_a_command_even_where_python_drops_errors(name: str, exit_code: int) -> None:
    """A callback of a weak reference, as each import has one, cannot raise an error to its caller."""
    program = f"""if True:
        import signal, time, weakref
        import typer
        from ceql.cli.exits import cancellation_told

        class Thing:
            pass

        try:
            with cancellation_told():
                thing = Thing()
                reference = weakref.ref(thing, lambda _: signal.raise_signal(signal.{name}))
                del thing
                while True:
                    time.sleep(0.01)
        except typer.Exit as exit:
            raise SystemExit(exit.exit_code)
    """
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (exit_code, b"cancelled\n")


@pytest.mark.spark
@pytest.mark.xdist_group("spark processes")
def test_matches_of_spark_go_to_standard_output(folder: Path) -> None:
    pytest.importorskip("pyspark")
    ended = run(folder, "spark", "--json")
    assert ended.exit_code == 0, ended.terminal
    assert sorted(found(ended.stdout)) == list(range(N_MATCHES))
    assert f"{N_MATCHES:,} matches".encode() in ended.terminal
    assert b"match_start" not in ended.terminal
