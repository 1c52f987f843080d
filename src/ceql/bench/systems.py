"""The systems that run queries: engine and baselines, over events that are in memory before the clock starts.

A system has its own process (see `measure`), which loads the events once and then does one run after the other.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet

import ceql
from ceql.bench.baselines_sql import counting_join
from ceql.bench.naive_automaton import Search
from ceql.query import Query

WARM_UP = 10_000
"""Events that a query reads before the clock starts, so that compiling is not measured."""

N_PARTS = 8
"""Number of Parquet files that Spark reads."""


class System(Protocol):
    """Counts the matches of queries over the events of a file."""

    def prepare(self, text: str) -> None:
        """Do the work that is not measured."""

    def count(self, text: str) -> int:
        """Return the number of matches; this is measured."""

    def interrupt(self) -> None:
        """End a count that takes too long, if the system can."""


def started(name: str, path: Path, settings: dict[str, Any]) -> System:
    """Return a system with the events of an Arrow file loaded."""
    return SYSTEMS[name](path, settings)


def timed_count(system: System, text: str) -> tuple[float, int]:
    """Return the seconds that a count takes, and the count."""
    gc.collect()
    began = time.perf_counter()
    n_matches = system.count(text)
    return time.perf_counter() - began, n_matches


def read_table(path: Path) -> pa.Table:
    """Return the events of an Arrow file, in memory."""
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


class _InMemory:
    query: Query

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.events = read_table(path).combine_chunks()
        self.prepared = ""

    def prepare(self, text: str) -> None:
        """Compile the query, and run it on the first events, so that the machine code is there."""
        if text != self.prepared:
            self.prepared = text
            self.query = ceql.compile(text, self.events.schema)
            self.warm_up(self.events.slice(0, WARM_UP))

    def warm_up(self, events: pa.Table) -> None:
        """Run on a few events."""

    def interrupt(self) -> None:
        """Do nothing: a loop in Python ends with its process."""


class Ceql(_InMemory):
    """The engine; all matches are kept in memory, as row numbers."""

    def warm_up(self, events: pa.Table) -> None:
        """Run on a few events, and collect: so few events trigger no collection, but it must be compiled as well."""
        session = ceql.Session(self.query, shape="positions")
        session.feed(events).count()
        session.snapshot()

    def count(self, text: str) -> int:
        """Return the number of matches kept."""
        return len(ceql.match(self.query, self.events, shape="positions").to_arrow())


class CeqlCounting(Ceql):
    """The engine; matches are enumerated and dropped, as in the joins."""

    def count(self, text: str) -> int:
        """Return the number of matches."""
        n_matches: int = ceql.match(self.query, self.events, shape="positions").count()
        return n_matches


class Naive(_InMemory):
    """The automaton that keeps every partial match, and all matches."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        limit_address_space(settings["memory_bytes"])
        super().__init__(path, settings)

    def warm_up(self, events: pa.Table) -> None:
        """Run on a few events: there is nothing to compile, but modules must be loaded."""
        Search(self.query).run(events.slice(0, 100))

    def count(self, text: str) -> int:
        """Return the number of matches kept."""
        return len(Search(self.query).run(self.events))


