"""A result of Spark on a timeline."""

from __future__ import annotations

from typing import Any

import pytest

from ceql.pictures import timeline

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.filterwarnings("default")]


def test_no_more_is_collected_than_is_shown(spark: Any) -> None:
    import ceql.spark

    events = spark.range(30).selectExpr("'A' AS type", "timestamp_seconds(id) AS at", "id")
    matches = ceql.spark.match("SELECT * FROM S WHERE A AS x ; A+ AS y WITHIN 8 seconds [at]", events)
    page = timeline(matches, total=1234)
    assert "200 of 1,234 matches shown" in page.html
    page = timeline(matches)
    assert "200 of more than 200 matches shown" in page.html
    assert '"lanes":["x","y"]' in page.html
    assert '"name":"at"' in page.html


def test_the_shape_events_is_whole(spark: Any) -> None:
    import ceql.spark

    events = spark.range(150).selectExpr("'A' AS type", "timestamp_seconds(id) AS at", "id")
    matches = ceql.spark.match(
        "SELECT * FROM S WHERE A AS x : A AS y : A AS z WITHIN 8 seconds", events, shape="events"
    )
    assert '<p id="count">148 matches</p>' in timeline(matches).html
