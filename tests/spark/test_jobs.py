"""The programs of the command line, in the session of the tests; one starts alone, and one under spark-submit.

test_zip.py submits the scripts of jobs/.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from inspect import unwrap
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from redis import Redis

from spark_bull import EmbeddedRedis, Guard, Worker
from spark_bull.cli import main
from spark_bull.model.jobs import NewJob
from spark_bull.process.program import Functions
from spark_bull.process.program import run as run_worker
from spark_bull.queue.bull_queue import BullQueue
from spark_bull.spark.programs.work import spark_worker
from spark_bull.worker.slot.status import WorkerStatus
from tests.support.damaged_keys import DamagedKey
from tests.support.jvm import CONF_ARGUMENTS
from tests.support.spark_submit import COMMAND
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.work_bench import WorkBench, completed

ROOT = Path(__file__).parents[2]
Program = Callable[..., str]
MyJobs = Callable[[str], str]


def submit(*arguments: str) -> subprocess.CompletedProcess[str]:
    begin = [str(COMMAND), "--master", "local[2]", *CONF_ARGUMENTS]
    return subprocess.run([*begin, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command without spark-submit, with Spark's own configuration."""
    command = [sys.executable, "-m", "spark_bull.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=ROOT)


@pytest.fixture
def program(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Program]:
    """Runs a command here, in a new session of the same JVM, which it does not stop; returns what it prints."""
    monkeypatch.setattr(SparkSession, "_instantiatedSession", spark.newSession())
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    # Programs change the path of modules and the handler of SIGTERM.
    monkeypatch.setattr(sys, "path", [*sys.path])
    handler = signal.getsignal(signal.SIGTERM)

    def run_here(*arguments: str) -> str:
        capsys.readouterr()
        code = main(arguments)
        printed = capsys.readouterr()
        assert code == 0, printed.err[-3000:]
        return printed.out

    yield run_here
    signal.signal(signal.SIGTERM, handler)


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
    program: Program, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    table = tmp_path / "people.csv"
    table.write_text("name,team\n" + "".join(f"person-{n},{n % 3}\n" for n in range(500)))
    where = ["--url", redis_url, "--option", f"prefix={prefix}"]
    query = "SELECT struct(*) AS data, team AS name FROM input"
    reading = ["--input", str(table), "--format", "csv", "--read", "header=true", "--query", query]
    said = program("dispatch", *reading, "--queue", "people", *where)
    assert "500 jobs added to queue people (bullmq), 0 duplicates" in said
    with BullQueue("people", url=redis_url, prefix=prefix) as queue:
        assert queue.counts()["wait"] == 500
        assert queue.page("wait", 0, 0)[0].parsed("data") == {"name": "person-0", "team": "0"}
    assert "|people|wait |500 |" in program("report", "--queue", "people", *where)


def test_replay_adds_jobs_of_a_table_once(
    spark: SparkSession, program: Program, redis_url: str, prefix: str, tmp_path: Path
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
    with BullQueue("again", url=redis_url, prefix=prefix) as queue:
        job, other = queue.job("replay-7"), queue.job("x-9")
        assert job is not None
        assert (job.data, job.name, job.priority, job.opts["attempts"]) == ({"n": 7}, "mail", 3, 5)
        assert other is not None


@pytest.mark.usefixtures("forked_python")
def test_the_command_dispatches_with_a_session_of_its_own(redis_url: str, prefix: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}\n{"a": 2}\n')
    where = [
        "--url",
        redis_url,
        "--prefix",
        prefix,
        "--json",
        "--master",
        "local[2]",
        "--conf",
        "spark.ui.enabled=false",
    ]
    dispatched = run("dispatch", "--input", str(tmp_path / "a.json"), "--format", "json", "--queue", "q", *where)
    assert dispatched.returncode == 0, dispatched.stderr[-3000:]
    done = json.loads(dispatched.stdout)
    assert (done["queue"], done["protocol"], done["added"], done["duplicates"]) == ("q", "bullmq", 2, 0)


def test_report_prints_json(program: Program, redis_url: str, prefix: str) -> None:
    with BullQueue("q", url=redis_url, prefix=prefix, protocol="bullmq") as queue:
        queue.add_many([NewJob({"a": 1}), NewJob({"a": 2})])
    query = ["--query", "SELECT id, state FROM jobs ORDER BY id"]
    said = program("report", "--queue", "q", *query, "--url", redis_url, "--prefix", prefix, "--json")
    assert [json.loads(line) for line in said.splitlines()] == [
        {"id": "1", "state": "wait"},
        {"id": "2", "state": "wait"},
    ]


@pytest.mark.usefixtures("forked_python")
def test_the_command_runs_under_spark_submit(redis_url: str, prefix: str) -> None:
    """The file that `--submit-file` prints is part of the wheel."""
    file = run("--submit-file").stdout.strip()
    with BullQueue("people", url=redis_url, prefix=prefix) as queue:
        queue.add({})
    reported = submit(file, "report", "--queue", "people", "--url", redis_url, "--prefix", prefix)
    assert reported.returncode == 0, reported.stderr[-3000:]
    assert "|people|wait |1   |" in reported.stdout


def test_work_runs_any_function_with_options_until_the_queue_is_empty(
    program: Program, my_jobs: MyJobs, redis_url: str, prefix: str
) -> None:
    module = my_jobs("def double(job):\n    return 2 * job.data['n']\n")
    with BullQueue("q", url=redis_url, prefix=prefix, protocol="bullmq") as queue:
        queue.add_many(NewJob({"n": n}) for n in range(50))
        arguments = ["--processor", f"{module}:double", "--url", redis_url, "--until-idle", "1", "--slots", "1"]
        options = [
            "--option",
            "remove_on_complete=false",
            "--option",
            "lock_ms=60000",
            "--option",
            "worker_name=sparky",
        ]
        said = program("work", "--queue", "q", *arguments, *options, "--option", f"prefix={prefix}")
        assert "50 completed, 0 failed" in said
        done = queue.page("completed")
        assert {job.parsed("returnvalue") for job in done} == {2 * n for n in range(50)}
        assert {job.processed_by for job in done} == {"sparky"}


def test_work_goes_on_after_an_outage_of_redis(
    spark: SparkSession, my_jobs: MyJobs, own_redis: Callable[..., EmbeddedRedis], tmp_path: Path
) -> None:
    """It reads the status of its worker to see whether it is idle."""
    server, go = own_redis({"appendonly": "yes", "appendfsync": "always"}), tmp_path / "go"
    hold = "def hold(job):\n    job.update_progress(1)\n    while not path.exists():\n        time.sleep(0.1)\n"
    module = my_jobs(f"import pathlib, time\npath = pathlib.Path({str(go)!r})\n{hold}")
    options = {"url": server.url, "retry_ms": 200, "lock_ms": 3_600_000, "slots": 1, "progress": False}
    guard = Guard("q", "failed > 5 over 1m")
    done: list[WorkerStatus] = []

    def run_work() -> None:
        functions = Functions(f"{module}:hold")
        worker = spark_worker(spark, ["q"], functions, options, weights={}, env={}, guards=[guard])
        done.append(run_worker(worker, until_idle_s=1))

    program = Thread(target=run_work, daemon=True)

    def reads_status() -> bool:
        frame = sys._current_frames().get(program.ident or 0)
        while frame is not None and frame.f_code is not unwrap(Worker.status).__code__:
            frame = frame.f_back
        return frame is not None

    with BullQueue("q", url=server.url, protocol="bullmq") as queue:
        queue.add({})
        program.start()
        wait_until(lambda: any(job.progress for job in queue.page("active")), "the job to run")
        keys = queue.handle.keys
        wait_until(lambda: queue.handle.connection.call("EXISTS", keys.guard(guard.id)), "its guard to look")
    server.kill()
    # The second call begins when Redis is away.
    for _ in range(2):
        wait_until(lambda: reads_status() or not program.is_alive(), "a call of status()")
        wait_until(lambda: not reads_status(), "its end")
    assert program.is_alive()
    server.restart()
    go.touch()
    program.join(PATIENCE_S)
    assert [status.completed for status in done] == [1]


def test_a_stream_until_idle_waits_for_the_repair_of_a_damaged_queue(
    spark: SparkSession, client: Redis, redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, ended, status = list[Mapping[str, str]](), list[WorkerStatus](), Worker.status

    def status_noted(worker: Worker) -> WorkerStatus:
        found = status(worker)
        looks.append(found.damaged)
        return found

    def processor(jobs: DataFrame) -> DataFrame:
        return jobs.withColumn("returnvalue", f.lit(1))

    monkeypatch.setattr(Worker, "status", status_noted)
    options: dict[str, Any] = {"url": redis_url, "prefix": prefix, "protocol": "bullmq"}
    with BullQueue("q", **options) as queue:
        queue.add({})
        worker = Worker(spark, "q", processor, engine="stream", progress=False, **options)
        # It looks every second.
        program = Thread(target=lambda: ended.append(run_worker(worker, until_idle_s=0.5)), daemon=True)
        with DamagedKey(client, queue.handle, "wait", "string").damaged():
            program.start()
            wait_until(lambda: len(looks) > 3 or not program.is_alive(), "the worker to look whether it is idle")
            assert program.is_alive()
            assert [*looks[-1]] == ["q"]
        program.join(PATIENCE_S)
    assert [one.completed for one in ended] == [1]


def test_work_processes_several_queues_with_a_state(
    program: Program, my_jobs: MyJobs, redis_url: str, prefix: str
) -> None:
    module = my_jobs("def connect():\n    return 'connected'\ndef send(job):\n    return [job.queue, job.state]\n")
    options = {"url": redis_url, "prefix": prefix, "protocol": "bullmq"}
    with BullQueue("urgent", **options) as urgent, BullQueue("mail", **options) as mail:
        for queue in (urgent, mail):
            queue.add_many(NewJob({"n": n}) for n in range(5))
        functions = ["--processor", f"{module}:send", "--setup", f"{module}:connect"]
        where = ["--url", redis_url, "--prefix", prefix, "--until-idle", "1", "--slots", "1"]
        queues = ["--queue", "urgent", "--queue", "mail", "--weight", "urgent=3"]
        said = program("work", *queues, *functions, *where, "--option", "concurrency=2")
        assert "10 completed, 0 failed" in said
        for queue in (urgent, mail):
            values = [job.parsed("returnvalue") for job in queue.page("completed")]
            assert values == [[queue.name, "connected"]] * 5


def test_collect_writes_finished_jobs_once(
    program: Program, client: Redis, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    arguments = ["--queue", "q", "--output", str(lake), "--url", redis_url, "--option", f"prefix={prefix}", "--once"]
    with BullQueue("q", url=redis_url, prefix=prefix, protocol="bullmq") as queue:
        bench = WorkBench(queue, client, twice=False)
        for round_of_ten in (1, 2):
            bench.add(10)
            bench.work(completed(bench.claim(10)))
            assert "10 finished jobs of q written to" in program("collect", *arguments)
            files = list(lake.glob("queue=q/day=20*/*.parquet"))
            ids = [row["id"] for file in files for row in pq.ParquetFile(file).read(["id"]).to_pylist()]
            assert sorted(ids, key=int) == [str(n) for n in range(1, 10 * round_of_ten + 1)]
