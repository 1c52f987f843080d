"""Every mistake in `fixtures/errors.toml` gives the message that stands there, in full."""

from __future__ import annotations

import pickle
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

import ceql
from ceql.errors import EXCERPT_WIDTH, DataError, QueryError, SnapshotError, Span, did_you_mean
from ceql.syntax import declare

TYPES = {**declare.TYPES, "list": pa.list_(pa.string())}
CATALOGUE = Path(__file__).parents[1] / "fixtures" / "errors.toml"


@dataclass
class Mistake:
    name: str
    query: str
    message: str
    schema: dict[str, str] = field(default_factory=dict)
    streams: list[str] = field(default_factory=list)
    time_column: str | None = None
    repeat: dict[str, str | int] = field(default_factory=dict)
    names: str | None = None

    @property
    def text(self) -> str:
        if not self.repeat:
            return self.query.removesuffix("\n")
        return self.query.replace("PIECES", str(self.repeat["piece"]) * int(self.repeat["times"]))

    def error(self) -> QueryError:
        types = {name: TYPES[word] for name, word in self.schema.items()}
        schema: object = pa.schema(list(types.items())) if types else None
        if self.streams:
            schema = dict.fromkeys(self.streams, schema)
        with pytest.raises(QueryError) as caught:
            ceql.compile(self.text, schema, time_column=self.time_column)
        return caught.value


MISTAKES = [Mistake(**entry) for entry in tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))["error"]]
every_mistake = pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)


@every_mistake
def test_message_in_full(mistake: Mistake) -> None:
    assert str(mistake.error()) == mistake.message.removesuffix("\n")


@every_mistake
def test_fields_say_what_the_message_says(mistake: Mistake) -> None:
    error = mistake.error()
    lines = str(error).split("\n")
    assert lines[0] == error.message
    assert lines[1] == f"  line {error.line}, column {error.column}"
    assert error.span.line_and_column(mistake.text) == (error.line, error.column)
    assert 0 <= error.span.start <= error.span.end <= len(mistake.text)
    assert (f"hint: {error.hint}" in lines) == (error.hint is not None)


@every_mistake
def test_first_line_names_the_thing_as_the_user_wrote_it(mistake: Mistake) -> None:
    error = mistake.error()
    marked = mistake.text[error.span.start : error.span.end]
    named = marked if mistake.names is None else mistake.names
    assert named in mistake.text
    assert named in error.message
    assert mistake.names is None or marked not in error.message or not marked, "'names' is needless"


@every_mistake
def test_style_of_messages(mistake: Mistake) -> None:
    error = mistake.error()
    for line in filter(None, (error.message, error.hint)):
        assert not line.endswith((".", "!"))
        assert "\n" not in line
        first_word = re.match(r"\w+", line)
        # Capitals are for the words of the language and for what the user wrote.
        assert first_word is None or first_word[0].islower() or first_word[0].isupper() or first_word[0] in mistake.text


@every_mistake
def test_errors_travel_between_processes(mistake: Mistake) -> None:
    error = mistake.error()
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is QueryError
    for name in ("message", "text", "span", "hint", "related"):
        assert getattr(copy, name) == getattr(error, name)
    assert str(copy) == str(error)


def test_catalogue_repeats_nothing() -> None:
    names = [mistake.name for mistake in MISTAKES]
    queries = [(mistake.text, str(mistake.schema), mistake.time_column) for mistake in MISTAKES]
    assert len(names) >= 250
    assert len(set(names)) == len(names)
    assert len(set(queries)) == len(queries)


@pytest.mark.parametrize("error", [DataError("too late", "sort the events"), DataError("bad"), SnapshotError("old")])
def test_other_errors_travel_too(error: ceql.CeqlError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.args) == (type(error), str(error), error.args)


def test_data_error_shows_its_hint() -> None:
    assert str(DataError("too late", "sort the events")) == "too late\nhint: sort the events"


# --- excerpts -----------------------------------------------------------------------

LONG = 1_000_000


def marked_by_caret(text: str, span: Span) -> tuple[str, str]:
    """Return the source line and the caret line of an error, without their indentation."""
    _, _, source, caret = str(QueryError("wrong", text, span)).split("\n")
    return source.removeprefix("    "), caret.removeprefix("    ")


@pytest.mark.parametrize("start", [0, 50, LONG // 2, LONG - 3])
def test_a_line_of_megabytes_gives_a_short_excerpt(start: int) -> None:
    text = "a" * start + "bcd" + "a" * (LONG - start - 3)
    source, caret = marked_by_caret(text, Span(start, start + 3))
    assert len(source) <= EXCERPT_WIDTH + len("......")
    assert source[caret.index("^") : caret.rindex("^") + 1] == "bcd"
    assert source.startswith("...") == (start > EXCERPT_WIDTH // 3)
    assert source.endswith("...") == (start < LONG - EXCERPT_WIDTH)


def test_a_mark_of_megabytes_is_cut() -> None:
    source, caret = marked_by_caret("a" * LONG, Span(10, LONG))
    assert len(source) == EXCERPT_WIDTH + 3
    assert caret == " " * 10 + "^" * (EXCERPT_WIDTH - 10)


@pytest.mark.parametrize(
    ("before", "marked", "caret"),
    [
        ("abc ", "x", "    ^"),
        ("漢字 ", "x", "     ^"),
        ("ab ", "漢字", "   ^^^^"),
        ("e\u0301 ", "x", "  ^"),
        ("\t\t", "x", "  ^"),
        ("a\u00a0", "x", "  ^"),
        ("a\x07", "x", "  ^"),
        ("１２ ", "ab", "     ^^"),
    ],
)
def test_carets_stand_under_what_they_mark(before: str, marked: str, caret: str) -> None:
    text = f"{before}{marked} rest"
    source, found = marked_by_caret(text, Span(len(before), len(before) + len(marked)))
    assert found == caret
    assert "\t" not in source
    assert source.isprintable() or "\u0301" in source


@pytest.mark.parametrize(
    ("text", "span", "line", "column", "source"),
    [
        ("one\ntwo\nthree", Span(4, 7), 2, 1, "two"),
        ("one\r\ntwo\r\nthree", Span(6, 7), 2, 2, "two"),
        ("one\ntwo", Span(7, 7), 2, 4, "two"),
        ("one\ntwo\n", Span(1, 6), 1, 2, "one"),
    ],
)
def test_lines_and_columns(text: str, span: Span, line: int, column: int, source: str) -> None:
    error = QueryError("wrong", text, span)
    assert (error.line, error.column) == (line, column)
    assert str(error).split("\n")[2] == f"    {source}"


def test_a_blank_line_is_not_shown() -> None:
    assert str(QueryError("wrong", "a\n\nb", Span(2, 2))) == "wrong\n  line 2, column 1"


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("pric", ["name", "price"], "price"),
        ("sel", ["SELL", "sell"], "sell"),
        ("SEL", ["sell", "SELL"], "SELL"),
        ("PRICE", ["price"], "price"),
        ("zzz", ["price"], None),
        ("x", [], None),
    ],
)
def test_did_you_mean(name: str, known: list[str], meant: str | None) -> None:
    assert did_you_mean(name, known) == (None if meant is None else f"did you mean '{meant}'?")
