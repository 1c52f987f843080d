"""Turns rows of matches into Arrow batches, in one of three shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ceql.automaton.cea import Label
from ceql.engine.intake.columns import as_type
from ceql.engine.intake.history import History, Stretch
from ceql.engine.options import Shape
from ceql.engine.results.deadlines import later
from ceql.engine.results.values import MIN_PLACES, Places, Values, have_same_labels
from ceql.engine.run.chunk import Chunk
from ceql.errors import CeqlError
from ceql.syntax import plan

IntArray = np.ndarray[Any, np.dtype[Any]]

MAX_BATCH_BYTES = 1 << 25
"""Roughly the most bytes of events in a batch of the result; but a match is never split."""

POSITIONS = pa.schema(
    [
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("positions", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False),
    ]
)


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
    """Numbers the matches that end at the same event.

    Each event has a name. All matches that end at one moment come together, but matches that end at different events of
    that moment may alternate. So there is a count for each event of the moment.
    """

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

    def __init__(self, shape: Shape, query: plan.Plan, events: pa.Schema) -> None:
        self.shape = shape
        self.plan = query
        self.schema = self.columns(events)
        self.ordinals = Ordinals()

    def columns(self, events: pa.Schema) -> pa.Schema:
        """Return the columns of the result."""
        return result_schema(self.shape, self.plan, events)

    def parts(self, chunk: Chunk, labels: list[Label], history: History | None) -> Iterator[Chunk]:
        """Yield the same matches in parts, so that no result gets too large."""
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
        stretch = history.between(int(chunk.start.min()), int(chunk.end.max()), chunk.start, chunk.end, chunk.rows)
        return (
            self._matches(chunk, labels, stretch) if self.shape == "matches" else self._events(chunk, labels, stretch)
        )

    def _matches(self, chunk: Chunk, labels: list[Label], stretch: Stretch) -> pa.RecordBatch:
        values, length = Values(stretch), _common_length(chunk)
        columns = self._bounds(chunk, values, length)
        for variable in self.plan.variables:
            binds = np.array([variable.name in label for label in labels], np.bool_)
            first = np.flatnonzero(binds.take(chunk.labels[:length]))
            if variable.multiplicity is plan.Multiplicity.SEVERAL:
                offsets, places = _lists(chunk, binds)
                structs = _structs(values, variable.struct, places)
                columns.append(pa.ListArray.from_arrays(offsets, structs, type=variable.field.type))
            elif len(first):
                columns.append(_structs(values, variable.struct, Places(chunk.rows, int(first[0]), length)))
            else:
                columns.append(structs_at(_one_each(chunk, binds, stretch), variable.struct, stretch))
        columns = [as_type(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
        return pa.record_batch(columns, schema=self.schema)

    def _bounds(self, chunk: Chunk, values: Values, length: int) -> list[pa.Array]:
        """Return the partition key, start and end of each match."""
        ends = _same_places(chunk, chunk.end, length, length - 1)
        columns = values.at(self.plan.partition_by, ends)
        if self.plan.bounds is None:
            return [*columns, pa.array(chunk.start), pa.array(chunk.end)]
        starts = _same_places(chunk, chunk.start, length, 0)
        start, end = (values.at([self.plan.bounds], places)[0] for places in (starts, ends))
        silence = self.plan.silence_after
        return [*columns, start, end if silence is None else later(end, silence.size)]

    def _events(self, chunk: Chunk, labels: list[Label], stretch: Stretch) -> pa.RecordBatch:
        lengths = np.diff(chunk.offsets)
        ids = [f"{end}-{self.ordinals.next(end, moment)}" for end, moment in self.ends(chunk, stretch)]
        match_ids = pa.array(ids, pa.string()).take(pa.array(np.repeat(np.arange(len(chunk)), lengths)))
        names = pa.array([sorted(label) for label in labels], pa.list_(pa.string()))
        columns = [match_ids, names.take(pa.array(chunk.labels))]
        columns += Values(stretch).at(self.schema.names[2:], Places(chunk.rows))
        columns = [as_type(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
        return pa.record_batch(columns, schema=self.schema)

    def ends(self, chunk: Chunk, stretch: Stretch) -> Iterable[tuple[int | str, int | str]]:
        """Return the name of each match's last event, and its moment; events with equal names have equal moments."""
        return ((row, row) for row in chunk.end.tolist())


def _common_length(chunk: Chunk) -> int:
    """Return how many events each match has if all have the same labels in the same order, otherwise 0."""
    length, labels = len(chunk.rows) // len(chunk), chunk.labels
    if not length:
        return 0
    if len(chunk) >= MIN_PLACES:
        # Equal labels may be stored as one.
        several = labels if labels.strides[0] else np.empty(0, labels.dtype)
        return length if have_same_labels(chunk.offsets, several, length) else 0
    if not np.array_equal(chunk.offsets, np.arange(0, len(chunk.rows) + 1, length)):
        return 0
    return length if np.array_equal(labels[length:], labels[:-length]) else 0


def _same_places(chunk: Chunk, rows: IntArray, length: int, begin: int) -> Places:
    """Return the places of the first or last events; if a variable has the same events, then in its own rows."""
    if length and np.array_equal(chunk.rows[begin::length], rows):
        return Places(chunk.rows, begin, length)
    return Places(rows)


def _one_each(chunk: Chunk, binds: IntArray, stretch: Stretch) -> pa.Array:
    """Return the index of the event that a variable binds in each match, NULL where it binds none."""
    places = np.flatnonzero(binds.take(chunk.labels))
    indices = stretch.indices(chunk.rows[places])
    if len(places) == len(chunk):
        return pa.array(indices)
    one_each = np.full(len(chunk), -1, np.int64)
    one_each[np.repeat(np.arange(len(chunk)), np.diff(chunk.offsets))[places]] = indices
    return pa.array(one_each, mask=one_each < 0)


def _lists(chunk: Chunk, binds: IntArray) -> tuple[pa.Array, Places]:
    """Return the events that a variable binds in all matches, and where the events of each match begin."""
    is_bound = binds.take(chunk.labels)
    n_before = np.concatenate([[0], np.cumsum(is_bound)])
    offsets = pa.array(n_before[chunk.offsets].astype(np.int32))
    return offsets, Places(chunk.rows[np.flatnonzero(is_bound)])


def _structs(values: Values, data_type: pa.StructType, places: Places) -> pa.Array:
    """Return the attributes of some events."""
    fields = list(data_type)
    if not fields:
        return pa.array([{}] * len(places), data_type)
    columns = values.at([field.name for field in fields], places)
    arrays = [as_type(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=fields)


def structs_at(indices: pa.Array, data_type: pa.StructType, stretch: Stretch) -> pa.Array:
    """Return the attributes of the events at some indices; NULL gives NULL."""
    fields = list(data_type)
    if not fields:
        return pa.array([{} if index.is_valid else None for index in indices], data_type)
    columns = stretch.columns([field.name for field in fields], indices)
    arrays = [as_type(column, field.type) for column, field in zip(columns, fields, strict=True)]
    mask = indices.is_null() if indices.null_count else None
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)
