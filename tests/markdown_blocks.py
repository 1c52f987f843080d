"""Code blocks, pictures and links of Markdown pages, and what their examples do when they are run.

```python          runs; what it prints is the ```output block right after it, else its comments at the margin
```python norun    is only parsed: it needs a cluster, a broker, or an address
```ceql            compiles
```matches         a picture: the query is the ```ceql block before it
```text            where it begins with `stream`: short examples, `stream`, `query` and `matches`
"""

from __future__ import annotations

import contextlib
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

import ceql

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Block:
    """A fenced block: what stands after the fence, its text, and its line on the page."""

    info: str
    text: str
    page: Path
    line: int
    follows: Block | None = field(default=None, repr=False)
    """The block before, if nothing stands between the two."""

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    found: list[Block] = []
    text = page.read_text(encoding="utf-8")
    end = 0
    for fence in re.finditer(r"^```([^`\n]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        is_next = found and not text[end : fence.start()].strip()
        line = text.count("\n", 0, fence.start()) + 1
        found.append(Block(fence[1].strip(), fence[2], page, line, found[-1] if is_next else None))
        end = fence.end()
    return found


# --- Python ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Code:
    """Python of a page, what it must print, and whether it needs a session of Spark."""

    block: Block
    printed: list[str]
    needs_spark: bool

    def run(self, names: dict[str, Any], folders: Mapping[str, str] | None = None) -> list[str]:
        """Run in a namespace and return the lines printed; `folders` says where those are that the page names."""
        text = self.block.text
        for named, real in (folders or {}).items():
            text = text.replace(f'"{named}"', repr(real))
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            # Line numbers of errors are those of the page.
            exec(compile("\n" * self.block.line + text, str(self.block.page), "exec"), names)
        return [line.rstrip() for line in output.getvalue().rstrip("\n").splitlines()]


def python_of(page: Path) -> list[Code]:
    """Return the Python of a page that runs; where it has come to Spark, all that follows needs it."""
    shown = {one.follows: one for one in blocks(page) if one.info == "output"}
    code, needs_spark = [], False
    for block in blocks(page):
        if block.info == "python":
            needs_spark = needs_spark or "spark" in block.text
            printed = shown[block].text.splitlines() if block in shown else _comments(block.text)
            code.append(Code(block, printed, needs_spark))
    return code


def _comments(code: str) -> list[str]:
    return [line.removeprefix("#").removeprefix(" ") for line in code.splitlines() if line.startswith("#")]


# --- pictures -------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    """A query, a stream, and the matches that a page claims: for each its interval and the variables by position."""

    query: str
    events: list[dict[str, Any]]
    matches: list[tuple[tuple[int, int], dict[int, frozenset[str]]]]
    place: str
    complete: bool = False
    """Whether nothing comes after these events."""

    def __str__(self) -> str:
        return self.place


def pictures(page: Path) -> list[Example]:
    """Return the examples that a page draws."""
    found = []
    for block in blocks(page):
        if block.info == "matches":
            query = block.follows
            assert query is not None, f"{block}: no query right before it"
            assert query.info == "ceql", f"{block}: no query right before it"
            found.append(_picture(query.text, block))
    return found


_COMPLETE = "complete=True"


def _picture(query: str, block: Block) -> Example:
    """Return the example in a picture.

    The first line numbers the positions, and each number begins a column. Lines called `match` have in each column the
    variables that hold that event; a dot is the first or last event where no variable holds it. A line `complete=True`
    gives that option. All other lines are attributes, `event` being the type; a missing value is NULL.
    """
    first, *lines = [line for line in block.text.splitlines() if line != _COMPLETE]
    assert first.startswith("position"), f"{block}: a picture begins with the positions"
    starts = [number.start() for number in re.finditer(r"\d+", first)]
    assert first.split()[1:] == [str(number) for number in range(len(starts))], f"{block}: positions count from 0"
    events: list[dict[str, Any]] = [{} for _ in starts]
    matches = []
    for line in lines:
        name = line[: starts[0]].strip()
        cells = [line[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
        assert all(line[start - 1 : start].isspace() or start > len(line) for start in starts), f"{block}: {line!r}"
        if name.startswith("match"):
            matches.append(_drawn(cells))
        elif name != "no match":
            for event, cell in zip(events, cells, strict=True):
                event["type" if name == "event" else name] = cell if name == "event" else _value(cell)
    return Example(query, events, matches, str(block), _COMPLETE in block.text.splitlines())


def _drawn(cells: list[str]) -> tuple[tuple[int, int], dict[int, frozenset[str]]]:
    touched = [position for position, cell in enumerate(cells) if cell]
    held = {position: frozenset(cells[position].split(",")) for position in touched if cells[position] != "."}
    return (touched[0], touched[-1]), held


def short_examples(page: Path) -> list[Example]:
    """Return the examples that a page writes as `stream`, `query` and `matches`."""
    return [
        example
        for block in blocks(page)
        if block.info == "text" and block.text.startswith("stream")
        for example in _short(block)
    ]


def _short(block: Block) -> Iterator[Example]:
    parts: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line[:1].strip():
            parts.append((line.split()[0], [line.split(maxsplit=1)[1]]))
        else:
            parts[-1][1].append(line.strip())
    events = _events(parts[0][1][0])
    for (_, query), (_, claimed) in zip(parts[1::2], parts[2::2], strict=True):
        lines = [one for line in claimed for one in line.split(" | ") if one != "none"]
        yield Example(" ".join(query), events, [_claimed(one) for one in lines], str(block))


def _events(text: str) -> list[dict[str, Any]]:
    """Return the events of a line such as `A0 T>B1(v=1, s="a b")`."""
    events = []
    for one in re.finditer(r"(?:(\w+)>)?([A-Z]+)(\d+)(?:\(((?:\"[^\"]*\"|[^)])*)\))?", text):
        stream, event_type, position, attributes = one.groups()
        assert int(position) == len(events), text
        pairs = re.findall(r"(\w+)=(\"[^\"]*\"|[^,)]+)", attributes or "")
        named = {} if stream is None else {"stream": stream}
        events.append({"type": event_type} | named | {name: _value(value.strip()) for name, value in pairs})
    return events


def _claimed(text: str) -> tuple[tuple[int, int], dict[int, frozenset[str]]]:
    """Return a match such as `[0,3] x=0 z=2,3`; without brackets it has the interval of its positions."""
    held: dict[int, set[str]] = {}
    for name, positions in re.findall(r"(\w+)=([\d,]+)", text):
        for position in positions.split(","):
            held.setdefault(int(position), set()).add(name)
    interval = re.match(r"\[(\d+),(\d+)\]", text)
    bounds = (int(interval[1]), int(interval[2])) if interval else (min(held), max(held))
    return bounds, {position: frozenset(names) for position, names in held.items()}


def _value(text: str) -> Any:
    if not text:
        return None
    if text[0] == '"':
        return text.strip('"')
    if re.fullmatch(r"\d+:\d\d(:\d\d)?", text):
        return datetime.fromisoformat(f"2024-01-31 {text:0>5}")
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def found(example: Example) -> tuple[Counter[Any], set[Any]]:
    """Return what ceql finds: each match as its variables by position, and each interval with its positions."""
    events = _given(example.events)
    held: dict[Any, list[tuple[int, frozenset[str]]]] = {}
    options: dict[str, Any] = {"order_by": ["position"]} if isinstance(events, dict) else {}
    if example.complete:
        options["complete"] = True
    for row in ceql.match(example.query, events, shape="events", **options).to_arrow().to_pylist():
        held.setdefault(row["match_id"], []).append((row["position"], frozenset(row["variables"])))
    rows = ceql.match(example.query, events, shape="positions", **options).to_arrow().to_pylist()
    return (
        Counter(frozenset(one) for one in held.values()),
        {(row["start"], row["end"], tuple(row["positions"])) for row in rows},
    )


def claimed(example: Example) -> tuple[Counter[Any], set[Any]]:
    """Return what a page claims, as `found` has it."""
    return (
        Counter(frozenset(held.items()) for _, held in example.matches if held),
        {(*interval, tuple(sorted(held))) for interval, held in example.matches},
    )


def _given(events: list[dict[str, Any]]) -> Any:
    """Return the events as `ceql.match` takes them, each with its position; by stream if they name streams."""
    names = dict.fromkeys(name for event in events for name in event)
    rows = [{"position": position, **event} for position, event in enumerate(events)]
    table = pa.table({name: [row.get(name) for row in rows] for name in ("position", *names)})
    if "stream" not in names:
        return table
    streams = table["stream"].unique().to_pylist()
    whole = table.drop_columns(["stream"]).to_pylist()
    return {name: [one for one, row in zip(whole, rows, strict=True) if row["stream"] == name] for name in streams}


# --- links ----------------------------------------------------------------------------


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def links(page: Path) -> list[str]:
    """Return the targets of a page's links, without those in code."""
    text = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "code", prose(page))
    return re.findall(r"\]\(([^)\s]+)\)", text)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub names them."""
    known: Counter[str] = Counter()
    names = set()
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        names.add(f"{name}-{known[name]}" if known[name] else name)
        known[name] += 1
    return names
