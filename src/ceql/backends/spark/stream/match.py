"""Matches over streaming DataFrames: keys hashed to shards, each with a state of its own in Spark's state store.

    events ─ bad records left out ─ watermark ─ irrelevant rows dropped ─ packed by shard ─ shuffled ─ ShardProcessor

Rows are dropped after the watermark has seen them, because irrelevant rows also move the watermark. Spark would push
such a filter below the watermark. It never pushes a filter that is not deterministic, so this one is made to look so.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's own documentation writes it
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from ceql.automaton.properties import keeps_runs, why_not_by_key
from ceql.backends.spark import bad_records
from ceql.backends.spark.durations import is_duration
from ceql.backends.spark.predicates import quoted
from ceql.backends.spark.query import STREAM, WATERMARK, Prepared
from ceql.backends.spark.shards import local_micros
from ceql.backends.spark.stream.processor import ShardProcessor
from ceql.backends.spark.stream.rows import EVENTS, LATE, METRICS, PACKED_ROWS, PACKED_SHARD, SHARD, STATE_BYTES, TIME
from ceql.backends.spark.stream.steps import Steps
from ceql.backends.spark.stream.task import MAX_PART_BYTES, StreamTask
from ceql.backends.spark.worker import map_batches
from ceql.errors import DataError
from ceql.query import Query
from ceql.syntax import plan as plans
from ceql.syntax.clauses import attribute_measured

SENT_WITH_CODE = "spark.broadcast.UDFCompressionThreshold"
"""Spark's setting for the bytes that go to tasks together with their code; what is larger is broadcast."""

ROOM_FOR_CODE = 1 << 16
"""Bytes for the code of a task, and all else that it must know."""

Ordering = Literal["time", "arrival"]

DEFAULT_SHARDS = 32
"""Shards of a query with PARTITION BY. The number is fixed, because a checkpoint is bound to it."""

OBSERVATION = "ceql"
"""The name under which a query's progress reports `events`, `matches`, `late_events` and `state_bytes`."""


def match(
    prepared: Prepared,
    *,
    watermark: str | None,
    ordering: Ordering,
    unbounded: bool,
    n_shards: int = DEFAULT_SHARDS,
    max_part_bytes: int = MAX_PART_BYTES,
) -> DataFrame:
    """Return the matches as a streaming DataFrame in append mode."""
    if ordering not in ("time", "arrival"):
        raise ValueError(f"unknown ordering {ordering!r}: choose 'time' or 'arrival'")
    if prepared.query.plan.window is None and keeps_runs(prepared.query.automaton) and not unbounded:
        raise DataError(
            "without WITHIN the state of a stream grows for ever", "add WITHIN, or allow it with unbounded=True"
        )
    time = _time_attribute(prepared)
    task = replace(_task(prepared, time, ordering, _n_shards(prepared, n_shards)), max_part_bytes=max_part_bytes)
    _check_parameters(prepared, task)
    blobs = pack_rows(prepared, watermark=watermark, n_shards=task.n_shards)
    event_time = plans.MATCH_END if _has_event_time(prepared, time) else None
    found = blobs.groupBy(PACKED_SHARD).transformWithStateInPandas(
        ShardProcessor(Steps(task, prepared.schema, event_time)),
        _output(prepared.schema),
        "Append",
        "EventTime",
        eventTimeColumnName=event_time or "",
    )
    counted = found.observe(
        OBSERVATION,
        F.coalesce(F.sum(EVENTS), F.lit(0)).alias("events"),
        F.count(F.when(F.col(EVENTS).isNull(), 1)).alias("matches"),
        F.coalesce(F.sum(LATE), F.lit(0)).alias("late_events"),
        F.coalesce(F.sum(STATE_BYTES), F.lit(0)).alias("state_bytes"),
    )
    return counted.where(F.col(EVENTS).isNull()).drop(*METRICS)


