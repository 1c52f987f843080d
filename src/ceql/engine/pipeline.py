"""Runs a query over a stream: rows go through the intake, events through the run, matches through the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ceql.automaton.lazy import Alphabet
from ceql.automaton.passes import collapse_labels, simplify
from ceql.automaton.properties import event_types, sees_every_event
from ceql.engine import notes
from ceql.engine.intake.events import Block, EventEncoder, columns_read
from ceql.engine.intake.history import History
from ceql.engine.intake.intake import Intake
from ceql.engine.intake.keys import KeyEncoder
from ceql.engine.intake.measure import Measure
from ceql.engine.intake.moments import ALL_IS_OVER, TIME_IS_OVER
from ceql.engine.options import Layout, Limits
from ceql.engine.results.shapes import Ordinals, ResultBuilder
from ceql.engine.run.chunk import Chunk
from ceql.engine.run.recognizer import Silence, check_size
from ceql.engine.run.run import Run, RunBefore
from ceql.engine.run.snapshot import Content
from ceql.query import Query
from ceql.syntax import plan

IntArray = np.ndarray[Any, np.dtype[Any]]

MIN_KEYS = 1 << 15
"""With fewer partition keys, none is forgotten."""


@dataclass(frozen=True)
class Moment:
    """What is known of the time when no event tells it: a symbol of `moments`, and the time.

    `now` is a value of the attribute that shows the time; None stands for the last event, after which none comes.
    """

    symbol: int
    now: Any = None


END_OF_EVENTS, END_OF_ALL = Moment(TIME_IS_OVER), Moment(ALL_IS_OVER)


class Pipeline:
    """Intake, run and results of one query, bound to the columns of a stream."""

    def __init__(
        self,
        query: Query,
        schema: pa.Schema,
        layout: Layout,
        limits: Limits,
        builder: ResultBuilder,
        *,
        sorting: str | None = None,
    ) -> None:
        """Bind a query to a stream; `sorting` says what sorts each batch, if anything does."""
        self.query = query
        self.limits = limits
        self.builder = builder
        has_labels = layout.shape != "positions"
        automaton = query.automaton if has_labels else simplify(collapse_labels(query.automaton))
        guards = Alphabet.of(automaton).guards
        self.intake = Intake(
            query.plan,
            schema,
            type_column=layout.type_column,
            read={*columns_read(guards), *query.plan.partition_by},
            types_named=event_types(query.automaton),
            keeps_rows=has_labels,
        )
        self.encoder = EventEncoder(
            query.plan,
            guards,
            self.intake.stored,
            time_column=layout.time_column,
            sees_all=sees_every_event(query.plan, automaton),
            max_symbols=limits.memo_capacity,
            sorting=sorting,
        )
        measure, clock = self.encoder.measure, self.encoder.clock
        silence = None if clock is None else _silence(query.plan, clock)
        self.run = Run(query.plan, automaton, measure, limits, has_labels=has_labels, silence=silence)
        self.has_ended = False
        """Whether no event may come any more."""
        self._max_keys = MIN_KEYS

    @property
    def n_bytes(self) -> int:
        """Bytes that are held between batches: the run state, the keys, and the rows that results may still show."""
        held = (self.encoder.keys, self.intake.history)
        return self.run.n_bytes + sum(part.n_bytes for part in held if part is not None)

    @property
    def holds(self) -> bool:
        """Whether a partial match is held that a later event could complete."""
        return self.run.n_nodes > 0 or self.run.n_waiting > 0 or self.run.remembers(self._now)

    @property
    def next_deadline(self) -> Any:
        """The first deadline of matches that wait, in units of the clock; None if none wait."""
        return self.run.next_deadline

    def recognise(self, part: pa.RecordBatch, streams: IntArray | None, is_read: Callable[[], bool]) -> Iterator[Chunk]:
        """Yield the matches that the next rows of the stream complete.

        While `is_read` says no, matches are found and counted, but not all are yielded.
        """
        rows = self.intake.take(part, streams)
        if not self.run.n_matches:
            self.intake.look_for_types(rows)
        for block in self.encoder.encode(rows):
            yield from self._advance(block, is_read)
        self.intake.n_events += len(rows)
        self._forget()

    def reach(self, moment: Moment, is_read: Callable[[], bool]) -> Iterator[Chunk]:
        """Yield the matches that are complete at a moment, because what may not come after them has not come."""
        self.check_moment(moment)
        clock = self._clock
        if moment.now is not None and clock is not None:
            clock.last = clock.stored(moment.now)
        if self.query.plan.silence_after is not None and clock is not None and clock.last is not None:
            yield from self._advance(self.encoder.moment(moment.symbol, self.intake.n_events), is_read)
        self.has_ended |= moment.now is None
        self._forget()

    def check_moment(self, moment: Moment) -> None:
        """Refuse a time that lies before the last event."""
        clock = self._clock
        if moment.now is not None and clock is not None:
            clock.check_later(moment.now)

    @property
    def _clock(self) -> Measure | None:
        """What shows the time: the measure of silences or of the window, or the time column."""
        clocks = (self.encoder.clock, *self.encoder.clocks)
        return next((clock for clock in clocks if clock is not None and clock.attribute is not None), None)

    @property
    def _now(self) -> Any:
        """The last time in which silences are measured."""
        return None if self.encoder.clock is None else self.encoder.clock.last

    def _advance(self, block: Block, is_read: Callable[[], bool]) -> Iterator[Chunk]:
        for chunk in self.run.advance(block, is_read=is_read):
            yield from self.builder.parts(chunk, self.run.labels, self.intake.history)

    def build(self, chunk: Chunk) -> pa.RecordBatch:
        """Return the result rows of some matches."""
        return self.builder.build(chunk, self.run.labels, self.intake.history)

    def begin_batch(self) -> Before:
        """Return what `go_back` needs to undo the batch."""
        intake, encoder = self.intake, self.encoder
        return Before(
            run=self.run.begin_batch(),
            n_events=intake.n_events,
            n_dropped=encoder.n_dropped,
            n_tied=encoder.ties.n_events,
            history=None if intake.history is None else intake.history.copy(),
            first=encoder.measure.first,
            last=[clock.last for clock in encoder.clocks],
            ordinals=self.builder.ordinals.copy(),
            keys=encoder.keys,
            n_keys=() if encoder.keys is None else encoder.keys.size,
            has_ended=self.has_ended,
        )

    def go_back(self, before: Before) -> None:
        """Restore everything to the beginning of the batch."""
        intake, encoder = self.intake, self.encoder
        self.run.go_back(before.run)
        intake.n_events, intake.history = before.n_events, before.history
        encoder.n_dropped, encoder.ties.n_events = before.n_dropped, before.n_tied
        encoder.ties.begin_anew()
        encoder.measure.first = before.first
        for clock, last in zip(encoder.clocks, before.last, strict=True):
            clock.last = last
        encoder.keys = before.keys
        if encoder.keys is not None:
            encoder.keys.shorten(before.n_keys)
        self.builder.ordinals = before.ordinals
        self.has_ended = before.has_ended

    def end_batch(self) -> None:
        """Make a batch final."""
        self.run.end_batch()

    def expire(self, now: Any = None) -> None:
        """Forget partial matches that no event at `now` or later can complete.

        `now` is a value of the window's attribute, by default that of the last event.
        """
        measure = self.encoder.measure
        last = measure.now(self.intake.n_events)
        is_told = now is not None and measure.attribute is not None and not measure.counts_rows
        self.run.collect(measure.stored(now) if is_told else last)
        self._forget_keys()
        self.run.give_back_room()
        self.intake.keep_rows(self.run.rows_needed())

    def key_hashes(self) -> IntArray:
        """Return the hash of each partition key that has a slot."""
        keys = self.encoder.keys
        return np.empty(0, np.uint64) if keys is None else keys.hashes()

    def keep_keys(self, is_kept: IntArray) -> None:
        """Keep only some partition keys, given in the order of `key_hashes`, and forget the rest."""
        self.run.drop_keys(~is_kept, self.intake.n_events)
        self.expire()

    def _forget(self) -> None:
        """Forget keys and rows that no open match needs, once there are many."""
        limit, keys = self.limits.max_state_bytes, self.encoder.keys
        is_too_large = limit is not None and self.n_bytes > limit
        has_many_keys = keys is not None and keys.n_keys > self._max_keys
        if is_too_large or has_many_keys or self.intake.has_many_rows:
            self.expire()
            check_size(self.n_bytes, limit)

    def _forget_keys(self) -> None:
        """Give the slots of keys without open matches to others; a collection must have come just before."""
        keys = self.encoder.keys
        if keys is None:
            return
        is_needed = self.run.keys_needed(keys.n_keys, self._now)
        n_needed = int(is_needed.sum())
        # The cost of forgetting is linear in keys and nodes, so it must be rare.
        self._max_keys = n_needed + max(MIN_KEYS, n_needed, self.run.n_nodes // 4)
        if not is_needed.all():
            self.run.renumber_keys(is_needed)
            self.encoder.keys = keys.kept(is_needed)
            self.encoder.ties.begin_anew()

    def content(self) -> Content:
        """Return what a snapshot stores: the run state, the keys, and the rows that are still needed."""
        intake, encoder = self.intake, self.encoder
        self.run.collect(encoder.measure.now(intake.n_events))
        self._forget_keys()
        keys = encoder.keys
        content: Content = {
            **self.run.content(0 if keys is None else keys.n_keys),
            "n_events": intake.n_events,
            "n_dropped": encoder.n_dropped,
            "first": encoder.measure.first,
            "last": [None if clock.last is None else clock.last.item() for clock in encoder.clocks],
            "has_ended": self.has_ended,
            "ordinals": [self.builder.ordinals.moment, list(self.builder.ordinals.counts.items())],
            "events": intake.schema.empty_table(),
        }
        if keys is not None:
            content["key_codes"] = keys.codes[: keys.n_keys]
            for index, values in enumerate(keys.values()):
                content[f"key_values_{index}"] = pa.table({"value": values})
        if intake.history is not None:
            intake.keep_rows(self.run.rows_needed())
            content["row_ids"], content["rows"] = intake.history.snapshot()
        return content

    def take(self, content: Content) -> None:
        """Restore stored content, or raise an error if no pipeline can have written it."""
        intake, encoder = self.intake, self.encoder
        self.run.take(content, encoder.clocks, encoder.key_types, None if intake.history is None else intake.stored)
        intake.n_events, encoder.n_dropped = content["n_events"], content["n_dropped"]
        encoder.measure.first, self.has_ended = content["first"], content["has_ended"]
        for clock, last in zip(encoder.clocks, content["last"], strict=True):
            clock.last = None if last is None else clock.number(last)
        self.builder.ordinals = Ordinals(*content["ordinals"])
        if encoder.keys is not None:
            values = [content[f"key_values_{index}"]["value"] for index in range(len(encoder.key_types))]
            encoder.keys = KeyEncoder.of(content["key_codes"], values)
        if intake.history is not None:
            done = 0
            for part in content["rows"].combine_chunks().to_batches():
                intake.history.append_rows(content["row_ids"][done : done + len(part)], part)
                done += len(part)

    @property
    def n_tied(self) -> int:
        """How many events tie, where the matches depend on their order."""
        return self.encoder.ties.n_events

    def note_ties(self) -> str | None:
        """Return a note on events that tie if the matches depend on their order; None if none tie."""
        ties = self.encoder.ties
        return notes.tied_events(ties.n_events, ties.order) if ties.n_events else None

    def note_unseen_types(self) -> str | None:
        """Return a note on event types in the query that never came; None if there are matches, or no events at all."""
        if not self.intake.n_events or self.run.n_matches:
            return None
        return notes.unseen_types(self.intake.types_named, self.intake.types_seen)


@dataclass(slots=True)
class Before:
    """The state of a pipeline at the beginning of a batch."""

    run: RunBefore
    n_events: int
    n_dropped: int
    n_tied: int
    history: History | None
    first: int | None
    last: list[Any]
    ordinals: Ordinals
    keys: KeyEncoder | None
    n_keys: tuple[int, ...]
    """The encoder's size: keys are only added to it, unless some are forgotten and it is replaced."""
    has_ended: bool


def _silence(query: plan.Plan, clock: Measure) -> Silence:
    before, after = clock.length(query.silence_before), clock.length(query.silence_after)
    return Silence(query.silence_after is not None, before, after, clock.number)
