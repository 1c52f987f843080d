"""Matches on Spark over synthetic stock trades in Parquet: ratios measured in one run, kept under `results/`.

Wall times of warm jobs on `local[2]`, the best of several runs; what is compared runs by turns. A job's floor is the
same plan, rows brought together and in order, with a function in place of the kernel that hands its rows on.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's own documentation writes it
from report import Report

import ceql.spark
from ceql.backends.spark import batch as spark_batch
from ceql.backends.spark.query import prepare
from ceql.datasets.stocks import SCHEMA, stocks

QUERIES = Path(ceql.__file__).parent / "paper" / "stocks"
N_RUNS = 5
WARM_SECONDS = 6
"""How long each job runs before its time counts: Java compiles what short ones do only after many of them."""
N_FILES = 8


def query(name: str) -> str:
    return (QUERIES / f"{name}.ceql").read_text()


def with_keys(text: str, key: str) -> str:
    text = re.sub(r"CREATE STREAM.*?\n}\n", "", text, flags=re.DOTALL)
    return text.replace("WITHIN", f"PARTITION BY [{key}]\nWITHIN")


def write_events(folder: Path, n_events: int) -> None:
    """Write the events to several files, so that reading them is shared among tasks."""
    batches = list(stocks(n_events, 1))
    size = -(-len(batches) // N_FILES)
    schema = pa.schema(
        [(field.name, pa.string() if pa.types.is_dictionary(field.type) else field.type) for field in SCHEMA]
    )
    for number in range(0, len(batches), size):
        table = pa.Table.from_batches(batches[number : number + size]).cast(schema)
        pq.write_table(table, folder / f"part-{number:05}.parquet")


def seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def best_of_each(runs: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Return the best time of each, having run them by turns: what else the machine does then slows all alike."""
    for run in runs.values():
        spent = 0.0
        while spent < WARM_SECONDS:
            spent += seconds(run)
    turns = [{name: seconds(run) for name, run in runs.items()} for _ in range(N_RUNS)]
    return {name: min(turn[name] for turn in turns) for name in runs}


def drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def job(text: str, events: DataFrame) -> spark_batch.Job:
    """Return a job over all rows that the row filter lets through, whether they have a chance or not."""
    prepared = prepare(text, events, type_column="type", time_column=None, order_by=["id"], shape="matches")
    return spark_batch.plan_job(prepared, "auto", prune=False)


def handed_on(text: str, events: DataFrame) -> DataFrame:
    rows = spark_batch.arrange(job(text, events))
    return rows.mapInArrow(lambda batches: batches, rows.schema)


def swallowed(text: str, events: DataFrame) -> DataFrame:
    def swallow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        return iter(())

    rows = spark_batch.arrange(job(text, events))
    return rows.mapInArrow(swallow, rows.schema)


