"""Spark with processes of its own: executors that may die, and a server behind Spark Connect."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ceql.backends.spark.java import JavaError, find_java
from stream_files import PATHS, assert_each_match_once, write_files

pytest.importorskip("pyspark.sql")

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark processes")]

CLUSTER = """
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkContext
from pyspark.sql import functions as F

import ceql
import ceql.spark
import stream_driver

settings = {
    "spark.sql.shuffle.partitions": 4,
    "spark.executor.memory": "600m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
spark = ceql.spark.session("local-cluster[2,1,1024]", app_name="cluster test", quiet=True, **settings)
driver = SparkContext._gateway.proc.pid


def descendants(pid):
    found = []
    # Threads and processes come and go.
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                for child in map(int, (task / "children").read_text().split()):
                    found += [child, *descendants(child)]
    return found


def executors():
    found = []
    for pid in descendants(driver):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\\0")
        except OSError:
            continue
        if any(word.endswith(b".CoarseGrainedExecutorBackend") for word in words):
            found.append(pid)
    return found


N_EVENTS, N_KEYS = 200_000, 4_000
QUERY = "SELECT x[id], y[id] FROM S WHERE A AS x ; B AS y ; C AS z FILTER z[v < 3] PARTITION BY [k] WITHIN 40000 [t]"
numbers = F.col("id")
events = spark.range(N_EVENTS, numPartitions=4).select(
    F.element_at(F.array(*map(F.lit, "ABCD")), (numbers * 7919 % 1009 % 4 + 1).cast("int")).alias("type"),
    "id",
    (numbers * 48271 % 2147483647 % N_KEYS).alias("k"),
    (numbers * 31 % 10).alias("v"),
    numbers.alias("t"),
)
ids = pa.array(range(N_EVENTS))
rows = range(N_EVENTS)
table = pa.table(
    {
        "type": ["ABCD"[row * 7919 % 1009 % 4] for row in rows],
        "id": ids,
        "k": [row * 48271 % 2147483647 % N_KEYS for row in rows],
        "v": [row * 31 % 10 for row in rows],
        "t": ids,
    }
)
NAMES = ["k", "match_start", "match_end", "x", "y"]


def flat(found):
    return sorted(zip(*(found[name].to_pylist() for name in NAMES)))


expected = ceql.match(QUERY, table).to_arrow()
for name in "xy":
    expected = expected.set_column(expected.column_names.index(name), name, pc.struct_field(expected[name], "id"))
expected = flat(expected)


def matches():
    shown = [F.col("x.id").alias("x"), F.col("y.id").alias("y")]
    return flat(ceql.spark.match(QUERY, events).select("k", "match_start", "match_end", *shown).toArrow())


print("plan", ceql.spark.explain(QUERY, events).split(",")[0])
print("undisturbed", matches() == expected, len(expected) > 1000)

before = executors()
assert len(before) == 2, before
killed = []


def kill_one_in_the_last_stage():
    tracker = spark.sparkContext.statusTracker()
    seen = set()
    while not killed:
        active = [one for one in map(tracker.getStageInfo, tracker.getActiveStageIds()) if one and one.numActiveTasks]
        seen.update(one.stageId for one in active)
        # What the first stage left on the lost executor must be computed again.
        if len(seen) > 1:
            os.kill(before[0], signal.SIGKILL)
            killed.append(before[0])
        time.sleep(0.002)


thread = threading.Thread(target=kill_one_in_the_last_stage, daemon=True)
thread.start()
# On a busy machine the stage may be over before the thread sees it: then once more.
are_same = [matches() == expected]
while not killed and len(are_same) < 5:
    are_same.append(matches() == expected)
print("after a kill", all(are_same))
thread.join(timeout=60)
print("killed", len(killed), before[0] not in executors())

folder = Path(sys.argv[1])


def kill_one_inside_a_micro_batch():
    while True:
        begun, done = ({path.name for path in folder.glob(f"checkpoint/{name}/*")} for name in ("offsets", "commits"))
        if (begun - done) & {"2", "3", "4"} and executors():
            os.kill(executors()[-1], signal.SIGKILL)
            killed.append("one more")
            return
        time.sleep(0.01)


thread = threading.Thread(target=kill_one_inside_a_micro_batch, daemon=True)
thread.start()
stream_driver.run(spark, *(str(folder / name) for name in sys.argv[2:]))
print("killed", len(killed))
spark.stop()
"""

CONNECT = """
from pyspark.sql import SparkSession

import ceql
import ceql.spark

spark = ceql.spark.session(app_name="connect test", **{"spark.remote": "local[2]", "spark.sql.shuffle.partitions": 3})
assert type(spark).__module__.startswith("pyspark.sql.connect"), type(spark)
rows = [{"type": "AAB"[row % 3], "id": row, "k": row % 2, "t": row // 2} for row in range(30)]
events = spark.createDataFrame([tuple(row.values()) for row in rows], "type string, id long, k long, t long")
KEYS = "SELECT * FROM S WHERE A AS x ; B AS y PARTITION BY [k] WITHIN 4 [t]"
SHARDS = "SELECT * FROM S WHERE A AS x ; B AS y WITHIN 2 [t]"


def values(found):
    return sorted((one["match_start"], one["match_end"], one["x"]["id"], one["y"]["id"]) for one in found)


for plan, query in (("keys", KEYS), ("shards", SHARDS)):
    expected = values(ceql.match(query, rows, order_by=["t", "id"]).to_arrow().to_pylist())
    found = ceql.spark.match(query, events, order_by=["t", "id"], plan=plan).collect()
    print(plan, len(found) > 10, values(found) == expected)
    print(ceql.spark.explain(query, events, plan=plan).splitlines()[0])
print("matcher", events.transform(ceql.spark.matcher(SHARDS, shape="events")).count() > 0)
spark.stop()
"""


def output(program: str, *arguments: str) -> list[str]:
    """Return what a program prints, in a process without settings for Spark."""
    try:
        find_java()
    except JavaError as error:
        pytest.skip(str(error))
    kept = {name: value for name, value in os.environ.items() if "SPARK" not in name}
    command = [sys.executable, "-c", program, *arguments]
    environment = {**kept, "PYTHONPATH": str(Path(__file__).parent.parent)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="processes are found in /proc")
def test_matches_of_batches_and_streams_are_the_same_after_an_executor_is_killed(tmp_path: Path) -> None:
    write_files(tmp_path / "in")
    assert output(CLUSTER, str(tmp_path), *PATHS) == [
        "plan plan: keys",
        "undisturbed True True",
        "after a kill True",
        "killed 1 True",
        "killed 2",
    ]
    assert_each_match_once(tmp_path)


LACKING = [name for name in ("grpc", "grpc_status", "zstandard") if find_spec(name) is None]


@pytest.mark.skipif(bool(LACKING), reason=f"Spark Connect needs {', '.join(LACKING)}")
def test_matches_come_through_spark_connect() -> None:
    assert output(CONNECT) == [
        "keys True True",
        "plan: keys, because you asked for it: rows with the same k go to one task, and each task runs over its keys",
        "shards True True",
        "plan: shards, because you asked for it: 3 tasks each run over a piece of the timeline and the window "
        "before it",
        "matcher True",
    ]