def _check_parameters(prepared: Prepared, task: StreamTask) -> None:
    """Refuse values that Spark would broadcast: what keeps the state of a stream does not get broadcasts."""
    written = prepared.frame.sparkSession.conf.get(SENT_WITH_CODE, "1m") or "1m"
    size = re.fullmatch(r"(\d+)([kmg]?)b?", written.lower())
    limit = 1 << 20 if size is None else int(size[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[size[2]]
    if len(task.params) + ROOM_FOR_CODE > limit:
        raise DataError(
            f"the values of parameters have {len(task.params):,} bytes, and a stream of this session takes {limit:,}",
            f"start the session with {SENT_WITH_CODE}=2000m, as ceql.spark.session does",
        )


def pack_rows(prepared: Prepared, *, watermark: str | None, n_shards: int) -> DataFrame:
    """Return the rows that the query needs, packed by shard, with the watermark of all rows."""
    rows = _with_watermark(prepared, _time_attribute(prepared), watermark)
    columns = [F.col(quoted(name)) for name in prepared.frame.columns]
    shard = _shard(prepared, n_shards).alias(SHARD)
    packable = rows.where(_after_watermark(prepared)).select(TIME, *columns, shard)
    schema = f"{PACKED_SHARD} int, {PACKED_ROWS} binary"
    return map_batches(packable, schema, "ceql.backends.spark.stream.rows", "pack_by_shard")


def _n_shards(prepared: Prepared, n_shards: int) -> int:
    return n_shards if why_not_by_key(prepared.query.plan) is None else 1


def _time_attribute(prepared: Prepared) -> str:
    """Return the column that decides whether an event is late."""
    query, types = prepared.query, prepared.types
    measured = attribute_measured(query.plan.window, query.plan.silences)
    candidates = [name for name in (measured, query.time_column) if name is not None]
    if query.plan.silences and not pa.types.is_timestamp(types[candidates[0]]):
        raise DataError(
            f"on a stream FOR must measure a timestamp, but '{candidates[0]}' is of type {types[candidates[0]]}",
            "the watermark is its clock: write a duration and name a column of type TIMESTAMP or TIMESTAMP_NTZ",
        )
    for name in candidates:
        if pa.types.is_timestamp(types[name]):
            return name
    if candidates:
        raise DataError(
            f"a stream needs a timestamp to know what is late, but '{candidates[0]}' is of type {types[candidates[0]]}",
            "name a column of type TIMESTAMP or TIMESTAMP_NTZ with time_column",
        )
    raise DataError("a stream needs a timestamp to know what is late", "name its column with time_column")


def _with_watermark(prepared: Prepared, time: str, watermark: str | None) -> DataFrame:
    frame, column = bad_records.counted_and_left_out(prepared.frame), F.col(quoted(time))
    delay = frame.schema[time].metadata.get(WATERMARK)
    if pa.types.is_timestamp(prepared.types[time]) and prepared.types[time].tz is None:
        column = F.timestamp_micros(local_micros(column))
        delay = None
    rows = frame.select(column.alias(TIME), "*").where(F.col(TIME).isNotNull())
    if watermark is None:
        if delay is None:
            raise DataError(
                f"the stream has no watermark on '{time}'",
                "say how late events may be: watermark='10 seconds', or withWatermark on the DataFrame",
            )
        return rows
    if not is_duration(watermark):
        raise DataError(f"'{watermark}' is not a duration", "write it as '10 seconds' or '5 minutes'")
    return rows if delay is not None else rows.withWatermark(TIME, watermark)


def _after_watermark(prepared: Prepared) -> Column:
    """Return the row filter as a condition that Spark does not move."""
    wanted = prepared.row_filter if prepared.row_filter is not None else F.lit(True)  # noqa: FBT003
    for name in prepared.query.plan.partition_by:
        wanted &= F.col(quoted(name)).isNotNull()
    return F.when(F.spark_partition_id() >= 0, wanted).otherwise(F.lit(False))  # noqa: FBT003


def _shard(prepared: Prepared, n_shards: int) -> Column:
    keys = prepared.query.plan.partition_by
    if n_shards == 1:
        return F.lit(0)
    return F.pmod(F.xxhash64(*(prepared.key_column(name) for name in keys)), F.lit(n_shards)).cast("int")


def _task(prepared: Prepared, time: str, ordering: str, n_shards: int) -> StreamTask:
    return StreamTask(
        query=prepared.query.text,
        shape=prepared.shape,
        type_column=prepared.type_column,
        time_column=prepared.query.time_column,
        order_by=prepared.query.order_by,
        order=prepared.order,
        ties=prepared.ties,
        stream_column=STREAM if STREAM in prepared.frame.columns else None,
        sources=prepared.query.plan.sources,
        columns=tuple(f"{field.name} {field.dataType.simpleString()}" for field in prepared.frame.schema),
        id_columns=prepared.id_columns,
        ordering=ordering,
        n_shards=n_shards,
        keys=prepared.query.plan.partition_by if n_shards > 1 else (),
        reach_micros=reach_micros(prepared.query, time),
        params=prepared.query.draft.parameters.to_bytes(),
    )


def reach_micros(query: Query, time: str) -> int | None:
    """Return how long an event can matter, None if there is no limit that the watermark on `time` could pass."""
    window, spans = query.plan.window, list(query.plan.silences)
    if keeps_runs(query.automaton):
        if not isinstance(window, plans.AttributeWindow) or window.attribute != time:
            return None
        spans.append(window)
    return max((-(-int(span.size) // 1000) for span in spans), default=0)


def _has_event_time(prepared: Prepared, time: str) -> bool:
    """Whether later steps can use `match_end` as event time: it is the time of the last event, in Spark's type."""
    is_shown = prepared.shape == "matches" and prepared.query.plan.bounds == time
    return is_shown and prepared.types[time].tz is not None


def _output(schema: pa.Schema) -> Any:
    fields = [
        StructField(field.name, field.dataType, True)  # noqa: FBT003
        for field in from_arrow_schema(schema, prefer_timestamp_ntz=True).fields
    ]
    return StructType([*fields, *(StructField(name, LongType(), True) for name in METRICS)])  # noqa: FBT003


def describe(prepared: Prepared) -> str:
    """Return in words how a query runs over a stream."""
    time, n_shards = _time_attribute(prepared), _n_shards(prepared, DEFAULT_SHARDS)
    keys = ", ".join(prepared.query.plan.partition_by)
    how = f"keys {keys} are hashed to {n_shards} shards" if n_shards > 1 else "one shard has all events"
    filtered = "none, every row is needed" if prepared.row_filter is None else "rows that satisfy no predicate"
    return "\n".join(
        [
            f"plan: stream: {how}, each with a state of its own",
            f"order: {', '.join(prepared.order)}, up to the watermark on '{time}'",
            f"columns read: {', '.join(name for name in prepared.frame.columns if name != STREAM)}",
            f"left out after the watermark has seen them: {filtered}",
        ]
    )
