"""A program that uses a Spark Connect session: python -m tests.support.connect_driver REDIS_URL PREFIX"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import SparkSession

import spark_bull
from spark_bull import BullQueue, NewJob, Worker
from spark_bull.errors import OptionError
from tests.support.wait import wait_until


def double(job: Any) -> Any:
    return 2 * job.data["n"]


def main(url: str, prefix: str) -> None:
    spark = SparkSession.builder.remote("local[3]").getOrCreate()
    spark_bull.register(spark)
    with BullQueue("q", url=url, prefix=prefix, protocol="bullmq") as queue:
        queue.add_many(NewJob({"n": n}) for n in range(20))
        with Worker(spark, "q", double, url=url, prefix=prefix, progress=False) as worker:
            wait_until(lambda: queue.counts()["completed"] == 20, "all jobs to complete")
            # Of three cores, one is left free.
            wait_until(lambda: worker.status().slots == 2, "two slots to report")
            assert worker.stop(60)
        assert {job.parsed("returnvalue") for job in queue.page("completed")} == set(range(0, 40, 2))
    try:
        Worker(spark, "q", double, engine="stream", url=url, prefix=prefix, progress=False)
    except OptionError as error:
        print(error)
    print("completed")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
