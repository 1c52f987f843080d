"""Numba's decorator, with a cache that works wherever the package is installed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
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
                return njit(nogil=True, cache=True)(function)
            except RuntimeError:
                continue
    finally:
        # Other packages may use Numba too: where their caches go is not ours to say.
        settings.CACHE_DIR = given
    return njit(nogil=True)(function)


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
