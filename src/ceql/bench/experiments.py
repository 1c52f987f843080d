"""The paper's experiments: which queries, over how many events, in which systems, under which conditions.

All cases are listed first (`plan`), then measured one by one (`Bench.row`), so that a bar can show the progress. A
baseline's time counts only if it finds as many matches as the engine, over the same events and under the same
conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from ceql.bench import events as data
from ceql.bench import measure, memory
from ceql.bench.queries import LENGTHS, STRATEGIES, Dataset, PaperQuery, sequence, stock_query
from ceql.bench.systems import MODULES


class Experiment(StrEnum):
    """An experiment of the paper, or the experiment on Spark."""

    sequences = "sequences"
    no_output = "no-output"
    windows = "windows"
    operators = "operators"
    strategies = "strategies"
    memory = "memory"
    spark = "spark"


ENGINE, EVERY, NAIVE, DUCKDB, SPARK_SQL = (
    "ceql",
    "ceql, every match",
    "naive automaton",
    "DuckDB join",
    "Spark SQL join",
)
ON_SPARK, FLOOR = "ceql on Spark", "Spark, read and filter"

CONSUMING = "CONSUME BY ANY LIMIT 1000"
EXHAUSTIVE = "every match"
_CONDITIONS = {EVERY: EXHAUSTIVE, DUCKDB: EXHAUSTIVE, SPARK_SQL: EXHAUSTIVE}

LARGEST_WINDOW_OF_STRATEGIES = 4
MASTERS = ("local[1]", "local[2]", "local-cluster[2,1,1024]")

WRONG, UNVERIFIED, LEFT_OUT = "wrong", "unverified", "left out"


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    engine: dict[Dataset, int]
    baselines: dict[Dataset, int]
    memory: int
    spark: int
    n_runs: int
    time_limit: float
    spark_time_limit: float = 60.0
    lengths: tuple[int, ...] = LENGTHS
    windows: tuple[int, ...] = (1, 2, 3, 4, 16, 64)
    memory_of: tuple[Experiment, ...] = (
        Experiment.sequences,
        Experiment.no_output,
        Experiment.windows,
        Experiment.operators,
        Experiment.strategies,
    )
    memory_bytes: int = 4 << 30
    left_out: dict[str, str] = field(default_factory=dict)
    """The systems that are not run, and why."""

    def cut(self, n_events: int) -> Scale:
        """Return the same scale with at most `n_events` events anywhere."""
        return replace(
            self,
            engine=dict.fromkeys(self.engine, n_events),
            baselines={dataset: min(n_events, n) for dataset, n in self.baselines.items()},
            memory=min(n_events, self.memory),
            spark=n_events,
        )


FULL = Scale(
    engine={Dataset.stocks: 10_000_000, Dataset.smart_homes: 5_000_000, Dataset.taxis: 1_000_000},
    baselines={Dataset.stocks: 100_000, Dataset.smart_homes: 100_000, Dataset.taxis: 300_000},
    memory=500_000,
    spark=5_000_000,
    n_runs=3,
    time_limit=10.0,
)
QUICK = Scale(
    engine=dict.fromkeys(Dataset, 5_000),
    baselines=dict.fromkeys(Dataset, 5_000),
    memory=20_000,
    spark=20_000,
    n_runs=1,
    time_limit=1.0,
    lengths=(3, 6),
    windows=(1, 4, 16),
    memory_of=(Experiment.sequences,),
    left_out={SPARK_SQL: "a quick run starts no Spark"},
)


@dataclass(frozen=True)
class Case:
    """One point of a figure: a query in a system."""

    experiment: Experiment
    query: PaperQuery
    system: str
    n_events: int
    conditions: str
    length: int | None = None
    window: int = 1
    strategy: str = "ALL"
    master: str = ""
    of: str = ""
    """For memory: the experiment whose query this is."""

    @property
    def dataset(self) -> Dataset:
        """The data set that the query reads."""
        return self.query.dataset

    @property
    def text(self) -> str:
        """The text of the query under its conditions."""
        return self.query.consuming if self.conditions == CONSUMING else self.query.exhaustive

    @property
    def shown(self) -> str:
        """The case in a few words."""
        strategy = "" if self.strategy == "ALL" else f" {self.strategy}"
        return " ".join(filter(None, [self.experiment.value, f"{self.query.name}{strategy}", self.system, self.master]))


@dataclass(frozen=True)
class Row:
    """The result of a case; numbers are None if there is no valid result."""

    experiment: str
    of: str
    dataset: str
    source: str
    query: str
    length: int | None
    window: int
    strategy: str
    system: str
    master: str
    conditions: str
    events: int
    runs: int
    status: str
    seconds: float | None = None
    seconds_min: float | None = None
    seconds_max: float | None = None
    events_per_second: float | None = None
    matches: int | None = None
    matches_expected: int | None = None
    memory_average_mb: float | None = None
    memory_peak_mb: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Choice:
    """The cases that the user wants; None means all."""

    datasets: tuple[Dataset, ...] | None = None
    experiments: tuple[Experiment, ...] | None = None
    queries: tuple[str, ...] | None = None

    def has(self, case: Case) -> bool:
        """Return whether a case is wanted."""
        name = case.query.name.lower()
        return (
            (self.datasets is None or case.dataset in self.datasets)
            and (self.experiments is None or case.experiment in self.experiments)
            and (self.queries is None or name in self.queries or name.partition("x")[0] in self.queries)
        )


def plan(scale: Scale, choice: Choice) -> list[Case]:
    """Return the cases to be measured, one data set after the other."""
    cases = [case for dataset in Dataset for make in _CASES for case in make(dataset, scale)]
    return [case for case in cases if choice.has(case)]


def query_names() -> set[str]:
    """Return the names of all queries, in lower case."""
    return {case.query.name.lower().partition("x")[0] for case in plan(FULL, Choice())}


def _timed(
    experiment: Experiment, query: PaperQuery, systems: Iterable[str], scale: Scale, **options: Any
) -> Iterable[Case]:
    for system in systems:
        n_events = (scale.engine if system == ENGINE else scale.baselines)[query.dataset]
        yield Case(experiment, query, system, n_events, _CONDITIONS.get(system, CONSUMING), **options)


def _sequences(dataset: Dataset, scale: Scale) -> Iterable[Case]:
    for n in scale.lengths:
        systems = (ENGINE, EVERY, NAIVE, DUCKDB, SPARK_SQL)
        yield from _timed(Experiment.sequences, sequence(dataset, n), systems, scale, length=n)


def _no_output(dataset: Dataset, scale: Scale) -> Iterable[Case]:
    for n in scale.lengths:
        query = sequence(dataset, n, has_output=False)
        yield from _timed(Experiment.no_output, query, (ENGINE, NAIVE, DUCKDB, SPARK_SQL), scale, length=n)


def _windows(dataset: Dataset, scale: Scale) -> Iterable[Case]:
    for factor in scale.windows:
        query = sequence(dataset, 3, has_output=False).with_window(factor)
        systems = (ENGINE, NAIVE, DUCKDB, SPARK_SQL)
        yield from _timed(Experiment.windows, query, systems, scale, length=3, window=factor)


def _operators(dataset: Dataset, scale: Scale) -> Iterable[Case]:
    if dataset is Dataset.stocks:
        for number in range(1, 8):
            systems = (ENGINE, EVERY, NAIVE, DUCKDB, SPARK_SQL)
            yield from _timed(Experiment.operators, stock_query(number), systems, scale)


def _strategies(dataset: Dataset, scale: Scale) -> Iterable[Case]:
    windows = [factor for factor in scale.windows if factor <= LARGEST_WINDOW_OF_STRATEGIES]
    queries = [(factor, sequence(dataset, 3, has_output=False)) for factor in windows]
    for factor, query in [*queries, (1, sequence(dataset, 3))]:
        for strategy in STRATEGIES:
            chosen = query.with_window(factor).with_strategy(strategy)
            options: dict[str, Any] = {"length": 3, "window": factor, "strategy": strategy}
            yield Case(Experiment.strategies, chosen, ENGINE, scale.engine[dataset], CONSUMING, **options)


def _memory(dataset: Dataset, scale: Scale) -> Iterable[Case]:
    """Memory of the same queries; the engine gets more events, because it needs less time for them."""
    makers = (_sequences, _no_output, _windows, _operators, _strategies)
    for case in [case for make in makers for case in make(dataset, scale) if case.experiment in scale.memory_of]:
        is_repeated = case.experiment is Experiment.windows and case.window == 1
        if case.system in memory.WATCHED and not is_repeated:
            n_events = scale.memory if case.system == ENGINE else case.n_events
            yield replace(case, experiment=Experiment.memory, of=case.experiment.value, n_events=n_events)


def _spark(dataset: Dataset, scale: Scale) -> Iterable[Case]:
    """The same queries, without CONSUME BY ANY if it has no effect or does not allow dividing the keys."""
    lengths = scale.lengths if dataset is Dataset.stocks else (scale.lengths[0], scale.lengths[-1])
    queries = [(sequence(dataset, n), CONSUMING) for n in lengths]
    queries += [(sequence(dataset, n, has_output=False), EXHAUSTIVE) for n in lengths]
    if dataset is Dataset.stocks:
        others = [stock_query(number) for number in range(1, 8)]
        queries += [(query, EXHAUSTIVE if "PARTITION BY" in query.text else CONSUMING) for query in others]
    for master in MASTERS:
        for system in (ON_SPARK, FLOOR):
            for query, conditions in queries:
                yield Case(Experiment.spark, query, system, scale.spark, conditions, master=master)


_CASES: tuple[Callable[[Dataset, Scale], Iterable[Case]], ...] = (
    _sequences,
    _no_output,
    _windows,
    _operators,
    _strategies,
    _memory,
    _spark,
)


class Bench:
    """Measures cases. It keeps the process of a system while cases use the same one."""

    def __init__(self, scale: Scale, folder: Path, real_data: Path | None = None) -> None:
        self.scale = scale
        self.folder = folder
        self.real_data = real_data
        self.workers: dict[tuple[str, Path, str], measure.Worker] = {}
        self.counts: dict[tuple[str, Path], int | None] = {}
        self.dataset: Dataset | None = None

    def row(self, case: Case) -> Row:
        """Return what was measured for a case."""
        reason = self._reason_to_leave_out(case)
        if reason:
            return self._row(case, 0, status=LEFT_OUT, note=reason)
        if case.dataset is not self.dataset:
            self.close()
            self.dataset = case.dataset
        path, n_events = self._file(case.dataset, case.n_events)
        measured = self._with_memory if case.experiment is Experiment.memory else self._with_times
        return measured(replace(case, n_events=n_events), path)

    def close(self) -> None:
        """End all processes."""
        for worker in self.workers.values():
            worker.close()
        self.workers.clear()

    def _reason_to_leave_out(self, case: Case) -> str:
        module = MODULES.get(case.system)
        if module and find_spec(module) is None:
            return f"{module} is not installed"
        if case.experiment is Experiment.memory and not memory.is_measurable():
            return "this system does not tell the memory of a process"
        return self.scale.left_out.get(case.system, "")

    def _file(self, dataset: Dataset, n_events: int) -> tuple[Path, int]:
        """Return the Arrow file with a data set's first events, and how many there are."""
        path = self.folder / f"{dataset.value}-{n_events}.arrow"
        if not path.exists():
            table = (
                data.real(dataset, self.real_data, n_events) if self.real_data else data.generated(dataset, n_events)
            )
            data.write(table, path)
        with pa.memory_map(str(path)) as file:
            reader = pa.ipc.open_file(file)
            return path, sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))

    def _worker(self, system: str, path: Path, master: str = "") -> measure.Worker:
        key = (system, path, master)
        if master and key not in self.workers:
            # Two Spark sessions at once would share the cores.
            self.close()
        if key not in self.workers:
            settings = {"memory_bytes": self.scale.memory_bytes, "master": master}
            self.workers[key] = measure.Worker(system, path, settings)
        return self.workers[key]

    def _with_times(self, case: Case, path: Path) -> Row:
        # Before the clock starts, so that the reference does not run beside the measured system.
        expected = None if case.system in (ENGINE, EVERY, FLOOR) else self._expected(case, path)
        worker = self._worker(case.system, path, case.master)
        limit = self._limit(case)
        outcomes = [worker.run(case.text, limit)]
        if outcomes[0].status == measure.DONE and outcomes[0].seconds <= limit / 3:
            outcomes += [worker.run(case.text, limit) for _ in range(self.scale.n_runs - 1)]
        return self._judged(case, outcomes, expected)

    def _limit(self, case: Case) -> float:
        """Return the time limit of a case; Spark's jobs get more time, because they read files."""
        return self.scale.spark_time_limit if case.experiment is Experiment.spark else self.scale.time_limit

    def _judged(self, case: Case, outcomes: list[measure.Outcome], expected: int | None) -> Row:
        bad = next((outcome for outcome in outcomes if outcome.status != measure.DONE), None)
        if bad is not None:
            return self._row(case, len(outcomes), status=bad.status, note=bad.note or self._limits(bad.status, case))
        counts = {outcome.n_matches for outcome in outcomes}
        n_matches = outcomes[0].n_matches
        if len(counts) > 1 or (expected is not None and n_matches != expected):
            return self._row(case, len(outcomes), status=WRONG, matches=n_matches, matches_expected=expected)
        is_checked = expected is not None or case.system in (ENGINE, EVERY, FLOOR)
        if not is_checked:
            return self._row(case, len(outcomes), status=UNVERIFIED, matches=n_matches, note="the engine was too slow")
        seconds = [outcome.seconds for outcome in outcomes]
        mean = sum(seconds) / len(seconds)
        return self._row(
            case,
            len(outcomes),
            status=measure.DONE,
            seconds=mean,
            seconds_min=min(seconds),
            seconds_max=max(seconds),
            events_per_second=case.n_events / mean,
            matches=None if case.system == FLOOR else n_matches,
            matches_expected=expected,
        )

    def _limits(self, status: str, case: Case) -> str:
        if status == measure.TIMED_OUT:
            return f"> {self._limit(case):g} s"
        return f"> {self.scale.memory_bytes / 2**30:g} GiB" if status == measure.OUT_OF_MEMORY else ""

    def _expected(self, case: Case, path: Path) -> int | None:
        """Return the engine's count over the same events and under the same conditions, None if it takes too long."""
        key = (case.text, path)
        if key not in self.counts:
            outcome = self._worker(EVERY, path).run(case.text, self.scale.time_limit)
            self.counts[key] = outcome.n_matches if outcome.status == measure.DONE else None
        return self.counts[key]

    def _with_memory(self, case: Case, path: Path) -> Row:
        scale = self.scale
        found = memory.measured(
            case.system, path, case.text, limit=scale.time_limit + measure.GRACE, n_bytes=scale.memory_bytes
        )
        if isinstance(found, measure.Outcome):
            return self._row(case, 1, status=found.status, note=found.note or self._limits(found.status, case))
        return self._row(
            case,
            1,
            status=measure.DONE,
            memory_average_mb=found.average / 2**20,
            memory_peak_mb=found.peak / 2**20,
        )

    def _row(self, case: Case, n_runs: int, **values: Any) -> Row:
        return Row(
            experiment=case.experiment.value,
            of=case.of,
            dataset=case.dataset.value,
            source="real" if self.real_data else "generated",
            query=case.query.name,
            length=case.length,
            window=case.window,
            strategy=case.strategy,
            system=case.system,
            master=case.master,
            conditions=case.conditions,
            events=case.n_events,
            runs=n_runs,
            **values,
        )
