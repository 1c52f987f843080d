"""Numba's decorator, with a cache that works wherever the package is installed."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
from numba import njit


def compiled(function: Any) -> Any:
    """Return a function compiled without Python objects, cached on disk if any folder can be written.

    Numba looks for the source's own folder and for the user's; on a cluster's workers neither may be
    writable, and it then fails at import. A folder for temporary files comes third, no cache last.
    """
    settings: Any = numba.config
    given = settings.CACHE_DIR
    try:
        for settings.CACHE_DIR in _folders(given):
            try:
                return _stamped(njit(nogil=True, cache=True)(function))
            except (RuntimeError, OSError):
                continue
    finally:
        # Other packages may use Numba too: where their caches go is not ours to say.
        settings.CACHE_DIR = given
    return njit(nogil=True)(function)


def _stamped(function: Any) -> Any:
    """Return a compiled function whose cache is out of date if a file has changed that its own one imports from.

    Numba looks at the function's own file only, and would go on with old code and old constants of the others.
    """
    cache = getattr(getattr(function, "_cache", None), "_cache_file", None)
    if cache is not None:
        found = [file.stat() for file in _imported(Path(function.py_func.__code__.co_filename))]
        cache._source_stamp = (cache._source_stamp, *((stat.st_mtime, stat.st_size) for stat in found))
    return function


@lru_cache
def _imported(file: Path) -> tuple[Path, ...]:
    """Return the files of the engine that one imports from, and those that these import from, in order."""
    names = re.findall(r"^from ceql\.engine\.(\S+) import", file.read_text(encoding="utf-8"), re.MULTILINE)
    direct = [Path(__file__).parent.joinpath(*name.split(".")).with_suffix(".py") for name in names]
    return tuple(sorted({*direct, *(file for imported in direct for file in _imported(imported))}))


def _folders(given: str) -> Iterator[str]:
    yield given
    user = os.getuid() if hasattr(os, "getuid") else None
    folder = Path(tempfile.gettempdir()) / f"ceql-numba-{'user' if user is None else user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        # What is cached will be executed, so nobody else may be able to put it there.
        found = folder.lstat()
        if user is None or (found.st_uid == user and not found.st_mode & 0o022):
            yield str(folder)
    except OSError:
        return
