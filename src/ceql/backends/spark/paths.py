"""Checks that input files exist before Spark starts, so that a mistyped name does not cost many seconds."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ceql.backends.files import FileError

OF_FILES = (None, "parquet", "csv", "json", "orc", "text", "xml")
"""Formats built into Spark whose path leads to files; None means that the suffix decides."""

_SETTINGS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT")
_CONNECT = ("SPARK_REMOTE", "SPARK_API_MODE", "MASTER")


def check_there(
    paths: Iterable[str], format: str | None, *, master: str | None, conf: Mapping[str, str], is_growing: bool = False
) -> None:
    """Refuse files, folders and glob patterns on this machine that do not exist, as Spark would.

    Paths that may lie elsewhere are not checked: addresses, and plain paths if Spark's settings change their meaning.
    A pattern for files that are still to come (`is_growing`) may match none.
    """
    if format not in OF_FILES:
        return
    for path in paths:
        here = path_here(path, master, conf, os.environ)
        if here is None:
            continue
        is_pattern = re.search(r"[*?]", here) is not None
        is_there = bool(glob.glob(here, include_hidden=True)) if is_pattern else os.path.lexists(here)
        if not is_there and not (is_pattern and is_growing):
            raise FileError(f"cannot read {path}: there is no such file or folder")


def path_here(path: str, master: str | None, conf: Mapping[str, str], environ: Mapping[str, str]) -> str | None:
    """Return a path on this machine, None if it may mean something else to Spark.

    >>> path_here("file:///data/a.csv", None, {}, {}), path_here("s3a://data/a.csv", None, {}, {})
    ('/data/a.csv', None)
    """
    here = re.sub("^file:(//)?", "", path)
    # Hadoop's patterns have more forms than Python's, and addresses have escapes.
    if re.match(r"[A-Za-z][\w+.-]*:", here) or re.search(r"[\[{\\%]", here):
        return None
    chosen = master or conf.get("spark.master", "local")
    is_connected = chosen.startswith("sc:") or {"spark.remote", "spark.api.mode"} & set(conf)
    if is_connected or any(environ.get(name) for name in _CONNECT):
        return None
    if path.startswith("file:"):
        return here
    is_elsewhere = not chosen.startswith("local") or any(name.endswith("fs.defaultFS") for name in conf)
    is_set = any(environ.get(name) for name in _SETTINGS) or _has_settings(environ.get("SPARK_HOME"))
    return None if is_elsewhere or is_set else here


def _has_settings(home: str | None) -> bool:
    """Return whether Spark's home has a folder of settings."""
    return home is not None and any(Path(home, "conf").glob("*.[cx]*"))
