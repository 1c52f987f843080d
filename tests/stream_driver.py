"""A program that takes all files of a folder through a streaming query into Parquet files, and ends.

It is started by the tests that kill it: `python stream_driver.py MASTER FOLDER SINK CHECKPOINT RESULT`.
RESULT gets what the sink holds in the end: for each match, the ids of its two events.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import ceql.spark
from stream_files import QUERY

SCHEMA = "type string, id long, k long, t timestamp"
OPTIONS = {"time_column": "t", "order_by": ["id"]}


def run(spark: Any, folder: str, sink: str, checkpoint: str, result: str) -> None:
    """Go on until there are no more files."""
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(folder)
    matches = ceql.spark.match(QUERY, stream, watermark="5 seconds", **OPTIONS)  # type: ignore[arg-type]
    writer = matches.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start(sink).awaitTermination()
    Path(result).write_text(
        json.dumps([list(row) for row in spark.read.parquet(sink).select("x.id", "y.id").collect()])
    )


def main(master: str, *paths: str) -> None:
    """Run in a session of this process."""
    config = {"spark.sql.shuffle.partitions": 2, "spark.sql.session.timeZone": "UTC"}
    run(ceql.spark.session(master, quiet=True, **config), *paths)


if __name__ == "__main__":
    main(*sys.argv[1:])
