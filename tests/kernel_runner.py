"""Runs the compiled engine and gives its matches as the reference does."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa

import ceql
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
    **options: Any,
) -> list[Completed]:
    """Feed parts of a stream to a session; fail if a match comes out twice or out of order."""
    session = Session(query, shape=shape, **options)  # type: ignore[arg-type]
    session.collects_always, session.warns = collects_always, False
    found: list[tuple[int, Valuation]] = []
    for part in parts:
        matches = session.feed(part)
        bound: Any = None
        for n_matches, make in matches.start():
            bound = session._bound
            chunk = _captured(bound, make)
            assert len(chunk) == n_matches
            found += _valuations(chunk, bound.recognizer.memo.labels)
        if restores:
            session = Session.restore(query, session.snapshot(), shape=shape, **options)
            session.collects_always, session.warns = collects_always, False
    ends = [end for end, _ in found]
    assert ends == sorted(ends), "matches come by completing event"
    by_end: dict[int, list[Valuation]] = defaultdict(list)
    for end, valuation in found:
        by_end[end].append(valuation)
    for valuations in by_end.values():
        assert len(set(valuations)) == len(valuations), "a match came out twice"
    return [Completed(end, frozenset(valuations)) for end, valuations in by_end.items()]


def _captured(bound: Any, make: Any) -> Any:
    """Return the chunk that `make` would turn into a record batch, having checked that it can."""
    build = bound.builder.build
    chunks = []

    def capture(chunk: Any, labels: Any, history: Any) -> Any:
        chunks.append(chunk)
        return build(chunk, labels, history)

    bound.builder.build = capture
    try:
        assert len(make()) >= 0
    finally:
        del bound.builder.build
    return chunks[0]


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
