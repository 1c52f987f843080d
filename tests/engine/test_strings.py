"""Strings as small integers: whatever the form of a column, equal strings have equal numbers, and others do not."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies
from ceql.engine.intake import strings
from ceql.engine.intake.keys import KeyEncoder, key_hashes
from ceql.engine.intake.strings import Strings

PREFIX = "a common beginning of more than eight bytes "
TEXTS = st.one_of(
    st.sampled_from(["", "\0", "\0\0", "a", "a\0", "1234567", "12345678", "123456789", "é", "日本語", "x" * 200]),
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.text("ab\0", max_size=3).map(lambda text: PREFIX + text),
    st.text("ab", max_size=9),
)
TYPES = [pa.string(), pa.large_string()]


@st.composite
def columns(draw: Any, data_type: pa.DataType) -> tuple[pa.Array, list[str | None]]:
    """Draw a column in any form, and its values; other values surround it in memory."""
    values = draw(st.lists(st.none() | TEXTS, max_size=12))
    around = draw(st.lists(st.none() | TEXTS, max_size=3))
    whole = [*around, *values, *around]
    form = draw(st.sampled_from(["plain", "encoded", "shuffled", "null in dictionary"]))
    array = pa.array(whole, data_type)
    if form == "encoded":
        array = array.dictionary_encode()
    elif form != "plain":
        # A dictionary may have values that no row has, values twice, and NULL.
        known = [text for text in dict.fromkeys(whole) if text is not None] + draw(st.lists(TEXTS, max_size=3))
        known = draw(st.permutations(known + ([None] if form == "null in dictionary" else [])))
        dictionary = pa.array(["?", *known, "?"], data_type).slice(1, len(known))
        indices = pa.array([None if text is None else known.index(text) for text in whole], pa.int32())
        array = pa.DictionaryArray.from_arrays(indices, dictionary)
    return array.slice(len(around), len(values)), values


class Model:
    """What an encoder of one column does, with a Python dictionary."""

    def __init__(self) -> None:
        self.slots: dict[str, int] = {}

    def encode(self, values: list[str | None]) -> list[int]:
        return [-1 if text is None else self.slots.setdefault(text, len(self.slots)) for text in values]

    def keep(self, texts: list[str]) -> None:
        self.slots = {text: slot for slot, text in enumerate(texts)}


@pytest.mark.parametrize("data_type", TYPES, ids=str)
@strategies.some(300)
@given(data=st.data())
def test_an_encoder_does_what_a_dictionary_does(data_type: pa.DataType, data: st.DataObject) -> None:
    encoder, model = KeyEncoder([data_type]), Model()
    column, values = data.draw(columns(data_type))
    for _ in range(data.draw(st.integers(1, 6))):
        if data.draw(st.booleans()):
            # Otherwise the same column comes again.
            column, values = data.draw(columns(data_type))
        size, before = encoder.size, list(model.slots)
        rows = np.array(
            data.draw(st.lists(st.sampled_from(range(len(values))), unique=True)) if values else [], np.int64
        )
        rows.sort()
        assert encoder.encode([column], rows).tolist() == model.encode([values[row] for row in rows.tolist()])
        what = data.draw(st.sampled_from(["nothing", "shorten", "keep", "store"]))
        if what == "shorten":
            encoder.shorten(size)
            model.keep(before)
        elif what == "keep":
            is_kept = np.array([data.draw(st.booleans()) for _ in model.slots], np.bool_)
            encoder = encoder.kept(is_kept)
            model.keep([text for text, slot in model.slots.items() if is_kept[slot]])
        elif what == "store":
            encoder = KeyEncoder.of(encoder.codes[: encoder.n_keys].copy(), encoder.values())
        assert encoder.n_keys == len(encoder.dictionaries[0]) == len(model.slots)
        assert encoder.values()[0].type == data_type
        assert encoder.values()[0].to_pylist() == list(model.slots)
        assert encoder.hashes().tolist() == key_hashes([pa.array(list(model.slots), data_type)]).tolist()


@pytest.mark.parametrize("data_type", TYPES, ids=str)
@strategies.some(150)
@given(data=st.data())
def test_keys_of_several_columns_do_what_a_dictionary_does(data_type: pa.DataType, data: st.DataObject) -> None:
    encoder, slots = KeyEncoder([data_type, pa.int64(), data_type, pa.binary()]), {}
    for _ in range(data.draw(st.integers(1, 4))):
        (first, texts), (second, others) = data.draw(columns(data_type)), data.draw(columns(data_type))
        n_rows = min(len(texts), len(others))
        numbers = data.draw(st.lists(st.integers(0, 2), min_size=n_rows, max_size=n_rows))
        bytes_ = data.draw(st.lists(st.sampled_from([b"", b"\xff"]), min_size=n_rows, max_size=n_rows))
        arrays = [
            first.slice(0, n_rows),
            pa.array(numbers, pa.int64()),
            second.slice(0, n_rows),
            pa.array(bytes_, pa.binary()),
        ]
        keys = list(zip(texts, numbers, others, bytes_, strict=False))
        size, before = encoder.size, dict(slots)
        expected = [-1 if None in key else slots.setdefault(key, len(slots)) for key in keys]
        assert encoder.encode(arrays, np.arange(n_rows)).tolist() == expected
        what = data.draw(st.sampled_from(["nothing", "shorten", "keep", "store"]))
        if what == "shorten":
            encoder.shorten(size)
            slots = before
        elif what == "keep":
            is_kept = np.array([data.draw(st.booleans()) for _ in slots], np.bool_)
            encoder = encoder.kept(is_kept)
            slots = {key: number for number, key in enumerate(key for key, slot in slots.items() if is_kept[slot])}
        elif what == "store":
            encoder = KeyEncoder.of(encoder.codes[: encoder.n_keys].copy(), encoder.values())


@pytest.mark.parametrize(
    "texts",
    [
        [f"{number:06}" for number in range(20_000)],
        [f"{'x' * 300}{number}" for number in range(20_000)],
        [f"{number}{'x' * 300}" for number in range(20_000)],
        ["\0" * number for number in range(2_000)],
        [chr(number) for number in range(1, 20_000)],
        [f"{PREFIX}{chr(number)}" for number in range(1, 20_000)],
        [f"{chr(number)}{PREFIX}" for number in range(1, 20_000)],
    ],
    ids=["short", "end", "begin", "NUL", "one character", "last character", "first character"],
)
def test_few_strings_share_a_place_in_the_table(texts: list[str]) -> None:
    known = Strings()
    assert known.add(pa.array(texts)).tolist() == [*range(len(texts))]
    assert known.add(pa.array(texts).dictionary_encode().dictionary).tolist() == [*range(len(texts))]
    entries = known._table[known._table != 0]
    hashes = entries >> np.uint64(32)
    assert len(np.unique(hashes)) > 0.999 * len(texts)
    places = np.bincount((hashes & np.uint64(len(known._table) - 1)).astype(np.int64))
    assert places.max() < 12


def test_a_stored_encoder_may_have_its_values_in_any_order() -> None:
    stored = KeyEncoder.of(np.array([[2], [0]]), [pa.chunked_array([["a", "b"], ["c"]])])
    assert stored.encode([pa.array(["b", "c", "a"])], np.arange(3)).tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("codes", "values"), [([[0], [1]], ["a", "a"]), ([[0], [0]], ["a", "b"])], ids=["value", "key"]
)
def test_a_key_that_is_stored_twice_is_refused(codes: list[list[int]], values: list[str]) -> None:
    with pytest.raises(ValueError, match="occurs twice"):
        KeyEncoder.of(np.array(codes), [pa.chunked_array([values])])


def test_many_bytes_of_strings_are_stored_in_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Strings()
    texts = ["", "abc", "de", "fghi", "j"]
    known.add(pa.array(texts))
    monkeypatch.setattr(strings, "MAX_CHUNK", 4)
    stored = known.values(pa.string())
    assert stored.to_pylist() == texts
    assert stored.num_chunks > 2
    again = Strings()
    for chunk in stored.chunks:
        again.add(chunk)
    assert len(again) == len(texts)


@strategies.some(100)
@given(texts=st.lists(TEXTS))
def test_stable_codes_are_those_of_zlib(texts: list[str]) -> None:
    array = pa.array(["before", *texts], pa.string()).slice(1)
    assert strings.stable_codes(array).tolist() == [zlib.crc32(text.encode()) for text in texts]


def test_the_size_follows_the_strings() -> None:
    encoder = KeyEncoder([pa.string()])
    encoder.encode([pa.array(["x" * 1_000_000])], np.arange(1))
    assert 1_000_000 < encoder.n_bytes < 1_100_000
    size = encoder.size
    encoder.encode([pa.array([letter * 1_000_000 for letter in "abc"])], np.arange(3))
    assert encoder.n_bytes > 4_000_000
    encoder.shorten(size)
    assert encoder.n_bytes < 1_100_000
    assert encoder.kept(np.array([False])).n_bytes < 10_000
