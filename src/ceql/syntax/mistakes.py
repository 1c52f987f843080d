"""Syntax errors in the user's words: what Lark could not read, and what the user probably meant."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ceql.errors import QueryError, Span, did_you_mean
from ceql.syntax.ast import RESERVED

if TYPE_CHECKING:
    from lark import Token

CLAUSES = ("SELECT", "FROM", "WHERE", "PARTITION BY", "WITHIN", "CONSUME BY", "LIMIT")
"""The clauses in their order."""

_CLAUSE_OF_TOKEN = {
    "_SELECT": "SELECT",
    "_FROM": "FROM",
    "_WHERE": "WHERE",
    "PARTITION": "PARTITION BY",
    "_WITHIN": "WITHIN",
    "_CONSUME": "CONSUME BY",
    "_LIMIT": "LIMIT",
}
ORDER_HINT = f"the order is {', '.join(CLAUSES)}"
_COVERS_HINT = "{word} applies to everything to its left; put that part in parentheses: (... {word} ...)"
_PATTERN_HINT = "after a pattern, write ; : -> OR + AS FILTER PROJECT WITHOUT or the next clause"
_CONDITION_HINT = "a condition is a variable with a predicate in brackets: x[...]"

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
    "ARROW": "'->'",
    "REPETITION": "'?'",
    "COLON_BRACE": "':{'",
    "ARROW_BRACE": "'->{'",
    "ANY_EVENT": "'_'",
    "$END": "the end",
}
BRACKETS = {"RPAR": ("LPAR",), "RSQB": ("LSQB",), "RBRACE": ("LBRACE", "COLON_BRACE", "ARROW_BRACE")}
"""Closing brackets, each with those that it closes."""
CLOSERS = {"LPAR": ")", "LSQB": "]", "LBRACE": "}", "COLON_BRACE": "}", "ARROW_BRACE": "}"}
_QUOTES = {"'": "string", '"': "string", "`": "quoted name"}
_WRITE_INSTEAD = {
    **dict.fromkeys("\u2018\u2019\u201c\u201d\u00b4", "quote strings with ' and names with `"),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "write -"),
    "\u2260": "write !=",
    "\u2264": "write <=",
    "\u2265": "write >=",
    "&": "write AND",
    "|": "write OR",
    "!": "write NOT, or != to compare",
}
_RARE_BEGINNINGS = {"ANY_EVENT", "_PERMUTE", "NOT"}
"""Tokens that may begin a part of a pattern; a user who forgot the part did not want one of these."""
_REPETITIONS = ("PLUS", "STAR", "REPETITION", "LBRACE", "COLON_BRACE", "ARROW_BRACE")
_GOING_ON = ("SEMICOLON", "COLON", "ARROW", *_REPETITIONS, "_AS", "_OR")
_PATH = re.compile(r"(?!select\s|create\s|/\*|--)(?:.*\.ceql|\S*[/\\]\S*)", re.IGNORECASE)
_NEXT_WORD = re.compile(r"[ \t]+(\w+)")
_VALUE_START = {"NAME", "QUOTED_NAME", "NUMBER", "STRING", "PARAMETER"}
_ARITHMETIC = {"PLUS", "STAR", "SLASH", "PERCENT"}
_GROUPS = (
    ({"NAME", "NUMBER", "NOT"}, {*_VALUE_START, "LPAR", "TRUE", "FALSE", "NULL", "NOT", "_CASE"}, "a predicate"),
    ({"NAME", "NUMBER"}, {*_VALUE_START, "LPAR", "TRUE", "FALSE", "NULL", "_CASE"}, "a value"),
    ({"STRING", "NULL"}, {"NUMBER", "STRING", "PARAMETER", "TRUE", "FALSE", "NULL"}, "a constant"),
    (
        {"COMPARISON"},
        {"COMPARISON", "MORE", "NOT", "_IN", "_BETWEEN", "LIKE", "ILIKE", "RLIKE", "_IS", *_ARITHMETIC, "LPAR"},
        "an operator",
    ),
    ({"PERCENT"}, {*_ARITHMETIC, "LPAR"}, "an operator"),
)
"""Words for groups of tokens in hints: (tokens that must all be expected, tokens that the words replace, the words)."""

MAX_EXPECTED = 6
"""Most alternatives that a hint lists; a longer list helps nobody."""
MAX_PATH = 200
"""Longest text that may be the path of a file."""
MAX_SHOWN = 40
"""Longest piece of a query that a message repeats."""


class Mistake(Exception):  # noqa: N818 - it is not raised to users
    """A mistake of the user, raised by code that does not have the query text; `at` makes it a `QueryError`."""

    def __init__(self, message: str, span: Span, hint: str | None = None, related: Span | None = None) -> None:
        super().__init__(message)
        self.message, self.span, self.hint, self.related = message, span, hint, related

    def at(self, text: str) -> QueryError:
        """Return the error for the user."""
        return QueryError(self.message, text, self.span, self.hint, self.related)


def span_of(token: Token) -> Span:
    """Return the place of a token."""
    start = token.start_pos or 0
    return Span(start, token.end_pos if token.end_pos is not None else start + len(token))


def syntax_mistake(error: UnexpectedInput, before: list[Token], text: str) -> Mistake:
    """Return what is wrong at the place where Lark stopped; `before` are the tokens before it."""
    mistake = _mistake_in_text(error, before, text)
    if len(text) <= MAX_PATH and _PATH.fullmatch(text):
        mistake.hint = f"this is the path of a file, not a query: give pathlib.Path({text!r})"
    return mistake


def _mistake_in_text(error: UnexpectedInput, before: list[Token], text: str) -> Mistake:
    if isinstance(error, UnexpectedCharacters):
        return _stray_character(text, error.pos_in_stream or 0)
    assert isinstance(error, UnexpectedToken)
    token = error.token
    if token.type == "$END":
        return _early_end(error, before)
    return (
        _open_comment(token, text)
        or _trailing_semicolon(token, text)
        or _unmatched_bracket(token, before)
        or _nothing_negated(token, before)
        or _reserved_word(error, token, before)
        or _misplaced_clause(token, before)
        or _formula_after_filter(token, before)
        or _formula_after_project(token, before)
        or _formula_after_without(token, before)
        or _for_without_not(error, token)
        or Mistake(f"unexpected '{shortened(token)}'", span_of(token), _expectation(error, before, text))
    )


def _early_end(error: UnexpectedToken, before: list[Token]) -> Mistake:
    if not before:
        return Mistake("the query is empty", Span(0, 0), "a query begins with SELECT or CREATE STREAM")
    last = before[-1]
    if last.type == "SEMICOLON":
        return _nothing_follows(last)
    return (
        _formula_after_filter(None, before)
        or _unclosed_bracket(error, before)
        or Mistake(
            f"the query ends too early, after '{shortened(last)}'", span_of(last), _expectation(error, before, "")
        )
    )


def _unclosed_bracket(error: UnexpectedToken, before: list[Token]) -> Mistake | None:
    pending = _open_brackets(before)
    if not pending or not any(pending[-1].type in BRACKETS.get(name, ()) for name in _accepted(error)):
        return None
    closer = CLOSERS[pending[-1].type]
    return Mistake(f"'{pending[-1]}' is not closed", span_of(pending[-1]), f"close it with {closer}")


def _stray_character(text: str, position: int) -> Mistake:
    character = text[position]
    here = Span(position, position + 1)
    if text.startswith("``", position):
        return Mistake("the name between backticks is empty", Span(position, position + 2))
    if character in _QUOTES:
        return Mistake(f"the {_QUOTES[character]} is not closed", here, f"close it with {character}")
    code = f"U+{ord(character):04X}"
    name = unicodedata.name(character, "NUL" if character == "\0" else "a control character")
    shown = f"'{character}' ({code}, {name})" if character.isprintable() else f"{code} ({name})"
    return Mistake(f"stray character {shown}", here, _instead_of(character))


def _instead_of(character: str) -> str | None:
    if character in _WRITE_INSTEAD:
        return _WRITE_INSTEAD[character]
    plain = unicodedata.normalize("NFKC", character)
    if plain != character and plain.isascii() and plain.isprintable():
        return f"write {plain}"
    if character.isprintable():
        return "put names with other characters than letters, digits and _ between backticks"
    return "delete it"


def _open_comment(token: Token, text: str) -> Mistake | None:
    for start in (span_of(token).start, span_of(token).start - 1):
        if text.startswith("/*", start):
            return Mistake("the comment is not closed", Span(start, start + 2), "close it with */")
    return None


def _trailing_semicolon(token: Token, text: str) -> Mistake | None:
    is_last = token.type == "SEMICOLON" and not text[span_of(token).end :].strip()
    return _nothing_follows(token) if is_last else None


def _nothing_follows(token: Token) -> Mistake:
    return Mistake("';' joins two patterns, but nothing follows it", span_of(token), "a query has no ';' at its end")


def _open_brackets(before: list[Token]) -> list[Token]:
    """Return the brackets that are open after some tokens, the innermost last."""
    pending: list[Token] = []
    for token in before:
        if token.type in CLOSERS:
            pending.append(token)
        elif token.type in BRACKETS and pending:
            pending.pop()
    return pending


def _unmatched_bracket(token: Token, before: list[Token]) -> Mistake | None:
    pending = _open_brackets(before)
    here = span_of(token)
    if token.type in BRACKETS and not pending:
        return Mistake(f"'{token}' closes nothing", here)
    if token.type in BRACKETS and pending[-1].type not in BRACKETS[token.type]:
        hint = f"close it with {CLOSERS[pending[-1].type]} first"
        return Mistake(f"'{token}' does not close '{pending[-1]}'", here, hint, span_of(pending[-1]))
    if token.type == "LSQB" and pending and pending[-1].type == "LSQB":
        return Mistake("'[' inside [...]", here, "close the first [ with ]", span_of(pending[-1]))
    return None


def _reserved_word(error: UnexpectedToken, token: Token, before: list[Token]) -> Mistake | None:
    """Return the mistake of a reserved word in the place of a name or a value."""
    accepted = _accepted(error)
    if token.type == "NOT" and "NAME" in accepted:
        hint = "write it inside the brackets of a condition: x[NOT ...]"
        return Mistake(f"'{token}' negates a predicate, not a condition", span_of(token), hint)
    if token.type == "ANY_EVENT" and _open_conditions(before) is not None:
        hint = "write _[...] in the pattern, or give the event a name with AS"
        return Mistake("'_' is not a variable", span_of(token), hint)
    is_value = accepted >= _VALUE_START and token.type not in ("_AND", "_OR")
    must_be_name = "NAME" in accepted and accepted <= {
        "NAME",
        "QUOTED_NAME",
        "LPAR",
        "RSQB",
        "RBRACE",
        *_RARE_BEGINNINGS,
    }
    if token.lower() in RESERVED and (is_value or must_be_name):
        return Mistake(f"'{token}' is a reserved word", span_of(token), f"write `{token}` to use it as a name")
    return None


def _misplaced_clause(token: Token, before: list[Token]) -> Mistake | None:
    here = span_of(token)
    passed = {_CLAUSE_OF_TOKEN[earlier.type]: earlier for earlier in before if earlier.type in _CLAUSE_OF_TOKEN}
    if token.type in ("_FILTER", "_PROJECT") or token.upper() == "WITHOUT":
        late = [clause for clause in passed if clause in CLAUSES[3:]]
        word = token.upper()
        return Mistake(f"{word} must come before {late[-1]}", here, f"{word} is part of WHERE") if late else None
    if token.type == "_CREATE" and passed:
        return Mistake("CREATE STREAM must come before SELECT", here)
    clause = _CLAUSE_OF_TOKEN.get(token.type)
    if clause is None:
        return None
    if clause in passed:
        hint = "conditions on events go into FILTER, after the pattern" if clause == "WHERE" else None
        return Mistake(f"{clause} is given twice", here, hint, span_of(passed[clause]))
    missing = [needed for needed in CLAUSES[:3] if needed not in passed and needed != clause]
    if missing and CLAUSES.index(missing[0]) < CLAUSES.index(clause):
        return Mistake(f"{missing[0]} must come before {clause}", here, ORDER_HINT)
    return None


def _formula_after_filter(token: Token | None, before: list[Token]) -> Mistake | None:
    """Return the mistake if the pattern continues after a FILTER's conditions."""
    conditions = _open_conditions(before)
    if conditions is None:
        return None
    hint = _COVERS_HINT.format(word="FILTER")
    if token is not None and token.type in _GOING_ON and conditions and conditions[-1].type in BRACKETS:
        return Mistake(f"unexpected '{token}' after FILTER's conditions", span_of(token), hint)
    last_or = next((earlier for earlier in reversed(conditions) if earlier.type in ("_OR", "_AND")), None)
    if last_or is not None and last_or.type == "_OR" and conditions[-1].type not in ("_OR", "RSQB"):
        message = f"'{last_or}' after FILTER's conditions adds a condition, not a pattern"
        return Mistake(message, span_of(last_or), hint)
    return None


