r"""LIKE patterns and regular expressions, restricted to what every backend reads alike.

RLIKE is evaluated by RE2 (Arrow), by Java (Spark) and by Python (on single events). They
agree on most of the syntax but not on all of its meaning: `.` and `$` treat line ends
differently, `\w` and `\b` treat Unicode differently. So a pattern is read here and written
anew in the common core: shorthands become explicit classes, `$` becomes the end of the
text, and what has no common meaning is refused.
"""

from __future__ import annotations

from string import hexdigits

import pyarrow as pa
import pyarrow.compute as pc

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


class PatternError(ValueError):
    """A LIKE or RLIKE pattern that the backends do not read alike."""


def like_to_regex(pattern: str) -> str:
    r"""Return the regular expression that matches what a LIKE pattern does.

    `%` is any text, `_` any one character, and a backslash takes the next `%`, `_` or
    backslash literally. As in Spark, a backslash before anything else is a mistake.

    Between two `%` the first place where a piece fits will do, and no other is tried: the time is not a power of the
    text's length.

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
                raise PatternError("a backslash in LIKE may stand only before %, _ or another backslash")
            pieces[-1] += _literal(escaped)
        elif character == "%":
            pieces.append("")
        else:
            pieces[-1] += "[\\s\\S]" if character == "_" else _literal(character)
    first, *others = pieces
    if not others:
        return f"^{first}\\z"
    found_first = "".join(f"(?>[\\s\\S]*?{piece})" for piece in others[:-1] if piece)
    return f"^{first}{found_first}[\\s\\S]*{others[-1]}\\z"


def portable_regex(pattern: str) -> str:
    r"""Return a regular expression in the common core of RE2 and Java, or raise `PatternError`.

    The match may be anywhere in the text. Laziness is dropped: it cannot change whether
    there is a match. Python needs `\Z` where this says `\z`: see `python_regex`.

    >>> print(portable_regex("^a.\\d+$"))
    ^a[^\n][0-9]+\z
    """
    written = _RegexReader(pattern).read()
    try:
        pc.match_substring_regex(pa.array([""]), written)
    except pa.ArrowInvalid as error:
        raise PatternError(str(error).removeprefix("Invalid regular expression: ")) from None
    return written


def python_regex(written: str) -> str:
    r"""Return the Python spelling of what `portable_regex` or `like_to_regex` wrote.

    A literal backslash before a z is written as two backslashes, so pairs are skipped.
    """
    parts = written.split("\\\\")
    return "\\\\".join(part.replace("\\z", "\\Z") for part in parts)


def _literal(character: str) -> str:
    if character.isalnum() or character == "_" or ord(character) > 127:
        return character
    return f"\\x{ord(character):02x}" if not character.isprintable() else "\\" + character


class _RegexReader:
    """Reads one pattern from left to right and writes its portable form."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0
        self.depth = 0

    def read(self) -> str:
        written = []
        while self.position < len(self.pattern):
            written.append(self._item())
        if self.depth:
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
                if self.depth == 0:
                    raise PatternError("a ')' closes nothing")
                self.depth -= 1
                return ")" + self._quantifier()
            case "^" | "$":
                return self._anchor("^" if character == "^" else "\\z")
            case "\\":
                return self._escape()
            case "[":
                return self._class() + self._quantifier()
            case ".":
                return "[^\\n]" + self._quantifier()
            case "*" | "+" | "?" | "{":
                raise PatternError(f"'{character}' repeats nothing; write \\{character} for the character itself")
            case _:
                return _literal(character) + self._quantifier()

    def _open_group(self) -> str:
        self.depth += 1
        if self._peek() == "?":
            if self._peek(2) != "?:":
                raise PatternError("only plain groups (...) and (?:...) are read alike by all backends")
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
        return _literal(self._escaped(character)) + self._quantifier()

    def _escaped(self, character: str) -> str:
        """Return the character that an escape stands for, the backslash and `character` being read."""
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character in "xu":
            digits = "".join(self._take() for _ in range(2 if character == "x" else 4))
            if not set(digits) <= set(hexdigits) or 0xD800 <= int(digits, 16) <= 0xDFFF:
                raise PatternError(f"\\{character}{digits} is not a character code")
            return chr(int(digits, 16))
        if character in _REFUSED_ESCAPES:
            raise PatternError(f"{_REFUSED_ESCAPES[character]} are not read alike by all backends")
        if character.isalnum():
            raise PatternError(f"\\{character} is not read alike by all backends")
        return character

    def _class(self) -> str:
        negation = ""
        if self._peek() == "^":
            negation = self._take()
        items: list[str] = []
        while self._peek() != "]" or not items:
            items.append(self._class_item())
        self._take()
        return f"[{negation}{''.join(items)}]"

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
                raise PatternError(f"\\{escaped} inside [...] is not read alike by all backends")
            character = self._escaped(escaped)
        if self._peek() == "-" and self._peek(2)[1:] not in ("]", ""):
            self._take()
            return f"{_literal(character)}-{self._range_end(character)}"
        return _literal(character)

    def _range_end(self, start: str) -> str:
        end = self._take()
        if end == "\\":
            end = self._escaped(self._take())
        if end < start or end == "[":
            raise PatternError(f"the range {start}-{end} is empty or unclear")
        return _literal(end)

    def _quantifier(self) -> str:
        character = self._peek()
        if not character or character not in _QUANTIFIERS:
            return ""
        self._take()
        written = self._counted() if character == "{" else character
        if self._peek() == "?":
            self._take()
        elif self._peek() and self._peek() in _QUANTIFIERS:
            raise PatternError(f"'{self._peek()}' after a repetition is not read alike by all backends")
        return written

    def _counted(self) -> str:
        end = self.pattern.find("}", self.position)
        body = self.pattern[self.position : end] if end >= 0 else ""
        low, comma, high = body.partition(",")
        if not low.isascii() or not low.isdigit() or (high and not (high.isascii() and high.isdigit())):
            raise PatternError("write \\{ for the character itself, or {n}, {n,}, {n,m} to repeat")
        self.position = end + 1
        return f"{{{low}{comma}{high}}}"
