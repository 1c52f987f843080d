"""The events of the paper's data sets: generated ones, or the real files where a folder has them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from ceql.bench.queries import Dataset
from ceql.errors import DataError

SEED = 1

REAL_FILES = {
    Dataset.stocks: "stocks/stock_data.csv.gz",
    Dataset.smart_homes: "smart_homes/core_matched_events.csv.gz",
    Dataset.taxis: "taxi/core_matched_trips.csv.gz",
}

_NAMES = {
    "event_type": "type",
    "pickup_zone": "pickup_loc",
    "dropoff_zone": "dropoff_loc",
    "long_time_in_secs": "trip_time_in_secs",
}
"""The names that the queries have for columns of the real files."""


def generated(dataset: Dataset, n_events: int) -> pa.Table:
    """Return synthetic events of a data set, the same ones each time."""
    from ceql.datasets.generate import events

    # A file in Arrow format holds one dictionary for each column.
    return pa.Table.from_batches(list(events(dataset.value, n_events, SEED))).unify_dictionaries()


def real(dataset: Dataset, folder: Path, n_events: int) -> pa.Table:
    """Return the first events of a data set's real file."""
    path = folder / REAL_FILES[dataset]
    if not path.exists():
        raise DataError(
            f"there is no {REAL_FILES[dataset]} in {folder}", "leave --data out to measure generated events"
        )
    with gzip.open(path) as file:
        table = pa.csv.read_csv(file)
    renamed = table.rename_columns([_NAMES.get(name, name) for name in table.column_names])
    return _coded(renamed.slice(0, n_events))


def write(events: pa.Table, path: Path) -> None:
    """Write events to an Arrow file, from which systems load them."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, events.schema) as writer:
        writer.write_table(events)


def _coded(events: pa.Table) -> pa.Table:
    """Return the events with dictionaries instead of strings, like the generated events."""
    columns = [
        column.combine_chunks().dictionary_encode() if pa.types.is_string(column.type) else column
        for column in events.columns
    ]
    return pa.table(dict(zip(events.column_names, columns, strict=True)))
