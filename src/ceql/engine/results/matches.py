"""Matches as the user sees them: rows of Arrow batches in one of three shapes, made lazily."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from ceql.engine.run.chunk import Chunk
from ceql.errors import CeqlError
from ceql.syntax import plan
from ceql.visible import visible

PREVIEW = 10
"""Most matches in the table that a notebook shows."""


@dataclass(frozen=True)
class Match:
    """A match. `match["x"]` is what variable x binds: an event as a dict, or a list of events.

    `start` and `end` are the window attribute (or time, or row number) at the first and last event. `partition` has the
    attributes of PARTITION BY, `variables` has all selected variables.
    """

    start: Any
    end: Any
    partition: dict[str, Any]
    variables: dict[str, Any]

    def __getitem__(self, variable: str) -> Any:
        return self.variables[variable]


@dataclass(frozen=True)
class Found:
    """Some matches. Their rows can be made until the session gets its next events."""

    chunk: Chunk
    build: Callable[[Chunk], pa.RecordBatch]

    def __len__(self) -> int:
        return len(self.chunk)

    def rows(self) -> pa.RecordBatch:
        """Return the rows that show the matches."""
        return self.build(self.chunk)


class Source(Protocol):
    """Where matches come from."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        ...

    @property
    def plan(self) -> plan.Plan:
        """The plan of the query."""
        ...

    @property
    def n_dropped(self) -> int:
        """How many events have been left out so far."""
        ...

    def begin(self) -> Iterator[Found]:
        """Return all matches from the beginning; an error if their events are gone."""
        ...

    def cancel(self) -> None:
        """Stop the current reading."""
        ...


class Matches:
    """The matches of a query, computed while they are read.

    Iterating gives a `Match` for each (shape "matches" only). `schema` is the schema of the Arrow batches. Any library
    that reads Arrow streams can read the matches directly.

    No match is kept: reading again computes again, or is an error if the events are gone (a session's batch, a reader).
    """

    def __init__(self, source: Source) -> None:
        self.schema = source.schema
        self.plan = source.plan
        self._source = source

    @property
    def dropped(self) -> int:
        """How many of the events read so far were left out because a partition key or the window's time is NULL."""
        return self._source.n_dropped

    def begin(self) -> Iterator[Found]:
        """Return all matches from the beginning, in parts whose rows are not made yet."""
        return self._source.begin()

    def cancel(self) -> None:
        """Stop the current reading: further reading raises a `DataError`. Any thread may call this.

        A session is then as it was before the batch.
        """
        self._source.cancel()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield Arrow record batches of bounded size."""
        for found in self.begin():
            yield found.rows()

    def count(self) -> int:
        """Return how many matches there are, without making their rows."""
        return sum(len(found) for found in self.begin())

    def to_arrow(self) -> pa.Table:
        """Return all matches as one table."""
        return pa.Table.from_batches(list(self.batches()), self.schema)

    def to_pandas(self, **options: Any) -> Any:
        """Return all matches as a pandas frame; `options` are those of pyarrow's `Table.to_pandas`."""
        table = self.to_arrow()
        frame = table.to_pandas(**options)
        # Inside structs and lists, Arrow gives nanoseconds as bare integers.
        for field in table.schema:
            if pa.types.is_nested(field.type) and "[ns" in str(field.type):
                frame[field.name] = table[field.name].to_pylist()
        return frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the batches to any library that reads Arrow streams."""
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
        """Return the first matches on a timeline and as a table; no more matches are computed."""
        # PERF: see `Query`.
        from ceql.pictures.shown_matches import read_matches
        from ceql.pictures.timeline_html import timeline_of

        first: list[dict[str, Any]] = []

        # Both are made from one reading: a session's matches cannot be read again.
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
