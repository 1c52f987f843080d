"""The engine on synthetic stock trades: ratios measured in one run, kept under `results/`.

The floor is what `pyarrow.compute` needs merely to evaluate a query's predicates on plain string
columns. Times are CPU times of one thread, the best of several runs, from the events in memory to
the last match.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial, reduce
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from report import Report

import ceql
from ceql.datasets.stocks import stocks
from ceql.engine.options import Shape
from ceql.syntax import plan

QUERIES = Path(ceql.__file__).parent / "paper" / "stocks"
N_RUNS = 3


def query(name: str) -> str:
    return (QUERIES / f"{name}.ceql").read_text()


def with_clauses(text: str, *, consume: str | None = None, limit: int | None = None) -> str:
    text = re.sub(r"\s*CONSUME BY \w+\s*$", "\n", text)
    return text + (f"CONSUME BY {consume}\n" if consume else "") + (f"LIMIT {limit}\n" if limit else "")


def best(run: Callable[[], object], n_runs: int = N_RUNS) -> float:
    times = []
    for _ in range(n_runs):
        gc.collect()
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return min(times)


def count(text: str, events: pa.Table) -> int:
    """Make every batch and let go of it, as a consumer that streams does."""
    return sum(len(batch) for batch in ceql.match(text, events, shape="positions").batches())


def floor(text: str, events: pa.Table) -> float:
    """Seconds that Arrow's own kernels need for a query's predicates: each once, then the conjunctions."""
    guards = set(_guards(text))
    predicates = {one for guard in guards for one in guard}

    def evaluate() -> None:
        values = {one: _arrow(one, events) for one in predicates}
        for guard in guards:
            reduce(pc.and_, [values[one] for one in guard])

    return best(evaluate)


def _guards(text: str) -> list[frozenset[plan.Expression]]:
    return [one.guard for one in ceql.compile(text).automaton.transitions if one.guard]


_ARROW = {"=": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}


def _arrow(one: plan.Expression, events: pa.Table) -> pa.ChunkedArray:
    if isinstance(one, plan.HasType):
        return pc.equal(events["type"], one.event_type)
    assert isinstance(one, plan.Compare)
    assert isinstance(one.left, plan.Column)
    assert isinstance(one.right, plan.Constant)
    return _ARROW[one.operator](events[one.left.name], one.right.value)


def without_output(report: Report, coded: pa.Table, plain: pa.Table) -> None:
    for n in (3, 6, 9, 12, 24):
        text = query(f"s{n}_no_output")
        least = floor(text, plain)
        report.add(f"S{n}' floor", least / len(plain) * 1e9, "ns/event")
        report.add(f"S{n}' dictionaries / floor", best(partial(count, text, coded)) / least, "x", 0.4)
        report.add(f"S{n}' plain strings / floor", best(partial(count, text, plain)) / least, "x", 0.8)


def with_output(report: Report, coded: pa.Table, plain: pa.Table) -> None:
    for name in ("q1", "q2", "q3", "q4", "q5", "q6", "q7", "s3", "s6", "s9", "s12", "s24"):
        text = with_clauses(query(name), consume="ANY")
        ratio = best(partial(count, text, coded)) / floor(text, plain)
        report.add(f"{name.upper()} CONSUME BY ANY / floor", ratio, "x", 1.2)


def enumeration(report: Report, coded: pa.Table) -> None:
    """Time per match beyond that of the same query when it gives one match per completing event.

    Where there are very many matches, a tenth of the events will do, because they are kept in memory. S9, S12 and Q7
    have so few on these events that their time is lost in the noise and may even come out negative; they are measured
    with three times the window too.
    """
    part = coded.slice(0, len(coded) // 10).combine_chunks()
    own_windows = [(name, 1) for name in ("s3", "s6", "s9", "s12", "q1", "q4", "q7")]
    for name, factor in [*own_windows, ("s9", 3), ("s12", 3), ("q7", 3)]:
        events = part if name in ("q1", "q4") or factor > 1 else coded
        text = re.sub(r"WITHIN (\d+)", lambda found: f"WITHIN {int(found[1]) * factor}", query(name))  # noqa: B023
        many, one = (with_clauses(text, limit=limit) for limit in (1000, 1))
        what = f"{name.upper()}{f' window x{factor}' if factor > 1 else ''} LIMIT 1000"
        n_matches = count(many, events) - count(one, events)
        least = best(partial(count, one, events), 5)
        dropped = best(partial(count, many, events), 5) - least
        report.add(f"{what}, {n_matches} matches dropped", dropped / n_matches * 1e9, "ns/match", 30)
        kept = best(partial(keep, many, events)) - least
        report.add(f"{what}, kept", kept / n_matches * 1e9, "ns/match", 80)


def keep(text: str, events: pa.Table) -> pa.Table:
    return ceql.match(text, events, shape="positions").to_arrow()


def scaling(report: Report, coded: pa.Table) -> None:
    base = best(partial(count, query("s3_no_output"), coded))
    for factor in (2, 4, 100):
        text = query("s3_no_output").replace("WITHIN 10000", f"WITHIN {10000 * factor}")
        report.add(f"S3' window x{factor} / x1", best(partial(count, text, coded)) / base, "x", 1.3)
    report.add("S24' / S3'", best(partial(count, query("s24_no_output"), coded)) / base, "x", 4)
    part = coded.slice(0, len(coded) // 10).combine_chunks()
    small = best(partial(count, query("s3_no_output"), part)) / len(part)
    report.add(f"S3' {len(coded)} / {len(part)} events, per event", base / len(coded) / small, "x", 1.2)


def partitions(report: Report, coded: pa.Table) -> None:
    keys = np.random.default_rng(0).integers(0, 100_000, len(coded))
    keyed = coded.append_column("account", pa.array(keys)).combine_chunks()
    text = re.sub(r"CREATE STREAM.*?\n}\n", "", query("s3_no_output"), flags=re.DOTALL)
    partitioned = text.replace("WITHIN", "PARTITION BY [account]\nWITHIN")
    ratio = best(partial(count, partitioned, keyed)) / best(partial(count, text, keyed))
    report.add("S3' PARTITION BY 100,000 keys / without", ratio, "x", 4)


def string_keys(report: Report) -> None:
    """Partition keys that are strings, beside the same keys as integers: few events count, and all of them."""
    n_events = 1_000_000
    random = np.random.default_rng(0)
    stream = pa.Table.from_batches(list(stocks(n_events, 1))).combine_chunks()
    few = re.sub(r"CREATE STREAM.*?\n}\n", "", query("s3_no_output"), flags=re.DOTALL)
    queries = {
        "S3'": few.replace("WITHIN", "PARTITION BY [k]\nWITHIN"),
        "every event": "SELECT * FROM S WHERE SELL AS x ; BUY AS y FILTER y[price IS NULL] PARTITION BY [k]",
    }
    for n_keys in (100_000, 1_000_000):
        numbers, is_null = random.integers(0, n_keys, n_events), random.random(n_events) < 0.1
        names = pa.array([f"account-{number:08}-abcdefghij" for number in numbers.tolist()])
        keys = {
            "strings": (names, 3),
            "strings and NULLs": (pc.if_else(pa.array(is_null), None, names), 3),
            "200 characters": (pa.array([f"{'x' * 192}{number:08}" for number in numbers.tolist()]), 3),
            "not ASCII": (pa.array([f"Zürich-{number:08}-日本語" for number in numbers.tolist()]), 3),
            "a dictionary": (names.dictionary_encode(), 1.5),
            "ten dictionaries": (names, 1.5),
        }
        for what, text in queries.items():
            least = best(partial(count, text, stream.append_column("k", pa.array(numbers)).combine_chunks()))
            for form, (column, target) in keys.items():
                parts = [stream.append_column("k", column).combine_chunks()]
                if form == "ten dictionaries":
                    parts = [_encoded(parts[0].slice(at, n_events // 10)) for at in range(0, n_events, n_events // 10)]
                ratio = best(lambda parts=parts, text=text: _count_parts(text, parts)) / least
                report.add(f"{what}, {n_keys} keys: {form} / integers", ratio, "x", target)


def _encoded(part: pa.Table) -> pa.Table:
    keys = part["k"].combine_chunks().dictionary_encode()
    return part.set_column(part.column_names.index("k"), "k", keys).combine_chunks()


def _count_parts(text: str, parts: list[pa.Table]) -> int:
    batches = [batch for part in parts for batch in part.to_batches()]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    return sum(len(batch) for batch in ceql.match(text, reader, shape="positions").batches())


def large_dictionaries(report: Report) -> None:
    """Predicates on a dictionary that is as large as the data and new in each batch, beside plain strings."""
    n_events = 1_000_000
    numbers = np.random.default_rng(0).integers(0, n_events, n_events).tolist()
    types = pa.array(["A"] * n_events).dictionary_encode()
    plain = pa.table({"type": types, "k": [f"text-{number:08}-abcdefghij" for number in numbers]}).combine_chunks()
    parts = [plain.slice(at, n_events // 10) for at in range(0, n_events, n_events // 10)]
    for condition in ("k = 'text-00000001-abcdefghij'", "k LIKE '%77%'", "k < 'text-5'"):
        text = f"SELECT * FROM S WHERE A AS x ; A AS y FILTER y[k IS NULL] AND x[{condition}]"
        least = best(partial(_count_parts, text, parts))
        ratio = best(partial(_count_parts, text, [_encoded(part) for part in parts])) / least
        report.add(f"ten large dictionaries, {condition[:6]} / plain strings", ratio, "x", 2)


def free_text(report: Report) -> None:
    """Questions about texts that are all different, beside Arrow's own answer to each."""
    n_events = 1_000_000
    pages = np.random.default_rng(0).integers(0, 2**40, n_events).tolist()
    urls = pa.array([f"https://www.example.org/path/{page:x}/item?id={number}" for number, page in enumerate(pages)])
    events = pa.table({"type": pa.array(["A"] * n_events).dictionary_encode(), "url": urls})
    like = ["%item?id=77%", "%/ffff%", "https://%", "%id=99", "%path/1%2%3%"]

    def ask(*conditions: str) -> float:
        text = f"SELECT * FROM S WHERE A AS x ; A AS y FILTER y[url IS NULL] AND x[{' OR '.join(conditions)}]"
        return best(partial(count, text, events))

    for patterns in (like[:1], like):
        least = best(lambda patterns=patterns: [pc.match_like(urls, pattern) for pattern in patterns])
        ratio = ask(*(f"url LIKE '{pattern}'" for pattern in patterns)) / least
        report.add(f"{len(patterns)} LIKE on a million texts / Arrow", ratio, "x", 2 if len(patterns) == 1 else 1.5)
    least = best(lambda: pc.match_substring_regex(urls, "id=7+$"))
    report.add("RLIKE on a million texts / Arrow", ask("url RLIKE 'id=7+$'") / least, "x", 2)
    smaller = ask("url < 'https://www.example.org/path/7'") / n_events * 1e9
    report.add("url < 'x' on a million texts", smaller, "ns/event", 50)


