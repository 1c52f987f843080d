"""Text that is safe to show: characters that would control a terminal become escapes."""

from __future__ import annotations

import re

HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that control a terminal, change the direction of text, break lines invisibly, or are invalid.

Line breaks and tabs are not among them, because messages contain them.
"""


def visible(text: str) -> str:
    r"""Return a name or value on one line, with hidden characters as escapes.

    >>> visible("\x1b[2J\ttab\nline é")
    '\\x1b[2J\\ttab\\nline é'
    """
    return visible_lines(text).replace("\n", "\\n").replace("\t", "\\t")


def visible_lines(text: str) -> str:
    r"""Return a text of several lines, with hidden characters as escapes.

    >>> visible_lines("one\ntwo\u202e\x9b")
    'one\ntwo\\u202e\\x9b'
    """
    return HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
