"""The parts of a shard's state, so that a micro-batch reads and writes what it touches and not everything.

The first bits of a hash assign partition keys to parts. A part is named by these bits, and no name begins with the name
of another part, so each key has exactly one part. A shard begins with one part, whose name is empty. A part that gets
too large is split by the next bit. Two empty parts whose names differ only in the last bit become one again.

A shard is stored as a header and the snapshots of its parts:

    magic, format, length and checksum of the header
    header      JSON: identity of the state, time of the last event, and for each part what `Part` says of it
    snapshot    of the part, if there is only one; otherwise each part is stored under its name

A single part is stored with the header, because each state that is read or written costs a round trip to Spark.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from ceql.errors import SnapshotError

IntArray = np.ndarray[Any, np.dtype[Any]]

FORMAT = 3
MAGIC = b"CEQLSHRD"

WHOLE = ""
"""The name of a shard's only part."""

MAX_BITS = 24
"""A part with a name this long is not split: its keys count as inseparable."""

_HASH_BITS = 64
_CHECKSUM_BYTES = 16


@dataclass(frozen=True)
class Part:
    """A part in the header: the time of its last event in microseconds, size and checksum of its snapshot.

    `due` is the first deadline of matches that wait, in microseconds; None if none wait.
    """

    last: int
    n_bytes: int
    checksum: str
    due: int | None = None

    @classmethod
    def of(cls, last: int, snapshot: bytes, due: int | None) -> Part:
        """Return the entry for a snapshot."""
        # PERF: a snapshot ends with its own checksum, so none is computed here.
        return cls(last, len(snapshot), snapshot[-_CHECKSUM_BYTES:].hex(), due)


class Parts:
    """The parts of a shard, by name: the entry of each, None if it is empty, and what has changed.

    `stored` has the old snapshots; `changed` has the new ones, and None for snapshots to be removed.
    """

    def __init__(
        self, stored: Mapping[str, bytes], only: bytes = b"", parts: dict[str, Part | None] | None = None
    ) -> None:
        self._stored = stored
        self.only = only
        self.parts: dict[str, Part | None] = {WHOLE: None} if parts is None else parts
        self.changed: dict[str, bytes | None] = {}
        self._check()

    @property
    def n_bytes(self) -> int:
        """Bytes of all snapshots, read or not."""
        return sum(part.n_bytes for part in self.parts.values() if part is not None)

    def snapshot(self, name: str) -> bytes:
        """Return the snapshot of a part that is not empty."""
        part = self.parts[name]
        assert part is not None
        snapshot = self.only if name == WHOLE else self._stored[name]
        if Part.of(part.last, snapshot, part.due) != part:
            raise _damaged(f"part '{name}' does not fit its header")
        return snapshot

    def put(self, name: str, snapshot: bytes, last: int, due: int | None) -> None:
        """Keep the snapshot of a part."""
        self.parts[name] = Part.of(last, snapshot, due)
        if name == WHOLE:
            self.only = snapshot
        else:
            self.changed[name] = snapshot

    def drop(self, name: str) -> None:
        """Make a part empty."""
        if name == WHOLE:
            self.only = b""
        elif self.parts[name] is not None:
            self.changed[name] = None
        self.parts[name] = None

    def split(self, name: str) -> None:
        """Replace a part by two empty parts."""
        self.drop(name)
        del self.parts[name]
        self.parts |= {f"{name}0": None, f"{name}1": None}

    def join_empty(self) -> None:
        """Replace each two empty parts whose names differ only in the last bit by one."""
        for n_bits in range(max(map(len, self.parts)), 0, -1):
            for name in [part for part in self.parts if len(part) == n_bits and part.endswith("0")]:
                other = f"{name[:-1]}1"
                # The other half may have been split further.
                if self.parts[name] is None and self.parts.get(other, name) is None:
                    del self.parts[name], self.parts[other]
                    self.parts[name[:-1]] = None

    def rows_by_part(self, hashes: IntArray) -> Iterator[tuple[str, IntArray]]:
        """Yield the parts that have some of the keys, with the rows of these keys, in order."""
        names = sorted(self.parts)
        firsts = np.array([int(name.ljust(_HASH_BITS, "0"), 2) for name in names], np.uint64)
        number_of = np.searchsorted(firsts, hashes, side="right") - 1
        for number in np.unique(number_of).tolist():
            yield names[number], np.flatnonzero(number_of == number)

    def _check(self) -> None:
        whole = self.parts.get(WHOLE)
        if len(self.only) != (0 if whole is None else whole.n_bytes):
            raise _damaged("its length differs from its header")
        if WHOLE in self.parts:
            return
        kept, stored = {name for name, part in self.parts.items() if part is not None}, set(self._stored)
        for what, names in (("lacks", kept - stored), ("should not have", stored - kept)):
            if names:
                raise _damaged(f"it {what} the parts {', '.join(sorted(names))}")


def is_next_bit_set(hashes: IntArray, name: str) -> IntArray:
    """Return which keys of a part would be in its second half."""
    is_set: IntArray = (hashes >> np.uint64(_HASH_BITS - 1 - len(name)) & np.uint64(1)).astype(np.bool_)
    return is_set


def to_blob(identity: dict[str, Any], last: int | None, parts: Parts) -> bytes:
    """Return what is stored of a shard, without the parts that are stored under their names."""
    listed = {name: None if part is None else astuple(part) for name, part in parts.parts.items()}
    header = json.dumps({"identity": identity, "last": last, "parts": listed}).encode()
    sizes = len(header).to_bytes(4, "little") + zlib.crc32(header).to_bytes(4, "little")
    return MAGIC + FORMAT.to_bytes(2, "little") + sizes + header + parts.only


def from_blob(identity: dict[str, Any], blob: bytes, stored: Mapping[str, bytes]) -> tuple[int | None, Parts]:
    """Return the time of a shard's last event, and its parts; `SnapshotError` if they are damaged or of another query.

    Snapshots are read only when they are needed, but exactly the snapshots that the header lists must exist.
    """
    if not blob.startswith(MAGIC):
        raise SnapshotError("ceql did not write the checkpoint's state")
    version = int.from_bytes(blob[8:10], "little")
    if version != FORMAT:
        raise SnapshotError(f"the checkpoint's state has format {version}, but this release reads {FORMAT}")
    end = 18 + int.from_bytes(blob[10:14], "little")
    if len(blob) < end or zlib.crc32(blob[18:end]) != int.from_bytes(blob[14:18], "little"):
        raise _damaged("the checksum of its header is wrong")
    header = json.loads(blob[18:end])
    _check_identity(header["identity"], identity)
    parts = {name: None if part is None else Part(*part) for name, part in header["parts"].items()}
    return header["last"], Parts(stored, blob[end:], parts)


def _check_identity(before: dict[str, Any], now: dict[str, Any]) -> None:
    changed = [name for name in {**now, **before} if before.get(name) != now.get(name)]
    if changed:
        told = "; ".join(f"{name} was {before.get(name)!r} and is {now.get(name)!r}" for name in changed)
        raise SnapshotError(
            f"the checkpoint belongs to another query: {told}",
            "start the changed query with a new checkpoint, or go back to the earlier query",
        )


def _damaged(how: str) -> SnapshotError:
    return SnapshotError(f"the checkpoint's state is damaged: {how}")
