"""The options of a run: the columns of events, the shape of results, and the limits of memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Shape = Literal["matches", "events", "positions"]
SHAPES = ("matches", "events", "positions")

DEFAULT_CHUNK = 1 << 15
"""Matches in one batch of the result."""

DEFAULT_CAPACITY = 100_000
"""Transitions of the determinized automaton that are kept, roughly."""


@dataclass(frozen=True)
class Layout:
    """Which columns of the events mean what, and the shape of the results. Another layout gives other results."""

    shape: Shape = "matches"
    type_column: str | None = "type"
    time_column: str | None = None
    order_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise ValueError(f"unknown shape {self.shape!r}: choose one of {', '.join(SHAPES)}")


@dataclass(frozen=True)
class Limits:
    """How much may be held, and how often it is collected. The matches are the same under any limits."""

    max_state_bytes: int | None = None
    memo_capacity: int = DEFAULT_CAPACITY
    chunk_size: int = DEFAULT_CHUNK
    collects_always: bool = False
    """Whether the arena is collected after each event, and matches are always compared the long way: for tests."""
