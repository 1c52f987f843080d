r"""LIKE patterns and regular expressions, restricted to what every backend reads in the same way.

RE2 (Arrow) evaluates RLIKE; Java (Spark) does so to leave out rows early. They agree
on most of the syntax but not on all of its meaning: `.` and `$` treat line ends differently,
`\w` and `\b` treat Unicode differently. So this module reads a pattern and rewrites it in the common core: shorthands
become explicit classes, `$` becomes the end of the text, and syntax without a common meaning is refused.

RE2 takes time linear in the text for every pattern. The factor grows with the pattern, with repetitions written out, so
this length is bounded.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from string import hexdigits

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ceql.functions.text import lowered

IGNORES_CASE = "(?i)"
"""At its beginning, says that a regular expression ignores case; then it is asked of texts in lower case."""

MAX_PATTERN = 5000
"""Longest pattern in characters; a part that is repeated n times counts n times."""

WORK_AT_ONCE, MIN_BYTES_AT_ONCE = 1 << 26, 1 << 16
"""Bytes of texts times characters of the pattern, repetitions written out, that are searched at a time, and the bytes
that always are; between them Python can react to signals. The slowest patterns take ten seconds for a million bytes."""

_SHORTHANDS = {"d": "0-9", "w": "A-Za-z0-9_", "s": "\\t\\n\\x0b\\f\\r "}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_REFUSED_ESCAPES = {
    "b": "word boundaries",
    "B": "word boundaries",
    "Z": "\\Z (write $)",
    "p": "Unicode classes",
    "P": "Unicode classes",
    "Q": "\\Q quoting",
}
_QUANTIFIERS = "*+?{"
_REPETITIONS = "a repetition goes up to 1000; a repeated group multiplies the repetitions inside it"


class PatternError(ValueError):
    """A LIKE or RLIKE pattern that backends read differently."""


def like_to_regex(pattern: str) -> str:
    r"""Return the regular expression that matches the same as a LIKE pattern.

    `%` is any text, `_` any one character, and a backslash makes the next `%`, `_` or backslash literal. As in Spark, a
    backslash before another character is a mistake.

    For each piece between two `%` only the first place where it fits is tried, which is enough. So the time stays
    linear in the length of the text.

    >>> print(like_to_regex("a_%"))
    ^a[\s\S][\s\S]*\z
    >>> print(like_to_regex("a%b%c"))
    ^a(?>[\s\S]*?b)[\s\S]*c\z
    """
    pieces = [""]
    characters = iter(pattern)
    for character in characters:
        if character == "\\":
            escaped = next(characters, "")
            if escaped not in ("%", "_", "\\"):
                raise PatternError("in LIKE, a backslash must come before %, _ or another backslash")
            pieces[-1] += _literal(escaped)
        elif character == "%":
            pieces.append("")
        else:
            pieces[-1] += "[\\s\\S]" if character == "_" else _literal(character)
    _check_length(len(pattern))
    first, *others = pieces
    if not others:
        return f"^{first}\\z"
    found_first = "".join(f"(?>[\\s\\S]*?{piece})" for piece in others[:-1] if piece)
    return f"^{first}{found_first}[\\s\\S]*{others[-1]}\\z"


def portable_regex(pattern: str) -> str:
    r"""Return a regular expression in the common core of RE2 and Java, or raise `PatternError`.

    The match may be anywhere in the text. Laziness is dropped: it cannot change whether
    there is a match.

    With `(?i)` before it, a character stands for all that have the same lower case, and the text must be in lower case.

    >>> print(portable_regex("^a.\\d+$"))
    ^a[^\n][0-9]+\z
    >>> print(portable_regex("(?i)CMD[.X-Z]"))
    cmd[\.X-Zx-z]
    """
    ignores_case = pattern.startswith(IGNORES_CASE)
    written = _RegexReader(pattern.removeprefix(IGNORES_CASE), ignores_case=ignores_case).read()
    try:
        search(written, pa.array([""]))
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        raise PatternError(_REPETITIONS if "repetition size" in reason else reason) from None
    return written


def search(written: str, texts: pa.Array) -> pa.Array:
    """Return whether each text contains a match of a result of `portable_regex` or `like_to_regex`; NULL for NULL."""
    if not pa.types.is_string(texts.type) and not pa.types.is_large_string(texts.type):
        texts = texts.cast(pa.large_string())
    asked = _literal_search(written)
    if asked is not None:
        function, text = asked
        return function(texts, text)
    # RE2 never backtracks, so it has no atomic groups. That any text may follow changes no result.
    regex = written.replace("(?>", "(?:").removesuffix(f"{_ANY}{_END}")
    written_out = (len(regex) + 1) * (1 + sum(map(int, re.findall(r"\d+(?=[,\d]*\})", regex))))
    parts = _parts(texts, max(MIN_BYTES_AT_ONCE, WORK_AT_ONCE // written_out))
    return pa.chunked_array([pc.match_substring_regex(part, regex) for part in parts], pa.bool_()).combine_chunks()


def _parts(texts: pa.Array, n_bytes: int) -> Iterator[pa.Array]:
    """Yield all texts, as many at a time as have some bytes together, or a single one that is longer."""
    if texts.nbytes <= n_bytes:
        yield texts
        return
    ends = np.cumsum(pc.fill_null(pc.binary_length(texts), 0).to_numpy())
    at, done = 0, 0
    while at < len(texts):
        end = max(at + 1, int(np.searchsorted(ends, done + n_bytes, side="right")))
        yield texts.slice(at, end - at)
        at, done = end, int(ends[end - 1])


@lru_cache
def _literal_search(written: str) -> tuple[Callable[[pa.Array, str], pa.Array], str] | None:
    r"""Return the function of Arrow and the text that a search amounts to; None if it asks for more than one text.

    PERF: RE2 takes several times as long to find a text in a text (`make bench`).
    """
    tokens = _TOKENS.findall(written)
    if "".join(tokens) != written:
        return None
    begins, ends = tokens[:1] == [_BEGIN], tokens[-1:] == [_END]
    tokens = tokens[begins : len(tokens) - ends]
    if ends and tokens[-1:] == [_ANY]:
        tokens, ends = tokens[:-1], False
    if begins and tokens[:1] == [_ANY]:
        tokens, begins = tokens[1:], False
    elif begins and tokens[:1] == [_FIRST] and tokens[-1:] == [")"] and not ends:
        tokens, begins = tokens[1:-1], False
    if not {_BEGIN, _END, _ANY, _FIRST, ")"}.isdisjoint(tokens):
        return None
    text = "".join(chr(int(token[2:], 16)) if token.startswith("\\x") else token[-1] for token in tokens)
    return _LITERAL_SEARCHES[begins, ends], text


_BEGIN, _END, _ANY, _FIRST = "^", "\\z", "[\\s\\S]*", "(?>[\\s\\S]*?"
"""Parts of patterns as they are written here."""
_TOKENS = re.compile(
    "|".join(map(re.escape, (_BEGIN, _END, _ANY, _FIRST, ")")))
    + r"|\\x[0-9a-f]{2}|\\[^A-Za-z0-9_]|[A-Za-z0-9_]|[^\x00-\x7f]"
)
_LITERAL_SEARCHES: dict[tuple[bool, bool], Callable[[pa.Array, str], pa.Array]] = {
    (True, True): pc.equal,
    (True, False): pc.starts_with,
    (False, True): pc.ends_with,
    (False, False): pc.match_substring,
}
"""By whether the text stands at the beginning and at the end."""


def _check_length(length: int) -> None:
    if length > MAX_PATTERN:
        raise PatternError(f"it has more than {MAX_PATTERN} characters, with repetitions written out")


def _literal(character: str) -> str:
    if character.isalnum() or character == "_" or ord(character) > 127:
        return character
    return f"\\x{ord(character):02x}" if not character.isprintable() else "\\" + character


def _lower_ranges(first: str, last: str) -> Iterator[str]:
    """Yield, as ranges, the lower case of the characters of a range that it does not have itself."""
    found = [code for upper, code in _changed_by_lowering() if first <= chr(upper) <= last]
    codes = sorted({code for code in found if not first <= chr(code) <= last})
    begins = [code for number, code in enumerate(codes) if not number or codes[number - 1] < code - 1]
    ends = [code for number, code in enumerate(codes) if number + 1 == len(codes) or codes[number + 1] > code + 1]
    for begin, end in zip(begins, ends, strict=True):
        yield _literal(chr(begin)) if begin == end else f"{_literal(chr(begin))}-{_literal(chr(end))}"


@lru_cache
def _changed_by_lowering() -> list[tuple[int, int]]:
    """Return all characters that are not in lower case, each with its lower case."""
    codes = [code for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF]
    lower = pc.utf8_lower(pa.array(map(chr, codes))).to_pylist()
    return [(code, ord(low)) for code, low in zip(codes, lower, strict=True) if code != ord(low)]


class _RegexReader:
    """Reads one pattern from left to right and writes its portable form."""

    def __init__(self, pattern: str, *, ignores_case: bool = False) -> None:
        self.pattern = pattern
        self.ignores_case = ignores_case
        self.position = 0
        self.lengths = [0]
        """The characters of each open group so far, the whole pattern first, with repetitions written out."""

    def read(self) -> str:
        _check_length(len(self.pattern))
        written = []
        while self.position < len(self.pattern):
            written.append(self._item())
            _check_length(self.lengths[-1])
        if len(self.lengths) > 1:
            raise PatternError("a '(' is not closed")
        return "".join(written)

    def _peek(self, length: int = 1) -> str:
        return self.pattern[self.position : self.position + length]

    def _take(self) -> str:
        if self.position >= len(self.pattern):
            raise PatternError("the pattern ends too early")
        self.position += 1
        return self.pattern[self.position - 1]

    def _item(self) -> str:
        character = self._take()
        match character:
            case "|":
                return "|"
            case "(":
                return self._open_group()
            case ")":
                if len(self.lengths) == 1:
                    raise PatternError("a ')' closes nothing")
                return ")" + self._quantifier(self.lengths.pop())
            case "^" | "$":
                return self._anchor("^" if character == "^" else "\\z")
            case "\\":
                return self._escape()
            case "[":
                return self._class()
            case ".":
                return "[^\\n]" + self._quantifier()
            case "*" | "+" | "?" | "{":
                raise PatternError(f"'{character}' repeats nothing; write \\{character} for the character itself")
            case _:
                return self._literal(character) + self._quantifier()

    def _literal(self, character: str) -> str:
        return _literal(lowered(character) if self.ignores_case else character)

    def _open_group(self) -> str:
        self.lengths.append(0)
        if self._peek() == "?":
            if self._peek(len(IGNORES_CASE) - 1) == IGNORES_CASE[1:]:
                raise PatternError("write (?i) at the beginning; it counts for the whole expression")
            if self._peek(2) != "?:":
                raise PatternError("use plain groups, (...) or (?:...); backends read other groups differently")
            self.position += 2
        return "(?:"

    def _anchor(self, written: str) -> str:
        if self._peek() and self._peek() in _QUANTIFIERS:
            raise PatternError("an anchor cannot be repeated")
        return written

    def _escape(self) -> str:
        character = self._take()
        if character in _SHORTHANDS:
            return f"[{_SHORTHANDS[character]}]" + self._quantifier()
        if character.lower() in _SHORTHANDS:
            return f"[^{_SHORTHANDS[character.lower()]}]" + self._quantifier()
        if character in "Az":
            return self._anchor("^" if character == "A" else "\\z")
        return self._literal(self._escaped(character)) + self._quantifier()

    def _escaped(self, character: str) -> str:
        """Return the character that an escape stands for, after the backslash and `character` have been read."""
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character in "xu":
            digits = "".join(self._take() for _ in range(2 if character == "x" else 4))
            if not set(digits) <= set(hexdigits) or 0xD800 <= int(digits, 16) <= 0xDFFF:
                raise PatternError(f"\\{character}{digits} is not a character code")
            return chr(int(digits, 16))
        if character in _REFUSED_ESCAPES:
            raise PatternError(f"backends read {_REFUSED_ESCAPES[character]} differently")
        if character.isalnum():
            raise PatternError(f"backends read \\{character} differently")
        return character

    def _class(self) -> str:
        negation = ""
        if self._peek() == "^":
            negation = self._take()
        items: list[str] = []
        while self._peek() != "]" or not items:
            items.append(self._class_item())
        self._take()
        return f"[{negation}{''.join(items)}]" + self._quantifier(len(items))

    def _class_item(self) -> str:
        character = self._take()
        if character == "[" or (character == "&" and self._peek() == "&"):
            raise PatternError(f"write \\{character} for '{character}' inside [...]")
        if character == "]":
            raise PatternError("an empty [] matches nothing; write \\] for the character itself")
        if character == "\\":
            escaped = self._take()
            if escaped in _SHORTHANDS:
                return _SHORTHANDS[escaped]
            if escaped.lower() in _SHORTHANDS:
                raise PatternError(f"backends read \\{escaped} inside [...] differently")
            character = self._escaped(escaped)
        if self._peek() == "-" and self._peek(2)[1:] not in ("]", ""):
            self._take()
            end = self._range_end(character)
            lower = "".join(_lower_ranges(character, end)) if self.ignores_case else ""
            return f"{_literal(character)}-{_literal(end)}{lower}"
        return self._literal(character)

    def _range_end(self, start: str) -> str:
        end = self._take()
        if end == "\\":
            end = self._escaped(self._take())
        if end < start or end == "[":
            raise PatternError(f"the range {start}-{end} is empty or unclear")
        return end

    def _quantifier(self, length: int = 1) -> str:
        """Return the quantifier of the last item, and count the item's `length` as often."""
        character = self._peek()
        if not character or character not in _QUANTIFIERS:
            self.lengths[-1] += length
            return ""
        self._take()
        written, times = self._counted() if character == "{" else (character, 1)
        self.lengths[-1] += length * times
        if self._peek() == "?":
            self._take()
        elif self._peek() and self._peek() in _QUANTIFIERS:
            raise PatternError(f"backends read '{self._peek()}' after a repetition differently")
        return written

    def _counted(self) -> tuple[str, int]:
        """Return a repetition with numbers, and the larger number."""
        end = self.pattern.find("}", self.position)
        body = self.pattern[self.position : end] if end >= 0 else ""
        low, comma, high = body.partition(",")
        if not low.isascii() or not low.isdigit() or (high and not (high.isascii() and high.isdigit())):
            raise PatternError("write \\{ for the character itself, or {n}, {n,}, {n,m} to repeat")
        if any(len(number.lstrip("0")) > 4 for number in (low, high)):
            raise PatternError(_REPETITIONS)
        if high and int(high) < int(low):
            raise PatternError(f"the repetition {{{body}}} is empty")
        self.position = end + 1
        return f"{{{low}{comma}{high}}}", int(high or low)
