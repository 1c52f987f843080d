"""A Spark session that works on a laptop without settings, and respects all settings of the user.

Spark merges settings from many places (`spark-defaults.conf`, SPARK_CONF_DIR, PYSPARK_SUBMIT_ARGS, spark-submit,
MASTER) when its JVM starts. So the JVM starts first, with the caller's settings only. Our defaults then fill in the
settings that it has no value for.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

try:
    from pyspark.sql import SparkSession, is_remote
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("PySpark is missing: pip install 'ceql[spark]'", name="pyspark") from error

from ceql.backends.spark.java import environment_for, find_java
from ceql.errors import warn

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
QUIET_LOG = Path(__file__).with_name("log4j2-quiet.properties")

JVM_NOTICE = re.compile(
    rb"WARNING: (Using incubator modules|A restricted method in|Use --enable-native-access=|Restricted methods will be"
    rb"|A terminally deprecated method in|Please consider reporting this to|package \S+ not in"
    rb"|\S+::\S+ (has been called by|will be removed))"
    rb"|(NOTE: )?Picked up \w+_OPTIONS:"
)
"""Notices that Java writes to standard error about options and libraries that Spark chose."""

WORKER_NOTICE = re.compile(rb"(Starting )?Streaming TransformWithStateInPandas Python worker\b")
"""Notices that PySpark's workers write when a stream with state begins; an empty line follows each."""


def session(
    master: str | None = None, *, app_name: str = "ceql", quiet: bool = False, **config: str | int | bool
) -> SparkSession:
    """Return the active Spark session unchanged, or else a new session.

    A new session has defaults that suit one machine. A default applies only if neither the arguments nor
    `spark-defaults.conf`, spark-submit or the environment set it. `ceql.backends.spark.java.find_java` finds Java, and
    Python workers of local masters run this Python. The time zone does not change. A session of Spark Connect gets no
    defaults: its server sets them.

    Args:
        master: where to run, such as `local[4]`, `spark://host:7077` or `sc://host`; by default as in Spark's settings,
            else `local[*]`.
        app_name: the name that Spark's logs and pages show.
        quiet: write only errors to standard error. A `log4j2` file of the user stays in force.
        config: Spark's settings, by name: `**{"spark.driver.memory": "4g"}`.
    """
    given = {_setting_name(name): _setting_text(value) for name, value in config.items()}
    if master is not None:
        given["spark.remote" if master.startswith("sc://") else "spark.master"] = master
    running = _running_session()
    if running is not None:
        _warn_of_differences(running, given)
        return running
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    remote = _remote(given, os.environ)
    if remote or is_remote():
        return _connected(remote, app_name, given)
    return _started(app_name, given, quiet=quiet)


def defaults(present: Mapping[str, str], *, n_cores: int) -> dict[str, str]:
    """Return the settings that a session gets in addition to those that are present.

    >>> list(defaults({"spark.master": "yarn"}, n_cores=8))
    ['spark.sql.streaming.stateStore.providerClass', 'spark.broadcast.UDFCompressionThreshold']
    """
    ours = {
        "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
        # Long lists of parameters go to streams with the code, because nothing is broadcast to those.
        "spark.broadcast.UDFCompressionThreshold": "2000m",
    }
    n_threads = local_threads(present["spark.master"], n_cores=n_cores)
    if n_threads is not None:
        ours |= {
            "spark.ui.enabled": "false",
            # The host name of a laptop often has no address, or the address of a network that is gone.
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(n_threads),
        }
    return {name: value for name, value in ours.items() if name not in present}


def local_threads(master: str, *, n_cores: int) -> int | None:
    """Return how many tasks a master runs at once inside the driver, None if it runs them elsewhere.

    >>> [local_threads(master, n_cores=8) for master in ("local", "local[*]", "local[4]", "local[2, 3]", "yarn")]
    [1, 8, 4, 2, None]
    """
    found = re.fullmatch(r"local(?:\[\s*(\*|\d+)\s*(?:,\s*\d+\s*)?\])?", master)
    if found is None:
        return None
    return n_cores if found[1] == "*" else int(found[1] or 1)


def _started(app_name: str, given: dict[str, str], *, quiet: bool) -> SparkSession:
    """Return a new session with a driver in this process."""
    from pyspark import SparkConf, SparkContext

    # The JVM of an earlier session stays until this process ends.
    gateway: Any = SparkContext._gateway or _gateway(given, quiet=quiet)
    conf = SparkConf(_jvm=gateway.jvm)
    for name, value in given.items():
        conf.set(name, value)
    conf.setIfMissing("spark.master", "local[*]")
    # This is the name that spark-submit gives to programs without a name.
    if conf.get("spark.app.name", "pyspark-shell") == "pyspark-shell":
        conf.setAppName(app_name)
    for name, value in defaults(dict(conf.getAll()), n_cores=os.cpu_count() or 1).items():
        conf.set(name, value)
    if str(conf.get("spark.master")).startswith("local"):
        # Spark's own default is the `python3` on PATH, which may lack our packages, or not exist.
        os.environ.setdefault("PYSPARK_PYTHON", conf.get("spark.pyspark.python") or sys.executable)
    return SparkSession(SparkContext(conf=conf, gateway=gateway))


def _gateway(given: Mapping[str, str], *, quiet: bool) -> Any:
    """Return the gateway to spark-submit's JVM if this runs under it, else to a new JVM with the given settings."""
    from pyspark import SparkConf, java_gateway

    launch: Any = java_gateway.launch_gateway
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return launch()
    conf = SparkConf(loadDefaults=False)
    for name, value in given.items():
        conf.set(name, value)
    # Spark takes a setting from the properties of the JVM only if no file and no argument has it.
    options = ["-Dspark.ui.showConsoleProgress=false"]
    if quiet and not _has_log_settings():
        options.append(f"-Dlog4j2.configurationFile={QUIET_LOG.as_uri()}")
    output: AbstractContextManager[dict[str, Any]] = _without_notices() if quiet else nullcontext({})
    with environment_for(find_java()), _submit_options(options), output as arguments:
        return launch(conf, arguments)