def _formula_after_project(token: Token, before: list[Token]) -> Mistake | None:
    if token.type not in _GOING_ON or not before or before[-1].type != "RSQB":
        return None
    opening = next(index for index in reversed(range(len(before))) if before[index].type == "LSQB")
    if before[opening - 1].type != "_PROJECT":
        return None
    return Mistake(f"unexpected '{token}' after PROJECT", span_of(token), _COVERS_HINT.format(word="PROJECT"))


def _for_without_not(error: UnexpectedToken, token: Token) -> Mistake | None:
    if token.upper() != "FOR" or not _accepted(error) & {"PARTITION", "_WITHOUT"}:
        return None
    hint = "FOR stands right after the event of a NOT: A ; NOT B FOR 10 minutes"
    return Mistake(f"unexpected '{token}'", span_of(token), hint)


def _formula_after_without(token: Token, before: list[Token]) -> Mistake | None:
    """Return the mistake if the pattern continues after the event of a WITHOUT."""
    if token.type not in _GOING_ON:
        return None
    event = _last_event(before)
    if event is None or event == 0 or before[event - 1].upper() != "WITHOUT":
        return None
    hint = _COVERS_HINT.format(word="WITHOUT")
    if token.type in ("_OR", "_AS"):
        hint = "put the events in parentheses: WITHOUT (A OR B)"
    return Mistake(f"unexpected '{token}' after WITHOUT", span_of(token), hint)


