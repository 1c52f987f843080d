"""CEQL on Spark: `match` over a DataFrame gives a DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame

from ceql.backends import spark_batch
from ceql.backends.spark_batch import PlanName
from ceql.engine.matches import Shape
from ceql.query import Query

__all__ = ["explain", "match", "matcher"]


def match(
    query: Query | str,
    events: DataFrame,
    *,
    type_column: str | None = "type",
    time_column: str | None = None,
    order_by: Sequence[str] = (),
    shape: Shape = "matches",
    plan: PlanName = "auto",
) -> DataFrame:
    """Return the matches of a query over a DataFrame, lazily, as a DataFrame.

    Args:
        query: the text of a query, or what `ceql.compile` made of it.
        events: the events; their order is that of the window's attribute or `time_column`, then `order_by`,
            then all other columns.
        type_column: the column with each event's type; None if that is the name of its stream.
        time_column: the column that durations in WITHIN measure.
        order_by: further columns that order the events.
        shape: "matches", one row per match; the other shapes are not supported yet.
        plan: "auto", "keys" (needs PARTITION BY) or "single".
    """
    return spark_batch.match(
        query, events, type_column=type_column, time_column=time_column, order_by=order_by, shape=shape, plan=plan
    )


def matcher(query: Query | str, **options: object) -> Callable[[DataFrame], DataFrame]:
    """Return `match` for use in a chain: `df.transform(ceql.spark.matcher(query))`."""
    return lambda events: match(query, events, **options)  # type: ignore[arg-type]


def explain(
    query: Query | str,
    events: DataFrame,
    *,
    type_column: str | None = "type",
    time_column: str | None = None,
    order_by: Sequence[str] = (),
    plan: PlanName = "auto",
) -> str:
    """Return how a query would run over a DataFrame, in words."""
    job = spark_batch.planned(
        query,
        events,
        type_column=type_column,
        time_column=time_column,
        order_by=order_by,
        shape="matches",
        plan=plan,
    )
    return spark_batch.described(job)
