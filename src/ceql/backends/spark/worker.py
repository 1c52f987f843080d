"""Sends functions of ceql to Spark's workers by value, so that they can say if ceql is missing there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from ceql.version import __version__

Batches = Iterator[pa.RecordBatch]


def map_batches(
    frame: DataFrame, schema: StructType | str, module: str, name: str, *arguments: Any, **options: Any
) -> DataFrame:
    """Return a frame whose tasks apply a function of ceql, given by module and name, to the batches of `frame`."""
    # PySpark does not quote the names of columns here, so numbers replace them until the worker puts them back.
    numbered = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
    return numbered.mapInArrow(on_workers(module, name, tuple(frame.columns), *arguments, **options), schema)


def on_workers(
    module: str, name: str, columns: tuple[str, ...], *arguments: Any, **options: Any
) -> Callable[[Batches], Batches]:
    """Return a function for workers: it gives the columns of a task's batches their names, and calls the ceql function.

    A function of a module would be sent by name; if the module is missing, the error would be about unpickling.
    """
    version = __version__

    def run(batches: Batches) -> Batches:
        import importlib
        import sys

        hint = "install the driver's version on every node, or send it along with spark.archives (docs/spark.md)"
        try:
            function = getattr(importlib.import_module(module), name)
            version_here = importlib.import_module("ceql.version").__version__
        except ImportError as error:
            raise ImportError(f"Spark's workers have no ceql {version}, in {sys.executable}: {hint}") from error
        if version_here != version:
            raise ImportError(
                f"Spark's workers have ceql {version_here}, the driver has {version}, in {sys.executable}: {hint}"
            )
        named = (batch.rename_columns(list(columns)) for batch in batches)
        found: Batches = function(named, *arguments, **options)
        return found

    return run
