"""Show the traffic fines that skip a step of the appeal: `python examples/skipped_fine_step/run.py`."""

import os
import random
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import ceql.spark

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("CEQL_DATA", HERE.parents[2] / "shared/data")) / "business_process/traffic_fines.csv.gz"
QUERY = (HERE / "query.ceql").read_text()
OPTIONS = {"type_column": "activity", "time_column": "day", "order_by": ["number"]}

BEGIN = ["Create Fine", "Send Fine", "Insert Fine Notification"]
APPEAL = ["Insert Date Appeal to Prefecture", "Add penalty", "Send Appeal to Prefecture"]
RESULT = ["Receive Result Appeal from Prefecture", "Notify Result Appeal to Offender"]
WAYS = [
    ["Create Fine", "Payment"],
    [*BEGIN, "Add penalty", "Send for Credit Collection"],
    [*BEGIN, *APPEAL],
    [*BEGIN, *APPEAL, *RESULT, "Payment"],
    [*BEGIN, *APPEAL[:2], *RESULT, "Payment"],
    [*BEGIN, "Add penalty", *RESULT, "Send for Credit Collection", "Send Appeal to Prefecture"],
]


def recorded(spark: SparkSession) -> DataFrame:
    """Return the log of ten thousand traffic fines."""
    return spark.read.csv(str(DATA), header=True, inferSchema=True)


def generated(spark: SparkSession) -> DataFrame:
    """Return a log of the same form with two hundred fines, most of which go one of the regular ways."""
    chance = random.Random(6)
    rows = []
    for case in range(200):
        day = chance.randrange(300)
        for activity in chance.choices(WAYS, [60, 60, 30, 30, 4, 2])[0]:
            rows.append((f"A{case}", activity, day, len(rows)))
            day += chance.choice([0, 1, 14, 60])
    steps = spark.createDataFrame(rows, "case_id string, activity string, days int, `.order` int")
    return steps.withColumn("timestamp", sf.date_add(sf.lit("2020-01-01"), "days")).drop("days")


def events(log: DataFrame) -> DataFrame:
    """Return the steps; several of one case may share a day, so they are ordered by their number, too."""
    return log.select("case_id", "activity", sf.to_date("timestamp").alias("day"), sf.col("`.order`").alias("number"))


def summary(matches: DataFrame) -> DataFrame:
    """Return one row for each fine that skips the step: how many days and steps its appeal has taken."""
    return matches.select(
        "case_id",
        sf.date_diff("match_end", "match_start").alias("days"),
        (sf.col("result.number") - sf.col("fine.number")).alias("steps"),
    ).orderBy("days", "case_id")


def main() -> None:
    """Print the skips in the recorded log, or in a generated one where that is missing."""
    spark = ceql.spark.session(quiet=True)
    log = recorded(spark) if DATA.exists() else generated(spark)
    print("Recorded data:" if DATA.exists() else "Generated data:")
    summary(ceql.spark.match(QUERY, events(log), **OPTIONS)).show(truncate=False)


if __name__ == "__main__":
    main()
