"""The summary of a run: one line for people, JSON for programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ceql.backends.json_lines import json_line
from ceql.cli.preview import counted, counted_events, shown
from ceql.engine.options import Shape

MIN_RATED = 100_000
"""With fewer events, the start of the program takes longer than the run."""


@dataclass(frozen=True)
class Summary:
    """A finished run.

    `events` is None if Spark read them, because it does not count; `is_cut` says that rows were left out. `dropped`
    are events without a partition key or a time, None if they were not counted.
    """

    engine: str
    shape: Shape
    rows: int
    seconds: float
    events: int | None = None
    dropped: int | None = None
    output: str | None = None
    is_cut: bool = False

    def text(self) -> str:
        """Return it in one line.

        >>> Summary("local", "matches", 3, 2.0, events=100_000, output="found.jsonl").text()
        '100,000 events, 3 matches, 2.00 s, 50,000 events/s'
        >>> Summary("local", "matches", 3, 2.0, events=10, dropped=2, output="found.jsonl").text()
        '10 events, 2 of them left out, 3 matches, 2.00 s'
        >>> Summary("spark", "matches", 3, 2.0, dropped=1, output="found").text()
        '1 event left out, 3 matches, 2.00 s on Spark'
        """
        rows = shown(self.rows, self.shape) if self.output is None else counted(self.rows, self.shape)
        if self.is_cut:
            return f"{rows}, {self._duration()}; --output writes all"
        if self.events is None:
            dropped = f"{counted_events(self.dropped)} left out, " if self.dropped else ""
            return f"{dropped}{rows}, {self._duration()}"
        dropped = f", {self.dropped:,} of them left out" if self.dropped else ""
        told = f"{counted_events(self.events)}{dropped}, {rows}, {self._duration()}"
        return told if self.events < MIN_RATED else f"{told}, {self.events / self.seconds:,.0f} events/s"

    def _duration(self) -> str:
        return f"{self.seconds:.2f} s on Spark" if self.engine == "spark" else f"{self.seconds:.2f} s"

    def as_json(self) -> str:
        """Return it as a JSON object.

        >>> Summary("local", "matches", 3, 2.0, 9, 1, "m").as_json()
        '{"engine": "local", "shape": "matches", "rows": 3, "seconds": 2.0, "events": 9, "dropped": 1, "output": "m"}'
        """
        return json_line({name: value for name, value in asdict(self).items() if name != "is_cut"})
