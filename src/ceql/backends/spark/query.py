"""A query bound to DataFrames: streams merged, columns that it can see, the order of the rows.

Batches and streams share these steps, before rows are brought to tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's own documentation writes it
from pyspark.sql.pandas.types import from_arrow_type

from ceql.backends.spark.predicates import quoted, row_conditions
from ceql.engine.intake.batch import check_type_column, missing_column, stream_of, unlike_columns
from ceql.engine.options import SHAPES, Shape
from ceql.engine.results.shapes import result_schema
from ceql.errors import DataError
from ceql.query import Query, order_options, query_text, read_draft, streams_in
from ceql.schema import Kind, Schema, column_names, kind_of

Frames = DataFrame | Mapping[str, DataFrame]

OWN = "__ceql_"
STREAM = "__ceql_stream"
"""The column with the name of each row's stream, where there are several."""
CHAR = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata key by which Spark marks a column of type CHAR or VARCHAR."""
WATERMARK = "spark.watermarkDelayMs"
"""The metadata key by which Spark marks a column that has a watermark."""


@dataclass(frozen=True)
class Prepared:
    """A query and its rows: `frame` has the columns that the query can see, and `STREAM` if there are several streams.

    `ties` are the columns that order rows which are equal in all columns of `order`. `row_filter` holds for all rows
    that a match may need; None if all are needed. Each condition in `needed` holds for some row of every match.
    """

    query: Query
    frame: DataFrame
    types: Mapping[str, pa.DataType]
    row_filter: Column | None
    needed: tuple[Column, ...]
    ties: tuple[str, ...]
    type_column: str | None
    shape: Shape
    schema: pa.Schema

    @property
    def order(self) -> tuple[str, ...]:
        """The columns that order the stream."""
        return self.query.plan.order

    @property
    def is_merged(self) -> bool:
        """Whether several streams were merged."""
        return STREAM in self.frame.columns

    @property
    def id_columns(self) -> tuple[str, ...]:
        """The columns that identify an event; the first of them orders the stream."""
        return tuple(dict.fromkeys([*self.order, *self.query.plan.partition_by, *self.ties]))

    def key_column(self, name: str) -> Column:
        """Return a partition key in which Spark's hash functions see equal keys as equal."""
        column = F.col(quoted(name))
        # There are two zeros and many NaNs.
        return F.nanvl(column + F.lit(0.0), F.lit(float("nan"))) if kind_of(self.types[name]) is Kind.FLOAT else column


def prepare(
    query: Query | str | PathLike[str],
    events: Frames,
    *,
    type_column: str | None,
    time_column: str | None,
    order_by: str | Sequence[str],
    shape: Shape,
    params: Mapping[str, object] | None = None,
) -> Prepared:
    """Return a query bound to DataFrames, or raise every error that can be found before anything runs."""
    if shape not in SHAPES:
        raise ValueError(f"unknown shape {shape!r}: choose 'matches' or 'events'")
    if shape == "positions":
        raise DataError(
            "a distributed stream has no cheap row numbers",
            "use shape='matches' or shape='events', or ceql.match on one machine",
        )
    text = query.text if isinstance(query, Query) else query_text(query)
    time_column, order_by = order_options(query, time_column, order_by)
    sources = streams_in(text)
    frame = _one_frame(events, sources)
    types = {
        name: data_type for name, data_type in Schema.of(frame.schema).streams[0].columns.items() if name != STREAM
    }
    described = dict.fromkeys(sources, pa.schema(list(types.items())))
    draft = query.draft if isinstance(query, Query) else read_draft(text)
    known = Schema.of(described if len(sources) > 1 else described[sources[0]])
    bound = draft.given(params).bind(known, time_column, column_names(order_by))
    if type_column is not None:
        check_type_column(type_column, pa.schema(list(types.items())))
    order = bound.plan.order
    _check_order(order, types)
    seen = _columns_seen(bound, type_column, order, types, shape)
    stream_column = STREAM if STREAM in frame.columns else None
    row_filter, needed = row_conditions(bound, type_column, types, stream_column=stream_column)
    return Prepared(
        query=bound,
        frame=frame.select(*(F.col(quoted(name)) for name in [*seen, *([STREAM] if stream_column else [])])),
        types=types,
        row_filter=row_filter,
        needed=needed,
        ties=tuple(name for name in seen if name not in order and _is_orderable(types[name])),
        type_column=type_column,
        shape=shape,
        schema=result_schema(shape, bound.plan, pa.schema(list(types.items()))),
    )


