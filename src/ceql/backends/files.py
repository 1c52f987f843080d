"""Reads events from files and writes rows to them: Parquet, Arrow, CSV and JSON lines, by the suffix of the name."""

from __future__ import annotations

import glob
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from ceql.backends.json_lines import json_rows, json_values
from ceql.backends.text_files import TYPE_HINT, open_csv, open_json
from ceql.errors import DataError, warn

PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc")
CSV = (".csv", ".csv.gz")
JSON_LINES = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz")

TABLES = (".txt", ".tsv", ".tab", ".dat", ".psv")
"""Suffixes of files that are probably CSV, but not with commas."""
MAX_NAME = 50
"""Characters that an unfinished file takes over from the final name: file systems allow 255 bytes for a name."""

SUFFIXES = (*PARQUET, *ARROW, *CSV, *JSON_LINES)
_ENCODING_HINT = "convert it to UTF-8: iconv -f ISO-8859-1 -t UTF-8"

FORMATS = ("parquet", "arrow", "csv", "json")


_UNREADABLE = (OSError, pa.ArrowException, UnicodeDecodeError, DataError)
"""The exceptions that reading a bad file raises."""


class FileError(DataError):
    """A file cannot be read or written; the message names it."""


@dataclass
class EventFile:
    """A file of events, read batch by batch; `n_rows` is None where the format does not store it."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    n_rows: int | None = None
    n_read: int = 0

    def reader(self, on_read: Callable[[int], None]) -> pa.RecordBatchReader:
        """Return the events as a reader of Arrow; `on_read` is called with the number of rows of each batch."""

        def counted() -> Iterator[pa.RecordBatch]:
            for batch in self.batches:
                self.n_read += len(batch)
                on_read(len(batch))
                yield batch

        return pa.RecordBatchReader.from_batches(self.schema, counted())


def read_events(
    path: Path,
    column_types: Mapping[str, pa.DataType] | None = None,
    *,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
) -> EventFile:
    """Open a file of events, or raise `FileError` saying why it cannot be read.

    `column_types` has the types of columns where the file does not store them, as in CSV.
    """
    kind = format or format_of(path.name)
    if kind is None and not os.path.lexists(path):
        raise FileError(f"cannot read {path}: there is no such file or folder")
    if kind is None:
        raise FileError(f"cannot tell the format of {path} from its suffix", format_hint(path.name))
    try:
        if kind == "parquet":
            file = pa.parquet.ParquetFile(path)
            _check_names(file.schema_arrow)
            _check_zones(file.schema_arrow)
            batches = file.iter_batches(batch_size=1 << 20)
            return EventFile(file.schema_arrow, _explained(batches, path), file.metadata.num_rows)
        if kind == "arrow":
            opened = pa.ipc.open_file(pa.memory_map(str(path)))
            _check_names(opened.schema)
            _check_zones(opened.schema)
            return EventFile(opened.schema, _explained(_checked_batches(opened), path))
        types = column_types or {}
        schema, batches = open_csv(path, types, options or {}) if kind == "csv" else open_json(path, types)
        if kind == "csv":
            _check_is_text(schema)
        return EventFile(schema, _explained(batches, path))
    except _UNREADABLE as error:
        raise _unreadable(path, error) from error


def read_all_events(
    paths: Sequence[str],
    column_types: Mapping[str, pa.DataType] | None = None,
    *,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
) -> EventFile:
    """Open files, folders of files and glob patterns as one stream of events, one file after the other.

    Files of a folder or pattern come in the order of their names. All must have the columns of the first file. The type
    of a column comes from the first file that has a value in it.
    """
    files = [file for path in paths for file in _files_of(path, format)]
    opened = [read_events(file, column_types, format=format, options=options) for file in files]
    schema = pa.schema([_with_type(field, opened) for field in opened[0].schema], opened[0].schema.metadata)
    n_rows = [events.n_rows for events in opened]

    def batches() -> Iterator[pa.RecordBatch]:
        for file, events in zip(files, opened, strict=True):
            for batch in events.batches:
                yield _like(batch, schema, file, files[0])

    return EventFile(schema, batches(), None if None in n_rows else sum(n for n in n_rows if n is not None))


def _with_type(field: pa.Field, files: Sequence[EventFile]) -> pa.Field:
    """Return a column with the first type that any file gives it: a file that is only a header gives no types."""
    types = [column.type for file in files for column in file.schema if column.name == field.name]
    return next((field.with_type(data_type) for data_type in types if not pa.types.is_null(data_type)), field)


def _files_of(path: str, format: str | None) -> list[Path]:
    if os.path.isdir(path):
        inside = [file for file in sorted(Path(path).iterdir()) if file.is_file() and file.name[0] not in "._"]
        files = [file for file in inside if format or format_of(file.name)]
        if not files:
            raise FileError(f"cannot read {path}: the folder has no files of a known format", "give --format")
        return files
    if not os.path.exists(path) and glob.has_magic(path):
        files = [Path(found) for found in sorted(glob.glob(path))]
        if not files:
            raise FileError(f"cannot read {path}: no file matches this pattern")
        return files
    return [Path(path)]


def _like(batch: pa.RecordBatch, schema: pa.Schema, file: Path, first: Path) -> pa.RecordBatch:
    """Return a batch with the columns of the first file, in the order of that file."""
    try:
        return batch.select(schema.names).cast(schema)
    except (KeyError, ValueError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        hint = TYPE_HINT if isinstance(error, pa.ArrowInvalid) else None
        raise FileError(f"cannot read {file}: its columns differ from those of {first}: {error}", hint) from error


def _check_names(fields: Iterable[pa.Field]) -> None:
    """Raise `UnicodeDecodeError` if a name is not UTF-8: Arrow decodes a name only when it is read."""
    for field in fields:
        assert isinstance(field.name, str)
        if pa.types.is_nested(field.type):
            _check_names(field.type.field(index) for index in range(field.type.num_fields))


def _check_zones(schema: pa.Schema) -> None:
    """Refuse times in an unknown zone: they could not be printed."""
    for field in schema:
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            try:
                pa.scalar(0, field.type).as_py()
            except Exception as error:  # Several libraries may provide the zones, each with its own error.
                raise DataError(f"column '{field.name}' has an unknown time zone {field.type.tz!r}") from error


def _check_is_text(schema: pa.Schema) -> None:
    """Refuse CSV that is not UTF-8: Arrow would read its columns as binary."""
    for field in schema:
        if field.type == pa.binary():
            raise DataError(f"the text of '{field.name}' is not UTF-8", _ENCODING_HINT)


def _checked_batches(opened: Any) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an Arrow file. Each is checked first, because its bytes are used in place."""
    for index in range(opened.num_record_batches):
        batch = opened.get_batch(index)
        batch.validate(full=True)
        yield batch


