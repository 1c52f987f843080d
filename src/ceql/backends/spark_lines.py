"""Rows of a DataFrame as lines of text, read while tasks make them: neither Spark nor this process holds many.

What Spark itself offers, `toLocalIterator`, holds all rows of a task before the first can be read. So tasks of a local
master send their lines to a socket of this process, which takes those of one task after the other. They wait while
nobody reads.
"""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's own documentation writes it

from ceql.backends.json_lines import SPARK_OPTIONS, shown_json

HOST = "127.0.0.1"
SECRET_BYTES = 32
POLL_SECONDS = 0.1
SECRET_SECONDS = 10
"""How long a task may take to say who it is."""
MAX_WAITING = 4096
"""Tasks that may wait for their turn."""


def json_lines(rows: DataFrame) -> DataFrame:
    """Return rows as text, in the only column."""
    return rows.select(F.to_json(F.struct("*"), SPARK_OPTIONS))


def write_lines(lines: DataFrame, file: BinaryIO) -> int:
    """Write the only column of a frame on a local master to a file, as it is made; return how many rows it has.

    Whatever writing raises ends the jobs of the session. A task that fails is not tried again on a local master, so
    nothing is written twice.
    """
    with _Copier(file, lines.sparkSession.interruptAll) as copier:
        try:
            sent = lines.mapInArrow(_sender(copier.port, copier.secret), "n long").agg(F.sum("n")).collect()
        except Exception:
            if copier.error is None:
                raise
    if copier.error is not None:
        raise copier.error
    return int(sent[0][0] or 0)


def _sender(port: int, secret: bytes) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what sends the lines of a task, and gives back their number."""

    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with socket.create_connection((HOST, port)) as connection:
            connection.sendall(secret)
            for batch in batches:
                text = "".join(f"{line}\n" for line in batch.column(0).to_pylist())
                connection.sendall(shown_json(text).encode())
                yield pa.record_batch([pa.array([len(batch)])], ["n"])

    return send


class _Copier:
    """A thread that copies what tasks send, one task after the other."""

    def __init__(self, file: BinaryIO, cancel: Callable[[], object]) -> None:
        self.secret = secrets.token_bytes(SECRET_BYTES)
        self.error: Exception | None = None
        self._file = file
        self._cancel = cancel
        self._is_over = threading.Event()
        self._server = socket.create_server((HOST, 0), backlog=MAX_WAITING)
        self._server.settimeout(POLL_SECONDS)
        self.port = int(self._server.getsockname()[1])
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Copier:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._is_over.set()
        self._thread.join()
        self._server.close()

    def _run(self) -> None:
        # A task that has ended may have sent more than was read, so the last look comes after the end.
        is_last = False
        while self.error is None and not is_last:
            is_last = self._is_over.is_set()
            try:
                connection, _ = self._server.accept()
            except TimeoutError:
                continue
            is_last = False
            with connection:
                if self._is_task(connection):
                    self._copy(connection)

    def _is_task(self, connection: socket.socket) -> bool:
        """Whether it is a task that has connected, and no other program on this machine."""
        connection.settimeout(SECRET_SECONDS)
        return secrets.compare_digest(_received(connection, SECRET_BYTES, socket.MSG_WAITALL), self.secret)

    def _copy(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        while data := _received(connection, 1 << 16):
            try:
                self._file.write(data)
                self._file.flush()
            except Exception as error:
                self.error = error
                self._cancel()
                return


def _received(connection: socket.socket, n_bytes: int, flags: int = 0) -> bytes:
    """Return what comes next, nothing at the end; a task that breaks off is told of by Spark."""
    try:
        return connection.recv(n_bytes, flags)
    except OSError:
        return b""
