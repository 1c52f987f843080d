"""The parser's tables on disk: what is read from them parses like what is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from ceql.errors import QueryError
from ceql.syntax import parser
from ceql.syntax.parser import parse

TEXTS = [
    "SELECT * FROM S WHERE A{2,} -> B[x > 1] WITHIN 5 [t]",
    "SELECT * FROM S WHERE A ; ; B",
    "SELECT * FROM S WHERE (A",
]


def told(text: str) -> str:
    try:
        return str(parse(text))
    except QueryError as error:
        return str(error)


@pytest.mark.parametrize("content", [None, b"", b"no tables", b"0" * 1000])
def test_tables_are_read_or_made_anew(content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [told(text) for text in TEXTS]
    file = tmp_path / "parser.tables"
    monkeypatch.setattr(parser, "_tables_file", lambda: str(file))
    if content is not None:
        file.write_bytes(content)
    for _ in range(2):
        lark = parser._lark.__wrapped__()
        monkeypatch.setattr(parser, "_lark", lambda lark=lark: lark)
        assert [told(text) for text in TEXTS] == expected
        monkeypatch.undo()
        monkeypatch.setattr(parser, "_tables_file", lambda: str(file))
    assert file.stat().st_size > 10_000


def test_a_folder_that_cannot_be_made_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(parser, "cache_from_source", lambda _: str(tmp_path / "file" / "__pycache__" / "parser.pyc"))
    assert parser._tables_file() is False
    monkeypatch.setattr(parser, "_tables_file", lambda: str(tmp_path / "none" / "parser.tables"))
    assert parser._lark.__wrapped__() is not None
