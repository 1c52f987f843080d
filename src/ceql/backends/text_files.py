"""Events from CSV and JSON lines, which do not store the types of their columns.

Types come from CREATE STREAM, else from the values at the beginning of a file. NULLs and times are read as Spark reads
them with the options of `spark/files.py`, so that both engines read the same events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from ceql.backends.iso_times import NotATime, as_moments
from ceql.engine.intake.batch import check_names
from ceql.errors import DataError

BLOCK = 1 << 24
"""Bytes of text that are read at a time; the first ones decide the types."""

CSV_OPTIONS = ("header", "delimiter", "sep")
"""Options for reading CSV, as Spark calls them."""

TYPE_HINT = "types are guessed from the first rows; declare them with CREATE STREAM, or use Parquet"

_ZONE = "[tT ].*([zZ]|[+-][0-9:]+)$"

_DELIMITERS = {";": ";", "\t": "\\t", "|": "|"}
"""Characters that may separate the cells of CSV, and how to write them on the command line."""


def open_csv(
    path: Path, column_types: Mapping[str, pa.DataType], options: Mapping[str, str]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the columns of a CSV file, and its rows.

    An empty cell is NULL, also between quotes; no word means NULL. `column_types` are the declared types, by column.
    """
    has_header = options.get("header", "true").lower() == "true"
    read = pa.csv.ReadOptions(block_size=BLOCK, autogenerate_column_names=not has_header)
    delimiter = options.get("delimiter", options.get("sep", ",")).replace("\\t", "\t")
    if len(delimiter) != 1:
        raise DataError(f"the delimiter of CSV is one character, not '{delimiter}'")
    parse = pa.csv.ParseOptions(delimiter=delimiter)

    def opened(source: Any, types: Mapping[str, pa.DataType]) -> Any:
        # No text has this form, so Arrow parses no times: they are parsed here.
        convert = pa.csv.ConvertOptions(
            column_types=types, null_values=[""], strings_can_be_null=True, timestamp_parsers=["\1"]
        )
        return pa.csv.open_csv(source, read, parse, convert)

    declared = {name: _read_as(data_type) for name, data_type in column_types.items()}
    head = _beginning(path)
    source: Any = path
    if head and b"\n" not in head and b"\r" not in head:
        # The file is only a header; the reader needs a line end after it.
        head += b"\n"
        source = pa.BufferReader(head)
    found = opened(pa.BufferReader(head), declared)
    check_delimiter(found.schema.names, delimiter)
    check_names(found.schema)
    first = next(iter(found), found.schema.empty_table())
    guessed = {field.name: _guessed(first[field.name]) for field in found.schema if field.name not in column_types}
    wanted = pa.schema([(name, column_types.get(name, guessed.get(name))) for name in found.schema.names])
    reader = opened(source, declared | {name: _read_as(data_type) for name, data_type in guessed.items()})
    return wanted, _converted(reader, wanted)


def open_json(path: Path, column_types: Mapping[str, pa.DataType]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the columns of a file of JSON lines, or of one JSON array of events, and its rows."""
    read = pa.json.ReadOptions(block_size=BLOCK)
    source: Any = path
    head = _beginning(path)
    if _is_array(head):
        head = _lines_of_array(path)
        source = pa.BufferReader(head)
    found = pa.json.open_json(pa.BufferReader(head), read)
    names = found.schema.names
    if times := [(field.name, pa.string()) for field in found.schema if pa.types.is_timestamp(field.type)]:
        parse = pa.json.ParseOptions(explicit_schema=pa.schema(times))
        found = pa.json.open_json(pa.BufferReader(head), read, parse)
    first = next(iter(found), found.schema.empty_table())
    wanted, explicit = [], []
    for field in map(found.schema.field, names):
        declared = column_types.get(field.name)
        data_type = _guessed(first[field.name]) if declared is None else declared
        wanted.append((field.name, data_type))
        # A number that is declared as text is converted afterwards: the reader would refuse it.
        is_text = pa.types.is_string(data_type) and (pa.types.is_integer(field.type) or pa.types.is_boolean(field.type))
        if not pa.types.is_null(data_type):
            explicit.append((field.name, field.type if is_text else _read_as(data_type)))
    parse = pa.json.ParseOptions(explicit_schema=pa.schema(explicit))
    return pa.schema(wanted), _converted(pa.json.open_json(source, read, parse), pa.schema(wanted))


def begins_with_array(path: Path) -> bool:
    """Return whether a JSON file on this machine is one array of events, not lines."""
    try:
        return _is_array(_beginning(path))
    except (OSError, pa.ArrowInvalid):
        return False


def _guessed(column: pa.Array) -> pa.DataType:
    """Return the type of a column by its values. Text is a time if all values are times; times of day are text."""
    if pa.types.is_time(column.type):
        return pa.string()
    if pa.types.is_string(column.type) and column.null_count < len(column):
        with suppress(NotATime):
            return as_moments(column).type
    return column.type


def _read_as(data_type: pa.DataType) -> pa.DataType:
    """Return the type to ask the reader for: it understands only some forms of times, and not all dates."""
    return pa.string() if pa.types.is_timestamp(data_type) or pa.types.is_date(data_type) else data_type


def _converted(reader: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        # Arrow's JSON reader accepts any bytes as text.
        batch.validate(full=True)
        columns = [_as_declared(batch.column(field.name), field) for field in schema]
        yield pa.record_batch(columns, schema=schema)


def _as_declared(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        if pa.types.is_timestamp(field.type) and pa.types.is_string(column.type):
            if field.type.tz is None:
                _check_has_no_zone(column, field.name)
            column = as_moments(column)
        return column.cast(field.type)
    except NotATime as error:
        text = column[error.args[0]].as_py()
        raise DataError(f"column '{field.name}' has a value that is not a time: '{text}'", TYPE_HINT) from None
    except pa.ArrowInvalid as error:
        raise DataError(f"column '{field.name}': {error}", TYPE_HINT) from error


def _check_has_no_zone(texts: pa.Array, name: str) -> None:
    """Refuse times with a zone in a column declared without: Spark does too, and the meant hour is unclear."""
    has_zone = pc.match_substring_regex(texts, _ZONE)
    if pc.any(has_zone).as_py():
        text = texts.filter(has_zone)[0].as_py()
        raise DataError(f"column '{name}' is declared without a zone, and '{text}' has one", "declare it as timestamp")


def check_delimiter(names: list[str], delimiter: str) -> None:
    """Refuse a file whose only column name looks like several names."""
    if len(names) == 1:
        for other, written in _DELIMITERS.items():
            if other in names[0] and other != delimiter:
                raise DataError(
                    f"its only column would be '{names[0]}': the cells seem to be separated by '{written}'",
                    f"give --option delimiter='{written}'",
                )


def _lines_of_array(path: Path) -> bytes:
    """Return a JSON array of events as lines; the whole file is read at once."""
    try:
        with pa.input_stream(str(path)) as stream:
            events = json.loads(stream.read())
    except (ValueError, RecursionError) as error:
        raise DataError(f"the JSON array cannot be read: {error}") from error
    if not all(isinstance(event, dict) for event in events):
        raise DataError("the JSON array contains other things than objects", "an event is an object")
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def _beginning(path: Path) -> bytes:
    """Return the first lines of a file, or all of them if it is short."""
    with pa.input_stream(str(path)) as stream:
        head = bytes(stream.read(BLOCK))
    return head if len(head) < BLOCK else head[: head.rfind(b"\n") + 1] or head


def _is_array(head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
