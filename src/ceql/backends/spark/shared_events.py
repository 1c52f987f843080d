"""Matches beside the events that they share: each event once, and each match as the places of its events.

Where matches have events in common, this is far smaller than one row with all values for each match. The receiver puts
each event where it belongs. A row has some matches, `MATCHES`, with their partition keys and words; a list of their
starts and ends, `BOUNDS`; and lists of their events, one for each combination of attributes that variables show.

A word packs places in these lists, of `BITS` bits each: for a match's start, its end, and the event of each variable.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from ceql.automaton.cea import Label
from ceql.engine.compiled import compiled
from ceql.engine.intake.columns import as_type
from ceql.engine.intake.history import MAX_STRETCH, History, Stretch
from ceql.engine.results.shapes import ResultBuilder, structs_at
from ceql.engine.run.chunk import Chunk
from ceql.syntax import plan

IntArray = np.ndarray[Any, np.dtype[Any]]

MATCHES = "matches"
BOUNDS = "bounds"

BITS = 10
NO_PLACE = (1 << BITS) - 1
"""The place for a variable that binds no event."""
PLACES_PER_WORD = 63 // BITS
MAX_GROUP = 256
"""Most matches in a row. Spark holds all rows made of them at once, and is slower if they do not fit its caches."""


MAX_VARIABLES = 32
"""With more, a row would have too few matches for them to have events in common."""


def may_share(query: plan.Plan) -> bool:
    """Return whether matches of a query can be described like this: each variable shows one event at most."""
    return (
        # A deadline is the time of no event.
        query.silence_after is None
        and 1 < len(query.variables) <= MAX_VARIABLES
        and all(variable.attributes for variable in query.variables)
        and all(variable.multiplicity is not plan.Multiplicity.SEVERAL for variable in query.variables)
    )


def lists(query: plan.Plan) -> list[str]:
    """Return the list to which each place of a match points: for its start, its end, and each variable."""
    distinct = list(dict.fromkeys(variable.attributes for variable in query.variables))
    return [BOUNDS, BOUNDS, *(f"events_{distinct.index(variable.attributes)}" for variable in query.variables)]


def n_words(query: plan.Plan) -> int:
    """Return how many words a match has."""
    return -(-len(lists(query)) // PLACES_PER_WORD)


def shared_schema(query: plan.Plan) -> pa.Schema:
    """Return the columns. Names in a match are numbers, because to Spark names that differ only in case are equal."""
    keys = [query.result_schema.field(name) for name in query.partition_by]
    words = [pa.field("", pa.int64(), nullable=False)] * n_words(query)
    match = pa.struct([field.with_name(f"c{number}") for number, field in enumerate([*keys, *words])])
    items = {MATCHES: pa.field("item", match if len(match) > 1 else match[0].type, nullable=False)}
    items[BOUNDS] = query.result_schema.field(plan.MATCH_START).with_name("item")
    for name, variable in zip(lists(query)[2:], query.variables, strict=True):
        items[name] = pa.field("item", variable.struct, nullable=False)
    return pa.schema([pa.field(name, pa.list_(item), nullable=False) for name, item in items.items()])


class SharedBuilder(ResultBuilder):
    """Turns chunks of rows into batches whose rows have some matches and the events that they share."""

    def columns(self, events: pa.Schema) -> pa.Schema:
        """Return the columns of the result."""
        return shared_schema(self.plan)

    def build(self, chunk: Chunk, labels: list[Label], history: History | None) -> pa.RecordBatch:
        """Return the rows of some matches."""
        assert history is not None
        names, fields = lists(self.plan), list(self.schema)[1:]
        group = min(MAX_GROUP, NO_PLACE // max(names.count(name) for name in names))
        groups = np.minimum(np.arange(0, len(chunk) + group, group, dtype=np.int32), len(chunk))
        near, row_of = _rows_near(chunk)
        words, shown, ends = _share(
            near.start,
            near.end,
            near.offsets,
            near.rows,
            near.labels,
            0 if near is not chunk else row_of[0],
            len(row_of),
            *self._places(labels),
            np.array([[field.name for field in fields].index(name) for name in names]),
            self._is_optional(),
            groups,
            n_words(self.plan),
        )
        rows = [row_of[own[: own_ends[-1]]] for own, own_ends in zip(shown, ends, strict=True)]
        stretch = history.stretch(np.concatenate(rows))
        columns = {}
        for field, own, own_ends in zip(fields, rows, ends, strict=True):
            values = self._values(field, own, stretch)
            columns[field.name] = pa.ListArray.from_arrays(pa.array(own_ends), values, type=field.type)
        matches = self._described(chunk, words, stretch)
        match_type = self.schema.field(MATCHES).type
        columns[MATCHES] = pa.ListArray.from_arrays(pa.array(groups), matches, type=match_type)
        return pa.record_batch([columns[name] for name in self.schema.names], schema=self.schema)

    def _places(self, labels: list[Label]) -> tuple[IntArray, IntArray]:
        """Return which places in a match each label fills, and where the places of each label begin."""
        places = [
            [number for number, variable in enumerate(self.plan.variables, 2) if variable.name in label]
            for label in labels
        ]
        begins = np.cumsum([0, *map(len, places)], dtype=np.int32)
        return np.array([place for own in places for place in own], np.int32), begins

    def _is_optional(self) -> IntArray:
        """Return whether a match may leave each of its places empty."""
        optional = [variable.multiplicity is plan.Multiplicity.OPTIONAL for variable in self.plan.variables]
        return np.array([False, False, *optional])

    def _described(self, chunk: Chunk, words: IntArray, stretch: Stretch) -> pa.Array:
        """Return the partition keys and words of each match."""
        match_type = self.schema.field(MATCHES).type.value_type
        if not pa.types.is_struct(match_type):
            return pa.array(words[0])
        keys = stretch.columns(self.plan.partition_by, pa.array(stretch.indices(chunk.end)))
        parts = zip([*keys, *map(pa.array, words)], match_type, strict=True)
        return pa.StructArray.from_arrays([as_type(part, field.type) for part, field in parts], fields=list(match_type))

    def _values(self, field: pa.Field, rows: IntArray, stretch: Stretch) -> pa.Array:
        """Return the values of some events that a list shows."""
        data_type, indices = field.type.value_type, pa.array(stretch.indices(rows))
        if field.name != BOUNDS:
            return structs_at(indices, data_type, stretch)
        if self.plan.bounds is None:
            return pa.array(rows)
        return as_type(stretch.columns([self.plan.bounds], indices)[0], data_type)


def _rows_near(chunk: Chunk) -> tuple[Chunk, IntArray]:
    """Return matches, and all rows from their first to their last; if that is too many, only the used, renumbered."""
    first, last = int(chunk.start.min()), int(chunk.end.max())
    if last - first < MAX_STRETCH + 4 * len(chunk.rows):
        return chunk, np.arange(first, last + 1)
    held = np.unique(np.concatenate([chunk.start, chunk.end, chunk.rows]))
    start, end, rows = (np.searchsorted(held, own) for own in (chunk.start, chunk.end, chunk.rows))
    return replace(chunk, start=start, end=end, rows=rows), held


@compiled
def _share(  # noqa: C901, PLR0917 - compiled code cannot take a `Chunk`
    starts: Any,
    ends: Any,
    offsets: Any,
    rows: Any,
    labels: Any,
    first_row: Any,
    n_rows: Any,
    places: Any,
    place_begins: Any,
    list_of: Any,
    is_optional: Any,
    groups: Any,
    n_words: Any,
) -> Any:
    """Number the distinct rows of each group of matches in the order in which they come, and pack the numbers in words.

    Args:
        starts: each match's first row.
        ends: its last row.
        offsets: where the marked rows of each match begin, and where those of the last match end.
        rows: the marked rows.
        labels: their labels.
        first_row: the first of all these rows.
        n_rows: how many rows there may be from `first_row` on.
        places: which places in a match each label fills, one after the other.
        place_begins: where the places of each label begin.
        list_of: the list to which each place points.
        is_optional: whether a match may leave a place empty.
        groups: where the groups begin among the matches, and where the last one ends.
        n_words: how many words a match has.

    Returns:
        The words, one row per match; for each list the distinct rows of all groups, counted from `first_row`; and where
        the rows of each group begin among them, and those of the last group end.
    """
    n_places, n_lists, n_matches = list_of.shape[0], list_of.max() + 1, starts.shape[0]
    words = np.empty((n_words, n_matches), np.int64)
    # The last group that had a row, and the row's number in that group.
    seen = np.full((n_lists, n_rows), -1, np.int32)
    shown = np.empty((n_lists, n_places * n_matches), np.int32)
    ends_of = np.zeros((n_lists, groups.shape[0]), np.int32)
    n_shown = np.zeros(n_lists, np.int64)
    optional: Any = np.flatnonzero(is_optional)
    row_at = np.empty(n_places, np.int64)
    number_at = np.empty(n_places, np.int64)
    for group in range(groups.shape[0] - 1):
        row_at[:] = -1
        for match in range(groups[group], groups[group + 1]):
            for place in optional:
                row_at[place], number_at[place] = -1, NO_PLACE
            begin, end = offsets[match], offsets[match + 1]
            for value in range(begin - 2, end):
                if value >= begin:
                    row, label = rows[value] - first_row, labels[value]
                    own_begin, own_end = place_begins[label], place_begins[label + 1]
                else:
                    # The first two places are for the bounds.
                    own_begin = value - begin + 2
                    row, own_end = (starts[match] if own_begin == 0 else ends[match]) - first_row, own_begin + 1
                for at in range(own_begin, own_end):
                    place = places[at] if value >= begin else at
                    # PERF: a match differs little from the match before it. With fewer writes to words, a match of the
                    # paper's Q1 takes 44 instead of 76 ns.
                    if row_at[place] == row:
                        continue
                    row_at[place] = row
                    own = list_of[place]
                    found = seen[own, row]
                    if found >> BITS != group:
                        found = group << BITS | n_shown[own] - ends_of[own, group]
                        seen[own, row] = found
                        shown[own, n_shown[own]] = row
                        n_shown[own] += 1
                    number_at[place] = found & NO_PLACE
            word, shift, n_full = 0, 0, 0
            for place in range(n_places):
                word |= number_at[place] << shift
                shift += BITS
                if place == n_places - 1 or shift == PLACES_PER_WORD * BITS:
                    words[n_full, match] = word
                    word, shift, n_full = 0, 0, n_full + 1
        ends_of[:, group + 1] = n_shown
    return words, shown, ends_of
