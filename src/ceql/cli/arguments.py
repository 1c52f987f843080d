"""Arguments that several commands take."""

from __future__ import annotations

import json
import re
import sys
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer

from ceql.cli.exits import WRONG_DATA, WRONG_USE, fail, reason
from ceql.visible import visible

QueryFile = Annotated[Path, typer.Argument(help="File with the query; - reads standard input.", metavar="FILE")]
TypeColumn = Annotated[
    str, typer.Option(help="Column with each event's type; empty if every event has its stream's name as type.")
]
TimeColumn = Annotated[
    str | None, typer.Option("--time-column", help="Attribute that durations in WITHIN and FOR measure.")
]
OrderBy = Annotated[str, typer.Option(help="Further columns that order the events, separated by commas.")]
Params = Annotated[
    list[str],
    typer.Option(
        "--param",
        metavar="NAME=VALUE",
        help="Value of a $parameter: a number, text, or JSON such as a list. Repeatable.",
    ),
]
ParamFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="File with values of $parameters: a JSON object, by name.")
]
Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Where Spark runs; by default as in its settings, else local\\[*]."),
]
ReaderOptions = Annotated[
    list[str],
    typer.Option(metavar="KEY=VALUE", help="Option for reading, as Spark names it: header, delimiter. Repeatable."),
]
OutputFormat = Annotated[
    str | None,
    typer.Option(metavar="FORMAT", help="Format of the output; by default from the suffix, else parquet."),
]
SparkSettings = Annotated[
    list[str], typer.Option(metavar="KEY=VALUE", help="Setting of Spark: spark.driver.memory=4g. Repeatable.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show the plan, what Spark logs, and its errors in full.")
]

_PIPE = "pass - and give it on standard input: echo 'SELECT ...' | ceql ... -"


def read_query(file: Path) -> str:
    """Return the text of a query file, or end the command saying why it cannot be read."""
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        if re.match(r"\s*(SELECT|CREATE|--)\s", str(file), re.IGNORECASE):
            fail(f"expected a file, not a query\nhint: put the query into a file, or {_PIPE}", WRONG_USE)
        fail(f"cannot read {file}: {reason(error)}", WRONG_DATA)
    except UnicodeDecodeError as error:
        fail(f"{file}: not UTF-8 at byte {error.start}", WRONG_DATA)


def read_params(given: list[str], file: Path | None) -> dict[str, object]:
    """Return the values of parameters; those of single options count more than those of the file."""
    found: dict[str, object] = {} if file is None else _params_in(file)
    for text in given:
        name, is_pair, value = text.removeprefix("$").partition("=")
        if not (name and is_pair):
            raise typer.BadParameter(f"'{visible(text)}' is not NAME=VALUE", param_hint="--param")
        found[name] = _param(value)
    return found


def _params_in(file: Path) -> dict[str, object]:
    try:
        found = json.loads(file.read_bytes(), parse_float=Decimal)
    except OSError as error:
        fail(f"cannot read {file}: {reason(error)}", WRONG_DATA)
    except ValueError as error:
        fail(f"{file}: not JSON: {error}", WRONG_DATA)
    if not isinstance(found, dict):
        fail(f'{file}: not a JSON object\nhint: write {{"limit": 5, "blocklist": ["a", "b"]}}', WRONG_DATA)
    return found


def _param(text: str) -> object:
    """Return a value: JSON if it is, else the text itself.

    >>> _param("5"), _param("abc"), _param('["a", "b"]'), _param('"5"')
    (5, 'abc', ['a', 'b'], '5')
    """
    try:
        value: object = json.loads(text, parse_float=Decimal)
    except ValueError:
        return text
    return value


def columns_in(order_by: str) -> list[str]:
    """Return the names in a list with commas.

    >>> columns_in("at, id")
    ['at', 'id']
    """
    return [name.strip() for name in order_by.split(",") if name.strip()]


def check_master(master: str | None) -> None:
    """Refuse a master that Spark does not know: Java would end with a stack trace."""
    if master is not None and not master.startswith(("local", "yarn", "spark://", "k8s://", "sc://")):
        raise typer.BadParameter(
            "use local, local[4], yarn, or an address that begins with spark://, k8s:// or sc://", param_hint="--master"
        )
