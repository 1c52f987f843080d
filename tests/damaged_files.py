"""Reads files of every format with some bytes changed. Run as a program: a crash ends only it.

It prints what came of them, by format. All that may happen is that a file is read, or refused with one error.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path

import pyarrow as pa

import ceql
from ceql.backends.files import read_events, write_rows

EVENTS = pa.table(
    {
        "type": ["A", "B", "C", "B"] * 5,
        "x": [1, None, 3, 4] * 5,
        "s": ["é", "b", None, "dddd"] * 5,
        "t": pa.array([datetime(2024, 1, 1, 0, 0, second) for second in range(20)], pa.timestamp("us", "UTC")),
        "d": pa.array(["p", "q", None, "p"] * 5).dictionary_encode(),
        "f": [0.5, 1.5, None, 2.5] * 5,
        "l": [[1, 2], None, [], [3]] * 5,
        "r": [{"a": "x", "b": 1}] * 20,
    }
)
QUERY = """
    SELECT * FROM S WHERE A AS a ; B+ AS b FILTER a[s LIKE 'é%' OR x > 0] AND b[d = 'q' OR f > 1]
    PARTITION BY [d] WITHIN 5 seconds
"""


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return a file with some of its bytes changed, or its end cut off."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        data[rng.randrange(len(data))] = rng.choice([0, 255, rng.randrange(256), data[rng.randrange(len(data))]])
    return bytes(data[: rng.randrange(len(data))] if rng.random() < 0.1 else data)


def outcome(path: Path) -> str:
    try:
        events = read_events(path).reader(lambda _: None)
        for batch in ceql.match(QUERY, events, sort=True).batches():
            batch.to_pylist()
    except ceql.CeqlError:
        return "refused"
    return "read"


def main(folder: Path, n_variants: int) -> None:
    for suffix in (".parquet", ".arrow", ".csv", ".csv.gz", ".jsonl", ".jsonl.gz"):
        path = folder / f"events{suffix}"
        table = EVENTS if suffix in (".parquet", ".arrow") else EVENTS.drop_columns(["l", "r"])
        with write_rows(path, table.schema) as writer:
            for batch in table.to_batches():
                writer.write_batch(batch)
        assert outcome(path) == "read"
        content, rng = path.read_bytes(), random.Random(suffix)
        outcomes: Counter[str] = Counter()
        for number in range(n_variants):
            path.write_bytes(damaged(content, rng))
            try:
                outcomes[outcome(path)] += 1
            except Exception as error:
                raise AssertionError(f"variant {number} of {suffix}") from error
        sys.stdout.write(f"{suffix} {outcomes['read'] + outcomes['refused']}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
