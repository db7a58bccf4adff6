"""Several executors: slots run on all of them, even more slots than cores, and losing one loses no job.

Nothing of the package is installed on the executors: --py-files sends the file that `make zip` builds. Speculation is
on. The scripts of a cluster run in one driver, also the scripts of jobs/, since each start takes several JVMs;
test_readme_commands.py submits two alone.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from socket import gethostname

import pyarrow.parquet as pq
import pytest
from redis import Redis

from spark_bull import BullQueue, EmbeddedRedis, NewJob
from spark_bull.core.keys import literal_glob
from tests.spark.script_runner import HOSTS
from tests.spark.submitted_driver import SubmittedDriver, submitted_driver
from tests.support.fork_server import VARIABLE
from tests.support.spark_submit import bare_environment
from tests.support.wait import wait_until
from tests.support.work_bench import Finisher

ROOT = Path(__file__).parents[2]
EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


#: What --py-files sends beside the package.
MY_JOBS = """
from pyspark.sql import DataFrame
from pyspark.sql.functions import expr


def double(job):
    return 2 * job.data["n"]


def double_all(jobs: DataFrame):
    return jobs.select("id", "token", expr("2 * data.n AS returnvalue"))
"""

rest = pytest.mark.rest


@pytest.fixture(scope="module")
def two_hosts(
    package_zip: Path, foreign_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SubmittedDriver]:
    """A driver whose cluster has two hosts with two cores each, as on a cluster where only the dependencies are."""
    if sys.platform != "linux":
        pytest.skip("reads /proc, and needs the host 127.0.0.2")
    settings = {
        "spark.speculation": "true",
        # A task gets a copy when it runs longer than the other one of two tasks did.
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1",
        "spark.decommission.enabled": "true",
        "spark.executor.decommission.forceKillTimeout": "1s",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    }
    folder = tmp_path_factory.mktemp("two_hosts")
    (folder / "my_jobs.py").write_text(MY_JOBS)
    files = package_zip, folder / "my_jobs.py"
    with submitted_driver("local", folder, bare_environment(foreign_python), files, settings) as driver:
        driver.run(script_of(folder, "from script_runner import session\nsession()\n"))
        yield driver


UNREACHED = """
import logging
import socket
import sys
from spark_bull import Worker, WorkerFailed
from spark_bull.spark.work import spark_engine
from script_runner import session

url, name = sys.argv[1:]
spark_engine.PATIENCE_S = 0
resolved = socket.getaddrinfo
# Executors do not know the name.
socket.getaddrinfo = lambda host, *more, **others: resolved("127.0.0.1" if host == name else host, *more, **others)
try:
    with Worker(session(), "q", lambda job: None, slots=3, url=url, protocol="bullmq", progress=False) as worker:
        try:
            worker.await_termination()
        except WorkerFailed as error:
            print(error)
        print(worker.status())
finally:
    socket.getaddrinfo = resolved
"""


@rest
def test_a_worker_whose_executors_do_not_reach_redis_says_so_and_fails(
    two_hosts: SubmittedDriver, own_redis: Callable[..., EmbeddedRedis], tmp_path: Path
) -> None:
    name = "only-the-driver-knows.invalid"
    url = own_redis().url.replace("127.0.0.1", name)
    before = len(two_hosts.log)
    said = two_hosts.run(script_of(tmp_path, UNREACHED), url, name)
    error = rf"expected Redis at {url}, but its host is unknown: .*\(on {re.escape(gethostname())}\)"
    log = two_hosts.log[before:]
    # The slots on the other host may not have started yet.
    host = f"({'|'.join(HOSTS)})"
    assert re.search(rf"its slots on host {host} do not reach Redis: {error}", log)
    assert re.search(rf"no slot of worker .* reaches Redis, although the driver does: {host}: {error}", said)
    assert "failed: 0 completed" in said


WRITE = """
import sys
import time
from pathlib import Path
from pyspark import TaskContext
from spark_bull import register
from script_runner import session

url, prefix, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
spark = session()
register(spark)

def slow(batches):
    context = TaskContext.get()
    attempt = context.partitionId(), context.attemptNumber()
    (folder / f"{attempt[0]}.{attempt[1]}").touch()
    while attempt == (1, 1) and not (folder / "go").exists():
        time.sleep(0.01)
    yield from batches
    while attempt == (1, 0):
        # Until Spark kills it, because its copy has succeeded.
        time.sleep(0.01)

