"""A program that takes all files of a folder through a streaming query into Parquet files, and ends.

It is started by the tests that kill it: `python stream_driver.py FOLDER SINK CHECKPOINT RESULT MASTER`.
RESULT gets what the sink holds in the end: for each match, the ids of its two events.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import ceql.spark

SCHEMA = "type string, id long, k long, t timestamp"
QUERY = "SELECT * FROM S WHERE A AS x ; B AS y PARTITION BY [k] WITHIN 4 seconds"
OPTIONS = {"time_column": "t", "order_by": ["id"]}


def main(folder: str, sink: str, checkpoint: str, result: str, master: str) -> None:
    """Run until there are no more files."""
    config = {
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.session.timeZone": "UTC",
        "spark.task.maxFailures": 4,
        "spark.executor.memory": "600m",
    }
    spark = ceql.spark.session(master, quiet=True, **config)
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(folder)
    matches = ceql.spark.match(QUERY, stream, watermark="5 seconds", **OPTIONS)  # type: ignore[arg-type]
    writer = matches.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start(sink).awaitTermination()
    Path(result).write_text(
        json.dumps([list(row) for row in spark.read.parquet(sink).select("x.id", "y.id").collect()])
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
