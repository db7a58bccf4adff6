"""A program runs without an activated environment, so that `python3` of PATH lacks the packages.

test_quickstart.py runs a shorter one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support.wait import PATIENCE_S

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

url, prefix, folder = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    spark.read.format("bull").load()
except Exception as error:
    print("DATA_SOURCE_NOT_FOUND" in str(error))

import spark_bull

spark_bull.register(spark)
bull = {"url": url, "prefix": prefix, "queue": "q", "protocol": "bullmq"}
spark.range(3).write.format("bull").options(**bull).mode("append").save()


def twice(job):
    return 2 * job.data["id"]


with spark_bull.Worker(spark, processor=twice, slots=1, **bull) as worker:
    while worker.status().completed < 3:
        worker.await_termination(0.1)
jobs = spark.readStream.format("bull").options(**bull).load().writeStream.format("parquet")
jobs.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start(folder).awaitTermination()
spark.read.parquet(folder).createOrReplaceTempView("jobs")
print(sorted(row[0] for row in spark.sql("SELECT returnvalue FROM jobs").collect()))
spark.sql(f"CREATE TEMPORARY VIEW q USING bull OPTIONS (url '{url}', prefix '{prefix}', queue 'q')")
print(spark.sql("SELECT id FROM q").count(), spark.range(1).select(udf(lambda n: sys.executable)("id")).first()[0])
"""


def run(program: str, folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a program with a `python3` without packages first in PATH."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder / "empty")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "PYTHONPATH")}
    environment["PATH"] = f"{folder}/empty/bin:{os.environ['PATH']}"
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.soak
def test_all_verbs_run_with_the_python_of_the_program(redis_url: str, prefix: str, tmp_path: Path) -> None:
    ran = run(PROGRAM, tmp_path, redis_url, prefix, str(tmp_path / "table"))
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    assert ran.stdout.splitlines() == ["True", "['0', '2', '4']", f"3 {sys.executable}"]


def test_a_named_python_without_packages_is_refused_in_one_sentence(tmp_path: Path) -> None:
    named = str(tmp_path / "empty" / "bin" / "python")
    program = "\n".join(PROGRAM.partition("bull = ")[0].splitlines())
    ran = run(program, tmp_path, "", "", "", PYSPARK_PYTHON=named)
    assert ran.returncode == 1
    *_, last = ran.stderr.splitlines()
    assert last == (
        f"spark_bull.errors.SparkBullError: expected PYSPARK_PYTHON to name a Python with the packages of spark_bull, "
        f"but {named} lacks msgpack, pandas, pyarrow, redis, spark_bull: set it to {sys.executable} before the session "
        "is created, or leave it out"
    )