# A megabyte per partition: more than what the buffers between the processes hold.
rows = spark.range(0, 2_000, 1, 2).selectExpr("struct(id AS n, repeat('x', 1000) AS pad) AS data")
rows = rows.mapInArrow(slow, rows.schema)
options = {"url": url, "prefix": prefix, "queue": "q", "protocol": "bullmq", "chunkSize": "50"}
rows.write.format("bull").options(**options).mode("append").save()
"""


@rest
def test_a_write_adds_each_row_once_although_spark_runs_a_copy_of_a_slow_task(
    queue: BullQueue, two_hosts: SubmittedDriver, redis_url: str, prefix: str, client: Redis, tmp_path: Path
) -> None:
    """The task stages rows and then hangs. Its copy begins when Spark has started it, and the task has staged rows."""
    seen = tmp_path / "seen"
    seen.mkdir()
    staged_by_task = f"{literal_glob(prefix)}:q:spark:stage:*.1.*"
    two_hosts.begin(script_of(tmp_path, WRITE), redis_url, prefix, str(seen))
    wait_until(lambda: (seen / "1.1").exists() or two_hosts.has_ended, "the copy of the task")
    (stage,) = wait_until(lambda: client.keys(staged_by_task), "the task to stage rows")
    (seen / "go").touch()
    two_hosts.finish()
    assert queue.counts()["wait"] == 2_000
    assert {job.parsed()["n"] for job in queue.page("wait", 0, 2_000)} == set(range(2_000))
    # What the task has staged is not committed, and expires.
    assert client.keys(staged_by_task) == [stage]
    assert client.pttl(stage) > 0


PROCESS = """
import os
import sys
import time
from spark_bull import Worker
from script_runner import session

url, prefix, folder, lock_ms, jobs = sys.argv[1:]

def processor(job):
    import spark_bull

    # The parent of this process is the daemon of PySpark, and the parent of that is the executor.
    daemon = os.getppid()
    with open(f"/proc/{daemon}/stat") as stat:
        executor = stat.read().rpartition(")")[2].split()[1]
    open(os.path.join(folder, f"{executor}.{daemon}"), "w").close()
    # Until all executors have been at work.
    while len({name.partition(".")[0] for name in os.listdir(folder)}) < job.data["executors"]:
        time.sleep(0.01)
    return spark_bull.__file__

spark = session()
# The worker compares its slots with the cores that are there; the driver is one of three.
while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 3:
    time.sleep(0.1)
options = {"url": url, "prefix": prefix, "protocol": "bullmq", "lock_ms": int(lock_ms), "check_ms": 1000}
with Worker(spark, "q", processor, slots=16, chunk_size=10, progress=False, **options) as worker:
    while worker.status().completed < int(jobs):
        time.sleep(0.2)
    print(worker.status())
