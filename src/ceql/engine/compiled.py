"""Numba's decorator, with a cache that works wherever the package is installed."""

from __future__ import annotations

import os
import tempfile
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
    for directory in (settings.CACHE_DIR, _temporary_folder()):
        settings.CACHE_DIR = directory
        try:
            return njit(nogil=True, cache=True)(function)
        except RuntimeError:
            continue
    return njit(nogil=True)(function)


def _temporary_folder() -> str:
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return str(Path(tempfile.gettempdir()) / f"ceql-numba-{user}")
