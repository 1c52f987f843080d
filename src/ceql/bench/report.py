"""The results of a run: all rows as CSV, and a report in Markdown with the figures."""

from __future__ import annotations

import csv
import platform
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ceql.bench.experiments import CONSUMING, EVERY, FLOOR, ON_SPARK, WRONG, Experiment, Row
from ceql.bench.queries import STRATEGIES
from ceql.errors import DataError

BEGIN, END = "<!-- paper:begin -->", "<!-- paper:end -->"
"""The markers in a document between which the tables of a run stand."""

FIGURES = {
    Experiment.sequences: "paper-sequences",
    Experiment.no_output: "paper-no-output",
    Experiment.windows: "paper-windows",
    Experiment.operators: "paper-operators",
    Experiment.strategies: "paper-strategies",
    Experiment.spark: "paper-spark",
}
"""Each experiment's figure; memory is shown below the throughput of the same queries."""

SUFFIX = "-paper.csv"
PACKAGES = ("numpy", "numba", "pyarrow", "duckdb", "pyspark")


@dataclass(frozen=True)
class Run:
    """The rows of a run, and the conditions under which they were measured."""

    name: str
    conditions: str
    rows: tuple[Row, ...]

    def of(self, experiment: Experiment) -> list[Row]:
        """Return the rows of an experiment."""
        return [row for row in self.rows if row.experiment == experiment.value]


def conditions(scale_text: str) -> str:
    """Return one line with everything that measurements depend on."""
    versions = ", ".join(f"{name} {found}" for name in PACKAGES if (found := _version(name)))
    return f"{scale_text}; {platform.machine()}, Python {platform.python_version()}, {versions}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@dataclass(frozen=True)
class Version:
    """The code that is measured. It is read when a run begins, because files may have changed at its end."""

    commit: str
    is_changed: bool

    def __str__(self) -> str:
        return f"commit {self.commit}{' with uncommitted changes' if self.is_changed else ''}"


def code_version() -> Version:
    """Return the commit of the working directory, and whether the engine's files differ from it."""
    return Version(_git("rev-parse", "--short", "HEAD") or "unknown", bool(_git("status", "--porcelain", "src")))


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def save(rows: Sequence[Row], code: Version, conditions: str, folder: Path) -> Path:
    """Write the rows to a CSV file named after the day and the commit, and return its path."""
    path = folder / f"{datetime.now(UTC):%Y-%m-%d}-{code.commit}{SUFFIX}"
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write(f"# {code}; {conditions}\n")
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        writer.writeheader()
        writer.writerows(_rounded(asdict(row)) for row in rows)
    return path


def _rounded(values: dict[str, object]) -> dict[str, object]:
    return {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in values.items()}


def load(path: Path) -> Run:
    """Return the run in a CSV file, or the last run in a folder."""
    if path.is_dir():
        found = sorted(path.glob(f"*{SUFFIX}"), key=lambda file: file.stat().st_mtime)
        if not found:
            raise DataError(f"{path} has no file that ends in {SUFFIX}", "run ceql bench paper --out first")
        path = found[-1]
    with path.open(newline="", encoding="utf-8") as file:
        first = file.readline()
        try:
            rows = tuple(_row(values) for values in csv.DictReader(file))
        except (TypeError, ValueError, KeyError) as error:
            raise DataError(f"{path} is no result of ceql bench paper") from error
    return Run(path.name, first.lstrip("# ").strip(), rows)


_NUMBERS = {"int": int, "int | None": int, "float | None": float}


def _row(values: dict[str, str]) -> Row:
    parsed: dict[str, object] = {}
    for field in fields(Row):
        text = values[field.name]
        kind = str(field.type)
        parsed[field.name] = None if "None" in kind and not text else _NUMBERS.get(kind, str)(text)
    return Row(**parsed)  # type: ignore[arg-type]


