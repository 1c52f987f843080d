"""The README's Python runs and prints what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_code_blocks_print_what_their_comments_say() -> None:
    blocks = [block for block in python_blocks() if "ceql.spark" not in block]
    assert len(blocks) >= 3
    names: dict[str, object] = {}
    for block in blocks:
        expected = [line.removeprefix("#").removeprefix(" ") for line in block.splitlines() if line.startswith("#")]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, str(README), "exec"), names)
        assert printed.getvalue().splitlines() == expected


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
