"""A program whose Python of PYSPARK_PYTHON lacks the packages; test_quickstart.py runs one without that variable."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support.wait import PATIENCE_S

PROGRAM = """
from pyspark.sql import SparkSession
import spark_bull

spark_bull.register(SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate())
"""


@pytest.mark.rest
def test_a_named_python_without_packages_is_refused_in_one_sentence(tmp_path: Path) -> None:
    venv.EnvBuilder(with_pip=False, symlinks=True).create(tmp_path / "empty")
    named = str(tmp_path / "empty" / "bin" / "python")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment | {"PYSPARK_PYTHON": named},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 1
    *_, last = ran.stderr.splitlines()
    assert last == (
        "spark_bull.core.errors.SparkBullError: expected PYSPARK_PYTHON to name a Python with the packages of "
        f"spark_bull, but {named} lacks msgpack, pandas, pyarrow, redis, spark_bull: set it to {sys.executable} before "
        "the session is created, or leave it out"
    )
