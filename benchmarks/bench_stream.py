"""Matches over a stream of synthetic stock trades: ratios measured in one run, kept under `results/`.

Files of 100,000 events, one for each micro-batch, read with the trigger available-now on `local[2]`. The floor
is a stream with the same rows, shards and kind of state, whose function only counts. Throughput is that of the
micro-batches after the first ones, by Spark's own account of their duration.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's own documentation writes it
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from report import Report

import ceql.spark
from ceql.backends.spark.query import prepare
from ceql.backends.spark.stream import match as spark_stream
from ceql.backends.spark.stream.rows import PACKED_ROWS
from ceql.datasets.stocks import stocks

BATCH = 100_000
N_WARM = 3
"""Micro-batches at the beginning that are not measured: Spark and Numba compile in them."""

QUERY = """
SELECT * FROM Stocks
WHERE SELL AS msft ; BUY AS oracle ; BUY AS csco
FILTER msft[name = 'MSFT'] AND oracle[name = 'ORCL'] AND csco[name = 'CSCO']
PARTITION BY [account] WITHIN 10 seconds [at]
CONSUME BY PARTITION
"""
WATERMARK = "1 second"

Keys = Callable[[Any], Any]


def write_events(folder: Path, n_events: int, keys: Keys) -> None:
    """Write the events in files of one micro-batch each, with a partition key and a timestamp."""
    table = pa.Table.from_batches(list(stocks(n_events, 1)))
    names = [table[name].cast(pa.string()) for name in ("type", "name")]
    numbers = np.arange(n_events)
    at = table["stock_time"].cast(pa.timestamp("ms")).cast(pa.timestamp("us", "UTC"))
    columns = [names[0], table["id"], names[1], table["price"], pa.array(keys(numbers)), at]
    whole = pa.table(columns, ["type", "id", "name", "price", "account", "at"])
    for number in range(0, n_events, BATCH):
        pq.write_table(whole.slice(number, BATCH), folder / f"{number:012}.parquet")


class Counter(StatefulProcessor):
    """Counts the packed rows of its shard and hands the number on."""

    def init(self, handle: Any) -> None:
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        n = sum(len(frame[PACKED_ROWS]) for frame in rows)
        if self._count.exists():
            n += self._count.get()[0]
        self._count.update((n,))
        yield pd.DataFrame({"n": [n]})

    def close(self) -> None:
        pass


def counted(events: DataFrame) -> DataFrame:
    prepared = prepare(QUERY, events, type_column="type", time_column=None, order_by=["id"], shape="matches")
    rows = spark_stream.pack_rows(prepared, watermark=WATERMARK, n_shards=spark_stream.DEFAULT_SHARDS)
    return rows.groupBy("shard").transformWithStateInPandas(Counter(), "n long", "Append", "EventTime")


def recognised(events: DataFrame) -> DataFrame:
    return ceql.spark.match(QUERY, events, order_by=["id"], watermark=WATERMARK)


def run(spark: SparkSession, folder: Path, stream: Callable[[DataFrame], DataFrame]) -> list[Any]:
    """Return the progress of all micro-batches that had events."""
    schema = spark.read.parquet(str(folder)).schema
    events = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = stream(events).writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return [progress for progress in query.recentProgress if progress.numInputRows]


def events_per_second(progress: list[Any]) -> float:
    measured = progress[N_WARM:]
    return BATCH / statistics.median(one.durationMs["triggerExecution"] / 1000 for one in measured)


def state_bytes(progress: list[Any]) -> list[int]:
    return [one.observedMetrics["ceql"]["state_bytes"] for one in progress]


def latencies(spark: SparkSession, ordering: Any, seconds: int) -> list[float]:
    """Return how long after its last event each match reached the sink, with a trigger each second.

    Every fifth of a second a file appears, whose events have the time at which it was made. The first half warms up.
    """
    query = "SELECT * FROM S WHERE A AS x ; B AS y PARTITION BY [k] WITHIN 1 second CONSUME BY PARTITION"
    folder, found = Path(tempfile.mkdtemp()), list[tuple[float, float]]()
    (folder / "in").mkdir()

    def take(batch: DataFrame, number: int) -> None:
        ends = [row[0] for row in batch.select(F.unix_micros("match_end")).collect()]
        found.extend((end / 1e6, time.time() - end / 1e6) for end in ends)

    events = spark.readStream.schema("type string, id long, k long, at timestamp").parquet(str(folder / "in"))
    matches = ceql.spark.match(query, events, time_column="at", order_by=["id"], watermark=WATERMARK, ordering=ordering)
    writer = matches.writeStream.foreachBatch(take).option("checkpointLocation", str(folder / "checkpoint"))
    running = writer.trigger(processingTime="1 second").start()
    numbers, began = np.arange(200), time.time()
    types, keys = pa.array(["A", "B"]).take(pa.array(numbers % 2)), pa.array(numbers // 2)
    for number in range(5 * seconds):
        now = pa.array(np.full(len(numbers), time.time_ns() // 1000), pa.timestamp("us", "UTC"))
        ids = pa.array(numbers + len(numbers) * number)
        hidden = folder / "in" / f".{number}"
        pq.write_table(pa.table([types, ids, keys, now], ["type", "id", "k", "at"]), hidden)
        hidden.rename(folder / "in" / f"{number:06}.parquet")
        time.sleep(0.2)
    running.processAllAvailable()
    running.stop()
    shutil.rmtree(folder)
    return [latency for end, latency in found if end > began + seconds / 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=5_000_000)
    n_events = parser.parse_args().events
    settings: dict[str, Any] = {"spark.driver.memory": "3g", "spark.sql.streaming.numRecentProgressUpdates": 1000}
    spark = ceql.spark.session("local[2]", app_name="ceql benchmark", quiet=True, **settings)
    report = Report()
    rates = {}
    chance = np.random.default_rng(0)
    for n_keys in (1, 1_000, 100_000):
        folder = Path(tempfile.mkdtemp())
        write_events(folder, n_events, lambda numbers: chance.integers(0, n_keys, len(numbers)))  # noqa: B023
        progress = run(spark, folder, recognised)
        rates[n_keys] = events_per_second(progress)
        report.add(f"{n_keys:,} keys", rates[n_keys], "events/s")
        sizes = state_bytes(progress)
        half = len(sizes) // 2
        report.add(f"{n_keys:,} keys, state, second half / first half", max(sizes[half:]) / max(sizes[:half]), "x", 1.5)
        if n_keys == 1_000:
            floor = events_per_second(run(spark, folder, counted))
            report.add("1,000 keys, only counted", floor, "events/s")
            report.add("1,000 keys, counted / recognised", floor / rates[n_keys], "x", 2)
        shutil.rmtree(folder)
    report.add("1,000 keys / 100,000 keys, throughput", rates[1_000] / rates[100_000], "x", 3)
    folder = Path(tempfile.mkdtemp())
    write_events(folder, n_events, lambda numbers: numbers // max(1, n_events // 1_000_000))
    sizes = state_bytes(run(spark, folder, recognised))
    shutil.rmtree(folder)
    half = len(sizes) // 2
    report.add("1,000,000 keys in all, largest state", max(sizes) / 2**20, "MB")
    report.add("1,000,000 keys in all, second half / first half", max(sizes[half:]) / max(sizes[:half]), "x", 1.5)
    for ordering in ("arrival", "time"):
        measured = np.array(latencies(spark, ordering, 40))
        for name, share in (("median", 50), ("99th percentile", 99)):
            what = f"from event to match, 1 s trigger, ordering='{ordering}', {name}"
            report.add(what, float(np.percentile(measured, share)), "s")
    spark.stop()
    report.save("stream", f"{n_events} events, local[2]; pyspark {pyspark.__version__}, pyarrow {pa.__version__}")


if __name__ == "__main__":
    main()
