"""CEQL on Spark: `match` over a DataFrame gives a DataFrame, which streams if the first does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

from ceql.backends.spark.session import session  # first: it says what to install if PySpark is missing

from pyspark.sql import DataFrame  # isort: skip

from ceql.backends.spark import bad_records as spark_bad_records
from ceql.backends.spark import batch as spark_batch
from ceql.backends.spark.batch import PlanName
from ceql.backends.spark.query import Frames, prepare
from ceql.backends.spark.stream import match as spark_stream
from ceql.backends.spark.stream.match import Ordering
from ceql.engine.options import Shape
from ceql.errors import DataError
from ceql.query import Query
from ceql.visible import visible_lines

__all__ = ["bad_records", "explain", "match", "matcher", "session"]


def match(
    query: Query | str | PathLike[str],
    events: Frames,
    *,
    type_column: str | None = "type",
    time_column: str | None = None,
    order_by: str | Sequence[str] = (),
    shape: Shape = "matches",
    params: Mapping[str, object] | None = None,
    plan: PlanName = "auto",
    prune: bool | None = None,
    complete: bool = False,
    watermark: str | None = None,
    ordering: Ordering = "time",
    unbounded: bool = False,
) -> DataFrame:
    """Return the matches of a query over a DataFrame, lazily, as a DataFrame; it streams if the events do.

    Args:
        query: the text of a query, the path of a file with it (a `Path`), or the result of `ceql.compile`.
        events: the events, or a dict of them by stream if FROM names several. They are ordered by what
            WITHIN or FOR measures, `time_column` and `order_by`; ties by all other columns that the query reads.
        type_column: the column with each event's type; None if every event has its stream's name as type.
        time_column: the column that durations in WITHIN and FOR measure.
        order_by: further columns that order the events.
        shape: "matches", one row per match, or "events", one row per matched event.
        params: the values of the query's parameters; see `ceql.compile`. They replace those of a compiled query.
        plan: for batches, "keys" (one task for many keys, needs PARTITION BY), "shards" (one task for each piece
            of the timeline, needs WITHIN), "single" (one task) or "auto", which chooses; `explain` says why.
        prune: for batches, True leaves out rows if an event that every match needs does not occur near them; this reads
            the events twice. None asks first whether such events occur at all, if that is quick; False asks nothing.
        complete: for batches, whether nothing comes after these events. Then the matches of `NOT ... FOR` count whose
            time goes beyond the last event.
        watermark: for streams, how late events may be, as "10 seconds", if the DataFrame has no watermark yet.
        ordering: for streams, "time": events wait until the watermark passes them, and matches are those of a batch; or
            "arrival": no event waits, and an event older than an earlier event is late.
        unbounded: for streams, allow a query without WITHIN whose state grows for ever.
    """
    options: dict[str, Any] = {"time_column": time_column, "order_by": order_by, "params": params}
    prepared = prepare(query, events, type_column=type_column, shape=shape, **options)
    if prepared.frame.isStreaming:
        if plan != "auto":
            raise DataError(f"plan='{plan}' is for batch DataFrames", "leave it out: streams have a plan of their own")
        if prune is not None:
            raise DataError(f"prune={prune} is for batch DataFrames", "leave it out: streams are read once")
        if complete:
            raise DataError("complete=True is for batch DataFrames", "leave it out: a stream has no end")
        return spark_stream.match(prepared, watermark=watermark, ordering=ordering, unbounded=unbounded)
    given = {"watermark": watermark is not None, "ordering": ordering != "time", "unbounded": unbounded}
    for name, is_given in given.items():
        if is_given:
            raise DataError(f"{name} is only for streaming DataFrames", "leave it out")
    return spark_batch.match(spark_batch.plan_job(prepared, plan, prune=prune, complete=complete))


def bad_records(
    query: Query | str | PathLike[str],
    events: Frames,
    *,
    type_column: str | None = "type",
    time_column: str | None = None,
    order_by: str | Sequence[str] = (),
    shape: Shape = "matches",
    params: Mapping[str, object] | None = None,
) -> Frames:
    """Return the rows that `match` leaves out of a stream with these options, with all columns; a dict gives a dict.

    They have text that is not UTF-8, or a date or time beyond the years 1 to 9999, in a column that the query reads.
    Over a streaming DataFrame the result is a streaming DataFrame; write it with its own query and checkpoint.
    """
    options: dict[str, Any] = {"time_column": time_column, "order_by": order_by, "params": params}
    prepared = prepare(query, events, type_column=type_column, shape=shape, **options)
    names = set(prepared.frame.columns)

    def of(frame: DataFrame) -> DataFrame:
        return frame.where(spark_bad_records.is_bad_record(frame, [name for name in frame.columns if name in names]))

    if isinstance(events, Mapping):
        return {name: of(events[name]) for name in prepared.query.plan.sources}
    return of(events)


def matcher(query: Query | str | PathLike[str], **options: Any) -> Callable[[DataFrame], DataFrame]:
    """Return `match` for use in a chain: `df.transform(ceql.spark.matcher(query))`."""
    return lambda events: match(query, events, **options)


def explain(
    query: Query | str | PathLike[str],
    events: Frames,
    *,
    type_column: str | None = "type",
    time_column: str | None = None,
    order_by: str | Sequence[str] = (),
    params: Mapping[str, object] | None = None,
    plan: PlanName = "auto",
    prune: bool | None = None,
) -> str:
    """Return how a query would run over a DataFrame, in words, with the filter that reaches the scan."""
    options: dict[str, Any] = {"time_column": time_column, "order_by": order_by, "params": params}
    prepared = prepare(query, events, type_column=type_column, shape="matches", **options)
    if prepared.frame.isStreaming:
        return visible_lines(spark_stream.describe(prepared))
    return visible_lines(spark_batch.describe(spark_batch.plan_job(prepared, plan, prune=prune)))
