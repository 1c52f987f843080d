"""Complex event recognition: find every set of events in a stream that satisfies a pattern."""

from typing import Any

from ceql.errors import CeqlError, CeqlWarning, DataError, QueryError, SnapshotError
from ceql.query import Query, compile
from ceql.schema import Schema
from ceql.version import __version__ as __version__

__all__ = [
    "CeqlError",
    "CeqlWarning",
    "DataError",
    "Match",
    "Matches",
    "Query",
    "QueryError",
    "Schema",
    "Session",
    "SnapshotError",
    "compile",
    "match",
]

_ENGINE = {
    "Match": "ceql.engine.results.matches",
    "Matches": "ceql.engine.results.matches",
    "Session": "ceql.engine.session",
    "match": "ceql.backends.local",
}


def __getattr__(name: str) -> Any:
    """Import the engine at its first use: checking queries needs no compiler."""
    if name not in _ENGINE:
        raise AttributeError(f"module 'ceql' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_ENGINE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
