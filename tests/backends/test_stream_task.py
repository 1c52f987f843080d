"""What a shard of a stream does, without Spark around it: in the end it has found what a batch finds."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import inf, nan
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import strategies
from ceql.errors import SnapshotError
from ceql.parameters import Parameters
from ceql.syntax import ast
from reference import has_few_valuations

pytest.importorskip("pyspark.sql")
from ceql.backends.spark.stream import task as stream_task
from ceql.backends.spark.stream.rows import MAX_PACKED_ROWS, SHARD, from_bytes, pack_by_shard, to_frame
from ceql.backends.spark.stream.task import Shard, StreamTask
from stream_shards import (
    FAR,
    MAX_MATCHES,
    MICROS,
    SCHEMA,
    START,
    Events,
    Stream,
    arrivals,
    at,
    blobs_of,
    bound,
    by_time,
    cut,
    expected,
    fed,
    micros,
    multiset,
    task_of,
    timed_queries,
)

MAX_HEADER_BYTES = 2000
UNITS = st.sampled_from([1_000_000, 1_500, 1])


@pytest.mark.parametrize("shape", ["matches", "events"])
@strategies.some(120)
@given(data=st.data(), unit=UNITS, delay=st.sampled_from([3, 0, 1, 8]), max_lateness=st.sampled_from([2, 0, 5]))
def test_a_stream_finds_what_a_batch_finds_in_the_events_that_are_not_late(
    shape: str, data: st.DataObject, unit: int, delay: int, max_lateness: int
) -> None:
    tree = data.draw(timed_queries(unit))
    events = data.draw(arrivals(unit, max_lateness))
    assume(has_few_valuations(tree.formula, events, MAX_MATCHES))
    task = task_of(str(tree), shape=shape)
    stream = Stream(task, -(-delay * unit // 1000))
    on_time: Events = []
    n_late = n_seen = 0
    for batch, does_advance in cut(data.draw, events):
        seen = [event for event in batch if task.n_shards == 1 or event["k"] is not None]
        kept = [event for event in seen if micros(event) > stream.watermark * 1000]
        on_time += kept
        n_seen, n_late = n_seen + len(seen), n_late + len(seen) - len(kept)
        stream.batch(batch)
        if does_advance:
            stream.advance()
    stream.finish()
    assert multiset(stream.found) == multiset(expected(task, on_time))
    assert (stream.n_events, stream.n_late) == (n_seen, n_late)
    assert all(waiting == [] for _, waiting, _ in stream.states.values())
    if task.reach_micros is not None:
        assert stream.n_bytes == 0
        assert stream.timers == {}


@strategies.some(60)
@given(data=st.data(), unit=UNITS, seed=st.randoms(use_true_random=False))
def test_rows_that_tie_are_ordered_by_all_their_columns_however_they_arrive(
    data: st.DataObject, unit: int, seed: random.Random
) -> None:
    tree = data.draw(timed_queries(unit))
    events = [{**event, "id": 0} for event in data.draw(arrivals(unit, 0))]
    assume(has_few_valuations(tree.formula, events, MAX_MATCHES))
    task = task_of(str(tree), order_by=(), order=("at",), ties=("type", "x", "s", "t", "k"), id_columns=("at", "id"))
    columns = ["at", "type", "x", "s", "t", "k"]
    in_order = sorted(events, key=lambda event: [(event[name] is not None, event[name]) for name in columns])
    seed.shuffle(events)
    stream = Stream(task, 10**9)
    for batch, _ in cut(data.draw, events):
        stream.batch(batch)
    stream.finish()
    assert multiset(stream.found) == multiset(fed(task, in_order))


@strategies.some(80)
@given(data=st.data(), unit=UNITS, delay=st.sampled_from([3, 100]))
def test_by_arrival_nothing_waits_and_what_is_older_than_the_last_event_is_late(
    data: st.DataObject, unit: int, delay: int
) -> None:
    tree = replace(data.draw(timed_queries(unit, silences=False)), partition_by=())
    events = data.draw(arrivals(unit, 4))
    assume(has_few_valuations(tree.formula, events, MAX_MATCHES))
    task = task_of(str(tree), ordering="arrival")
    stream = Stream(task, delay * unit // 1000)
    held: Events = []
    found: list[str] = []
    n_late = 0
    for batch, does_advance in cut(data.draw, events):
        last = max(map(micros, held), default=0)
        kept = [event for event in batch if micros(event) >= last and micros(event) > stream.watermark * 1000]
        n_late += len(batch) - len(kept)
        before = fed(task, held)
        held += sorted(kept, key=by_time)
        found += (multiset(fed(task, held)) - multiset(before)).elements()
        stream.batch(batch)
        assert multiset(stream.found) == Counter(found), "a match comes with the batch of its last event"
        assert stream.n_late == n_late
        if does_advance:
            stream.advance()
    stream.finish()
    assert multiset(stream.found) == Counter(found)
    if task.reach_micros is not None:
        assert stream.n_bytes == 0


@strategies.some(60)
@given(data=st.data(), unit=UNITS, delay=st.sampled_from([3, 0, 100]))
def test_by_arrival_matches_that_wait_for_a_silence_come_all_and_once(
    data: st.DataObject, unit: int, delay: int
) -> None:
    tree = data.draw(timed_queries(unit, silences=False))
    formula = data.draw(strategies.silent(tree.formula, st.just(ast.DurationWindow(((2 * unit, "microseconds"),)))))
    tree = replace(tree, formula=formula, partition_by=())
    assume(not tree.select.selected or {one.variable.text for one in tree.select.selected} <= bound(tree))
    events = data.draw(arrivals(unit, 4))
    assume(has_few_valuations(tree.formula, events, MAX_MATCHES))
    task = task_of(str(tree), ordering="arrival")
    stream = Stream(task, delay * unit // 1000)
    held: Events = []
    for batch, does_advance in cut(data.draw, events):
        last = max(map(micros, held), default=0)
        kept = [event for event in batch if micros(event) >= last and micros(event) > stream.watermark * 1000]
        held += sorted(kept, key=by_time)
        stream.batch(batch)
        if does_advance:
            stream.advance()
    stream.finish()
    assert multiset(stream.found) == multiset(fed(task, held))
    if task.reach_micros is not None:
        assert stream.n_bytes == 0
        assert stream.timers == {}


QUERY = "SELECT * FROM S WHERE A AS u ; B AS v PARTITION BY [k] WITHIN 6 seconds"


def test_an_event_waits_until_the_watermark_is_there_and_not_longer() -> None:
    stream = Stream(task_of(QUERY), 5000)
    stream.batch([at(0), at(5, "B")], until=START + 9_999_000)
    stream.advance()
    stream.batch([])
    assert stream.found == []
    stream.batch([], until=START + 10_000_000)
    stream.advance()
    stream.batch([])
    assert [row["match_end"] for row in stream.found] == [at(5)["at"]]


def test_a_match_comes_though_only_irrelevant_rows_follow() -> None:
    stream = Stream(task_of(QUERY), 5000)
    stream.batch([at(0), at(1, "B")])
    for second in range(2, 20):
        stream.batch([], until=START + second * 1_000_000)
        stream.advance()
    stream.batch([])
    assert len(stream.found) == 1
    assert stream.n_bytes == 0


WAITING = "SELECT * FROM S WHERE A AS u ; NOT B FOR 3 seconds PARTITION BY [k]"


@pytest.mark.parametrize("ordering", ["time", "arrival"])
def test_matches_of_silent_keys_come_when_the_watermark_has_passed_their_deadline(ordering: str) -> None:
    stream = Stream(task_of(WAITING, ordering=ordering), 1000)
    stream.batch([at(0), at(0, k=2), at(2, "B", k=2), at(9, k=3)])
    stream.batch([], until=START + 3_999_000)
    for second in (3.9, 4):
        stream.highest = max(stream.highest, START + int(second * 1_000_000))
        stream.watermark = START // 1000 + int(1000 * second) - 1000
        stream.batch([])
        assert [row["match_end"] for row in stream.found] == ([at(3)["at"]] if second == 4 else [])
    stream.finish()
    assert [row["match_end"] for row in stream.found] == [at(3)["at"], at(12)["at"]]
    assert stream.n_bytes == 0


def test_events_before_the_first_watermark_are_never_late() -> None:
    stream = Stream(task_of(QUERY), 0)
    stream.batch([at(3, "B"), at(-1000), at(2)])
    stream.finish()
    assert (stream.n_events, stream.n_late, len(stream.found)) == (3, 0, 1)


def test_duplicates_are_events_of_their_own() -> None:
    stream = Stream(task_of(QUERY), 5000)
    stream.batch([at(0), at(1, "B"), at(1, "B")])
    stream.batch([at(0)])
    stream.finish()
    assert len(stream.found) == 4


def test_a_step_without_events_does_nothing() -> None:
    shard = Shard(task_of(QUERY), None, [], {})
    assert list(shard.step([], 0)) == []
    assert list(shard.step(blobs_of([]), START // 1000)) == []
    assert (shard.event_blobs, shard.timer, shard.n_events) == ([], None, 0)
    assert shard.n_bytes < MAX_HEADER_BYTES


def test_time_and_window_may_be_measured_by_different_columns() -> None:
    schema = pa.schema([*SCHEMA, ("sent", MICROS)])
    query = "SELECT * FROM S WHERE A AS u ; B AS v WITHIN 6 seconds [at]"
    task = task_of(query, schema, time_column="sent", order=("at", "sent", "id"), id_columns=("at", "id"))
    stream = Stream(task, 2000, schema)
    long_ago = timedelta(days=1000)
    events = [at(second, event_type) for second, event_type in enumerate("AABBA")]
    for event in events:
        stream.batch([{**event, "sent": event["at"] - long_ago}])
        stream.advance()
    stream.finish()
    assert len(stream.found) == 4
    assert stream.n_bytes == 0


def test_the_state_does_not_grow_with_ever_new_keys() -> None:
    schema = SCHEMA.set(SCHEMA.get_field_index("k"), pa.field("k", pa.string()))
    query = "SELECT * FROM S WHERE A AS u ; B AS v PARTITION BY [k] WITHIN 6 seconds"
    stream = Stream(task_of(query, schema, n_shards=1), 2000, schema)
    sizes = []
    for batch in range(100):
        events = [
            at(batch + row / 200, "AABA"[row % 4], k=f"key {batch * 50 + row // 4}", t=None, x=None, s=None)
            for row in range(200)
        ]
        random.Random(batch).shuffle(events)
        stream.batch(events)
        stream.advance()
        sizes.append(stream.n_bytes)
    assert max(sizes[50:]) <= 1.1 * max(sizes[10:50])
    stream.finish()
    assert (stream.n_events, stream.n_late, len(stream.found)) == (20_000, 0, 10_000)
    assert stream.n_bytes == 0


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, None, False]),
    "long": (pa.int64(), [2**62 + 1, None, -1]),
    "double": (pa.float64(), [nan, None, -inf]),
    "decimal": (pa.decimal128(38, 3), [Decimal("1234567890123456789012345678901.125"), None, Decimal("0.001")]),
    "string": (pa.string(), ["é", None, ""]),
    "binary": (pa.binary(), [b"\x00\xff", None, b""]),
    "date": (pa.date32(), [date(9999, 12, 31), None, date(1, 1, 1)]),
    "timestamp": (MICROS, [datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), None, datetime(1, 1, 1, tzinfo=UTC)]),
    "timestamp_ntz": (pa.timestamp("us"), [datetime(2024, 3, 31, 2, 30), None, datetime(1900, 1, 1)]),
    "duration": (pa.duration("us"), [timedelta(days=-1, microseconds=1), None, timedelta(0)]),
    "list": (pa.list_(pa.int64()), [[2**62 + 1, None], None, []]),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        [{"a": 2**62 + 1, "b": None}, None, {"a": 0, "b": ""}],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), [[("p", 2**62 + 1), ("q", None)], None, []]),
}
WIDE = pa.table({name: pa.array(values, data_type) for name, (data_type, values) in VALUES.items()})


@pytest.mark.parametrize("n_batches", [0, 1, 3])
def test_rows_are_packed_by_shard_without_loss_and_in_their_order(n_batches: int) -> None:
    rows = pa.concat_tables([WIDE] * 5).combine_chunks()
    shards = [number % 4 - 1 for number in range(len(rows))]
    whole = rows.append_column(SHARD, pa.array(shards, pa.int32()))
    empty = pa.RecordBatch.from_pylist([], whole.schema)
    batches = [empty, *whole.to_batches(), empty] * n_batches
    by_shard: dict[int, list[bytes]] = {}
    for part in pack_by_shard(iter(batches)):
        for row in part.to_pylist():
            by_shard.setdefault(row["shard"], []).extend([row["rows"]] * (row["rows"] != b""))
    assert sorted(by_shard) == ([-1, 0, 1, 2] if n_batches else [0]), "the first is there even without rows"
    for shard, blobs in by_shard.items() if n_batches else ():
        own = [at for at, one in enumerate(shards) if one == shard] * n_batches
        assert repr(from_bytes(blobs).to_pylist()) == repr(rows.take(own).to_pylist())  # type: ignore[union-attr]


def test_many_rows_are_packed_in_pieces() -> None:
    n_rows = MAX_PACKED_ROWS // 2 + 1
    batch = pa.record_batch({"v": range(n_rows), SHARD: pa.array([0] * n_rows, pa.int32())})
    first, *pieces = (part["rows"].to_pylist() for part in pack_by_shard(iter([batch] * 5)))
    assert first == [b""]
    assert [from_bytes(blobs).num_rows for blobs in pieces] == [2 * n_rows, 2 * n_rows, n_rows]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("rows", [slice(0, 3), slice(0, 1), slice(1, 2), slice(0, 0)])
def test_pandas_holds_results_without_loss(name: str, rows: slice) -> None:
    data_type, values = VALUES[name]
    batch = WIDE.select([name]).slice(rows.start, rows.stop - rows.start).combine_chunks()
    frame = to_frame(pa.record_batch(batch.columns[0].chunks or [pa.array([], data_type)], [name]))
    read = pa.Array.from_pandas(frame[name], type=data_type)
    assert repr(read.to_pylist()) == repr(pa.array(values, data_type)[rows].to_pylist())


@pytest.mark.parametrize("name", [*VALUES, "floats", "lists of floats"])
@pytest.mark.parametrize("seed", range(3))
def test_ties_are_ordered_by_values_of_any_type(name: str, seed: int) -> None:
    in_order: dict[str, tuple[pa.DataType, list[Any]]] = {
        **{name: (one, [None, values[2], values[0]]) for name, (one, values) in VALUES.items()},
        "double": (pa.float64(), [None, -inf, nan]),
        "duration": (pa.duration("us"), [None, timedelta(-1), timedelta(0), timedelta(1)]),
        "floats": (pa.float32(), [None, -inf, -1.0, -0.0, 0.0, 0.5, inf, nan]),
        "list": (pa.list_(pa.int64()), [None, [], [None], [None, 7], [-1, 9], [1], [1, None], [1, 2], [2]]),
        "lists of floats": (pa.list_(pa.float64()), [None, [], [None], [-inf], [0.0, nan], [inf], [nan], [nan, 1.0]]),
        "timestamp": (MICROS, [None, datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)]),
    }
    data_type, values = in_order[name]
    schema = pa.schema([("type", pa.string()), ("at", MICROS), ("id", pa.int64()), ("value", data_type)])
    task = task_of("SELECT u FROM S WHERE A AS u WITHIN 1 second", schema, shape="events", order_by=(), order=("at",))
    task = replace(task, ties=("value",), id_columns=("at", "id"))
    events = [{"type": "A", "at": at(0)["at"], "id": number, "value": value} for number, value in enumerate(values)]
    random.Random(seed).shuffle(events)
    stream = Stream(task, 0, schema)
    stream.batch(events)
    stream.finish()
    assert [row["id"] for row in stream.found] == list(range(len(values)))


def held_state(task: StreamTask) -> tuple[bytes, list[bytes], dict[str, bytes]]:
    """Return the state of a shard with an open match and an event that waits."""
    stream = Stream(task, 5000)
    stream.batch([at(0), at(7)])
    stream.advance()
    stream.batch([at(8)])
    ((state, events, parts),) = stream.states.values()
    assert state is not None
    assert events
    return state, events, parts


CHANGES = {
    "query": "SELECT * FROM S WHERE A AS u ; B AS v PARTITION BY [k] WITHIN 7 seconds",
    "shape": "events",
    "type_column": None,
    "order_by": ("x",),
    "ties": ("type",),
    "n_shards": 4,
    "ordering": "arrival",
    "columns": ("type string", "k string"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_state_of_another_query_is_refused_with_what_changed(name: str) -> None:
    task = task_of(QUERY, n_shards=1)
    changed = replace(task, **{name: CHANGES[name]})  # type: ignore[arg-type]
    before, now = task.identity()[name], changed.identity()[name]
    with pytest.raises(SnapshotError) as error:
        list(Shard(changed, *held_state(task)).step([], FAR))
    assert f"{name} was {before!r} and is {now!r}" in str(error.value)
    assert "new checkpoint" in str(error.value)
    others = [other for other in task.identity() if other != name and f"{other} was" in str(error.value)]
    assert others == []


def test_another_query_is_noticed_where_nothing_is_open_any_more() -> None:
    task = task_of(QUERY, n_shards=1)
    stream = Stream(task, 5000)
    stream.batch([at(0), at(1, "B")])
    stream.finish()
    assert stream.n_bytes == 0
    with pytest.raises(SnapshotError, match="shape was 'matches' and is 'events'"):
        list(Shard(replace(task, shape="events"), *stream.states[0]).step([], FAR))


def test_a_state_of_another_release_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(QUERY, n_shards=1)
    state = held_state(task)
    monkeypatch.setattr(stream_task, "__version__", "99.0")
    stream_task._identity.cache_clear()
    with pytest.raises(SnapshotError, match=r"release was '.*' and is '99\.0'"):
        list(Shard(task, *state).step([], FAR))
    stream_task._identity.cache_clear()


@pytest.mark.parametrize(
    "text",
    [
        QUERY.replace(" ", "\n "),
        QUERY.lower().replace("from s", "FROM S").replace("where a as u ; b", "where A as u ; B"),
        f"{QUERY} -- the end",
    ],
)
def test_a_query_that_differs_in_layout_goes_on(text: str) -> None:
    task = task_of(QUERY, n_shards=1)
    stream = Stream(replace(task, query=text), 5000, watermark=START // 1000 + 1, states={0: held_state(task)})
    stream.batch([at(9, "B")])
    stream.finish()
    assert len(stream.found) == 2


def flipped(blob: bytes, at: int) -> bytes:
    return blob[:at] + bytes([blob[at] ^ 0x55]) + blob[at + 1 :]


@given(data=st.data())
@strategies.some(100)
def test_a_damaged_state_is_refused(data: st.DataObject) -> None:
    task = task_of(QUERY, n_shards=1)
    state, events, parts = STATE
    if data.draw(st.booleans()):
        state = state[: data.draw(st.integers(0, len(state) - 1))]
    else:
        state = flipped(state, data.draw(st.integers(0, len(state) - 1)))
    with pytest.raises(SnapshotError):
        list(Shard(task, state, events, parts).step([], FAR))


@given(data=st.data())
@strategies.some(50)
def test_damaged_events_are_refused(data: st.DataObject) -> None:
    state, events, parts = STATE
    place = data.draw(st.integers(0, len(events[0]) - 1))
    damaged = events[0][:place] if data.draw(st.booleans()) else flipped(events[0], place)
    with pytest.raises(SnapshotError, match="damaged"):
        list(Shard(task_of(QUERY, n_shards=1), state, [damaged, *events[1:]], parts).step([], FAR))


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (b"", "did not write"),
        (b"PAR1", "did not write"),
        (b"CEQLSHRD\x02\x00", "has format 2, but this release reads 3"),
        (b"CEQLSHRD\x04\x00", "has format 4, but this release reads 3"),
        (b"CEQLSHRD\x03\x00", "damaged"),
        (b"CEQLSHRD\x03\x00\x02\x00\x00\x00\x01\x00\x00\x00{}", "damaged"),
    ],
)
def test_a_foreign_state_is_refused(blob: bytes, message: str) -> None:
    with pytest.raises(SnapshotError, match=message):
        list(Shard(task_of(QUERY), blob, [], {}).step([], 0))


STATE = held_state(task_of(QUERY, n_shards=1))


def test_rows_of_sessions_in_different_zones_can_wait_together() -> None:
    blobs = []
    for zone in ("Etc/UTC", "America/New_York"):
        instants = pa.timestamp("us", zone)
        at = pa.array([1_700_000_000_000_000], instants)
        nested = pa.array([[{"at": 1_700_000_000_000_000}]], pa.list_(pa.struct([("at", instants)])))
        batch = pa.record_batch([at, pa.array([0], pa.int32()), nested], names=["__ceql_time", "__ceql_shard", "n"])
        blobs += [blob for one in pack_by_shard(iter([batch])) for blob in one["rows"].to_pylist() if blob]
    whole = from_bytes(blobs)
    assert whole is not None
    assert len(set(map(str, whole.to_pylist()))) == 1


def test_a_state_goes_on_with_other_values_of_parameters() -> None:
    text = "SELECT * FROM S WHERE A AS x ; B AS y FILTER x[x IN $wanted] WITHIN 10 seconds [at]"
    task = replace(task_of(QUERY), query=text, params=Parameters.of({"wanted": [1]}).to_bytes())
    changed = replace(task, params=Parameters.of({"wanted": [2, 3]}).to_bytes())
    assert task.identity() == changed.identity()
    assert changed.options.setup.draft.parameters == Parameters.of({"wanted": [2, 3]})
