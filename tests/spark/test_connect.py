"""Every verb in sessions of a Spark Connect server, which have no SparkContext.

The functions that begin with `_` run in the process of the client. What they define is sent to the server by value.
"""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import spark_bull
from spark_bull import BullQueue, NewJob, Worker, call, write_results
from spark_bull.spark.platform.requirements import start_query
from spark_bull.spark.programs.commands import WriteProgress
from tests.conftest import need
from tests.support.drivers import processing_query
from tests.support.fork_server import VARIABLE
from tests.support.forked_programs import CONTEXT
from tests.support.spark_submit import DRIVER_OPTIONS
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.worker import OurWorker

Options = dict[str, Any]

pytestmark = pytest.mark.timeout(1800)
rest = pytest.mark.rest

_STARTED: Final = re.compile(r"Spark Connect server started at: \S+:(\d+)")
_CLASS: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def connect_server(log: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Runs a server with three cores and a free port; yields its address. `log`: the file for what it prints."""
    settings = {
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }
    command = [f"{environment['SPARK_HOME']}/bin/spark-submit", "--master", "local[3]", "--class", _CLASS]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    with (
        log.open("w") as output,
        subprocess.Popen(
            [*command, "spark-internal"],
            env={**os.environ, **environment, "SPARK_SUBMIT_OPTS": DRIVER_OPTIONS},
            cwd=log.parent,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as server,
    ):
        try:
            wait_until(lambda: server.poll() is not None or _STARTED.search(log.read_text()), "the server to start")
            started = _STARTED.search(log.read_text())
            assert started is not None, log.read_text()[-4000:]
            yield f"sc://127.0.0.1:{started[1]}"
        finally:
            server.terminate()


class ConnectClient:
    """Runs functions of a session and further arguments in a process of their own: `client(function, argument)`."""

    def __init__(self, address: str) -> None:
        self._pool = ProcessPoolExecutor(1, CONTEXT, initializer=_connect, initargs=(address,))

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._pool.submit(_call, function, arguments).result(PATIENCE_S)

    def __enter__(self) -> ConnectClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()


def _connect(address: str) -> None:
    os.environ.pop("SPARK_BULL_URL", None)
    os.environ["SPARK_REMOTE"] = address
    spark_bull.register(SparkSession.builder.getOrCreate())


def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(SparkSession.builder.getOrCreate(), *arguments)
    except Exception:
        # Errors of PySpark cannot be sent to another process.
        raise AssertionError(traceback.format_exc()) from None


@pytest.fixture(scope="module")
def server_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("connect") / "log"


@pytest.fixture(scope="module")
def connect(python_forks: Path, server_log: Path) -> Iterator[ConnectClient]:
    need(find_spec("grpc_status"), "needs the packages of pyspark[connect]")
    home = Path(sysconfig.get_path("purelib")) / "pyspark"
    environment = {VARIABLE: str(python_forks), "SPARK_HOME": str(home)}
    with connect_server(server_log, environment) as address, ConnectClient(address) as client:
        yield client


@pytest.fixture
def options(redis_url: str, prefix: str) -> Options:
    return {"url": redis_url, "prefix": prefix, "protocol": "bullmq"}


def has_finished(worker: Worker, jobs: int) -> bool:
    status = worker.status()
    assert status.state == "running"
    return status.finished == jobs


def _write_and_read(spark: SparkSession, options: Options) -> Any:
    bull = options | {"queue": "q"}
    rows = spark.range(20).select(f.col("id").alias("n"))
    with (
        BullQueue("q", **options) as queue,
        WriteProgress(spark, [queue.handle]) as progress,
        ThreadPoolExecutor(1) as threads,
    ):
        step = progress.step()
        # The server, not the thread of the client, has the active session.
        threads.submit(rows.write.format("bull").options(**bull, events="ends").mode("append").save).result()
        written = step, [record.jobs for record in progress.records()]
    told = spark.read.format("bull").options(**bull, view="events").load().count()
    changes = spark.createDataFrame([("1", "remove"), ("2", "promote")], "id STRING, action STRING")
    changes.where("action = 'remove'").write.format("bull").options(**bull, mode="manage").mode("append").save()
    spark.read.format("bull").options(**bull, payloadSchema="n INT").load().createOrReplaceTempView("jobs")
    (summed,) = spark.sql("SELECT count(*) AS jobs, sum(data.n) AS total FROM jobs WHERE state = 'wait'").collect()
    given = ", ".join(f"{name} '{value}'" for name, value in bull.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW outbox (n INT) USING bull OPTIONS ({given})")
    spark.sql("INSERT INTO outbox VALUES (1), (2)").collect()
    rows = spark.createDataFrame([("daily", "0 0 3 * * *")], "id STRING, pattern STRING")
    rows.write.format("bull").options(**bull, mode="schedule").mode("append").save()
    try:
        spark.range(2).write.format("bull").options(**bull).mode("append").saveAsTable("created")
    except PySparkException as error:
        refused = str(error), spark.catalog.tableExists("created")
    views = {
        view: spark.read.format("bull").options(**bull, view=view).load().count()
        for view in ("counts", "queues", "writes", "stats", "schedulers")
    }
    return tuple(summed), views, told, refused, written


@rest
def test_rows_become_jobs_that_sql_and_views_show(connect: ConnectClient, queue: BullQueue, options: Options) -> None:
    summed, views, told, (message, has_table), written = connect(_write_and_read, options)
    assert written == (None, [20])
    assert told == 0
    assert summed == (19, sum(range(1, 20)))
    assert views["queues"] == views["schedulers"] == 1
    assert views["writes"] >= 1
    assert views["counts"] > 0
    assert queue.counts()["wait"] == 21
    assert "call save()" in message
    assert not has_table


def _called(spark: SparkSession, options: Options) -> Any:
    found = call(spark.range(3), "q", return_schema="INT", events="ends", **options)
    rows = sorted((row["id"], row["result"], row["error"]) for row in found.collect())
    events = spark.read.format("bull").options(**options, queue="q", view="events").load()
    return rows, events.where("event IN ('added', 'waiting')").count()


@rest
def test_rows_come_back_with_the_results_of_their_jobs(
    connect: ConnectClient, queue: BullQueue, options: Options
) -> None:
    with OurWorker(queue.handle, lambda job: job.data["id"] + 1):
        assert connect(_called, options) == ([(0, 1, None), (1, 2, None), (2, 3, None)], 0)


def _stream(spark: SparkSession, options: Options, folder: str) -> Any:
    (Path(folder) / "in").mkdir()
    spark.range(30).select(f.col("id").alias("n")).write.mode("append").json(f"{folder}/in")
    sink = spark.readStream.schema("n INT").json(f"{folder}/in").writeStream.format("bull")
    sink = sink.options(**options, queue="q", checkpointLocation=f"{folder}/sink").trigger(availableNow=True)
    assert sink.start().awaitTermination(int(PATIENCE_S))

    def double(job: Any) -> Any:
        if job.data["n"] == 7:
            raise ValueError("seven")
        return 2 * job.data["n"]

    with Worker(spark, "q", double, progress=False, **options) as worker:
        wait_until(lambda: has_finished(worker, 30), "all jobs to finish")
        # Of three cores, one is left free.
        wait_until(lambda: worker.status().slots == 2, "two slots to report")
        assert worker.stop(PATIENCE_S)
    results = spark.readStream.format("bull").options(**options, queue="q", startingOffsets="earliest").load()
    source = results.writeStream.format("parquet").option("checkpointLocation", f"{folder}/source")
    query: Any = start_query(lambda: source.trigger(availableNow=True).start(f"{folder}/out"))
    assert query.awaitTermination(int(PATIENCE_S))
    collected = spark.read.parquet(f"{folder}/out")
    return [tuple(row) for row in collected.groupBy("state").count().orderBy("state").collect()]


def test_streams_write_jobs_and_collect_what_a_worker_made_of_them(
    connect: ConnectClient, queue: BullQueue, options: Options, tmp_path: Path
) -> None:
    assert connect(_stream, options, str(tmp_path)) == [("completed", 29), ("failed", 1)]
    (failed,) = queue.page("failed")
    assert failed.failed_reason == "seven"


def _transform(spark: SparkSession, options: Options, checkpoint: str) -> Any:
    @f.udf("string")
    def checked(n: int) -> str:
        if n == 7:
            raise ValueError("seven")
        return str(n)

    def double(jobs: DataFrame) -> DataFrame:
        return jobs.where("data.n != 9").withColumn("returnvalue", checked("data.n"))

    with (
        BullQueue("q", **options) as queue,
        processing_query(spark, double, checkpoint, options, payload_schema="n INT"),
    ):
        for first in (0, 10):
            queue.add_many(NewJob({"n": n}) for n in range(first, first + 10))
            ended = first + 11
            wait_until(
                lambda ended=ended: sum(queue.counts()[state] for state in ("completed", "failed")) == ended,
                "the jobs of a batch",
            )
        return queue.counts()["completed"]


@rest
def test_batches_are_processed_on_the_server(
    connect: ConnectClient, queue: BullQueue, options: Options, server_log: Path, tmp_path: Path
) -> None:
    damaged = queue.add({"n": "no number"})
    assert connect(_transform, options, str(tmp_path)) == 18
    said = f"job {damaged} of queue q failed: expected the payload to be JSON"
    wait_until(lambda: said in server_log.read_text(), "the server to log why jobs fail")


def _by_name(spark: SparkSession, options: Options, frames: bool) -> Any:
    rows = spark.range(3).selectExpr("id AS n", "explode(array('double', 'triple', 'other')) AS name")
    given = options | {"queue": "q", "keepIds": "true", "jobColumns": "name"}
    rows.write.format("bull").options(**given).mode("append").save()
    (write,) = spark.read.format("bull").options(**options, queue="q", view="writes").load().collect()

    @f.pandas_udf("bigint")
    def double(n: pd.Series) -> pd.Series:
        return 2 * n

    def triple(jobs: DataFrame) -> DataFrame:
        return jobs.withColumn("returnvalue", f.col("data.n") * 3)

    def other(job: Any) -> str:
        return f"{job.name} {job.data['n']}"

    processors = {"double": double, "*": other, **({"triple": triple} if frames else {})}
    with Worker(spark, "q", processors, payload_schema="n BIGINT", slots=1, progress=False, **options) as worker:
        results = write_results(spark, write.id, queue="q", timeout_s=PATIENCE_S, options=options).collect()
        assert worker.stop(PATIENCE_S)
    return [row.returnvalue for row in sorted(results, key=lambda row: int(row.id))]


@rest
@pytest.mark.parametrize("frames", [False, True])
def test_results_of_a_write_come_from_processors_of_several_kinds(
    connect: ConnectClient, options: Options, frames: bool
) -> None:
    tripled = "{1}" if frames else '"triple {0}"'
    expected = [text for n in range(3) for text in (f"{2 * n}", tripled.format(n, 3 * n), f'"other {n}"')]
    assert connect(_by_name, options, frames) == expected
