"""Figures like the paper's: throughput on a logarithmic scale, one panel per data set, memory below.

The colours are those of Okabe and Ito, which colour-blind people can distinguish; for print, there are markers and
dashes. Lines have their label at the end instead of a legend. A run that reached the time limit or ran out of memory
has no number: its crossed-out marker stands on the lower edge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log10
from pathlib import Path
from typing import Any

from ceql.bench.experiments import CONSUMING, FLOOR, ON_SPARK, Experiment, Row
from ceql.bench.report import FIGURES, Run

STYLES: dict[str, tuple[str, str, str]] = {
    "ceql": ("#0072B2", "o", "-"),
    "ceql, every match": ("#56B4E9", "D", "--"),
    "naive automaton": ("#D55E00", "s", "-."),
    "DuckDB join": ("#E69F00", "^", ":"),
    "Spark SQL join": ("#009E73", "v", (0, (5, 1, 1, 1, 1, 1))),  # type: ignore[dict-item]
    "ALL": ("#0072B2", "o", "-"),
    "NEXT": ("#D55E00", "s", "-."),
    "LAST": ("#009E73", "v", "--"),
    "MAX": ("#E69F00", "^", ":"),
    "STRICT": ("#CC79A7", "D", (0, (5, 1, 1, 1, 1, 1))),  # type: ignore[dict-item]
}
"""Colour, marker and dashes."""

ENDED = ("time limit", "out of memory")
TITLES = {"stocks": "Stocks", "smart-homes": "Smart homes", "taxis": "Taxis"}


@dataclass(frozen=True)
class Axes:
    """What the axes of a figure mean."""

    x: Callable[[Row], Any]
    x_label: str
    series: Callable[[Row], str]


_BY_LENGTH = Axes(lambda row: row.length, "events in the sequence", lambda row: row.system)
_BY_WINDOW = Axes(lambda row: f"x{row.window}", "window, times that of the paper", lambda row: row.system)


def draw(run: Run, folder: Path) -> list[Path]:
    """Write all figures of a run, as SVG and PNG, and return their paths."""
    import matplotlib as mpl

    mpl.use("Agg")
    paths = []
    for experiment, name in FIGURES.items():
        rows = run.of(experiment)
        figure = _DRAWN[experiment](rows, run) if rows else None
        if figure is None:
            continue
        for suffix in ("svg", "png"):
            paths.append(folder / f"{name}.{suffix}")
            # Without a date, the same numbers give the same file.
            figure.savefig(paths[-1], dpi=150, metadata={"Date": None} if suffix == "svg" else None)
    return paths


def _settings() -> Any:
    return {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#dddddd",
        "grid.linewidth": 0.6,
        "lines.linewidth": 1.6,
        "lines.markersize": 5.5,
        "svg.hashsalt": "ceql",
        "svg.fonttype": "path",
        "figure.facecolor": "white",
    }


Ends = list[tuple[float, float, str, str]]
"""Where lines end: x, y, name, colour."""


def _lines(rows: list[Row], run: Run, axes: Axes) -> Any:
    """Draw panels side by side, one per data set; memory below if it was measured for the same queries."""
    from matplotlib import pyplot as plt

    queries = {row.query for row in rows}
    memory = [row for row in run.of(Experiment.memory) if row.of == rows[0].experiment and row.query in queries]
    measures: list[tuple[list[Row], str, Callable[[Row], float | None]]] = [
        (rows, "events per second", lambda row: row.events_per_second)
    ]
    if memory:
        measures.append((memory, "MB beyond the events", lambda row: _at_least(row.memory_average_mb)))
    datasets = list(dict.fromkeys(row.dataset for row in rows))
    ends: dict[Any, Ends] = {}
    with plt.rc_context(_settings()):
        figure, panels = plt.subplots(
            len(measures),
            len(datasets),
            figsize=(0.8 + 3.6 * len(datasets), 0.4 + 2.5 * len(measures)),
            sharey="row",
            squeeze=False,
            layout="constrained",
        )
        for (measured, unit, value), line in zip(measures, panels, strict=True):
            line[0].set_ylabel(unit)
            for dataset, panel in zip(datasets, line, strict=True):
                ends[panel] = _plot(panel, [row for row in measured if row.dataset == dataset], axes, value)
            _show_a_decade(line[0])
        for dataset, panel in zip(datasets, panels[0], strict=True):
            panel.set_title(TITLES[dataset], loc="left")
        for panel in panels[-1]:
            panel.set_xlabel(axes.x_label)
        if any(row.status in ENDED for row in [*rows, *memory]):
            _explain_crosses(figure, panels)
        # Where the lines are is known only after all panels that share a scale are drawn.
        for panel, own in ends.items():
            _label(panel, own)
        plt.close(figure)
    return figure


def _show_a_decade(panel: Any) -> None:
    """Make a scale span at least a power of ten, so that small differences look small."""
    low, high = panel.get_ylim()
    lacking = max(1.0, 10 * low / high) ** 0.5
    panel.set_ylim(low / lacking, high * lacking)


def _explain_crosses(figure: Any, panels: Any) -> None:
    """Say what crosses mean, and make room for them below the lines."""
    for line in panels:
        low, _ = line[0].get_ylim()
        line[0].set_ylim(bottom=low / 2)
    figure.supxlabel("crossed out: not done within the limit of time or memory", x=0.99, ha="right", fontsize=7.5)


def _at_least(value: float | None) -> float | None:
    """Return a number of megabytes that a logarithmic scale can show: below a tenth it is noise anyway."""
    return None if value is None else max(0.1, value)


def _plot(panel: Any, rows: list[Row], axes: Axes, value: Callable[[Row], float | None]) -> Ends:
    """Draw one line per system and return where they end."""
    ticks = list(dict.fromkeys(axes.x(row) for row in rows))
    panel.set_yscale("log")
    panel.set_xticks(range(len(ticks)), [str(tick) for tick in ticks])
    panel.set_xlim(-0.25, len(ticks) - 0.75)
    panel.grid(visible=False, axis="x")
    ends, missing = [], []
    for name in dict.fromkeys(axes.series(row) for row in rows):
        colour, marker, dashes = STYLES[name]
        own = {ticks.index(axes.x(row)): row for row in rows if axes.series(row) == name}
        missing += [(at, colour, marker) for at, row in own.items() if row.status in ENDED]
        points = [(at, found) for at, row in own.items() if (found := value(row)) is not None]
        if points:
            xs, ys = zip(*points, strict=True)
            panel.plot(xs, ys, color=colour, marker=marker, linestyle=dashes, markeredgecolor="white", clip_on=False)
            ends.append((xs[-1], ys[-1], name, colour))
    _cross(panel, missing)
    return ends


def _cross(panel: Any, missing: list[tuple[int, str, str]]) -> None:
    """Draw crossed-out markers of runs that did not end, side by side on the lower edge."""
    for at, colour, marker in missing:
        beside = [other for tick, other, _ in missing if tick == at]
        x = at + 0.2 * (beside.index(colour) - (len(beside) - 1) / 2)
        options: Any = {"transform": panel.get_xaxis_transform(), "clip_on": False, "linestyle": "", "color": colour}
        panel.plot([x], [0.04], marker=marker, markerfacecolor="white", markersize=6.5, **options)
        panel.plot([x], [0.04], marker="x", markersize=6.5, **options)


def _label(panel: Any, ends: Ends) -> None:
    """Write the name of each line where it ends; names that would overlap are pushed apart."""
    from matplotlib.patheffects import withStroke

    low, high = (log10(limit) for limit in panel.get_ylim())
    last = max((x for x, *_ in ends), default=0)
    # Names of lines that stop in the middle stand beside their last point; the others share the right edge.
    placed = [(end, log10(end[1])) for end in ends if end[0] < last]
    at_edge = sorted((end for end in ends if end[0] == last), key=lambda end: end[1])
    placed += zip(at_edge, pushed_apart([log10(end[1]) for end in at_edge], 0.075 * (high - low)), strict=True)
    for (x, _, name, colour), height in placed:
        panel.annotate(
            name,
            (x, 10**height),
            xytext=(7, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            fontsize=8,
            annotation_clip=False,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )


def pushed_apart(heights: list[float], gap: float) -> list[float]:
    """Return ascending heights, moved as little as possible until they are a gap apart.

    >>> [round(height, 1) for height in pushed_apart([1.0, 1.0, 5.0], 1.0)]
    [0.5, 1.5, 5.0]
    """
    moved = list(heights)
    for _ in range(100):
        for at in range(1, len(moved)):
            lacking = gap - (moved[at] - moved[at - 1])
            if lacking > 0:
                moved[at - 1] -= lacking / 2
                moved[at] += lacking / 2
    return moved


def _points(rows: list[Row], run: Run) -> Any:
    """Draw throughput, and memory if it was measured, of queries without an order: points without lines."""
    from matplotlib import pyplot as plt

    memory = [row for row in run.of(Experiment.memory) if row.of == rows[0].experiment]
    axes = Axes(lambda row: row.query, "", lambda row: row.system)
    with plt.rc_context(_settings() | {"lines.markersize": 7}):
        figure, panels = plt.subplots(
            1, 2 if memory else 1, figsize=(9 if memory else 5.5, 3), squeeze=False, layout="constrained"
        )
        throughput = panels[0][0]
        _plot(throughput, rows, axes, lambda row: row.events_per_second)
        throughput.set_title("Stocks, events per second", loc="left")
        if memory:
            _plot(panels[0][1], memory, axes, lambda row: _at_least(row.memory_average_mb))
            panels[0][1].set_title("MB beyond the events", loc="left")
        for panel in panels[0]:
            for line in panel.lines:
                line.set_linestyle("")
        figure.legend(handles=_keys({row.system for row in rows if row.seconds is not None}), loc="outside right upper")
        plt.close(figure)
    return figure


def _keys(names: set[str]) -> list[Any]:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=colour, marker=marker, linestyle="", label=name)
        for name, (colour, marker, _) in STYLES.items()
        if name in names
    ]


def _spark(rows: list[Row], run: Run) -> Any:
    """Draw one panel per master: for each query, Spark's time to read and filter, and the engine's time."""
    from matplotlib import pyplot as plt

    masters = list(dict.fromkeys(row.master for row in rows))
    queries = list(dict.fromkeys((row.query, row.conditions) for row in rows))
    names = [f"{query}\n(consuming)" if conditions == CONSUMING else query for query, conditions in queries]
    with plt.rc_context(_settings() | {"lines.markersize": 7}):
        figure, panels = plt.subplots(
            1,
            len(masters),
            figsize=(1 + 2.9 * len(masters), 1.3 + 0.42 * len(queries)),
            sharey=True,
            sharex=True,
            squeeze=False,
            layout="constrained",
        )
        for master, panel in zip(masters, panels[0], strict=True):
            panel.set_title(master, loc="left")
            panel.set_xlabel("seconds")
            panel.set_yticks(range(len(queries)), names)
            panel.grid(visible=False, axis="y")
            for system, filling, colour in ((FLOOR, "white", "#555555"), (ON_SPARK, "#0072B2", "#0072B2")):
                own = {
                    (row.query, row.conditions): row.seconds
                    for row in rows
                    if (row.master, row.system) == (master, system)
                }
                points = [(seconds, at) for at, key in enumerate(queries) if (seconds := own.get(key)) is not None]
                if points:
                    panel.plot(*zip(*points, strict=True), "o", color=colour, markerfacecolor=filling, label=system)
        panels[0][0].set_xlim(left=0)
        panels[0][0].set_ylim(len(queries) - 0.5, -0.5)
        figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside upper right", ncols=2, frameon=False)
        plt.close(figure)
    return figure


_DRAWN: dict[Experiment, Callable[[list[Row], Run], Any]] = {
    Experiment.sequences: lambda rows, run: _lines(rows, run, _BY_LENGTH),
    Experiment.no_output: lambda rows, run: _lines(rows, run, _BY_LENGTH),
    Experiment.windows: lambda rows, run: _lines(rows, run, _BY_WINDOW),
    Experiment.operators: _points,
    Experiment.strategies: lambda rows, run: _lines(
        # Larger windows are shown without output, unless only queries with output were chosen.
        [row for row in rows if row.query.count("'")] or rows,
        run,
        replace(_BY_WINDOW, series=lambda row: row.strategy),
    ),
    Experiment.spark: _spark,
}
