"""Rows of a DataFrame as lines of text, read while tasks make them: neither Spark nor this process holds many.

Spark's own `toLocalIterator` holds all rows of a task before the first can be read. So tasks of a local master send
their lines to a socket of this process, which reads one task after the other. The other tasks wait.
"""

from __future__ import annotations

import math
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's own documentation writes it

from ceql.backends.json_lines import SPARK_OPTIONS, shown_json

HOST = "127.0.0.1"
SECRET_BYTES = 32
POLL_SECONDS = 0.1
MAX_WAITING = 4096
"""Tasks that may wait for their turn."""
END_SECONDS = 5
"""How long connections of other programs may delay the end after all tasks have ended."""
MAX_UNKNOWN = 256
"""Most connections that have not yet sent the secret; if there are more, the oldest are closed."""


def json_lines(rows: DataFrame) -> DataFrame:
    """Return rows as text, in the only column."""
    return rows.select(F.to_json(F.struct("*"), SPARK_OPTIONS))


def write_lines(lines: DataFrame, file: BinaryIO) -> int:
    """Write the only column of a frame on a local master to a file, as it is made; return how many rows it has.

    An error while writing ends the jobs of the session. A local master does not retry a failed task, so nothing is
    written twice.
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
    """Return a function that sends the lines of a task, and yields their number."""

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
        self._server.settimeout(0)
        self._unknown: dict[socket.socket, bytes] = {}
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
        deadline = math.inf
        while self.error is None and time.monotonic() < deadline:
            # When all tasks have ended, everything they sent has arrived: then `_ready` need not wait, and the loop
            # ends as soon as nothing is ready.
            is_over = self._is_over.is_set()
            ready = self._ready(0 if is_over else POLL_SECONDS)
            if is_over and not ready:
                break
            has_copied = any([self._served(connection) for connection in ready])
            if not is_over or has_copied:
                deadline = math.inf
            elif deadline == math.inf:
                deadline = time.monotonic() + END_SECONDS
        for connection in self._unknown:
            connection.close()

    def _ready(self, seconds: float) -> list[socket.socket]:
        """Wait up to some seconds and return the sockets that are ready; the one for new connections comes last."""
        with selectors.DefaultSelector() as selector:
            for connection in (self._server, *self._unknown):
                selector.register(connection, selectors.EVENT_READ)
            ready: list[Any] = [key.fileobj for key, _ in selector.select(seconds)]
        return sorted(ready, key=lambda connection: connection is self._server)

    def _served(self, connection: socket.socket) -> bool:
        """Read what a connection has sent, and return whether it was a task's.

        Other programs on this machine may also connect, and send nothing: the loop does not wait for them.
        """
        if connection is self._server:
            self._accept()
        elif self.error is None and self._has_said_secret(connection):
            with connection:
                self._copy(connection)
            return True
        return False

    def _accept(self) -> None:
        with suppress(OSError):
            connection, _ = self._server.accept()
            connection.settimeout(0)
            self._unknown[connection] = b""
        if len(self._unknown) > MAX_UNKNOWN:
            oldest = next(iter(self._unknown))
            del self._unknown[oldest]
            oldest.close()

    def _has_said_secret(self, connection: socket.socket) -> bool:
        """Whether a connection has sent the whole secret; it is closed if it sends anything else."""
        said = self._unknown.pop(connection)
        more = _received(connection, SECRET_BYTES - len(said))
        if more and len(said + more) < SECRET_BYTES:
            self._unknown[connection] = said + more
            return False
        if secrets.compare_digest(said + more, self.secret):
            return True
        connection.close()
        return False

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


def _received(connection: socket.socket, n_bytes: int) -> bytes:
    """Return the next bytes, none at the end; Spark reports a task that breaks off."""
    try:
        return connection.recv(n_bytes)
    except OSError:
        return b""
