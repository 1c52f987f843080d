"""The examples find what they tell: on Spark, in this process, and by computations that know nothing of patterns."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from ceql.cli import app

ROOT = Path(__file__).resolve().parents[1]
GALLERY = ROOT / "examples"
NAMES = sorted(query.parent.name for query in GALLERY.glob("*/query.ceql"))
ON_SPARK = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.filterwarnings("default")]

# What a computation finds: how many matches there are of each description.
Found = Counter[tuple[Any, ...]]


def in_order(events: pd.DataFrame, key: list[str], order: list[str]) -> Iterator[tuple[Any, pd.DataFrame]]:
    """The events of each key, in order."""
    yield from events.sort_values(order, kind="stable").groupby(key)


def attacks(events: pd.DataFrame) -> Found:
    """By a list of failures for each address, counted back from each login."""
    found: Found = Counter()
    for (ip,), log in in_order(events, ["ip"], ["at", "line"]):
        failures: list[Any] = []
        for event, at in zip(log.event_type, log["at"], strict=True):
            recent = [time for time in failures if at - time <= pd.Timedelta(minutes=10)]
            if event == "FAILED_PASSWORD":
                failures.append(at)
            elif event == "ACCEPTED" and len(recent) >= 5:
                found[ip, len(recent)] += 1
                failures = []
    return found


def wars(events: pd.DataFrame) -> Found:
    """By a regular expression over the signs of the edits of one size; no data set is longer than a day."""
    found: Found = Counter()
    key = ["channel", "page", "size"]
    candidates = events[(events.delta != 0) & events.duplicated(key, keep=False)]
    for (channel, page, size), edits in in_order(candidates, key, ["at", "user"]):
        signs = "".join("+" if delta > 0 else "-" for delta in edits.delta)
        for war in re.finditer(r"(\++)(-+)\+|(-+)(\++)-", signs):
            first, undo = (len(part) for part in war.groups() if part)
            found[channel, page, size, first, undo] += 1
    return found


def stays(events: pd.DataFrame) -> Found:
    """By regular expressions over a letter for each report: moving, slow, still."""
    found: Found = Counter()
    for (mmsi,), reports in in_order(events, ["mmsi"], ["at", "lon", "lat", "knots"]):
        letters = "".join("M" if knots >= 3 else "S" if knots < 0.5 else "L" for knots in reports.knots)
        for stay in re.finditer(r"(?<=MMM)[LS]+(?=MMM)", letters):
            if re.search(r"^.+SSSSS.+$", stay[0]):
                found[mmsi, len(stay[0])] += 1
    return found


def growing_delays(events: pd.DataFrame) -> Found:
    """By the differences that pandas finds, and the length of the run of large ones before each flight."""
    found: Found = Counter()
    candidates = events[events.groupby(["tailnum", "day"]).delay.transform("size") >= 4]
    for (tailnum, day), flights in in_order(candidates, ["tailnum", "day"], ["at", "flight"]):
        run = 0
        for grows in flights.delay.diff() >= 15:
            run = run + 1 if grows else 0
            if run >= 3:
                found[tailnum, day, run] += 1
    return found


def purchases(events: pd.DataFrame) -> Found:
    """By going back from each purchase to the last cart, from there to the last view, to the last ad or search."""
    found: Found = Counter()
    for (visitor, _), clicks in in_order(events, ["visitor", "product"], ["at", "id"]):
        past: list[tuple[str, Any]] = []
        for step, at in zip(clicks.type, clicks["at"], strict=True):
            way = [at]
            wanted = [("CART",), ("VIEW",), ("AD", "SEARCH")] if step == "PURCHASE" else []
            for before, when in reversed(past):
                if wanted and before in wanted[0] and at - when <= pd.Timedelta(hours=1):
                    way.append(when)
                    wanted = wanted[1:]
            past.append((step, at))
            if len(way) == 4:
                found[visitor, *sorted(way)] += 1
                past = []
    return found


def skips(events: pd.DataFrame) -> Found:
    """By asking of each result whether the appeal is in the list of the activities before it."""
    found: Found = Counter()
    result = "Receive Result Appeal from Prefecture"
    candidates = events[events.case_id.isin(events.case_id[events.activity == result])]
    for (case,), steps in in_order(candidates, ["case_id"], ["day", "number"]):
        activities = list(steps.activity)
        if "Send Appeal to Prefecture" not in activities[: activities.index(result)]:
            found[case, steps.number.iloc[activities.index(result)]] += 1
    return found


def second_values(events: pd.DataFrame) -> Found:
    """By looking from each triage for the first high value after it, and from there for the first value at all."""
    found: Found = Counter()
    for (case,), steps in in_order(events, ["case_id"], ["at", "number"]):
        for triage in steps[steps.activity == "ER Sepsis Triage"].itertuples():
            later = steps.loc[triage.Index :].iloc[1:]
            values = later[(later.activity == "LacticAcid") & later.lacticacid.notna()]
            high = values[values.lacticacid > 2].head(1)
            again = values.loc[high.index[0] :].iloc[1:2] if len(high) else high
            if len(again) and again["at"].iloc[0] - triage.at <= pd.Timedelta(days=1):
                found[case, high.number.iloc[0], again.number.iloc[0]] += 1
    return found


def untreated(events: pd.DataFrame) -> Found:
    """By looking for antibiotics in the hour after each arrival, unless the log ends before the hour does."""
    found: Found = Counter()
    hour, end = pd.Timedelta(hours=1), events["at"].max()
    for (case,), steps in in_order(events, ["case_id"], ["at", "number"]):
        arrivals = (steps.activity == "ER Registration") & steps.infection_suspected.eq(True)
        for place in arrivals.to_numpy().nonzero()[0]:
            arrival, later = steps.iloc[place], steps.iloc[place + 1 :]
            given = later["at"][later.activity == "IV Antibiotics"]
            if arrival["at"] + hour <= end and not (given <= arrival["at"] + hour).any():
                found[case, arrival.number, arrival["at"] + hour] += 1
    return found


def rises(events: pd.DataFrame) -> Found:
    """By lists of low and middling prices since the last rise, read at each high price."""
    found: Found = Counter()
    for (name,), trades in in_order(events, ["name"], ["stock_time", "id"]):
        lows: list[tuple[int, int]] = []
        n_mids = 0
        for percent, at in zip(100 * (trades.price / trades.price.iloc[0] - 1), trades.stock_time, strict=True):
            if percent < 0:
                lows.append((at, n_mids))
            elif percent <= 1:
                n_mids += 1
            else:
                lows = [(when, before) for when, before in lows if at - when <= 60_000]
                starts = [before for _, before in lows if n_mids > before]
                found.update((name, at, n_mids - before) for before in starts)
                if starts:
                    lows = []
    return found


def chains(events: pd.DataFrame) -> Found:
    """By a regular expression over a letter for each trip: a hop, or not; all trips start within one hour."""
    found: Found = Counter()
    candidates = events[events.groupby("medallion").id.transform("size") >= 4]
    for (medallion,), trips in in_order(candidates, ["medallion"], ["picked_up", "id"]):
        idle = trips.picked_up - trips.dropped_off.shift()
        is_hop = (trips.pickup_zone == trips.dropoff_zone.shift()) & idle.between(pd.Timedelta(0), pd.Timedelta("5min"))
        for chain in re.finditer("[hn]hhh", "".join("h" if hop else "n" for hop in is_hop)):
            found[medallion, trips["id"].iloc[chain.start()]] += 1
    return found


Computation = Callable[[pd.DataFrame], Found]
Description = Callable[[dict[str, Any]], tuple[Any, ...]]
# Each example's matches, found without patterns; and how one of its matches is described there.
INDEPENDENTLY: dict[str, tuple[Computation, Description]] = {
    "ssh_brute_force": (attacks, lambda m: (m["ip"], len(m["failed"]))),
    "edit_war": (wars, lambda m: (m["channel"], m["page"], m["size"], len(m["first"]), len(m["undo"]))),
    "ship_stops_and_moves_on": (stays, lambda m: (m["mmsi"], len(m["stay"]))),
    "growing_delay": (growing_delays, lambda m: (m["tailnum"], m["day"], len(m["later"]))),
    "purchase_funnel": (
        purchases,
        lambda m: (m["visitor"], *sorted(e["at"] for e in m.values() if isinstance(e, dict))),
    ),
    "skipped_fine_step": (skips, lambda m: (m["case_id"], m["result"]["number"])),
    "second_measurement": (second_values, lambda m: (m["case_id"], m["high"]["number"], m["again"]["number"])),
    "late_antibiotics": (untreated, lambda m: (m["case_id"], m["arrival"]["number"], m["match_end"])),
    "stock_trend": (rises, lambda m: (m["name"], m["match_end"], len(m["mid"]))),
    "taxi_hops": (chains, lambda m: (m["medallion"], m["start"]["id"])),
}


def script(name: str) -> ModuleType:
    """The example's run.py as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", GALLERY / name / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_lines(matches: Any) -> list[str]:
    return sorted(json.dumps(match, default=str) for match in matches.to_pylist())