def _connected(remote: str | None, app_name: str, given: dict[str, str]) -> SparkSession:
    """Return a session of Spark Connect; Spark starts its own server if the address is a local master."""
    builder = SparkSession.builder.appName(app_name)
    for name, value in given.items():
        builder = builder.config(name, value)
    if remote is None or not remote.startswith("local"):
        return builder.getOrCreate()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with environment_for(find_java()):
        return builder.getOrCreate()


def _remote(given: Mapping[str, str], environ: Mapping[str, str]) -> str | None:
    """Return the address of Spark Connect, None if it is not used."""
    remote = given.get("spark.remote") or environ.get("SPARK_REMOTE")
    if remote:
        return remote
    if given.get("spark.api.mode", environ.get("SPARK_API_MODE", "")).lower() == "connect":
        return given.get("spark.master") or environ.get("MASTER", "local")
    return None


def _running_session() -> SparkSession | None:
    active = SparkSession.getActiveSession()
    if active is not None or is_remote():
        return active
    from pyspark import SparkContext

    # The session of another thread, or a new session of a running context; without options neither is changed.
    return SparkSession.builder.getOrCreate() if SparkContext._active_spark_context is not None else None


def _warn_of_differences(running: SparkSession, given: Mapping[str, str]) -> None:
    names = [name for name, value in given.items() if name != "spark.remote" and running.conf.get(name, None) != value]
    if names:
        warn(f"a Spark session is already active, and does not take the given {', '.join(names)}")


def _setting_name(name: str) -> str:
    if "." not in name:
        raise TypeError(f"'{name}' is neither an option nor a Spark setting: their names have dots")
    return name


def _setting_text(value: str | int | bool) -> str:  # noqa: FBT001
    return str(value).lower() if isinstance(value, bool) else str(value)


def _has_log_settings() -> bool:
    """Return whether the user has a settings file for Spark's log."""
    from pyspark.find_spark_home import _find_spark_home

    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf")
    return any(Path(folder).glob("log4j2*.*")) if os.path.isdir(folder) else False


@contextmanager
def _submit_options(options: list[str]) -> Iterator[None]:
    """Give options to a JVM that starts inside this context; options of the user win."""
    before = os.environ.get("SPARK_SUBMIT_OPTS")
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join([*options, before or ""]).strip()
    try:
        yield
    finally:
        if before is None:
            del os.environ["SPARK_SUBMIT_OPTS"]
        else:
            os.environ["SPARK_SUBMIT_OPTS"] = before


@contextmanager
def _without_notices() -> Iterator[dict[str, Any]]:
    """Give the arguments for starting a process whose standard error is passed on without notices of Java and PySpark.

    Neither has an option that silences them, and standard error cannot just be closed: errors, and the output of
    Python workers, also go there as long as the process lives.

    The process gets a terminal session of its own, because Ctrl-C goes to all processes of a session, and Python
    workers would end in the middle of a task. It still ends when this process does.
    """
    reading, writing = os.pipe()
    thread = threading.Thread(target=_pass_on, args=(reading,), name="ceql-spark-stderr", daemon=True)
    thread.start()
    try:
        yield {"stderr": writing, "start_new_session": True}
    except BaseException:
        os.close(writing)
        # The process has written why it ended; let its message appear before the exception.
        thread.join(timeout=5)
        raise
    os.close(writing)


def _pass_on(reading: int) -> None:
    with open(reading, "rb") as lines:
        for line in without_notices(lines):
            # If standard error is closed, go on reading: otherwise the process would wait for us.
            with suppress(OSError):
                os.write(2, line)


def _without_cancelled_workers(lines: Iterable[bytes]) -> Iterator[bytes]:
    r"""Yield lines without the stack traces of workers whose task was cancelled: nobody reads their output any more.

    >>> trace = [b"Traceback (most recent call last):\n", b'  File "pyspark/daemon.py", line 95, in worker\n']
    >>> list(_without_cancelled_workers([*trace, b"BrokenPipeError: [Errno 32] Broken pipe\n", b"an error\n"]))
    [b'an error\n']
    >>> list(_without_cancelled_workers([*trace, b"OSError: no room\n"])) == [*trace, b"OSError: no room\n"]
    True
    """
    trace: list[bytes] = []
    for line in lines:
        if trace and line.startswith(b"  File ") and b"pyspark/daemon.py" in line:
            trace.append(line)
            continue
        is_cancelled = len(trace) > 1 and line.startswith(b"BrokenPipeError")
        if not is_cancelled:
            yield from trace
        trace = []
        if line == b"Traceback (most recent call last):\n":
            trace.append(line)
        elif not is_cancelled:
            yield line
    yield from trace


def without_notices(lines: Iterable[bytes]) -> Iterator[bytes]:
    r"""Yield the lines that are not notices, as they come.

    >>> said = [b"Starting Streaming TransformWithStateInPandas Python worker.\n", b"\n", b"an error\n", b"\n"]
    >>> list(without_notices(said))
    [b'an error\n', b'\n']
    """
    is_after_notice = False
    for line in _without_cancelled_workers(lines):
        is_notice = WORKER_NOTICE.match(line) is not None
        if not is_notice and not JVM_NOTICE.match(line) and not (is_after_notice and line.isspace()):
            yield line
        is_after_notice = is_notice
