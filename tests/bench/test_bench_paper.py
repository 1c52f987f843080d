"""The command `bench paper`: a quick run leaves rows, a report and figures, and all counts agree."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ceql.bench import figures, measure, report
from ceql.bench.experiments import CONSUMING, EXHAUSTIVE, FULL, QUICK, Choice, Experiment, Row, plan
from ceql.bench.queries import Dataset
from ceql.cli import app

pytest.importorskip("duckdb")
pytest.importorskip("matplotlib")

# One worker makes the results that all of them look at.
pytestmark = pytest.mark.xdist_group("bench paper")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["bench", *map(str, arguments)])


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a small run."""
    folder = tmp_path_factory.mktemp("results")
    options = ["--quick", "--events", 2000, "--time-limit", 60, "--out", folder]
    chosen = [f"--query={name}" for name in ("S3", "S3'", "Q7")]
    result = run("paper", *options, *chosen)
    assert result.exit_code == 0, result.output
    return folder


def rows_of(folder: Path) -> tuple[Row, ...]:
    return report.load(folder).rows


def test_all_counts_agree(results: Path) -> None:
    rows = rows_of(results)
    assert {row.status for row in rows} == {"ok", "left out", "unsupported"}
    checked = [row for row in rows if row.status == "ok" and row.matches_expected is not None]
    assert {row.system for row in checked} == {"naive automaton", "DuckDB join"}
    assert all(row.matches == row.matches_expected for row in checked)
    assert any(row.matches for row in checked)


def test_what_cannot_be_measured_says_why(results: Path) -> None:
    rows = rows_of(results)
    without_time = [row for row in rows if row.status != "ok"]
    assert all(row.note and row.seconds is None and row.events_per_second is None for row in without_time)
    assert {(row.query, row.system) for row in without_time if row.status == "unsupported"} == {("Q7", "DuckDB join")}


def test_every_point_states_its_conditions(results: Path) -> None:
    rows = rows_of(results)
    assert {row.conditions for row in rows if row.system in ("ceql", "naive automaton")} == {CONSUMING}
    assert {row.conditions for row in rows if row.system.endswith("join")} == {EXHAUSTIVE}
    assert {row.source for row in rows} == {"generated"}
    assert {row.strategy for row in rows} == {"ALL", "NEXT", "LAST", "MAX", "STRICT"}
    assert all(row.memory_peak_mb is not None for row in rows if row.experiment == "memory" and row.status == "ok")


def test_the_report_has_a_table_and_a_figure_for_each_experiment(results: Path) -> None:
    text = next(results.glob("*-paper.md")).read_text(encoding="utf-8")
    for experiment, name in report.FIGURES.items():
        is_measured = experiment is not Experiment.spark
        assert (f"(./{name}.svg)" in text) == is_measured
        assert (results / f"{name}.svg").exists() == is_measured
        assert (results / f"{name}.png").exists() == is_measured
    assert "Left out: Spark SQL join (a quick run starts no Spark)." in text


def test_memory_is_shown_by_strategy(results: Path, tmp_path: Path) -> None:
    run = report.load(results)
    added = {"experiment": "memory", "of": "strategies", "memory_average_mb": 1.0, "memory_peak_mb": 2.0}
    rows = [replace(row, **added) for row in run.of(Experiment.strategies)]
    with_memory = replace(run, rows=(*run.rows, *rows))
    assert "| S3'x4 | 2,000 |" + 5 * " 1.0 / 2.0 |" in report.markdown(with_memory, ".")
    for one, folder in ((run, tmp_path / "without"), (with_memory, tmp_path / "with")):
        folder.mkdir()
        figures.draw(one, folder)
    sizes = [len((tmp_path / name / "paper-strategies.svg").read_text()) for name in ("without", "with")]
    assert sizes[1] > 1.3 * sizes[0]


def test_every_figure_that_is_shown_is_drawn_whatever_was_chosen(results: Path, tmp_path: Path) -> None:
    whole = report.load(results)
    for number, query in enumerate(("S3", "S3'", "Q7")):
        chosen = replace(whole, rows=tuple(row for row in whole.rows if row.query.partition("x")[0] == query))
        folder = tmp_path / str(number)
        folder.mkdir()
        drawn = {path.name for path in figures.draw(chosen, folder)}
        shown = set(re.findall(r"\((\S+\.svg)\)", report.markdown(chosen, "figures").replace("(figures/", "(")))
        assert shown == {name for name in drawn if name.endswith(".svg")} != set()


def test_a_document_gets_the_tables_between_its_markers(results: Path, tmp_path: Path) -> None:
    document = tmp_path / "benchmarks.md"
    document.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n", encoding="utf-8")
    assert run("report", results, "--into", document).exit_code == 0
    text = document.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "(figures/paper-windows.svg)" in text
    assert (tmp_path / "figures" / "paper-windows.png").stat().st_size > 10_000


def test_a_document_without_markers_is_left_alone(results: Path, tmp_path: Path) -> None:
    document = tmp_path / "benchmarks.md"
    document.write_text("no place\n", encoding="utf-8")
    result = run("report", results, "--into", document)
    assert result.exit_code == 3
    assert "no place for the tables" in result.stderr
    assert document.read_text(encoding="utf-8") == "no place\n"


def test_results_that_are_not_there_are_named(tmp_path: Path) -> None:
    result = run("report", tmp_path / "nowhere")
    assert result.exit_code == 3
    assert result.stderr == f"cannot read or write {tmp_path / 'nowhere'}: No such file or directory\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--query", "S4"], "the paper has no query 's4'"),
        (["--experiment", "speed"], "'speed' is not one of sequences"),
        (["--query", "Q1", "--dataset", "taxis"], "there is nothing to measure"),
    ],
)
def test_mistakes_are_told(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = run("paper", "--quick", "--out", tmp_path, *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())


def test_a_run_that_takes_too_long_is_killed_and_has_no_time(tmp_path: Path) -> None:
    from ceql.bench import events

    path = tmp_path / "events.arrow"
    events.write(events.generated(Dataset.stocks, 20_000), path)
    case = next(one for one in plan(QUICK, Choice(queries=("s3'",))) if one.window == 16 and "naive" in one.system)
    worker = measure.Worker(case.system, path, {"memory_bytes": 4 << 30})
    assert worker.run(case.text, 0.01) == measure.Outcome(measure.TIMED_OUT)
    worker.close()


def test_the_full_run_has_all_of_the_paper() -> None:
    cases = plan(FULL, Choice())
    names = {case.query.name for case in cases}
    assert names >= {f"{letter}{n}{prime}" for letter in "SHT" for n in (3, 6, 9, 12, 24) for prime in ("", "'")}
    assert names >= {f"Q{n}" for n in range(1, 8)} | {f"{letter}3'x{n}" for letter in "SHT" for n in (2, 3, 4, 16, 64)}
    assert {case.experiment for case in cases} == set(Experiment)
    engine = [case for case in cases if case.system == "ceql"]
    remembered = {case.text for case in engine if case.experiment is Experiment.memory}
    assert remembered == {case.text for case in engine if case.experiment is not Experiment.memory}
    assert {case.master for case in cases} == {"", "local[1]", "local[2]", "local-cluster[2,1,1024]"}
