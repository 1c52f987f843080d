"""Text that is shown as it is: characters that would drive a terminal are written as escapes."""

from __future__ import annotations

import re

HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that steer a terminal, change the direction of text, break lines unseen, or are no characters.

Line breaks and tabs are not among them, since whole messages have them, too.
"""


def visible(text: str) -> str:
    r"""Return a name or value on one line, with what would not be seen as an escape.

    >>> visible("\x1b[2J\ttab\nline é")
    '\\x1b[2J\\ttab\\nline é'
    """
    return visible_lines(text).replace("\n", "\\n").replace("\t", "\\t")


def visible_lines(text: str) -> str:
    r"""Return a text of several lines, with what would not be seen as an escape.

    >>> visible_lines("one\ntwo\u202e\x9b")
    'one\ntwo\\u202e\\x9b'
    """
    return HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
