"""Arrow data to batches that the engine can run over: columns checked, streams merged, time in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ceql.errors import DataError, did_you_mean, listing

IntArray = np.ndarray[Any, np.dtype[Any]]

MAX_ROWS = 1 << 20
"""Rows of the batches that a table is cut into."""


@dataclass
class Batch:
    """Rows of the merged stream; `streams` numbers each row's stream where there are several."""

    table: pa.RecordBatch
    streams: IntArray | None = None


def read(events: object, sources: Sequence[str]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the record batches of whatever holds events of one stream."""
    if isinstance(events, Sequence) and not isinstance(events, str | bytes):
        if events and all(isinstance(one, pa.RecordBatch) for one in events):
            return events[0].schema, iter(events)
        table = _from_dicts(events)
        return table.schema, _cut(table)
    if isinstance(events, pa.RecordBatch):
        return events.schema, iter([events])
    if isinstance(events, pa.Table):
        return events.schema, _cut(events)
    if isinstance(events, pa.RecordBatchReader):
        return events.schema, iter(events)
    if hasattr(events, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(events)
        return reader.schema, iter(reader)
    raise DataError(
        f"cannot read events from {type(events).__name__}",
        "give a pyarrow table or reader, a pandas or polars frame, or a list of dicts",
    )


def _from_dicts(events: Sequence[Any]) -> pa.Table:
    if not all(isinstance(one, Mapping) for one in events):
        raise DataError("events given as a list must all be dicts")
    names = dict.fromkeys(name for one in events for name in one)
    columns = {}
    for name in names:
        try:
            columns[name] = pa.array([one.get(name) for one in events])
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise DataError(f"the values of '{name}' have no common type: {error}") from None
    return pa.table(columns)


def _cut(table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from table.to_batches(max_chunksize=MAX_ROWS)


def merged(tables: Mapping[str, object], sources: Sequence[str], order: Sequence[str]) -> tuple[pa.Table, IntArray]:
    """Return the streams in FROM as one table in time order, and the number of each row's stream.

    Ties go by the order of FROM, then by row. A column that a stream lacks is NULL in its rows.
    """
    parts, numbers = [], []
    for number, name in enumerate(sources):
        if name not in tables:
            raise DataError(f"FROM reads stream '{name}', which the events lack", f"they have {listing(tables)}")
        schema, batches = read(tables[name], (name,))
        part = pa.Table.from_batches(list(batches), schema)
        parts.append(part)
        numbers.append(np.full(len(part), number, np.int32))
    whole = pa.concat_tables(parts, promote_options="permissive")
    streams = np.concatenate(numbers)
    if not order:
        raise DataError(
            "several streams have no common order",
            "name the attribute that orders them with time_column or order_by",
        )
    return in_order(whole, order, streams)


def in_order(table: pa.Table, order: Sequence[str], streams: IntArray) -> tuple[pa.Table, IntArray]:
    """Return rows sorted by some columns; what they leave equal keeps its order."""
    for name in order:
        if name not in table.column_names:
            raise missing_column(name, table.column_names)
    position = "\0position"
    keys = [(name, "ascending") for name in [*order, position]]
    numbered = table.append_column(position, pa.array(np.arange(len(table))))
    indices = pc.sort_indices(numbered, sort_keys=keys)
    return table.take(indices), streams[indices.to_numpy()]


def missing_column(name: str, names: Iterable[str]) -> DataError:
    """Return the error of a column that the events lack."""
    known = list(names)
    return DataError(
        f"the events have no column '{name}'", did_you_mean(name, known) or f"columns are {listing(known)}"
    )