MEMORY = """
import sys, threading, time, pyarrow as pa, ceql
from pathlib import Path
from ceql.datasets.stocks import stocks

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

def watch():
    while watching:
        peak[0] = max(peak[0], resident())
        time.sleep(0.001)

events = pa.Table.from_batches(list(stocks({n_events}, 1)))
text = Path(sys.argv[1]).read_text()
for batch in ceql.match(text, events.slice(0, 10000), shape="positions").batches(): pass
before, peak, watching = resident(), [0], True
watcher = threading.Thread(target=watch)
watcher.start()
for batch in ceql.match(text, events, shape="positions").batches(): pass
watching = False
watcher.join()
print(peak[0] - before)
"""


def memory(report: Report, n_events: int) -> None:
    for n in (n_events // 10, n_events):
        code = MEMORY.format(n_events=n)
        done = subprocess.run(
            [sys.executable, "-c", code, str(QUERIES / "s3.ceql")], capture_output=True, text=True, check=True
        )
        report.add(f"S3 peak memory beyond input, {n} events", int(done.stdout) / 2**20, "MB", 64)


def one_at_a_time(report: Report, coded: pa.Table) -> None:
    """A session that is fed single events, and whose matches are counted or read."""
    text, few = with_clauses(query("s3")), coded.slice(0, 4000)
    fed = {
        "dicts": [[event] for event in few.to_pylist()],
        "record batches": [few.slice(at, 1).combine_chunks().to_batches()[0] for at in range(len(few))],
    }
    reads = {"counted": ceql.Matches.count, "read": lambda matches: sum(map(len, matches.batches()))}
    for what, events in fed.items():
        for shape in ("positions", "matches"):
            for how, read in reads.items():
                seconds = best(partial(feed_each, text, shape, events, read))
                report.add(f"S3 fed {what} of one event, {shape} {how}", seconds / len(events) * 1e6, "us/event", 100)


def feed_each(text: str, shape: Shape, events: list[object], read: Callable[[ceql.Matches], int]) -> int:
    session = ceql.Session(text, shape=shape)
    return sum(read(session.feed(event)) for event in events)


def whole_matches(report: Report, coded: pa.Table) -> None:
    """Matches with the values of their events, beside the same matches as positions."""
    events = coded.slice(0, 1_000_000).combine_chunks()
    for factor, part in ((1, events), (4, events.slice(0, 100_000).combine_chunks())):
        text = with_clauses(query("s3")).replace("WITHIN 10000", f"WITHIN {10000 * factor}")
        matches = ceql.match(text, part)
        shown = best(lambda matches=matches: sum(map(len, matches.batches())), 9)
        ratio = shown / best(partial(count, text, part), 9)
        report.add(f"S3 window x{factor}, shape matches / positions", ratio, "x", 3)


def many_numbers(report: Report, coded: pa.Table) -> None:
    """Sixty predicates on one number, which cut it at 120 places."""
    events = coded.slice(0, 1_000_000).combine_chunks()
    prices = pa.array(np.random.default_rng(1).uniform(0, 40, len(events)))
    spread = events.set_column(events.column_names.index("price"), "price", prices)
    between = [f"(SELL AS a{n} FILTER a{n}[price > {n}.5] AND a{n}[price < {n}.7])" for n in range(1, 31)]
    text = f"SELECT * FROM S WHERE ({' OR '.join(between)}) ; BUY AS z FILTER z[name = 'NEVER']"
    for what, own in (("prices of stocks", events), ("uniform prices", spread)):
        seconds = best(partial(count, text, own))
        report.add(f"30 OR with 60 predicates on {what}", seconds / len(own) * 1e9, "ns/event", 60)


FILE_MEMORY = """
import sys
from pathlib import Path
import pyarrow.parquet
path, text, what = sys.argv[1:]
if what == "Arrow":
    batches = pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=1 << 20)
else:
    import ceql
    from ceql.backends.files import read_events
    events = read_events(Path(path))
    batches = events.batches
    if what != "ceql":
        batches = ceql.match(text, events.reader(lambda n: None), shape=what).batches()
for batch in batches: pass
status = Path("/proc/self/status").read_text().splitlines()
print(next(line for line in status if line.startswith("VmHWM")).split()[1])
"""


def file_memory(report: Report, n_events: int) -> None:
    """Peak memory of S3 over a Parquet file, beside that of reading the file in batches.

    The file is read by Arrow alone, and by a process that has loaded the engine. Loading it and its compiled code takes
    180 MB, whatever the file.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/stocks.parquet"
        batches = iter(stocks(n_events, 1))
        first = next(batches)
        with pa.parquet.ParquetWriter(path, first.schema) as writer:
            for batch in chain([first], batches):
                writer.write_batch(batch)
        text = with_clauses(query("s3"))

        def peak(what: str) -> int:
            run = [sys.executable, "-c", FILE_MEMORY, path, text, what]
            done = (subprocess.run(run, capture_output=True, text=True, check=True) for _ in range(N_RUNS))
            return min(int(one.stdout) for one in done)

        readers = {reader: peak(reader) for reader in ("Arrow", "ceql")}
        for shape in ("positions", "matches"):
            own = peak(shape)
            for reader, least in readers.items():
                what = f"S3 {shape} of a file of {n_events} events, peak memory / read by {reader}"
                report.add(what, own / least, "x", 1.5)


def strategies(report: Report, coded: pa.Table) -> None:
    """Strategies beside ALL: MAX where no match contains another, NEXT, LAST and MAX where one event ends many runs."""
    for factor, n_events in ((1, 1_000_000), (4, 200_000), (16, 20_000)):
        events = coded.slice(0, n_events).combine_chunks()
        text = with_clauses(query("s3")).replace("WITHIN 10000", f"WITHIN {10000 * factor}")
        most = text.replace("SELECT *", "SELECT MAX *")
        assert most != text
        ratio = best(partial(count, most, events)) / best(partial(count, text, events))
        report.add(f"S3 window x{factor}, MAX / ALL", ratio, "x", 3)
    events = coded.slice(0, 1_000_000).combine_chunks()
    repeated = "SELECT {} * FROM S WHERE BUY+ AS q FILTER q[name = 'QQQ'] WITHIN 1000 EVENTS"
    one = best(partial(count, repeated.format("ALL") + " LIMIT 1", events)) / len(events) * 1e9
    report.add("QQQ+, window of 1,000 events, ALL LIMIT 1", one, "ns/event")
    for strategy in ("NEXT", "LAST", "MAX"):
        seconds = best(partial(count, repeated.format(strategy), events))
        report.add(f"QQQ+, window of 1,000 events, {strategy}", seconds / len(events) * 1e9, "ns/event")


WITHIN = "WITHIN 10000 [stock_time]"
CONSUMING = f"{WITHIN} CONSUME BY ANY"
BY_NAME = {"a": "INTC", "b": "RIMM", "c": "QQQ", "z": "NEVER"}


def steps_of_s3(pattern: str, clauses: str, strategy: str = "ALL") -> str:
    """Return a query over the steps of S3, each with its name of S3; z is the last step of S3', which never occurs."""
    names = re.findall(r"AS (\w)", pattern)
    conditions = " AND ".join(f"{name}[name = '{BY_NAME[name]}']" for name in names)
    return f"SELECT {strategy} * FROM S WHERE {pattern} FILTER {conditions} {clauses}"


def patterns(report: Report, coded: pa.Table) -> None:
    """Patterns that wait, forbid or count, beside the same without, by turns.

    With the window of S3: with CONSUME BY ANY, as the paper has queries with output, so that each completing event has
    few matches; and without output, as in S3'. What counts is MAX, because ALL would find every subset.
    """
    compared = {
        "A ; NOT B ; C / A ; C": ("SELL AS a ; BUY AS c", "SELL AS a ; NOT BUY AS b ; BUY AS c", "ALL", 1.3),
        "A -> B -> C / A ; B ; C": (
            "SELL AS a ; BUY AS b ; BUY AS c",
            "SELL AS a -> BUY AS b -> BUY AS c",
            "ALL",
            1.1,
        ),
        "A{5,} ; B / A+ ; B, MAX": ("SELL+ AS a ; BUY AS c", "SELL{5,} AS a ; BUY AS c", "MAX", 1.5),
    }
    for what, (plain, other, strategy, target) in compared.items():
        consuming = [steps_of_s3(pattern, CONSUMING, strategy) for pattern in (plain, other)]
        report.add(f"{what}, CONSUME BY ANY", _ratio(consuming, coded), "x", target)
        without = [steps_of_s3(f"{pattern} ; BUY AS z", WITHIN, strategy) for pattern in (plain, other)]
        report.add(f"{what}, without output", _ratio(without, coded), "x", target)


def _ratio(texts: list[str], events: pa.Table) -> float:
    """Return how many times as long the second query takes as the first."""
    turns = [[best(partial(count, text, events), 1) for text in texts] for _ in range(2 * N_RUNS)]
    plain, other = map(min, zip(*turns, strict=True))
    return other / plain


def bounds(report: Report, coded: pa.Table) -> None:
    """What a bound of 200 costs beside one of 5, in a window with about 300 events to count."""
    events = coded.slice(0, 1_000_000).combine_chunks()
    clauses = "WITHIN 100000 [stock_time]"
    few, many = (steps_of_s3(f"SELL{{1,{most}}} AS a ; BUY AS z", clauses) for most in (5, 200))
    compiling = best(partial(ceql.compile, many), 1)
    report.add("A{1,200} ; B, compiling", compiling, "s", 0.5)
    report.add("A{1,200} ; B / A{1,5} ; B, per event", _ratio([few, many], events), "x", 40)
    states, sizes = [], []
    for text in (few, many):
        session = ceql.Session(text, shape="positions")
        for batch in events.to_batches(max_chunksize=10_000):
            session.feed(batch).count()
        states.append(session.stats.memo_size)
        sizes.append(session.stats.state_bytes)
    report.add("A{1,200} ; B / A{1,5} ; B, states", states[1] / states[0], "x", 40)
    report.add("A{1,200} ; B / A{1,5} ; B, bytes held", sizes[1] / sizes[0], "x", 40)


def silences(report: Report, coded: pa.Table) -> None:
    """Matches that wait for a silence beside those of two steps, by turns; then what is held while they wait.

    Within a second of the stream, about as many events of the first step are followed by one of the second as are not.
    """
    keys = np.random.default_rng(0).integers(0, 100_000, len(coded))
    keyed = coded.append_column("account", pa.array(keys)).combine_chunks()
    condition = "FILTER a[name = 'INTC'] AND b[name = 'RIMM']"
    for n_keys, events, clause in ((1, coded, ""), (100_000, keyed, "PARTITION BY [account]")):
        plain = f"SELECT * FROM S WHERE SELL AS a ; BUY AS b {condition} {clause} WITHIN 1000 [stock_time]"
        waiting = f"SELECT * FROM S WHERE SELL AS a ; NOT BUY AS b FOR 1000 [stock_time] {condition} {clause}"
        report.add(f"A ; NOT B FOR d / A ; B, keys: {n_keys}", _ratio([plain, waiting], events), "x", 1.5)
        longer = waiting.replace("1000", "100000")
        report.add(f"A ; NOT B FOR d, d x100 / d, keys: {n_keys}", _ratio([waiting, longer], events), "x", 1.3)
    held = []
    for n_waiting in (100_000, 1_000_000):
        session = ceql.Session("SELECT * FROM S WHERE A ; NOT B FOR 1 [t]", shape="positions")
        types, times = pa.array(["A"]).take(pa.array(np.zeros(n_waiting, np.int64))), np.zeros(n_waiting, np.int64)
        session.feed(pa.table({"type": types, "t": times})).count()
        session.snapshot()
        held.append(session.stats.state_bytes / n_waiting)
        report.add(f"{n_waiting:,} open deadlines", held[-1], "bytes each")
    report.add("bytes of an open deadline, a million / 100,000", held[1] / held[0], "x", 1.5)


def start_up(report: Report) -> None:
    """CPU time of a fresh process up to its first match, with all its threads."""
    code = "import ceql; list(ceql.match('SELECT * FROM S WHERE A ; B', [{'type': 'A'}, {'type': 'B'}]))"

    def seconds(**environment: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    seconds()
    report.add("first match in a fresh process, warm cache", min(seconds() for _ in range(N_RUNS)), "s of CPU", 1.5)
    cold = []
    for _ in range(N_RUNS):
        with tempfile.TemporaryDirectory() as empty:
            cold.append(seconds(NUMBA_CACHE_DIR=empty))
    report.add("first match in a fresh process, empty cache", min(cold), "s of CPU", 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    n_events = parser.parse_args().events
    coded = pa.Table.from_batches(list(stocks(n_events, 1))).combine_chunks()
    plain = coded
    for name in ("type", "name"):
        plain = plain.set_column(plain.column_names.index(name), name, coded[name].cast(pa.string()))
    plain = plain.combine_chunks()
    report = Report()
    start_up(report)
    one_at_a_time(report, coded)
    without_output(report, coded, plain)
    scaling(report, coded)
    with_output(report, coded, plain)
    partitions(report, coded)
    string_keys(report)
    large_dictionaries(report)
    enumeration(report, coded)
    strategies(report, coded)
    patterns(report, coded)
    bounds(report, coded)
    silences(report, coded)
    free_text(report)
    whole_matches(report, coded)
    many_numbers(report, coded)
    memory(report, n_events)
    file_memory(report, n_events)
    print(f"peak memory of the whole run {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")
    report.save("engine", f"{n_events} events, one thread; numpy {np.__version__}, pyarrow {pa.__version__}")


if __name__ == "__main__":
    main()
