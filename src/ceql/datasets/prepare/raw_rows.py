"""Lines of raw files as rows of typed columns, each with the first thing that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Literal

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's own documentation writes it

from ceql.backends.files import FileError
from ceql.backends.spark.failures import SPARK_ERRORS, explained
from ceql.errors import DataError

LINE, PROBLEM = "_line", "_problem"
PLACE = ("_file", "_block", "_row")
"""Columns in whose order rows stand in the files.

Spark reads the blocks of files in no certain order, but the rows of a block one after the other.
"""

_FIELDS, _REGULAR = "_fields", "_is_regular"
_NUMERIC = ("integer", "number")
_FORMS = {
    "integer": r"^[+-]?\d+$",
    "number": r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$",
    "time": r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}$",
}

Kind = Literal["text", "integer", "number", "time"]


@dataclass(frozen=True)
class RawColumn:
    """A column of a raw file. Times are read as seconds since 1970, as if all clocks showed UTC."""

    name: str
    kind: Kind = "text"
    may_be_negative: bool = False


def raw_lines(spark: SparkSession, path: str, columns: Sequence[RawColumn]) -> DataFrame:
    """Return the lines of a file, folder or glob pattern with their places, or raise `FileError`.

    Lines that hold the names of the columns are left out: published files have none, samples of them often do.
    """
    try:
        lines = spark.read.text(path)
    except SPARK_ERRORS as error:
        known = explained(error)
        raise FileError(f"cannot read {path}: {known.message}") if isinstance(known, DataError) else known from error
    header = ",".join(column.name for column in columns)
    file, block, row = PLACE
    placed = lines.select(
        F.col("value").alias(LINE),
        F.col("_metadata.file_path").alias(file),
        F.col("_metadata.file_block_start").alias(block),
        F.monotonically_increasing_id().alias(row),
    )
    return placed.filter(F.lower(F.trim(LINE)) != header)


def checked_rows(lines: DataFrame, columns: Sequence[RawColumn], checks: Mapping[str, Column]) -> DataFrame:
    """Return lines with their columns, and in `PROBLEM` the first thing that is wrong, as reason and detail, or NULL.

    Args:
        lines: what `raw_lines` gives.
        columns: those that each line must have, no fewer and no more.
        checks: what else makes a row wrong, by reason: text over the columns that is NULL or empty if all is well.
    """
    # PERF: nearly all lines are regular, which one pattern for the whole line tells; patterns for each column are
    # tried on the others alone.
    split = lines.select(
        "*", F.split(LINE, ",", -1).alias(_FIELDS), F.col(LINE).rlike(_regular(columns)).alias(_REGULAR)
    )
    texts = {column.name: F.trim(F.get(_FIELDS, F.lit(place))) for place, column in enumerate(columns)}
    typed = split.select("*", *(_typed(column, texts[column.name]).alias(column.name) for column in columns))
    is_fine = reduce(and_, (F.isnotnull(column.name) for column in columns), F.col(_REGULAR))
    problem = F.coalesce(F.when(~is_fine, _problem_of_form(columns, texts)), first_problem(checks))
    return typed.select(LINE, *PLACE, *texts, problem.alias(PROBLEM))


def _problem_of_form(columns: Sequence[RawColumn], texts: Mapping[str, Column]) -> Column:
    n_fields = F.size(_FIELDS)
    n_wrong = F.when(n_fields != len(columns), F.format_string(f"%d instead of {len(columns)}", n_fields))
    return first_problem(
        {
            "wrong number of columns": n_wrong,
            "missing value": those_of({name: text == "" for name, text in texts.items()}),
            "unparsable number": those_of(
                {column.name: F.isnull(column.name) for column in columns if column.kind in _NUMERIC}
            ),
            "unparsable time": those_of(
                {column.name: F.isnull(column.name) for column in columns if column.kind == "time"}
            ),
            "negative value": those_of(
                {column.name: F.col(column.name) < 0 for column in columns if _is_measure(column)}
            ),
        }
    )


def without_repetitions(rows: DataFrame, key: Sequence[str], reason: str) -> DataFrame:
    """Return rows in which all but the first in the files with the same key are wrong, for a reason.

    Rows that are wrong already stand alone, else all of them would be the work of one task.
    """
    alone = F.when(F.isnotnull(PROBLEM), F.col(PLACE[2]))
    same = Window.partitionBy(*key, alone).orderBy(*PLACE)
    detail = F.concat_ws(", ", *(F.col(name).cast("string") for name in key))
    is_repeated = F.row_number().over(same) > 1
    found = rows.withColumn("_repeated", is_repeated)
    return found.withColumn(PROBLEM, problem_or(reason, F.when(F.col("_repeated"), detail))).drop("_repeated")


def those_of(conditions: Mapping[str, Column]) -> Column:
    """Return text with the names of those conditions that hold."""
    return F.concat_ws(", ", *(F.when(condition, F.lit(name)) for name, condition in conditions.items()))


def first_problem(checks: Mapping[str, Column]) -> Column:
    """Return reason and detail of the first check whose text is not empty, or NULL."""
    return F.coalesce(*(_problem(reason, detail) for reason, detail in checks.items()))


def problem_or(reason: str, detail: Column) -> Column:
    """Return the problem that a row has, or else one more that it may have."""
    return F.coalesce(F.col(PROBLEM), _problem(reason, detail))


def _problem(reason: str, detail: Column) -> Column:
    return F.when(detail != "", F.struct(F.lit(reason).alias("reason"), detail.alias("detail")))


def _is_measure(column: RawColumn) -> bool:
    return column.kind in _NUMERIC and not column.may_be_negative


def _regular(columns: Sequence[RawColumn]) -> str:
    """Return a pattern for lines whose columns all look right; others may be right all the same.

    Its quantifiers never give back what they took, so that a line is looked at once.
    """
    patterns = {
        "text": r" *+[^, ][^,]*+",
        "integer": r" *+\d++ *+",
        "number": r" *+(?:\d++(?:\.\d*+)?+|\.\d++) *+",
        "time": r" *+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d *+",
    }
    signed = {"integer": r" *+-?+\d++ *+", "number": r" *+-?+(?:\d++(?:\.\d*+)?+|\.\d++) *+"}
    return f"^{','.join((signed if column.may_be_negative else patterns)[column.kind] for column in columns)}$"


def _typed(column: RawColumn, text: Column) -> Column:
    """Return a value, NULL if the text is none; Spark's own casts also take '1d', 'NaN' and dates of many forms."""
    if column.kind == "text":
        return text
    has_form = F.col(_REGULAR) | text.rlike(_FORMS[column.kind])
    if column.kind == "integer":
        return F.when(has_form, text.try_cast("bigint"))
    if column.kind == "number":
        number = text.try_cast("double")
        return F.when(has_form & (F.abs(number) < float("inf")), number)
    # With a zone in the text the session's zone does not matter, nor does its summer time.
    return F.when(has_form, F.unix_seconds(F.concat(text, F.lit("Z")).try_cast("timestamp")))