def _last_event(before: list[Token]) -> int | None:
    """Return where the event begins with which some tokens end: a type, with its brackets, or parentheses."""
    index = len(before) - 1
    for closing, opening in (("RSQB", "LSQB"), ("RPAR", "LPAR")):
        if index >= 0 and before[index].type == closing:
            while index >= 0 and before[index].type != opening:
                index -= 1
            if opening == "LPAR":
                return index
            index -= 1
    if index < 0 or before[index].type not in ("NAME", "QUOTED_NAME", "ANY_EVENT"):
        return None
    return index - 2 if index > 1 and before[index - 1].type == "MORE" else index


def _nothing_negated(token: Token, before: list[Token]) -> Mistake | None:
    """Return the mistake of NOT right after NOT or WITHOUT in a pattern."""
    last = before[-1].upper() if before else ""
    if token.type != "NOT" or last not in ("NOT", "WITHOUT"):
        return None
    if last == "NOT":
        return Mistake("NOT stands twice", span_of(token), "write it once: A ; NOT B ; C")
    return Mistake("NOT after WITHOUT", span_of(token), "leave it out: WITHOUT B already says that no B comes")


def _open_conditions(before: list[Token]) -> list[Token] | None:
    """Return the tokens of the FILTER that is being read, without those inside predicates."""
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


