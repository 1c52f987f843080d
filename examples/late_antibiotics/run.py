"""Find patients who get no antibiotics within an hour: `python examples/late_antibiotics/run.py`."""

import os
import random
from datetime import datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import ceql.spark

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("CEQL_DATA", HERE.parents[2] / "shared/data")) / "business_process/sepsis.csv.gz"
QUERY = (HERE / "query.ceql").read_text()
OPTIONS = {"type_column": "activity", "time_column": "at", "order_by": ["number"]}


def recorded(spark: SparkSession) -> DataFrame:
    """Return the log of the patients of a hospital who may have a sepsis."""
    return spark.read.csv(str(DATA), header=True, inferSchema=True)


def generated(spark: SparkSession) -> DataFrame:
    """Return a log of the same form with a hundred patients: some get antibiotics at once, some late, some never."""
    chance = random.Random(2)
    rows = []
    for case in range(100):
        at = datetime(2024, 1, 1) + timedelta(hours=5 * case)
        suspected, low_pressure = chance.random() < 0.8, chance.random() < 0.2
        rows.append((f"C{case}", "ER Registration", at, suspected, low_pressure, chance.randint(40, 95), len(rows)))
        minutes = chance.choice([None, 25, 40, 60, 61, 90, 200])
        steps = [("ER Triage", 10), ("ER Sepsis Triage", 20), ("IV Liquid", 45)]
        for activity, after in [*steps, *([] if minutes is None else [("IV Antibiotics", minutes)])]:
            rows.append((f"C{case}", activity, at + timedelta(minutes=after), None, None, None, len(rows)))
    return spark.createDataFrame(
        rows,
        "case_id string, activity string, timestamp timestamp_ntz, infectionsuspected boolean, hypotensie boolean, "
        "age int, `.order` int",
    )


def events(log: DataFrame) -> DataFrame:
    """Return the steps of each patient; several may have the same time, so they are ordered by their number, too."""
    return log.select(
        "case_id",
        "activity",
        sf.col("timestamp").cast("timestamp_ntz").alias("at"),
        sf.col("infectionsuspected").alias("infection_suspected"),
        sf.col("hypotensie").alias("low_blood_pressure"),
        sf.col("age").cast("int"),
        sf.col("`.order`").alias("number"),
    )


def summary(matches: DataFrame) -> DataFrame:
    """Return how many patients had to wait, and how old they are, with and without low blood pressure."""
    by_pressure = matches.groupBy(sf.col("arrival.low_blood_pressure").alias("low_blood_pressure"))
    return by_pressure.agg(sf.count("*").alias("patients"), sf.round(sf.avg("arrival.age"), 1).alias("age")).orderBy(
        "low_blood_pressure"
    )


def main() -> None:
    """Print who had to wait in the recorded log, or in a generated one where that is missing."""
    spark = ceql.spark.session(quiet=True)
    log = recorded(spark) if DATA.exists() else generated(spark)
    print("Recorded data:" if DATA.exists() else "Generated data:")
    summary(ceql.spark.match(QUERY, events(log), **OPTIONS)).show(truncate=False)


if __name__ == "__main__":
    main()
