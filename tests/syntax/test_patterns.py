r"""Patterns mean the same to Python and to RE2 (Arrow), and what cannot is refused with a reason."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ceql.syntax.patterns import PatternError, like_to_regex, portable_regex, search


def check(written: str, matching: list[str], others: list[str]) -> None:
    """Fail unless both engines find a match in all of the first texts and in none of the others."""
    texts = [*matching, *others]
    expected = [True] * len(matching) + [False] * len(others)
    in_python = [re.search(in_python_spelling(written), text) is not None for text in texts]
    in_arrow = search(written, pa.array(texts, pa.string())).to_pylist()
    assert dict(zip(texts, in_python, strict=True)) == dict(zip(texts, expected, strict=True))
    assert in_arrow == in_python


def in_python_spelling(written: str) -> str:
    """Return what was written with the end of the text as Python spells it; pairs of backslashes are literal ones."""
    return "\\\\".join(part.replace("\\z", "\\Z") for part in written.split("\\\\"))


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("", ["", "a"], []),
        ("b", ["abc", "b"], ["", "a", "B"]),
        ("^a", ["abc"], ["ba", "b\na", ""]),
        ("c$", ["abc"], ["cb", "abc\n", "c\nb"]),
        ("^a$", ["a"], ["a\n", "\na", "aa"]),
        ("\\Aa\\z", ["a"], ["a\n", "ba"]),
        ("a.c", ["abc", "a.c", "aéc", "a\rc", "a\u2028c"], ["ac", "a\nc"]),
        ("\\d+", ["a1", "42"], ["", "a", "٣", "²"]),
        ("^\\D$", ["a", "٣", "\n"], ["1", ""]),
        ("^\\w+$", ["a_1", "Z"], ["é", "a b", "漢", ""]),
        ("^\\W$", ["é", " ", "-", "\n"], ["a", "_", "0"]),
        ("^\\s+$", [" \t\n\r\f\x0b"], ["", "\u00a0", "\u2003"]),
        ("^\\S+$", ["a\u00a0b"], ["a b", "\n"]),
        ("a|b", ["a", "b"], ["c", ""]),
        ("^(?:a|b)$", ["a", "b"], ["ab"]),
        ("^(a|)b$", ["ab", "b"], ["a"]),
        ("(ab)+$", ["abab"], ["aba"]),
        ("^a{2}$", ["aa"], ["a", "aaa"]),
        ("^a{2,}$", ["aa", "aaaa"], ["a"]),
        ("^a{1,2}$", ["a", "aa"], ["", "aaa"]),
        ("^a{0}$", [""], ["a"]),
        ("^a*b+c?$", ["b", "aabbc"], ["ac", "abcc"]),
        ("^a+?b*?$", ["a", "ab"], ["b"]),
        ("[abc]", ["xbx"], ["x", "A"]),
        ("^[^abc]$", ["x", "\n", "é"], ["a", ""]),
        ("^[a-c0-9]+$", ["a1c"], ["d", "-"]),
        ("^[a-]+$", ["a-"], ["b"]),
        ("^[-a]+$", ["-a"], ["b"]),
        ("^[\\w.-]+$", ["a.b-c"], ["a b", "é"]),
        ("^[\\d\\s]+$", ["1 2"], ["a"]),
        ("^[^\\d]$", ["a", "٣"], ["1"]),
        ("^[\\]\\[\\\\^]+$", ["]", "[", "\\", "^"], ["a"]),
        ("^[a^]$", ["^", "a"], ["b"]),
        ("^[a\\-z]$", ["-", "z"], ["b"]),
        ("^[é-ü漢]$", ["é", "ö", "漢"], ["a", "字"]),
        ("^[.$*+?(){}|]$", list(".$*+?(){}|"), ["a", "\\"]),
        ("^[&a]$", ["&", "a"], ["b"]),
        ("^\\.\\*\\+\\?\\(\\)\\[\\]\\{\\}\\|\\^\\$\\\\$", [".*+?()[]{}|^$\\"], ["a"]),
        ("^\\t\\n\\r\\f$", ["\t\n\r\f"], ["tnrf"]),
        ("^\\x41\\u00e9$", ["Aé"], ["A"]),
        ("^\\/\\-\\'\\\"$", ["/-'\""], [""]),
        ("^a b#c$", ["a b#c"], ["ab"]),
        ("^\\\\z$", ["\\z"], ["z", "\\"]),
        ("^]}$", ["]}"], ["]"]),
        ("é+", ["éé"], ["e"]),
        ("^[\\x00-\\x1f]$", ["\t", "\x01"], [" "]),
        ("^(?:(a)(?:b(c)))$", ["abc"], ["ab"]),
        ("a*b", ["b", "aab"], ["a"]),
    ],
)
def test_regular_expressions(pattern: str, matching: list[str], others: list[str]) -> None:
    check(portable_regex(pattern), matching, others)


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        ("^a.\\d+$", "^a[^\\n][0-9]+\\z"),
        ("(a)", "(?:a)"),
        ("a+?", "a+"),
        ("[\\w-]", "[A-Za-z0-9_\\-]"),
    ],
)
def test_what_is_written(pattern: str, written: str) -> None:
    assert portable_regex(pattern) == written


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?=a)", "use plain groups"),
        ("(?!a)", "use plain groups"),
        ("(?<=a)", "use plain groups"),
        ("(?P<n>a)", "use plain groups"),
        ("(?<n>a)", "use plain groups"),
        ("a(?i)b", "write (?i) at the beginning"),
        ("(?s)a", "use plain groups"),
        ("(?>a)", "use plain groups"),
        ("(?", "use plain groups"),
        ("\\bword", "word boundaries"),
        ("\\B", "word boundaries"),
        ("a\\Z", "write $"),
        ("\\pL", "Unicode classes"),
        ("\\P{L}", "Unicode classes"),
        ("\\Qa\\E", "quoting"),
        ("(a)\\1", "backends read \\1 differently"),
        ("\\0", "backends read \\0 differently"),
        ("\\h", "backends read \\h differently"),
        ("\\v", "backends read \\v differently"),
        ("\\R", "backends read \\R differently"),
        ("\\e", "backends read \\e differently"),
        ("\\é", "backends read \\é differently"),
        ("[\\b]", "word boundaries"),
        ("a*+", "after a repetition"),
        ("a++", "after a repetition"),
        ("a?+", "after a repetition"),
        ("a{2}+", "after a repetition"),
        ("a**", "after a repetition"),
        ("a{2}{3}", "after a repetition"),
        ("*a", "'*' repeats nothing"),
        ("+", "'+' repeats nothing"),
        ("(?:*a)", "'*' repeats nothing"),
        ("a|?", "'?' repeats nothing"),
        ("{2}", "'{' repeats nothing"),
        ("a{", "write \\{"),
        ("a{x}", "write \\{"),
        ("a{,3}", "write \\{"),
        ("a{1,2,3}", "write \\{"),
        ("a{٣}", "write \\{"),
        ("a{3,2}", "repetition"),
        ("a{1001}", "goes up to 1000"),
        ("(a{40}){40}", "goes up to 1000"),
        ("(a{100}){100}", "more than 5000 characters, with repetitions written out"),
        ("(a{1000}){1000}", "more than 5000 characters"),
        ("[abcdef]{1000}", "more than 5000 characters"),
        ("^*", "anchor cannot be repeated"),
        ("a$+", "anchor cannot be repeated"),
        ("\\A?", "anchor cannot be repeated"),
        ("(a", "a '(' is not closed"),
        ("a)", "a ')' closes nothing"),
        ("[a", "ends too early"),
        ("[", "ends too early"),
        ("[^", "ends too early"),
        ("[]a]", "an empty []"),
        ("[^]a]", "an empty []"),
        ("[[:alpha:]]", "write \\["),
        ("[a&&b]", "write \\&"),
        ("[z-a]", "is empty or unclear"),
        ("[a-[]", "is empty or unclear"),
        ("[\\D]", "\\D inside [...]"),
        ("[\\W\\S]", "\\W inside [...]"),
        ("a\\", "ends too early"),
        ("\\x4", "ends too early"),
        ("\\xzz", "\\xzz is not a character code"),
        ("\\u12g4", "\\u12g4 is not a character code"),
        ("\\x+1", "\\x+1 is not a character code"),
        ("\\u1_23", "\\u1_23 is not a character code"),
        ("\\ud800", "\\ud800 is not a character code"),
        ("\\x{41}", "is not a character code"),
    ],
)
def test_refused_with_a_reason(pattern: str, reason: str) -> None:
    with pytest.raises(PatternError, match=re.escape(reason)):
        portable_regex(pattern)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("", [""], ["a", "\n"]),
        ("abc", ["abc"], ["ABC", "xabc", "abcx", "abc\n"]),
        ("a%", ["a", "abc", "a\nb"], ["ba", ""]),
        ("%a", ["a", "\n\na"], ["ab", "a\n"]),
        ("%a%", ["xax", "a"], ["x"]),
        ("_", ["a", "é", "漢", "\n", "🙂"], ["", "ab"]),
        ("_%_", ["ab", "abc"], ["a"]),
        ("%", ["", "\n", "anything"], []),
        ("100\\%", ["100%"], ["100", "1000"]),
        ("a\\_b", ["a_b"], ["axb"]),
        ("a\\\\%", ["a\\", "a\\b"], ["a", "a%"]),
        ("a.c*[x]", ["a.c*[x]"], ["abc", "abccx"]),
        ("^a$", ["^a$"], ["a"]),
        ("a|b", ["a|b"], ["a", "b"]),
        ("\\\\z", ["\\z"], ["", "z"]),
        ("a b\tc", ["a b\tc"], ["abc"]),
        ("é_", ["éa"], ["é", "e"]),
        ("a\x00b", ["a\x00b"], ["ab"]),
    ],
)
def test_like(pattern: str, matching: list[str], others: list[str]) -> None:
    check(like_to_regex(pattern), matching, others)


@pytest.mark.parametrize("pattern", ["a\\b", "\\", "a\\", "\\\\\\", "\\'"])
def test_like_refuses_stray_backslashes(pattern: str) -> None:
    with pytest.raises(PatternError, match="backslash"):
        like_to_regex(pattern)


def test_like_does_not_try_all_places() -> None:
    # Going back to each place at which each piece fits would take longer than anyone can wait.
    check(like_to_regex("%a%b" * 10 + "%z"), ["ab" * 1000 + "z"], ["ab" * 1000])


def test_like_is_not_longer_than_the_matcher_can_bear() -> None:
    check(like_to_regex("_" * 5000), ["a" * 5000], ["a" * 4999])
    with pytest.raises(PatternError, match="more than 5000 characters"):
        like_to_regex("_" * 5001)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+b$", "^(a|a)*b$", "(a?){200}a{200}b", "a*a*a*a*a*a*b", ".*.*.*.*=", "^(([a-z])+.)+[A-Z]([a-z])+$"],
)
def test_no_pattern_tries_all_ways_to_read_a_text(pattern: str) -> None:
    # One that goes back would take longer than anyone can wait.
    assert search(portable_regex(pattern), pa.array(["a" * 10_000, None])).to_pylist() == [False, None]


CHARACTERS = "ab\\%_.z^$x0(\n\u00e9|)*["


@given(
    pattern=st.text(CHARACTERS, max_size=6),
    texts=st.lists(st.none() | st.text(CHARACTERS, max_size=6), max_size=6),
    write=st.sampled_from([like_to_regex, portable_regex]),
)
def test_patterns_that_are_plain_texts_find_the_same(
    pattern: str, texts: list[str | None], write: Callable[[str], str]
) -> None:
    try:
        written = write(pattern)
    except PatternError:
        return
    array = pa.array([*texts, pattern, pattern + "a", "a" + pattern], pa.string())
    assert search(written, array).equals(pc.match_substring_regex(array, written.replace("(?>", "(?:")))


def test_very_long_patterns_are_refused() -> None:
    for pattern in ("a" * 5001, "|" * 5001, "a{" + "9" * 5000 + "}"):
        with pytest.raises(PatternError, match="more than 5000 characters"):
            portable_regex(pattern)
    with pytest.raises(PatternError, match="goes up to 1000"):
        portable_regex("a{" + "9" * 4500 + "}")


def test_groups_may_be_nested_deeply() -> None:
    written = portable_regex("(" * 1000 + "a" + ")" * 1000)
    assert search(written, pa.array(["a", "b"])).to_pylist() == [True, False]


def test_long_texts_are_searched_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # Python reacts to signals only between two searches.
    sizes = []
    at_once = pc.match_substring_regex

    def noting(texts: pa.Array, regex: str) -> pa.Array:
        sizes.append((len(texts), pc.sum(pc.binary_length(texts)).as_py() or 0))
        return at_once(texts, regex)

    monkeypatch.setattr(pc, "match_substring_regex", noting)
    texts = ["a" * 300, None, "b" * 200_000, "", *["ab" * 5000] * 50, *["c"] * 3000, "b"]
    slow = portable_regex("b[ab]{0,900}")
    found = search(slow, pa.array(texts).slice(1))
    assert found.to_pylist() == [None if text is None else "b" in text for text in texts[1:]]
    assert all(n_texts == 1 or n_bytes <= 1 << 16 for n_texts, n_bytes in sizes)
    assert len(sizes) < 20
    assert search(slow, pa.array([], pa.string())).to_pylist() == []
