"""`ceql datasets prepare`: the streams, the rows that are wrong, what it says, and with which exit code it ends."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import ceql
from ceql.cli import app

pytest.importorskip("pyspark.sql")
pytest.importorskip("shapely")

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("default"),
    pytest.mark.usefixtures("spark"),
]

DATA = Path(os.environ.get("CEQL_DATA", Path(__file__).parents[2] / "../shared/data"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"there are no real data at {DATA}: set CEQL_DATA")


def prepare(dataset: str, raw: Path, *options: str) -> Any:
    """Run the command; its output is beside the raw file."""
    out = str(raw.parent / "out")
    return CliRunner().invoke(app, ["datasets", "prepare", dataset, "--raw", str(raw), "--out", out, *options])


def rows(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a folder, file after file in the order of names."""
    files = sorted(folder.glob("part-*"))
    assert files
    return [row for file in files for row in pa.parquet.read_table(file).to_pylist()]


def rejected(folder: Path) -> dict[str, tuple[str, str]]:
    """Return the reason and detail of each rejected line."""
    found = rows(folder / "out.rejected")
    assert all(Path(row["file"]).name.startswith("raw") for row in found)
    assert len({row["line"] for row in found}) == len(found)
    return {row["line"]: (row["reason"], row["detail"]) for row in found}


def check_schema(folder: Path, module: str) -> None:
    """Assert that a stream has the columns of the generator's; its words may be in a dictionary there."""
    expected = importlib.import_module(f"ceql.datasets.{module}").SCHEMA
    found = pa.parquet.read_schema(next(folder.glob("part-*")))
    plain = {one.name: one.type.value_type if pa.types.is_dictionary(one.type) else one.type for one in expected}
    assert dict(zip(found.names, found.types, strict=True)) == plain


# --- stocks -------------------------------------------------------------------------

STOCKS_HEADER = "event_type,id,name,volume,price,stock_time"
STOCKS = """\
SELL,7,MSFT,100,26.5,300
BUY,9,INTC,100,27.85,100
BUY,8,INTC,50,27.85,100
 SELL , 3 ,RIMM, 30 ,117.4e0,200
BUY,4,QQQ,0,.5,200
"""
STOCK_EVENTS = [
    ("BUY", 9, "INTC", 100, 27.85, 100),
    ("BUY", 8, "INTC", 50, 27.85, 100),
    ("SELL", 3, "RIMM", 30, 117.4, 200),
    ("BUY", 4, "QQQ", 0, 0.5, 200),
    ("SELL", 7, "MSFT", 100, 26.5, 300),
]
WRONG_STOCKS = {
    "BUY,20,INTC,100,27.85": ("wrong number of columns", "5 instead of 6"),
    "BUY,21,INTC,100,27.85,100,": ("wrong number of columns", "7 instead of 6"),
    "BUY,22,INTC,100,27.85,100,x,y": ("wrong number of columns", "8 instead of 6"),
    "": ("wrong number of columns", "1 instead of 6"),
    ",,,,,": ("missing value", "event_type, id, name, volume, price, stock_time"),
    "BUY,23, ,100,27.85,100": ("missing value", "name"),
    "BUY,x,INTC,1.5,27.85,100": ("unparsable number", "id, volume"),
    "BUY,24,INTC,100,27.85d,100": ("unparsable number", "price"),
    "BUY,25,INTC,100,NaN,100": ("unparsable number", "price"),
    "BUY,26,INTC,100,1e999,100": ("unparsable number", "price"),
    "BUY,27,INTC,99999999999999999999,1,100": ("unparsable number", "volume"),
    "BUY,28,INTC,-100,-27.85,100": ("negative value", "volume, price"),
    "HOLD,29,INTC,100,27.85,100": ("unknown event type", "HOLD"),
    "BUY,7,INTC,100,27.85,50": ("duplicate id", "7"),
    '"BUY",30,INTC,100,27.85,100': ("unknown event type", '"BUY"'),
}


def stock_rows(folder: Path) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows(folder / "out")]


