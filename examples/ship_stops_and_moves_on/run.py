"""Show where ships interrupt a voyage: `python examples/ship_stops_and_moves_on/run.py`."""

import os
import random
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import ceql.spark

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("CEQL_DATA", HERE.parents[2] / "shared/data")) / "ais/dma_20230108_10ships.csv.gz"
QUERY = (HERE / "query.ceql").read_text()
OPTIONS = {"type_column": None, "time_column": "at", "order_by": ["lon", "lat", "knots"]}


def recorded(spark: SparkSession) -> DataFrame:
    """Return the positions that ten ships in Danish waters reported in one day."""
    return spark.read.csv(str(DATA), header=True, inferSchema=True)


def generated(spark: SparkSession) -> DataFrame:
    """Return reports of the same form: one ship stops on its way, one passes, one stays; the last two with glitches."""
    chance = random.Random(3)
    stops = [12.0] * 80 + [2.0] * 6 + [0.1] * 90 + [1.5] * 4 + [11.0] * 60
    passes = ([14.0] * 49 + [0.0]) * 4
    stays = ([0.0] * 39 + [9.9]) * 5
    rows = []
    for ship, speeds in enumerate([stops, passes, stays]):
        lon = 10.0 + ship
        for n, knots in enumerate(speeds):
            ts_ms = 1_700_000_000_000 + 120_000 * n + chance.randrange(20_000)
            lon += knots / 2000
            rows.append((ts_ms, 219_000_000 + ship, lon, 55.0, knots))
    return spark.createDataFrame(rows, "ts_ms long, mmsi long, lon double, lat double, sog double")


def events(reports: DataFrame) -> DataFrame:
    """Return the reports with a timestamp, and with the speed over ground under a name that tells its unit."""
    return reports.select(sf.timestamp_millis("ts_ms").alias("at"), "mmsi", "lon", "lat", sf.col("sog").alias("knots"))


def summary(matches: DataFrame) -> DataFrame:
    """Return one row for each stay: how long it was, and where."""
    first, last = sf.element_at("stay", 1), sf.element_at("stay", -1)
    return matches.select(
        "mmsi",
        sf.size("stay").alias("reports"),
        sf.timestamp_diff("MINUTE", first["at"], last["at"]).alias("minutes"),
        sf.round(last["lon"], 2).alias("lon"),
        sf.round(last["lat"], 2).alias("lat"),
    ).orderBy("mmsi", "minutes")


def main() -> None:
    """Print the stays in the recorded reports, or in generated ones where those are missing."""
    spark = ceql.spark.session(quiet=True)
    reports = recorded(spark) if DATA.exists() else generated(spark)
    print("Recorded data:" if DATA.exists() else "Generated data:")
    summary(ceql.spark.match(QUERY, events(reports), **OPTIONS)).show(truncate=False)


if __name__ == "__main__":
    main()
