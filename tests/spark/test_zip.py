"""All scripts of jobs/ on two executors with one core each, with a Python that has only the dependencies.

The package is sent with --py-files, as the file that `make zip` builds. The scripts run in one driver, since each start
takes three JVMs; test_readme_commands.py submits two of them by themselves. Speculation is on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from redis import Redis

from spark_bull.model.jobs import NewJob
from spark_bull.queue.bull_queue import BullQueue
from tests.support.bare_python import bare_environment
from tests.support.finisher import Finisher
from tests.support.spark_submit import SparkSubmit, SubmittedDriver
from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]
CLUSTER = "local-cluster[2,1,1024]"

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the scripts run."""
    folder = tmp_path_factory.mktemp("submitted")
    (folder / "my_jobs.py").write_text(MY_JOBS)
    return folder


@pytest.fixture(scope="module")
def submitted(package_zip: Path, foreign_python: Path, folder: Path) -> SparkSubmit:
    files = package_zip, folder / "my_jobs.py"
    return SparkSubmit(CLUSTER, folder, bare_environment(foreign_python), files, {"spark.speculation": "true"})


@pytest.fixture(scope="module")
def driver(submitted: SparkSubmit) -> Iterator[SubmittedDriver]:
    """A driver that runs scripts one after the other."""
    with submitted.driver() as driver:
        yield driver


@pytest.fixture
def submit(driver: SubmittedDriver, redis_url: str, prefix: str) -> Submit:
    """Runs a script of jobs/ in the driver and returns its output."""

    def submit(script: str, *arguments: str) -> str:
        printed = driver.run(ROOT / "jobs" / f"{script}.py", *arguments, *addresses(script, redis_url, prefix))
        assert "Lost executor" not in driver.submitted.log
        return printed

    return submit


def addresses(script: str, url: str, prefix: str) -> list[str]:
    return ["--url", url, *(["--prefix", prefix] if script == "promote" else ["--option", f"prefix={prefix}"])]


@pytest.fixture
def queue(redis_url: str, prefix: str) -> BullQueue:
    return BullQueue("q", url=redis_url, prefix=prefix, protocol="bullmq")


def test_every_script_is_tested_here() -> None:
    text = Path(__file__).read_text()
    scripts = {path.stem for path in (ROOT / "jobs").glob("*.py")}
    assert [script for script in scripts if f'submit("{script}"' not in text] == []


def test_dispatch_runs_from_a_zip(submit: Submit, queue: BullQueue, folder: Path) -> None:
    (folder / "in.json").write_text("".join(f'{{"n": {n}}}\n' for n in range(20)))
    assert "20 jobs added to queue q" in submit("dispatch", "--input", "in.json", "--format", "json", "--queue", "q")
    assert queue.counts()["wait"] == 20


def test_report_runs_from_a_zip(submit: Submit, queue: BullQueue) -> None:
    queue.add_many(NewJob({"n": n}) for n in range(20))
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


def test_collect_and_replay_run_from_a_zip(submit: Submit, queue: BullQueue, client: Redis, folder: Path) -> None:
    Finisher(queue, client, twice=False).finish(10)
    said = submit("collect", "--queue", "q", "--output", "lake", "--once")
    assert "10 finished jobs of q written to" in said
    files = (folder / "lake").glob("queue=q/day=20*/*.parquet")
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
