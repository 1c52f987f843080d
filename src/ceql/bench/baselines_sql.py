"""The self-join that finds sequences in plain SQL, made feasible by buckets of time.

For each event of the pattern, a sub-select keeps the rows that can be that event. Time is cut into buckets as long as
the window: the events of a match that begins in bucket b lie in b or b + 1. So each row of the later sub-selects
appears twice, for its own bucket and for the bucket before. All are joined to the first by equal buckets. Exactly one
of the two copies fits, so that no match is found twice. Order and window are conditions on the pairs.

The join computes every match (CONSUME BY NONE, no LIMIT) and returns only their number, so that no time is spent on
writing matches. The statement is the same in DuckDB and Spark.
"""

from __future__ import annotations

import ceql
from ceql.automaton.cea import Guard
from ceql.bench.steps import Step, UnsupportedError, chain, folded
from ceql.syntax import plan
from ceql.syntax.ast import Consumption, Strategy

POSITION = "pos"
"""The column that numbers the events, because rows of a table have no order."""


def counting_join(text: str) -> str:
    """Return the SQL that counts the matches of a query over a table `events`.

    >>> print(counting_join("SELECT * FROM S WHERE A AS x ; B AS y FILTER y[v > 1] WITHIN 10 [t]"))
    SELECT count(*) AS n
    FROM (SELECT pos, t AS at, CAST(floor(t / 10) AS BIGINT) AS bucket
          FROM events WHERE (type = 'A')) e1
    JOIN (SELECT pos, t AS at, CAST(floor(t / 10) AS BIGINT) - shift AS bucket
          FROM events CROSS JOIN (SELECT 0 AS shift UNION ALL SELECT 1 AS shift) shifts WHERE (type = 'B' AND v > 1)) e2
      ON e2.bucket = e1.bucket AND e2.pos > e1.pos AND e2.at <= e1.at + 10
    """
    query = ceql.compile(text)
    bound = query.plan
    if bound.strategy is not Strategy.ALL or bound.consumption is not Consumption.NONE or bound.limit is not None:
        raise UnsupportedError("a join gives every match: no strategy, no CONSUME BY and no LIMIT")
    if not isinstance(bound.window, plan.AttributeWindow):
        raise UnsupportedError("only WITHIN over an attribute")
    first, *later = chain(query.automaton)
    window, keys = bound.window, bound.partition_by
    lines = ["SELECT count(*) AS n", f"FROM {_selected(first, window, keys, is_first=True)} e1"]
    for number, step in enumerate(later, start=2):
        conditions = [
            f"e{number}.bucket = e1.bucket",
            *(f"e{number}.{key} = e1.{key}" for key in keys),
            f"e{number}.{POSITION} > e{number - 1}.{POSITION}",
            f"e{number}.at <= e1.at + {window.size}",
        ]
        lines += [
            f"JOIN {_selected(step, window, keys, is_first=False)} e{number}",
            f"  ON {' AND '.join(conditions)}",
        ]
    return "\n".join(lines)


def _selected(step: Step, window: plan.AttributeWindow, keys: tuple[str, ...], *, is_first: bool) -> str:
    time, size = window.attribute, max(1, int(window.size))
    bucket = f"CAST(floor({time} / {size}) AS BIGINT){'' if is_first else ' - shift'}"
    columns = ", ".join([POSITION, f"{time} AS at", f"{bucket} AS bucket", *keys])
    copies = "" if is_first else " CROSS JOIN (SELECT 0 AS shift UNION ALL SELECT 1 AS shift) shifts"
    return f"(SELECT {columns}\n      FROM events{copies} WHERE {' OR '.join(map(_condition, step.guards))})"


def _condition(guard: Guard) -> str:
    # Sets have no order, but the same query must give the same text.
    texts = (folded(predicate, _compared, " AND ".join) for predicate in guard)
    return f"({' AND '.join(sorted(texts, key=_types_first))})"


def _types_first(condition: str) -> tuple[bool, str]:
    return not condition.startswith("type "), condition


def _compared(column: str, operator: str, constant: object) -> str:
    shown = "'" + constant.replace("'", "''") + "'" if isinstance(constant, str) else str(constant)
    return f"{column} {'<>' if operator == '!=' else operator} {shown}"
