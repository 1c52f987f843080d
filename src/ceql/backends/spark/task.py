"""What a Spark task does with its rows: runs a session over Arrow batches, and says where an error happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ceql.backends.spark.task_session import TaskOptions, TaskSession
from ceql.backends.spark.times import in_utc
from ceql.errors import CeqlError, DataError, warn
from ceql.visible import visible

MIN_SKEWED_ROWS = 1_000_000
"""With fewer rows, one large key does not make a task noticeably slow."""
SKEWED_SHARE = 0.9
N_SHOWN_KEYS = 3


class TaskError(CeqlError):
    """Something went wrong in a task; the message names the query, the keys and the batch."""


class TaskCounter(Protocol):
    """A number to which tasks add."""

    def add(self, term: int) -> None:
        """Add a number."""


def recognise(
    batches: Iterator[pa.RecordBatch],
    options: Mapping[str, Any],
    *,
    keys: Sequence[str] = (),
    required: str | None = None,
    halo_column: str | None = None,
    n_tied: TaskCounter | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the matches of a query over the rows of one task, which come in order.

    Args:
        batches: the rows.
        options: the fields of `TaskOptions`, as plain values.
        keys: the attributes in PARTITION BY.
        required: the column that orders the rows, if it must not be NULL.
        halo_column: the column that marks rows of the halo; matches that end there belong to another task.
        n_tied: a counter for events that tie, where matches depend on their order; if None, their number is logged.
    """
    session, query = TaskSession(TaskOptions.of(options)), options["query"]
    skew = _Skew(keys)
    n_rows = n_tied_before = 0
    for number, batch in enumerate(batches):
        try:
            batch = in_utc(batch)
            _check_order(batch, required)
            skew.count(batch)
            for part, is_halo in _parts(batch, halo_column):
                if is_halo:
                    session.read(part).pass_over()
                    n_tied_before = session.n_tied
                else:
                    yield from session.batches(part)
        except GeneratorExit:
            raise
        except Exception as error:
            raise TaskError(_where(error, query, keys, number, n_rows, batch)) from error
        n_rows += len(batch)
    skew.warn()
    if n_tied is not None:
        n_tied.add(session.n_tied - n_tied_before)
    elif session.pipeline is not None and (note := session.pipeline.note_ties()) is not None:
        warn(note)


def _check_order(batch: pa.RecordBatch, required: str | None) -> None:
    if required is not None and batch.column(required).null_count:
        raise DataError(
            f"'{required}' is NULL in some event, so this event has no place in the order",
            f'leave such events out, as with where("{required} IS NOT NULL")',
        )


def _parts(batch: pa.RecordBatch, halo_column: str | None) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Yield the rows of the halo, then those of the shard itself: rows are in the order of time."""
    if halo_column is None:
        yield batch, False
        return
    n_halo = pc.sum(batch.column(halo_column)).as_py() or 0
    rows = batch.drop_columns([halo_column])
    if n_halo:
        yield rows.slice(0, n_halo), True
    if n_halo < len(rows):
        yield rows.slice(n_halo), False


def _where(
    error: Exception, query: str, keys: Sequence[str], number: int, first_row: int, batch: pa.RecordBatch
) -> str:
    """Return a message that says what went wrong, and in which rows."""
    lines = [
        f"{type(error).__name__}: {error}",
        f"batch {number + 1} of a task, rows {first_row + 1} to {first_row + len(batch)} of its rows",
    ]
    if keys and len(batch):
        distinct = (
            pa.Table.from_batches([batch]).select(list(keys)).group_by(list(keys), use_threads=False).aggregate([])
        )
        shown = [
            ", ".join(f"{name} = {_shown(distinct[name][row])}" for name in keys)
            for row in range(min(N_SHOWN_KEYS, len(distinct)))
        ]
        more = f"; and {len(distinct) - N_SHOWN_KEYS} more" if len(distinct) > N_SHOWN_KEYS else ""
        lines.append(f"partition keys in it: {'; '.join(shown)}{more}")
    return "\n".join([*lines, "query:", query.strip()])


def _shown(value: pa.Scalar) -> str:
    """Return a value as text; Arrow's number or bytes if Python cannot hold the value, like years beyond 9999."""
    try:
        return repr(value.as_py())
    except UnicodeDecodeError:
        return repr(value.as_buffer().to_pybytes())
    except (OverflowError, ValueError):
        return f"{value.value} as {value.type}"


class _Skew:
    """Watches whether one key holds nearly all rows of a task, by looking at one row of each batch."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = keys
        self._seen: Counter[tuple[str, ...]] = Counter()
        self._n_rows = 0

    def count(self, batch: pa.RecordBatch) -> None:
        self._n_rows += len(batch)
        if self._keys and len(batch) and len(self._seen) < MIN_SKEWED_ROWS:
            self._seen[tuple(_shown(batch.column(name)[0]) for name in self._keys)] += 1

    def warn(self) -> None:
        if self._n_rows < MIN_SKEWED_ROWS or not self._seen:
            return
        key, n_seen = self._seen.most_common(1)[0]
        if n_seen >= SKEWED_SHARE * self._seen.total():
            shown = ", ".join(visible(f"{name} = {value}") for name, value in zip(self._keys, key, strict=True))
            warn(
                f"one partition key has nearly all of the {self._n_rows:,} rows of a task: {shown}; "
                "one task does the work of this key alone"
            )
