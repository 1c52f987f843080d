"""The paper's queries, and the changes that its experiments make to them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files


class Dataset(StrEnum):
    """A data set of the paper's evaluation."""

    stocks = "stocks"
    smart_homes = "smart-homes"
    taxis = "taxis"

    @property
    def letter(self) -> str:
        """The letter that the paper's sequence queries over this data set begin with."""
        return {"stocks": "S", "smart-homes": "H", "taxis": "T"}[self.value]


LIMIT = 1000
"""Most matches that the paper reads for each event that completes matches."""

LENGTHS = (3, 6, 9, 12, 24)
STRATEGIES = ("ALL", "NEXT", "LAST", "MAX", "STRICT")


@dataclass(frozen=True)
class PaperQuery:
    """A query: its name in the paper, such as S3', and its text."""

    dataset: Dataset
    name: str
    text: str

    def with_window(self, factor: int) -> PaperQuery:
        """Return the query with a window `factor` times as large; the paper writes S3'x2.

        >>> print(sequence(Dataset.stocks, 3).with_window(2).text.splitlines()[-1])
        WITHIN 20000 [stock_time]
        """
        text = re.sub(r"WITHIN (\d+)", lambda found: f"WITHIN {int(found[1]) * factor}", self.text)
        return PaperQuery(self.dataset, f"{self.name}x{factor}" if factor > 1 else self.name, text)

    def with_strategy(self, strategy: str) -> PaperQuery:
        """Return the query with a selection strategy."""
        return PaperQuery(self.dataset, self.name, self.text.replace("SELECT *", f"SELECT {strategy} *", 1))

    @property
    def consuming(self) -> str:
        """The text under the paper's conditions: a match forgets all events; an event gives at most 1000 matches."""
        return f"{self._without_clauses}\nCONSUME BY ANY\nLIMIT {LIMIT}\n"

    @property
    def exhaustive(self) -> str:
        """The text for every match there is, which is what a join computes."""
        return f"{self._without_clauses}\n"

    @property
    def _without_clauses(self) -> str:
        return re.sub(r"\s*CONSUME BY \w+\s*$", "", self.text.rstrip())


def sequence(dataset: Dataset, length: int, *, has_output: bool = True) -> PaperQuery:
    """Return the paper's sequence query of a length, or its primed version, whose last event never occurs.

    >>> sequence(Dataset.taxis, 24, has_output=False).name
    "T24'"
    """
    letter = dataset.letter
    stem = f"{letter.lower()}{length}{'' if has_output else '_no_output'}"
    return PaperQuery(dataset, f"{letter}{length}{'' if has_output else chr(39)}", _text(dataset, stem))


def stock_query(number: int) -> PaperQuery:
    """Return one of Q1 to Q7, which use other operators than sequences."""
    return PaperQuery(Dataset.stocks, f"Q{number}", _text(Dataset.stocks, f"q{number}"))


def _text(dataset: Dataset, stem: str) -> str:
    return (files("ceql.paper") / dataset.value.replace("-", "_") / f"{stem}.ceql").read_text(encoding="utf-8")
