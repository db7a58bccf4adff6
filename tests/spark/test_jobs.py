"""The programs of the command line, in the session of the tests; one starts alone, and one under spark-submit.

test_local_cluster.py submits the scripts of jobs/.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from redis import Redis

from spark_bull import Guard
from spark_bull.core.errors import ConnectionLost
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.read_jobs import Change
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.manage.bulk import BulkChange
from spark_bull.ops.cli import main
from spark_bull.run.slot.status import WorkerStatus
from spark_bull.run.worker.local_worker import LocalWorker
from spark_bull.run.worker.program import run as run_worker
from tests.spark.conftest import OpenQueue
from tests.support.spark_submit import COMMAND, CONF_ARGUMENTS
from tests.support.wait import PATIENCE_S
from tests.support.work_bench import WorkBench, completed

ROOT = Path(__file__).parents[2]
Program = Callable[..., str]
MyJobs = Callable[[str], str]
CONDITION = "failed > 5 over 1m"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command without spark-submit, with Spark's own configuration."""
    command = [sys.executable, "-m", "spark_bull.ops.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=ROOT)


@pytest.fixture
def program(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Program]:
    """Runs a command here, in a new session of the same JVM, which it does not stop; returns what it prints."""
    monkeypatch.setattr(SparkSession, "_instantiatedSession", spark.newSession())
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    # Programs change the path of modules.
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run_here(*arguments: str) -> str:
        capsys.readouterr()
        code = main(arguments)
        printed = capsys.readouterr()
        assert code == 0, printed.err[-3000:]
        return printed.out

    return run_here


@pytest.fixture
def my_jobs(spark: SparkSession, program: Program, tmp_path: Path) -> MyJobs:
    """Writes a module and sends it to the executors, as --py-files does; returns its name."""

    def write(text: str) -> str:
        module = tmp_path / f"my_jobs_{uuid4().hex[:8]}.py"
        module.write_text(text)
        spark.sparkContext.addPyFile(str(module))
        return module.stem

    return write


def test_dispatch_fills_a_queue_and_report_counts_it(
    program: Program, open_queue: OpenQueue, client: Redis, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    table = tmp_path / "people.csv"
    table.write_text("name,team\n" + "".join(f"person-{n},{n % 3}\n" for n in range(500)))
    where = ["--url", redis_url, "--option", f"prefix={prefix}"]
    query = "SELECT struct(*) AS data, team AS name FROM input"
    reading = ["--input", str(table), "--format", "csv", "--read", "header=true", "--query", query]
    queue = open_queue("people")
    # Another program's write, which ends just after the dispatch.
    other = BulkChange(queue.handle, Change("", "remove")).run([])
    client.zadd(queue.handle.keys["finished_writes"], {other.id: 2**52})
    said = program("dispatch", *reading, "--queue", "people", *where)
    assert "500 jobs added to queue people (bullmq), 0 duplicates" in said
    assert queue.counts()["wait"] == 500
    assert queue.page("wait", 0, 0)[0].parsed("data") == {"name": "person-0", "team": "0"}
    assert "|people|wait |500 |" in program("report", "--queue", "people", *where)
    query = ["--query", "SELECT id, state FROM jobs WHERE id < 3 ORDER BY id"]
    said = program("report", "--queue", "people", *query, *where, "--json")
    assert [json.loads(line) for line in said.splitlines()] == [{"id": n, "state": "wait"} for n in ("1", "2")]


def test_replay_adds_jobs_of_a_table_once(
    spark: SparkSession, program: Program, open_queue: OpenQueue, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    rows = [
        ("7", "failed", "mail", '{"n": 7}', 3),
        ("8", "completed", "mail", "{}", 0),
        ("x-9", "failed", "mail", "{}", 0),
    ]
    table = spark.createDataFrame(rows, "id STRING, state STRING, name STRING, data STRING, priority LONG")
    table.selectExpr("*", """'{"attempts":5}' AS opts""").write.parquet(str(tmp_path / "results"))
    where = ["--input", str(tmp_path / "results"), "--where", "state = 'failed'", "--queue", "again"]
    for said in ("2 jobs added to queue again (bullmq), 0 duplicates", "0 jobs added to queue again (bullmq), 2 dup"):
        assert said in program("replay", *where, "--url", redis_url, "--option", f"prefix={prefix}")
    job, other = (open_queue("again").job(job_id) for job_id in ("replay-7", "x-9"))
    assert (job.data, job.name, job.priority, job.opts["attempts"]) == ({"n": 7}, "mail", 3, 5)
    assert other is not None


@pytest.mark.usefixtures("forked_python")
def test_the_command_dispatches_with_a_session_of_its_own(redis_url: str, prefix: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}\n{"a": 2}\n')
    where = f"--url {redis_url} --prefix {prefix} --json --master local[2] --conf spark.ui.enabled=false".split()
    dispatched = run("dispatch", "--input", str(tmp_path / "a.json"), "--format", "json", "--queue", "q", *where)
    assert dispatched.returncode == 0, dispatched.stderr[-3000:]
    done = json.loads(dispatched.stdout)
    assert (done["queue"], done["protocol"], done["added"], done["duplicates"]) == ("q", "bullmq", 2, 0)


@pytest.mark.rest
@pytest.mark.usefixtures("forked_python")
def test_the_command_runs_under_spark_submit(queue: BullQueue, redis_url: str, prefix: str) -> None:
    """The file that `--submit-file` prints is part of the wheel."""
    file = run("--submit-file").stdout.strip()
    queue.add({})
    command = [str(COMMAND), "--master", "local[2]", *CONF_ARGUMENTS, file, "report", "--queue", "q"]
    command += ["--url", redis_url, "--prefix", prefix]
    reported = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert reported.returncode == 0, reported.stderr[-3000:]
    assert "|q    |wait |1   |" in reported.stdout


def test_work_runs_any_function_of_several_queues_with_a_state_and_options_until_they_are_empty(
    program: Program, my_jobs: MyJobs, open_queue: OpenQueue, redis_url: str, prefix: str
) -> None:
    urgent, mail = (open_queue(name, "bullmq") for name in ("urgent", "mail"))
    # The jobs wait until the guard has looked.
    looked = urgent.handle.keys.guard(Guard("urgent", CONDITION).id)
    wait = f"    while not job.handle.connection.call('EXISTS', {looked!r}):\n        time.sleep(0.05)\n"
    send = f"def send(job):\n{wait}    return [job.queue, job.state, 2 * job.data['n']]\n"
    module = my_jobs(f"import time\ndef connect():\n    return 'connected'\n{send}")
    for queue in (urgent, mail):
        queue.add_many(NewJob({"n": n}) for n in range(5))
    functions = ["--processor", f"{module}:send", "--setup", f"{module}:connect", "--guard", CONDITION]
    where = ["--url", redis_url, "--until-idle", "1s", "--slots", "1"]
    given = [f"--option={one}" for one in ("concurrency=2", "worker_name=sparky", f"prefix={prefix}")]
    queues = ["--queue", "urgent", "--queue", "mail", "--weight", "urgent=3"]
    assert "10 completed, 0 failed" in program("work", *queues, *functions, *where, *given)
    for queue in (urgent, mail):
        done = queue.page("completed")
        assert sorted(job.returnvalue for job in done) == [[queue.name, "connected", 2 * n] for n in range(5)]
        assert {job.processed_by for job in done} == {"sparky"}


def test_work_until_idle_goes_on_while_its_status_shows_damage_or_cannot_be_read(
    queue: BullQueue, redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, reads = LocalWorker.status, list[WorkerStatus | None]()

    def read(worker: LocalWorker) -> WorkerStatus:
        found = status(worker)
        reads.append(found)
        if len(reads) <= 2:
            raise ConnectionLost("Redis is away")
        return replace(found, damaged={"q": "expected wait to be a list"}) if len(reads) <= 4 else found

    monkeypatch.setattr(LocalWorker, "status", read)
    queue.add({})
    worker = LocalWorker("q", lambda job: 1, url=redis_url, prefix=prefix, protocol="bullmq")
    assert run_worker(worker, until_idle_s=0.5).completed == 1
    assert len(reads) > 5


def test_collect_writes_finished_jobs_once(
    queue: BullQueue, program: Program, client: Redis, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    arguments = ["--queue", "q", "--output", str(lake), "--url", redis_url, "--option", f"prefix={prefix}", "--once"]
    bench = WorkBench(queue, client, twice=False)
    for round_of_ten in (1, 2):
        bench.add(10)
        bench.work(completed(bench.claim(10)))
        assert "10 finished jobs of q written to" in program("collect", *arguments)
        files = list(lake.glob("queue=q/day=20*/*.parquet"))
        ids = [row["id"] for file in files for row in pq.ParquetFile(file).read(["id"]).to_pylist()]
        assert sorted(ids, key=int) == [str(n) for n in range(1, 10 * round_of_ten + 1)]
