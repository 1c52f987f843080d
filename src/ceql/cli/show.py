"""The command `show`: the matches of a run on a timeline."""

from __future__ import annotations

import gzip
import json
import webbrowser
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet
import typer

from ceql.backends.files import SUFFIXES, FileError, format_of, read_all_events
from ceql.cli.arguments import read_query
from ceql.cli.exits import WRONG_DATA, fail, in_words_of_options, reason
from ceql.cli.terminal import tell
from ceql.errors import DataError
from ceql.pictures.shown_matches import ShownMatches, read_matches
from ceql.pictures.timeline_html import counted, timeline_of

ROWS = 1000
"""Rows that are read at a time."""


def show(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="What `ceql run --output` wrote: a file, or the folder of Spark's files."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Page to write; by default beside FILE, with the suffix .html.")
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="ATTRIBUTE", help="Attribute that places the events; by default that of match_start and match_end."
        ),
    ] = None,
    query: Annotated[
        Path | None, typer.Option("--query", "-q", metavar="FILE", help="File with the query, to show its text above.")
    ] = None,
    open: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,  # noqa: FBT002
) -> None:
    """Draw the matches of a run on a timeline, as a page for a browser.

    The page shows the first 200 matches and the number of the others.

    \b
    Examples:
      ceql show fraud.parquet --open
      ceql show fraud.jsonl --query fraud.ceql --out fraud.html
    """  # noqa: D301 - the backspace keeps lines as they are
    text = None if query is None else read_query(query)
    page = out or Path(f"{file.rstrip('/')}.html")
    try:
        shown = _read(file)
        timeline_of(shown, time=time, query=text, title=Path(file).name).write(page)
    except FileError as error:
        fail(str(error), WRONG_DATA)
    except DataError as error:
        fail(f"{file}: {in_words_of_options(error)}", WRONG_DATA)
    except pa.ArrowInvalid as error:
        fail(f"cannot read {file}: {error}", WRONG_DATA)
    except OSError as error:
        fail(f"cannot write {page}: {reason(error)}", WRONG_DATA)
    tell(f"{counted(shown)}: see {page}")
    if open and not webbrowser.open(page.absolute().as_uri()):
        tell("no browser could be opened")


def _read(path: str) -> ShownMatches:
    """Return the matches of a file or folder; all of them are counted."""
    files = _files(Path(path))
    if Path(path).exists() and not any(format_of(file.name) for file in files):
        hint = f"it shows what ceql run writes: {', '.join(SUFFIXES)}, or a folder of these"
        if Path(path).is_dir():
            raise FileError(f"cannot read {path}: the folder has no files of a known format", hint)
        raise FileError(f"cannot tell the format of {path} from its suffix", hint)
    if files and all(format_of(file.name) == "json" and file.exists() for file in files):
        batches = _batches_of_lines(files)
        first = next(batches, None)
        if first is None:
            return ShownMatches([], [], 0, has_more=False)
        return read_matches(first.schema, chain([first], batches), counts_all=True, total=_count_lines(files))
    file = read_all_events([path])
    is_parquet = all(format_of(file.name) == "parquet" and file.exists() for file in files)
    return read_matches(
        file.schema, _small_batches(files) if is_parquet else file.batches, counts_all=True, total=file.n_rows
    )


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return [file for file in sorted(path.iterdir()) if file.is_file() and file.name[0] not in "._"]


def _small_batches(files: list[Path]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of Parquet files, few at a time: matches may be large, and only the first are shown."""
    for file in files:
        yield from pa.parquet.ParquetFile(file).iter_batches(batch_size=ROWS)


def _batches_of_lines(files: list[Path]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of JSON lines; a missing value is NULL, because Spark leaves NULL out."""
    lines = ((file, number, line) for file in files for number, line in enumerate(_lines(file), 1))
    names: dict[str, None] = {}
    while rows := [_row(*line) for line in islice(lines, ROWS)]:
        if not names:
            names = dict.fromkeys(name for row in rows for name in row)
        try:
            columns = [pa.array([row.get(name) for row in rows]) for name in names]
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise FileError(f"cannot read {files[0]}: {error}") from error
        yield pa.record_batch(columns, list(names))


def _lines(file: Path) -> Iterator[bytes]:
    opened = gzip.open if file.suffix.lower() == ".gz" else Path.open
    try:
        with opened(file, "rb") as stream:
            yield from (line for line in stream if not line.isspace())
    except OSError as error:
        raise FileError(f"cannot read {file}: {reason(error)}") from error


def _count_lines(files: list[Path]) -> int:
    return sum(1 for file in files for _ in _lines(file))


def _row(file: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise FileError(f"cannot read {file}: line {number} is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise FileError(f"cannot read {file}: line {number} is not an object")
    return row
