"""Several executors: slots run on all of them, even more slots than cores, and killing one loses no job.

A worker that starts before the executors gets its slots when they are there.
"""

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
    SparkSession.builder.master("local-cluster[2,2,1024]")
    .config("spark.ui.enabled", "false")
    .config("spark.speculation", "true")
    .config("spark.executor.extraJavaOptions", "-Xss4m " + os.environ["SPARK_SUBMIT_OPTS"])
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")

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
with Worker(spark, "early", lambda job: None, progress=False, **options) as worker:
    # The executors have not started yet. An executor has two cores, so three slots are on both.
    while worker.status().completed < 20 or worker.status().slots < 3:
        time.sleep(0.2)
    print("early:", worker.status())
with Worker(spark, "q", processor, slots=16, lock_ms=5000, check_ms=1000, progress=False, **options) as worker:
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
    options = {"url": redis_url, "prefix": prefix, "protocol": "bullmq"}
    with BullQueue("early", **options) as early, BullQueue("q", **options) as queue:
        early.add_many(NewJob({}) for _ in range(20))
        queue.add_many(NewJob({"n": n}) for n in range(600))
        submit = Path(sys.executable).with_name("spark-submit")
        arguments = ["--py-files", str(package), str(program), redis_url, prefix, "600", str(seen)]
        environment = {**os.environ, "PYTHONSAFEPATH": "1"}
        running = subprocess.Popen(
            [str(submit), "--master", "local-cluster[2,2,1024]", *arguments],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
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
        assert "early: running: 20 completed" in output
        assert "600 completed, 0 failed" in output
        assert "its 16 slots take all cores, as Spark runs 4 tasks at the same time" in output
        assert "expected spark.speculation=false" in output
        assert queue.counts()["completed"] == 600


RESOURCES = """
import os
import sys
import time
from pyspark import TaskContext
from pyspark.sql import SparkSession

url, prefix, folder = sys.argv[1:]
spark = (
    SparkSession.builder.master("local-cluster[1,2,1024]")
    .config("spark.ui.enabled", "false")
    .config("spark.executor.extraJavaOptions", "-Xss4m " + os.environ["SPARK_SUBMIT_OPTS"])
    .config("spark.resources.discoveryPlugin", "org.apache.spark.resource.ResourceDiscoveryScriptPlugin")
    .config("spark.worker.resource.gpu.amount", 2)
    .config("spark.worker.resource.gpu.discoveryScript", f"{folder}/gpus.sh")
    .config("spark.executor.resource.gpu.amount", 2)
    .config("spark.task.resource.gpu.amount", 1)
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")

from spark_bull import Worker

def addresses():
    return TaskContext.get().resources()["gpu"].addresses

def function(job):
    # Both slots wait until each of them has a job.
    seen = os.path.join(folder, job.data["seen"])
    open(os.path.join(seen, "-".join(addresses())), "w").close()
    while len(os.listdir(seen)) < 2:
        time.sleep(0.01)
    return [job.state, addresses()]

async def coroutine(job):
    return [job.state, addresses()]

options = {"url": url, "prefix": prefix, "protocol": "bullmq", "setup": addresses, "slots": 2, "progress": False}
processors = {"one": function, "several": function, "coroutine": coroutine}
for queue, concurrency, names in (("one", 1, ["one"]), ("several", 2, ["several", "coroutine"])):
    by_name = {name: processors[name] for name in names}
    with Worker(spark, queue, by_name, concurrency=concurrency, **options) as worker:
        while worker.status().finished < 40:
            time.sleep(0.2)
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.usefixtures("forked_python")
def test_functions_read_the_addresses_of_the_resources_of_their_slot(
    redis_url: str, prefix: str, tmp_path: Path
) -> None:
    """Each slot has one of two GPUs, in its function, in its threads, and in its event loop."""
    script = tmp_path / "gpus.sh"
    script.write_text("""#!/bin/sh\necho '{"name": "gpu", "addresses": ["7", "9"]}'\n""")
    script.chmod(0o755)
    program = tmp_path / "program.py"
    program.write_text(RESOURCES)
    for name in ("one", "several"):
        (tmp_path / name).mkdir()
    options = {"url": redis_url, "prefix": prefix, "protocol": "bullmq"}
    with BullQueue("one", **options) as one, BullQueue("several", **options) as several:
        one.add_many(NewJob({"seen": "one"}, name="one") for _ in range(40))
        several.add_many(NewJob({"seen": "several"}, name=name) for name in ["several"] * 20 + ["coroutine"] * 20)
        run = subprocess.run(
            [sys.executable, str(program), redis_url, prefix, str(tmp_path)],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
        )
        assert run.returncode == 0, run.stderr[-5_000:]
        for queue, names in ((one, {"one"}), (several, {"several", "coroutine"})):
            jobs = queue.page("completed", 0, 100)
            seen = {(job.name, *map(tuple, job.parsed("returnvalue"))) for job in jobs}
            assert len(jobs) == 40
            assert {name for name, *_ in seen} == names
            assert all(state == addresses for _, state, addresses in seen)
            assert {addresses for _, _, addresses in seen} == {("7",), ("9",)}


DYNAMIC = """
import os
import sys
import time
from pyspark.sql import SparkSession

url, prefix = sys.argv[1:]
spark = (
    SparkSession.builder.master("local-cluster[2,1,1024]")
    .config("spark.ui.enabled", "false")
    .config("spark.executor.extraJavaOptions", "-Xss4m " + os.environ["SPARK_SUBMIT_OPTS"])
    .config("spark.dynamicAllocation.enabled", "true")
    .config("spark.dynamicAllocation.shuffleTracking.enabled", "true")
    .config("spark.dynamicAllocation.minExecutors", "0")
    .config("spark.dynamicAllocation.maxExecutors", "1")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")

from spark_bull import Worker

options = {"url": url, "prefix": prefix, "protocol": "bullmq"}
with Worker(spark, "q", lambda job: None, slots=3, progress=False, **options) as worker:
    while (status := worker.status()).completed < 20 or status.tasks < 1 or status.busy:
        time.sleep(0.2)
    print(status)
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.usefixtures("forked_python")
def test_a_worker_says_how_many_slots_run_with_fewer_executors_than_slots(
    redis_url: str, prefix: str, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(DYNAMIC)
    with BullQueue("q", url=redis_url, prefix=prefix, protocol="bullmq") as queue:
        queue.add_many(NewJob({}) for _ in range(20))
    run = subprocess.run(
        [sys.executable, str(program), redis_url, prefix],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert run.returncode == 0, run.stderr[-5_000:]
    assert "20 completed, 0 failed" in run.stdout
    assert "0 of 1 slots busy, 2 more wait for a core: Spark runs 1 tasks at the same time" in run.stdout