def _one_frame(events: Frames, sources: Sequence[str]) -> DataFrame:
    """Return the rows of all streams in FROM; if there are several, `STREAM` names the stream of each row."""
    if isinstance(events, Mapping):
        frames: list[Any] = [stream_of(events, name) for name in sources]
    elif len(sources) > 1:
        raise DataError(
            f"FROM reads the streams {', '.join(sources)}, but the events are one DataFrame",
            "give a dict from streams to DataFrames",
        )
    else:
        frames = [events]
    for frame in frames:
        if not isinstance(frame, DataFrame):
            library = type(frame).__module__.partition(".")[0]
            kind = type(frame).__name__ if library == "builtins" else f"{library} {type(frame).__name__}"
            raise DataError(
                f"the events are a {kind}, not a Spark DataFrame",
                "use ceql.match, or make a DataFrame of them with spark.createDataFrame",
            )
        _check_names(frame.columns)
    if len({frame.isStreaming for frame in frames}) > 1:
        raise DataError("some of the streams are streaming DataFrames and some are not", "read all of them as streams")
    frames = [_without_padding(frame) for frame in frames]
    only: DataFrame = frames[0]
    return only if len(sources) == 1 else _merged(dict(zip(sources, frames, strict=True)))


def _without_padding(frame: DataFrame) -> DataFrame:
    """Return a frame with plain strings in place of CHAR columns: Spark would pad what they are compared to."""
    padded = [field.name for field in frame.schema if CHAR in field.metadata]
    if not padded:
        return frame
    columns = [F.col(quoted(name)) for name in frame.columns]
    return frame.select(
        *(
            column.alias(name, metadata={}) if name in padded else column
            for name, column in zip(frame.columns, columns, strict=True)
        )
    )


def _check_names(names: Sequence[str]) -> None:
    lowered = Counter(name.lower() for name in names)
    for name in names:
        if lowered[name.lower()] > 1:
            raise DataError(f"the events have several columns '{name}'", "rename all but one; Spark ignores case")
        if name.lower().startswith(OWN):
            raise DataError(f"the events have a column '{name}'", f"rename it; names with {OWN} are ceql's own")


def _merged(frames: Mapping[str, DataFrame]) -> DataFrame:
    """Return the rows of several streams with the columns of all; a column that a stream lacks is NULL in its rows."""
    schemas = [pa.schema(list(Schema.of(frame.schema).streams[0].columns.items())) for frame in frames.values()]
    try:
        whole = pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise unlike_columns(error) from error
    _check_names(whole.names)
    merged: DataFrame | None = None
    watermarked = {name for name in whole.names if all(_has_watermark(frame, name) for frame in frames.values())}
    try:
        for name, frame in frames.items():
            columns = [_column_of(frame, field, is_watermarked=field.name in watermarked) for field in whole]
            part = frame.select(*columns, F.lit(name).alias(STREAM))
            merged = part if merged is None else merged.union(part)
    except PySparkException as error:
        raise unlike_columns(str(error).partition("\n")[0]) from error
    assert merged is not None
    return merged


def _has_watermark(frame: DataFrame, name: str) -> bool:
    return name in frame.columns and WATERMARK in frame.schema[name].metadata


def _column_of(frame: DataFrame, field: pa.Field, *, is_watermarked: bool) -> Column:
    if is_watermarked:
        # A cast would lose the watermark. If only some streams have one, it should be lost: it does not hold for all.
        return F.col(quoted(field.name))
    column = F.col(quoted(field.name)) if field.name in frame.columns else F.lit(None)
    return column.cast(from_arrow_type(field.type, prefer_timestamp_ntz=True)).alias(field.name)


def _check_order(order: Sequence[str], types: Mapping[str, pa.DataType]) -> None:
    """Refuse rows that no column puts in order."""
    if not order:
        raise DataError(
            "a DataFrame has no order of its own", "name the columns that order it with time_column or order_by"
        )
    for name in order:
        if name not in types:
            raise missing_column(name, types)
        if not _is_orderable(types[name]):
            raise DataError(f"column '{name}' is or contains a map, and maps have no order", "order by another")


def _columns_seen(
    query: Query, type_column: str | None, order: Sequence[str], columns: Mapping[str, pa.DataType], shape: Shape
) -> list[str]:
    """Return the columns on which the result may depend. Rows that are equal in all of them are interchangeable."""
    if shape == "events":
        return list(columns)
    shown = {name for variable in query.plan.variables for name, _ in variable.attributes}
    # Tasks bind the query again, so all columns that it names or declares must be there, even if nothing reads them.
    declared = {name for attributes in query.plan.declared.values() for name in attributes}
    seen = {*query.plan.named, *shown, *declared, *order, type_column, query.plan.bounds}
    return [name for name in columns if name in seen]


def _is_orderable(data_type: pa.DataType) -> bool:
    if pa.types.is_list(data_type):
        return _is_orderable(data_type.value_type)
    if pa.types.is_struct(data_type):
        return all(_is_orderable(field.type) for field in data_type)
    return not pa.types.is_map(data_type)
