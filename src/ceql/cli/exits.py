"""How a command ends: its exit code and its message."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

import typer

from ceql.backends.spark.java import JavaError
from ceql.cli.terminal import tell
from ceql.errors import CeqlError, DataError, JobError

WRONG_QUERY = 1
WRONG_USE = 2
WRONG_DATA = 3
FAILED_JOB = 4
NO_SPARK = 5
CANCELLED = 130
TERMINATED = 143
HUNG_UP = 129

AGAIN_AFTER = 0.01
"""Seconds until an interrupt that Python dropped is sent again."""

EXIT_CODES = (
    "Exit codes: 0 all is well, 1 the query is wrong, 2 the command is used wrongly, 3 the data are wrong or a file "
    "cannot be read or written, 4 Spark could not finish the job, 5 there is no Spark or no Java, 130 cancelled by "
    "Ctrl-C, 143 by SIGTERM, 129 because its terminal was closed."
)
EXIT_CODES_OF_STREAMS = EXIT_CODES.replace("cancelled", "stopped")

_OPTIONS = {
    r"type_column=None": "--type-column ''",
    r"(type|time)_column": r"--\1-column",
    r"order_by": "--order-by",
    r"unbounded=True": "--unbounded",
    r"(plan|shape)='(\w+)'": r"--\1 \2",
    r"the reader's option": "--option",
    r"the setting (spark[.\w]*\w)": r"--conf \1=...",
}
"""The command line's names for things in the library's hints."""


def fail(message: str, code: int = WRONG_QUERY) -> NoReturn:
    """Print a message on standard error and end the command."""
    tell(message)
    raise typer.Exit(code)


class _Ended(KeyboardInterrupt):
    """A signal other than Ctrl-C asks the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.exit_code = TERMINATED if number == signal.SIGTERM else HUNG_UP


@contextmanager
def cancellation_told() -> Iterator[None]:
    """End the command when it is interrupted, and first undo what it has begun.

    SIGTERM and SIGHUP, the end of its terminal, would by themselves leave unfinished files behind.
    """
    try:
        with _ended_by_signals(), _swallowed_interrupts_sent_again():
            yield
    except KeyboardInterrupt as interrupt:
        # The terminal may be gone.
        with suppress(OSError):
            tell("cancelled")
        raise typer.Exit(interrupt.exit_code if isinstance(interrupt, _Ended) else CANCELLED) from None


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    def end(number: int, _: FrameType | None) -> NoReturn:
        raise _Ended(number)

    names = ("SIGTERM", "SIGHUP")
    known = [getattr(signal, name) for name in names if hasattr(signal, name)]
    # If a signal is ignored, as under `nohup`, it stays ignored. Only the main thread may handle signals.
    is_main = threading.current_thread() is threading.main_thread()
    handled = [number for number in known if is_main and signal.getsignal(number) is signal.SIG_DFL]
    for number in handled:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _swallowed_interrupts_sent_again() -> Iterator[None]:
    """Interrupt again if Python dropped an interrupt, as it does with errors in callbacks of weak references."""

    def told(dropped: sys.UnraisableHookArgs) -> None:
        if not isinstance(dropped.exc_value, KeyboardInterrupt):
            hook_before(dropped)
            return
        number = dropped.exc_value.number if isinstance(dropped.exc_value, _Ended) else signal.SIGINT
        # Not at once: this hook, too, would drop it.
        threading.Timer(AGAIN_AFTER, signal.raise_signal, [number]).start()

    hook_before = sys.unraisablehook
    sys.unraisablehook = told
    try:
        yield
    finally:
        sys.unraisablehook = hook_before


@contextmanager
def until_nobody_reads() -> Iterator[None]:
    """End the command as if it were done when the reader of its output, such as `head`, has read enough."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Python would try to write what is left when it ends, and complain.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
        raise typer.Exit(0) from None


def reason(error: CeqlError | OSError) -> str:
    """Return what went wrong, in the system's words if there are any, without what libraries add."""
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)


@contextmanager
def spark_troubles_told(failed: str, otherwise: str = "", *, in_full: bool) -> Iterator[None]:
    """End the command if something is wrong with Spark itself; imports that need Spark belong inside, too.

    `otherwise` says what else the user can do without Spark.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "pyspark").partition(".")[0]
        name = "PySpark" if package == "pyspark" else package
        fail(f"{name} is not installed: pip install 'ceql[spark]'{', or ' if otherwise else ''}{otherwise}", NO_SPARK)
    except JavaError as error:
        fail(f"{error}{'; or ' if otherwise else ''}{otherwise}", NO_SPARK)
    except JobError as error:
        fail(f"{failed}: {error}" + (f"\n{error.__cause__}" if in_full else ""), FAILED_JOB)


def in_words_of_options(error: CeqlError) -> str:
    r"""Return an error as text, with a hint that names options of the command line.

    >>> in_words_of_options(DataError("there is nothing to sort by", "name the columns with order_by"))
    'there is nothing to sort by\nhint: name the columns with --order-by'
    """
    if not isinstance(error, DataError) or not error.hint or "--" in error.hint:
        return str(error)
    hint = error.hint
    for pattern, option in _OPTIONS.items():
        hint = re.sub(rf"\b{pattern}", option, hint)
    return f"{error.message}\nhint: {hint}"
