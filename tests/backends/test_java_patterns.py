"""Which regular expressions Java is asked: those that it decides in linear time."""

from __future__ import annotations

import pytest

from ceql.backends.spark.java_patterns import is_safe_in_java
from ceql.syntax.patterns import like_to_regex, portable_regex


@pytest.mark.parametrize(
    "pattern",
    [
        *("", "a", "^a$", "foo|bar|baz", "^(foo|bar)?[)*|]$", "[0-9]+", "^[A-Z]{3}[0-9]+$", "^.{2,}$", "^.*=", "a.*"),
        *("a{3}", "a{2,30}b", "^\\(a\\)+b", "[(]+", "\\++", "^a\\x00?b*\\\\$", "a?" * 8),
    ],
)
def test_asked(pattern: str) -> None:
    assert is_safe_in_java(portable_regex(pattern))


@pytest.mark.parametrize(
    "pattern",
    [
        *("(a+)+$", "(a|b)*", "^(ab){2}$", "a*a*a*b", ".*.*.*=", "(a?){30}a{30}", "a?" * 30 + "b"),
        # From every character on to the end: the square of the length.
        *("a*b", "[0-9]+$", "^a*b|a*c", "(^a*b)"),
        *("^a*b*c", "^(a*|b)c*d", "^a{3,}b{3,}c", "a{1,100}b{1,100}c", "a{1000}b", "(a|b|c|d)" * 5),
    ],
)
def test_not_asked(pattern: str) -> None:
    assert not is_safe_in_java(portable_regex(pattern))


@pytest.mark.parametrize("pattern", ["", "a", "a%", "%a%b%c%d%", "_%_", "(%)*", "%a_b%"])
def test_like_is_asked(pattern: str) -> None:
    assert is_safe_in_java(like_to_regex(pattern))
