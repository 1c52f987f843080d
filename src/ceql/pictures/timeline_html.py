"""Matches on a timeline: a single HTML page that needs nothing else, with a lane per variable.

Events are dots, a match is a line through its events. The page is bounded: it shows the first 200
matches, and no more events than a page can hold.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow as pa

from ceql.errors import DataError
from ceql.pictures.places import place_events
from ceql.pictures.shown_matches import MAX_MATCHES, MAX_ROWS, Attributes, ShownMatch, ShownMatches, read_matches

MAX_DOTS = 20_000
"""Most events of all matches together that a page shows."""
MAX_VALUE = 200
"""Longest value that is shown."""

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]", re.ASCII)


@dataclass(frozen=True)
class Timeline:
    """A page with matches on a timeline; shows itself in a notebook."""

    html: str
    n_lanes: int

    def write(self, path: str | Path) -> None:
        """Write the page into a file."""
        Path(path).write_text(self.html, encoding="utf-8")

    def _repr_html_(self) -> str:
        # In a frame, so that the styles of the notebook and of the page do not mix.
        height = min(640, max(330, 220 + 60 * self.n_lanes))
        page = html.escape(self.html.replace("<body>", '<body class="embedded">', 1), quote=True)
        return (
            f'<iframe sandbox="allow-scripts" style="width:100%;height:{height}px;border:0" title="matches" '
            f'srcdoc="{page}"></iframe>'
        )


def timeline(
    matches: Any, *, time: str | None = None, query: str | None = None, title: str = "Matches", total: int | None = None
) -> Timeline:
    """Return the first matches on a timeline.

    Args:
        matches: the result of a query in any shape: `Matches`, a Spark DataFrame, or anything that exports Arrow
            streams. From a lazy result, no more than a few hundred matches are read.
        time: the attribute to place events by; by default that of `match_start` and `match_end`.
        query: the query's text, shown above.
        title: the page's title.
        total: how many matches there are, if that is known.
    """
    shown = read_matches(*_schema_and_batches(matches))
    if shown.has_more and total is not None:
        shown.total = total
    return timeline_of(shown, time=time, query=query, title=title)


def _schema_and_batches(matches: Any) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    if hasattr(matches, "toArrow"):
        # Spark would collect all rows otherwise.
        table = matches.limit(1 + (MAX_ROWS if "match_id" in matches.columns else MAX_MATCHES)).toArrow()
        return table.schema, table.to_batches()
    if hasattr(matches, "batches"):
        return matches.schema, matches.batches()
    if not hasattr(matches, "__arrow_c_stream__"):
        kind = type(matches).__name__
        raise DataError(f"a {kind} is not the result of a query", "give Matches, a DataFrame or a table")
    reader = pa.RecordBatchReader.from_stream(matches)
    return reader.schema, reader


def timeline_of(
    shown: ShownMatches, *, time: str | None = None, query: str | None = None, title: str = "Matches"
) -> Timeline:
    """Return a timeline of matches that were read already."""
    data = json.dumps(_data(shown, time), ensure_ascii=False, separators=(",", ":"))
    parts = {
        "title": html.escape(title),
        "count": html.escape(counted(shown)),
        "query": _query(query),
        "style": _resource("timeline.css"),
        "script": _resource("timeline.js"),
        # A script element must not contain the beginning of a tag or a comment.
        "data": data.replace("<", "\\u003c"),
    }
    page = re.sub(r"{{(\w+)}}", lambda mark: parts[mark[1]], _resource("timeline.html"))
    return Timeline(page, max(1, len(shown.variables)))


def counted(shown: ShownMatches) -> str:
    """Return in words how many of all matches are shown."""
    n_shown = len(shown.matches)
    if not shown.has_more:
        return f"{n_shown:,} {'match' if n_shown == 1 else 'matches'}"
    if shown.total is None:
        return f"{n_shown:,} of more than {n_shown:,} matches shown"
    return f"{n_shown:,} of {shown.total:,} matches shown"


def _query(text: str | None) -> str:
    if not text:
        return ""
    return f"<details><summary>Query</summary><pre>{html.escape(text.strip())}</pre></details>"


@cache
def _resource(name: str) -> str:
    return resources.files("ceql.pictures").joinpath(name).read_text(encoding="utf-8")


def _data(shown: ShownMatches, time: str | None) -> dict[str, Any]:
    """Return the data for the page's script: each event once, and matches as numbers of events."""
    axis, places = place_events(shown, time)
    events = _Events(max(20, MAX_DOTS // max(1, len(shown.matches))))
    matches = [_match_data(match, events.numbers(match, row)) for match, row in zip(shown.matches, places, strict=True)]
    is_cut = any(match["more"] for match in matches)
    return {
        "axis": asdict(axis),
        "note": "; ".join(
            filter(None, [axis.note, "only the first events of long matches are drawn" if is_cut else ""])
        ),
        "lanes": shown.variables,
        "matches": matches,
        "attributes": list(events.attributes),
        "events": events.rows,
    }


class _Events:
    """Numbers events. Events that look the same in two matches are one event; in the same match they are two."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.rows: list[tuple[float | None, int, list[tuple[int, str | None]]]] = []
        self.attributes: dict[str, int] = {}
        self._known: dict[Any, int] = {}

    def numbers(self, match: ShownMatch, places: list[float | None]) -> list[int]:
        """Return the numbers of the first events of a match, in their order."""
        order = [(place is None, place or 0.0, match.events[n][0], n) for n, place in enumerate(places)]
        held: dict[int, None] = {}
        for *_, n in sorted(order)[: self.most]:
            lane, values = match.events[n]
            shown = [(self._attribute(name), shown_value(value)) for name, value in values.items()]
            key: Any = (lane, places[n], tuple(shown))
            while self._known.setdefault(key, len(self.rows)) in held:
                key = (key, "again")
            if self._known[key] == len(self.rows):
                self.rows.append((places[n], lane, shown))
            held[self._known[key]] = None
        return list(held)

    def _attribute(self, name: str) -> int:
        return self.attributes.setdefault(name, len(self.attributes))


def _match_data(match: ShownMatch, held: list[int]) -> dict[str, Any]:
    start, end = (_without_zone(shown_value(bound)) for bound in (match.start, match.end))
    if start and end and _MOMENT.match(start) and start[:11] == end[:11]:
        end = end[11:]
    n_more = match.n_left_out + len(match.events) - len(held)
    key = ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in _shown(match.partition).items())
    return {"events": held, "span": [start, end], "key": key, "more": n_more}


def _without_zone(text: str | None) -> str | None:
    """Return a time without its UTC suffix, because the axis shows the zone."""
    return re.sub(r"(\+00:00|Z)$", "", text) if text and _MOMENT.match(text) else text


def _shown(values: Attributes) -> dict[str, str | None]:
    return {name: shown_value(value) for name, value in values.items()}


def shown_value(value: Any) -> str | None:
    """Return a value as the page shows it, None for NULL.

    >>> shown_value(2.5), shown_value(True), shown_value({"a": 1}), shown_value(None)
    ('2.5', 'TRUE', '{"a": 1}', None)
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, datetime) and value.microsecond:
        value = re.sub(r"(\.\d+?)0+(?=\D|$)", r"\1", str(value))
    if isinstance(value, dict | list):
        value = json.dumps(value, default=str, ensure_ascii=False)
    text = str(value)
    return text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 1] + "…"
