"""A PySpark that is too old is an error that names both versions."""

from __future__ import annotations

import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from spark_bull.errors import SparkBullError
from spark_bull.spark.platform.pyspark_version import MIN_PYSPARK, check_pyspark

ROOT = Path(__file__).parents[4]
OLD = "import pyspark; pyspark.__version__ = '3.5.9'; "


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", OLD + code], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("version", ["3.3.0", "3.5.9", "3.10.0", "3.5.0.dev3"])
def test_an_old_version_is_refused_with_both_versions(version: str) -> None:
    with pytest.raises(SparkBullError, match=rf"expected PySpark 4\.0 or newer, got: {version}; "):
        check_pyspark(version)


@pytest.mark.parametrize("version", ["4.0.0", "4.1.0.dev1", "4.10.0", "5.0.0", "unknown"])
def test_a_new_version_is_accepted(version: str) -> None:
    check_pyspark(version)


def test_the_declared_requirement_is_the_minimum_version() -> None:
    declared = ConfigParser()
    declared.read(ROOT / "setup.cfg")
    assert f"pyspark>={'.'.join(map(str, MIN_PYSPARK))},<5" in declared["options"]["install_requires"].splitlines()


@pytest.mark.parametrize("name", ["register", "Worker", "BullDataSource"])
def test_public_names_that_need_spark_refuse_an_old_one(name: str) -> None:
    done = run(f"from spark_bull import {name}")
    assert "SparkBullError: expected PySpark 4.0 or newer, got: 3.5.9" in done.stderr


def test_discovery_of_data_sources_continues_with_a_warning() -> None:
    done = run("import pyspark_bull; assert not hasattr(pyspark_bull, 'DefaultSource')")
    assert done.returncode == 0, done.stderr
    assert "is not available: SparkBullError: expected PySpark 4.0 or newer, got: 3.5.9" in done.stderr


def test_names_that_need_no_spark_work_with_an_old_version() -> None:
    assert run("from spark_bull import BullQueue, Promoter").returncode == 0