def _explained(batches: Iterator[pa.RecordBatch], path: Path) -> Iterator[pa.RecordBatch]:
    """Yield batches; an error in the middle of a file looks like an error at its start."""
    try:
        yield from batches
    except _UNREADABLE as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> FileError:
    if isinstance(error, OSError) and error.errno:
        return FileError(f"cannot read {path}: {os.strerror(error.errno)}")
    if isinstance(error, DataError):
        return FileError(f"cannot read {path}: {error.message}", error.hint)
    if isinstance(error, UnicodeDecodeError):
        return FileError(f"cannot read {path}: it has text that is not UTF-8: {error.object[:40]!r}", _ENCODING_HINT)
    hint = None
    if "invalid UTF8" in str(error):
        hint = _ENCODING_HINT
    elif "conversion error" in str(error):
        hint = TYPE_HINT
    return FileError(f"cannot read {path}: {error}", hint)


class Writer(Protocol):
    """Writes record batches to a file."""

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Add some rows."""


@contextmanager
def write_rows(path: Path, schema: pa.Schema) -> Iterator[Writer]:
    """Open a file for rows of a schema; an existing file is replaced only when all rows are written."""
    kind = check_suffix(path)
    # The name cannot be guessed, and the file must be new: otherwise a link of that name could lead to another file.
    unfinished = path.with_name(f".{path.name[:MAX_NAME]}.{secrets.token_hex(8)}.unfinished")
    with _removed(unfinished), unfinished.open("xb") as file:
        if kind == "parquet":
            writer: Any = _ParquetWriter(file, schema)
        elif kind == "arrow":
            writer = pa.ipc.new_file(file, schema)
        else:
            writer = _TextWriter(file, schema, is_csv=kind == "csv", is_compressed=path.name.lower().endswith(".gz"))
        with writer:
            yield writer
        file.close()
        unfinished.replace(path)


@contextmanager
def _removed(path: Path) -> Iterator[None]:
    """Remove a file at the end if it still exists, also after an error."""
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


class _ParquetWriter:
    """Parquet with times in microseconds: Spark cannot read nanoseconds."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._schema = pa.schema([field.with_type(_in_microseconds(field.type)) for field in schema], schema.metadata)
        self._has_cut = False
        self._writer = pa.parquet.ParquetWriter(file, self._schema)

    def __enter__(self) -> _ParquetWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def write_batch(self, batch: pa.RecordBatch) -> None:
        try:
            batch = batch.cast(self._schema)
        except pa.ArrowInvalid:
            batch = batch.cast(self._schema, safe=False)
            if not self._has_cut:
                warn("times finer than microseconds are cut off in Parquet; Arrow keeps them")
            self._has_cut = True
        self._writer.write_batch(batch)


