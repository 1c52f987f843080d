"""The paper's stock market: the buys and sells of one day."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's own documentation writes it

from ceql.datasets.prepare.event_stream import EventStream
from ceql.datasets.prepare.raw_rows import PLACE, RawColumn, checked_rows, raw_lines, without_repetitions

COLUMNS = (
    RawColumn("event_type"),
    RawColumn("id", "integer"),
    RawColumn("name"),
    RawColumn("volume", "integer"),
    RawColumn("price", "number"),
    RawColumn("stock_time", "integer"),
)
TYPES = ("BUY", "SELL")


def stock_events(spark: SparkSession, raw: str) -> EventStream:
    """Return the trades of raw files in the order of time, and of the files where that is the same.

    Trades of one millisecond stand in the published file in an order that is not that of their ids.
    """
    lines = raw_lines(spark, raw, COLUMNS)
    rows = without_repetitions(_checked(lines), ["id"], "duplicate id")
    columns = {"type": "event_type", **{column.name: column.name for column in COLUMNS[1:]}}
    return EventStream(rows, {name: F.col(column) for name, column in columns.items()}, ("stock_time", *PLACE))


def _checked(lines: DataFrame) -> DataFrame:
    is_unknown = ~F.col("event_type").isin(*TYPES)
    return checked_rows(lines, COLUMNS, {"unknown event type": F.when(is_unknown, F.col("event_type"))})
