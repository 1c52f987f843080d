"""Columns with dictionaries: predicates see the same values as in plain columns, and read each dictionary once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ceql
import strategies
from ceql.engine.intake import classes, events
from ceql.engine.intake.classes import Stage
from ceql.engine.intake.strings import Strings

CONDITIONS = [
    "s = 'b'",
    "s != 'b' AND s IS NOT NULL",
    "s IN {'a', 'ab', 'é'}",
    "NOT (s = 'a') OR s IS NULL",
    "s < 'ab'",
    "s LIKE '%b%' OR s = 'é'",
    "NOT s RLIKE '^a'",
    "s LIKE 'a%' AND NOT s > 'aa'",
]
BATCHES = st.lists(
    st.lists(st.none() | st.sampled_from(["", "a", "b", "ab", "aab", "é", "a\0", "longer than eight"]), max_size=8),
    min_size=1,
    max_size=4,
)


def found(condition: str, columns: list[pa.Array]) -> Any:
    """Return the matches, given the column of each batch."""
    batches = [pa.record_batch({"type": pa.array(["A"] * len(column), pa.string()), "s": column}) for column in columns]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    query = f"SELECT * FROM S WHERE A AS x FILTER x[{condition}]"
    return ceql.match(query, reader, shape="positions").to_arrow().to_pylist()


@pytest.mark.parametrize("many", [0, 2, 1000])
@pytest.mark.parametrize("null_in_dictionary", [False, True])
@strategies.some(40)
@given(
    parts=BATCHES, condition=st.sampled_from(CONDITIONS), data_type=st.sampled_from([pa.string(), pa.large_string()])
)
def test_predicates_see_the_values_of_a_dictionary(
    many: int, null_in_dictionary: bool, parts: list[list[str | None]], condition: str, data_type: pa.DataType
) -> None:
    plain = [pa.array(part, data_type) for part in parts]
    how = "encode" if null_in_dictionary else "mask"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classes, "MANY_VALUES", many)
        coded = [column.dictionary_encode(null_encoding=how) for column in plain]
        assert found(condition, coded) == found(condition, plain)


@pytest.mark.parametrize("condition", ["x[s = 'a']", "x[s LIKE '%a%']", "x[s = w]"])
@pytest.mark.parametrize("many", [0, 1000])
def test_each_dictionary_is_read_once(monkeypatch: pytest.MonkeyPatch, condition: str, many: int) -> None:
    """A batch goes through in blocks: all of them have its dictionary."""
    n_read: list[int] = []
    for name in ("_string_classes", "_asked_classes", "_rows"):
        real = getattr(Stage, name)

        def counted(self: Stage, *arguments: Any, real: Any = real) -> Any:
            n_read.append(max(len(one) for one in arguments if isinstance(one, pa.Array)))
            return real(self, *arguments)

        monkeypatch.setattr(Stage, name, counted)
    monkeypatch.setattr(classes, "MANY_VALUES", many)
    monkeypatch.setattr(events, "BLOCK", 8)
    batches = []
    for first in range(3):
        texts = pa.array([f"{first} {number % 11}" for number in range(64)]).dictionary_encode()
        batches.append(pa.record_batch({"type": pa.array(["A"] * 64).dictionary_encode(), "s": texts, "w": texts}))
    query = f"SELECT * FROM S WHERE A AS x FILTER {condition}"
    ceql.match(query, pa.RecordBatchReader.from_batches(batches[0].schema, batches)).count()
    assert len([one for one in n_read if one == 11]) == 3 * condition.count("s = w") + 3


def test_the_strings_of_a_dictionary_that_stays_are_looked_up_once() -> None:
    column = pa.array([f"{number % 10}" for number in range(100)]).dictionary_encode()
    known = Strings()
    rows = np.arange(50)
    codes = known.codes(column.slice(0, 50), rows)
    assert known._of_index is not None
    of_index = known._of_index[1]
    assert known.codes(column.slice(50), rows).tolist() == codes.tolist()
    assert known._of_index[1] is of_index
