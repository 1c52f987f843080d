"""Reads the cases in `spec/*.toml` and compares what an evaluator finds with what they expect.

A case has a `name`, a `query`, `events` and `matches`. An event is a type ("A") or a table with
`type`, `stream` where there are several, and attributes; an attribute that is left out is NULL.
Positions count the events of the streams in FROM. A match lists the positions of each selected
variable, and may give its `interval`, the positions of
its first and last event. Where the query has a LIMIT, `matches` lists all that it chooses from.
Attribute types follow from the values; `schema` states them where they do not, in the words
of CREATE STREAM. With `complete = true`, nothing comes after the events.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

import ceql
from ceql.syntax.declare import TYPES
from reference import Completed

SPEC = Path(__file__).parent / "spec"


@dataclass
class Case:
    name: str
    query: str
    events: list[dict[str, Any]]
    matches: list[dict[str, Any]]
    schema: dict[str, str] = field(default_factory=dict)
    time_column: str | None = None
    complete: bool = False

    @property
    def attribute_types(self) -> dict[str, pa.DataType]:
        """The type of every attribute, the event type's column first."""
        types: dict[str, pa.DataType] = {"type": pa.string()}
        for event in self.events:
            for name, value in event.items():
                if name not in ("stream", *self.schema) and value is not None:
                    types.setdefault(name, _inferred(value))
        for name, word in self.schema.items():
            types[name] = _declared(word)
        return types

    def compile(self) -> ceql.Query:
        types = pa.schema(list(self.attribute_types.items()))
        streams = list(dict.fromkeys(event["stream"] for event in self.events if "stream" in event))
        schema = {stream: types for stream in streams} if streams else types
        return ceql.compile(self.query, schema, time_column=self.time_column)

    def stream(self, query: ceql.Query) -> list[dict[str, Any]]:
        """The events that the query sees: those of the streams in FROM."""
        read = {name.text for name in query.tree.sources}
        return [event for event in self.events if event.get("stream") is None or event["stream"] in read]


def load() -> list[Case]:
    """Return every case of every file."""
    return [case for path in sorted(SPEC.glob("*.toml")) for case in load_file(path)]


def load_file(path: Path) -> list[Case]:
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    cases = []
    for test in raw["test"]:
        unknown = set(test) - {*("name", "query", "events", "matches", "schema", "time_column", "complete", "why")}
        assert not unknown, f"{path.name}: {test.get('name')}: unknown keys {unknown}"
        test.pop("why", None)
        schema = test.get("schema", {})
        events = [_event(event, schema) for event in test.pop("events")]
        cases.append(Case(events=events, **test | {"name": f"{path.stem}/{test['name']}"}))
    return cases


def _event(event: str | dict[str, Any], schema: dict[str, str]) -> dict[str, Any]:
    if isinstance(event, str):
        return {"type": event}
    return {
        name: Decimal(value) if schema.get(name, "").startswith("decimal") else value for name, value in event.items()
    }


def _inferred(value: Any) -> pa.DataType:
    if isinstance(value, list):
        return pa.list_(_inferred(value[0]) if value else pa.null())
    if isinstance(value, dict):
        return pa.struct([(name, _inferred(part)) for name, part in value.items()])
    if isinstance(value, datetime):
        return pa.timestamp("us", tz="UTC" if value.tzinfo else None)
    for python_type, data_type in (
        (bool, pa.bool_()),
        (int, pa.int64()),
        (float, pa.float64()),
        (str, pa.string()),
        (date, pa.date32()),
    ):
        if isinstance(value, python_type):
            return data_type
    raise AssertionError(f"give the type of {value!r} in 'schema'")


def _declared(word: str) -> pa.DataType:
    if word.startswith("decimal("):
        precision, scale = word[len("decimal(") : -1].split(",")
        return pa.decimal128(int(precision), int(scale))
    return TYPES[word]


def check(case: Case, limit: int | None, found: list[Completed]) -> None:
    """Fail unless an evaluator found exactly what the case expects."""
    has_interval = any("interval" in match for match in case.matches)
    expected = [_plain(match, has_interval) for match in case.matches]
    actual = []
    for completed in found:
        for match in completed.matches:
            bound: dict[str, Any] = {}
            for name, position in sorted(match.held):
                bound.setdefault(name, []).append(position)
            if has_interval:
                bound["interval"] = [match.start, match.end]
            actual.append((completed.end, _plain(bound, has_interval)))
    wanted, got = Counter(expected), Counter(plain for _, plain in actual)
    if limit is None:
        assert got == wanted, f"missing {dict(wanted - got)}, unexpected {dict(got - wanted)}"
    else:
        assert not got - wanted, f"unexpected {dict(got - wanted)}"
        assert max(Counter(end for end, _ in actual).values(), default=0) <= limit
        assert {end for end, _ in actual} == {
            max(at for held in match.values() for at in held) for match in case.matches
        }


def check_positions(case: Case, limit: int | None, found: list[Completed]) -> None:
    """Fail unless an evaluator found the expected complex events: positions without variables."""
    expected = {
        frozenset(at for name, held in match.items() if name != "interval" for at in held) for match in case.matches
    }
    actual = {match.positions for completed in found for match in completed.matches}
    assert actual == expected if limit is None else actual <= expected
    if limit is not None:
        assert all(len(completed.matches) <= limit for completed in found)


def _plain(match: dict[str, Any], has_interval: bool) -> tuple[Any, ...]:
    bound = {name: tuple(value) for name, value in match.items() if name != "interval" and value}
    return (*sorted(bound.items()), tuple(match["interval"]) if has_interval else None)
