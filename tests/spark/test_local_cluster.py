"""Several executor processes: slots run on all of them, and killing one loses no job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spark_bull import BullQueue, NewJob
from tests.support.wait import PATIENCE_S, wait_until
from tools.build_zip import build

PROGRAM = """
import os
import sys
import time
from pyspark.sql import SparkSession

url, prefix, jobs, seen = sys.argv[1:]
spark = (
    SparkSession.builder.master("local-cluster[2,1,1024]")
    .config("spark.ui.enabled", "false")
    .config("spark.executor.extraJavaOptions", "-Xss4m")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
# The driver counts among them.
while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 3:
    time.sleep(0.1)

from spark_bull import Worker

def processor(job):
    # All wait until both executors are at work.
    executor = os.getppid()
    open(os.path.join(seen, str(executor)), "w").close()
    while len(os.listdir(seen)) < 2:
        time.sleep(0.01)
    time.sleep(0.01)
    return executor

options = {"url": url, "prefix": prefix, "protocol": "bullmq"}
with Worker(spark, "q", processor, slots=2, lock_ms=5000, check_ms=1000, progress=False, **options) as worker:
    while worker.status().completed < int(jobs):
        time.sleep(0.2)
    print(worker.status())
spark.stop()
"""


@pytest.mark.spark
def test_slots_run_on_several_executors_with_the_package_in_py_files(
    redis_url: str, prefix: str, tmp_path: Path
) -> None:
    """As on a cluster where only the dependencies are installed; one executor is killed."""
    package = build(tmp_path / "spark_bull.zip")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    seen = tmp_path / "seen"
    seen.mkdir()
    with BullQueue("q", url=redis_url, prefix=prefix, protocol="bullmq") as queue:
        queue.add_many(NewJob({"n": n}) for n in range(600))
        submit = Path(sys.executable).with_name("spark-submit")
        arguments = ["--py-files", str(package), str(program), redis_url, prefix, "600", str(seen)]
        environment = {**os.environ, "PYTHONSAFEPATH": "1"}
        running = subprocess.Popen(
            [str(submit), "--master", "local-cluster[2,1,1024]", *arguments],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        try:
            wait_until(lambda: queue.counts()["completed"] > 100 or running.poll() is not None, "jobs to complete")
            executors = {int(entry.name) for entry in seen.iterdir()}
            assert len(executors) == 2, "expected Python workers of two executors"
            os.kill(executors.pop(), signal.SIGKILL)
            output, _ = running.communicate(timeout=PATIENCE_S)
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
        assert "600 completed, 0 failed" in output
        assert queue.counts()["completed"] == 600
