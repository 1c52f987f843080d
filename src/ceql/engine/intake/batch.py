"""Events as record batches that the engine can run over: columns checked, streams merged, rows in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ceql.engine.intake.order import sort_keys, sorted_rows
from ceql.engine.intake.text import check_text
from ceql.errors import DataError, did_you_mean, listing
from ceql.schema import Kind, KnownTypes, half_told, kind_of, table_of_dicts

IntArray = np.ndarray[Any, np.dtype[Any]]

MAX_ROWS = 1 << 20
"""Most rows of a batch when a table is cut into batches."""


def read(events: object, like: KnownTypes | None = None) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the record batches of an object that holds events of one stream.

    Dicts have no types: they get those of `like`, the columns of the earlier batches.
    """
    if isinstance(events, pa.RecordBatch):
        return events.schema, iter((events,))
    if isinstance(events, Sequence) and not isinstance(events, str | bytes):
        if events and all(isinstance(part, pa.RecordBatch) for part in events):
            return events[0].schema, iter(events)
        if like is not None and 0 < len(events) <= MAX_ROWS and (batch := like.batch(events)) is not None:
            return batch.schema, iter((batch,))
        table = table_of_dicts(events, like)
        return table.schema, _cut(table)
    if isinstance(events, pa.Table):
        return events.schema, _cut(events)
    if isinstance(events, pa.RecordBatchReader):
        return events.schema, iter(events)
    if hasattr(events, "__arrow_c_stream__"):
        reader = _reader(events)
        return reader.schema, iter(reader)
    raise DataError(
        f"cannot read events from {type(events).__name__}",
        "give a pyarrow table or reader, a pandas or polars frame, or a list of dicts",
    )


def _reader(events: object) -> pa.RecordBatchReader:
    """Return a reader of an object that exports Arrow streams."""
    if hasattr(events, "sparkSession"):
        raise DataError("the events are a Spark DataFrame", "use ceql.spark.match, or ceql.match with df.toArrow()")
    try:
        return pa.RecordBatchReader.from_stream(events)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise DataError(f"cannot read events from {type(events).__name__}: {error}") from error
    except UnicodeEncodeError as error:
        raise DataError(f"cannot read events from {type(events).__name__}: {half_told(error)}") from None


def _cut(table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from table.to_batches(max_chunksize=MAX_ROWS)


def stream_of(tables: Mapping[str, object], name: str) -> object:
    """Return the events of a stream that FROM reads."""
    if name not in tables:
        known = listing(map(str, tables)) or "none"
        raise DataError(f"FROM reads stream '{name}', which the events lack", f"they have {known}")
    return tables[name]


def split(events: object, stream_column: str, sources: Sequence[str]) -> tuple[pa.Table, IntArray]:
    """Return a table without the column that names each row's stream, and the number of that stream in FROM."""
    schema, batches = read(events)
    table = pa.Table.from_batches(list(batches), schema).combine_chunks()
    if stream_column not in table.column_names:
        raise missing_column(stream_column, table.column_names)
    names = table[stream_column].combine_chunks()
    check_text(names, stream_column, 0)
    numbers = pc.index_in(names, value_set=pa.array(sources, names.type))
    if numbers.null_count:
        name = names.filter(pc.is_null(numbers))[0]
        raise DataError(f"column '{stream_column}' names a stream '{name}', but FROM reads {listing(sources)}")
    return table.drop_columns([stream_column]), np.asarray(numbers)


def merged(
    tables: Mapping[str, object],
    sources: Sequence[str],
    order_of: Callable[[pa.Schema], Sequence[str]],
    like: KnownTypes | None = None,
) -> tuple[pa.Table, IntArray]:
    """Return the streams in FROM as one table in time order, and the number of each row's stream.

    `order_of` gives the columns that order the table. Rows that tie come in the order of FROM, then as in their table.
    A column that a stream lacks is NULL in its rows.
    """
    parts, numbers = [], []
    for number, name in enumerate(sources):
        schema, batches = read(stream_of(tables, name), like)
        part = pa.Table.from_batches(list(batches), schema)
        parts.append(part)
        numbers.append(np.full(len(part), number, np.int32))
    try:
        whole = pa.concat_tables(parts, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise unlike_columns(error) from error
    streams, order = np.concatenate(numbers), order_of(whole.schema)
    if not order:
        raise DataError(
            "several streams have no common order",
            "name the attribute that orders them with time_column or order_by",
        )
    return in_order(whole, order, streams)


def unlike_columns(error: object) -> DataError:
    """Return the error for streams that have columns of the same name with different types."""
    return DataError(
        f"the columns of the streams do not fit together: {error}",
        "a column that several streams share must have one type: cast or rename it",
    )


def in_order(table: pa.Table, order: Sequence[str], streams: IntArray) -> tuple[pa.Table, IntArray]:
    """Return rows and the numbers of their streams, sorted by some columns; rows that tie keep their order."""
    keys = []
    for name in order:
        if name not in table.column_names:
            raise missing_column(name, table.column_names)
        keys += sort_keys(table[name])
    # Arrow's sort does not keep the order of equal rows, so the row number is the last key.
    indices = sorted_rows([*keys, pa.array(np.arange(len(table)))])
    columns = [_taken(column, indices) for column in table.columns]
    return pa.table(columns, schema=table.schema), streams[indices.to_numpy()]


def _taken(column: pa.ChunkedArray, indices: pa.Array) -> pa.ChunkedArray:
    """Return some rows of a column. Arrow cannot take rows of string and binary views."""
    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string()).take(indices).cast(column.type)
    if pa.types.is_binary_view(column.type):
        return column.cast(pa.large_binary()).take(indices).cast(column.type)
    return column.take(indices)


def check_names(schema: pa.Schema) -> None:
    """Refuse events with two columns of the same name."""
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise DataError(f"the events have several columns '{name}'", "rename all but one")


def check_type_column(type_column: str, schema: pa.Schema) -> None:
    """Refuse events without a type column, or with one that does not hold strings."""
    if type_column not in schema.names:
        how = "name one with type_column, or give type_column=None if every event has its stream's name as type"
        hints = (did_you_mean(type_column, schema.names), f"columns are {listing(schema.names)}: {how}")
        raise DataError(f"the events have no type column '{type_column}'", " ".join(filter(None, hints)))
    data_type = schema.field(type_column).type
    if kind_of(data_type) not in (Kind.STRING, Kind.UNKNOWN):
        raise DataError(f"the type column '{type_column}' is of type {data_type}, not string")


def missing_column(name: str, names: Iterable[str]) -> DataError:
    """Return the error for a column that the events lack."""
    known = list(names)
    return DataError(
        f"the events have no column '{name}'", did_you_mean(name, known) or f"columns are {listing(known)}"
    )
