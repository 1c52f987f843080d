"""A query bound to the schema of its events: program, memo and run state side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ceql.automaton.lazy import Alphabet, DetState
from ceql.automaton.passes import collapse_labels, simplify
from ceql.automaton.properties import compared_by, event_types, sees_every_event
from ceql.engine.intake.batch import check_type_column
from ceql.engine.intake.classes import Columns, columns_of
from ceql.engine.intake.fold import keep_keyed, keep_where
from ceql.engine.intake.history import History
from ceql.engine.intake.keys import NO_KEY, KeyEncoder, count_events, positions_by_key
from ceql.engine.intake.measure import Measure
from ceql.engine.intake.symbols import SymbolEncoder
from ceql.engine.intake.text import check_text
from ceql.engine.intake.ties import Ties
from ceql.engine.results.matches import Ordinals, ResultBuilder, Shape, as_type, result_schema
from ceql.engine.results.shared import SharedBuilder, shared_schema
from ceql.engine.run import check_content
from ceql.engine.run.arena import UNION
from ceql.engine.run.chunk import Chunk
from ceql.engine.run.kernel import KEY
from ceql.engine.run.memo import START
from ceql.engine.run.recognizer import Events, Recognizer, check_size
from ceql.engine.run.snapshot import Content
from ceql.engine.run.state import KEY_ARRAYS
from ceql.engine.run.undo import Undo
from ceql.errors import DataError
from ceql.query import Query
from ceql.syntax import plan

IntArray = np.ndarray[Any, np.dtype[Any]]

BLOCK = 1 << 18
"""Events that go through predicates and kernel together: many, so that what Python does for each is not felt."""

FIRST_EVENTS = 1 << 12
"""Events among which all types of a query are looked for first."""

MIN_HISTORY = 1 << 18
"""Rows of history below which nothing is forgotten: forgetting costs a collection."""

MIN_HISTORY_BYTES = 1 << 25
"""Bytes of it, likewise: rows may hold long texts."""

MIN_KEYS = 1 << 15
"""Partition keys below which none is forgotten."""


class Bound:
    """A query bound to the schema of the events: program, memo and run state side by side."""

    def __init__(
        self,
        query: Query,
        schema: pa.Schema,
        *,
        shape: Shape,
        type_column: str | None,
        time_column: str | None,
        order: tuple[str, ...] = (),
        id_columns: tuple[str, ...] = (),
        shares_events: bool = False,
        sorting: str | None = None,
        **options: Any,
    ) -> None:
        self.query = query
        self.events_schema = schema
        self.type_column = type_column
        if self.type_column is not None:
            check_type_column(self.type_column, schema)
        bound = query.plan
        self._stored = pa.schema([one.with_type(_stored_type(one.type)) for one in schema])
        automaton = simplify(collapse_labels(query.automaton)) if shape == "positions" else query.automaton
        self._automaton = automaton
        self._guards = Alphabet.of(automaton).guards
        self.encoder = SymbolEncoder(self._guards)
        self.read = sorted(
            {name for guard in self._guards for one in guard for name in columns_of(one)} & set(schema.names)
        )
        used = {*self.read, *bound.partition_by, *([] if type_column is None else [type_column])}
        self._texts = [name for name in schema.names if shape != "positions" or name in used]
        self.measure = Measure(bound.window, self._stored, sorting)
        is_measured = time_column is None or time_column == self.measure.attribute
        self.clock = None
        if time_column is not None and not is_measured:
            self.clock = Measure.ordering(time_column, self._stored, sorting)
        self.keys = KeyEncoder(len(bound.partition_by)) if bound.partition_by else None
        self.counts_events_by_key = isinstance(bound.window, plan.EventsWindow) and self.keys is not None
        self.may_drop = not sees_every_event(bound, automaton)
        self.ties = Ties(() if self.may_drop else order)
        self.types_named = event_types(query.automaton)
        self.types_seen: set[str] = set()
        self.recognizer = Recognizer(
            automaton,
            compared_by(bound, automaton),
            bound.consumption,
            size=self.measure.size,
            limit=bound.limit,
            counts_events_by_key=self.counts_events_by_key,
            is_partitioned=self.keys is not None,
            has_labels=shape != "positions",
            is_float=self.measure.is_float,
            **options,
        )
        self.schema = shared_schema(bound) if shares_events else result_schema(shape, bound, schema)
        builder = SharedBuilder if shares_events else ResultBuilder
        self.builder = builder(shape, bound, self.schema, id_columns)
        self.history = History(self._stored) if shape != "positions" else None
        self._lacking = _lacking(bound, set(schema.names))
        self._history_limit, self._bytes_limit = MIN_HISTORY, MIN_HISTORY_BYTES
        self._keys_limit = MIN_KEYS
        # PERF: allocated once; fresh arrays of this size come from the system page by page.
        self._symbols = np.empty(BLOCK, np.int32)
        self._rows = np.arange(BLOCK, dtype=np.int32)

    def check_schema(self, schema: pa.Schema) -> None:
        """Refuse a batch that differs from the first one."""
        for field in self.events_schema:
            if field.name not in schema.names:
                raise DataError(f"this batch lacks the column '{field.name}', which the first batch had")
            data_type = schema.field(field.name).type
            if _plain(data_type) != _plain(field.type):
                raise DataError(
                    f"column '{field.name}' is of type {data_type} in this batch, but {field.type} in the first"
                )

    @property
    def n_bytes(self) -> int:
        """Bytes that are held between batches: the run state, the keys, and the rows that results may still show."""
        keys, history = self.keys, self.history
        return (
            self.recognizer.state.n_bytes
            + (0 if keys is None else keys.n_bytes)
            + (0 if history is None else history.n_bytes)
        )

    def begin_batch(self) -> Callable[[], None]:
        """Return what undoes all that is done until `end_batch`."""
        undo = self.recognizer.undo = Undo(self.recognizer.state)
        history = None if self.history is None else self.history.copy()
        first, times = self.measure.first, [one.last for one in self._clocks]
        ordinals = self.builder.ordinals.copy()
        # The list stays as it is but for states that are added, unless the memo restarts with another.
        states = self.recognizer.memo.states
        # So do the keys, unless some are forgotten.
        keys = self.keys
        n_keys = None if keys is None else keys.size

        def undo_batch() -> None:
            self.recognizer.state = undo.undone(self.recognizer.state)
            self.recognizer.undo = None
            self.history, self.builder.ordinals, self.keys = history, ordinals, keys
            if keys is not None and n_keys is not None:
                keys.shorten(n_keys)
            memo = self.recognizer.memo
            if memo.states is not states:
                memo.restart(states, memo.n_symbols)
            self.measure.first = first
            for one, last in zip(self._clocks, times, strict=True):
                one.last = last

        return undo_batch

    def end_batch(self) -> None:
        """Make a batch final."""
        self.recognizer.undo = None

    def content(self) -> Content:
        """Return what must outlive the process: the run state, the keys, and the rows that are still needed."""
        recognizer = self.recognizer
        recognizer.collect(self._now)
        self._forget_keys()
        memo, n_keys = recognizer.memo, 0 if self.keys is None else self.keys.n_keys
        content: Content = {
            "states": [[sorted(part) for part in one] for one in memo.states],
            "labels": [sorted(label) for label in memo.labels],
            **recognizer.state.content(n_keys),
            "first": self.measure.first,
            "last": [None if one.last is None else one.last.item() for one in self._clocks],
            "ordinals": [self.builder.ordinals.moment, list(self.builder.ordinals.counts.items())],
            "events": self.events_schema.empty_table(),
        }
        if self.keys is not None:
            content["key_codes"] = self.keys.codes[:n_keys]
            for index, (dictionary, data_type) in enumerate(zip(self.keys.dictionaries, self._key_types, strict=True)):
                content[f"key_values_{index}"] = pa.table({"value": pa.array(list(dictionary), data_type)})
        if self.history is not None:
            self._keep_live_rows()
            content["row_ids"], content["rows"] = self.history.snapshot()
        return content

    def take(self, content: Content) -> None:
        """Put content back in place, or raise an error if no session can have written it."""
        memo = self.recognizer.memo
        check_content.check_names(content, memo.states[START], self._automaton)
        for parts in content["states"]:
            memo.number(DetState(*(frozenset(part) for part in parts)))
        for label in content["labels"]:
            memo.label_id(frozenset(label))
        check_content.check_state(
            content,
            memo,
            number=self.recognizer.number,
            are_floats=[one.is_float for one in self._clocks],
            counts_rows=self.measure.counts_rows,
            key_types=self._key_types,
            rows=None if self.history is None else self._stored,
        )
        self.recognizer.state.take(content)
        self.measure.first = content["first"]
        self._take_times(content["last"])
        self.builder.ordinals = Ordinals(*content["ordinals"])
        if self.keys is not None:
            values = [
                content[f"key_values_{index}"]["value"].to_pylist() for index in range(len(self.keys.dictionaries))
            ]
            self.keys = KeyEncoder.of(content["key_codes"], values)
        if self.history is not None:
            done = 0
            for part in content["rows"].combine_chunks().to_batches():
                self.history.append_rows(content["row_ids"][done : done + len(part)], part)
                done += len(part)

    def _take_times(self, times: list[float | None]) -> None:
        for one, last in zip(self._clocks, times, strict=True):
            one.last = None if last is None else (np.float64 if one.is_float else np.int64)(last)

    def build(self, chunk: Chunk) -> pa.RecordBatch:
        """Return the result rows of some matches."""
        return self.builder.build(chunk, self.recognizer.memo.labels, self.history)

    def run(self, part: pa.RecordBatch, streams: IntArray | None, is_read: Callable[[], bool]) -> Iterator[Chunk]:
        """Yield the matches that the rows of one record batch complete."""
        state = self.recognizer.state
        first_row = state.n_events
        part = self._as_stored(part, first_row)
        types = None if self.type_column is None else part.column(self.type_column)
        self._see_types(part, types, streams)
        part = self._without_lacking(part, types, streams)
        self.ties.read(part, streams)
        if self.history is not None:
            self.history.append(first_row, part)
        times, is_timed = self._times(part, first_row)
        state.n_dropped += self._n_left_out(part, is_timed)
        slots = np.empty(0, np.int32)
        if self.counts_events_by_key:
            # Until the end of the batch the state keeps the old counts: a collection in between
            # may take a key for younger than it is, never for older.
            slots = self._slots(part, np.arange(len(part)))
            times = positions_by_key(slots, state.key_events)
        for begin in range(0, len(part), BLOCK):
            own = slice(begin, min(begin + BLOCK, len(part)))
            n_kept = self._encode(self._columns(part, types, streams, own), own.stop - own.start, is_timed[own])
            symbols, rows = self._symbols[:n_kept], self._rows[:n_kept]
            own_slots = slots[own]
            if self.keys is not None:
                own_slots = (
                    own_slots[rows] if self.counts_events_by_key else self._slots(part.slice(begin, BLOCK), rows)
                )
                n_kept = keep_keyed(own_slots, symbols, rows)
            self.ties.count(begin, rows[:n_kept], own_slots[:n_kept])
            if n_kept:
                events = Events(symbols[:n_kept], rows[:n_kept], first_row + begin, times[own], own_slots[:n_kept])
                for chunk in self.recognizer.run(events, self.encoder.masks, is_read=is_read()):
                    state.n_matches += len(chunk)
                    yield from self.builder.parts(chunk, self.recognizer.memo.labels, self.history)
        state.n_events += len(part)
        if self.counts_events_by_key:
            count_events(slots, state.key_events)

    def _times(self, part: pa.RecordBatch, first_row: int) -> tuple[IntArray, IntArray]:
        """Return each row's measure and which rows have one, having checked that time does not run backwards."""
        times, is_timed = self.measure.of(part, first_row)
        if self.clock is not None:
            # Rows that no window measures are left out, so their order does not matter.
            self.clock.of(part, first_row, is_timed)
        return times, is_timed

    @property
    def _key_types(self) -> list[pa.DataType]:
        return [_plain(self._stored.field(name).type) for name in self.query.plan.partition_by]

    @property
    def _clocks(self) -> list[Measure]:
        return [self.measure] if self.clock is None else [self.measure, self.clock]

    def _n_left_out(self, part: pa.RecordBatch, is_timed: IntArray) -> int:
        """Return how many rows belong to no partition or have nothing that the window could measure."""
        keys = [part.column(name) for name in self.query.plan.partition_by if part.column(name).null_count]
        if not keys:
            return len(is_timed) - int(is_timed.sum())
        is_kept = is_timed if len(is_timed) else np.ones(len(part), np.bool_)
        for key in keys:
            is_kept = is_kept & pc.is_valid(key).to_numpy(zero_copy_only=False)
        return len(part) - int(is_kept.sum())

    def _see_types(self, part: pa.RecordBatch, types: pa.Array | None, streams: IntArray | None) -> None:
        """Note which event types there are, as long as one in the query has not come and nothing was found."""
        if self.recognizer.state.n_matches or self.types_named <= self.types_seen or not len(part):
            return
        if types is None:
            numbers = [0] if streams is None else np.unique(streams).tolist()
            self.types_seen.update(self.query.plan.sources[number] for number in numbers)
            return
        # Most types are among the first events; only if one is not, all have to be looked at.
        for some in (types.slice(0, FIRST_EVENTS), types):
            if not self.types_named <= self.types_seen:
                self.types_seen.update(some.unique().drop_null().to_pylist())

    def _as_stored(self, part: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """Return the columns of the first batch, in the types that they are kept in, their text checked."""
        columns = [as_type(part.column(field.name), field.type) for field in self._stored]
        stored = pa.record_batch(columns, schema=self._stored)
        for name in self._texts:
            check_text(stored.column(name), name, first_row)
        return stored

    def _encode(self, columns: Columns, n_rows: int, is_timed: IntArray) -> int:
        """Write symbol and row of the events that the kernel has to see to the buffers; return how many.

        Left out are those without a measure and, where possible, those that satisfy no guard.
        """
        symbols, rows = self._symbols[:n_rows], self._rows[:n_rows]
        if len(self.encoder.masks) > self.recognizer.memo.capacity:
            self.encoder = SymbolEncoder(self._guards)
            self.recognizer.forget_states()
        if self.may_drop:
            n_rows = self.encoder.encode(columns, symbols, rows)
        else:
            self.encoder.encode(columns, symbols)
            rows[:] = np.arange(n_rows)
        return int(keep_where(is_timed, symbols, rows, n_rows)) if len(is_timed) else n_rows

    def _slots(self, part: pa.RecordBatch, rows: IntArray) -> IntArray:
        """Return the slot of the partition key of some rows, with room for all of them in the state."""
        assert self.keys is not None
        slots = self.keys.encode([part.column(name) for name in self.query.plan.partition_by], rows)
        state, undo = self.recognizer.state, self.recognizer.undo
        state.make_room_for_keys(self.keys.n_keys)
        if undo is not None:
            undo.save_keys(state, slots)
        return slots

    def _columns(self, part: pa.RecordBatch, types: pa.Array | None, streams: IntArray | None, own: slice) -> Columns:
        begin, end = own.start, own.stop
        sources = self.query.plan.sources
        own_types = sources[0] if types is None else types.slice(begin, end - begin)
        arrays = {name: part.column(name).slice(begin, end - begin) for name in self.read}
        if streams is None:
            return Columns(arrays, own_types)
        if types is None:
            own_types = pa.DictionaryArray.from_arrays(pa.array(streams[begin:end]), pa.array(list(sources)))
        return Columns(arrays, own_types, streams[begin:end], sources)

    def _without_lacking(
        self, part: pa.RecordBatch, types: pa.Array | None, streams: IntArray | None
    ) -> pa.RecordBatch:
        """Return the rows with NULL in every attribute that an event's type lacks."""
        if not self._lacking:
            return part
        numbers = np.zeros(len(part), np.int32) if streams is None else streams
        if types is None:
            types = pa.array(list(self.query.plan.sources)).take(pa.array(numbers))
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

    @property
    def _now(self) -> Any:
        return self.measure.now(self.recognizer.state.n_events)

    def expire(self, now: Any = None) -> None:
        """Let go of all that cannot match an event at `now` or later, in the units of the window's attribute.

        Without it, that is the time of the last event.
        """
        self.recognizer.collect(self._now if now is None or self.measure.counts_rows else now)
        self._forget_keys()
        self.recognizer.state.give_back_room()
        if self.history is not None:
            self._keep_live_rows()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held that a later event could need."""
        return self.recognizer.state.n_nodes == 0

    def key_hashes(self) -> IntArray:
        """Return the hash of each partition key that has a slot."""
        return np.empty(0, np.uint64) if self.keys is None else self.keys.hashes()

    def keep_keys(self, is_kept: IntArray) -> None:
        """Let go of all that belongs to other partition keys than some, told in the order of `key_hashes`."""
        assert self.keys is not None
        state = self.recognizer.state
        state.key_length[: self.keys.n_keys][~is_kept] = 0
        current = int(state.control[KEY])
        if current >= 0 and not is_kept[current]:
            state.active[:] = 0
        self.expire()

    def _forget_keys(self) -> None:
        """Give the slots of keys without open matches to others; a collection must have come just before."""
        if self.keys is None:
            return
        state = self.recognizer.state
        is_live = state.key_length[: self.keys.n_keys] > 0
        current = int(state.control[KEY])
        if current >= 0:
            is_live[current] = state.active.any()
        self._keys_limit = _next_limit(MIN_KEYS, int(is_live.sum()), state.n_nodes)
        if is_live.all():
            return
        slots = np.cumsum(is_live) - 1
        state.control[KEY] = slots[current] if current >= 0 and is_live[current] else NO_KEY
        for name in KEY_ARRAYS:
            kept = getattr(state, name)[: self.keys.n_keys][is_live]
            room = np.zeros((max(64, 2 * len(kept)), *kept.shape[1:]), kept.dtype)
            room[: len(kept)] = kept
            setattr(state, name, room)
        self.keys = self.keys.kept(is_live)
        self.ties.begin_anew()

    def forget(self) -> None:
        """Let go of keys and rows that no open match needs, once there are many."""
        limit = self.recognizer.max_state_bytes
        is_too_large = limit is not None and self.n_bytes > limit
        has_many_keys = self.keys is not None and self.keys.n_keys > self._keys_limit
        has_many_rows = self.history is not None and (
            self.history.n_rows >= self._history_limit or self.history.n_bytes >= self._bytes_limit
        )
        if is_too_large or has_many_keys or has_many_rows:
            self.expire()
            check_size(self.n_bytes, limit)

    def _keep_live_rows(self) -> None:
        assert self.history is not None
        state = self.recognizer.state
        self.history.keep_only(state.data[: state.n_nodes][state.kind[: state.n_nodes] != UNION])
        self._history_limit = max(MIN_HISTORY, 2 * self.history.n_rows)
        self._bytes_limit = max(MIN_HISTORY_BYTES, 2 * self.history.n_bytes)


def _next_limit(least: int, n_kept: int, n_nodes: int) -> int:
    """Return how many there may be before some are forgotten again: that costs as much as there are, and nodes."""
    return n_kept + max(least, n_kept, n_nodes // 4)


def _stored_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type that a column is kept in: one that Arrow can take rows from, with room for any dictionary."""
    if pa.types.is_string_view(data_type):
        return pa.large_string()
    if pa.types.is_binary_view(data_type):
        return pa.large_binary()
    if pa.types.is_decimal(data_type) and data_type.bit_width < 128:
        return pa.decimal128(data_type.precision, data_type.scale)
    if pa.types.is_dictionary(data_type) and data_type.index_type.bit_width < 32:
        return pa.dictionary(pa.int32(), data_type.value_type, data_type.ordered)
    return data_type


def _plain(data_type: pa.DataType) -> pa.DataType:
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


def _lacking(query: plan.Plan, columns: set[str]) -> dict[frozenset[tuple[int, frozenset[str]]], list[str]]:
    """Return the columns that some event types lack, by these types: numbers of streams with names of types."""
    types: dict[str, dict[int, set[str]]] = {}
    for stream, event_type in query.declared:
        for name in query.lacked_by(stream, event_type) & columns:
            types.setdefault(name, {}).setdefault(query.sources.index(stream), set()).add(event_type)
    found: dict[frozenset[tuple[int, frozenset[str]]], list[str]] = {}
    for name, by_stream in types.items():
        found.setdefault(frozenset((number, frozenset(one)) for number, one in by_stream.items()), []).append(name)
    return found
