"""The commands `bench paper` and `bench report`: the paper's experiments, measured here."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ceql.bench.queries import Dataset
from ceql.cli.exits import CANCELLED, WRONG_DATA, fail, reason
from ceql.cli.help_text import Command, Group
from ceql.cli.terminal import tell
from ceql.errors import CeqlError

if TYPE_CHECKING:
    from ceql.bench.experiments import Bench, Case, Row, Scale

bench = typer.Typer(
    cls=Group, name="bench", help="Measure the paper's experiments on this machine.", no_args_is_help=True
)

EXPERIMENTS = "sequences, no-output, windows, operators, strategies, memory or spark"


@bench.command(cls=Command)
def paper(  # noqa: PLR0917
    quick: Annotated[  # noqa: FBT002
        bool, typer.Option("--quick", help="A few thousand events, one run each, and no Spark unless asked for.")
    ] = False,
    dataset: Annotated[list[Dataset], typer.Option(help="Only this data set. Repeatable.")] = [],  # noqa: B006
    query: Annotated[
        list[str], typer.Option(metavar="NAME", help='Only this query of the paper: S3, "S3\'", Q1. Repeatable.')
    ] = [],  # noqa: B006
    experiment: Annotated[
        list[str], typer.Option(metavar="NAME", help=f"Only this experiment: {EXPERIMENTS}. Repeatable.")
    ] = [],  # noqa: B006
    events: Annotated[
        int | None, typer.Option(min=1000, help="Events of the engine's runs; baselines have at most as many.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(envvar="CEQL_DATA", help="Folder with the real data sets; else they are generated.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("benchmarks/results"),
    time_limit: Annotated[
        float | None, typer.Option(min=0.1, metavar="SECONDS", help="When to end a run that takes too long.")
    ] = None,
    without: Annotated[
        list[str], typer.Option(metavar="SYSTEM", help='Leave out a baseline: "Spark SQL join". Repeatable.')
    ] = [],  # noqa: B006
) -> None:
    """Run the paper's experiments, against baselines: events per second, memory, and whether counts agree.

    \b
    Examples:
      ceql bench paper --quick --out results
      ceql bench paper --dataset stocks --experiment windows
      ceql bench paper --out benchmarks/results
    """  # noqa: D301 - the backspace keeps lines as they are
    from ceql.bench import experiments, report

    scale = _scale(quick=quick, events=events, time_limit=time_limit, without=without)
    choice = experiments.Choice(
        datasets=tuple(dataset) or None,
        experiments=_chosen(experiment, quick=quick),
        queries=_known(query),
    )
    cases = experiments.plan(scale, choice)
    code = report.code_version()
    if not cases:
        fail("there is nothing to measure: no query fits all options", 2)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="ceql-bench-") as folder:
            rows = _rows(experiments.Bench(scale, Path(folder), data), cases)
        if not rows:
            fail("cancelled", CANCELLED)
        path = report.save(rows, code, report.conditions(_told(scale, data)), out)
    except (CeqlError, OSError) as error:
        fail(str(error), WRONG_DATA)
    tell(f"{len(rows)} measurements in {path}")
    _write_report(path, out / f"{path.stem}.md", out)
    if len(rows) < len(cases):
        fail(f"cancelled after {len(rows)} of {len(cases)} measurements", CANCELLED)
    wrong = [row for row in rows if row.status == experiments.WRONG]
    if wrong:
        fail(f"{len(wrong)} counts differ from the engine's: see status 'wrong' in {path}", WRONG_DATA)


@bench.command(cls=Command, name="report")
def show(
    results: Annotated[Path, typer.Argument(help="A CSV file that bench paper wrote, or a folder: its newest one.")],
    into: Annotated[
        Path | None,
        typer.Option(help="Markdown file whose part between markers is replaced; figures go to figures/ beside it."),
    ] = None,
) -> None:
    """Draw the figures and write the tables of a run again; with --into, into a document.

    \b
    Examples:
      ceql bench report benchmarks/results
      ceql bench report benchmarks/results --into docs/benchmarks.md
    """  # noqa: D301 - the backspace keeps lines as they are
    from ceql.bench import report

    try:
        run = report.load(results)
        if into is None:
            path = results if results.is_file() else results / run.name
            _write_report(path, path.with_suffix(".md"), path.parent)
            return
        document = report.placed(into.read_text(encoding="utf-8"), report.markdown(run, "figures"))
        _draw(run, into.parent / "figures")
        into.write_text(document, encoding="utf-8")
    except CeqlError as error:
        fail(str(error), WRONG_DATA)
    except OSError as error:
        fail(f"cannot read or write {error.filename}: {reason(error)}", WRONG_DATA)
    tell(f"{run.name} is in {into}")


def _scale(*, quick: bool, events: int | None, time_limit: float | None, without: list[str]) -> Scale:
    from ceql.bench.experiments import FULL, QUICK
    from ceql.bench.systems import SYSTEMS

    scale = QUICK if quick else FULL
    unknown = [name for name in without if name not in SYSTEMS]
    if unknown:
        raise typer.BadParameter(f"'{unknown[0]}' is not one of {', '.join(SYSTEMS)}", param_hint="--without")
    scale = replace(scale, left_out=scale.left_out | dict.fromkeys(without, "not asked for"))
    if events is not None:
        scale = scale.cut(events)
    return scale if time_limit is None else replace(scale, time_limit=time_limit)


def _chosen(names: list[str], *, quick: bool) -> Any:
    from ceql.bench.experiments import Experiment

    unknown = [name for name in names if name not in list(Experiment)]
    if unknown:
        raise typer.BadParameter(f"'{unknown[0]}' is not one of {', '.join(Experiment)}", param_hint="--experiment")
    if names:
        return tuple(Experiment(name) for name in names)
    return tuple(experiment for experiment in Experiment if experiment is not Experiment.spark) if quick else None


def _known(names: list[str]) -> tuple[str, ...] | None:
    from ceql.bench.experiments import query_names

    known = query_names()
    # File names of the queries are allowed, too.
    wanted = tuple(name.lower().replace("_no_output", "'") for name in names)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise typer.BadParameter(f"the paper has no query '{unknown[0]}'", param_hint="--query")
    return wanted or None


def _told(scale: Scale, data: Path | None) -> str:
    source = "real events" if data else "generated events"
    n_cores = os.cpu_count()
    return f"{source}, {n_cores} cores, one thread each, {scale.n_runs} runs, time limit {scale.time_limit:g} s"


def _rows(bench: Bench, cases: list[Case]) -> list[Row]:
    """Return what was measured for each case, with a bar on standard error; Ctrl-C keeps what there is."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    shown = Progress(*columns, console=Console(stderr=True)) if sys.stderr.isatty() else nullcontext()
    rows: list[Row] = []
    try:
        with shown as progress:
            task = None if progress is None else progress.add_task("", total=len(cases))
            for case in cases:
                if progress is not None and task is not None:
                    progress.update(task, description=case.shown)
                rows.append(bench.row(case))
                if progress is not None and task is not None:
                    progress.advance(task)
    except KeyboardInterrupt:
        return rows
    finally:
        bench.close()
    return rows


def _write_report(results: Path, path: Path, figures: Path) -> None:
    from ceql.bench import report

    run = report.load(results)
    path.write_text(f"# The paper's experiments\n\n{report.markdown(run, '.')}", encoding="utf-8")
    _draw(run, figures)
    tell(f"report in {path}")


def _draw(run: Any, folder: Path) -> None:
    try:
        from ceql.bench import figures

        folder.mkdir(exist_ok=True)
        figures.draw(run, folder)
    except ModuleNotFoundError:
        tell("no figures: matplotlib is not installed (pip install 'ceql[bench]')")
