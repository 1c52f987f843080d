"""Settings and fixtures that all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import spark_rows
from ceql.backends.spark.java import JavaError
from strategies import FUZZ

# Deadlines are off: machines are shared, and no test may depend on the clock.
settings.register_profile(
    "ceql",
    max_examples=200 * max(1, FUZZ),
    derandomize=FUZZ == 0,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    print_blob=True,
)
settings.load_profile("ceql")

JAVA_OPTIONS = {
    # It would spend two fifths of its time on optimizing code that runs for a few seconds. So told, it has little room
    # for compiled code, which it would soon drop and compile again.
    "compiling": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
    "memory": "-XX:+UseSerialGC -XX:NewRatio=1 -XX:MetaspaceSize=200m",
    # A tenth of each start goes to verifying Spark's classes.
    "starting": "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
    # Spark would write and compile programs for a few rows; tests of what they compute ask for that, see `generated`.
    "planning": "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN",
    # And ask Java several times about each column that Python names, to tell of it in errors.
    "asking": "-Dspark.python.sql.dataFrameDebugging.enabled=false",
}
os.environ.setdefault("JAVA_TOOL_OPTIONS", " ".join(JAVA_OPTIONS.values()))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Make sure that groups of tests are kept together; else each process would start a Spark session of its own."""
    if getattr(session.config.option, "loadgroup", False):
        grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
        assert all("@" in item.nodeid for item in grouped), "pytest-xdist does not know the groups of this pytest"


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session for all tests of a worker that need one: starting another takes longer than they do.

    They are kept together by `pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), ...]`. What starts
    processes of its own is in another group, so that two cores are busy.
    """
    ceql_spark = pytest.importorskip("ceql.spark")
    config = {
        "spark.sql.shuffle.partitions": 1,
        # Small batches, so that state is carried from one to the next.
        "spark.sql.execution.arrow.maxRecordsPerBatch": 7,
        "spark.sql.session.timeZone": "UTC",
    }
    try:
        session = ceql_spark.session("local[2]", app_name="ceql tests", quiet=True, **config)
    except JavaError as error:
        pytest.skip(str(error))
    yield session
    session.stop()


@pytest.fixture
def three_tasks(spark: Any) -> Iterator[None]:
    """Let three tasks share the work of a stage, which most tests would only lose time by."""
    with spark_rows.settings(spark, {"spark.sql.shuffle.partitions": 3}):
        yield


@pytest.fixture
def generated(spark: Any) -> Iterator[None]:
    """Let Spark compute with programs that it writes for each query, as it does for users."""
    values = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    with spark_rows.settings(spark, values):
        yield
