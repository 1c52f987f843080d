"""Reads events from files and writes rows to files through Spark, in any format that Spark has."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path, PurePosixPath
from typing import Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's own documentation writes it
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StringType, StructField, StructType

from ceql.backends.files import TABLES, FileError, format_hint
from ceql.backends.files import format_of as format_of_suffix
from ceql.backends.iso_times import SPARK_PATTERN
from ceql.backends.json_lines import SPARK_OPTIONS, SPARK_TIMES
from ceql.backends.spark.failures import NO_COLUMNS, SPARK_ERRORS, explained
from ceql.backends.spark.predicates import quoted
from ceql.backends.text_files import begins_with_array, check_delimiter
from ceql.errors import DataError

Mode = Literal["error", "overwrite", "append"]

_TIMES = {"timeZone": "UTC", "timestampFormat": SPARK_PATTERN, "enableDateTimeParsingFallback": "true"}
READER_DEFAULTS = {
    # Values that do not fit, and files with other headers, are errors: by default Spark would read NULL, or columns by
    # position. Times without a zone are in UTC, as they are in queries. Quotes within quotes are doubled, as in the
    # files of nearly all other programs. Text is a time only if it has the full form: by default Spark also takes 2024
    # and 10:00 for times. A column that is declared as a time may have any form that Spark knows.
    "csv": {
        "header": "true",
        "escape": '"',
        "mode": "FAILFAST",
        "enforceSchema": "false",
        "dateFormat": "yyyy-MM-dd",
        **_TIMES,
    },
    "json": {"mode": "FAILFAST", "inferTimestamp": "true", **_TIMES},
}
WRITER_DEFAULTS = {
    "csv": {"header": "true", "escape": '"', **SPARK_TIMES},
    "json": SPARK_OPTIONS,
}
OTHER_SUFFIXES = (".orc", ".avro", ".delta", ".xml")
"""Suffixes that name a format of Spark, beside the formats of the local engine."""


def read_frame(
    spark: SparkSession,
    paths: Sequence[str],
    *,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    declared: Mapping[str, pa.DataType] | None = None,
    is_complete: bool = False,
) -> DataFrame:
    """Return the events of files, folders and glob patterns, or raise `FileError`.

    Args:
        spark: the session that reads.
        paths: what to read, as one stream.
        format: a format of Spark; by default that of the suffix, or of the files in a folder.
        options: options of Spark's reader.
        declared: the types of columns, as far as they are known. They are used for CSV and JSON, which have no types.
        is_complete: whether only the declared columns matter; then JSON is read once, not twice.
    """
    try:
        chosen = format or _format_of_files(spark, paths)
        defaults = READER_DEFAULTS.get(chosen, {})
        if chosen == "json" and all(_here(path).is_file() and begins_with_array(_here(path)) for path in paths):
            defaults = defaults | {"multiLine": "true"}
        reader = spark.read.format(chosen).options(**_with_defaults(defaults, options or {}))
        if chosen == "csv":
            reader = reader.schema(_csv_schema(reader, paths, options or {}, declared or {}))
            return _untyped_if_empty(reader.load(list(paths)), declared or {})
        elif chosen == "json" and declared:
            reader = reader.schema(_json_schema(reader, paths, declared, is_complete=is_complete))
        events = reader.load(list(paths))
        if not events.columns:
            raise FileError(f"cannot read {', '.join(paths)}: {NO_COLUMNS}")
        return events
    except SPARK_ERRORS as error:
        raise _cannot("read", ", ".join(paths), error) from error


def stream_frame(
    spark: SparkSession,
    path: str,
    schema: StructType,
    *,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    max_files: int | None = None,
) -> DataFrame:
    """Return the events of a folder or glob pattern as a stream that goes on with each new file, or raise `FileError`.

    The default format is that of the files there. `max_files` is the most files that a micro-batch reads.
    """
    try:
        chosen = format or _format_of_files(spark, [path])
        reader = spark.readStream.format(chosen).schema(schema)
        reader = reader.options(**_with_defaults(READER_DEFAULTS.get(chosen, {}), options or {}))
        if max_files is not None:
            reader = reader.option("maxFilesPerTrigger", max_files)
        return reader.load(path)
    except SPARK_ERRORS as error:
        raise _cannot("read", path, error) from error


def has_files(spark: SparkSession, path: str) -> bool:
    """Return whether there is any file in a folder or pattern, or raise `FileError` if there is no such folder."""
    try:
        return bool(spark.read.format("text").option("recursiveFileLookup", "true").load(path).inputFiles())
    except SPARK_ERRORS as error:
        is_pattern = any(character in path for character in "*?[{")
        if is_pattern and "PATH_NOT_FOUND" in str(error):
            return False
        raise _cannot("read", path, error) from error


def stream_writer(rows: DataFrame, path: str, checkpoint: str, *, format: str | None = None) -> DataStreamWriter:
    """Return a writer of a stream's rows to a folder, not yet started; formats are those of `write_frame`."""
    chosen = output_format(path, format)
    writer = (_as_csv_holds(rows) if chosen == "csv" else rows).writeStream.format(chosen)
    writer = writer.options(**_writer_options(path, chosen), path=path, checkpointLocation=checkpoint)
    return writer.outputMode("append")


