"""Rows of a stream on their way: packed for their shard, kept as bytes, handed back to Spark."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa

from ceql.backends.spark.times import in_utc

TIME, SHARD = "__ceql_time", "__ceql_shard"
PACKED_SHARD, PACKED_ROWS = "shard", "rows"
"""Columns of packed rows. Spark passes them through pandas, which renames columns that begin with an underscore."""
EVENTS, LATE, STATE_BYTES = "__ceql_events", "__ceql_late", "__ceql_state_bytes"
METRICS = (EVENTS, LATE, STATE_BYTES)

MAX_PACKED_ROWS = 1 << 16
CHECKSUM_BYTES = 4


def pack_by_shard(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield one row for the rows of each shard: its number and the rows as Arrow data.

    So rows reach their shard in bulk and with their exact types: pandas would turn integers beside NULL into doubles.
    The first shard always gets a row, even without events, so that it has a state in every stream that has begun.
    """
    waiting: list[pa.RecordBatch] = []
    yield pa.record_batch([pa.array([0], pa.int32()), pa.array([b""], pa.binary())], names=[PACKED_SHARD, PACKED_ROWS])
    for batch in batches:
        if len(batch):
            waiting.append(batch)
        if sum(map(len, waiting)) >= MAX_PACKED_ROWS:
            yield _packed(waiting)
            waiting = []
    if waiting:
        yield _packed(waiting)


def _packed(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches)
    shards = np.asarray(table[SHARD])
    order = np.argsort(shards, kind="stable")
    numbers, first = np.unique(shards[order], return_index=True)
    rows = in_utc(table.drop_columns([SHARD]).take(order).combine_chunks())
    ends = [*first[1:].tolist(), len(rows)]
    blobs = [to_bytes(rows.slice(begin, end - begin)) for begin, end in zip(first.tolist(), ends, strict=True)]
    return pa.record_batch(
        [pa.array(numbers, pa.int32()), pa.array(blobs, pa.binary())], names=[PACKED_SHARD, PACKED_ROWS]
    )


def to_bytes(table: pa.Table) -> bytes:
    """Return rows as bytes that `from_bytes` reads."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return zlib.crc32(content).to_bytes(CHECKSUM_BYTES, "little") + content


def from_bytes(blobs: Iterable[bytes]) -> pa.Table | None:
    """Return the rows of all blobs, None if there are no rows. ValueError if a blob is damaged."""
    tables = [_table(memoryview(blob)) for blob in blobs]
    return pa.concat_tables(tables) if tables else None


def _table(blob: memoryview) -> pa.Table:
    content = blob[CHECKSUM_BYTES:]
    # Arrow accepts a stream that is cut off between two batches.
    if int.from_bytes(blob[:CHECKSUM_BYTES], "little") != zlib.crc32(content):
        raise ValueError(f"the checksum of {len(blob)} bytes is wrong")
    return pa.ipc.open_stream(content).read_all()


def micros_of(events: pa.Table) -> pa.ChunkedArray:
    """Return the times of events, in microseconds."""
    return events[TIME].cast(pa.timestamp("us", events[TIME].type.tz)).cast(pa.int64())


def to_frame(batch: pa.RecordBatch) -> pd.DataFrame:
    """Return a batch as pandas can hold it without loss: as objects where the types of pandas have no NULL."""
    columns = {name: _to_series(column) for name, column in zip(batch.schema.names, batch.columns, strict=True)}
    frame = pd.DataFrame(columns)
    for name in METRICS:
        frame[name] = pd.Series([None] * len(frame), dtype=object)
    return frame


def _to_series(column: pa.Array) -> pd.Series:
    if pa.types.is_floating(column.type):
        # Other types of pandas treat NaN as NULL.
        return pd.Series(pd.arrays.ArrowExtensionArray(column))
    is_plain = pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type)
    if is_plain and not column.null_count:
        return column.to_pandas()
    values = column.to_pylist()
    if _has_maps(column.type):
        values = [_with_dicts(value, column.type) for value in values]
    return pd.Series(values, dtype=object)


def _has_maps(data_type: pa.DataType) -> bool:
    """Return whether a type is a map or contains one."""
    is_nested = pa.types.is_nested(data_type)
    return pa.types.is_map(data_type) or (is_nested and any(_has_maps(field.type) for field in _fields(data_type)))


def _with_dicts(value: Any, data_type: pa.DataType) -> Any:
    """Return a value with maps as dicts, as Spark wants them; Arrow gives lists of pairs."""
    if value is None or not _has_maps(data_type):
        return value
    if pa.types.is_map(data_type):
        return {key: _with_dicts(item, data_type.item_type) for key, item in value}
    if pa.types.is_struct(data_type):
        return {field.name: _with_dicts(value[field.name], field.type) for field in _fields(data_type)}
    return [_with_dicts(item, data_type.value_type) for item in value]


def _fields(data_type: pa.DataType) -> list[pa.Field]:
    return [data_type.field(number) for number in range(data_type.num_fields)]
