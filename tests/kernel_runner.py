"""Runs the compiled engine and gives its matches as the reference does."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pyarrow as pa

import ceql
from ceql.engine.pipeline import END_OF_ALL, END_OF_EVENTS
from ceql.engine.reading import Reading
from ceql.engine.session import Session
from reference import Completed, Valuation


def table(events: list[dict[str, Any]], types: dict[str, pa.DataType]) -> pa.Table:
    return pa.table(
        {name: pa.array([event.get(name) for event in events], data_type) for name, data_type in types.items()}
    )


def recognise(
    query: ceql.Query,
    parts: list[Any],
    *,
    shape: str = "matches",
    collects_always: bool = False,
    restores: bool = False,
    complete: bool = False,
    **options: Any,
) -> list[Completed]:
    """Feed parts of a stream to a session; fail if a match comes out twice or out of order.

    With `complete`, silences that the end of the stream cuts off count, too.
    """
    session = _prepared(Session(query, shape=shape, **options), collects_always)  # type: ignore[arg-type]
    found: list[tuple[int, Valuation]] = []
    for number, part in enumerate(parts):
        end = END_OF_ALL if complete else END_OF_EVENTS
        reading = session.read(part, end if number == len(parts) - 1 else None)
        for some in reading.begin():
            assert isinstance(reading, Reading)
            assert len(some.rows()) >= 0, "rows can be made of them"
            found += _valuations(some.chunk, reading.pipeline.run.labels)
        if restores:
            session = _prepared(Session.restore(query, session.snapshot(), shape=shape, **options), collects_always)
    ends = [end for end, _ in found]
    assert ends == sorted(ends), "matches come by completing event"
    by_end: dict[int, list[Valuation]] = defaultdict(list)
    for end, valuation in found:
        by_end[end].append(valuation)
    for valuations in by_end.values():
        assert len(set(valuations)) == len(valuations), "a match came out twice"
    return [Completed(end, frozenset(valuations)) for end, valuations in by_end.items()]


def _prepared(session: Session, collects_always: bool) -> Session:
    session.limits = replace(session.limits, collects_always=collects_always)
    session.warns = False
    return session


def _valuations(chunk: Any, labels: list[frozenset[str]]) -> list[tuple[int, Valuation]]:
    found = []
    for index in range(len(chunk)):
        first, last = chunk.offsets[index], chunk.offsets[index + 1]
        held = frozenset(
            (name, int(row))
            for row, label in zip(chunk.rows[first:last], chunk.labels[first:last], strict=True)
            for name in labels[label]
        )
        end = int(chunk.end[index])
        found.append((end, Valuation(int(chunk.start[index]), end, held)))
    return found
