"""Rows of a stream as the engine keeps them. One intake can serve many runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ceql.engine.intake.batch import check_names, check_type_column
from ceql.engine.intake.columns import as_type, plain_type
from ceql.engine.intake.history import History
from ceql.engine.intake.text import TextCheck, has_text
from ceql.errors import DataError
from ceql.schema import KnownTypes
from ceql.syntax import plan

IntArray = np.ndarray[Any, np.dtype[Any]]

FIRST_EVENTS = 1 << 12
"""The first events, which are searched for the types of a query before all others."""

MIN_HISTORY = 1 << 18
"""With fewer rows of history, nothing is forgotten: forgetting costs a collection."""

MIN_HISTORY_BYTES = 1 << 25
"""The same limit in bytes: rows may hold long texts."""


@dataclass(frozen=True)
class Rows:
    """Some rows of the stream; `first` is the number of their first row in the whole stream.

    `types` is None if the stream of an event is its type; `streams` has the number of each row's stream if there are
    several.
    """

    batch: pa.RecordBatch
    first: int
    types: pa.Array | None
    streams: IntArray | None

    def __len__(self) -> int:
        return len(self.batch)


class Intake:
    """Takes in the rows of a stream: checks them, stores them in few types, and keeps those that results may show."""

    def __init__(
        self,
        query: plan.Plan,
        schema: pa.Schema,
        *,
        type_column: str | None,
        read: Iterable[str],
        types_named: Iterable[str],
        keeps_rows: bool,
    ) -> None:
        """Bind the intake to a stream's columns.

        `read` are the columns that runs read. With `keeps_rows`, results show events, so that all columns count.
        """
        if type_column is not None:
            check_type_column(type_column, schema)
        self.schema = self._fitting = schema
        stored = pa.schema([field.with_type(_stored_type(field.type)) for field in schema])
        # PERF: Arrow compares a schema with itself at no cost.
        self.stored = schema if stored.equals(schema, check_metadata=True) else stored
        self.n_events = 0
        self.types_named = set(types_named)
        self.types_seen: set[str] = set()
        self.history = History(self.stored) if keeps_rows else None
        self._sources = query.sources
        used = {*read, *([] if type_column is None else [type_column])}
        self._texts = [
            (index, TextCheck(field.name))
            for index, field in enumerate(self.stored)
            if (keeps_rows or field.name in used) and has_text(field.type)
        ]
        self._type_index = None if type_column is None else schema.get_field_index(type_column)
        self._lacking = _lacking(query, set(schema.names))
        self._max_rows, self._max_bytes = MIN_HISTORY, MIN_HISTORY_BYTES

    def check_schema(self, schema: pa.Schema) -> None:
        """Refuse a batch that differs from the first one."""
        if schema is self._fitting or schema.equals(self._fitting):
            return
        check_names(schema)
        for field in self.schema:
            if field.name not in schema.names:
                raise DataError(f"this batch lacks the column '{field.name}', which the first batch had")
            data_type = schema.field(field.name).type
            if plain_type(data_type) != plain_type(field.type):
                raise DataError(
                    f"column '{field.name}' is of type {data_type} in this batch, but {field.type} in the first"
                )
        self._fitting = schema

    @cached_property
    def known_types(self) -> KnownTypes:
        """The types of the columns, for events given as dicts."""
        return KnownTypes(self.schema)

    def take(self, part: pa.RecordBatch, streams: IntArray | None) -> Rows:
        """Return the next rows, checked and in their stored types; keep them if results show rows."""
        if part.schema.equals(self.stored):
            part.validate()
            stored = part
        else:
            columns = [as_type(part.column(field.name), field.type) for field in self.stored]
            stored = pa.record_batch(columns, schema=self.stored)
        for index, text in self._texts:
            text.check(stored.column(index), self.n_events)
        types = None if self._type_index is None else stored.column(self._type_index)
        stored = self._without_lacking(stored, types, streams)
        if self.history is not None:
            self.history.append(self.n_events, stored)
        return Rows(stored, self.n_events, types, streams)

    def look_for_types(self, rows: Rows) -> None:
        """Note which event types occur, until all types that the query names have been seen."""
        if self.types_named <= self.types_seen or not len(rows):
            return
        if rows.types is None:
            numbers = [0] if rows.streams is None else np.unique(rows.streams).tolist()
            self.types_seen.update(self._sources[number] for number in numbers)
            return
        # Most types are among the first events. All events are searched only if a type is missing there.
        for some in (rows.types.slice(0, FIRST_EVENTS), rows.types):
            if not self.types_named <= self.types_seen:
                self.types_seen.update(some.unique().drop_null().to_pylist())

    @property
    def has_many_rows(self) -> bool:
        """Whether so many rows are kept that it pays to find out which are still needed."""
        history = self.history
        return history is not None and (history.n_rows >= self._max_rows or history.n_settled_bytes >= self._max_bytes)

    def keep_rows(self, needed: IntArray) -> None:
        """Forget all rows but some, given by their numbers."""
        if self.history is not None:
            self.history.keep_only(needed)
            self._max_rows = max(MIN_HISTORY, 2 * self.history.n_rows)
            self._max_bytes = max(MIN_HISTORY_BYTES, 2 * self.history.n_bytes)

    def _without_lacking(
        self, part: pa.RecordBatch, types: pa.Array | None, streams: IntArray | None
    ) -> pa.RecordBatch:
        """Return the rows with NULL in every attribute that an event's type lacks."""
        if not self._lacking:
            return part
        numbers = np.zeros(len(part), np.int32) if streams is None else streams
        if types is None:
            types = pa.array(list(self._sources)).take(pa.array(numbers))
        types = types.cast(types.type.value_type) if pa.types.is_dictionary(types.type) else types
        columns = {name: part.column(name) for name in part.schema.names}
        for lacking, names in self._lacking.items():
            is_lacking: Any = False
            for number, of_stream in lacking:
                found = pc.is_in(types, value_set=pa.array(sorted(of_stream), types.type))
                is_lacking |= found.to_numpy(zero_copy_only=False) & (numbers == number)
            for name in names:
                columns[name] = pc.if_else(pa.array(is_lacking), pa.scalar(None, columns[name].type), columns[name])
        return pa.record_batch(list(columns.values()), schema=part.schema)


def _stored_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type in which a column is stored: Arrow can take rows from it, and any dictionary fits."""
    if pa.types.is_string_view(data_type):
        return pa.large_string()
    if pa.types.is_binary_view(data_type):
        return pa.large_binary()
    if pa.types.is_decimal(data_type) and data_type.bit_width < 128:
        return pa.decimal128(data_type.precision, data_type.scale)
    if pa.types.is_dictionary(data_type) and data_type.index_type.bit_width < 32:
        return pa.dictionary(pa.int32(), data_type.value_type, data_type.ordered)
    return data_type


def _lacking(query: plan.Plan, columns: set[str]) -> dict[frozenset[tuple[int, frozenset[str]]], list[str]]:
    """Return the columns that event types lack, by sets of types: numbers of streams with names of types."""
    types: dict[str, dict[int, set[str]]] = {}
    for stream, event_type in query.declared:
        for name in query.lacked_by(stream, event_type) & columns:
            types.setdefault(name, {}).setdefault(query.sources.index(stream), set()).add(event_type)
    found: dict[frozenset[tuple[int, frozenset[str]]], list[str]] = {}
    for name, by_stream in types.items():
        key = frozenset((number, frozenset(event_types)) for number, event_types in by_stream.items())
        found.setdefault(key, []).append(name)
    return found
