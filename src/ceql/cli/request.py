"""The request of `ceql run`, checked as far as possible without an engine."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
import typer

from ceql.automaton.properties import event_types
from ceql.cli.terminal import tell
from ceql.engine.notes import unseen_types
from ceql.engine.options import Shape
from ceql.errors import CeqlWarning
from ceql.explain.cost import many_matches
from ceql.query import Query, compile, streams_in
from ceql.schema import Schema
from ceql.syntax.declare import declared_schema
from ceql.syntax.mistakes import Mistake
from ceql.syntax.parser import parse
from ceql.syntax.plan import AttributeWindow, Plan
from ceql.visible import visible

Mode = Literal["error", "overwrite", "append"]
PlanName = Literal["auto", "keys", "shards", "single"]


@dataclass(frozen=True)
class Request:
    """A run of a query. `streams` are the paths of each stream in FROM, in its order."""

    text: str
    streams: Mapping[str, Sequence[str]]
    output: str | None
    type_column: str | None
    time_column: str | None
    order_by: Sequence[str]
    shape: Shape
    sort: bool
    complete: bool
    format: str | None
    options: Mapping[str, str]
    output_format: str | None
    mode: Mode
    master: str | None
    conf: Mapping[str, str]
    plan: PlanName
    is_verbose: bool
    as_json: bool
    params: Mapping[str, object] = field(default_factory=dict, kw_only=True)

    @property
    def written_to(self) -> str | None:
        """Where all matches go, None if only the first matches are shown."""
        return "standard output" if self.prints_matches else self.output

    @property
    def prints_matches(self) -> bool:
        """Whether matches are printed while they are found."""
        return self.output is None and self.as_json

    def declared_columns(self, stream: str) -> dict[str, pa.DataType]:
        """Return the columns of a stream that CREATE STREAM declares."""
        try:
            declared = declared_schema(parse(self.text).declarations, Schema.unknown())
        except Mistake as mistake:
            raise mistake.at(self.text) from None
        event_types = [candidate.event_types or {} for candidate in declared.streams if candidate.name == stream]
        return {
            name: data_type
            for attributes in event_types
            for of_type in attributes.values()
            for name, data_type in of_type.items()
        }

    def column_types(self, stream: str) -> dict[str, pa.DataType]:
        """Return what is known of columns before reading: declared types, and that event types are strings."""
        return self.declared_columns(stream) | ({self.type_column: pa.string()} if self.type_column else {})

    def declares_all(self, stream: str) -> bool:
        """Return whether CREATE STREAM declares every column of a stream that the query or an option can name."""
        named = {name for name in (self.time_column, *self.order_by) if name is not None}
        declared = self.declared_columns(stream)
        return bool(declared) and named <= set(declared)


def note_many_matches(request: Request) -> None:
    """Warn of a query of which one event may complete very many matches."""
    query = _compiled(request).plan
    many = many_matches(query)
    if many is not None and query.limit is None:
        tell(f"warning: {'; '.join(many)}")


def note_unseen_types(request: Request, seen: Iterable[str | None]) -> None:
    """After a run without matches, name event types of the query that never occurred."""
    note = unseen_types(
        event_types(_compiled(request).automaton), {event_type for event_type in seen if event_type is not None}
    )
    if note is not None:
        tell(f"note: {note}")


def _compiled(request: Request) -> Query:
    """Return a query compiled without its events, without warnings: the run itself warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CeqlWarning)
        return compile(request.text, params=request.params)


@contextmanager
def warnings_told() -> Iterator[None]:
    """Print ceql's warnings as notes at the end: until then the terminal may show a bar."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CeqlWarning)
        yield
    # A query is compiled several times in a run, and warns each time.
    for note in dict.fromkeys(str(warning.message) for warning in caught if issubclass(warning.category, CeqlWarning)):
        tell(f"note: {note}")
    for warning in caught:
        if not issubclass(warning.category, CeqlWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def attributes_wanted(query: Plan) -> dict[str, str]:
    """Return the attributes that an event must have to count for a query, each with the clause that needs it."""
    wanted = dict.fromkeys(query.partition_by, "PARTITION BY")
    wanted |= dict.fromkeys((silence.attribute for silence in query.silences), "FOR")
    return wanted | ({query.window.attribute: "WITHIN"} if isinstance(query.window, AttributeWindow) else {})


def note_dropped(query: Plan, n_dropped: int) -> None:
    """Warn of events that the query left out because they have no partition key or time."""
    if n_dropped:
        clauses = [f"'{name}' ({clause})" for name, clause in attributes_wanted(query).items()]
        events = f"{n_dropped:,} events were" if n_dropped > 1 else "1 event was"
        tell(f"warning: {events} left out: NULL in {' or '.join(clauses)}")


def paths_by_stream(text: str, inputs: Sequence[str]) -> dict[str, list[str]]:
    """Return the paths of each stream that FROM reads.

    `NAME=PATH` belongs to a stream if FROM has that name; otherwise it is a path, such as `day=1/trades.parquet`.

    >>> paths_by_stream("SELECT * FROM S WHERE A", ["S=a.csv", "day=1/b.csv"])
    {'S': ['a.csv', 'day=1/b.csv']}
    """
    streams: dict[str, list[str]] = {name: [] for name in streams_in(text)}
    for given in inputs:
        name, is_named, path = given.partition("=")
        if is_named and name in streams:
            streams[name].append(path)
        elif len(streams) == 1:
            next(iter(streams.values())).append(given)
        else:
            raise typer.BadParameter(
                f"'{visible(given)}' does not say which stream it is: write one of {_choices(streams)}",
                param_hint="--input",
            )
    for name, paths in streams.items():
        if not paths:
            raise typer.BadParameter(
                f"FROM reads the stream {name}, which is not given: add --input {name}=PATH", param_hint="--input"
            )
    return streams


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Return the settings that an option gives as KEY=VALUE.

    >>> pairs(["header=false", "sep=="], "--option")
    {'header': 'false', 'sep': '='}
    """
    found = {}
    for text in texts:
        key, is_pair, value = text.partition("=")
        if not (key and is_pair):
            raise typer.BadParameter(f"'{visible(text)}' is not KEY=VALUE", param_hint=option)
        found[key] = value
    return found


def spark_settings(texts: Sequence[str]) -> dict[str, str]:
    """Return the settings that --conf gives."""
    found = pairs(texts, "--conf")
    for name in found:
        if "." not in name:
            raise typer.BadParameter(f"'{name}' is not a Spark setting: their names have dots", param_hint="--conf")
    return found


def _choices(streams: Mapping[str, object]) -> str:
    return ", ".join(f"{name}=PATH" for name in streams)
