"""Synthetic streams by name: as batches in this process, or as a Spark DataFrame that many tasks make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from ceql.datasets import smart_homes, stocks, taxis
from ceql.datasets.blocks import N_EVENTS, Block, beginning, n_blocks, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BLOCKS: dict[str, tuple[Block, pa.Schema]] = {
    "stocks": (stocks.block, stocks.SCHEMA),
    "smart-homes": (smart_homes.block, smart_homes.SCHEMA),
    "taxis": (taxis.block, taxis.SCHEMA),
}
DATASETS = tuple(_BLOCKS)
"""The names of the streams."""

BLOCKS_PER_TASK = 16
"""Two million events: some tens of megabytes of Parquet."""


def schema(dataset: str) -> pa.Schema:
    """Return the columns of a stream."""
    return _BLOCKS[dataset][1]


def events(dataset: str, n_events: int, seed: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield the first events of a stream, in the order of time; the same ones for the same seed."""
    return stream(_BLOCKS[dataset][0], n_events, seed)


def generated(
    session: SparkSession, dataset: str, n_events: int, seed: int = 0, *, n_partitions: int | None = None
) -> DataFrame:
    """Return the same events as `events`, as a lazy DataFrame.

    Its partitions are in the order of time, and so are the names of files written from it. Each task holds one block of
    events at a time.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    from ceql.backends.spark.worker import map_batches

    n_tasks = n_partitions or max(1, -(-n_blocks(n_events) // BLOCKS_PER_TASK))
    numbers = session.range(0, n_blocks(n_events), 1, n_tasks)
    columns = from_arrow_schema(_plain(schema(dataset)))
    return map_batches(numbers, columns, __name__, "blocks_of", dataset, n_events, seed)


def blocks_of(numbers: Iterator[pa.RecordBatch], dataset: str, n_events: int, seed: int) -> Iterator[pa.RecordBatch]:
    """Yield the blocks whose numbers a task gets, with strings as Spark needs them."""
    block, columns = _BLOCKS[dataset]
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield beginning(block(number, seed), n_events - number * N_EVENTS).cast(_plain(columns))


def _plain(columns: pa.Schema) -> pa.Schema:
    """Return the columns with plain strings instead of dictionaries."""
    return pa.schema(
        [
            (column.name, column.type.value_type if pa.types.is_dictionary(column.type) else column.type)
            for column in columns
        ]
    )
