"""Show the taxis that never drive empty: `python examples/taxi_hops/run.py`."""

import os
import random
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

import ceql.spark

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("CEQL_DATA", HERE.parents[2] / "shared/data")) / "taxi/debs2015_first_hour.csv.gz"
QUERY = (HERE / "query.ceql").read_text()
OPTIONS = {"type_column": None, "time_column": "picked_up", "order_by": ["id"]}
COLUMNS = """
    id long, medallion string, pickup_datetime string, dropoff_datetime string, pickup_zone string, dropoff_zone string
"""


def recorded(spark: SparkSession) -> DataFrame:
    """Return the taxi trips of the first hour of 2013 in New York."""
    return spark.read.csv(str(DATA), header=True)


def generated(spark: SparkSession) -> DataFrame:
    """Return trips of the same form: taxis that mostly stay in the zone where they dropped a passenger."""
    chance = random.Random(8)
    zones = ["East Village", "Gramercy", "Murray Hill", "Union Sq"]
    clock = "2024-01-01 00:{:02}:00".format
    rows = []
    for taxi in range(200):
        minute, zone = chance.randrange(10), chance.choice(zones)
        while minute < 45:
            start, end = zone if chance.random() < 0.5 else chance.choice(zones), minute + chance.randrange(4, 12)
            zone = chance.choice(zones)
            rows.append((len(rows), f"T{taxi:02}", clock(minute), clock(end), start, zone))
            minute = end + chance.choice([1, 2, 3, 9])
    return spark.createDataFrame(rows, COLUMNS)


def events(trips: DataFrame) -> DataFrame:
    """Return the trips, each with the zone in which the taxi ended the one before, and the minutes since then."""
    so_far = Window.partitionBy("medallion").orderBy("picked_up", "id")
    timed = trips.select(
        sf.col("id").cast("long").alias("id"),
        "medallion",
        "pickup_zone",
        "dropoff_zone",
        sf.to_timestamp_ntz("pickup_datetime").alias("picked_up"),
        sf.to_timestamp_ntz("dropoff_datetime").alias("dropped_off"),
    )
    idle = sf.timestamp_diff("MINUTE", sf.lag("dropped_off").over(so_far), "picked_up")
    return timed.withColumns({"zone_before": sf.lag("dropoff_zone").over(so_far), "idle_minutes": idle})


def summary(matches: DataFrame) -> DataFrame:
    """Return in which zones the taxis of the chains found their next passengers, the most frequent ones first."""
    hops = matches.select(sf.explode("hops").alias("hop"))
    zones = hops.groupBy(sf.col("hop.pickup_zone").alias("zone")).agg(sf.count("*").alias("hops"))
    return zones.orderBy(sf.desc("hops"), "zone")


def main() -> None:
    """Print the chains in the recorded trips, or in generated ones where those are missing."""
    spark = ceql.spark.session(quiet=True)
    trips = recorded(spark) if DATA.exists() else generated(spark)
    print("Recorded data:" if DATA.exists() else "Generated data:")
    summary(ceql.spark.match(QUERY, events(trips), **OPTIONS)).show(10, truncate=False)


if __name__ == "__main__":
    main()