def test_stocks(tmp_path: Path) -> None:
    (tmp_path / "raw.csv").write_text(f"{STOCKS_HEADER}\n{STOCKS}" + "".join(f"{line}\n" for line in WRONG_STOCKS))
    result = prepare("stocks", tmp_path / "raw.csv", "--json")
    assert result.exit_code == 0, result.stderr
    assert stock_rows(tmp_path) == STOCK_EVENTS
    check_schema(tmp_path / "out", "stocks")
    assert rejected(tmp_path) == WRONG_STOCKS
    summary = json.loads(result.stdout)
    counts = Counter(reason for reason, _ in WRONG_STOCKS.values())
    assert summary["rejected"] == counts
    assert list(summary["rejected"].values()) == sorted(counts.values(), reverse=True)
    assert (summary["n_rows"], summary["n_events"], summary["n_rejected"]) == (20, 5, 15)
    first, *others = result.stderr.splitlines()
    out = tmp_path / "out"
    assert re.fullmatch(rf"20 rows, 5 events in {out}, 15 rejected, [\d.]+ s on Spark, [\d,]+ rows/s", first)
    assert set(others) == {f"  {n} rejected: {reason}" for reason, n in counts.items()} | {
        f"rejected rows are in {out}.rejected"
    }

    again = prepare("stocks", tmp_path / "raw.csv")
    assert (again.exit_code, again.stderr) == (3, f"{out} exists already\nhint: --mode overwrite replaces it\n")
    (tmp_path / "raw.csv").write_text(STOCKS)
    again = prepare("stocks", tmp_path / "raw.csv", "--mode", "overwrite")
    assert again.exit_code == 0, again.stderr
    assert stock_rows(tmp_path) == STOCK_EVENTS
    assert rejected(tmp_path) == {}


def test_stocks_of_several_files_with_ends_of_lines_of_all_kinds(tmp_path: Path) -> None:
    lines = STOCKS.splitlines()
    folder = tmp_path / "raw"
    folder.mkdir()
    (folder / "raw_1.csv").write_bytes(f"\ufeff{STOCKS_HEADER}\r\n{lines[0]}\r\n{lines[1]}\r\n".encode())
    (folder / "raw_2.csv.gz").write_bytes(gzip.compress(f"{STOCKS_HEADER}\n{lines[2]}\n{lines[3]}".encode()))
    (folder / "raw_3.csv").write_text(f"{lines[4]}\n{lines[0]}")
    (folder / "raw_4.csv").write_text("")
    result = prepare("stocks", folder)
    assert result.exit_code == 0, result.stderr
    assert stock_rows(tmp_path) == STOCK_EVENTS
    (repeated,) = rows(tmp_path / "out.rejected")
    # Of the two lines the one in the first file counts.
    assert (Path(repeated["file"]).name, repeated["reason"]) == ("raw_3.csv", "duplicate id")


@pytest.mark.parametrize("text", ["", f"{STOCKS_HEADER}\n"])
def test_an_empty_file_is_an_empty_stream(tmp_path: Path, text: str) -> None:
    (tmp_path / "raw.csv").write_text(text)
    result = prepare("stocks", tmp_path / "raw.csv")
    assert result.exit_code == 0, result.stderr
    assert re.match(r"0 rows, 0 events in \S+, 0 rejected, ", result.stderr)
    assert result.stderr.endswith(f"\nnote: the stream is empty: there are no rows in {tmp_path / 'raw.csv'}\n")
    assert rows(tmp_path / "out") == []
    check_schema(tmp_path / "out", "stocks")
    assert rejected(tmp_path) == {}


# --- smart homes --------------------------------------------------------------------

HOMES_HEADER = "id,timestamp,value,property,plug_id,household_id,house_id"
HOMES = """\
5,1377986402,10.5,1,2,3,28
4,1377986401,11.5,1,2,3,28
3,1377986401,12,1,0,0,28
2,1377986400,68.451,0,11,0,28
1,1377986401,68.451,1,11,0,0
1,1377986401,7,1,1,4,28
"""
LOADS = [
    ("LOAD", 1, 1377986401, 7.0, 1, 4),
    ("LOAD", 3, 1377986401, 12.0, 0, 0),
    ("LOAD", 4, 1377986401, 11.5, 2, 3),
    ("LOAD", 5, 1377986402, 10.5, 2, 3),
]
WRONG_HOMES = {
    "6,1377986401,1,1,2,3": ("wrong number of columns", "6 instead of 7"),
    "7,1377986401,1,1,2,3,28,0": ("wrong number of columns", "8 instead of 7"),
    "8,1377986401,,1,2,3,28": ("missing value", "value"),
    "9,1377986401.5,1,1,2,3,28": ("unparsable number", "timestamp"),
    "10,1377986401,-1,1,2,3,28": ("negative value", "value"),
    "11,1377986401,1,7,2,3,28": ("unknown property", "7"),
    "12,1377986401,one,1,2,3,5": ("unparsable number", "value"),
    "3,1377986405,1,1,2,3,28": ("duplicate id", "3"),
}


