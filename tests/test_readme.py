"""The README's Python runs and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import ceql
from markdown_blocks import ROOT, blocks, python_of

README = ROOT / "README.md"


def test_code_blocks_print_what_their_comments_say() -> None:
    local = [code for code in python_of(README) if not code.needs_spark]
    assert len(local) >= 3
    names: dict[str, Any] = {}
    for code in local:
        assert code.run(names) == code.printed


def test_the_query_compiles() -> None:
    (query,) = (block.text for block in blocks(README) if block.info in ("sql", "ceql"))
    assert ceql.compile(query).plan.partition_by == ("account",)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_code_blocks_on_spark_run(spark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first, *others = python_of(README)
    names: dict[str, Any] = {}
    first.run(names)
    # Spark's folder is not that of the test.
    printed = [line for code in others if code.needs_spark for line in code.run(names, {"trades": str(tmp_path)})]
    assert any("102.0" in line for line in printed)
    assert any("plan: single" in line for line in printed)
    assert names["matches"].count() == 2
    assert names["found"].isStreaming


def test_session_counts_are_those_of_the_comments() -> None:
    first, second, *_ = python_of(README)
    names: dict[str, Any] = {}
    first.run(names)
    checked = re.sub(
        r"^(session\.feed\(.*?\)\.count\(\))  # (\d+).*$", r"assert \1 == \2", second.block.text, flags=re.MULTILINE
    )
    assert checked.count("assert") == 2
    exec(checked, names)
