"""The taxi trips of the DEBS 2015 Grand Challenge, with zones of New York instead of coordinates."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's own documentation writes it
from pyspark.sql.types import StringType, StructField, StructType

from ceql.backends.spark.worker import map_batches
from ceql.datasets.prepare.event_stream import EventStream
from ceql.datasets.prepare.raw_rows import (
    PLACE,
    PROBLEM,
    RawColumn,
    checked_rows,
    problem_or,
    raw_lines,
    those_of,
    without_repetitions,
)
from ceql.datasets.prepare.zones import ENDS, Zones

COLUMNS = (
    RawColumn("medallion"),
    RawColumn("hack_license"),
    RawColumn("pickup_datetime", "time"),
    RawColumn("dropoff_datetime", "time"),
    RawColumn("trip_time_in_secs", "integer"),
    RawColumn("trip_distance", "number"),
    RawColumn("pickup_longitude", "number", may_be_negative=True),
    RawColumn("pickup_latitude", "number", may_be_negative=True),
    RawColumn("dropoff_longitude", "number", may_be_negative=True),
    RawColumn("dropoff_latitude", "number", may_be_negative=True),
    RawColumn("payment_type"),
    RawColumn("fare_amount", "number"),
    RawColumn("surcharge", "number"),
    RawColumn("mta_tax", "number"),
    RawColumn("tip_amount", "number"),
    RawColumn("tolls_amount", "number"),
    RawColumn("total_amount", "number"),
)
EVENT_COLUMNS = (
    "medallion",
    "hack_license",
    "pickup_datetime",
    "dropoff_datetime",
    "trip_time_in_secs",
    "trip_distance",
    "pickup_loc",
    "dropoff_loc",
    "payment_type",
    "fare_amount",
    "surcharge",
    "mta_tax",
    "tip_amount",
    "tolls_amount",
    "total_amount",
)
TRIP_KEY = ("medallion", "hack_license", "pickup_datetime", "dropoff_datetime")
"""Trips have no id, but a taxi makes only one at a time."""


def trip_events(spark: SparkSession, raw: str, zones: Zones) -> EventStream:
    """Return the trips in the order of drop-off, and of the files where that is the same."""
    checks = {
        "drop-off before pickup": F.when(
            F.col("dropoff_datetime") < F.col("pickup_datetime"),
            F.format_string("%d s", F.col("dropoff_datetime") - F.col("pickup_datetime")),
        ),
        "no coordinates": those_of(
            {end: (F.col(f"{end}_longitude") == 0) & (F.col(f"{end}_latitude") == 0) for end in ENDS}
        ),
    }
    rows = checked_rows(raw_lines(spark, raw, COLUMNS), COLUMNS, checks)
    # The shuffle that finds repetitions comes first: it shares the search for zones among all cores, even if the
    # raw file is compressed and thus read by one.
    rows = without_repetitions(rows, TRIP_KEY, "duplicate trip")
    zone_fields = [StructField(f"{end}_loc", StringType()) for end in ENDS]
    schema = StructType([*rows.schema.fields, *zone_fields])
    rows = map_batches(rows, schema, "ceql.datasets.prepare.zones", "located", zones)
    outside = those_of({end: F.isnull(f"{end}_loc") for end in ENDS})
    rows = rows.withColumn(PROBLEM, problem_or("outside every zone", outside))
    columns = {"type": F.lit("TRIP"), **{name: F.col(name) for name in EVENT_COLUMNS}}
    return EventStream(rows, columns, ("dropoff_datetime", *PLACE))
