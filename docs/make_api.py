"""Writes `api.md`: signatures and docstrings of all public names, as Markdown. Run it after changing a docstring."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "api.md"

MODULES = {
    "ceql": ["match", "compile", "Query", "Matches", "Match", "Session", "Schema"],
    "ceql.spark": ["match", "matcher", "bad_records", "explain", "session"],
    "errors": ["CeqlError", "QueryError", "DataError", "SnapshotError", "CeqlWarning"],
}
"""The names of each section, the most used first; a public name that is missing here is an error."""

CONSTRUCTED = {"ceql.Session"}
"""Classes that users call; all others they get from functions."""

INSIDE = {"Session.read", "Session.limits", "Session.pipeline", "Matches.begin", "Query.draft", "Query.tree"}
"""Members that only other modules of the package use."""

HEAD = """# API reference

Made from the docstrings by `docs/make_api.py`: change them there, then run it. How to use all this is in the
[tutorial](tutorial.md).
"""

MAX_LINE = 100


def reference() -> str:
    """Return the text of the page."""
    for module, others in (("ceql", MODULES["errors"]), ("ceql.spark", [])):
        missing = set(importlib.import_module(module).__all__) - {*MODULES[module], *others}
        if missing:
            raise LookupError(f"{module} has names that the reference lacks: {', '.join(sorted(missing))}")
    parts = [HEAD]
    for title, names in MODULES.items():
        prefix = "ceql" if title == "errors" else title
        module = importlib.import_module(prefix)
        parts += [f"## {title.capitalize() if title == 'errors' else title}\n"]
        parts += [part for name in names for part in _described(f"{prefix}.{name}", getattr(module, name))]
    return "\n".join(parts)


def _described(path: str, thing: Any) -> Iterator[str]:
    if not inspect.isclass(thing):
        yield from _section(path, thing, 3)
        return
    yield f"### {path}\n"
    if path in CONSTRUCTED:
        yield _signature(path, thing)
    yield _text(thing)
    for name, member in _members(thing):
        if isinstance(member, property):
            yield f"#### {path}.{name}\n\n{_text(member.fget)}"
        else:
            yield from _section(f"{path}.{name}", getattr(thing, name), 4)


def _section(path: str, thing: Any, level: int) -> Iterator[str]:
    yield f"{'#' * level} {path}\n"
    yield _signature(path, thing)
    yield _text(thing)


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class that say what they do, in the order of the source."""
    fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    for name, member in vars(kind).items():
        is_told = isinstance(member, property | classmethod | staticmethod) or inspect.isfunction(member)
        if not name.startswith("_") and name not in fields and is_told and f"{kind.__name__}.{name}" not in INSIDE:
            yield name, member


def _signature(path: str, thing: Any) -> str:
    """Return the call of a function or class as a block of Python; types are those of the source."""
    signature = inspect.signature(thing)
    parameters, is_keyword_only = [], False
    for one in signature.parameters.values():
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and not is_keyword_only:
            parameters.append("*")
            is_keyword_only = True
        parameters.append(_parameter(one))
    returned = "" if signature.return_annotation in (signature.empty, None, "None") else f" -> {_type(signature)}"
    line = f"{path}({', '.join(parameters)}){returned}"
    if len(line) > MAX_LINE:
        line = f"{path}(\n" + "".join(f"    {one},\n" for one in parameters) + f"){returned}"
    return f"```text\n{line}\n```\n"


def _type(signature: inspect.Signature) -> str:
    annotation = signature.return_annotation
    return annotation if isinstance(annotation, str) else annotation.__name__


def _parameter(one: inspect.Parameter) -> str:
    stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    typed = "" if one.annotation is one.empty else f": {one.annotation}"
    if one.default is one.empty:
        return f"{stars}{one.name}{typed}"
    default = "..." if dataclasses.is_dataclass(one.default) else repr(one.default)
    return f"{one.name}{typed}{' = ' if typed else '='}{default}"


def _text(thing: Any) -> str:
    """Return a docstring as Markdown: the arguments become a list, examples a block."""
    text = inspect.getdoc(thing)
    if not text:
        raise LookupError(f"{thing.__qualname__} has no docstring")
    lines, is_listing = [], False
    for line in text.splitlines():
        item = re.match(r"    (\w+): (.*)", line)
        if line == "Args:":
            is_listing = True
        elif is_listing and item:
            lines.append(f"- `{item[1]}`: {item[2]}")
        elif is_listing and line.startswith("        "):
            lines.append(f"  {line.strip()}")
        else:
            is_listing = is_listing and not line
            lines.append(line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
