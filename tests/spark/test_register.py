"""Registering the data source where Spark knows it already."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceRegistration

import spark_bull


def test_a_session_that_knows_the_data_source_is_left_alone(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Registering it twice would make Spark log a warning."""
    spark_bull.register(spark)
    monkeypatch.setattr(DataSourceRegistration, "register", lambda *_: pytest.fail("registered again"))
    spark_bull.register(spark)
    assert spark.read.format("bull").option("queue", "q").schema
