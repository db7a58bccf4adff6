"""Spark Connect: a session without a SparkContext."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import need

ROOT = Path(__file__).parents[2]


@pytest.mark.usefixtures("forked_python")
def test_a_worker_without_slots_runs_under_spark_connect(redis_url: str, prefix: str) -> None:
    need(find_spec("grpc_status"), "needs the packages of pyspark[connect]")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.support.connect_driver", redis_url, prefix]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=environment, cwd=ROOT)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    assert "expected a session without Spark Connect for the engine `stream`" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "completed"