def _in_microseconds(data_type: pa.DataType) -> pa.DataType:
    """Return a type with microseconds in place of nanoseconds."""
    if pa.types.is_timestamp(data_type) and data_type.unit == "ns":
        return pa.timestamp("us", data_type.tz)
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(_in_microseconds(field.type)) for field in data_type])
    if pa.types.is_list(data_type):
        return pa.list_(data_type.value_field.with_type(_in_microseconds(data_type.value_type)))
    return data_type


class _TextWriter:
    """CSV or JSON lines. CSV has no structs and lists, so they are written as JSON within a cell."""

    def __init__(self, file: BinaryIO, schema: pa.Schema, *, is_csv: bool, is_compressed: bool) -> None:
        self._is_csv = is_csv
        self._file: Any = None
        self._stream = pa.output_stream(file, compression="gzip" if is_compressed else None)
        self._schema = schema

    def __enter__(self) -> _TextWriter:
        if self._is_csv:
            flat = [
                (field.name, pa.string() if pa.types.is_nested(field.type) else field.type) for field in self._schema
            ]
            self._file = pa.csv.CSVWriter(self._stream, pa.schema(flat))
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_csv:
            self._file.close()
        self._stream.close()

    def write_batch(self, batch: pa.RecordBatch) -> None:
        if not self._is_csv:
            self._stream.write("".join(f"{row}\n" for row in json_rows(batch)).encode())
            return
        columns = [_json_text(column) if pa.types.is_nested(column.type) else column for column in batch.columns]
        self._file.write_batch(pa.record_batch(columns, names=batch.schema.names))


def _json_text(column: pa.Array) -> pa.Array:
    return pa.array(json_values(column), pa.string())


def check_suffix(path: Path) -> str:
    """Return the format that a suffix stands for, or raise `FileError`."""
    kind = format_of(path.name)
    if kind is None:
        raise FileError(f"cannot tell the format of {path} from its suffix", f"use one of {', '.join(SUFFIXES)}")
    return kind


def format_hint(name: str) -> str:
    """Return a hint for a name whose suffix stands for no format.

    >>> format_hint("trades.txt")
    "give --format csv --option delimiter=';', or whatever separates its cells"
    """
    if name.lower().endswith(TABLES):
        delimiter = "\\t" if name.lower().endswith((".tsv", ".tab")) else ";"
        return f"give --format csv --option delimiter='{delimiter}', or whatever separates its cells"
    return f"give --format, or use one of {', '.join(SUFFIXES)}"


def format_of(name: str) -> str | None:
    """Return the format that the suffix of a name stands for, None if the suffix is unknown.

    >>> format_of("trades.CSV.gz"), format_of("trades")
    ('csv', None)
    """
    for kind, suffixes in zip(FORMATS, (PARQUET, ARROW, CSV, JSON_LINES), strict=True):
        if name.lower().endswith(suffixes):
            return kind
    return None
