"""`ceql run --engine local`: from file to file in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

import ceql
from ceql.backends.files import FORMATS, EventFile, FileError, check_suffix, read_all_events, write_rows
from ceql.backends.text_files import CSV_OPTIONS
from ceql.cli.exits import reason
from ceql.cli.preview import N_SHOWN, print_rows, show_rows
from ceql.cli.request import Request, note_dropped, warnings_told
from ceql.cli.summary import Summary
from ceql.cli.terminal import bar, tell

MANY = 10_000_000
"""Rows of a result after which a note says that there are many."""


def run_locally(request: Request) -> Summary:
    """Run a query, and write or show its matches."""
    _check_request(request)
    began = time.perf_counter()
    if request.output is not None:
        _check_output(request, Path(request.output))
    files = {
        stream: read_all_events(paths, request.column_types(stream), format=request.format, options=request.options)
        for stream, paths in request.streams.items()
    }
    with warnings_told(), _progress(files, prints_results=request.prints_matches) as show:
        readers = {stream: file.reader(show) for stream, file in files.items()}
        matches = ceql.match(
            request.text,
            readers if len(readers) > 1 else next(iter(readers.values())),
            type_column=request.type_column,
            time_column=request.time_column,
            order_by=request.order_by,
            shape=request.shape,
            sort=request.sort,
            complete=request.complete,
            params=request.params,
        )
        found = _found(request, matches)
    if not isinstance(found, int):
        show_rows(matches.schema.names, found)
    n_rows = found if isinstance(found, int) else len(found)
    note_dropped(matches.plan, matches.dropped)
    return Summary(
        engine="local",
        shape=request.shape,
        rows=n_rows,
        seconds=time.perf_counter() - began,
        events=sum(file.n_read for file in files.values()),
        dropped=matches.dropped,
        output=request.written_to,
        is_cut=not isinstance(found, int) and n_rows > N_SHOWN,
    )


def _found(request: Request, matches: ceql.Matches) -> int | list[dict[str, Any]]:
    """Return the number of written matches, or the matches to show."""
    if request.output is not None:
        return _write(matches, Path(request.output))
    if request.prints_matches:
        return sum(print_rows(batch) for batch in matches.batches())
    return _first(matches)


def _check_request(request: Request) -> None:
    """Refuse options that only Spark has."""
    only_on_spark: dict[str, Any] = {"--master": request.master, "--conf": request.conf}
    only_on_spark |= {"--plan": request.plan != "auto", "--output-format": request.output_format}
    for option, is_given in only_on_spark.items():
        if is_given:
            raise typer.BadParameter("it is for --engine spark", param_hint=option)
    if request.mode == "append":
        raise typer.BadParameter("append is for --engine spark", param_hint="--mode")
    if request.format is not None and request.format not in FORMATS:
        raise typer.BadParameter(f"--engine local reads {', '.join(FORMATS)}", param_hint="--format")
    for name in request.options:
        if name not in CSV_OPTIONS:
            raise typer.BadParameter(f"--engine local has {', '.join(CSV_OPTIONS)}, for CSV", param_hint="--option")


def _check_output(request: Request, output: Path) -> None:
    """Refuse an output that cannot be written, before anything is read."""
    check_suffix(output)
    if output.exists():
        for path in (Path(text) for paths in request.streams.values() for text in paths):
            if path.exists() and output.samefile(path):
                raise FileError(f"input and output are the same file: {output}")
        if request.mode == "error":
            raise FileError(f"{output} exists already", "--mode overwrite replaces it")
    if not output.absolute().parent.is_dir():
        raise FileError(f"cannot write {output}: there is no folder {output.parent}")


def _write(matches: ceql.Matches, output: Path) -> int:
    """Write matches to a file; return the number of rows."""
    n_rows = 0
    try:
        with write_rows(output, matches.schema) as writer:
            for batch in matches.batches():
                writer.write_batch(batch)
                if n_rows < MANY <= n_rows + len(batch):
                    tell(f"note: more than {MANY:,} rows so far; LIMIT n or CONSUME BY ANY give fewer")
                n_rows += len(batch)
    except OSError as error:
        raise FileError(f"cannot write {output}: {reason(error)}") from error
    return n_rows


def _first(matches: ceql.Matches) -> list[dict[str, Any]]:
    """Return the rows to show, and one more if there are more; read only the events that this needs."""
    rows: list[dict[str, Any]] = []
    for batch in matches.batches():
        rows += batch.slice(0, N_SHOWN + 1 - len(rows)).to_pylist()
        if len(rows) > N_SHOWN:
            break
    return rows


@contextmanager
def _progress(files: Mapping[str, EventFile], *, prints_results: bool) -> Iterator[Callable[[int], None]]:
    """Show how many events were read."""
    n_rows = [file.n_rows for file in files.values()]
    total = None if None in n_rows else sum(n for n in n_rows if n is not None)
    with bar("{task.completed:,} events", prints_results=prints_results) as progress:
        task = progress.add_task("events", total=total)
        yield lambda n: progress.advance(task, n)
