"""`ceql generate` on Spark: many tasks make and write a stream, each one part."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

from pyspark.sql import SparkSession

from ceql.backends.spark.files import check_output, output_format, without_leftovers, write_frame
from ceql.cli.spark_jobs import is_on_this_machine, run_job
from ceql.datasets.generate import generated


def write_on_spark(
    out: str, dataset: str, n_events: int, seed: int, *, master: str | None, conf: Mapping[str, str]
) -> None:
    """Write a stream to a folder; an earlier result is replaced."""
    # Refuses what Spark has no format for, before it starts.
    output_format(out)

    def write(spark: SparkSession) -> None:
        is_here = is_on_this_machine(spark, out)
        if is_here:
            check_output(out, "overwrite", [])
        with without_leftovers(out) if is_here else nullcontext():
            write_frame(generated(spark, dataset, n_events, seed), out, mode="overwrite")

    run_job(write, master=master, conf=conf)