def check_checkpoint(spark: SparkSession, path: str, checkpoint: str) -> None:
    """Refuse an output folder that does not belong to the checkpoint.

    Spark numbers micro-batches by the checkpoint, and does not write a batch whose number the output already has:
    matches would be missing without any error.
    """
    has_begun = _is_there(spark, f"{checkpoint.rstrip('/')}/offsets/[0-9]*")
    has_committed = _is_there(spark, f"{checkpoint.rstrip('/')}/commits/[0-9]*")
    folder = path.rstrip("/")
    has_output = _is_there(spark, f"{folder}/_spark_metadata/[0-9]*")
    if not has_begun and (has_output or _is_there(spark, f"{folder}/part-*")):
        raise FileError(
            f"{path} has results already, and {checkpoint} is not their checkpoint",
            "a new checkpoint needs a new output folder",
        )
    if has_committed and not has_output:
        raise FileError(
            f"the checkpoint {checkpoint} belongs to another output than {path}",
            "name the output folder of this checkpoint, or a new checkpoint",
        )


def check_not_a_file(path: str) -> None:
    """Refuse a file on this machine as a stream: no further file can be added to it."""
    if _here(path).is_file():
        raise FileError(f"{path} is a file", "name the folder where files arrive, or a glob pattern")


def check_apart(folders: Mapping[str, str]) -> None:
    """Refuse folders on this machine, given by their purpose, if one lies in another: its files would be read.

    A folder whose name begins with an underscore or a dot is hidden, so a checkpoint with such a name may lie there.
    """
    for (what, folder), (other_what, other) in permutations(folders.items(), 2):
        inner, outer = _here(folder).resolve(), _here(other).resolve()
        if inner == outer:
            raise FileError(f"{what} and {other_what} are the same: {folder}")
        if outer in inner.parents and not inner.relative_to(outer).parts[0].startswith(("_", ".")):
            raise FileError(f"the {what} {folder} lies within the {other_what} {other}", "name a folder elsewhere")


def write_frame(rows: DataFrame, path: str, *, format: str | None = None, mode: Mode = "error") -> None:
    """Write rows to a folder, as Spark does, or raise `DataError` or `JobError`.

    The default format is that of the path's suffix, or else Parquet. CSV has no structs and lists, so they are
    written as JSON within a cell.
    """
    chosen = output_format(path, format)
    if chosen == "csv":
        rows = _as_csv_holds(rows)
    try:
        rows.write.format(chosen).mode(mode).options(**_writer_options(path, chosen)).save(path)
    except SPARK_ERRORS as error:
        raise explained(error) from error


def output_format(path: str, format: str | None = None) -> str:
    """Return the format in which rows are written to a path.

    >>> output_format("matches.csv.gz"), output_format("matches"), output_format("matches", "orc")
    ('csv', 'parquet', 'orc')
    """
    return format or _format_of_name(path) or "parquet"


def check_output(path: str, mode: Mode, inputs: Collection[str]) -> None:
    """Before anything runs, refuse an output folder on this machine that already exists or would be lost."""
    target = _here(path)
    if not target.exists():
        return
    for text in inputs:
        source = _here(text)
        if source.exists() and source.samefile(target):
            raise FileError(f"input and output are the same: {path}")
    if mode == "error":
        raise FileError(f"{path} exists already", "--mode overwrite replaces it, --mode append adds to it")
    if mode == "overwrite" and target.is_dir():
        _check_replaceable(target)


@contextmanager
def without_leftovers(path: str) -> Iterator[None]:
    """Remove the folder that a failed job leaves on this machine: it would block the next job."""
    target = _here(path)
    was_there = target.exists()
    try:
        yield
    except BaseException:
        is_unfinished = target.is_dir() and all(file.name.startswith(("_", ".")) for file in target.iterdir())
        if is_unfinished and not was_there:
            shutil.rmtree(target, ignore_errors=True)
        raise


def _here(path: str) -> Path:
    """Return a path on this machine, also if it is given as an address."""
    return Path(re.sub("^file:(//)?", "", path))


def _check_replaceable(folder: Path) -> None:
    """Refuse to replace a folder that holds more than results: Spark would remove everything in it."""
    others = sorted(file.name for file in folder.iterdir() if not file.name.startswith(("part-", "_", ".")))
    if others:
        raise FileError(
            f"{folder} is not replaced: it holds files that Spark did not write, such as {others[0]}",
            "name another folder, or remove this one yourself",
        )


def _format_of_files(spark: SparkSession, paths: Sequence[str]) -> str:
    """Return the format of some paths by their suffixes, or by the suffixes of the files in them."""
    formats = {_format_of_name(path) or _format_in_folder(spark, path) for path in paths}
    if len(formats) > 1:
        raise FileError(f"cannot read {', '.join(paths)} together: the formats are {', '.join(sorted(formats))}")
    return formats.pop()


