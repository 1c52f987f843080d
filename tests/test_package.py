"""The package from outside: its names, what importing it costs, and the files that come with it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata, resources

import pytest

import ceql

HEAVY = ["numba", "pandas", "pyspark"]


def modules_after(statement: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has after a statement."""
    code = f"import sys, json\n{statement}\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_all_is_what_is_exported() -> None:
    assert list(ceql.__all__) == sorted(ceql.__all__)
    for name in ceql.__all__:
        value = getattr(ceql, name)
        assert value.__name__ == name
        assert value.__module__.startswith("ceql.")
        assert value.__doc__
        assert name in dir(ceql)


def test_no_other_public_names() -> None:
    submodules = {name.split(".")[1] for name in sys.modules if name.startswith("ceql.")}
    public = {name for name in vars(ceql) if not name.startswith("_")}
    assert public - submodules - {"Any"} <= set(ceql.__all__)


def test_names_that_are_not_there() -> None:
    with pytest.raises(AttributeError, match="nothing_of_the_sort"):
        ceql.nothing_of_the_sort  # noqa: B018


def test_import_is_light() -> None:
    modules = modules_after("import ceql")
    assert "ceql" in modules
    assert not modules & set(HEAVY)


def test_checking_a_query_is_light() -> None:
    modules = modules_after("import ceql; ceql.compile('SELECT * FROM S WHERE A ; B').explain()")
    assert "lark" in modules
    assert not modules & set(HEAVY)


def test_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.?(a|b|rc|dev)\d+)?", ceql.__version__)
    assert metadata.version("ceql").split("+")[0] == ceql.__version__


@pytest.mark.parametrize(
    ("package", "path"),
    [
        ("ceql", "py.typed"),
        ("ceql.syntax", "grammar.lark"),
        ("ceql.paper", "figure/q1.ceql"),
        ("ceql.paper", "stocks/s3.ceql"),
        ("ceql.paper", "smart_homes/h24_no_output.ceql"),
        ("ceql.paper", "taxis/t12.ceql"),
    ],
)
def test_files_that_come_with_the_package(package: str, path: str) -> None:
    file = resources.files(package).joinpath(path)
    assert file.is_file()
    assert file.name == "py.typed" or file.read_text(encoding="utf-8").strip()


def test_module_runs_as_a_command() -> None:
    done = subprocess.run([sys.executable, "-m", "ceql", "--version"], check=True, capture_output=True, text=True)
    assert done.stdout == f"ceql {ceql.__version__}\n"


def test_errors_have_one_base() -> None:
    for error in (ceql.QueryError, ceql.DataError, ceql.SnapshotError):
        assert issubclass(error, ceql.CeqlError)
        assert not issubclass(error, ValueError | RuntimeError)
