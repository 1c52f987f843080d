"""A stream as a folder of files, for tests that kill what reads it, and the matches that it must give in the end."""

from __future__ import annotations

import json
import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import ceql

QUERY = "SELECT * FROM S WHERE A AS x ; B AS y PARTITION BY [k] WITHIN 4 seconds"
SCHEMA = pa.schema([("type", pa.string()), ("id", pa.int64()), ("k", pa.int64()), ("t", pa.timestamp("us", "UTC"))])
PATHS = ("in", "sink", "checkpoint", "result")
"""What a driver reads and writes, below the folder of a test."""

N_FILES = 5
FILE_EVENTS = 14


def events() -> list[dict[str, Any]]:
    chance = random.Random(5)
    start = datetime(2024, 1, 1, tzinfo=UTC)
    return [
        {"type": chance.choice("AB"), "id": number, "k": number % 5, "t": start + timedelta(seconds=number * 0.3)}
        for number in range(N_FILES * FILE_EVENTS)
    ]


def write_files(folder: Path) -> None:
    """Write the events in some disorder, and at last a row that lets all of them pass the watermark."""
    folder.mkdir()
    chance = random.Random(6)
    rows = sorted(events(), key=lambda event: event["t"] + timedelta(seconds=4 * chance.random()))
    end = {"type": "Z", "id": -1, "k": 0, "t": datetime(2024, 2, 1, tzinfo=UTC)}
    parts = [*(rows[begin : begin + FILE_EVENTS] for begin in range(0, len(rows), FILE_EVENTS)), [end]]
    for number, part in enumerate(parts):
        path = folder / f"{number:02}.json"
        path.write_text("".join(json.dumps({**event, "t": event["t"].isoformat()}) + "\n" for event in part))
        os.utime(path, (1_700_000_000 + number,) * 2)


def assert_each_match_once(path: Path) -> None:
    found = [tuple(pair) for pair in json.loads((path / "result").read_text())]
    matches = ceql.match(QUERY, pa.Table.from_pylist(events(), SCHEMA), time_column="t").to_arrow().to_pylist()
    expected = [(match["x"]["id"], match["y"]["id"]) for match in matches]
    assert sorted(found) == sorted(expected)
    assert len(expected) > 30
