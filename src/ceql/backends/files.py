"""Events from files and rows to files: Parquet, Arrow, CSV and JSON lines, told by the suffix."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
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
SUFFIXES = (*PARQUET, *ARROW, *CSV, *JSON_LINES)


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


def read_events(path: Path) -> EventFile:
    """Open a file of events, or raise `DataError` saying why it cannot be read."""
    try:
        match _kind(path):
            case "parquet":
                file = pa.parquet.ParquetFile(path)
                return EventFile(file.schema_arrow, file.iter_batches(batch_size=1 << 20), file.metadata.num_rows)
            case "arrow":
                opened = pa.ipc.open_file(pa.memory_map(str(path)))
                batches = (opened.get_batch(index) for index in range(opened.num_record_batches))
                return EventFile(opened.schema, batches)
            case "csv":
                reader = pa.csv.open_csv(path)
                return EventFile(reader.schema, iter(reader))
            case _:
                lines = pa.json.open_json(path)
                return EventFile(lines.schema, iter(lines))
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"cannot read {path}: {error}") from error


class Writer(Protocol):
    """Takes record batches and puts them into a file."""

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Add some rows."""


@contextmanager
def write_rows(path: Path, schema: pa.Schema) -> Iterator[Writer]:
    """Open a file for rows of a schema; what was written so far is removed if anything goes wrong."""
    kind = _kind(path)
    opened: Any = {"parquet": pa.parquet.ParquetWriter, "arrow": pa.ipc.new_file}.get(kind, _TextWriter)
    with opened(str(path), schema) as writer:
        try:
            yield writer
        except BaseException:
            path.unlink(missing_ok=True)
            raise


class _TextWriter:
    """CSV or JSON lines. CSV has no structs and lists: there they are JSON within a cell."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._is_csv = _kind(Path(path)) == "csv"
        self._file: Any = None
        self._path, self._schema = path, schema

    def __enter__(self) -> _TextWriter:
        if self._is_csv:
            flat = [(one.name, pa.string() if pa.types.is_nested(one.type) else one.type) for one in self._schema]
            self._file = pa.csv.CSVWriter(self._path, pa.schema(flat))
        else:
            self._file = open(self._path, "w", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write_batch(self, batch: pa.RecordBatch) -> None:
        if not self._is_csv:
            self._file.writelines(f"{_json(row)}\n" for row in batch.to_pylist())
            return
        columns = [_json_text(one) if pa.types.is_nested(one.type) else one for one in batch.columns]
        self._file.write_batch(pa.record_batch(columns, names=batch.schema.names))


def _json_text(column: pa.Array) -> pa.Array:
    return pa.array([_json(value) for value in column.to_pylist()], pa.string())


def _json(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def _kind(path: Path) -> str:
    name = path.name.lower()
    for kind, suffixes in (("parquet", PARQUET), ("arrow", ARROW), ("csv", CSV), ("json", JSON_LINES)):
        if name.endswith(suffixes):
            return kind
    raise DataError(f"cannot tell the format of {path} by its suffix", f"use one of {', '.join(SUFFIXES)}")
