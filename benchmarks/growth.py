"""Dispatches the same number of jobs several times in one session: growth.py DELIVERY ROUNDS JOBS

Prints cost per job and peak memory as JSON. Each number of jobs needs its own session, because the JVM and Python do
not release memory.
"""

from __future__ import annotations

import json
import os
import statistics
import sys

from benchmarks.probes import memory_watched
from benchmarks.sides import new_session, sink, strings
from spark_bull import EmbeddedRedis

WARM_UP_JOBS = 20_000
#: Small enough that the JVM collects garbage in both cases instead of growing the heap.
HEAP = "512m"


def main() -> None:
    delivery, rounds, jobs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = new_session(**{"spark.driver.memory": HEAP})

    def save(count: int) -> float:
        with EmbeddedRedis() as server, sink(strings(spark, count), delivery)(server.port, count) as run:
            return run()

    with memory_watched(os.getpid()) as memory:
        save(WARM_UP_JOBS)
        seconds = statistics.median(save(jobs) for _ in range(rounds))
    found = {"us_per_job": seconds / jobs * 1e6, "jvm_mib": memory.jvm, "python_mib": memory.python}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
