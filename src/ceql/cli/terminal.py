"""What commands print, and show on a terminal while they run. Printed text cannot control the terminal."""

from __future__ import annotations

import os
import stat
import sys

import typer
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ceql.visible import visible_lines


def say(text: str) -> None:
    """Print a result on standard output."""
    typer.echo(visible_lines(text))


def tell(text: str) -> None:
    """Print a message on standard error."""
    typer.echo(visible_lines(text), err=True)


def bar(text: str, *, prints_results: bool = False) -> Progress:
    """Return a bar on standard error with a text before it, which shows nothing if that is no terminal.

    With `prints_results` the command writes to standard output at the same time: then there is a bar only if that is a
    file, since a terminal, or a program that prints what it is sent, would have both on the same lines.
    """
    console = Console(stderr=True)
    is_shown = console.is_terminal and not (prints_results and not _stdout_is_file())
    columns = (TextColumn(text), BarColumn(), TimeElapsedColumn())
    # If redirected, text for standard output would go to the bar's stream.
    return Progress(*columns, console=console, transient=True, disable=not is_shown, redirect_stdout=False)


def live_line() -> Live | None:
    """Return what shows a line on standard error, in place of the one before; None if that is no terminal."""
    console = Console(stderr=True)
    return Live(console=console, transient=True, redirect_stdout=False) if console.is_terminal else None


def _stdout_is_file() -> bool:
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):
        return False