"""


@pytest.mark.parametrize("is_decommissioned", [False, pytest.param(True, marks=rest)], ids=["killed", "decommissioned"])
def test_losing_an_executor_loses_no_job(
    queue: BullQueue, is_decommissioned: bool, two_hosts: SubmittedDriver, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    """The jobs of one that is killed, as a machine that breaks, are rescued when their locks expire.

    One that is decommissioned has to return its jobs, as their locks do not expire during the test. Half of the jobs
    wait for a third executor, which Spark starts in place of the lost one, so that slots work when it is lost.
    """
    jobs, lock_ms = 600, 24 * 3_600_000 if is_decommissioned else 10_000
    seen = tmp_path / "seen"
    seen.mkdir()
    before = len(two_hosts.log)
    queue.add_many(NewJob({"executors": 2 if n < jobs // 2 else 3}) for n in range(jobs))
    two_hosts.begin(script_of(tmp_path, PROCESS), redis_url, prefix, str(seen), str(lock_ms), str(jobs))
    wait_until(lambda: queue.counts()["completed"] > 100 or two_hosts.has_ended, "jobs to complete")
    executors = dict(map(int, path.name.split(".")) for path in seen.iterdir())
    assert len(executors) == 2
    assert all(EXECUTOR in Path(f"/proc/{executor}/cmdline").read_bytes() for executor in executors)
    executor, daemon = executors.popitem()
    if is_decommissioned:
        os.kill(executor, signal.SIGPWR)
    else:
        kill_with_python(executor, daemon)
    wait_until(lambda: not Path(f"/proc/{executor}").exists(), "the end of the executor")
    said = two_hosts.finish()
    assert f"{jobs} completed, 0 failed" in said
    assert queue.counts()["completed"] == jobs
    completed = queue.page("completed", 0, jobs)
    assert len({job.id for job in completed}) == jobs
    # As --py-files sends it: nothing of the package is installed.
    assert {Path(job.parsed("returnvalue")).parents[1].name for job in completed} == {"spark_bull.zip"}
    if is_decommissioned:
        wait_until(lambda: "decommissioned" in two_hosts.log[before:], "the log of the driver")
    log = two_hosts.log[before:]
    assert ("decommissioned" in log) == is_decommissioned
    assert "its 16 slots take all cores, as Spark runs 4 tasks at the same time" in log
    assert "expected spark.speculation=false" in log


def kill_with_python(executor: int, daemon: int) -> None:
    """Kills an executor and the Python processes that it has started, none of which can react."""
    os.kill(executor, signal.SIGSTOP)
    os.killpg(daemon, signal.SIGKILL)
    os.kill(executor, signal.SIGKILL)


# The scripts of jobs/


@pytest.fixture
def submit(two_hosts: SubmittedDriver, redis_url: str, prefix: str) -> Callable[..., str]:
    """Runs a script of jobs/ and returns its output."""

    def submit(script: str, *arguments: str) -> str:
        place = ["--prefix", prefix] if script == "promote" else ["--option", f"prefix={prefix}"]
        return two_hosts.run(ROOT / "jobs" / f"{script}.py", *arguments, "--url", redis_url, *place)

    return submit


@rest
def test_each_script_runs_from_a_zip(
    submit: Callable[..., str], two_hosts: SubmittedDriver, redis_url: str, prefix: str, client: Redis
) -> None:
    folder = two_hosts.folder
    options = {"url": redis_url, "prefix": prefix, "protocol": "bullmq"}
    with BullQueue("q", **options) as queue, BullQueue("finished", **options) as finished:
        (folder / "in.json").write_text("".join(f'{{"n": {n}}}\n' for n in range(20)))
        said = submit("dispatch", "--input", "in.json", "--format", "json", "--queue", "q")
        assert "20 jobs added to queue q" in said
        assert "|q    |wait |20" in submit("report", "--queue", "q")
        work = ["work", "--queue", "q", "--until-idle", "5s", "--processor"]
        assert "20 completed, 0 failed" in submit(*work, "my_jobs:double")
        queue.add_many(NewJob({"n": n}) for n in range(20))
        of_batches = ["my_jobs:double_all", "--payload-schema", "n INT"]
        assert "20 completed, 0 failed" in submit(*work, *of_batches)
        assert [job.parsed("returnvalue") == 2 * job.data["n"] for job in queue.page("completed")] == [True] * 40
        queue.add({"n": 1}, delay=1)
        due = queue.handle.connection.now_ms() + 1
        wait_until(lambda: queue.handle.connection.now_ms() > due, "the job to be due")
        submit("promote", "q", "--once")
        assert queue.counts()["wait"] == 1
        Finisher(finished, client, twice=False).finish(10)
        said = submit("collect", "--queue", "finished", "--output", "lake", "--once")
        assert "10 finished jobs of finished written to" in said
    files = (folder / "lake").glob("queue=finished/day=20*/*.parquet")
    ids = [row["id"] for file in files for row in pq.ParquetFile(file).read(["id"]).to_pylist()]
    assert sorted(ids, key=int) == [str(n) for n in range(1, 11)]
    said = submit("replay", "--input", "lake", "--where", "id < 4", "--queue", "again")
    assert "3 jobs added to queue again" in said
    tested = ["collect", "dispatch", "promote", "replay", "report", "work"]
    assert sorted(path.stem for path in (ROOT / "jobs").glob("*.py")) == tested, "a script is not tested here"


@pytest.fixture(scope="module")
def allocated(python_forks: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SubmittedDriver]:
    """A driver that gets one executor with two cores and two GPUs when tasks wait, although there are two machines."""
    folder = tmp_path_factory.mktemp("allocated")
    script = folder / "gpus.sh"
    script.write_text("""#!/bin/sh\necho '{"name": "gpu", "addresses": ["7", "9"]}'\n""")
    script.chmod(0o755)
    settings = {
        "spark.resources.discoveryPlugin": "org.apache.spark.resource.ResourceDiscoveryScriptPlugin",
        "spark.worker.resource.gpu.amount": "2",
        "spark.worker.resource.gpu.discoveryScript": str(script),
        "spark.executor.resource.gpu.amount": "2",
        "spark.task.resource.gpu.amount": "1",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.maxExecutors": "1",
        "spark.dynamicAllocation.executorIdleTimeout": "2s",
    }
    environment = {**os.environ, VARIABLE: str(python_forks)}
    with submitted_driver("local-cluster[2,2,1024]", folder, environment, settings=settings) as driver:
        yield driver