def _format_in_folder(spark: SparkSession, path: str) -> str:
    if _is_there(spark, f"{path.rstrip('/')}/_delta_log"):
        return "delta"
    # Spark lists the files, on any file system, and reads none.
    names = spark.read.format("text").option("recursiveFileLookup", "true").load(path).inputFiles()
    formats = {_format_of_name(name) for name in names} - {None}
    if len(formats) == 1:
        return str(formats.pop())
    if formats:
        raise FileError(f"{path} has files of several formats: {', '.join(sorted(map(str, formats)))}", "give --format")
    hint = format_hint(path) if path.lower().endswith(TABLES) else "give --format"
    raise FileError(f"cannot tell the format of {path} from its suffix or its files", hint)


def _is_there(spark: SparkSession, path: str) -> bool:
    try:
        spark.read.format("text").load(path)
    except SPARK_ERRORS:
        return False
    return True


def _format_of_name(path: str) -> str | None:
    name = PurePosixPath(path.rstrip("/")).name.lower()
    found = format_of_suffix(name)
    if found == "arrow":
        raise FileError(f"Spark has no format for {path}", "use Parquet, or --engine local")
    if found is None and name.endswith(OTHER_SUFFIXES):
        return name.rpartition(".")[2]
    return found


def _csv_schema(
    reader: DataFrameReader, paths: Sequence[str], options: Mapping[str, str], declared: Mapping[str, pa.DataType]
) -> StructType:
    """Return the columns of CSV files, with declared types where there are any, else with types guessed from values.

    Spark applies a schema to CSV by position, so the names come from the files. Guessing reads all values; it is
    skipped if every column is declared.
    """
    found = reader.option("inferSchema", "false").load(list(paths)).schema
    if not found.fields:
        raise FileError(f"cannot read {', '.join(paths)}: there is no line with column names")
    given = {name.lower(): value for name, value in options.items()}
    try:
        check_delimiter(found.names, given.get("delimiter", given.get("sep", ",")))
    except DataError as error:
        raise FileError(f"cannot read {', '.join(paths)}: {error.message}", error.hint) from None
    if given.get("inferschema", "true").lower() == "true" and not set(found.names) <= set(declared):
        found = reader.option("inferSchema", "true").load(list(paths)).schema
    return StructType([_declared_field(field, declared) for field in found.fields])


def _untyped_if_empty(events: DataFrame, declared: Mapping[str, pa.DataType]) -> DataFrame:
    """Return CSV; if it has no rows, undeclared columns get no type, where Spark would take them for strings."""
    untyped = {field.name for field in events.schema if field.name not in declared}
    if any(events.schema[name].dataType != StringType() for name in untyped) or not untyped or not events.isEmpty():
        return events
    return events.select(*(F.lit(None).alias(name) if name in untyped else quoted(name) for name in events.columns))


def _json_schema(
    reader: DataFrameReader, paths: Sequence[str], declared: Mapping[str, pa.DataType], *, is_complete: bool
) -> StructType:
    fields = [StructField(name, _spark_type(data_type)) for name, data_type in declared.items()]
    if is_complete:
        return StructType(fields)
    found = reader.load(list(paths)).schema
    return StructType([_declared_field(field, declared) for field in found.fields])


def _declared_field(field: StructField, declared: Mapping[str, pa.DataType]) -> StructField:
    return StructField(field.name, _spark_type(declared[field.name])) if field.name in declared else field


def _spark_type(data_type: pa.DataType) -> DataType:
    return from_arrow_type(data_type, prefer_timestamp_ntz=True)


def _writer_options(path: str, format: str) -> dict[str, str]:
    compression = {"compression": "gzip"} if path.lower().endswith(".gz") else {}
    return WRITER_DEFAULTS.get(format, {}) | compression


def _with_defaults(defaults: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the given options, and defaults for all others; Spark ignores case in their names."""
    names = {name.lower() for name in given}
    return {name: value for name, value in defaults.items() if name.lower() not in names} | dict(given)


def _as_csv_holds(rows: DataFrame) -> DataFrame:
    """Return rows with structs and lists as JSON, and columns of no type as strings that are NULL."""

    def held(field: StructField) -> Column:
        if isinstance(field.dataType, StructType | ArrayType | MapType):
            return F.to_json(quoted(field.name), SPARK_OPTIONS).alias(field.name)
        column = F.col(quoted(field.name))
        return column.cast("string").alias(field.name) if field.dataType == NullType() else column

    return rows.select(*map(held, rows.schema))


def _cannot(what: str, path: str, error: Exception) -> Exception:
    """Return the error with the path in front, if it is about files."""
    known = explained(error)
    if isinstance(known, DataError):
        return FileError(f"cannot {what} {path}: {known.message}", known.hint)
    return known
