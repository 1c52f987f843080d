"""Show which ads and searches led to purchases: `python examples/purchase_funnel/run.py`."""

import random
from datetime import datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import ceql.spark

HERE = Path(__file__).resolve().parent
QUERY = (HERE / "query.ceql").read_text()
OPTIONS = {"time_column": "at", "order_by": ["id"]}
COLUMNS = """
    id long, type string, visitor string, product string, at timestamp_ntz, campaign string, words string, amount double
"""
NEXT_STEPS = {
    "AD": ["AD", "SEARCH", "VIEW", "VIEW"],
    "SEARCH": ["AD", "VIEW", "VIEW", "VIEW"],
    "VIEW": ["VIEW", "SEARCH", "CART", "CART"],
    "CART": ["VIEW", "PURCHASE", "PURCHASE"],
    "PURCHASE": ["AD", "SEARCH", "PURCHASE"],
}


def generated(spark: SparkSession) -> DataFrame:
    """Return the clicks of two hundred visitors, who look at products, leave, come back and sometimes buy."""
    chance = random.Random(5)
    rows = []
    for n in range(200):
        at, step, product = datetime(2024, 11, 29, 8) + timedelta(seconds=97 * n), "AD", chance.choice(["lamp", "desk"])
        for _ in range(chance.randrange(2, 12)):
            campaign = chance.choice(["mail", "banner"]) if step == "AD" else None
            words = f"buy {product}" if step == "SEARCH" else None
            amount = float(chance.randrange(20, 200)) if step == "PURCHASE" else None
            rows.append((at, step, f"v{n}", product, campaign, words, amount))
            at, step = at + timedelta(minutes=chance.choice([1, 2, 5, 45])), chance.choice(NEXT_STEPS[step])
    events = [(i, step, visitor, product, at, *rest) for i, (at, step, visitor, product, *rest) in enumerate(rows)]
    return spark.createDataFrame(events, COLUMNS)


def events(clicks: DataFrame) -> DataFrame:
    """Return the clicks as they are: they have a type, a key and a time already."""
    return clicks


def summary(matches: DataFrame) -> DataFrame:
    """Return purchases and amounts for each ad campaign, and for searches."""
    source = sf.coalesce(sf.concat(sf.lit("ad: "), sf.col("ad.campaign")), sf.lit("search"))
    minutes = sf.timestamp_diff("MINUTE", "match_start", "match_end")
    return (
        matches.groupBy(source.alias("source"))
        .agg(
            sf.count("*").alias("purchases"),
            sf.sum("purchase.amount").alias("amount"),
            sf.round(sf.avg(minutes), 1).alias("minutes"),
        )
        .orderBy("source")
    )


def main() -> None:
    """Print what led to the purchases of the generated visitors."""
    spark = ceql.spark.session(quiet=True)
    print("Generated data:")
    summary(ceql.spark.match(QUERY, events(generated(spark)), **OPTIONS)).show(truncate=False)


if __name__ == "__main__":
    main()
