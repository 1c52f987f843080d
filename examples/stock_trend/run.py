"""Show the stocks that rise quickly: `python examples/stock_trend/run.py`."""

import os
import random
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

import ceql.spark

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("CEQL_DATA", HERE.parents[2] / "shared/data")) / "stocks/stock_data.csv.gz"
QUERY = (HERE / "query.ceql").read_text()
OPTIONS = {"type_column": "event_type", "time_column": "stock_time", "order_by": ["id"]}
COLUMNS = "event_type string, id long, name string, volume long, price double, stock_time long"


def recorded(spark: SparkSession) -> DataFrame:
    """Return the trades of ten stocks on one day; `stock_time` is in milliseconds since midnight."""
    return spark.read.csv(str(DATA), header=True, schema=COLUMNS)


def generated(spark: SparkSession) -> DataFrame:
    """Return trades of the same form: three random walks, one of which is pushed up twice."""
    chance = random.Random(7)
    prices, rows = {"AAA": 20.0, "BBB": 50.0, "CCC": 100.0}, []
    for n in range(1500):
        name = chance.choice(list(prices))
        push = 0.0015 if name == "BBB" and n % 700 in range(350, 400) else -0.00004
        prices[name] *= 1 + push + chance.gauss(0, 0.0002)
        rows.append((chance.choice(["BUY", "SELL"]), n, name, 100, round(prices[name], 3), 34_200_000 + 700 * n))
    return spark.createDataFrame(rows, COLUMNS)


def events(trades: DataFrame) -> DataFrame:
    """Return the trades with their distance from the stock's first price of the day, in percent."""
    first_price = sf.first("price").over(Window.partitionBy("name").orderBy("stock_time", "id"))
    return trades.withColumn("percent", 100 * (sf.col("price") / first_price - 1))


def summary(matches: DataFrame) -> DataFrame:
    """Return one row for each rise: when it ended, from how many starts, and by how many trades at most."""
    return (
        matches.groupBy("name", "match_end")
        .agg(
            sf.count("*").alias("starts"),
            (sf.max(sf.size("mid")) + 2).alias("trades"),
            sf.min("low.price").alias("from_price"),
            sf.max("high.price").alias("to_price"),
        )
        .orderBy("match_end")
    )


def main() -> None:
    """Print the rises in the recorded trades, or in generated ones where those are missing."""
    spark = ceql.spark.session(quiet=True)
    trades = recorded(spark) if DATA.exists() else generated(spark)
    print("Recorded data:" if DATA.exists() else "Generated data:")
    summary(ceql.spark.match(QUERY, events(trades), **OPTIONS)).show(truncate=False)


if __name__ == "__main__":
    main()
