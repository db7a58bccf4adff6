"""Registering the data source in a session logs nothing, with Spark's own settings of its log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
from pyspark.sql import SparkSession
import spark_bull

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()


def level():
    source = "org.apache.spark.sql.execution.datasources.DataSourceManager"
    return spark._jvm.org.apache.logging.log4j.LogManager.getLogger(source).getLevel().toString()


before = level()
spark_bull.register(spark)
spark_bull.register(spark)
print("level as before:", level() == before)
"""


@pytest.mark.usefixtures("forked_python")
def test_registering_again_warns_of_nothing_and_leaves_the_log_as_it_was() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}
    environment |= {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert "level as before: True" in ran.stdout
    assert "data source" not in ran.stderr