RESOURCES = """
import os
import sys
import time
from pyspark import TaskContext
from pyspark.sql import SparkSession
from spark_bull import Worker

url, prefix, folder = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()

def addresses():
    return TaskContext.get().resources()["gpu"].addresses

def function(job):
    # Both slots wait until each of them has a job.
    open(os.path.join(folder, "-".join(addresses())), "w").close()
    while len(os.listdir(folder)) < 2:
        time.sleep(0.01)
    return [job.state, addresses()]

async def coroutine(job):
    return [job.state, addresses()]

options = {"url": url, "prefix": prefix, "protocol": "bullmq", "setup": addresses, "slots": 2, "progress": False}
with Worker(spark, "q", {"function": function, "coroutine": coroutine}, concurrency=2, **options) as worker:
    while worker.status().finished < 40:
        time.sleep(0.2)
"""


@rest
def test_functions_read_the_addresses_of_the_resources_of_their_slot(
    queue: BullQueue, allocated: SubmittedDriver, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    """Each slot has one of two GPUs, in its main thread, which sets it up, in its threads, and in its event loop."""
    seen_by = tmp_path / "seen"
    seen_by.mkdir()
    queue.add_many(NewJob({}, name=name) for name in ["function"] * 20 + ["coroutine"] * 20)
    allocated.run(script_of(tmp_path, RESOURCES), redis_url, prefix, str(seen_by))
    jobs = queue.page("completed", 0, 100)
    seen = {(job.name, *map(tuple, job.parsed("returnvalue"))) for job in jobs}
    assert len(jobs) == 40
    assert {name for name, *_ in seen} == {"function", "coroutine"}
    assert all(state == addresses for _, state, addresses in seen)
    assert {addresses for _, _, addresses in seen} == {("7",), ("9",)}


ELASTIC = """
import os
import sys
import time
from pyspark.sql import SparkSession
from spark_bull import Worker
from spark_bull.spark.work import elastic_engine

elastic_engine.LOOK_S = 0.2
url, prefix = sys.argv[1:]
options = {"url": url, "prefix": prefix, "protocol": "bullmq", "progress": False}

def processor(job):
    # Until two slots have been at work: the load needs both.
    call = job.handle.connection.call
    call("SADD", f"{prefix}:seen", os.getpid())
    while call("SCARD", f"{prefix}:seen") < 2:
        time.sleep(0.01)

options |= {"slots": (0, 2), "target_wait_s": 0.5, "chunk_size": 1}
with Worker(SparkSession.builder.getOrCreate(), "q", processor, **options) as worker:
    for jobs in (60, 61):
        while (status := worker.status()).completed < jobs or status.slots or status.waiting_slots or status.tasks:
            most = max(status.slots, most) if jobs == 60 and status.completed else 0
            time.sleep(0.1)
        print(status.state, "completed", status.completed, "in at most", most, "slots, now", status.slots)
        worker.handle.connection.call("PUBLISH", f"{prefix}:idle", jobs)
"""


@rest
def test_an_idle_worker_with_a_range_of_slots_gives_its_executors_back(
    queue: BullQueue, allocated: SubmittedDriver, redis_url: str, prefix: str, client: Redis, tmp_path: Path
) -> None:
    """Its slots start when jobs wait, and there are executors for them; then both end, and start again for a job."""
    with client.pubsub() as idle:
        idle.subscribe(f"{prefix}:idle")
        queue.add_many(NewJob({}) for _ in range(60))
        allocated.begin(script_of(tmp_path, ELASTIC), redis_url, prefix)
        wait_until(
            lambda: allocated.has_ended or (idle.get_message() or {}).get("type") == "message", "the executors to end"
        )
        queue.add({})
        said = allocated.finish()
        assert "running completed 60 in at most 2 slots, now 0" in said
        assert "running completed 61" in said
        assert queue.counts()["completed"] == 61


def script_of(folder: Path, text: str) -> Path:
    script = folder / "script.py"
    script.write_text(text)
    return script