def _expectation(error: UnexpectedToken, before: list[Token], text: str) -> str | None:
    """Return the hint that says what is possible here, or what the user probably meant."""
    accepted = _accepted(error)
    habit = _sql_habit(error.token, before, accepted)
    if habit is not None:
        return habit
    name = _name_with_blanks(error.token, before, accepted, text)
    if name is None and accepted == {"LSQB"} and _open_conditions(before) is not None:
        return _CONDITION_HINT
    if error.token.type == "DOT" and "LSQB" in accepted and before:
        return f"write {before[-1]}[...] to show some of its attributes"
    if error.token.type == "NAME":
        words = sorted(name.lstrip("_") for name in accepted if name not in _EXPECTED_WORDS)
        meant = did_you_mean(error.token, words)
        if meant:
            return meant
    expected = _expected_words(error)
    hint = f"expected {expected}" if expected else None
    if {"SEMICOLON", "COLON"} <= accepted:
        hint = _PATTERN_HINT
    if name is not None:
        return f"if this is one name, write {name} with backticks" + (f"; otherwise {hint}" if hint else "")
    return hint


def _sql_habit(token: Token, before: list[Token], accepted: set[str]) -> str | None:
    """Return the hint for syntax of SQL and other languages."""
    if token.type == "STRING" and "QUOTED_NAME" in accepted:
        name = token[1:-1]
        return f"write names between backticks, not quotes:  `{name}`" if name and len(name) <= MAX_SHOWN else None
    last = before[-1].type if before else ""
    if last == "_IN" and token.type == "LPAR":
        return "write IN {'a', 'b'}"
    if last in ("LBRACE", "COLON_BRACE", "ARROW_BRACE") and token.type == "COMMA" and "NUMBER" in accepted:
        return "write the smaller number, too: {0,2}"
    is_pattern = {"SEMICOLON", "COLON"} <= accepted
    if is_pattern and token.type == "NAME" and token.upper() == "GROUP":
        return "write PARTITION BY [...]"
    if is_pattern and token.type in ("COMPARISON", "MORE", "_IN", "LIKE", "ILIKE"):
        return "WHERE takes a pattern; write conditions after it, as FILTER x[...]"
    if is_pattern and token.type == "NAME" and last == "NAME" and before[-1].upper() == "PERMUTE":
        return "write PERMUTE(A, B)"
    if token.type == "COMMA" and accepted & {"PARTITION", "_WITHOUT"}:
        join = "join the parts of a pattern by ; (later), : (right after) or -> (the next that fits)"
        return join if _open_conditions(before) is None else "join conditions by AND or OR"
    return None


