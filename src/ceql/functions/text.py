"""Functions on strings. A string is its code points; nothing is normalised."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ceql.functions.entry import INTEGER, TEXT, Function, Taken
from ceql.schema import Kind

TEXT_OR_LIST = Taken("a string or a list", frozenset((Kind.STRING, Kind.LIST)))
SPACE = " "


@lru_cache(maxsize=4096)
def lowered(text: str) -> str:
    """Return a text with each code point in lower case, as Arrow has it: no code point becomes several.

    >>> lowered("CMD.exe"), lowered("İ"), len(lowered("ΑΣ"))
    ('cmd.exe', 'i', 2)
    """
    return text.lower() if text.isascii() else str(pc.utf8_lower(pa.scalar(text)).as_py())


@lru_cache(maxsize=4096)
def _raised(text: str) -> str:
    return text.upper() if text.isascii() else str(pc.utf8_upper(pa.scalar(text)).as_py())


def _part(text: str, start: int, length: int | None = None) -> str:
    begin = start - 1 if start > 0 else start and len(text) + start
    end = len(text) if length is None else begin + length
    return text[max(begin, 0) : max(end, 0)]


def _parts(texts: Any, start: Any, length: Any = None) -> Any:
    if not _is_constant(start, length):
        return None
    begin = start - 1 if start > 0 else start
    if length is not None and length <= 0:
        return pc.utf8_slice_codeunits(texts, 0, 0)
    end = None if length is None or begin < 0 <= begin + length else begin + length
    return pc.utf8_slice_codeunits(texts, begin, end)


def _part_in_spark(f: Any, text: Any, start: Any, length: Any = None) -> Any:
    return f.substring(text, start, MOST if length is None else length) if _is_constant(start, length) else None


MOST = 2**31 - 1
"""The largest number that Spark takes for a place in a text, and more than any text of Arrow has characters."""


def _is_constant(start: Any, length: Any) -> bool:
    return all(number is None or (type(number) is int and abs(number) < MOST) for number in (start, length))


def _joined(*texts: Any) -> Any:
    parts = [pa.scalar(text, pa.large_string()) if isinstance(text, str) else text for text in (*texts, "")]
    return pc.binary_join_element_wise(*parts, null_handling="emit_null")


def _is_text(values: Any) -> bool:
    return bool(pa.types.is_string(values.type) or pa.types.is_large_string(values.type))


def _with_constant(function: Callable[[Any, str], Any]) -> Callable[[Any, Any], Any]:
    """Return a test of texts by Arrow that is only possible for a constant part."""
    return lambda texts, part: function(texts, part) if isinstance(part, str) and not isinstance(texts, str) else None


TEXTS = (
    Function(
        "LOWER",
        (TEXT,),
        Kind.STRING,
        of=lowered,
        arrow=pc.utf8_lower,
        spark=lambda f, text: f.lower(text),
        ascii_only=True,
    ),
    Function(
        "UPPER",
        (TEXT,),
        Kind.STRING,
        of=_raised,
        arrow=pc.utf8_upper,
        spark=lambda f, text: f.upper(text),
        ascii_only=True,
    ),
    Function(
        "LENGTH",
        (TEXT_OR_LIST,),
        Kind.INTEGER,
        of=len,
        arrow=lambda texts: pc.utf8_length(texts) if _is_text(texts) else pc.list_value_length(texts),
        spark=lambda f, text: f.length(text),
    ),
    Function(
        "TRIM",
        (TEXT,),
        Kind.STRING,
        of=lambda text: text.strip(SPACE),
        arrow=lambda texts: pc.utf8_trim(texts, SPACE),
        spark=lambda f, text: f.trim(text),
    ),
    Function(
        "SUBSTR",
        (TEXT, INTEGER, INTEGER),
        Kind.STRING,
        of=_part,
        arrow=_parts,
        spark=_part_in_spark,
        optional=1,
    ),
    Function(
        "CONCAT",
        (TEXT,),
        Kind.STRING,
        of=lambda *texts: "".join(texts),
        arrow=_joined,
        spark=lambda f, *texts: f.concat(*texts),
        repeats=True,
    ),
    Function(
        "STARTS_WITH",
        (TEXT, TEXT),
        Kind.BOOLEAN,
        of=str.startswith,
        arrow=_with_constant(pc.starts_with),
        spark=lambda f, text, part: f.startswith(text, part),
    ),
    Function(
        "ENDS_WITH",
        (TEXT, TEXT),
        Kind.BOOLEAN,
        of=str.endswith,
        arrow=_with_constant(pc.ends_with),
        spark=lambda f, text, part: f.endswith(text, part),
    ),
    Function(
        "CONTAINS",
        (TEXT, TEXT),
        Kind.BOOLEAN,
        of=lambda text, part: part in text,
        arrow=_with_constant(pc.match_substring),
        spark=lambda f, text, part: f.contains(text, part),
    ),
)
