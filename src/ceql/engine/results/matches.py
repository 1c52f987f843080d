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
from ceql.engine.intake.history import History, Stretch
from ceql.engine.run.chunk import Chunk
from ceql.errors import CeqlError, DataError
from ceql.syntax import plan
from ceql.visible import visible

IntArray = np.ndarray[Any, np.dtype[Any]]

Shape = Literal["matches", "events", "positions"]
SHAPES = ("matches", "events", "positions")

MAX_BATCH_BYTES = 1 << 25
"""Bytes of events in a batch of the result, roughly and at most; but a match is never split."""

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
        n_dropped: Callable[[], int] = lambda: 0,
    ) -> None:
        self.schema = schema
        self.plan = query
        self.start = start
        self._n_dropped = n_dropped

    @property
    def dropped(self) -> int:
        """How many of the events read so far were left out because a partition key or the window's time is NULL."""
        return self._n_dropped()

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
        """Return all matches as a pandas frame; `options` are those of pyarrow's `Table.to_pandas`."""
        table = self.to_arrow()
        frame = table.to_pandas(**options)
        # Arrow hands nanoseconds inside of structs and lists over as bare integers.
        for field in table.schema:
            if pa.types.is_nested(field.type) and "[ns" in str(field.type):
                frame[field.name] = table[field.name].to_pylist()
        return frame

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
        return visible(f"Matches({', '.join(f'{field.name}: {field.type}' for field in self.schema)})")


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

    def parts(self, chunk: Chunk, labels: list[Label], history: History | None) -> Iterator[Chunk]:
        """Yield the same matches in parts of which no result gets too large."""
        names = {variable.name for variable in self.plan.variables}
        n_shown = np.array([max(1, len(names & label)) for label in labels])
        if history is None or len(chunk.rows) * history.widest * n_shown.max(initial=1) <= MAX_BATCH_BYTES:
            yield chunk
            return
        stretch = history.stretch(chunk.rows)
        n_bytes = stretch.row_bytes(stretch.indices(chunk.rows)) * n_shown[chunk.labels]
        before = np.concatenate([[0], np.cumsum(n_bytes)])[chunk.offsets]
        begin = 0
        while begin < len(chunk):
            end = int(np.searchsorted(before, before[begin] + MAX_BATCH_BYTES, side="right")) - 1
            end = max(end, begin + 1)
            yield chunk.part(begin, end)
            begin = end

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
        stretch = history.stretch(np.concatenate([chunk.start, chunk.end, chunk.rows]))
        return (
            self._matches(chunk, labels, stretch) if self.shape == "matches" else self._events(chunk, labels, stretch)
        )

    def _matches(self, chunk: Chunk, labels: list[Label], stretch: Stretch) -> pa.RecordBatch:
        columns = self._bounds(chunk, stretch)
        for variable, indices in self._bound(chunk, labels, stretch):
            if variable.multiplicity is plan.Multiplicity.SEVERAL:
                structs = structs_at(indices.values, variable.struct, stretch)
                columns.append(pa.ListArray.from_arrays(indices.offsets, structs, type=variable.field.type))
            else:
                columns.append(structs_at(indices, variable.struct, stretch))
        columns = [as_type(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
        return pa.record_batch(columns, schema=self.schema)

    def _bounds(self, chunk: Chunk, stretch: Stretch) -> list[pa.Array]:
        """Return the partition key, start and end of each match."""
        ends = pa.array(stretch.indices(chunk.end))
        columns = stretch.columns(self.plan.partition_by, ends)
        if self.plan.bounds is None:
            return [*columns, pa.array(chunk.start), pa.array(chunk.end)]
        starts = pa.array(stretch.indices(chunk.start))
        return columns + [stretch.columns([self.plan.bounds], one)[0] for one in (starts, ends)]

    def _bound(self, chunk: Chunk, labels: list[Label], stretch: Stretch) -> Iterator[tuple[plan.Variable, pa.Array]]:
        """Yield the indices of the events that each variable binds in each match: one, NULL, or a list."""
        indices, length = stretch.indices(chunk.rows), _common_length(chunk)
        for variable in self.plan.variables:
            binds = np.array([variable.name in label for label in labels], np.bool_)
            if variable.multiplicity is plan.Multiplicity.SEVERAL:
                yield variable, _lists(chunk, binds, indices)
            else:
                yield variable, _one_each(chunk, binds, indices, length)

    def _events(self, chunk: Chunk, labels: list[Label], stretch: Stretch) -> pa.RecordBatch:
        lengths = np.diff(chunk.offsets)
        ids = [f"{end}-{self.ordinals.next(end, moment)}" for end, moment in self._ends(chunk, stretch)]
        match_ids = pa.array(ids, pa.string()).take(pa.array(np.repeat(np.arange(len(chunk)), lengths)))
        names = pa.array([sorted(label) for label in labels], pa.list_(pa.string()))
        columns = [match_ids, names.take(pa.array(chunk.labels))]
        columns += stretch.columns(self.schema.names[2:], pa.array(stretch.indices(chunk.rows)))
        columns = [as_type(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
        return pa.record_batch(columns, schema=self.schema)

    def _ends(self, chunk: Chunk, stretch: Stretch) -> Iterable[tuple[int | str, int | str]]:
        """Return what stands for each match's last event, and for all events that may be told by the same.

        That is its row number; or a digest of what tells it apart, and the first of these columns.
        """
        if not self.id_columns:
            return ((row, row) for row in chunk.end.tolist())
        rows, of_match = np.unique(chunk.end, return_inverse=True)
        columns = stretch.columns(self.id_columns, pa.array(stretch.indices(rows)))
        values = zip(*(as_numbers(column).to_pylist() for column in columns), strict=True)
        # The two zeros are one moment.
        ends = [(hashlib.blake2b(repr(one).encode(), digest_size=12).hexdigest(), repr(one[0] or 0)) for one in values]
        return (ends[number] for number in of_match.reshape(-1).tolist())


def _common_length(chunk: Chunk) -> int:
    """Return how many events each match has if all have the same labels in the same order, otherwise 0."""
    length = len(chunk.rows) // len(chunk)
    if not length or not np.array_equal(chunk.offsets, np.arange(0, len(chunk.rows) + 1, length)):
        return 0
    return length if np.array_equal(chunk.labels[length:], chunk.labels[:-length]) else 0


def _one_each(chunk: Chunk, binds: IntArray, indices: IntArray, length: int) -> pa.Array:
    """Return the index of the event that a variable binds in each match, NULL where it binds none."""
    # PERF: the usual case needs no look at each label: rows of Q1 of the paper in 214 instead of 244 ns per match.
    first = np.flatnonzero(binds.take(chunk.labels[:length]))
    if len(first):
        return pa.array(indices[first[0] :: length])
    places = np.flatnonzero(binds.take(chunk.labels))
    if len(places) == len(chunk):
        return pa.array(indices[places])
    one_each = np.full(len(chunk), -1, np.int64)
    one_each[np.repeat(np.arange(len(chunk)), np.diff(chunk.offsets))[places]] = indices[places]
    return pa.array(one_each, mask=one_each < 0)


def _lists(chunk: Chunk, binds: IntArray, indices: IntArray) -> pa.Array:
    """Return the indices of the events that a variable binds in each match."""
    is_bound = binds.take(chunk.labels)
    n_before = np.concatenate([[0], np.cumsum(is_bound)])
    offsets = pa.array(n_before[chunk.offsets].astype(np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(indices[np.flatnonzero(is_bound)]))


def structs_at(indices: pa.Array, data_type: pa.StructType, stretch: Stretch) -> pa.Array:
    """Return the attributes of the events at some indices; NULL gives NULL."""
    fields = list(data_type)
    if not fields:
        return pa.array([{} if one.is_valid else None for one in indices], data_type)
    columns = stretch.columns([field.name for field in fields], indices)
    arrays = [as_type(column, field.type) for column, field in zip(columns, fields, strict=True)]
    mask = indices.is_null() if indices.null_count else None
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)


def as_numbers(array: pa.Array) -> pa.Array:
    """Return times and dates as numbers: Python has no years beyond 9999, nor every time zone of Spark."""
    if pa.types.is_timestamp(array.type):
        return array.cast(pa.int64())
    return array.cast(pa.int32()) if pa.types.is_date32(array.type) else array


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
