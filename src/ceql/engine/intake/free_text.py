"""Questions about texts that are nearly all different: Arrow answers each question for a whole column.

Where texts repeat, it is cheaper to look at each distinct text once (see `classes`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ceql.syntax import patterns, plan

MAX_QUESTIONS = 10
"""Most questions that are asked of all rows: each doubles the number of classes."""

SAMPLE = 256
"""Rows that are checked for repeated texts."""

_COMPARISONS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def is_free_text(texts: pa.Array) -> bool:
    """Whether more than half of the first texts are different."""
    sample = texts.slice(0, SAMPLE)
    return bool(2 * pc.count_distinct(sample).as_py() > len(sample))


def questions_of_text(predicates: list[plan.Expression]) -> list[plan.Expression] | None:
    """Return the parts of predicates over a text column, if Arrow can answer all of them; else None."""
    found: dict[plan.Expression, None] = {}
    for predicate in predicates:
        for part in _parts(predicate):
            if not _is_question(part):
                return None
            found[part] = None
    return list(found) if len(found) <= MAX_QUESTIONS else None


def _parts(predicate: plan.Expression) -> list[plan.Expression]:
    """Return the parts of a predicate that AND, OR and NOT join."""
    match predicate:
        case plan.All() | plan.Any():
            return [part for joined in predicate.parts for part in _parts(joined)]
        case plan.Not():
            return _parts(predicate.predicate)
    return [predicate]


def _is_question(part: plan.Expression) -> bool:
    match part:
        case plan.Compare(left=plan.Column(), right=plan.Constant(value=str())):
            return True
        case plan.Compare(left=plan.Constant(value=str()), right=plan.Column()):
            return True
        case plan.InSet(value=plan.Column()):
            return not part.has_null and all(isinstance(item.value, str) for item in _constants(part))
        case plan.Matches(value=plan.Column()) | plan.IsNull(value=plan.Column()):
            return True
    return False


def _constants(part: plan.InSet) -> list[plan.Constant]:
    return [item for item in part.items if isinstance(item, plan.Constant)]


def answers(question: plan.Expression, texts: pa.Array) -> Any:
    """Return for each text whether the answer is yes; for NULL the answer does not matter."""
    match question:
        case plan.Compare(left=plan.Constant()):
            return answers(question.mirrored(), texts)
        case plan.Compare(right=plan.Constant(value=value)):
            asked = _COMPARISONS[question.operator](texts, pa.scalar(value, texts.type))
        case plan.InSet():
            asked = pc.is_in(texts, pa.array([item.value for item in _constants(question)], texts.type))
        case plan.Matches():
            asked = patterns.search(question.regex, texts)
        case _:
            return np.zeros(len(texts), np.bool_)
    return np.asarray(asked.fill_null(fill_value=False) if asked.null_count else asked)
