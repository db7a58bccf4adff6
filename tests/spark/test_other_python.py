"""Spark starts a Python without the packages, as when a virtual environment is not activated."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

from tests.support.wait import PATIENCE_S

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from pyspark.sql import SparkSession
import spark_bull
from spark_bull.spark.platform.query_start import start_query

url, prefix, folder = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark_bull.register(spark)
starts = 0

def start():
    global starts
    starts += 1
    jobs = spark.readStream.format("bull").options(url=url, prefix=prefix, queue="q", mode="claim").load()
    return jobs.writeStream.format("noop").option("checkpointLocation", folder).start()

try:
    print(start_query(start).exception())
except Exception as error:
    print(error)
print("starts:", starts)
"""


def test_a_python_without_packages_is_reported_and_no_query_is_restarted(
    redis_url: str, prefix: str, tmp_path: Path
) -> None:
    venv.EnvBuilder(with_pip=False, symlinks=True).create(tmp_path / "empty")
    environment = {**os.environ, "PATH": f"{tmp_path}/empty/bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    del environment["PYSPARK_PYTHON"]
    command = [sys.executable, "-c", PROGRAM, redis_url, prefix, str(tmp_path / "checkpoint")]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    [warning] = [line for line in ran.stderr.splitlines() if "PYSPARK_PYTHON" in line]
    assert f"Spark starts python3 ({tmp_path}/empty/bin/python3) for its Python processes, which lacks" in warning
    assert f"PYSPARK_PYTHON={sys.executable}" in warning
    assert ran.stdout.splitlines()[-1] == "starts: 1", ran.stdout