def markdown(run: Run, figures: str) -> str:
    """Return the tables of a run with its figures, which lie in a folder given relative to the text."""
    parts = [f"From `{run.name}`: {run.conditions}.", *_wrong(run), *_noise(run)]
    for experiment, title in _TITLES.items():
        rows = run.of(experiment)
        if not rows:
            continue
        parts.append(f"### {title}")
        if experiment in FIGURES:
            parts.append(f"![{title}]({figures}/{FIGURES[experiment]}.svg)")
        parts += _TABLES[experiment](rows)
    return "\n\n".join(parts) + "\n"


_TITLES = {
    Experiment.sequences: "Sequences with output",
    Experiment.no_output: "Sequences without output",
    Experiment.windows: "Larger windows",
    Experiment.operators: "Other operators",
    Experiment.strategies: "Selection strategies",
    Experiment.memory: "Memory",
    Experiment.spark: "Spark",
}


def _noise(run: Run) -> list[str]:
    """Return how much the same measurement differs between the experiments of a run."""
    speeds: dict[str, list[float]] = {}
    for row in run.rows:
        is_plain = (row.system, row.window, row.strategy) == ("ceql", 1, "ALL") and row.length == 3
        if is_plain and row.query.endswith("'") and row.events_per_second is not None:
            speeds.setdefault(row.query, []).append(row.events_per_second)
    repeated = {query: found for query, found in speeds.items() if len(found) > 1}
    if not repeated:
        return []
    told = "; ".join(f"{query} {_short(min(found))} to {_short(max(found))}" for query, found in repeated.items())
    return [
        f"Several experiments measure the same query, under the same conditions: {told} events per second. "
        "Differences of that size between other figures mean nothing."
    ]


def _wrong(run: Run) -> list[str]:
    """Return a warning for each wrong count: the system then has no time."""
    return [
        f"**Wrong:** {row.system} found {row.matches} matches of {row.query} in {row.events} events, "
        f"not {row.matches_expected}; it is not timed."
        for row in run.rows
        if row.status == WRONG
    ]


def _throughputs(rows: list[Row]) -> list[str]:
    systems = list(dict.fromkeys(row.system for row in rows))
    tables = []
    for dataset in dict.fromkeys(row.dataset for row in rows):
        own = [row for row in rows if row.dataset == dataset]
        cells = {(row.query, row.system): row for row in own}
        lines = [
            [query, *(_speed(cells.get((query, system))) for system in systems), _matches(own, query)]
            for query in dict.fromkeys(row.query for row in own)
        ]
        tables.append(f"{_named(dataset)}, events per second ({_sizes(own)}):")
        tables.append(_table(["query", *systems, "matches"], lines))
    return tables + _left_out(rows)


def _named(dataset: str) -> str:
    return {"stocks": "Stocks", "smart-homes": "Smart homes", "taxis": "Taxis"}[dataset]


def _sizes(rows: list[Row]) -> str:
    sizes: dict[int, list[str]] = {}
    for row in rows:
        if row.runs and row.system not in sizes.setdefault(row.events, []):
            sizes[row.events].append(row.system)
    return "; ".join(f"{', '.join(systems)}: {n:,} {rows[0].source} events" for n, systems in sizes.items() if systems)


def _matches(rows: list[Row], query: str) -> str:
    """Return the engine's number of matches, and the number of all matches in the events of the joins."""
    found = [row for row in rows if row.query == query and row.status == "ok" and row.matches is not None]
    engine = [f"{row.matches:,}" for row in found if row.system == "ceql"]
    every = [f"{row.matches:,}" for row in found if row.system == EVERY]
    return " / ".join(engine + every)


def _speed(row: Row | None) -> str:
    if row is None:
        return ""
    if row.events_per_second is None:
        return row.note if row.note.startswith(">") else row.status
    # A single run is marked, because it is not an average of three.
    return f"{_short(row.events_per_second)}{'*' if row.runs == 1 else ''}"


def _short(value: float) -> str:
    """Return a number with two or three significant digits.

    >>> [_short(value) for value in (21_700_000, 1_234_567, 45_678, 950)]
    ['21.7 M', '1.23 M', '45.7 k', '950']
    """
    for factor, unit in ((1e6, " M"), (1e3, " k")):
        if value >= factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.3g}"


