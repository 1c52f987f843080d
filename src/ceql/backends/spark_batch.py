"""Matches over Spark DataFrames: rows are brought together and in order, then a session runs over them.

Two plans: `keys`, where PARTITION BY brings the rows of one key to one task, and each task runs a
session over its keys; and `single`, where one task sees the whole stream. Either way a task reads
Arrow batches and yields Arrow batches, holding one of each and the state of its session.

Rows that no predicate can be true of are dropped in the JVM, where the filter reaches the scan.
The filter need only be sound: what it lets through is decided by the engine, so no predicate has
two meanings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's own documentation writes it
from pyspark.sql.pandas.types import from_arrow_schema

from ceql.automaton.cea import Guard
from ceql.automaton.lazy import Alphabet
from ceql.engine.matches import Shape, result_schema
from ceql.engine.recognizer import may_drop_irrelevant
from ceql.engine.session import Session
from ceql.errors import DataError
from ceql.query import Query, compile
from ceql.schema import Kind, Schema
from ceql.syntax import plan as plans
from ceql.syntax.ast import Consumption

PlanName = Literal["auto", "keys", "single"]
PLANS = ("auto", "keys", "single")


@dataclass(frozen=True)
class Job:
    """How a query is going to run over a DataFrame."""

    query: Query
    plan: str
    reason: str
    order: tuple[str, ...]
    row_filter: Column | None
    schema: pa.Schema


def match(
    query: Query | str,
    events: DataFrame,
    *,
    type_column: str | None,
    time_column: str | None,
    order_by: Sequence[str],
    shape: Shape,
    plan: PlanName,
) -> DataFrame:
    """Return the matches as a DataFrame; nothing runs before it is asked for."""
    job = planned(
        query, events, type_column=type_column, time_column=time_column, order_by=order_by, shape=shape, plan=plan
    )
    text, order, own_time = job.query.text, job.order, job.query.time_column

    def recognise(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        session = Session(text, shape=shape, type_column=type_column, time_column=own_time, order_by=order)
        for batch in batches:
            yield from session.feed(batch).batches()

    return arranged(events, job).mapInArrow(recognise, from_arrow_schema(job.schema, prefer_timestamp_ntz=True))


def planned(
    query: Query | str,
    events: DataFrame,
    *,
    type_column: str | None,
    time_column: str | None,
    order_by: Sequence[str],
    shape: Shape,
    plan: PlanName,
) -> Job:
    """Return the plan for a query over a DataFrame, or raise what can be known to be wrong before it runs."""
    if events.isStreaming:
        raise DataError("streaming DataFrames are not supported yet", "use foreachBatch, or a batch DataFrame")
    if shape == "positions":
        raise DataError("a distributed stream has no cheap row numbers", "use shape='matches' or shape='events'")
    if shape == "events":
        raise DataError("shape='events' is not supported on Spark yet", "use shape='matches'")
    if plan not in PLANS:
        raise ValueError(f"unknown plan {plan!r}: choose one of {', '.join(PLANS)}")
    text = query if isinstance(query, str) else query.text
    schema = Schema.of(events.schema)
    bound = compile(text, schema, time_column=time_column, order_by=order_by)
    if type_column is not None and type_column not in events.columns:
        raise DataError(
            f"the events have no type column '{type_column}'",
            "name it with type_column, or give type_column=None if every event has its stream's name as type",
        )
    order = _order(bound, events, time_column, order_by)
    chosen, reason = _choice(bound.plan, plan)
    columns = schema.streams[0].columns
    events_schema = pa.schema(list(columns.items()))
    return Job(
        bound,
        chosen,
        reason,
        order,
        _row_filter(bound, type_column),
        result_schema(shape, bound.plan, events_schema),
    )


def arranged(events: DataFrame, job: Job) -> DataFrame:
    """Return the rows filtered, brought to their tasks, and in order within each."""
    keys = [F.col(_quoted(name)) for name in job.query.plan.partition_by]
    for key in keys:
        events = events.where(key.isNotNull())
    if job.row_filter is not None:
        events = events.where(job.row_filter)
    events = events.repartition(*keys) if job.plan == "keys" else events.repartition(1)
    return events.sortWithinPartitions(*(F.col(_quoted(name)) for name in job.order))


def _choice(query: plans.Plan, plan: PlanName) -> tuple[str, str]:
    if not query.partition_by:
        if plan == "keys":
            raise DataError("plan='keys' needs a query with PARTITION BY")
        return "single", "the query has no PARTITION BY"
    if query.consumption is Consumption.ANY:
        if plan == "keys":
            raise DataError("plan='keys' cannot run CONSUME BY ANY, which makes partitions depend on one another")
        return "single", "CONSUME BY ANY makes partitions depend on one another"
    if plan == "single":
        return "single", "plan='single' was asked for"
    return "keys", "partitions are independent"


def _order(query: Query, events: DataFrame, time_column: str | None, order_by: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that order the stream: the window's or the time, those given, then all others.

    The others break ties; rows that are equal in all of them are interchangeable.
    """
    window = query.plan.window
    first = [window.attribute] if isinstance(window, plans.AttributeWindow) else []
    if time_column is not None:
        first.append(time_column)
    given = list(dict.fromkeys([*first, *order_by]))
    if not given:
        raise DataError(
            "a DataFrame has no order of its own", "name the columns that order it with time_column or order_by"
        )
    for name in given:
        if name not in events.columns:
            raise DataError(f"the events have no column '{name}' to order by")
    types = dict(Schema.of(events.schema).streams[0].columns)
    others = [name for name in events.columns if name not in given and not pa.types.is_map(types[name])]
    return tuple([*given, *others])


