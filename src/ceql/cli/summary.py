"""What came of a run, for people in one line, for programs as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ceql.backends.json_lines import json_line
from ceql.cli.preview import counted, shown
from ceql.engine.matches import Shape

MIN_RATED = 100_000
"""Events below which the start of the program takes more time than they do."""


@dataclass(frozen=True)
class Summary:
    """A finished run. `events` is None where Spark read them, which does not count; `is_cut` if rows were left out."""

    engine: str
    shape: Shape
    rows: int
    seconds: float
    events: int | None = None
    output: str | None = None
    is_cut: bool = False

    def text(self) -> str:
        """Return it in one line.

        >>> Summary("local", "matches", 3, 2.0, events=100_000, output="found.jsonl").text()
        '100,000 events, 3 matches, 2.00 s, 50,000 events/s'
        """
        rows = shown(self.rows, self.shape) if self.output is None else counted(self.rows, self.shape)
        if self.is_cut:
            return f"{rows}, {self._duration()}; --output writes all"
        if self.events is None:
            return f"{rows}, {self._duration()}"
        told = f"{self.events:,} events, {rows}, {self._duration()}"
        return told if self.events < MIN_RATED else f"{told}, {self.events / self.seconds:,.0f} events/s"

    def _duration(self) -> str:
        return f"{self.seconds:.2f} s on Spark" if self.engine == "spark" else f"{self.seconds:.2f} s"

    def as_json(self) -> str:
        """Return it as a JSON object.

        >>> Summary("spark", "matches", 3, 2.0, output="found").as_json()
        '{"engine": "spark", "shape": "matches", "rows": 3, "seconds": 2.0, "events": null, "output": "found"}'
        """
        return json_line({name: value for name, value in asdict(self).items() if name != "is_cut"})