def _left_out(rows: Iterable[Row]) -> list[str]:
    reasons = dict.fromkeys((row.system, row.note) for row in rows if row.status in ("left out", "failed"))
    return [f"Left out: {'; '.join(f'{system} ({note})' for system, note in reasons)}."] if reasons else []


def _strategies(rows: list[Row]) -> list[str]:
    said = f"Events per second of ceql, over {rows[0].source} events; where there is output, with the matches:"
    return [said, _by_strategy(rows, _strategy)]


def _by_strategy(rows: list[Row], shown: Callable[[Row | None], str]) -> str:
    lines = []
    for dataset, query in dict.fromkeys((row.dataset, row.query) for row in rows):
        own = {row.strategy: row for row in rows if (row.dataset, row.query) == (dataset, query)}
        sizes = " / ".join(dict.fromkeys(f"{row.events:,}" for row in own.values()))
        lines.append([query, sizes, *(shown(own.get(strategy)) for strategy in STRATEGIES)])
    return _table(["query", "events", *STRATEGIES], lines)


def _strategy(row: Row | None) -> str:
    shown = _speed(row)
    return shown if row is None or not row.matches or "'" in row.query else f"{shown} ({row.matches:,})"


def _memory(rows: list[Row]) -> list[str]:
    by_strategy = [row for row in rows if row.of == Experiment.strategies]
    rows = [row for row in rows if row.of != Experiment.strategies]
    parts = []
    if rows:
        systems = list(dict.fromkeys(row.system for row in rows))
        cells = {(row.query, row.system): row for row in rows}
        lines = [
            [query, *(_megabytes(cells.get((query, system))) for system in systems)]
            for query in dict.fromkeys(row.query for row in rows)
        ]
        parts += [f"Megabytes, average / peak ({_sizes(rows)}):", _table(["query", *systems], lines), *_left_out(rows)]
    if by_strategy:
        parts += ["Megabytes of ceql by strategy, average / peak:", _by_strategy(by_strategy, _megabytes)]
    return parts


def _megabytes(row: Row | None) -> str:
    if row is None:
        return ""
    if row.memory_average_mb is None or row.memory_peak_mb is None:
        return row.note if row.note.startswith(">") else row.status
    return f"{row.memory_average_mb:.1f} / {row.memory_peak_mb:.1f}"


def _on_spark(rows: list[Row]) -> list[str]:
    masters = list(dict.fromkeys(row.master for row in rows))
    cells = {(row.query, row.conditions, row.system, row.master): row for row in rows}
    lines = []
    for query, conditions in dict.fromkeys((row.query, row.conditions) for row in rows):
        shown = f"{query}{', consuming' if conditions == CONSUMING else ''}"
        own = [cells.get((query, conditions, system, master)) for master in masters for system in (ON_SPARK, FLOOR)]
        matches = next((f"{row.matches:,}" for row in own if row and row.matches is not None), "")
        lines.append([shown, *(_duration(row) for row in own), matches])
    head = [f"{master}{', floor' if system == FLOOR else ''}" for master in masters for system in (ON_SPARK, FLOOR)]
    sizes = f"{rows[0].events:,} {rows[0].source} events"
    return [f"Seconds ({sizes}):", _table(["query", *head, "matches"], lines), *_left_out(rows)]


def _duration(row: Row | None) -> str:
    if row is None:
        return ""
    if row.seconds is None:
        return row.note if row.note.startswith(">") else row.status
    return f"{row.seconds:.2f}"


_TABLES = {
    Experiment.sequences: _throughputs,
    Experiment.no_output: _throughputs,
    Experiment.windows: _throughputs,
    Experiment.operators: _throughputs,
    Experiment.strategies: _strategies,
    Experiment.memory: _memory,
    Experiment.spark: _on_spark,
}


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *lines])


def placed(document: str, text: str) -> str:
    r"""Return a document with the text between its markers replaced.

    >>> placed(f"before\n{BEGIN}\nold\n{END}\nafter\n", "new\n")
    'before\n<!-- paper:begin -->\n\nnew\n\n<!-- paper:end -->\nafter\n'
    """
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise DataError(f"the document has no place for the tables: {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{text}\n{END}{after}"
