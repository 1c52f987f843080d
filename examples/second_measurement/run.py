"""Show how soon a high lactic acid is measured again: `python examples/second_measurement/run.py`."""

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
    """Return a log of the same form with a hundred patients: some have a high value, and some of these a second one."""
    chance = random.Random(2)
    rows = []
    for case in range(100):
        at = datetime(2024, 1, 1) + timedelta(hours=5 * case)
        values = [chance.choice([1.4, 2.6, 3.3, 4.1]) for _ in range(chance.choice([0, 1, 1, 2, 3]))]
        if chance.random() < 0.1:
            values.insert(1, None)
        steps = ["ER Registration", "ER Triage", "ER Sepsis Triage", *["LacticAcid"] * len(values), "Release A"]
        measured = iter(values)
        for activity in steps:
            if activity == "LacticAcid" and chance.random() < 0.7:
                rows.append((f"C{case}", "Leucocytes", at, None, len(rows)))
            rows.append((f"C{case}", activity, at, next(measured) if activity == "LacticAcid" else None, len(rows)))
            at += timedelta(minutes=chance.choice([10, 90, 200, 900]))
    return spark.createDataFrame(
        rows, "case_id string, activity string, timestamp timestamp_ntz, lacticacid double, `.order` int"
    )


def events(log: DataFrame) -> DataFrame:
    """Return the steps of each patient; several may have the same time, so they are ordered by their number, too."""
    at = sf.col("timestamp").cast("timestamp_ntz").alias("at")
    return log.select(
        "case_id", "activity", at, sf.col("lacticacid").cast("double"), sf.col("`.order`").alias("number")
    )


def summary(matches: DataFrame) -> DataFrame:
    """Return how many patients have a second value, and after how many hours, by what it is."""
    hours = sf.timestamp_diff("MINUTE", sf.col("high.at"), sf.col("again.at")) / 60
    value = sf.when(sf.col("again.lacticacid") <= 2, "normal").when(
        sf.col("again.lacticacid") < sf.col("high.lacticacid"), "high, but lower"
    )
    by_value = matches.groupBy(sf.coalesce(value, sf.lit("not lower")).alias("second_value"))
    return by_value.agg(sf.count("*").alias("patients"), sf.round(sf.avg(hours), 1).alias("hours")).orderBy(
        "second_value"
    )


def main() -> None:
    """Print the second values in the recorded log, or in a generated one where that is missing."""
    spark = ceql.spark.session(quiet=True)
    log = recorded(spark) if DATA.exists() else generated(spark)
    print("Recorded data:" if DATA.exists() else "Generated data:")
    summary(ceql.spark.match(QUERY, events(log), **OPTIONS)).show(truncate=False)


if __name__ == "__main__":
    main()
