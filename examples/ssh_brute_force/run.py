"""Show the addresses that guessed a password: `python examples/ssh_brute_force/run.py`."""

import os
import random
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import ceql.spark

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("CEQL_DATA", HERE.parents[2] / "shared/data")) / "ssh_auth/elastic_auth_events.csv.gz"
QUERY = (HERE / "query.ceql").read_text()
OPTIONS = {"type_column": "event_type", "time_column": "at", "order_by": ["line"]}


def recorded(spark: SparkSession) -> DataFrame:
    """Return the log of one server over 24 days; its lines are numbered, because several share a second."""
    return spark.read.csv(str(DATA), header=True, inferSchema=True).withColumn("line", sf.monotonically_increasing_id())


def generated(spark: SparkSession) -> DataFrame:
    """Return a log of the same form: an attacker who gets in, one who does not, and people who mistype."""
    chance = random.Random(1)
    times = [("203.0.113.7", "root", "FAILED_PASSWORD", 5_000 + 3 * n) for n in range(60)]
    times += [("203.0.113.7", "root", "ACCEPTED", 5_185), ("203.0.113.7", "root", "ACCEPTED", 5_200)]
    times += [("198.51.100.9", "admin", "FAILED_PASSWORD", 4_000 + 5 * n) for n in range(80)]
    for n in range(40):
        ip, user, at = f"192.0.2.{n % 8}", f"user{n % 8}", chance.randrange(10_000)
        times += [(ip, user, "FAILED_PASSWORD", at + 4 * k) for k in range(chance.choice([0, 0, 1, 2]))]
        times.append((ip, user, "ACCEPTED", at + 10))
    rows = [
        (1_700_000_000_000 + 1000 * at, event, user, ip) for ip, user, event, at in sorted(times, key=lambda t: t[3])
    ]
    numbered = [(*row, line) for line, row in enumerate(rows)]
    return spark.createDataFrame(numbered, "ts_ms long, event_type string, user string, ip string, line long")


def events(log: DataFrame) -> DataFrame:
    """Return the log with a timestamp, which the window of the query measures."""
    return log.select("event_type", "ip", "user", "line", sf.timestamp_millis("ts_ms").alias("at"))


def summary(matches: DataFrame) -> DataFrame:
    """Return one row for each attack: who, how often, how long, and whose account it opened."""
    return matches.select(
        "ip",
        sf.size("failed").alias("failures"),
        sf.timestamp_diff("SECOND", "match_start", "match_end").alias("seconds"),
        sf.col("login.user").alias("account"),
    )


def main() -> None:
    """Print the attacks in the recorded log, or in a generated one where that is missing."""
    spark = ceql.spark.session(quiet=True)
    log = recorded(spark) if DATA.exists() else generated(spark)
    print("Recorded data:" if DATA.exists() else "Generated data:")
    summary(ceql.spark.match(QUERY, events(log), **OPTIONS)).show(truncate=False)


if __name__ == "__main__":
    main()
