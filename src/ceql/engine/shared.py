"""Matches beside the events that they share: each event once, and each match as the places of its events.

Where matches have events in common, this is far smaller than a row for each with all values. Who receives it puts each
event where it belongs. A row has some matches, `MATCHES`, with their partition keys and words; a list of what bounds
them, `BOUNDS`; and lists of their events, one for each combination of attributes that variables show.

A word packs places in these lists, of `BITS` bits each: those of a match's start, its end, and each variable's event.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ceql.automaton.cea import Label
from ceql.engine.chunk import Chunk
from ceql.engine.compiled import compiled
from ceql.engine.history import Stretch
from ceql.engine.matches import ResultBuilder, as_type, structs_at
from ceql.syntax import plan

IntArray = np.ndarray[Any, np.dtype[Any]]

MATCHES = "matches"
BOUNDS = "bounds"

BITS = 10
NO_PLACE = (1 << BITS) - 1
"""Where no event is, for a variable that binds none."""
PLACES_PER_WORD = 63 // BITS
MAX_GROUP = 256
"""Matches in a row, at most. Spark holds the rows made of them all at once, and slows down where its caches end."""


MAX_VARIABLES = 32
"""With more, too few matches would be in a row to have events in common."""


def may_share(query: plan.Plan) -> bool:
    """Return whether matches of a query can be so described: variables bind single events, and show some of them."""
    return (
        1 < len(query.variables) <= MAX_VARIABLES
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
    """Return the columns. Names in a match are numbers, because those that differ in case alone are one to Spark."""
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

    def _matches(self, chunk: Chunk, labels: list[Label], stretch: Stretch) -> pa.RecordBatch:
        names = lists(self.plan)
        indices = np.empty((len(names), len(chunk)), np.int32)
        indices[:2] = stretch.indices(chunk.start), stretch.indices(chunk.end)
        for number, (_, one_each) in enumerate(self._bound(chunk, labels, stretch), 2):
            indices[number] = one_each.fill_null(-1) if one_each.null_count else one_each

        group = min(MAX_GROUP, NO_PLACE // max(names.count(name) for name in names))
        groups = np.minimum(np.arange(0, len(chunk) + group, group, dtype=np.int32), len(chunk))
        words = np.zeros((n_words(self.plan), len(chunk)), np.int64)
        columns = {}
        for field in list(self.schema)[1:]:
            own = np.flatnonzero([name == field.name for name in names])
            shown, ends = _share(indices, own, groups, len(stretch), words)
            values = self._values(field, pa.array(shown), stretch)
            columns[field.name] = pa.ListArray.from_arrays(pa.array(ends), values, type=field.type)
        keys = stretch.columns(self.plan.partition_by, pa.array(indices[1]))
        match_type = self.schema.field(MATCHES).type
        matches = pa.array(words[0])
        if pa.types.is_struct(match_type.value_type):
            fields = list(match_type.value_type)
            parts = [*keys, *map(pa.array, words)]
            typed = [as_type(part, field.type) for part, field in zip(parts, fields, strict=True)]
            matches = pa.StructArray.from_arrays(typed, fields=fields)
        columns[MATCHES] = pa.ListArray.from_arrays(pa.array(groups), matches, type=match_type)
        return pa.record_batch([columns[name] for name in self.schema.names], schema=self.schema)

    def _values(self, field: pa.Field, indices: pa.Array, stretch: Stretch) -> pa.Array:
        """Return what a list shows of the events at some indices."""
        data_type = field.type.value_type
        if field.name != BOUNDS:
            return structs_at(indices, data_type, stretch)
        if self.plan.bounds is None:
            return pa.array(stretch.rows(indices.to_numpy()))
        return as_type(stretch.columns([self.plan.bounds], indices)[0], data_type)


@compiled
def _share(indices: Any, own: Any, groups: Any, n_events: Any, words: Any) -> Any:
    """Number the distinct indices of each group of matches in the order in which they come, and put that into words.

    Args:
        indices: those of each match, -1 for none; a row for each place in a match.
        own: which of these rows to go through.
        groups: where the groups begin among the matches, and where the last one ends.
        n_events: how many different indices there may be.
        words: those of each match, to which the numbers go; a row for each word.

    Returns:
        The distinct indices of all groups, and where those of each begin, and of the last one end.
    """
    last_group = np.full(n_events, -1, np.int32)
    last_number = np.empty(n_events, np.int32)
    shown = np.empty(own.shape[0] * indices.shape[1], np.int32)
    ends = np.zeros(groups.shape[0], np.int32)
    n_shown = 0
    for group in range(groups.shape[0] - 1):
        for row in own:
            word, shift = row // PLACES_PER_WORD, row % PLACES_PER_WORD * BITS
            for match in range(groups[group], groups[group + 1]):
                index = indices[row, match]
                if index < 0:
                    words[word, match] |= NO_PLACE << shift
                    continue
                if last_group[index] != group:
                    last_group[index] = group
                    last_number[index] = n_shown - ends[group]
                    shown[n_shown] = index
                    n_shown += 1
                words[word, match] |= np.int64(last_number[index]) << shift
        ends[group + 1] = n_shown
    return shown[:n_shown], ends
