"""Errors of Spark in the user's words, instead of a Java stack trace."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException

from ceql.backends.files import FileError
from ceql.errors import CeqlError, DataError, JobError, SnapshotError

SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)
"""The errors that Spark raises; the last two mean that its JVM is gone."""

_IN_TASK = re.compile(
    r"^ceql\.backends\.spark\.task\.TaskError: (\w+): (.*?)(?:(?:\n|, )query:\n|\Z)", re.DOTALL | re.MULTILINE
)
_RAISED_IN_PYTHON = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+([\w.]+): (.*)$", re.MULTILINE)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] (.*?)(?: SQLSTATE: \w+|$)", re.DOTALL)
_STREAM_FAILED = re.compile(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ")
"""The text before the reason when a stream fails."""
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.+)$", re.MULTILINE)
_LAST_FAILURE = re.compile(r"most recent failure: Lost task .*?\): (?:[\w.$]+: )?(.*)")
_JAVA_CLASS = re.compile(r"^(?:: )?(?:[a-z]\w*\.)+[A-Z][\w$]*: ")

_WRONG_DATA = ("MALFORMED_", "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE", "CANNOT_MERGE_SCHEMAS", "INVALID_JSON")
_DAMAGED_CHECKPOINT = ("MALFORMED_LOG_FILE", "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY")
_NO_SUCH_FORMAT = ("DATA_SOURCE_NOT_FOUND", "AVRO_DATA_SOURCE_NOT_ENABLED")

NO_COLUMNS = "there are no events to take the columns from"
_FILES = {
    "PATH_NOT_FOUND": ("there is no such file or folder", None),
    "UNABLE_TO_INFER_SCHEMA": (NO_COLUMNS, None),
    "PATH_ALREADY_EXISTS": ("it exists already", "mode 'overwrite' replaces it, 'append' adds to it"),
}
"""Conditions that Spark names, and what they mean for a file: message and hint."""
_IN_MICROSECONDS = "write it with coerce_timestamps='us', as pandas and pyarrow can, or use ceql run --engine local"
_NANOSECONDS = ("it has times in nanoseconds, which Spark does not read", _IN_MICROSECONDS)
_OTHER_TYPE = re.compile(r"column \[(.+?)\]\. Expected Spark type (\w+), actual Parquet type (\w+)")

_FORMATS = ("parquet", "csv", "json", "orc", "text", "xml")
_FORMATS_OF_PACKAGES = ("avro", "delta", "hudi", "iceberg")

_HINTS = {
    r"OutOfMemoryError|Java heap space": "give it more with spark.driver.memory or spark.executor.memory",
    r"Python worker exited": "the system may have stopped it because memory ran out; fewer tasks at once need less",
}


def explained(error: Exception) -> CeqlError:
    """Return an error of Spark as one of ours: a `DataError` if the data are wrong, else a `JobError`.

    If a stream's checkpoint belongs to another query, it is a `SnapshotError`.
    """
    text = _STREAM_FAILED.sub("", str(error))
    if isinstance(error, StreamingQueryException):
        # The text of other errors includes the chain of causes.
        text = f"{text}\n{getattr(error, '_stackTrace', '')}"
    if found := _IN_TASK.search(text):
        kind, message = found[1], found[2].strip()
        known_kinds = {kind.__name__: kind for kind in (DataError, SnapshotError)}
        return known_kinds[kind](message) if kind in known_kinds else JobError(f"{kind}: {message}")
    if raised := _RAISED_IN_PYTHON.findall(text):
        kind, message = raised[-1]
        return JobError(message if kind == ImportError.__name__ else f"{kind}: {message}")
    known = _known_condition(text)
    return known or JobError(*_in_short(text))


def _known_condition(text: str) -> DataError | SnapshotError | None:
    """Return the error for a condition that Spark names; None if it says nothing about the data or a checkpoint."""
    found = _CONDITION.search(text)
    if found is None:
        return None
    condition, message = found[1], " ".join(found[2].split())
    if condition in _FILES:
        return FileError(*_FILES[condition])
    if condition == "PARQUET_TYPE_ILLEGAL" and "NANOS" in message:
        return FileError(*_NANOSECONDS)
    if condition in _NO_SUCH_FORMAT:
        return _unknown_format(message)
    if condition in _DAMAGED_CHECKPOINT:
        return SnapshotError("the checkpoint is damaged", "start again with a new checkpoint and a new output folder")
    if condition.startswith("FAILED_READ_FILE"):
        return _unreadable_file(message, text)
    return DataError(message) if condition.startswith(_WRONG_DATA) else None


def _unknown_format(message: str) -> FileError:
    found = re.search(r"data source: ([\w.-]*\w)", message)
    name = found[1] if found else "avro"
    if name.lower() in _FORMATS_OF_PACKAGES:
        hint = "name its package in the setting spark.jars.packages"
    else:
        hint = f"it has {', '.join(_FORMATS)}; others need their package in the setting spark.jars.packages"
    return FileError(f"Spark does not have the format '{name}'", hint)


def _unreadable_file(message: str, text: str) -> FileError:
    path = re.search(r"file (\S+?)\.?(?: |$)", message)
    name = path[1] if path else "a file"
    if other := _OTHER_TYPE.search(message):
        # Times in nanoseconds are stored as such integers.
        hint = f"if these are nanoseconds, {_IN_MICROSECONDS}" if other[3] == "INT64" and "time" in other[2] else None
        return FileError(f"{name}: column '{other[1]}' is not of type {other[2]}, but {other[3]}", hint)
    # In a chain of causes the last is about the file; the others only say that a task failed.
    causes = _CAUSE.findall(text)
    reason = causes[-1].strip() if causes else message
    if condition := _CONDITION.search(reason):
        reason = " ".join(condition[2].split())
    is_malformed = "MALFORMED" in text or "Malformed" in text
    hint = "the reader's option mode=PERMISSIVE reads values that do not fit as NULL" if is_malformed else None
    return FileError(f"{name}: {reason}", hint)


def _in_short(text: str) -> tuple[str, str | None]:
    """Return one line for an error, and a hint if there is one."""
    hint = next((hint for pattern, hint in _HINTS.items() if re.search(pattern, text)), None)
    if found := _LAST_FAILURE.search(text):
        return found[1].strip(), hint
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("An error occurred while")]
    line = re.sub(r"\s+SQLSTATE: \w+$", "", lines[0]) if lines else "Spark gives no reason"
    return _JAVA_CLASS.sub("", line).strip(), hint
