"""Show the pages that two users fight over: `python examples/edit_war/run.py`."""

import os
import random
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import ceql.spark

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("CEQL_DATA", HERE.parents[2] / "shared/data")) / "wikipedia_edits"
QUERY = (HERE / "query.ceql").read_text()
OPTIONS = {"type_column": None, "time_column": "at", "order_by": ["user"]}


def recorded(spark: SparkSession) -> DataFrame:
    """Return a sample of one day of edits in all Wikipedias."""
    return spark.read.json(str(DATA), schema="time string, channel string, page string, user string, delta long")


def generated(spark: SparkSession) -> DataFrame:
    """Return edits of the same form: two wars, a revert that nobody answers, and a user who tries things out."""
    chance = random.Random(2)
    rows = [(chance.randrange(1440), f"Page {chance.randrange(50)}", f"User {n % 90}", n + 30) for n in range(500)]
    rows += [(300, "Tea", "Ann", 182), (310, "Tea", "Ann", 182), (320, "Tea", "Bob", -182), (330, "Tea", "Ann", 182)]
    rows += [(340, "Tea", "Bob", -182), (600, "Milk", "Bob", -75), (640, "Milk", "Cid", 75), (655, "Milk", "Bob", -75)]
    rows += [(700, "Rum", "Dan", 61), (702, "Rum", "Eve", -61)]
    rows += [(800, "Gin", "Fay", 44), (801, "Gin", "Fay", -44), (802, "Gin", "Fay", 44)]
    edits = [(f"2024-05-01T{at // 60:02}:{at % 60:02}:00Z", "#en.wikipedia", *edit) for at, *edit in sorted(rows)]
    return spark.createDataFrame(edits, "time string, channel string, page string, user string, delta long")


def events(edits: DataFrame) -> DataFrame:
    """Return the edits with their size, so that a text and its removal have the same partition key."""
    return edits.withColumns({"at": sf.to_timestamp("time"), "size": sf.abs("delta")}).drop("time")


def summary(matches: DataFrame) -> DataFrame:
    """Return one row for each war; what compares events with each other is asked of the matches."""
    wars = matches.where(~sf.arrays_overlap("first.user", "undo.user"))
    return wars.select(
        "channel",
        "page",
        "size",
        sf.concat_ws(", ", sf.array_distinct("first.user")).alias("one_side"),
        sf.concat_ws(", ", sf.array_distinct("undo.user")).alias("other_side"),
        sf.timestamp_diff("MINUTE", "match_start", "match_end").alias("minutes"),
    ).orderBy("channel", "page", "size")


def main() -> None:
    """Print the wars among the recorded edits, or among generated ones where those are missing."""
    spark = ceql.spark.session(quiet=True)
    edits = recorded(spark) if DATA.exists() else generated(spark)
    print("Recorded data:" if DATA.exists() else "Generated data:")
    summary(ceql.spark.match(QUERY, events(edits), **OPTIONS)).show(truncate=False)


if __name__ == "__main__":
    main()
