"""Matches over Spark DataFrames: rows are brought to their tasks and sorted, then a session runs over them.

Three plans:
- `keys`: PARTITION BY brings the rows of one key to one task, and each task runs a session over its keys;
- `shards`: the timeline is cut, and each task runs a session over one piece of it (see `shards`);
- `single`: one task sees the whole stream.
In all plans a task reads and yields Arrow batches. It holds one batch of each, and the state of its session.

Only columns that the query can see are read. Rows that satisfy none of its predicates are dropped in the JVM where
the language allows it; that filter reaches the scan. Where it pays, rows that cannot be part of a match are dropped
as well (see `pruning`). The engine decides the rest.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's own documentation writes it
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, DoubleType, FloatType

from ceql.automaton.properties import why_not_by_key, why_not_by_time
from ceql.backends.spark import pruning, shards
from ceql.backends.spark.predicates import quoted
from ceql.backends.spark.query import OWN, STREAM, Prepared
from ceql.backends.spark.shared_events import (
    BITS,
    MATCHES,
    NO_PLACE,
    PLACES_PER_WORD,
    lists,
    may_share,
    n_words,
    shared_schema,
)
from ceql.backends.spark.task_session import TaskOptions
from ceql.backends.spark.worker import map_batches
from ceql.engine.options import Layout
from ceql.errors import DataError
from ceql.query import Query
from ceql.syntax import plan as plans
from ceql.syntax.clauses import attribute_measured

PlanName = Literal["auto", "keys", "shards", "single"]
PLANS = ("auto", "keys", "shards", "single")

LeftOut = Literal["none", "all", "far"]
"""No rows; all rows if an event that every match needs never occurs; rows that are far from such an event."""

LATEST = f"{OWN}latest"
"""The column with the largest time of all rows, which is the same in every row."""

TASK = ("ceql.backends.spark.task", "recognise")

MIN_CORES_FOR_SHARDS = 8
"""With fewer cores one task is as fast: cutting the timeline reads rows twice. Measured on two; eight is a guess."""


@dataclass(frozen=True)
class Job:
    """How a query is going to run over a DataFrame; `events` are the rows that satisfy a predicate.

    `left_out` says which of these rows are left out because no match can have them, `why_not` why none are left out.
    With `complete`, nothing comes after the rows.
    """

    prepared: Prepared
    plan: str
    reason: str
    events: DataFrame
    n_shards: int
    left_out: LeftOut
    why_not: str
    complete: bool = False

    @property
    def asks_for_latest(self) -> bool:
        """Whether tasks must know the largest time of all rows: matches wait until the clock has passed it."""
        return self.query.plan.silence_after is not None and not self.complete

    @property
    def query(self) -> Query:
        """The query, bound to the columns."""
        return self.prepared.query


def match(job: Job, n_tied: Accumulator[int] | None = None) -> DataFrame:
    """Return the matches as a lazy DataFrame.

    Where matches depend on the order of events that tie, tasks add the number of these to `n_tied`, or else log it.
    """
    plan, shares_events = job.query.plan, _shares_events(job)
    schema = from_arrow_schema(shared_schema(plan) if shares_events else job.prepared.schema, prefer_timestamp_ntz=True)
    found = map_batches(arrange(job), schema, *TASK, asdict(_task_options(job)), n_tied=n_tied, **_row_options(job))
    return _with_events(found, plan) if shares_events else found


def _shares_events(job: Job) -> bool:
    """Return whether tasks hand over each event once, and Spark copies it into all its matches."""
    plan = job.query.plan
    names = [*plan.result_schema.names, *(name for variable in plan.variables for name, _ in variable.attributes)]
    # In the text of an expression, even between backticks, Spark replaces ${...} by the value of a setting.
    return job.prepared.shape == "matches" and may_share(plan) and not any("${" in name for name in names)


def _with_events(found: DataFrame, query: plans.Plan) -> DataFrame:
    """Return the rows of the shape "matches", given matches beside the events that they share."""
    # PERF: Spark is slow to receive values: 0.6 us for the 22 values of a match of the paper's Q1. Copying received
    # values takes far less. Expressions are text, because each function call takes the driver a millisecond.
    names, n_keys = lists(query), len(query.partition_by)
    is_one_word = n_keys + n_words(query) == 1
    each = f"explode({MATCHES}) AS c0" if is_one_word else f"inline({MATCHES})"
    opened = found.selectExpr(*dict.fromkeys(names), each)
    columns = [f"c{number}" for number in range(n_keys)]
    is_ansi = found.sparkSession.conf.get("spark.sql.ansi.enabled") == "true"
    # Before the variables, a match has its start and its end.
    for number, (name, variable) in enumerate(zip(names, [None, None, *query.variables], strict=True)):
        word = f"c{n_keys + number // PLACES_PER_WORD}"
        place = f"int(shiftright({word}, {number % PLACES_PER_WORD * BITS}) & {NO_PLACE})"
        columns.append(_item(name, place, variable, is_ansi=is_ansi))
    shown = zip(columns, query.result_schema.names, strict=True)
    return opened.selectExpr(*(f"{column} AS {quoted(name)}" for column, name in shown))


def _item(name: str, place: str, variable: plans.Variable | None, *, is_ansi: bool) -> str:
    """Return the SQL that takes an item from a list. Spark must see that only optional variables can be NULL."""
    if variable is None or variable.multiplicity is plans.Multiplicity.OPTIONAL:
        return f"get({name}, {place})"
    if is_ansi:
        # PERF: saves 0.03 us per match. In ANSI mode Spark knows that an item of a list without NULLs is not NULL.
        return f"{name}[{place}]"
    nulls = ", ".join(f"NULL AS {quoted(attribute)}" for attribute, _ in variable.attributes)
    return f"coalesce(get({name}, {place}), struct({nulls}))"


def _task_options(job: Job) -> TaskOptions:
    """Return what a task must know about the query and its columns."""
    query, prepared = job.query, job.prepared
    return TaskOptions(
        query.text,
        Layout(prepared.shape, prepared.type_column, query.time_column, query.order_by),
        stream_column=STREAM if prepared.is_merged else None,
        id_columns=prepared.id_columns,
        shares_events=_shares_events(job),
        params=query.draft.parameters.to_bytes(),
    )


def _row_options(job: Job) -> dict[str, Any]:
    """Return the other options of `task.recognise`: what it must know about its rows."""
    query = job.query.plan
    is_measured = attribute_measured(query.window, query.silences) == job.prepared.order[0]
    return {
        "keys": query.partition_by,
        "required": None if is_measured else job.prepared.order[0],
        "halo_column": shards.HALO if job.plan == "shards" else None,
        "latest_column": LATEST if job.asks_for_latest else None,
        "end_columns": (shards.FROM, shards.UNTIL) if _has_ends(job) else (),
        "complete": job.complete,
    }


def _has_ends(job: Job) -> bool:
    """Whether tasks must know where their shard ends: a deadline may lie in a later shard than all its events."""
    return job.plan == "shards" and job.query.plan.silence_after is not None


def plan_job(prepared: Prepared, plan: PlanName, *, prune: bool | None = None, complete: bool = False) -> Job:
    """Return the plan for a query over DataFrames; `DataError` if the requested plan is not possible.

    With `complete`, nothing comes after the rows.
    """
    if plan not in PLANS:
        raise ValueError(f"unknown plan {plan!r}: choose one of {', '.join(PLANS)}")
    frame = prepared.frame
    chosen, reason = _choice(prepared.query.plan, plan, frame)
    for name in prepared.query.plan.partition_by:
        frame = frame.where(F.col(quoted(name)).isNotNull())
    if prepared.row_filter is not None:
        frame = frame.where(prepared.row_filter)
    n_shards = int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    if chosen == "shards" and n_shards == 1:
        chosen, reason = "single", "spark.sql.shuffle.partitions = 1 leaves one shard"
    return Job(prepared, chosen, reason, frame, n_shards, *_left_out(prepared, prune=prune), complete=complete)


def _left_out(prepared: Prepared, *, prune: bool | None) -> tuple[LeftOut, str]:
    """Return which rows are left out because no match can have them, or why none are."""
    if prune is False:
        return "none", "of prune=False"
    why_not = pruning.why_not_possible(prepared)
    if prune is None:
        why_not = why_not or pruning.why_not_cheap(prepared)
        return ("all", "") if why_not is None else ("none", why_not)
    if why_not is not None:
        raise DataError(f"prune=True is not possible: {why_not}", "leave it out")
    return "far", ""


def arrange(job: Job) -> DataFrame:
    """Return the rows distributed to their tasks, and sorted within each task."""
    events, reach = job.events, job.query.plan.reach
    if job.left_out == "all":
        events = pruning.all_or_none(job.prepared, events)
    elif job.left_out == "far":
        events = pruning.near_others(job.prepared, events)
    if job.asks_for_latest:
        events = events.crossJoin(F.broadcast(_latest(job)))
    if job.plan == "keys":
        events = events.repartition(*(job.prepared.key_column(name) for name in job.query.plan.partition_by))
    elif job.plan == "shards":
        assert reach is not None
        data_type = job.prepared.types[reach.attribute]
        events = shards.cut_into_shards(events, reach, data_type, job.n_shards, with_ends=_has_ends(job))
    else:
        events = events.repartition(1)
    by = [_binary(F.col(quoted(name)), events.schema[name].dataType) for name in job.prepared.order]
    if job.prepared.is_merged:
        sources = job.query.plan.sources
        by.append(F.array_position(F.array(*(F.lit(name) for name in sources)), F.col(STREAM)))
    by += [F.col(quoted(name)) for name in job.prepared.ties]
    by += [part for field in job.events.schema for part in _apart(F.col(quoted(field.name)), field.dataType)]
    return events.sortWithinPartitions(*by)


def _latest(job: Job) -> DataFrame:
    """Return one row with the largest time of all rows: rows that satisfy no predicate move the clock, too."""
    time = F.col(quoted(job.query.plan.silences[0].attribute))
    is_float = pa.types.is_floating(job.prepared.types[job.query.plan.silences[0].attribute])
    return job.prepared.frame.agg(F.max(F.nanvl(time, F.lit(None)) if is_float else time).alias(LATEST))


def _binary(column: Column, data_type: DataType) -> Column:
    """Return a column that Spark sorts as the engine does, whatever its collation."""
    return F.collate(column, "UTF8_BINARY") if data_type.simpleString().startswith("string collate") else column


def _apart(column: Column, data_type: DataType) -> list[Column]:
    """Return sort keys for values that Spark sorts as equal (-0.0 and 0.0, letters of a collation) or not at all."""
    if isinstance(data_type, FloatType | DoubleType):
        return [F.when(column == 0, column.cast("string"))]
    if re.search(r"\b(float|double|map|collate)\b", data_type.simpleString()):
        return [column.cast("string")]
    return []


def _choice(query: plans.Plan, plan: PlanName, events: DataFrame) -> tuple[str, str]:
    """Return the plan to run and the reason; `DataError` if the requested plan is not possible."""
    why_not = {"keys": why_not_by_key(query), "shards": why_not_by_time(query)}
    if plan in why_not and why_not[plan] is not None:
        raise DataError(f"plan='{plan}' is not possible: {why_not[plan]}", "leave the choice to plan='auto'")
    if plan != "auto":
        return plan, "you asked for it"
    if why_not["keys"] is None:
        return "keys", "partitions are independent"
    n_cores = _n_cores(events)
    if why_not["shards"] is None and n_cores >= MIN_CORES_FOR_SHARDS:
        return "shards", f"{why_not['keys']}, and {n_cores} cores share the work"
    if why_not["shards"] is None:
        return "single", f"{why_not['keys']}, and shards are for {MIN_CORES_FOR_SHARDS} cores or more"
    return "single", f"{why_not['keys']}; {why_not['shards']}"


def _n_cores(events: DataFrame) -> int:
    """Return how many tasks run at once; 1 for Spark Connect, which does not say."""
    with suppress(Exception):
        return int(events.sparkSession.sparkContext.defaultParallelism)
    return 1


def describe(job: Job) -> str:
    """Return a job in words."""
    keys = ", ".join(job.query.plan.partition_by)
    how = {
        "keys": f"rows with the same {keys} go to one task, and each task runs over its keys",
        "shards": f"{job.n_shards} tasks each run over a piece of the timeline and the window before it",
        "single": "one task runs over all rows",
    }[job.plan]
    latest = "; the largest time of all rows is looked for first" if job.asks_for_latest else ""
    ties = f"; ties by {', '.join(job.prepared.ties)}" if job.prepared.ties else ""
    return "\n".join(
        [
            f"plan: {job.plan}, because {job.reason}: {how}{latest}",
            f"order: {', '.join(job.prepared.order)}{ties}",
            f"columns read: {', '.join(name for name in job.events.columns if name != STREAM)}",
            f"row filter: {_filter_in_words(job)}",
            f"rows without a chance: {_pruning_in_words(job)}",
        ]
    )


def _pruning_in_words(job: Job) -> str:
    """Return which rows are left out because events that they need are missing."""
    if job.left_out == "none":
        return f"kept, because {job.why_not}"
    if job.left_out == "all":
        return "all are left out if an event that every match needs does not occur at all"
    return "left out if an event that every match needs is not near; this reads the events twice"


def _filter_in_words(job: Job) -> str:
    """Return which rows are left out before they reach Python, and which part of this filter the scan does."""
    if job.prepared.row_filter is None:
        return "none, every row is needed"
    text = io.StringIO()
    with redirect_stdout(text):
        job.events.explain("formatted")
    pushed = re.findall(r"(?:PushedFilters|PushedPredicates|DataFilters|Filters): \[(.*)\]", text.getvalue())
    conditions = re.findall(r"^Condition : (.*)$", text.getvalue(), re.MULTILINE)
    lines = ["rows that satisfy no predicate are left out"]
    lines += [f"  in Spark: {condition}" for condition in conditions]
    lines += [f"  in the scan: {filters or 'nothing'}" for filters in pushed[:1]] or ["  in the scan: nothing"]
    return "\n".join(lines)
