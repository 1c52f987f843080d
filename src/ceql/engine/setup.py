"""The parts of a pipeline before any events are known. It binds to the columns of the first events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from ceql.engine.intake import batch as batches
from ceql.engine.options import Layout, Limits
from ceql.engine.pipeline import Pipeline
from ceql.engine.results.shapes import ResultBuilder
from ceql.engine.run import snapshot as snapshots
from ceql.errors import CeqlError, DataError, QueryError, SnapshotError
from ceql.query import Draft, Query
from ceql.schema import Schema
from ceql.syntax import plan
from ceql.version import __version__

Results = Callable[[plan.Plan, pa.Schema], ResultBuilder]
"""Makes the results' builder from a query and the columns of its events."""

# What Python and Arrow raise for bytes that are not a snapshot.
_UNREADABLE = (
    AttributeError,
    LookupError,
    OSError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
    pa.ArrowException,
)


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Setup:
    """A query with all options of its run.

    `results` replaces the results of the layout's shape. `sorting` says what sorts each batch, if anything does.
    """

    draft: Draft
    layout: Layout
    limits: Limits = DEFAULT_LIMITS
    results: Results | None = None
    sorting: str | None = None
    is_typed: bool = False
    """Whether the user gave the types of the columns. Then the events do not fit, not the query."""

    def bind(self, schema: pa.Schema) -> Pipeline:
        """Return a pipeline for events with some columns; `QueryError` or `DataError` if they do not fit the query."""
        layout = self.layout
        for name in (layout.time_column, *layout.order_by):
            if name is not None and name not in schema.names:
                raise batches.missing_column(name, schema.names)
        query = self.query(schema)
        make = self.results or (lambda query, events: ResultBuilder(layout.shape, query, events))
        return Pipeline(
            query,
            schema,
            layout,
            self.limits,
            make(query.plan, schema),
            sorting=self.sorting,
        )

    def query(self, schema: pa.Schema) -> Query:
        """Return the query bound to the actual types of the events."""
        try:
            return _bound(self.draft, schema, self.layout.time_column, self.layout.order_by)
        except QueryError as error:
            if self.is_typed:
                raise DataError(f"the events do not fit the query: {error.message}", error.hint) from error
            raise

    def write(self, pipeline: Pipeline | None) -> bytes:
        """Return a snapshot of a pipeline; None stands for a session that has not been fed."""
        content = {"is_bound": False} if pipeline is None else {"is_bound": True, **pipeline.content()}
        return snapshots.write(self.identity, content)

    def read(self, snapshot: bytes) -> Pipeline | None:
        """Return the pipeline of a snapshot, or None if nothing had been fed; `SnapshotError` if it does not fit."""
        try:
            content = snapshots.read(self.identity, snapshot)
            if not content["is_bound"]:
                return None
            pipeline = self.bind(content["events"].schema)
            pipeline.take(content)
        except SnapshotError:
            raise
        except CeqlError as error:
            raise SnapshotError(f"the snapshot does not fit the query: {error.message}", error.hint) from error
        except _UNREADABLE as error:
            raise SnapshotError(f"the snapshot is damaged: {error!r}") from error
        return pipeline

    @property
    def identity(self) -> str:
        """What a snapshot depends on, as a digest."""
        layout = self.layout
        parts = (layout.shape, layout.type_column, layout.time_column, layout.order_by)
        return snapshots.fingerprint(__version__, self.draft.canonical, *parts)


@lru_cache(maxsize=32)
def _bound(draft: Draft, schema: pa.Schema, time_column: str | None, order_by: tuple[str, ...]) -> Query:
    """Return a query bound to the columns that all its streams have.

    PERF: kept, because a stream makes a pipeline for each of its shards in each micro-batch, 13 ms instead of 4.
    """
    sources = draft.sources
    known = Schema.of(schema if len(sources) <= 1 else dict.fromkeys(sources, schema))
    return draft.bind(known, time_column, order_by)
