"""The first rows of a result as a table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ceql.backends.json_lines import json_rows
from ceql.engine.options import Shape
from ceql.visible import visible

N_SHOWN = 20
"""Rows in the table."""
N_SHOWN_EVENTS = 5
"""Events in a cell, for variables that bind many."""
WIDTH_OF_FILES = 500
"""Width of a table that does not go to a terminal, so that it is not folded."""


def show_rows(names: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    """Print rows as a table on standard output."""
    console = Console(file=sys.stdout)
    if not console.is_terminal:
        console = Console(file=sys.stdout, width=WIDTH_OF_FILES)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, expand=False)
    for name in names:
        table.add_column(Text(visible(name)), overflow="fold")
    for row in rows[:N_SHOWN]:
        table.add_row(*(Text(cell(row[name])) for name in names))
    console.print(table)


def print_rows(rows: pa.RecordBatch) -> int:
    """Print rows as lines of JSON on standard output; return how many."""
    sys.stdout.writelines(f"{row}\n" for row in json_rows(rows))
    return len(rows)


def cell(value: Any) -> str:
    r"""Return a value as text for the table; events of a list get one line each.

    >>> cell([{"type": "SELL", "price": 2.5}, {"type": "BUY", "price": None}])
    'type=SELL price=2.5\ntype=BUY price=NULL'
    """
    if value is None:
        return "NULL"
    if isinstance(value, dict):
        return " ".join(f"{visible(name)}={cell(part)}" for name, part in value.items())
    if isinstance(value, list):
        n_more = len(value) - N_SHOWN_EVENTS
        lines = [cell(event) for event in value[:N_SHOWN_EVENTS]] + ([f"and {n_more:,} more"] if n_more > 0 else [])
        return "\n".join(lines)
    return visible(str(value))


def counted(n_rows: int, shape: Shape) -> str:
    """Return a number of rows with its noun.

    >>> counted(1, "matches"), counted(1234, "events")
    ('1 match', '1,234 matched events')
    """
    one, many = ("matched event", "matched events") if shape == "events" else ("match", "matches")
    return f"{n_rows:,} {one if n_rows == 1 else many}"


def counted_events(n_events: int) -> str:
    """Return a number of events with the noun.

    >>> counted_events(1), counted_events(1234)
    ('1 event', '1,234 events')
    """
    return f"{n_events:,} {'event' if n_events == 1 else 'events'}"


def shown(n_rows: int, shape: Shape) -> str:
    """Return what the table shows; one row more than the table takes means that there are more.

    >>> shown(7, "matches"), shown(21, "matches")
    ('7 matches', 'the first 20 matches')
    """
    return counted(n_rows, shape) if n_rows <= N_SHOWN else f"the first {counted(N_SHOWN, shape)}"
