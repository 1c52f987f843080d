"""What a Spark task does with its rows: runs a session over Arrow batches, and says where an error happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ceql.backends.spark.task_session import TaskOptions, TaskSession
from ceql.backends.spark.times import in_utc
from ceql.engine.intake.moments import TIME_COMES, TIME_IS_OVER
from ceql.engine.pipeline import END_OF_ALL, Moment
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
    latest_column: str | None = None,
    end_columns: Sequence[str] = (),
    complete: bool = False,
    n_tied: TaskCounter | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the matches of a query over the rows of one task, which come in order.

    Args:
        batches: the rows.
        options: the fields of `TaskOptions`, as plain values.
        keys: the attributes in PARTITION BY.
        required: the column that orders the rows, if it must not be NULL.
        halo_column: the column that marks rows of the halo; matches that end there belong to another task.
        latest_column: the column with the largest time of all rows, for queries whose matches wait for a silence.
        end_columns: the columns with the times from which, and until which, the task's shard goes, for such queries.
        complete: whether nothing comes after the rows of all tasks.
        n_tied: a counter for events that tie, where matches depend on their order; if None, their number is logged.
    """
    session, query = TaskSession(TaskOptions.of(options)), options["query"]
    skew = _Skew(keys)
    n_batches = n_rows = 0
    times = _Times(latest_column, *end_columns, complete=complete)
    batch: pa.RecordBatch | None = None
    try:
        for batch in map(times.taken_from, map(in_utc, batches)):
            n_batches, n_rows = n_batches + 1, n_rows + len(batch)
            _check_order(batch, required)
            skew.count(batch)
            for part, is_halo in _parts(batch, halo_column):
                if is_halo:
                    session.read(part).pass_over()
                else:
                    times.begin(session)
                    yield from session.batches(part)
        times.begin(session)
        yield from times.end(session)
    except GeneratorExit:
        raise
    except Exception as error:
        raise TaskError(_where(error, query, keys, n_batches, n_rows, batch)) from error
    skew.warn()
    if n_tied is not None:
        n_tied.add(session.n_tied - times.n_tied_before)
    elif session.pipeline is not None and (note := session.pipeline.note_ties()) is not None:
        warn(note)


class _Times:
    """The times that tasks must know where matches wait for a silence, which rows carry in columns."""

    def __init__(
        self, latest: str | None, begin: str | None = None, end: str | None = None, *, complete: bool = False
    ) -> None:
        """Begin a task; the arguments are names of columns, see `recognise`."""
        self._names = {"latest": latest, "begin": begin, "end": end}
        self._columns = [name for name in self._names.values() if name is not None]
        self._values: dict[str, pa.Scalar] = {}
        self._complete = complete
        self._has_begun = False
        self.n_tied_before = 0
        """How many events before the task's shard tie."""

    def taken_from(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows without the columns of times, which are noted."""
        if not self._columns:
            return batch
        if not self._values and len(batch):
            self._values = {
                what: value
                for what, name in self._names.items()
                if name is not None and (value := batch.column(name)[0]).is_valid
            }
        return batch.drop_columns(self._columns)

    def begin(self, session: TaskSession) -> None:
        """Pass over matches whose deadline lies before the task's shard: they belong to an earlier one."""
        if self._has_begun:
            return
        self._has_begun, self.n_tied_before = True, session.n_tied
        if "begin" in self._values and session.pipeline is not None:
            session.reach(Moment(TIME_COMES, self._values["begin"].as_py())).pass_over()

    def end(self, session: TaskSession) -> Iterator[pa.RecordBatch]:
        """Yield the matches whose deadline lies in the task's shard, and not beyond the last event of all."""
        if "end" in self._values:
            yield from session.batches_at(Moment(TIME_COMES, self._values["end"].as_py()))
        elif self._complete:
            yield from session.batches_at(END_OF_ALL)
        elif "latest" in self._values:
            yield from session.batches_at(Moment(TIME_IS_OVER, self._values["latest"]))


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
    error: Exception, query: str, keys: Sequence[str], n_batches: int, n_rows: int, batch: pa.RecordBatch | None
) -> str:
    """Return a message that says what went wrong, and in which rows: those of the last batch, if there was one."""
    lines = [f"{type(error).__name__}: {error}"]
    if batch is not None:
        lines.append(f"batch {n_batches} of a task, rows {n_rows - len(batch) + 1} to {n_rows} of its rows")
    if batch is not None and keys and len(batch):
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
