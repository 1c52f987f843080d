"""Events from files and rows to files: Parquet, Arrow, CSV and JSON lines, told by the suffix."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from ceql.errors import DataError

PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc")
CSV = (".csv", ".csv.gz")
JSON_LINES = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz")
CSV_BLOCK = 1 << 24
"""Bytes of CSV and JSON lines that are read at a time, and from which types are guessed."""

SUFFIXES = (*PARQUET, *ARROW, *CSV, *JSON_LINES)


class FileError(DataError):
    """A file cannot be read or written; the message names it."""


@dataclass
class EventFile:
    """A file of events, read batch by batch; `n_rows` is known where the format tells it."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    n_rows: int | None = None
    n_read: int = 0

    def reader(self, on_read: Callable[[int], None]) -> pa.RecordBatchReader:
        """Return the events as Arrow hands them on; `on_read` hears how many rows each batch has."""

        def counted() -> Iterator[pa.RecordBatch]:
            for batch in self.batches:
                self.n_read += len(batch)
                on_read(len(batch))
                yield batch

        return pa.RecordBatchReader.from_batches(self.schema, counted())


def read_events(path: Path, column_types: Mapping[str, pa.DataType] | None = None) -> EventFile:
    """Open a file of events, or raise `FileError` saying why it cannot be read.

    CSV does not say what its columns hold: `column_types` does, for those that it names.
    """
    kind = check_suffix(path)
    try:
        if kind == "parquet":
            file = pa.parquet.ParquetFile(path)
            batches = file.iter_batches(batch_size=1 << 20)
            return EventFile(file.schema_arrow, _explained(batches, path), file.metadata.num_rows)
        if kind == "arrow":
            opened = pa.ipc.open_file(pa.memory_map(str(path)))
            batches = (opened.get_batch(index) for index in range(opened.num_record_batches))
            return EventFile(opened.schema, _explained(batches, path))
        reader = _open_csv(path, column_types or {}) if kind == "csv" else _open_json(path)
        return EventFile(reader.schema, _explained(iter(reader), path))
    except (OSError, pa.ArrowInvalid) as error:
        raise _unreadable(path, error) from error


def _open_csv(path: Path, column_types: Mapping[str, pa.DataType]) -> Any:
    convert = pa.csv.ConvertOptions(column_types=dict(column_types))
    return pa.csv.open_csv(path, pa.csv.ReadOptions(block_size=CSV_BLOCK), convert_options=convert)


def _open_json(path: Path) -> Any:
    return pa.json.open_json(path, pa.json.ReadOptions(block_size=CSV_BLOCK))


def _explained(batches: Iterator[pa.RecordBatch], path: Path) -> Iterator[pa.RecordBatch]:
    """Yield batches; what is wrong further down in a file is told like what is wrong at its start."""
    try:
        yield from batches
    except (OSError, pa.ArrowInvalid) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> FileError:
    if isinstance(error, OSError) and error.errno:
        return FileError(f"cannot read {path}: {os.strerror(error.errno)}")
    hint = None
    if "conversion error" in str(error):
        hint = "types are guessed from the first rows; declare them with CREATE STREAM, or use Parquet"
    return FileError(f"cannot read {path}: {error}", hint)


class Writer(Protocol):
    """Takes record batches and puts them into a file."""

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Add some rows."""


@contextmanager
def write_rows(path: Path, schema: pa.Schema) -> Iterator[Writer]:
    """Open a file for rows of a schema; a file that is there is replaced only when all is written."""
    kind = check_suffix(path)
    unfinished = path.with_name(f".{path.name}.unfinished")
    opened: Any = {"parquet": pa.parquet.ParquetWriter, "arrow": pa.ipc.new_file}.get(kind, _TextWriter)
    try:
        with opened(str(unfinished), schema) as writer:
            yield writer
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


class _TextWriter:
    """CSV or JSON lines. CSV has no structs and lists: there they are JSON within a cell."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        name = path.removesuffix(".unfinished")
        self._is_csv = check_suffix(Path(name)) == "csv"
        self._file: Any = None
        self._stream = pa.output_stream(path, compression="gzip" if name.endswith(".gz") else None)
        self._schema = schema

    def __enter__(self) -> _TextWriter:
        if self._is_csv:
            flat = [(one.name, pa.string() if pa.types.is_nested(one.type) else one.type) for one in self._schema]
            self._file = pa.csv.CSVWriter(self._stream, pa.schema(flat))
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_csv:
            self._file.close()
        self._stream.close()

    def write_batch(self, batch: pa.RecordBatch) -> None:
        if not self._is_csv:
            self._stream.write("".join(f"{_json(row)}\n" for row in batch.to_pylist()).encode())
            return
        columns = [_json_text(one) if pa.types.is_nested(one.type) else one for one in batch.columns]
        self._file.write_batch(pa.record_batch(columns, names=batch.schema.names))


def _json_text(column: pa.Array) -> pa.Array:
    return pa.array([_json(value) for value in column.to_pylist()], pa.string())


def _json(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def check_suffix(path: Path) -> str:
    """Return the format that a suffix stands for, or raise `FileError`."""
    name = path.name.lower()
    for kind, suffixes in (("parquet", PARQUET), ("arrow", ARROW), ("csv", CSV), ("json", JSON_LINES)):
        if name.endswith(suffixes):
            return kind
    raise FileError(f"cannot tell the format of {path} by its suffix", f"use one of {', '.join(SUFFIXES)}")
