"""Show the aircraft whose delay grows over a day: `python examples/growing_delay/run.py`."""

import os
import random
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

import ceql.spark

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("CEQL_DATA", HERE.parents[2] / "shared/data")) / "flights/nycflights13_flights.parquet"
QUERY = (HERE / "query.ceql").read_text()
OPTIONS = {"type_column": None, "time_column": "at", "order_by": ["flight"]}
COLUMNS = """
    year int, month int, day int, hour int, minute int, tailnum string, carrier string, flight long, dep_delay double
"""


def recorded(spark: SparkSession) -> DataFrame:
    """Return all departures from New York in 2013."""
    return spark.read.parquet(str(DATA))


def generated(spark: SparkSession) -> DataFrame:
    """Return departures of the same form: three days of twenty aircraft, two of which run ever later."""
    chance = random.Random(4)
    bad_days = {("N100", 1): [0.0, 20.0, 45.0, 90.0], ("N107", 3): [5.0, 30.0, 60.0, 80.0, 120.0]}
    rows = []
    for n, day in ((n, day) for n in range(20) for day in (1, 2, 3)):
        tail = f"N{100 + n}"
        usual = [float(chance.choice([-5, -2, 0, 4, 30])) for _ in range(chance.randrange(2, 6))]
        for leg, delay in enumerate(bad_days.get((tail, day), usual)):
            rows.append((2024, 7, day, 6 + 4 * leg, 15, tail, "B6" if n < 10 else "MQ", 10 * n + leg, delay))
    return spark.createDataFrame(rows, COLUMNS)


def events(departures: DataFrame) -> DataFrame:
    """Return the flights that took place, each with the delay of the aircraft's flight before it on that day."""
    day = sf.make_date("year", "month", "day")
    at = sf.make_timestamp_ntz("year", "month", "day", "hour", "minute", sf.lit(0))
    flown = departures.where("tailnum IS NOT NULL AND dep_delay IS NOT NULL").select(
        "tailnum", "carrier", "flight", sf.col("dep_delay").alias("delay"), day.alias("day"), at.alias("at")
    )
    so_far = Window.partitionBy("tailnum", "day").orderBy("at", "flight")
    return flown.withColumn("delay_before", sf.lag("delay").over(so_far))


def summary(matches: DataFrame) -> DataFrame:
    """Return one row for each such day: the aircraft, and its delays in minutes, one for each departure."""
    return matches.select(
        "tailnum",
        "day",
        sf.col("first.carrier").alias("carrier"),
        sf.concat_ws(" ", sf.concat(sf.array("first.delay"), "later.delay").cast("array<int>")).alias("delays"),
    ).orderBy("tailnum", "day")


def main() -> None:
    """Print such days among the recorded flights, or among generated ones where those are missing."""
    spark = ceql.spark.session(quiet=True)
    departures = recorded(spark) if DATA.exists() else generated(spark)
    print("Recorded data:" if DATA.exists() else "Generated data:")
    summary(ceql.spark.match(QUERY, events(departures), **OPTIONS)).show(truncate=False)


if __name__ == "__main__":
    main()
