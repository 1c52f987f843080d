"""What a session gets beyond the user's settings, and that it says nothing when asked to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark.sql")
import ceql.spark
from ceql.backends.spark import session as spark_session
from ceql.backends.spark.java import JavaError, find_java

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("default"),
]


@pytest.mark.parametrize("master", ["local", "local[*]", "local[3]", "local[3,4]"])
def test_local_masters_get_defaults_for_one_machine(master: str) -> None:
    chosen = spark_session.defaults({"spark.master": master}, n_cores=8)
    assert chosen == {
        "spark.sql.streaming.stateStore.providerClass": spark_session.STATE_STORE,
        "spark.broadcast.UDFCompressionThreshold": "2000m",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": {"local": "1", "local[*]": "8"}.get(master, "3"),
    }


@pytest.mark.parametrize("master", ["yarn", "spark://host:7077", "k8s://https://host", "local-cluster[2,1,1024]"])
def test_clusters_get_only_what_streams_need(master: str) -> None:
    assert list(spark_session.defaults({"spark.master": master}, n_cores=8)) == [
        "spark.sql.streaming.stateStore.providerClass",
        "spark.broadcast.UDFCompressionThreshold",
    ]


def test_what_is_set_is_not_set_again() -> None:
    present = dict.fromkeys(spark_session.defaults({"spark.master": "local"}, n_cores=8), "user's")
    assert spark_session.defaults({**present, "spark.master": "local"}, n_cores=8) == {}


@pytest.mark.parametrize(
    ("given", "environ", "remote"),
    [
        ({}, {}, None),
        ({"spark.master": "local[2]"}, {"MASTER": "yarn"}, None),
        ({"spark.remote": "sc://host"}, {"SPARK_REMOTE": "sc://other"}, "sc://host"),
        ({}, {"SPARK_REMOTE": "sc://other"}, "sc://other"),
        ({"spark.api.mode": "connect"}, {}, "local"),
        ({"spark.master": "local[2]"}, {"SPARK_API_MODE": "Connect"}, "local[2]"),
        ({"spark.api.mode": "classic"}, {"SPARK_API_MODE": "connect"}, None),
    ],
)
def test_connect_is_used_where_spark_would(given: dict[str, str], environ: dict[str, str], remote: str | None) -> None:
    assert spark_session._remote(given, environ) == remote


@pytest.mark.parametrize(
    ("line", "is_notice"),
    [
        (b"WARNING: Using incubator modules: jdk.incubator.vector\n", True),
        (b"WARNING: A restricted method in java.lang.System has been called\n", True),
        (b"WARNING: java.lang.System::loadLibrary has been called by org.rocksdb.NativeLibraryLoader\n", True),
        (b"WARNING: sun.misc.Unsafe::arrayBaseOffset will be removed in a future release\n", True),
        (b"WARNING: package sun.security.action not in java.base\n", True),
        (b"NOTE: Picked up JDK_JAVA_OPTIONS: -Xmx1g\n", True),
        (b"Error: Could not find or load main class Main\n", False),
        (b"WARNING: the user's own\n", False),
        (b"26/01/31 09:30:00 ERROR Executor: Exception in task 0.0 in stage 0.0\n", False),
    ],
)
def test_only_notices_of_java_are_held_back(line: bytes, is_notice: bool) -> None:
    assert bool(spark_session.JVM_NOTICE.match(line)) is is_notice


def test_names_without_dots_are_mistakes() -> None:
    with pytest.raises(TypeError, match="'appname' is neither an option nor a Spark setting"):
        ceql.spark.session(appname="demo")


def test_an_active_session_is_returned_as_it_is(spark: Any) -> None:
    before = spark.conf.getAll
    assert ceql.spark.session() is spark
    assert ceql.spark.session("local[2]", app_name="other", quiet=True) is spark
    with pytest.warns(UserWarning, match=r"does not take the given spark\.sql\.shuffle\.partitions$"):
        assert ceql.spark.session(**{"spark.sql.shuffle.partitions": 5, "spark.ui.enabled": False}) is spark
    assert spark.conf.getAll == before


PROGRAM = """
import sys
import ceql.spark

spark = ceql.spark.session(quiet=True, **{"spark.sql.session.timeZone": "Asia/Tokyo"})

def versions(batches):
    import ceql
    import pyarrow as pa
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"version": [ceql.__version__], "python": [sys.executable]})

rows = spark.range(2, numPartitions=1).mapInArrow(versions, "version string, python string").collect()
assert [tuple(row) for row in rows] == [(ceql.__version__, sys.executable)], rows
names = ["master", "app.name", "ui.enabled", "ui.showConsoleProgress", "sql.shuffle.partitions", "sql.session.timeZone"]
for name in names:
    print(name, spark.conf.get("spark." + name))
spark.stop()
"""

DEFAULTS = """\
# The user's file, in the forms that it may have.
spark.master=local[3]
spark.ui.enabled   false
spark.ui.showConsoleProgress: true
spark.sql.session.timeZone  UTC
"""


def test_a_new_session_is_quiet_and_takes_the_settings_of_the_user(tmp_path: Path) -> None:
    try:
        find_java()
    except JavaError as error:
        pytest.skip(str(error))
    (tmp_path / "spark-defaults.conf").write_text(DEFAULTS)
    kept = {name: value for name, value in os.environ.items() if "SPARK" not in name}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**kept, "SPARK_CONF_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [
        "master local[3]",
        "app.name ceql",
        "ui.enabled false",
        "ui.showConsoleProgress true",
        "sql.shuffle.partitions 3",
        "sql.session.timeZone Asia/Tokyo",
    ]
