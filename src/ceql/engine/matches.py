"""Matches as the user sees them: rows of Arrow batches in one of three shapes, made lazily."""

from __future__ import annotations

import hashlib
import html
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from ceql.automaton.cea import Label
from ceql.engine.chunk import Chunk
from ceql.engine.history import History
from ceql.errors import CeqlError, DataError
from ceql.syntax import plan

IntArray = np.ndarray[Any, np.dtype[Any]]

Shape = Literal["matches", "events", "positions"]
SHAPES = ("matches", "events", "positions")

PREVIEW = 10
"""Matches in the table that a notebook shows."""

POSITIONS = pa.schema(
    [
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("positions", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False),
    ]
)


@dataclass(frozen=True)
class Match:
    """One match: `match["x"]` is what variable x binds, an event as a dict or a list of them.

    `start` and `end` are the window attribute (or time, or row number) at the first and last event; `partition` has
    the attributes of PARTITION BY, `variables` all that is selected.
    """

    start: Any
    end: Any
    partition: dict[str, Any]
    variables: dict[str, Any]

    def __getitem__(self, variable: str) -> Any:
        return self.variables[variable]


class Matches:
    """The matches of a query, computed while they are read.

    Iterating gives a `Match` for each (shape "matches" only); `schema` is that of the Arrow batches, which any
    library that reads Arrow streams can take directly.

    Nothing is kept: reading again computes again where the events allow it, and is an error
    where they are gone (a session's batch, a reader).
    """

    def __init__(
        self,
        schema: pa.Schema,
        query: plan.Plan,
        start: Callable[[], Iterator[tuple[int, Callable[[], pa.RecordBatch]]]],
    ) -> None:
        self.schema = schema
        self.plan = query
        self.start = start

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield Arrow record batches of bounded size."""
        for _, make in self.start():
            yield make()

    def count(self) -> int:
        """Return how many matches there are, without making their rows."""
        return sum(n_matches for n_matches, _ in self.start())

    def to_arrow(self) -> pa.Table:
        """Return all matches as one table."""
        return pa.Table.from_batches(list(self.batches()), self.schema)

    def to_pandas(self, **options: Any) -> Any:
        """Return all matches as a pandas frame."""
        return self.to_arrow().to_pandas(**options)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Hand the batches over to any library that reads Arrow streams."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[Match]:
        if plan.MATCH_START not in self.schema.names:
            raise CeqlError("only shape='matches' gives Match objects: read batches() instead")
        names = [variable.name for variable in self.plan.variables]
        for batch in self.batches():
            for row in batch.to_pylist():
                yield Match(
                    row[plan.MATCH_START],
                    row[plan.MATCH_END],
                    {name: row[name] for name in self.plan.partition_by},
                    {name: row[name] for name in names},
                )

    def _repr_html_(self) -> str:
        """Return the first matches on a timeline, and as a table; no more are computed than that takes."""
        # PERF: see `Query`.
        from ceql.pictures.shown_matches import read_matches
        from ceql.pictures.timeline_html import timeline_of

        first: list[dict[str, Any]] = []

        # Both are made of one reading: a session's matches cannot be read again.
        def batches() -> Iterator[pa.RecordBatch]:
            for batch in self.batches():
                first.extend(batch.slice(0, PREVIEW + 1 - len(first)).to_pylist())
                yield batch

        shown = read_matches(self.schema, batches())
        table = self._table(first)
        return timeline_of(shown)._repr_html_() + table if shown.matches else table

    def _table(self, rows: list[dict[str, Any]]) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.schema.names)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(value))}</td>" for value in row.values()) + "</tr>"
            for row in rows[:PREVIEW]
        )
        count = f"the first {PREVIEW} matches" if len(rows) > PREVIEW else f"{len(rows)} matches"
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<details><summary>{count} as a table</summary>{table}</details>"

    def __repr__(self) -> str:
        return f"Matches({', '.join(f'{field.name}: {field.type}' for field in self.schema)})"


def result_schema(shape: Shape, query: plan.Plan, events: pa.Schema) -> pa.Schema:
    """Return the columns of a shape."""
    if shape == "positions":
        return POSITIONS
    if shape == "matches":
        return query.result_schema
    taken = {"match_id", "variables"} & {field.name.lower() for field in events}
    if taken:
        raise CeqlError(f"shape='events' adds a column '{taken.pop()}', which the events have already: rename theirs")
    names = [
        pa.field("match_id", pa.string(), nullable=False),
        pa.field("variables", pa.list_(pa.string()), nullable=False),
    ]
    return pa.schema([*names, *events])


class Ordinals:
    """Numbers the matches of each last event. Those told by the same need not follow one another within a moment."""

    def __init__(self, moment: int | str = -1, counts: Iterable[tuple[int | str, int]] = ()) -> None:
        self.moment = moment
        self.counts = dict(counts)

    def next(self, end: int | str, moment: int | str) -> int:
        """Return the number of the next match."""
        if moment != self.moment:
            self.moment, self.counts = moment, {}
        ordinal = self.counts.get(end, 0)
        self.counts[end] = ordinal + 1
        return ordinal

    def copy(self) -> Ordinals:
        """Return an independent copy."""
        return Ordinals(self.moment, self.counts.items())


class ResultBuilder:
    """Turns chunks of rows into record batches of one shape."""

    def __init__(self, shape: Shape, query: plan.Plan, schema: pa.Schema, id_columns: tuple[str, ...] = ()) -> None:
        self.shape = shape
        self.plan = query
        self.schema = schema
        self.id_columns = id_columns
        self.ordinals = Ordinals()

    def build(self, chunk: Chunk, labels: list[Label], history: History | None) -> pa.RecordBatch:
        """Return the rows of some matches."""
        if self.shape == "positions":
            positions = pa.ListArray.from_arrays(
                pa.array(chunk.offsets.astype(np.int32, copy=False)),
                pa.array(chunk.rows),
                type=POSITIONS.field("positions").type,
            )
            return pa.record_batch([pa.array(chunk.start), pa.array(chunk.end), positions], schema=POSITIONS)
        assert history is not None
        return (
            self._matches(chunk, labels, history) if self.shape == "matches" else self._events(chunk, labels, history)
        )

    def _matches(self, chunk: Chunk, labels: list[Label], history: History) -> pa.RecordBatch:
        columns = [history.column(name, chunk.end) for name in self.plan.partition_by]
        for rows in (chunk.start, chunk.end):
            columns.append(pa.array(rows) if self.plan.bounds is None else history.column(self.plan.bounds, rows))
        match_of = np.repeat(np.arange(len(chunk)), np.diff(chunk.offsets))
        for variable in self.plan.variables:
            is_bound = np.array([variable.name in label for label in labels], np.bool_)[chunk.labels]
            rows, matches = chunk.rows[is_bound], match_of[is_bound]
            columns.append(_variable_column(variable, rows, matches, len(chunk), history))
        columns = [as_type(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
        return pa.record_batch(columns, schema=self.schema)

    def _events(self, chunk: Chunk, labels: list[Label], history: History) -> pa.RecordBatch:
        lengths = np.diff(chunk.offsets)
        ids = [f"{end}-{self.ordinals.next(end, moment)}" for end, moment in self._ends(chunk, history)]
        match_ids = pa.array(ids, pa.string()).take(pa.array(np.repeat(np.arange(len(chunk)), lengths)))
        names = pa.array([sorted(label) for label in labels], pa.list_(pa.string()))
        columns = [match_ids, names.take(pa.array(chunk.labels))]
        columns += history.columns(self.schema.names[2:], chunk.rows)
        columns = [as_type(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
        return pa.record_batch(columns, schema=self.schema)

    def _ends(self, chunk: Chunk, history: History) -> Iterable[tuple[int | str, int | str]]:
        """Return what stands for each match's last event, and for all events that may be told by the same.

        That is its row number; or a digest of what tells it apart, and the first of these columns.
        """
        if not self.id_columns:
            return ((row, row) for row in chunk.end.tolist())
        rows, of_match = np.unique(chunk.end, return_inverse=True)
        values = zip(*(history.column(name, rows).to_pylist() for name in self.id_columns), strict=True)
        ends = [(hashlib.blake2b(repr(one).encode(), digest_size=12).hexdigest(), repr(one[0])) for one in values]
        return (ends[number] for number in of_match.reshape(-1).tolist())


def _variable_column(
    variable: plan.Variable, rows: IntArray, matches: IntArray, n_matches: int, history: History
) -> pa.Array:
    """Return a variable's column: structs of its events' attributes, or lists of them."""
    is_list = variable.multiplicity is plan.Multiplicity.SEVERAL
    if not is_list:
        bound = np.full(n_matches, -1, np.int64)
        bound[matches] = rows
        rows = bound
    data_type = variable.field.type
    struct_type = data_type.value_type if is_list else data_type
    columns = history.columns([name for name, _ in variable.attributes], rows)
    arrays = [as_type(column, one.type) for column, one in zip(columns, struct_type, strict=True)]
    mask = pa.array(rows < 0) if not is_list and len(rows) and rows.min() < 0 else None
    structs = (
        pa.StructArray.from_arrays(arrays, fields=list(struct_type), mask=mask) if arrays else _empty_structs(rows)
    )
    if not is_list:
        return structs
    offsets = np.concatenate([[0], np.cumsum(np.bincount(matches, minlength=n_matches))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), structs, type=data_type)


def _empty_structs(rows: IntArray) -> pa.Array:
    return pa.array([{} if row >= 0 else None for row in rows.tolist()], pa.struct([]))


def as_type(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return an array as one of another type that can hold the same values; `DataError` if they do not fit."""
    if array.type == data_type:
        return array
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    try:
        if not pa.types.is_dictionary(data_type):
            return array.cast(data_type)
        encoded = array.cast(data_type.value_type).dictionary_encode()
        indices = encoded.indices.cast(data_type.index_type)
    except pa.ArrowInvalid as error:
        raise DataError(f"values do not fit type {data_type}: {error}") from error
    return pa.DictionaryArray.from_arrays(indices, encoded.dictionary, ordered=data_type.ordered)