def test_smart_homes(tmp_path: Path) -> None:
    (tmp_path / "raw.csv").write_text(HOMES + "".join(f"{line}\n" for line in WRONG_HOMES))
    result = prepare("smart-homes", tmp_path / "raw.csv", "--json")
    assert result.exit_code == 0, result.stderr
    assert [tuple(row.values()) for row in rows(tmp_path / "out")] == LOADS
    check_schema(tmp_path / "out", "smart_homes")
    assert rejected(tmp_path) == WRONG_HOMES
    summary = json.loads(result.stdout)
    assert (summary["n_rows"], summary["n_events"], summary["n_rejected"]) == (14, 4, 8)
    assert summary["rejected"] == Counter(reason for reason, _ in WRONG_HOMES.values())
    assert "4 events in" in result.stderr
    assert "2 not of this stream" in result.stderr


def test_another_house(tmp_path: Path) -> None:
    (tmp_path / "raw.csv").write_text(f"{HOMES_HEADER}\n{HOMES}")
    result = prepare("smart-homes", tmp_path / "raw.csv", "--house", "0")
    assert result.exit_code == 0, result.stderr
    assert [row["value"] for row in rows(tmp_path / "out")] == [68.451]
    result = prepare("smart-homes", tmp_path / "raw.csv", "--house", "17", "--mode", "overwrite")
    assert result.exit_code == 0, result.stderr
    assert result.stderr.endswith("\nnote: the stream is empty: no row is an event of it\n")


# --- taxis --------------------------------------------------------------------------

WEST, EAST = "[[0, 40], [1, 40], [1, 41], [0, 41], [0, 40]]", "[[1, 40], [2, 40], [2, 41], [1, 41], [1, 40]]"
ZONES = '{{"features": [{}]}}'.format(
    ", ".join(
        f'{{"properties": {{"zone": "{name}"}}, "geometry": {{"type": "Polygon", "coordinates": [{ring}]}}}}'
        for name, ring in (("West", WEST), ("East", EAST))
    )
)


def trip(medallion: str, pickup: str, dropoff: str, where: str = "0.5,40.5,1.5,40.5", fare: str = "9.5") -> str:
    """Return a raw line of a trip on the first day of 2013."""
    return f"{medallion},L,2013-01-01 {pickup},2013-01-01 {dropoff},60,1.2,{where},CSH,{fare},0.5,0.5,0.00,0.00,10.5"


TRIPS = [
    trip("A", "00:00:30", "00:03:00"),
    trip("B", "00:00:00", "00:02:00", "1.5,40.5,0.5,40.5"),
    trip("Z", "00:01:00", "00:02:00", "1,40.5,2,41"),
    trip("C", "00:02:00", "00:02:00"),
]
WRONG_TRIPS = {
    trip("D", "00:00:00", "00:01:00").rpartition(",")[0]: ("wrong number of columns", "16 instead of 17"),
    trip("E", "00:00:00", "00:01:00") + ",1": ("wrong number of columns", "18 instead of 17"),
    trip("", "00:00:00", "00:01:00"): ("missing value", "medallion"),
    trip("F", "00:00:00", "00:01:00", "0.5,40.5,,40.5"): ("missing value", "dropoff_longitude"),
    trip("G", "00:00:00", "00:01:00", fare="free"): ("unparsable number", "fare_amount"),
    trip("H", "0:00:00", "24:01:00"): ("unparsable time", "pickup_datetime, dropoff_datetime"),
    trip("I", "00:00:00", "00:01:00").replace("01-01 00:01", "02-30 00:01"): ("unparsable time", "dropoff_datetime"),
    trip("J", "00:00:00", "00:01:00", fare="-2.5"): ("negative value", "fare_amount"),
    trip("K", "00:01:01", "00:01:00"): ("drop-off before pickup", "-1 s"),
    trip("M", "00:00:00", "00:01:00", "0.000,0,0,0"): ("no coordinates", "pickup, dropoff"),
    trip("N", "00:00:00", "00:01:00", "0.5,40.5,0,0"): ("no coordinates", "dropoff"),
    trip("O", "00:00:00", "00:01:00", "-73.9,40.7,0.5,40.5"): ("outside every zone", "pickup"),
    trip("P", "00:00:00", "00:01:00", "0.5,404.9,0.5,4e1"): ("outside every zone", "pickup"),
    trip("A", "00:00:30", "00:03:00", fare="1"): ("duplicate trip", "A, L, 1356998430, 1356998580"),
}


