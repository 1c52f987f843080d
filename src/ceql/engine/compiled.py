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
from numba import njit, types
from numba.core.compiler import Compiler

from ceql.engine.inlining import merged


def compiled(function: Any) -> Any:
    """Return a function compiled without Python objects, cached on disk if any folder can be written."""
    return _cached(function)


def compiled_in_place(function: Any) -> Any:
    """Return a compiled function that changes arrays but makes none.

    PERF: references to arrays need no counting then. The kernel takes its arrays from named groups, and counting made
    S3' eight times as slow (`make bench`).
    """
    return _cached(function, pipeline_class=_Merging, _nrt=False, no_cfunc_wrapper=True, no_rewrites=True)


class _Merging(Compiler):
    """Compiles a function together with the inlined functions that it calls.

    PERF: they are put together only when there is no compiled code in the cache, whose stamp knows all their files.
    """

    def compile_extra(self, func: Any) -> Any:
        """Compile a function for the types of some arguments, which say what is None."""
        kinds = zip(func.__code__.co_varnames, self.state.args, strict=False)
        given = {name: kind != types.none for name, kind in kinds if not isinstance(kind, types.Optional)}
        return super().compile_extra(merged(func, given=given))  # type: ignore[no-untyped-call]


def _cached(function: Any, **options: Any) -> Any:
    """Return a compiled function with a cache.

    Numba tries the folder of the source and a folder of the user. On a cluster's workers neither may be writable, and
    Numba then fails at import. So a folder for temporary files comes third, and no cache last.
    """
    settings: Any = numba.config
    given = settings.CACHE_DIR
    try:
        for settings.CACHE_DIR in _folders(given):
            try:
                return _stamped(njit(nogil=True, cache=True, **options)(function))
            except (RuntimeError, OSError):
                continue
    finally:
        # Other packages may use Numba, too; their caches stay where they are.
        settings.CACHE_DIR = given
    return njit(nogil=True, **options)(function)


def _stamped(function: Any) -> Any:
    """Return a compiled function whose cache expires if a file changes that its own file imports from.

    Numba looks only at the function's own file, and would keep old code and old constants of the others.
    """
    cache = getattr(getattr(function, "_cache", None), "_cache_file", None)
    if cache is not None:
        cache._source_stamp = (cache._source_stamp, *_stamps(Path(function.py_func.__code__.co_filename)))
    return function


@lru_cache
def _stamps(file: Path) -> tuple[tuple[float, int], ...]:
    """Return when the files that a file imports from were changed, and their sizes."""
    found = [imported.stat() for imported in _imported(file)]
    return tuple((stat.st_mtime, stat.st_size) for stat in found)


@lru_cache
def _imported(file: Path) -> tuple[Path, ...]:
    """Return the files of the engine that a file imports from, directly or indirectly, in order."""
    names = re.findall(r"^from ceql\.engine\.(\S+) import", file.read_text(encoding="utf-8"), re.MULTILINE)
    direct = [Path(__file__).parent.joinpath(*name.split(".")).with_suffix(".py") for name in names]
    return tuple(sorted({*direct, *(file for imported in direct for file in _imported(imported))}))


def _folders(given: str) -> Iterator[str]:
    yield given
    user = os.getuid() if hasattr(os, "getuid") else None
    folder = Path(tempfile.gettempdir()) / f"ceql-numba-{'user' if user is None else user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        # Cached code will be executed, so nobody else may be able to write it.
        found = folder.lstat()
        if user is None or (found.st_uid == user and not found.st_mode & 0o022):
            yield str(folder)
    except OSError:
        return
