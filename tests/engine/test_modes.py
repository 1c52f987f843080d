"""The kernel as Python, with checked indices, and where no folder for its cache can be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import pytest

import ceql
from ceql.engine import compiled as compiled_module
from ceql.engine.compiled import compiled

TESTS = Path(__file__).parent.parent


def run(script: str, *warnings: str, **environment: str) -> str:
    """Run a script in a process of its own, warnings being errors, and return what it prints."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    options = [part for one in ("error", *warnings) for part in ("-W", one)]
    done = subprocess.run(
        [sys.executable, *options, "-c", script],
        env=kept | {"PYTHONPATH": str(TESTS)} | environment,
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


UNCOMPILED = """
import warnings
import ceql, cases, test_spec
# Some cases are queries of which the user is warned.
warnings.simplefilter("ignore", ceql.CeqlWarning)
chosen = test_spec.CASES[::12]
for case in chosen:
    for name in ("engine", "engine-collecting", "engine-tight"):
        cases.check(case, case.compile().plan.limit, test_spec.EVALUATORS[name](case))
print(len(chosen))
"""


def test_the_kernel_as_python() -> None:
    # Hashing wraps around, which NumPy's scalars warn of and compiled code does not.
    printed = run(UNCOMPILED, "ignore:overflow encountered:RuntimeWarning", NUMBA_DISABLE_JIT="1")
    assert int(printed) > 10


CHECKED = """
import random, sys
from numba.core import caching
# Nothing but a folder that is named explicitly: neither that of the source nor the user's is writable.
locators = caching.CacheImpl._locator_classes
caching.CacheImpl._locator_classes = [one for one in locators if "UserProvided" in one.__name__]
import numba
assert numba.config.BOUNDSCHECK and not numba.config.CACHE_DIR
import pyarrow as pa
import warnings
import ceql, cases, test_spec
assert not numba.config.CACHE_DIR
warnings.simplefilter("ignore", ceql.CeqlWarning)
for case in test_spec.CASES[::4]:
    cases.check(case, case.compile().plan.limit, test_spec.EVALUATORS["engine-tight"](case))
queries = [
    f"SELECT {strategy} * FROM S WHERE {formula} {partition} {window} {rest}"
    for strategy, formula, partition, window, rest in [
        ("ALL", "A AS a ; B AS b ; C AS c", "", "WITHIN 9 [t]", ""),
        ("ALL", "A ; (B OR C)+ ; A", "PARTITION BY [k]", "WITHIN 8 EVENTS", "LIMIT 5"),
        ("NEXT", "A ; B+ ; C", "PARTITION BY [k]", "WITHIN 9 [t]", ""),
        ("MAX", "A+ ; C", "", "WITHIN 7 EVENTS", ""),
        ("ALL", "A ; B ; C", "PARTITION BY [k, s]", "WITHIN 30 [t]", "CONSUME BY ANY"),
    ]
]
for seed, query in enumerate(queries):
    chance = random.Random(seed)
    rows = [
        {"type": chance.choice("ABC"), "t": at // 3, "k": chance.choice([1, 2, None]), "s": chance.choice(["", "é"])}
        for at in range(2000)
    ]
    whole = ceql.match(query, rows).to_arrow()
    session = ceql.Session(query, chunk_size=30)
    parts = [session.feed(rows[at:at + 97]).to_arrow() for at in range(0, len(rows), 97)]
    assert pa.concat_tables(parts) == whole and len(whole)
print("checked")
"""


def test_checked_indices_and_a_cache_among_temporary_files(tmp_path: Path) -> None:
    # Compiling takes longer than running. Without any optimization, Numba caches no function that calls another.
    assert run(CHECKED, NUMBA_BOUNDSCHECK="1", NUMBA_OPT="1", TMPDIR=str(tmp_path)) == "checked\n"
    assert [path for path in tmp_path.rglob("*.nbi") if path.name.startswith("kernel.advance")]


MERGING = """
import numpy as np
from ceql.engine import compiled
made, merged = [], compiled.merged
compiled.merged = lambda function, **given: made.append(function) or merged(function, **given)
from ceql.engine.run.arrays import Keys
from ceql.engine.run.renumber import renumber_keys
assert compiled.__file__.startswith(FOLDER) and not made
none, active = np.zeros(1, np.int64), np.array([[0b1010]], np.uint64)
new_active = np.zeros_like(active)
keys = Keys(*(active if name == "active" else none for name in Keys._fields))
renumber_keys(np.arange(64, dtype=np.int32)[::-1].copy(), keys, np.zeros(0, np.int32), new_active)
print([63 - bit for bit in range(64) if int(new_active[0, 0]) >> bit & 1], len(made))
"""


@pytest.mark.parametrize("can_write", [True, False])
def test_functions_are_merged_only_when_the_cache_has_no_code_of_them(tmp_path: Path, can_write: bool) -> None:
    source = Path(ceql.__file__).parent
    shutil.copytree(source, tmp_path / "ceql", ignore=shutil.ignore_patterns("__pycache__"))
    script = f"import sys; FOLDER = {str(tmp_path)!r}; sys.path.insert(0, FOLDER)\n"
    if not can_write:
        script += "from numba.core import caching\ncaching.CacheImpl._locator_classes = []\n"
    script += MERGING
    assert run(script) == "[3, 1] 1\n"
    assert run(script) == f"[3, 1] {0 if can_write else 1}\n"
    # The function that is merged into another stands in a file of its own.
    bits = tmp_path / "ceql" / "engine" / "run" / "bits.py"
    bits.write_text(bits.read_text().replace("return bits & (bits - U(1))", "return bits & U(0)"))
    assert run(script) == "[1] 1\n"


def add(left: int, right: int) -> int:
    return left + right


@pytest.mark.parametrize("n_failures", [0, 1, 2])
def test_folders_are_tried_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, n_failures: int
) -> None:
    settings: Any = numba.config
    given, asked = settings.CACHE_DIR, []

    def njit(*, nogil: bool, cache: bool = False) -> Any:
        asked.append((cache, settings.CACHE_DIR))
        if cache and len(asked) <= n_failures:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(compiled_module, "njit", njit)
    monkeypatch.setattr(compiled_module.tempfile, "gettempdir", lambda: str(tmp_path))
    assert compiled(add)(1, 2) == 3
    assert [cache for cache, _ in asked] == [[True], [True, True], [True, True, False]][n_failures]
    assert all(folder.startswith(str(tmp_path)) for _, folder in asked[1:2])
    assert given == settings.CACHE_DIR


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX permissions")
@pytest.mark.parametrize("mode", [0o700, 0o777])
def test_a_folder_that_others_can_write_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: int
) -> None:
    monkeypatch.setattr(compiled_module.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = tmp_path / f"ceql-numba-{os.getuid()}"
    folder.mkdir()
    folder.chmod(mode)
    assert list(compiled_module._folders("given")) == (["given", str(folder)] if mode == 0o700 else ["given"])


def test_no_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(compiled_module.tempfile, "gettempdir", lambda: str(tmp_path / "file"))
    assert list(compiled_module._folders("")) == [""]