def handed_back(text: str, events: DataFrame, n_matches: int) -> DataFrame:
    """Return as many matches as were found, but made beforehand, each with all values: what Spark takes for them."""
    planned = job(text, events)
    rows, n_rows = spark_batch.arrange(planned), planned.events.count()
    some = ceql.match(text, events.limit(200_000).toArrow(), sort=True, order_by=["id"]).to_arrow()
    part = some.slice(0, 10_000 * n_matches // n_rows).combine_chunks().to_batches()[0]

    def hand_back(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        n_seen, n_given = 0, 0
        for batch in batches:
            n_seen += len(batch)
            while n_given + len(part) <= n_matches * n_seen // n_rows:
                yield part
                n_given += len(part)

    return rows.mapInArrow(hand_back, found(text, events).schema)


def found(text: str, events: DataFrame, *, prune: bool | None = False) -> DataFrame:
    return ceql.spark.match(text, events, order_by=["id"], prune=prune)


def against_handing_on(report: Report, events: DataFrame) -> None:
    """Q1 with CONSUME BY ANY, as in the paper's experiments and as Q3 has it: else its matches are all that counts."""
    texts = {"S3'": query("s3_no_output"), "Q1": query("q1") + "CONSUME BY ANY", "Q3": query("q3")}
    for shown, text in texts.items():
        jobs = {"handed on": handed_on(text, events), "read": swallowed(text, events), "ours": found(text, events)}
        n_matches = jobs["ours"].count()
        if n_matches > 1_000_000:
            jobs["made before"] = handed_back(text, events, n_matches)
        times = best_of_each({name: partial(drain, frame) for name, frame in jobs.items()})
        report.add(f"{shown}, rows handed on", times["handed on"], "s")
        report.add(f"{shown} / rows handed on", times["ours"] / times["handed on"], "x", 1.3)
        report.add(f"{shown} / rows only read", times["ours"] / times["read"], "x")
        if "made before" in times:
            ratio = times["made before"] / times["handed on"]
            report.add(f"{shown}, {n_matches:,} matches made beforehand / rows handed on", ratio, "x")


def against_filter(report: Report, events: DataFrame) -> None:
    """Beside counting the rows that the row filter lets through, which Spark does on all cores and without Python."""
    text = query("s3_no_output")
    times = best_of_each(
        {
            "counted": lambda: job(text, events).events.count(),
            "ours": lambda: drain(found(text, events, prune=None)),
            "all rows": lambda: drain(found(text, events)),
        }
    )
    report.add("S3', filter and count", times["counted"], "s")
    report.add("S3' / filter and count", times["ours"] / times["counted"], "x", 2)
    report.add("S3' with prune=False / filter and count", times["all rows"] / times["counted"], "x")


def pruning(report: Report, events: DataFrame) -> None:
    """What it gives where one event is rare, and costs where all are everywhere, to leave out rows without a chance."""
    often = query("s3") + "CONSUME BY ANY"
    rarely = "SELECT * FROM S WHERE SELL AS a ; BUY AS b FILTER b[id % 100000 = 0] WITHIN 10000 [stock_time]"
    for shown, text in {"many SELL, few BUY": rarely, "S3, CONSUME BY ANY": often}.items():
        names = {"all rows": False, "asked first": None, "prune=True": True}
        frames = {name: found(text, events, prune=prune) for name, prune in names.items()}
        times = best_of_each({name: partial(drain, frame) for name, frame in frames.items()})
        report.add(f"{shown}, all rows", times["all rows"], "s")
        for name in ("asked first", "prune=True"):
            report.add(f"{shown}, {name} / all rows", times[name] / times["all rows"], "x")


def keys(report: Report, events: DataFrame) -> None:
    text = with_keys(query("s3_no_output"), "account")
    jobs = {}
    for n_keys in (1_000, 1_000_000):
        keyed = events.withColumn("account", F.pmod(F.xxhash64("id"), F.lit(n_keys)))
        jobs[f"{n_keys:,} keys"] = partial(drain, found(text, keyed))
    times = best_of_each(jobs)
    for name, of_job in times.items():
        report.add(f"S3' PARTITION BY {name}", of_job, "s")
    report.add("S3' 1,000,000 keys / 1,000 keys", times["1,000,000 keys"] / times["1,000 keys"], "x", 1.5)


def memory(report: Report, events: DataFrame) -> None:
    """The largest Python worker while very many matches stream through it, or matches of very long events."""
    part = events.limit(1_000_000)
    long = part.limit(20_000).withColumn("body", F.repeat(F.sha2(F.col("id").cast("string"), 256), 160))
    long_events = "SELECT * FROM S WHERE SELL AS a ; SELL AS b ; BUY AS c WITHIN 1000 [stock_time] LIMIT 100"
    for shown, text, rows in (("", query("q1") + "LIMIT 1000", part), (" of 10,240 characters", long_events, long)):
        n_matches, n_bytes = with_largest_worker(found(text, rows).count)
        report.add(f"largest worker, {n_matches:,} matches of events{shown}", n_bytes / 2**20, "MB", 500)


def with_largest_worker(run: Callable[[], int]) -> tuple[int, int]:
    """Return what a call returns, and the resident bytes of the largest worker at any moment of it."""
    peak, is_over = [0], threading.Event()

    def watch() -> None:
        while not is_over.wait(0.05):
            peak[0] = max([peak[0], *worker_bytes()])

    watcher = threading.Thread(target=watch)
    watcher.start()
    result = run()
    is_over.set()
    watcher.join()
    return result, peak[0]


def worker_bytes() -> list[int]:
    """Return the resident bytes of the processes that descend from this one and run PySpark's worker."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, parent = int(stat.parent.name), int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(pid)
    pending, sizes = [os.getpid()], []
    while pending:
        for pid in children.get(pending.pop(), []):
            pending.append(pid)
            try:
                if b"pyspark" in (Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"java")[0]:
                    sizes.append(int((Path("/proc") / str(pid) / "statm").read_text().split()[1]) * 4096)
            except OSError:
                continue
    return sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    n_events = parser.parse_args().events
    settings: dict[str, Any] = {"spark.driver.memory": "3g"}
    spark: SparkSession = ceql.spark.session("local[2]", app_name="ceql benchmark", quiet=True, **settings)
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        write_events(Path(folder), n_events)
        events = spark.read.parquet(folder)
        against_handing_on(report, events)
        against_filter(report, events)
        pruning(report, events)
        keys(report, events)
        memory(report, events)
    spark.stop()
    report.save("spark", f"{n_events} events, local[2]; pyspark {pyspark.__version__}, pyarrow {pa.__version__}")


if __name__ == "__main__":
    main()