def _name_with_blanks(token: Token, before: list[Token], accepted: set[str], text: str) -> str | None:
    """Return the name, between backticks, that the user probably meant by several words in a row."""
    last = before[-1] if before else None
    if last is None or last.type != "NAME" or token.type != "NAME":
        return None
    if not re.fullmatch(r"[ \t]+", text[span_of(last).end : span_of(token).start]):
        return None
    if last.upper() == "FOR" and "NUMBER" in accepted and "NAME" not in accepted:
        return None
    # Words that do not begin a name: a unit of WITHIN, a policy of CONSUME BY, a type in CREATE STREAM.
    earlier = before[-2].type if len(before) > 1 else ""
    if earlier in ("NUMBER", "_BY") or (earlier == "COLON" and "COLON" not in accepted):
        return None
    end = span_of(token).end
    while (word := _NEXT_WORD.match(text, end)) and word[1].lower() not in RESERVED:
        end = word.end()
    if word and word[1].lower() == "by":
        return None
    name = text[span_of(last).start : end]
    return f"`{name}`" if len(name) <= MAX_SHOWN else None


def _expected_words(error: UnexpectedToken) -> str:
    """Return what is possible here, or nothing if the list would be too long to help."""
    accepted = _accepted(error)
    if "NUMBER" in accepted:
        # A minus may come before every number, but a user who forgot the number did not want a minus.
        accepted.discard("MINUS")
    accepted.discard("PARAMETER")
    if "ANY_EVENT" in accepted:
        accepted -= _RARE_BEGINNINGS
    things = []
    for telling, covered, thing in _GROUPS:
        if telling <= accepted:
            accepted -= covered | {"MINUS"}
            things.append(thing)
    words = sorted({*things, *(_EXPECTED_WORDS.get(name, name.lstrip("_")) for name in accepted)})
    return " or ".join(words) if len(words) <= MAX_EXPECTED else ""


def shortened(text: str) -> str:
    """Return text, shortened for a message."""
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
