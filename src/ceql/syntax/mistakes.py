"""Syntax errors in the user's words: what Lark could not read, told as what was probably meant."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ceql.errors import QueryError, Span
from ceql.syntax.ast import RESERVED

if TYPE_CHECKING:
    from lark import Token

CLAUSES = ("SELECT", "FROM", "WHERE", "PARTITION BY", "WITHIN", "CONSUME BY", "LIMIT")
"""The clauses in the order in which they must stand."""

_CLAUSE_OF_TOKEN = {
    "_SELECT": "SELECT",
    "_FROM": "FROM",
    "_WHERE": "WHERE",
    "PARTITION": "PARTITION BY",
    "_WITHIN": "WITHIN",
    "_CONSUME": "CONSUME BY",
    "_LIMIT": "LIMIT",
}
_ORDER_HINT = f"the order is {', '.join(CLAUSES)}"
_PARENTHESES_HINT = "FILTER covers all to its left; put the filtered part in parentheses: (... FILTER ...)"

_EXPECTED_WORDS = {
    "NAME": "a name",
    "QUOTED_NAME": "a name",
    "STRING": "a string",
    "NUMBER": "a number",
    "COMPARISON": "a comparison",
    "MORE": "'>'",
    "LPAR": "'('",
    "RPAR": "')'",
    "LSQB": "'['",
    "RSQB": "']'",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "COMMA": "','",
    "DOT": "'.'",
    "SEMICOLON": "';'",
    "COLON": "':'",
    "PLUS": "'+'",
    "MINUS": "'-'",
    "STAR": "'*'",
    "SLASH": "'/'",
    "PERCENT": "'%'",
    "COLON_PLUS": "':+'",
    "$END": "the end",
}
_CLOSING = ("RPAR", "RSQB")
_QUOTES = {"'": "string", '"': "string", "`": "quoted name"}
_CURLY_QUOTES = "\u2018\u2019\u201c\u201d\u00b4"
MAX_EXPECTED = 6
"""Most alternatives that a hint lists; a longer list helps nobody."""
MAX_SHOWN = 40
"""Longest token that a message repeats."""


class Mistake(Exception):  # noqa: N818 - it is not raised to users
    """A `QueryError` in the making: what is known where the text is not at hand."""

    def __init__(self, message: str, span: Span, hint: str | None = None, related: Span | None = None) -> None:
        super().__init__(message)
        self.message, self.span, self.hint, self.related = message, span, hint, related

    def at(self, text: str) -> QueryError:
        """Return the error for the user."""
        return QueryError(self.message, text, self.span, self.hint, self.related)


def span_of(token: Token) -> Span:
    """Return where a token stands."""
    start = token.start_pos or 0
    return Span(start, token.end_pos if token.end_pos is not None else start + len(token))


def syntax_mistake(error: UnexpectedInput, before: list[Token], text: str) -> Mistake:
    """Return what is wrong where Lark stopped; `before` are the tokens up to there."""
    if isinstance(error, UnexpectedCharacters):
        return _stray_character(text, error.pos_in_stream or 0)
    assert isinstance(error, UnexpectedToken)
    token = error.token
    if token.type == "$END":
        last = max(len(text.rstrip()), 1)
        early = Mistake("the query ends too early", Span(last - 1, last), _expectation(error))
        return _formula_after_filter(None, before) or early
    return (
        _open_comment(token, text)
        or _reserved_word(error, token)
        or _misplaced_clause(token, before)
        or _formula_after_filter(token, before)
        or Mistake(f"unexpected '{_shortened(token)}'", span_of(token), _expectation(error))
    )


def _stray_character(text: str, position: int) -> Mistake:
    character = text[position]
    here = Span(position, position + 1)
    if text.startswith("``", position):
        return Mistake("the name between backticks is empty", Span(position, position + 2))
    if character in _QUOTES:
        return Mistake(f"the {_QUOTES[character]} is not closed", here, f"close it with {character}")
    if text.startswith("/*", position):
        return Mistake("the comment is not closed", Span(position, position + 2), "close it with */")
    code = f"U+{ord(character):04X}"
    name = unicodedata.name(character, "NUL" if character == "\0" else "a control character")
    shown = f"'{character}' ({code}, {name})" if character.isprintable() else f"{code} ({name})"
    hint = "quote strings with ' and names with `" if character in _CURLY_QUOTES else None
    return Mistake(f"stray character {shown}", here, hint)


def _open_comment(token: Token, text: str) -> Mistake | None:
    for start in (span_of(token).start, span_of(token).start - 1):
        if text.startswith("/*", start):
            return Mistake("the comment is not closed", Span(start, start + 2), "close it with */")
    return None


def _reserved_word(error: UnexpectedToken, token: Token) -> Mistake | None:
    if _accepted(error) <= {"NAME", "QUOTED_NAME", "LPAR"} and token.lower() in RESERVED:
        return Mistake(f"'{token}' is a reserved word", span_of(token), f"write `{token}` to use it as a name")
    return None


def _misplaced_clause(token: Token, before: list[Token]) -> Mistake | None:
    passed = [_CLAUSE_OF_TOKEN[earlier.type] for earlier in before if earlier.type in _CLAUSE_OF_TOKEN]
    if token.type in ("_FILTER", "_PROJECT"):
        late = [clause for clause in passed if clause in CLAUSES[3:]]
        word = token.upper()
        return (
            Mistake(f"{word} must come before {late[-1]}", span_of(token), f"{word} is part of WHERE") if late else None
        )
    clause = _CLAUSE_OF_TOKEN.get(token.type)
    if clause is None:
        return None
    if clause in passed:
        return Mistake(f"{clause} is given twice", span_of(token), _ORDER_HINT)
    missing = [needed for needed in CLAUSES[:3] if needed not in passed and needed != clause]
    if missing and CLAUSES.index(missing[0]) < CLAUSES.index(clause):
        return Mistake(f"{missing[0]} must come before {clause}", span_of(token), _ORDER_HINT)
    return None


def _formula_after_filter(token: Token | None, before: list[Token]) -> Mistake | None:
    """Return the mistake of going on with the pattern after a FILTER's conditions, if it is that."""
    conditions = _open_conditions(before)
    if conditions is None:
        return None
    goes_on = token is not None and token.type in ("SEMICOLON", "COLON", "PLUS", "COLON_PLUS", "_AS")
    if token is not None and goes_on and conditions and conditions[-1].type in _CLOSING:
        return Mistake(f"'{token}' after FILTER's conditions", span_of(token), _PARENTHESES_HINT)
    last_or = next((earlier for earlier in reversed(conditions) if earlier.type in ("_OR", "_AND")), None)
    if last_or is not None and last_or.type == "_OR" and conditions[-1].type not in ("_OR", "RSQB"):
        message = "OR after FILTER's conditions adds a condition, not a pattern"
        return Mistake(message, span_of(last_or), _PARENTHESES_HINT)
    return None


def _open_conditions(before: list[Token]) -> list[Token] | None:
    """Return the tokens of the FILTER that is being read, those inside predicates left out."""
    found: list[Token] = []
    brackets = 0
    for token in reversed(before):
        if token.type == "LSQB":
            brackets -= 1
        if brackets < 0 or (brackets == 0 and token.type in _CLAUSE_OF_TOKEN):
            return None
        if brackets == 0 and token.type == "_FILTER":
            return found[::-1]
        if brackets == 0 and token.type != "LSQB":
            found.append(token)
        if token.type == "RSQB":
            brackets += 1
    return None


def _accepted(error: UnexpectedToken) -> set[str]:
    return set(error.accepts or error.expected or ())


def _expectation(error: UnexpectedToken) -> str | None:
    words = sorted({_EXPECTED_WORDS.get(name, name.lstrip("_")) for name in _accepted(error)})
    return f"expected {' or '.join(words)}" if 0 < len(words) <= MAX_EXPECTED else None


def _shortened(token: str) -> str:
    return token if len(token) <= MAX_SHOWN else token[: MAX_SHOWN - 3] + "..."
