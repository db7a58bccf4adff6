"""All scripts of jobs/ on a separate executor process, with a Python that has only the dependencies.

The package is sent with --py-files, as the file that `make zip` builds.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from redis import Redis

from spark_bull.model import NewJob
from spark_bull.queue.bull_queue import BullQueue
from tests.support.bare_python import bare_environment
from tests.support.finisher import Finisher
from tests.support.jvm import JVM_OPTIONS
from tests.support.wait import PATIENCE_S, wait_until

ROOT = Path(__file__).parents[2]
CLUSTER = "local-cluster[1,2,1024]"
#: The demo starts its own Spark and Redis and is not submitted.
NOT_SUBMITTED = {"demo"}

MY_JOBS = """
from pyspark.sql import DataFrame
from pyspark.sql.functions import expr


def double(job):
    return 2 * job.data["n"]


def double_all(jobs: DataFrame) -> DataFrame:
    return jobs.select("id", "token", expr("2 * data.n AS returnvalue"))
"""

Submit = Callable[..., str]

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def submit(package_zip: Path, foreign_python: Path, redis_url: str, prefix: str, tmp_path: Path) -> Submit:
    """Runs a script of jobs/ and returns its output."""
    modules = tmp_path / "my_jobs.py"
    modules.write_text(MY_JOBS)
    environment = bare_environment(foreign_python)

    def submit(script: str, *arguments: str) -> str:
        begin = [f"{environment['SPARK_HOME']}/bin/spark-submit", "--master", CLUSTER]
        begin += ["--conf", f"spark.executor.extraJavaOptions={JVM_OPTIONS}"]
        sent = ["--py-files", f"{package_zip},{modules}", str(ROOT / "jobs" / f"{script}.py")]
        where = ["--url", redis_url]
        where += ["--prefix", prefix] if script == "promote" else ["--option", f"prefix={prefix}"]
        ran = subprocess.run(
            [*begin, *sent, *arguments, *where],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
        assert "Lost executor" not in ran.stderr
        return ran.stdout

    return submit


@pytest.fixture
def queue(redis_url: str, prefix: str) -> BullQueue:
    return BullQueue("q", url=redis_url, prefix=prefix, protocol="bullmq")


def test_every_script_is_tested_here() -> None:
    text = Path(__file__).read_text()
    scripts = {path.stem for path in (ROOT / "jobs").glob("*.py")} - NOT_SUBMITTED
    assert [script for script in scripts if f'submit("{script}"' not in text] == []


def test_dispatch_and_report_run_from_a_zip(submit: Submit, queue: BullQueue, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text("".join(f'{{"n": {n}}}\n' for n in range(20)))
    assert "20 jobs added to queue q" in submit("dispatch", "--input", "in.json", "--format", "json", "--queue", "q")
    assert queue.counts()["wait"] == 20
    assert "|q    |wait |20" in submit("report", "--queue", "q")


@pytest.mark.parametrize(
    "arguments",
    [["my_jobs:double"], ["my_jobs:double_all", "--engine", "stream", "--payload-schema", "n INT"]],
    ids=["loop", "stream"],
)
def test_work_runs_from_a_zip(submit: Submit, queue: BullQueue, arguments: list[str]) -> None:
    queue.add_many(NewJob({"n": n}) for n in range(40))
    assert "40 completed, 0 failed" in submit("work", "--queue", "q", "--until-idle", "5", "--processor", *arguments)
    assert {job.parsed("returnvalue") for job in queue.page("completed")} == {2 * n for n in range(40)}


def test_collect_and_replay_run_from_a_zip(submit: Submit, queue: BullQueue, client: Redis, tmp_path: Path) -> None:
    Finisher(queue, client, twice=False).finish(10)
    said = submit("collect", "--queue", "q", "--output", "lake", "--once")
    assert "10 finished jobs of q written to" in said
    files = (tmp_path / "lake").glob("queue=q/day=20*/*.parquet")
    ids = [row["id"] for file in files for row in pq.ParquetFile(file).read(["id"]).to_pylist()]
    assert sorted(ids, key=int) == [str(n) for n in range(1, 11)]
    said = submit("replay", "--input", "lake", "--where", "id < 4", "--queue", "again")
    assert "3 jobs added to queue again" in said


def test_promote_runs_from_a_zip(submit: Submit, queue: BullQueue) -> None:
    queue.add({"n": 1}, delay=1)
    due = queue.handle.connection.now_ms() + 1
    wait_until(lambda: queue.handle.connection.now_ms() > due, "the job to be due")
    submit("promote", "q", "--once")
    assert queue.counts()["wait"] == 1
