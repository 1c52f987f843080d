"""Leaves out rows because an event that every match needs does not occur at all, or not near them.

The scan finds out whether a needed event occurs at all: it stops at the first such row of a file, and skips parts that
cannot have one. If an event does not occur, one side of a join is empty, and Spark does not read the rows.

To find where needed events occur, the timeline of each key is cut into pieces as long as the window and the silences
around a match, so that a match lies in at most two neighbouring pieces. Pieces are numbered, and the numbers are folded
into a fixed number of slots, which bounds the memory. One pass over the rows notes which needed events occur in each
slot. If one of them occurs neither in a row's slot nor in its neighbours, no match has the row. Slots shared by pieces
only let more rows through.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's own documentation writes it

from ceql.backends.spark.query import OWN, Prepared
from ceql.backends.spark.shards import whole_units

SLOT, FLAGS = f"{OWN}slot", f"{OWN}flags"

N_SLOTS = 1 << 14
"""Slots into which pieces are folded. With more slots, fewer useless rows stay, but it takes longer:
over ten million events, 0.85 s with this many, 1.09 s with four times as many."""

MAX_ASKED = 8
"""Needed events that are looked for with a scan, the last ones if there are more: each takes a task for every file."""

MAX_NEEDED = 62
"""Needed events that are looked for near rows: each has one bit of a long."""

MIN_BYTES = 32 << 20
"""Size from which it pays to look first. Below it, the time that Spark takes for another stage counts most."""

PASSED_ON = {"Project", "Filter", "SubqueryAlias", "View", "Union"}
"""Steps, as Spark names them, that are cheap to do twice and give the same rows each time."""


def why_not_possible(prepared: Prepared) -> str | None:
    """Return why no row can be left out because other events are missing; None if some can."""
    return None if len(prepared.needed) > 1 else "no two different events are known to be in every match"


def why_not_cheap(prepared: Prepared) -> str | None:
    """Return why it may not pay to look first whether events occur; None if it should."""
    try:
        executed = prepared.frame._jdf.queryExecution().withCachedData()
        catalyst = prepared.frame.sparkSession._jvm.org.apache.spark.sql.catalyst  # type: ignore[union-attr]
        patterns = catalyst.trees.TreePattern
        is_plain = executed.deterministic() and not any(
            executed.containsPattern(pattern) for pattern in (patterns.PYTHON_UDF(), patterns.SCALA_UDF())
        )
        sizes = _sizes(executed)
    except Exception:  # Spark Connect shows no plan, and a protected plan may raise anything.
        return "Spark does not say where the rows come from"
    if not is_plain or sizes is None:
        return "the rows do not come straight from Parquet, ORC or a cache, and reading them twice may take long"
    return None if sum(sizes) >= MIN_BYTES else f"{sum(sizes):,} bytes of events are few"


def _sizes(step: Any) -> list[int] | None:
    """Return the sizes of all inputs of a plan; None if reading again is slow, or if the plan does more than read."""
    name = step.getClass().getSimpleName()
    if name == "InMemoryRelation" or (name == "LogicalRelation" and _is_columnar(step.relation())):
        return [int(str(step.stats().sizeInBytes()))]
    if name not in PASSED_ON:
        return None
    children = step.children()
    parts = [_sizes(children.apply(number)) for number in range(children.size())]
    return None if None in parts else [size for part in parts if part is not None for size in part]


def _is_columnar(relation: Any) -> bool:
    """Whether a relation reads files that allow reading single columns."""
    is_of_files = relation.getClass().getSimpleName() == "HadoopFsRelation"
    return is_of_files and any(name in relation.fileFormat().getClass().getSimpleName() for name in ("Parquet", "Orc"))


def all_or_none(prepared: Prepared, events: DataFrame) -> DataFrame:
    """Return the rows, or none of them if an event that every match needs does not occur."""
    asked = prepared.needed[-MAX_ASKED:]
    found = reduce(DataFrame.unionAll, [prepared.frame.where(condition).limit(1) for condition in asked])
    complete = found.agg(F.count("*").alias(FLAGS)).where(F.col(FLAGS) == len(asked))
    return events.join(F.broadcast(complete), F.lit(True), "left_semi")  # noqa: FBT003


def near_others(prepared: Prepared, events: DataFrame) -> DataFrame:
    """Return only the rows that have all needed events near them."""
    needed = prepared.needed[-MAX_NEEDED:]
    flags = [
        F.when(condition, F.lit(1 << bit).cast("long")).otherwise(F.lit(0)) for bit, condition in enumerate(needed)
    ]
    slot, has_neighbours = _slot(prepared)
    seen = events.groupBy(slot.alias(SLOT)).agg(F.bit_or(reduce(Column.bitwiseOR, flags)).alias(FLAGS))
    if has_neighbours:
        near = F.array(*(F.pmod(F.col(SLOT) + F.lit(step), F.lit(N_SLOTS)) for step in (-1, 0, 1)))
        # In one task, which saves another shuffle.
        spread = seen.coalesce(1).select(F.explode(near).alias(SLOT), FLAGS)
        seen = spread.groupBy(SLOT).agg(F.bit_or(FLAGS).alias(FLAGS))
    complete = seen.where(F.col(FLAGS) == F.lit((1 << len(needed)) - 1))
    return events.join(F.broadcast(complete), slot == F.col(SLOT), "left_semi")


def _slot(prepared: Prepared) -> tuple[Column, bool]:
    """Return the slot of a row, and whether a match may reach into the next one."""
    query = prepared.query.plan
    keys = [prepared.key_column(name) for name in query.partition_by]
    of_key = F.pmod(F.xxhash64(*keys), F.lit(N_SLOTS)) if keys else F.lit(0)
    if query.reach is None or not _is_whole(prepared.types[query.reach.attribute]):
        return of_key.cast("int"), False
    units, length = whole_units(query.reach, prepared.types[query.reach.attribute])
    piece = F.call_function("div", units, F.lit(max(1, length)).cast("long"))
    return F.pmod(of_key + F.pmod(piece, F.lit(N_SLOTS)), F.lit(N_SLOTS)).cast("int"), True


def _is_whole(data_type: pa.DataType) -> bool:
    return not pa.types.is_floating(data_type) and not pa.types.is_decimal(data_type)
