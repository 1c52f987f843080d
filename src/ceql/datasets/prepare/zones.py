"""The zone in which a coordinate lies, for millions of coordinates."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import shapely
import shapely.geometry

from ceql.backends.files import FileError

NOWHERE = -1
ENDS = ("pickup", "dropoff")
"""The two ends of a trip, as names of columns begin."""
NAME = "zone"
"""The property of a GeoJSON feature that names it."""


@dataclass(frozen=True)
class Zones:
    """Names of zones and their shapes as well-known binary: what is sent to Spark's workers."""

    names: tuple[str, ...]
    shapes: tuple[bytes, ...]

    def names_at(self, longitudes: pa.Array, latitudes: pa.Array) -> pa.Array:
        """Return the zone of each coordinate, NULL outside all of them.

        A border belongs to the zones on both sides. Where several zones meet or overlap, the first in the file counts.
        """
        found = _first_at(self, *(degrees.to_numpy(zero_copy_only=False) for degrees in (longitudes, latitudes)))
        return pa.array(self.names, pa.string()).take(pa.array(found, mask=found == NOWHERE))


def read_zones(path: Path) -> Zones:
    """Return the zones of a GeoJSON file, which may be compressed with gzip, or raise `FileError`."""
    try:
        data = path.read_bytes()
        document = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    except (OSError, EOFError, ValueError) as error:
        raise FileError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    features = document.get("features") if isinstance(document, dict) else None
    if not isinstance(features, list) or not features:
        raise FileError(f"{path} has no zones", "it must be GeoJSON with a list of features")
    named = [_named_shape(feature, f"{path}, feature {number}") for number, feature in enumerate(features, 1)]
    return Zones(tuple(name for name, _ in named), tuple(shape for _, shape in named))


def located(batches: Iterator[pa.RecordBatch], zones: Zones) -> Iterator[pa.RecordBatch]:
    """Yield batches of trips with the zones in which each began and ended as two further columns."""
    for batch in batches:
        found = [zones.names_at(batch.column(f"{end}_longitude"), batch.column(f"{end}_latitude")) for end in ENDS]
        names = [*batch.schema.names, *(f"{end}_loc" for end in ENDS)]
        yield pa.RecordBatch.from_arrays([*batch.columns, *found], names)


def _named_shape(feature: Any, where: str) -> tuple[str, bytes]:
    try:
        name = feature["properties"][NAME]
        shape = shapely.geometry.shape(feature["geometry"])
    except (KeyError, TypeError, ValueError, AttributeError, shapely.GEOSException) as error:
        raise FileError(f"{where} is not a zone", f"it needs the property '{NAME}' and a polygon") from error
    if not isinstance(name, str) or shape.geom_type not in ("Polygon", "MultiPolygon"):
        raise FileError(f"{where} is not a zone", f"it needs the property '{NAME}' and a polygon")
    return name, shapely.to_wkb(shape)


@lru_cache(maxsize=1)
def _index(zones: Zones) -> tuple[shapely.STRtree, np.ndarray[Any, Any]]:
    """Return a search tree over the boxes of zones, and their shapes, prepared; made once in each process."""
    shapes = shapely.from_wkb(np.array(zones.shapes, dtype=object))
    shapely.prepare(shapes)
    return shapely.STRtree(shapes), shapes


def _first_at(zones: Zones, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the number of the first zone at each point, `NOWHERE` where there is none."""
    tree, shapes = _index(zones)
    first = np.full(len(x), len(shapes))
    (known,) = np.nonzero(np.isfinite(x) & np.isfinite(y))
    point, zone = tree.query(shapely.points(x[known], y[known]))
    is_within = shapely.intersects_xy(shapes[zone], x[known][point], y[known][point])
    np.minimum.at(first, known[point[is_within]], zone[is_within])
    return np.where(first == len(shapes), NOWHERE, first)