def _row_filter(query: Query, type_column: str | None) -> Column | None:
    """Return what every relevant row satisfies, as a Column; None if all rows are needed."""
    if isinstance(query.plan.window, plans.EventsWindow) or not may_drop_irrelevant(query.automaton):
        return None
    alternatives = [_guard_column(guard, type_column) for guard in Alphabet.of(query.automaton).guards]
    if not alternatives or any(one is None for one in alternatives):
        return None
    return reduce(Column.__or__, [one for one in alternatives if one is not None])


def _guard_column(guard: Guard, type_column: str | None) -> Column | None:
    parts = [part for one in sorted(guard, key=repr) if (part := _predicate_column(one, type_column)) is not None]
    return reduce(Column.__and__, parts) if parts else None


_OPERATORS = {"=": "__eq__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}
_SAFE_KINDS = (Kind.STRING, Kind.BOOLEAN, Kind.INTEGER)


def _predicate_column(predicate: plans.Predicate, type_column: str | None) -> Column | None:
    """Return a predicate as Spark evaluates it, None where it is not certain to mean the same."""
    match predicate:
        case plans.HasType():
            return None if type_column is None else F.col(_quoted(type_column)) == F.lit(predicate.event_type)
        case plans.Compare(plans.Column() as left, operator, plans.Constant() as right) if operator in _OPERATORS:
            is_same_kind = left.kind is right.kind and left.kind in _SAFE_KINDS
            is_float = left.kind is Kind.FLOAT and isinstance(right.value, float)
            if (is_same_kind or is_float) and _fits(right.value):
                column: Column = getattr(F.col(_quoted(left.name)), _OPERATORS[operator])(F.lit(right.value))
                return column
        case plans.All():
            parts = [part for one in predicate.parts if (part := _predicate_column(one, type_column)) is not None]
            return reduce(Column.__and__, parts) if parts else None
        case plans.Any():
            either = [_predicate_column(one, type_column) for one in predicate.parts]
            known = [one for one in either if one is not None]
            return reduce(Column.__or__, known) if len(known) == len(either) else None
        case plans.IsNull(plans.Column() as value):
            return F.col(_quoted(value.name)).isNull()
    return None


def _fits(value: object) -> bool:
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def described(job: Job) -> str:
    """Return a job in words."""
    keys = ", ".join(job.query.plan.partition_by)
    how = {
        "keys": f"rows are brought together by {keys}; each task runs over its keys",
        "single": "one task runs over all rows",
    }[job.plan]
    return "\n".join(
        [
            f"plan: {job.plan}, because {job.reason}: {how}",
            f"order: {', '.join(job.order)}",
            f"row filter: {job.row_filter if job.row_filter is not None else 'none, every row is needed'}",
        ]
    )