@pytest.fixture
def large_batches(spark: Any) -> Iterator[None]:
    """Batches as large as Spark's own, because the recorded data are too long for those of the other tests."""
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    small = spark.conf.get(setting)
    spark.conf.set(setting, 10_000)
    yield
    spark.conf.set(setting, small)


def checked(spark: Any, name: str, kind: str) -> tuple[int, list[dict[str, Any]]]:
    """The matches' number and summary, after a comparison of Spark, this process and the independent computation.

    That of generated events is printed, as the example does it.
    """
    import ceql.spark

    example = script(name)
    events = example.events(getattr(example, kind)(spark)).persist()
    matches = ceql.spark.match(example.QUERY, events, **example.OPTIONS).persist()
    try:
        found, table = matches.toArrow(), events.toArrow()
        assert as_lines(found) == as_lines(ceql.match(example.QUERY, table, sort=True, **example.OPTIONS).to_arrow())
        compute, describe = INDEPENDENTLY[name]
        assert Counter(map(describe, found.to_pylist())) == compute(table.to_pandas())
        summary = example.summary(matches)
        if kind == "generated":
            summary.show(10, truncate=False)
        return found.num_rows, json.loads(json.dumps(summary.toArrow().to_pylist(), default=str))
    finally:
        matches.unpersist()
        events.unpersist()