class DuckDb:
    """The self-join in DuckDB, on one thread."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        import duckdb

        self.connection: Any = duckdb.connect()
        self.connection.execute(f"SET threads = 1; SET memory_limit = '{settings['memory_bytes'] // 2**20}MB'")
        # In the order of the statement, each join extends the partial matches so far. DuckDB's own order first joins by
        # buckets only: with 20,000 events, S9 was not done after 8 s, and took 0.14 s in the order of the statement.
        self.connection.execute("SET disabled_optimizers = 'join_order'")
        # Spilling would make the disk part of the measurement.
        self.connection.execute("SET max_temp_directory_size = '0KB'")
        self.connection.register("loaded", plain(numbered(read_table(path))))
        self.connection.execute("CREATE TABLE events AS FROM loaded")
        self.statement = ""

    def prepare(self, text: str) -> None:
        """Write the statement."""
        self.statement = counting_join(text)

    def count(self, text: str) -> int:
        """Return the number of rows of the join."""
        return int(self.connection.execute(self.statement).fetchall()[0][0])

    def interrupt(self) -> None:
        """End the statement."""
        self.connection.interrupt()


class SparkSql:
    """The self-join in Spark SQL, with one core and the events cached."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.spark = spark_session("local[1]")
        numbered_path = path.with_suffix(".numbered.parquet")
        pa.parquet.write_table(plain(numbered(read_table(path))), numbered_path)
        frame = self.spark.read.parquet(str(numbered_path)).cache()
        frame.count()
        frame.createOrReplaceTempView("events")
        self.statement = self.prepared = ""

    def prepare(self, text: str) -> None:
        """Run once, so that Java has compiled what the statement needs."""
        if text != self.prepared:
            self.statement = counting_join(text)
            self.count(text)
            self.prepared = text

    def count(self, text: str) -> int:
        """Return the number of rows of the join."""
        return int(self.spark.sql(self.statement).first()["n"])

    def interrupt(self) -> None:
        """End the job."""
        self.spark.sparkContext.cancelAllJobs()


class CeqlOnSpark:
    """The engine on Spark, over Parquet files; the matches are counted."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.spark = spark_session(settings["master"])
        folder = path.with_suffix(".parquet")
        if not folder.exists():
            write_parts(plain(numbered(read_table(path))), folder)
        self.frame: Any = self.spark.read.parquet(str(folder))
        self.prepared = ""

    def prepare(self, text: str) -> None:
        """Run once, so that Java and the Python workers are warm."""
        if text != self.prepared:
            self.count(text)
            self.prepared = text

    def count(self, text: str) -> int:
        """Return the number of matches."""
        import ceql.spark

        return int(ceql.spark.match(text, self.frame, order_by=["pos"]).count())

    def interrupt(self) -> None:
        """End the job."""
        self.spark.sparkContext.cancelAllJobs()


class SparkFloor(CeqlOnSpark):
    """Spark alone: reads the file and counts the rows that satisfy the query's predicates."""

    def count(self, text: str) -> int:
        """Return the number of rows."""
        from ceql.backends.spark import batch as spark_batch
        from ceql.backends.spark.query import prepare

        prepared = prepare(text, self.frame, type_column="type", time_column=None, order_by=[], shape="matches")
        return int(spark_batch.plan_job(prepared, "auto").events.count())


SYSTEMS: dict[str, Callable[[Path, dict[str, Any]], System]] = {
    "ceql": Ceql,
    "ceql, every match": CeqlCounting,
    "naive automaton": Naive,
    "DuckDB join": DuckDb,
    "Spark SQL join": SparkSql,
    "ceql on Spark": CeqlOnSpark,
    "Spark, read and filter": SparkFloor,
}

MODULES = {"DuckDB join": "duckdb", "Spark SQL join": "pyspark", "ceql on Spark": "pyspark"}
"""The modules that a system needs in addition to the engine's dependencies."""


def spark_session(master: str) -> Any:
    """Return a session for measuring."""
    import ceql.spark

    settings: dict[str, Any] = {
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    if master.startswith("local-cluster"):
        settings |= {"spark.sql.shuffle.partitions": 2, "spark.executor.memory": "600m"}
    return ceql.spark.session(master, app_name="ceql bench", quiet=True, **settings)


def numbered(events: pa.Table) -> pa.Table:
    """Return the events with their positions in a column."""
    import numpy as np

    return events.append_column("pos", pa.array(np.arange(len(events))))


def plain(events: pa.Table) -> pa.Table:
    """Return the events with strings instead of dictionaries."""
    fields = [
        pa.field(field.name, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        for field in events.schema
    ]
    return events.cast(pa.schema(fields))


def write_parts(events: pa.Table, folder: Path) -> None:
    """Write the events to several files, so that reading them is shared among tasks."""
    folder.mkdir()
    size = -(-len(events) // N_PARTS)
    for number in range(N_PARTS):
        pa.parquet.write_table(events.slice(number * size, size), folder / f"part-{number:05}.parquet")


def limit_address_space(n_bytes: int) -> None:
    """Make this process fail rather than take the machine's memory, if the operating system can do that."""
    try:
        import resource
    except ModuleNotFoundError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes))
