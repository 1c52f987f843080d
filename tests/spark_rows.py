"""Rows of DataFrames beside those of the engine, and settings of a session for a while."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any


def plain(value: Any) -> Any:
    """Values without time zones, which Spark's rows do not carry."""
    if isinstance(value, dict):
        return tuple((name, plain(part)) for name, part in value.items())
    if isinstance(value, list):
        return tuple(plain(part) for part in value)
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def rows_of(found: Any) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in found.collect()]


def same_rows(found: Any, expected: Any) -> bool:
    """Whether a DataFrame holds what the engine gives, in any order."""
    rows = [str(plain(row)) for row in rows_of(found)]
    return Counter(rows) == Counter(str(plain(row)) for row in expected.to_arrow().to_pylist()) != Counter()


@contextmanager
def settings(spark: Any, values: dict[str, Any]) -> Iterator[None]:
    """Let a session have other settings for a while."""
    before = {name: spark.conf.get(name) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
