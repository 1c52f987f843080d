"""A session's run state as bytes, and back.

    magic, format version, length of the header
    header      JSON: fingerprint, and name, type and shape of each buffer that follows
    buffers     arrays as they are in memory (little endian), Arrow tables in Arrow's own format
    checksum    of everything before it

Determinized states and labels are written as sets, in the order of their numbers, so that
reading them into an empty memo gives the same numbers again. Nothing in a snapshot is ever
executed, and `check_content` checks every number that compiled code would follow.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import numpy as np
import pyarrow as pa

from ceql.errors import SnapshotError

MAGIC = b"CEQLSNAP"
VERSION = 4
_HEAD = struct.Struct("<8sHI")
_CHECKSUM_BYTES = 16

IntArray = np.ndarray[Any, np.dtype[Any]]
Content = dict[str, Any]
"""Arrays, Arrow tables, and values that JSON can hold, by name."""


def fingerprint(*parts: object) -> str:
    """Return a digest of everything that a snapshot depends on."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]


def write(identity: str, content: Content) -> bytes:
    """Return a snapshot of some content that only the same identity can read."""
    buffers: list[bytes] = []
    described: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, np.ndarray):
            little = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<"), copy=False)
            buffers.append(little.tobytes())
            described[name] = {"array": little.dtype.str, "shape": value.shape, "bytes": len(buffers[-1])}
        elif isinstance(value, pa.Table):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, value.schema) as writer:
                writer.write_table(value)
            buffers.append(sink.getvalue().to_pybytes())
            described[name] = {"arrow": True, "bytes": len(buffers[-1])}
        else:
            described[name] = {"value": value}
    header = json.dumps({"identity": identity, "content": described}).encode()
    body = b"".join([_HEAD.pack(MAGIC, VERSION, len(header)), header, *buffers])
    return body + _checksum(body)


def read(identity: str, snapshot: bytes) -> Content:
    """Return a snapshot's content, or raise `SnapshotError` if it is damaged or has another identity."""
    if len(snapshot) < _HEAD.size + _CHECKSUM_BYTES or not snapshot.startswith(MAGIC):
        raise SnapshotError("this is not a ceql snapshot, or not the whole of one")
    _, version, header_length = _HEAD.unpack_from(snapshot)
    if version != VERSION:
        raise SnapshotError(f"the snapshot has format version {version}, this release reads version {VERSION}")
    body, checksum = snapshot[:-_CHECKSUM_BYTES], snapshot[-_CHECKSUM_BYTES:]
    if _checksum(body) != checksum:
        raise SnapshotError("the snapshot is damaged: its checksum does not fit")
    header = json.loads(body[_HEAD.size : _HEAD.size + header_length])
    if header["identity"] != identity:
        raise SnapshotError(
            "the snapshot belongs to another query, schema or release, "
            "or was made with other options: type_column, time_column, order_by, shape"
        )
    content: Content = {}
    at = _HEAD.size + header_length
    for name, described in header["content"].items():
        if "value" in described:
            content[name] = described["value"]
            continue
        part = body[at : at + described["bytes"]]
        at += described["bytes"]
        if "array" in described:
            content[name] = np.frombuffer(part, described["array"]).reshape(described["shape"]).copy()
        else:
            content[name] = pa.ipc.open_stream(part).read_all()
            content[name].validate(full=True)
    return content


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_CHECKSUM_BYTES).digest()
