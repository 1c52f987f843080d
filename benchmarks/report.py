"""What benchmarks print and keep: each measurement beside its target."""

from __future__ import annotations

import csv
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


class Report:
    """Prints each measurement beside its target, and keeps it."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []

    def add(self, what: str, value: float, unit: str, target: float | None = None) -> None:
        verdict = "" if target is None else ("ok" if value <= target else "MISSED")
        shown = "" if target is None else f"target {target:g}"
        print(f"{what:<64} {value:>12.3f} {unit:<14} {shown:<12} {verdict}", flush=True)
        self.rows.append({"what": what, "value": round(value, 4), "unit": unit, "target": target, "verdict": verdict})

    def save(self, name: str, conditions: str) -> None:
        """Write the measurements to a file named after the day, the commit and the benchmark, and print its name."""
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
        path = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{commit.stdout.strip() or 'unknown'}-{name}.csv"
        with path.open("w", newline="") as file:
            file.write(f"# {conditions}; {platform.machine()}, Python {platform.python_version()}\n")
            writer = csv.DictWriter(file, list(self.rows[0]))
            writer.writeheader()
            writer.writerows(self.rows)
        print(f"kept in benchmarks/results/{path.name}")
