"""An event stream of checked rows: written in order, with the rows that are wrong aside."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's own documentation writes it

from ceql.backends.files import FileError
from ceql.backends.spark.files import check_output, without_leftovers, write_frame
from ceql.datasets.prepare.raw_rows import LINE, PLACE, PROBLEM

Mode = Literal["error", "overwrite"]

_METHOD_LIMIT = "spark.sql.codegen.hugeMethodLimit"


@dataclass(frozen=True)
class EventStream:
    """Checked rows; those without a problem are events, with these columns and in this order.

    If some of the rows that are read are neither events nor wrong, `lines` are all of them, and `read` observes their
    number, as "rows".
    """

    rows: DataFrame
    columns: Mapping[str, Column]
    order_by: Sequence[str]
    lines: DataFrame | None = None
    read: Observation | None = None


@dataclass(frozen=True)
class Counts:
    """How many rows came to what; `rejected` has those that are wrong, by reason, the most frequent first."""

    n_rows: int
    n_events: int
    n_rejected: int
    rejected: Mapping[str, int]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return the counts for JSON."""
        return asdict(self)


def rejected_path(out: str) -> str:
    """Return the folder for the rows that are wrong, beside that of the stream.

    >>> rejected_path("out/taxis.parquet/")
    'out/taxis.parquet.rejected'
    """
    return f"{out.rstrip('/')}.rejected"


def check_outputs(out: str, raw: str, mode: Mode) -> None:
    """Refuse folders on this machine that are in the way, before anything runs."""
    for path in (out, rejected_path(out)):
        try:
            check_output(path, mode, [raw])
        except FileError as error:
            # A stream in order is not added to.
            hint = "--mode overwrite replaces it" if error.hint and mode == "error" else error.hint
            raise FileError(error.message, hint) from None


def write_stream(stream: EventStream, out: str, *, mode: Mode, is_here: bool) -> Counts:
    """Write a stream as a folder of Parquet files, the rejected rows as another, and return how many there are.

    Files and rows are in the order of the stream. `is_here` says that the folders are on this machine, where what a
    job that fails has left is removed.
    """
    began = time.perf_counter()
    rejected = rejected_path(out)
    # Sorting reads its input twice, to find the ranges and to divide the rows among them, and the rejected rows are
    # written by a job of their own: kept on disk, all of it is computed once.
    rows = stream.rows.persist(StorageLevel.DISK_ONLY)
    try:
        with ExitStack() as contexts:
            contexts.enter_context(_methods_that_java_compiles(rows.sparkSession))
            if is_here:
                for path in (out, rejected):
                    contexts.enter_context(without_leftovers(path))
            by_reason = _count_by_reason(rows)
            write_frame(_rejected_rows(rows), rejected, format="parquet", mode=mode)
            write_frame(_ordered_events(stream, rows), out, format="parquet", mode=mode)
    finally:
        rows.unpersist()
    n_rows = _n_read(stream, sum(by_reason.values()))
    n_events = by_reason.pop(None, 0)
    wrong = {str(reason): n for reason, n in by_reason.items()}
    return Counts(n_rows, n_events, sum(wrong.values()), wrong, time.perf_counter() - began)


@contextmanager
def _methods_that_java_compiles(spark: SparkSession) -> Iterator[None]:
    """Let Spark divide the code that it generates into methods that Java compiles, which are those up to 8,000 bytes.

    PERF: checking 500,200 taxi trips takes 8.3 s of CPU time with it, 13.3 s without (two cores, second run of each).
    """
    before = spark.conf.get(_METHOD_LIMIT)
    spark.conf.set(_METHOD_LIMIT, "8000")
    try:
        yield
    finally:
        spark.conf.set(_METHOD_LIMIT, str(before))


def _count_by_reason(rows: DataFrame) -> dict[str | None, int]:
    counts = rows.groupBy(F.col(f"{PROBLEM}.reason").alias("reason")).count().collect()
    return {row["reason"]: row["count"] for row in sorted(counts, key=lambda row: (-row["count"], str(row["reason"])))}


def _n_read(stream: EventStream, n_kept: int) -> int:
    if stream.read is None or stream.lines is None:
        return n_kept
    # A plan of which nothing comes is replaced while it runs, and what it observed is lost.
    return int(stream.read.get["rows"]) if n_kept else stream.lines.count()


def _rejected_rows(rows: DataFrame) -> DataFrame:
    return rows.filter(F.isnotnull(PROBLEM)).select(
        F.col(f"{PROBLEM}.reason"), F.col(f"{PROBLEM}.detail"), F.col(PLACE[0]).alias("file"), F.col(LINE).alias("line")
    )


def _ordered_events(stream: EventStream, rows: DataFrame) -> DataFrame:
    ordered = rows.filter(F.isnull(PROBLEM)).orderBy(*stream.order_by)
    return ordered.select(*(column.alias(name) for name, column in stream.columns.items()))
