"""Complex event recognition: find every set of events in a stream that satisfies a pattern."""

from ceql.errors import CeqlError, DataError, QueryError, SnapshotError
from ceql.query import Query, compile
from ceql.schema import Schema

__all__ = ["CeqlError", "DataError", "Query", "QueryError", "Schema", "SnapshotError", "compile"]

__version__ = "0.1.0"
