"""One logical queue whose shards are on several servers: jobs/s of all, and Redis' CPU per job of each server."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from benchmarks.clocked import cpu_of_process
from benchmarks.report import Verdict
from benchmarks.sides import strings
from benchmarks.stock import stock_redis
from benchmarks.trials import wait_until
from benchmarks.workers import QUEUE
from spark_bull import BullQueue, Worker, shard_names

#: Redis' CPU per job of each server may differ so much from that of one server.
SAME_CPU: Final = 0.10


@dataclass(frozen=True)
class Sharded:
    """jobs/s that were dispatched, and processed, and Redis' CPU of each server for both, in µs per job that it had."""

    dispatched: float
    processed: float
    redis_us: list[float]


def on_shards(spark: SparkSession, servers: int, jobs: int) -> Sharded:
    """Writes jobs to a queue with a shard on each server, and processes them in two slots of one Worker."""
    with ExitStack() as stack:
        redis = [stack.enter_context(stock_redis()) for _ in range(servers)]
        urls = " ".join(server.url for server in redis)
        settings: dict[str, Any] = {"shard_urls": urls} if servers > 1 else {"url": urls}
        names = shard_names(QUEUE, servers)
        queues = [stack.enter_context(BullQueue(name, protocol="bullmq", **settings)) for name in names]
        options = {"shardUrls": urls} if servers > 1 else {"url": urls}
        frame = strings(spark, jobs).cache()
        frame.count()
        writer = frame.write.format("bull").mode("append")
        writer = writer.options(queue=QUEUE, shards=servers, protocol="bullmq", **options)
        before = [cpu_of_process(server.pid) for server in redis]
        dispatch_s = _seconds(writer.save)
        frame.unpersist(blocking=True)
        for queue in queues:
            queue.pause()

        def completed() -> int:
            return sum(queue.counts()["completed"] for queue in queues)

        with Worker(spark, QUEUE, _noop(), slots=2, shards=servers, protocol="bullmq", **settings) as worker:
            wait_until(lambda: worker.status().slots == 2)

            def process() -> None:
                for queue in queues:
                    queue.resume()
                wait_until(lambda: completed() >= jobs)

            process_s = _seconds(process)
        used = [cpu_of_process(server.pid) - cpu for server, cpu in zip(redis, before, strict=True)]
        shares = [queue.counts()["completed"] for queue in queues]
        assert sum(shares) == jobs, f"expected {jobs} completed jobs, got {shares}"
    per_job = [seconds / share * 1e6 for seconds, share in zip(used, shares, strict=True)]
    return Sharded(jobs / dispatch_s, jobs / process_s, per_job)


def _noop() -> Callable[[Any], None]:
    # Local functions are pickled by value: executors need not import this module.
    def noop(_job: Any) -> None:
        return None

    return noop


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def median_sharded(runs: Sequence[Sharded]) -> Sharded:
    return Sharded(
        statistics.median(run.dispatched for run in runs),
        statistics.median(run.processed for run in runs),
        [statistics.median(costs) for costs in zip(*(run.redis_us for run in runs), strict=True)],
    )


def shard_verdicts(found: Mapping[int, Sharded]) -> list[Verdict]:
    """Compares Redis' CPU per job of each server with that of one server."""
    (one,) = found[1].redis_us
    results = []
    for count, run in found.items():
        if count > 1:
            ratios = [cost / one for cost in run.redis_us]
            text = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            what = f"{count} servers, one queue: Redis' CPU per job of each, x one"
            is_same = all(abs(ratio - 1) <= SAME_CPU for ratio in ratios)
            results.append(Verdict(what, f"1 +- {SAME_CPU}", text, is_same))
    return results


def shown(count: int, run: Sharded) -> str:
    costs = ", ".join(f"{cost:.1f}" for cost in run.redis_us)
    return (
        f"{count} servers, one queue: {run.dispatched:,.0f} jobs/s dispatched, {run.processed:,.0f} processed; "
        f"Redis' CPU per job of each server: {costs} us"
    )
