"""Benchmark of the repair of failed jobs: by a DataFrame, and by a script of Node, while another client sends PING."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from benchmarks.filling import plain
from benchmarks.report import Verdict, at_least, at_most
from benchmarks.trials import Server
from benchmarks.workers import PEERS, QUEUE, peer_process
from spark_bull import BullQueue, Change

#: One of so many jobs has failed.
SHARE: Final = 10
#: Jobs that the script of Node repairs at the same time.
PAGE: Final = 500
REASON: Final = "no such host"
WARM_UP: Final = "warm-up"
#: Duration of Node's script divided by ours.
SPEED_TARGET: Final = 1.0


def fill(queue: BullQueue, jobs: int) -> None:
    """Adds the jobs, of which the first ones have failed."""
    ids = queue.add_many(plain(jobs)).ids
    changes = (Change(job_id, "fail", failed_reason=REASON) for job_id in ids[: jobs // SHARE])
    assert all(changed.outcome == "done" for changed in queue.manage(changes))


def repair(spark: SparkSession, url: str, queue: str) -> None:
    """Mends and retries the failed jobs with SQL."""
    at = {"url": url, "queue": queue}
    failed = spark.read.format("bull").options(**at, states="failed").schema("id STRING, data STRING").load()
    mended = failed.selectExpr("id", 'regexp_replace(data, \'"note":"x*"\', \'"note":"mended"\') AS data')
    writer = mended.write.format("bull").options(**at, mode="manage", action="retry", resetAttempts="true")
    writer.mode("append").save()


@contextmanager
def ours(spark: SparkSession, server: Server) -> Iterator[Callable[[], object]]:
    # The first read and the first write of a session start its Python processes.
    with BullQueue(WARM_UP, url=server.url, protocol="bullmq") as queue:
        fill(queue, SHARE)
    repair(spark, server.url, WARM_UP)
    yield partial(repair, spark, server.url, QUEUE)


@contextmanager
def bullmq(server: Server) -> Iterator[Callable[[], object]]:
    with peer_process(["node", str(PEERS / "bullmq_repair.js"), server.url, QUEUE, str(PAGE)]) as peer:
        peer.expect("ready")

        def run() -> None:
            peer.send("go")
            peer.expect("done")

        yield run


def check(server: Server, jobs: int) -> None:
    """Checks that all jobs wait, and that the failed ones were mended."""
    counts = {state: count for state, count in server.queue.counts().items() if count}
    assert counts == {"wait": jobs}, f"expected all {jobs:,} jobs to wait, got {counts}"
    failed = jobs // SHARE
    for job_id in (1, failed // 2, failed):
        job = server.queue.job(str(job_id))
        assert job is not None
        assert (job.data["note"], job.data["id"], job.attempts_made) == ("mended", job_id - 1, 0), job


def verdicts(seconds: float, ping_p99: float, node_seconds: float, yardstick_ping_p99: float) -> list[Verdict]:
    return [
        at_least("repair of failed jobs, Node's script x ours", SPEED_TARGET, node_seconds / seconds),
        at_most("repair of failed jobs, PING p99, x yardstick", 1.0, ping_p99 / yardstick_ping_p99),
    ]