def test_taxis(tmp_path: Path) -> None:
    (tmp_path / "zones.geojson").write_text(ZONES)
    (tmp_path / "raw.csv").write_text("".join(f"{line}\n" for line in (*TRIPS, *WRONG_TRIPS)))
    result = prepare("taxis", tmp_path / "raw.csv", "--zones", str(tmp_path / "zones.geojson"), "--json")
    assert result.exit_code == 0, result.stderr
    check_schema(tmp_path / "out", "taxis")
    found = rows(tmp_path / "out")
    names = ("medallion", "pickup_datetime", "dropoff_datetime", "pickup_loc", "dropoff_loc")
    midnight = 1_356_998_400
    assert [tuple(row[name] for name in names) for row in found] == [
        ("B", midnight, midnight + 120, "East", "West"),
        ("Z", midnight + 60, midnight + 120, "West", "East"),
        ("C", midnight + 120, midnight + 120, "West", "East"),
        ("A", midnight + 30, midnight + 180, "West", "East"),
    ]
    rest = {"type": "TRIP", "hack_license": "L", "trip_time_in_secs": 60, "trip_distance": 1.2, "payment_type": "CSH"}
    rest |= {"fare_amount": 9.5, "surcharge": 0.5, "mta_tax": 0.5, "tip_amount": 0.0, "tolls_amount": 0.0}
    assert all(row.items() >= (rest | {"total_amount": 10.5}).items() for row in found)
    assert rejected(tmp_path) == WRONG_TRIPS
    assert json.loads(result.stdout)["rejected"] == Counter(reason for reason, _ in WRONG_TRIPS.values())


# --- how it ends --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stocks", "--house", "1"], "only smart-homes has houses"),
        (["smart-homes", "--zones", "z.json"], "only taxis has zones"),
        (["taxis"], "taxis needs the zones of New York"),
        (["stocks", "--mode", "append"], "append"),
        (["stocks", "--master", "nowhere"], "--master"),
        (["bikes"], "bikes"),
    ],
)
def test_wrong_use(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = prepare(arguments[0], tmp_path / "raw.csv", *arguments[1:])
    assert result.exit_code == 2
    assert message in re.sub(r"[\s│]+", " ", result.stderr)
    assert not (tmp_path / "out").exists()


def test_files_that_are_not_there(tmp_path: Path) -> None:
    raw = tmp_path / "raw.csv"
    result = prepare("stocks", raw)
    assert (result.exit_code, result.stderr) == (3, f"cannot read {raw}: there is no such file or folder\n")
    raw.write_text("")
    result = prepare("taxis", raw, "--zones", str(tmp_path / "z.json"))
    assert (result.exit_code, result.stderr) == (3, f"cannot read {tmp_path / 'z.json'}: No such file or directory\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("")
    result = prepare("stocks", raw, "--mode", "overwrite")
    assert result.exit_code == 3
    assert "is not replaced" in result.stderr


def test_a_file_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "raw.csv").write_text(HOMES)
    result = prepare("stocks", tmp_path / "raw.csv")
    assert result.exit_code == 3
    assert result.stderr.endswith(f"every row is wrong: is {tmp_path / 'raw.csv'} the published form of stocks?\n")
    assert len(rows(tmp_path / "out.rejected")) == 6


def test_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "raw.csv.gz").write_bytes(gzip.compress(STOCKS.encode() * 1000)[:200])
    result = prepare("stocks", tmp_path / "raw.csv.gz")
    assert result.exit_code == 3
    assert "raw.csv.gz" in result.stderr
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.rejected").exists()


# --- real data ----------------------------------------------------------------------


@needs_data
def test_the_real_stocks_keep_their_order(tmp_path: Path) -> None:
    raw = DATA / "stocks/stock_data.csv.gz"
    result = CliRunner().invoke(
        app, ["datasets", "prepare", "stocks", "--raw", str(raw), "--out", str(tmp_path / "out"), "--json"]
    )
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["n_rejected"] == 0
    read = pa.csv.read_csv(raw)
    direct = read.rename_columns(["type", *read.schema.names[1:]])
    prepared = pa.concat_tables(pa.parquet.read_table(file) for file in sorted((tmp_path / "out").glob("part-*")))
    assert prepared.equals(direct)
    query = (Path(ceql.__file__).parent / "paper/stocks/s3.ceql").read_text(encoding="utf-8")
    n_matches = ceql.match(query, direct).count()
    assert ceql.match(query, prepared).count() == n_matches > 0


@needs_data
def test_zones_of_real_trips(tmp_path: Path) -> None:
    from ceql.datasets.prepare.zones import read_zones

    zones = read_zones(DATA / "taxi/taxi_zones.geojson.gz")
    for file, n_different in (("debs2015_first_hour", 6), ("green_2015_100k", 29)):
        trips = pa.csv.read_csv(
            DATA / f"taxi/{file}.csv.gz", convert_options=pa.csv.ConvertOptions(strings_can_be_null=True)
        )
        different = 0
        for end in ("pickup", "dropoff"):
            places = (trips[f"{end}_{axis}"].combine_chunks().cast(pa.float64()) for axis in ("longitude", "latitude"))
            found, true = zones.names_at(*places).to_pylist(), trips[f"{end}_zone"].to_pylist()
            different += sum(one != other for one, other in zip(found, true, strict=True))
        assert different == n_different
