"""Measures writes to many queues and of many partitions: CPU time per queue or partition, and the longest script.

    spread.py queues|partitions COUNT...

Prints a table, and finally the figures as JSON. A session of its own, because the JVM does not release memory.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from benchmarks.probes import cpu_of
from benchmarks.report import percentile
from benchmarks.sides import new_session, timed
from benchmarks.trials import cpu_seconds, fresh_server, is_script

#: Rows of each queue or partition.
ROWS: Final = 10
#: Writes of so many queues or partitions before the first measurement.
WARM_UP: Final = (20, 200)


@dataclass(frozen=True)
class Spread:
    """Per queue or partition: wall time, and CPU time of Redis, of all Python processes and of the JVM, in ms.

    script_p99_ms: duration that 99 % of the scripts over 0.2 ms do not exceed, by the slow log, which includes the time
    for which Redis waits for a core.
    """

    wall_ms: float
    redis_ms: float
    python_ms: float
    jvm_ms: float
    script_p99_ms: float


def queues(spark: SparkSession, count: int) -> DataFrame:
    """Rows of so many queues, all of them in each partition."""
    return spark.range(count * ROWS, numPartitions=2).selectExpr(
        "'{}' AS data", f"concat('bench-', id % {count}) AS queue"
    )


def partitions(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count * ROWS, numPartitions=count).selectExpr("'{}' AS data", "'bench' AS queue")


KINDS: Final[Mapping[str, Callable[[SparkSession, int], DataFrame]]] = {"queues": queues, "partitions": partitions}


def spread(spark: SparkSession, kind: str, count: int) -> Spread:
    frame = KINDS[kind](spark, count)
    with fresh_server() as server:
        redis, before = cpu_seconds(server.client), cpu_of(os.getpid())
        writer = frame.write.format("bull").mode("append").options(url=server.url, protocol="bullmq")
        seconds = timed(writer.save)
        redis, after = cpu_seconds(server.client) - redis, cpu_of(os.getpid())
        scripts = [entry["duration"] / 1e3 for entry in server.client.slowlog_get(100_000) if is_script(entry)]
        jobs = sum(server.client.llen(f"bull:{queue}:wait") for queue in _names(kind, count))
        assert jobs == count * ROWS, f"expected {count * ROWS} jobs, got {jobs}"
    each = 1e3 / count
    python, jvm = after.python - before.python, after.jvm - before.jvm
    return Spread(seconds * each, redis * each, python * each, jvm * each, percentile(scripts or [0.0], 99))


def _names(kind: str, count: int) -> list[str]:
    return [f"bench-{number}" for number in range(count)] if kind == "queues" else ["bench"]


def main() -> None:
    kind, counts = sys.argv[1], [int(count) for count in sys.argv[2:]]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = new_session()
    for count in WARM_UP:
        spread(spark, kind, count)
    found: dict[int, Spread] = {}
    for count in counts:
        found[count] = spread(spark, kind, count)
        print(
            f"{count:>8,} {kind}: " + ", ".join(f"{name} {ms:.2f}" for name, ms in asdict(found[count]).items()),
            flush=True,
        )
    print(json.dumps({count: asdict(one) for count, one in found.items()}))


if __name__ == "__main__":
    main()
