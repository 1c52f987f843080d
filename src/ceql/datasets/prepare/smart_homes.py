"""The smart homes of the DEBS 2014 Grand Challenge: what the plugs of one house measure."""

from __future__ import annotations

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's own documentation writes it

from ceql.datasets.prepare.event_stream import EventStream
from ceql.datasets.prepare.raw_rows import PROBLEM, RawColumn, checked_rows, raw_lines, without_repetitions

COLUMNS = (
    RawColumn("id", "integer"),
    RawColumn("timestamp", "integer"),
    RawColumn("value", "number"),
    RawColumn("property", "integer"),
    RawColumn("plug_id", "integer"),
    RawColumn("household_id", "integer"),
    RawColumn("house_id", "integer"),
)
PAPER_HOUSE = 28
"""The house whose events the paper's queries run over."""
WORK, LOAD = 0, 1
"""What a measurement is, by `property`."""


def load_events(spark: SparkSession, raw: str, *, house: int = PAPER_HOUSE) -> EventStream:
    """Return the loads of one house in the order of time and id.

    Measurements of other houses and of work are no part of the stream, and nothing is wrong with them. Whether a
    line that is wrong belongs to the house cannot always be told, so all of those are kept aside.
    """
    is_unknown = ~F.col("property").isin(WORK, LOAD)
    checks = {"unknown property": F.when(is_unknown, F.col("property").cast("string"))}
    read = Observation()
    lines = raw_lines(spark, raw, COLUMNS)
    rows = checked_rows(lines.observe(read, F.count(F.lit(1)).alias("rows")), COLUMNS, checks)
    is_event = (F.col("property") == LOAD) & (F.col("house_id") == house)
    columns = {
        "type": F.lit("LOAD"),
        "id": F.col("id"),
        "plug_timestamp": F.col("timestamp"),
        "value": F.col("value"),
        "plug_id": F.col("plug_id"),
        "household_id": F.col("household_id"),
    }
    kept = rows.filter(is_event | F.isnotnull(PROBLEM))
    kept = without_repetitions(kept, ["id"], "duplicate id")
    return EventStream(kept, columns, ("timestamp", "id"), lines, read)
