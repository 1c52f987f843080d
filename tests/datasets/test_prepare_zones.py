"""Zones: their files, and which of them a coordinate is in."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ceql.backends.files import FileError

pytest.importorskip("shapely")
from ceql.datasets.prepare.zones import Zones, located, read_zones


def box(left: float, bottom: float, right: float, top: float) -> list[list[float]]:
    return [[left, bottom], [right, bottom], [right, top], [left, top], [left, bottom]]


def feature(zone: Any, *polygons: Any) -> dict[str, Any]:
    """Return a feature of one polygon, or of several; a polygon is a list of rings, of which the first is its edge."""
    kind, coordinates = ("Polygon", polygons[0]) if len(polygons) == 1 else ("MultiPolygon", list(polygons))
    return {"type": "Feature", "properties": {"zone": zone}, "geometry": {"type": kind, "coordinates": coordinates}}


TRIANGLE = [[20, 0], [30, 0], [20, 10], [20, 0]]
OPPOSITE = [[30, 10], [30, 2], [22, 10], [30, 10]]
FEATURES = [
    feature("Ring", [box(0, 0, 10, 10), box(3, 3, 7, 7)]),
    feature("Twins", [box(12, 0, 14, 2)], [box(16, 0, 18, 2)]),
    feature("Triangle", [TRIANGLE]),
    feature("Opposite", [OPPOSITE]),
    feature("Neighbour", [box(10, 0, 11, 10)]),
    feature("Twins", [box(0, 20, 1, 21)]),
    feature("Above", [box(0, 9, 10, 12)]),
]


@pytest.fixture
def zones(tmp_path: Path) -> Zones:
    return written(tmp_path / "zones.geojson", FEATURES)


def written(path: Path, features: Any) -> Zones:
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return read_zones(path)


def names_at(zones: Zones, *points: tuple[float | None, float | None]) -> list[str | None]:
    columns = [pa.array(values, pa.float64()) for values in zip(*points, strict=True)]
    found: list[str | None] = zones.names_at(*columns).to_pylist()
    return found


@pytest.mark.parametrize(
    ("point", "zone"),
    [
        ((1, 1), "Ring"),
        ((5, 5), None),  # in the hole
        ((3, 5), "Ring"),  # on the edge of the hole
        ((0, 0), "Ring"),  # a corner
        ((10, 5), "Ring"),  # on a border of two zones: the first in the file
        ((10.5, 5), "Neighbour"),
        ((5, 9.5), "Ring"),  # where two overlap
        ((5, 11), "Above"),
        ((13, 1), "Twins"),  # each part of a zone
        ((17, 1), "Twins"),
        ((0.5, 20.5), "Twins"),  # another zone of that name
        ((15, 1), None),  # between the parts, within the box around them
        ((21, 1), "Triangle"),  # the boxes of both triangles hold it
        ((29, 9), "Opposite"),
        ((25.5, 5.5), None),  # in both boxes and in neither triangle
        ((-1, -1), None),
        ((1e9, 5), None),
        ((None, 5), None),
        ((5, None), None),
        ((float("nan"), 5), None),
        ((float("inf"), 5), None),
    ],
)
def test_zone_of_a_point(zones: Zones, point: tuple[float | None, float | None], zone: str | None) -> None:
    assert names_at(zones, point) == [zone]
    # Others beside it do not matter.
    assert names_at(zones, (1, 1), point, (13, 1), point) == ["Ring", zone, "Twins", zone]


def test_no_points(zones: Zones) -> None:
    nothing = pa.array([], pa.float64())
    assert zones.names_at(nothing, nothing).to_pylist() == []
    assert zones.names_at(nothing, nothing).type == pa.string()


def test_zones_agree_with_looking_at_each_in_turn(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    corners = random.integers(0, 20, (30, 2))
    boxes = [
        (int(x), int(y), int(x + w), int(y + h))
        for (x, y), (w, h) in zip(corners, random.integers(1, 6, (30, 2)), strict=True)
    ]
    zones = written(tmp_path / "z.json", [feature(str(at), [box(*one)]) for at, one in enumerate(boxes)])
    points = [(float(x), float(y)) for x, y in random.integers(0, 52, (500, 2)) / 2]
    expected = [
        next((str(at) for at, one in enumerate(boxes) if one[0] <= x <= one[2] and one[1] <= y <= one[3]), None)
        for x, y in points
    ]
    assert names_at(zones, *points) == expected
    assert len(set(expected)) > 20
    assert None in expected


def test_batches_get_two_columns(zones: Zones) -> None:
    columns = {"pickup_longitude": [1.0, 5.0], "pickup_latitude": [1.0, 5.0], "k": [1, 2]}
    columns |= {"dropoff_longitude": [13.0, None], "dropoff_latitude": [1.0, None]}
    # As they arrive at Spark's workers.
    arrived = pickle.loads(pickle.dumps(zones))
    (batch,) = located(iter([pa.record_batch(columns)]), arrived)
    assert batch.to_pydict() == {**columns, "pickup_loc": ["Ring", None], "dropoff_loc": ["Twins", None]}


def test_compressed_file(tmp_path: Path) -> None:
    plain = written(tmp_path / "z.geojson", FEATURES)
    (tmp_path / "z.geojson.gz").write_bytes(gzip.compress((tmp_path / "z.geojson").read_bytes()))
    assert read_zones(tmp_path / "z.geojson.gz") == plain
    assert plain.names == ("Ring", "Twins", "Triangle", "Opposite", "Neighbour", "Twins", "Above")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot read .*"),
        ("{", "cannot read .*"),
        ("[]", ".* has no zones\n.*"),
        ('{"features": []}', ".* has no zones\n.*"),
        ('{"features": [1]}', ".*, feature 1 is not a zone\n.*"),
        (json.dumps({"features": [FEATURES[0], {"properties": {"zone": "x"}}]}), ".*, feature 2 is not a zone\n.*"),
        (json.dumps({"features": [feature(None, [TRIANGLE])]}), ".*, feature 1 is not a zone\n.*'zone'.*"),
        (json.dumps({"features": [feature("x", [[[0, 0], [1, 1]]])]}), ".*, feature 1 is not a zone\n.*polygon"),
        (
            '{"features": [{"properties": {"zone": "x"}, "geometry": {"type": "Point", "coordinates": [0, 0]}}]}',
            ".*, feature 1 is not a zone\n.*polygon",
        ),
    ],
)
def test_files_that_hold_no_zones(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "z.json").write_text(text)
    with pytest.raises(FileError, match=rf"^{message}$"):
        read_zones(tmp_path / "z.json")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot read .*none\.json: No such file"):
        read_zones(tmp_path / "none.json")
    (tmp_path / "z.json.gz").write_bytes(b"{}")
    with pytest.raises(FileError, match=r"cannot read .*z\.json\.gz: "):
        read_zones(tmp_path / "z.json.gz")