def expected(name: str, kind: str) -> Any:
    return json.loads((GALLERY / name / "expected.json").read_text(encoding="utf-8"))[kind]


@pytest.mark.parametrize("name", NAMES)
class TestEachExample:
    def test_is_complete_and_listed(self, name: str) -> None:
        assert {path.name for path in (GALLERY / name).iterdir() if path.is_file()} == {
            "README.md",
            "expected.json",
            "query.ceql",
            "run.py",
        }
        assert f"({name}/README.md)" in (GALLERY / "README.md").read_text(encoding="utf-8")
        assert name in INDEPENDENTLY

    def test_shows_its_query_in_its_story(self, name: str) -> None:
        query = (GALLERY / name / "query.ceql").read_text(encoding="utf-8")
        assert f"```sql\n{query}```" in (GALLERY / name / "README.md").read_text(encoding="utf-8")

    @pytest.mark.parametrize("command", ["check", "explain"])
    def test_is_accepted_by_the_command_line(self, name: str, command: str) -> None:
        result = CliRunner().invoke(app, [command, str(GALLERY / name / "query.ceql")])
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize("name", [pytest.param(name, marks=ON_SPARK) for name in NAMES])
def test_finds_what_is_expected_in_generated_events(
    spark: Any, large_batches: None, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    n_matches, summary = checked(spark, name, "generated")
    assert {"matches": n_matches, "summary": summary} == expected(name, "generated")
    assert capsys.readouterr().out.strip() in (GALLERY / name / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [pytest.param(name, marks=ON_SPARK) for name in NAMES if name != "purchase_funnel"])
def test_finds_what_is_expected_in_recorded_events(spark: Any, large_batches: None, name: str) -> None:
    if not script(name).DATA.exists():
        pytest.skip(f"{os.environ.get('CEQL_DATA', '../shared/data')} has no data for this example")
    # The recorded rows belong to others: numbers alone are kept of them.
    n_matches, summary = checked(spark, name, "recorded")
    assert {"matches": n_matches, "rows of the summary": len(summary)} == expected(name, "recorded")
