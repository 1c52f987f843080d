"""The README's Python runs and prints what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parent.parent / "README.md"


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_code_blocks_print_what_their_comments_say() -> None:
    blocks = [block for block in python_blocks() if "spark" not in block]
    assert len(blocks) >= 3
    names: dict[str, object] = {}
    for block in blocks:
        expected = [line.removeprefix("#").removeprefix(" ") for line in block.splitlines() if line.startswith("#")]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, str(README), "exec"), names)
        assert printed.getvalue().splitlines() == expected


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_code_blocks_on_spark_run(spark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first, *others = (block for block in python_blocks() if "ceql.Session" not in block and "QueryError" not in block)
    names: dict[str, Any] = {}
    for block in (first, *others):
        # Spark's folder is not that of the test.
        exec(compile(block.replace('"trades"', repr(str(tmp_path))), str(README), "exec"), names)
    printed = capsys.readouterr().out
    assert "102.0" in printed
    assert "plan: single" in printed
    assert names["matches"].count() == 2
    assert names["found"].isStreaming


def test_session_counts_are_those_of_the_comments() -> None:
    blocks = python_blocks()
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(blocks[0], names)
    checked = re.sub(
        r"^(session\.feed\(.*?\)\.count\(\))  # (\d+).*$", r"assert \1 == \2", blocks[1], flags=re.MULTILINE
    )
    assert checked.count("assert") == 2
    exec(checked, names)
