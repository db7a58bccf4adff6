"""A Spark driver with a worker, and a query that processes claimed jobs, until it is killed.

python -m tests.proof.soak.work_driver '{"url": "…", "prefix": "…", "notes": "…"}'
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_bull import Promoter, Worker
from tests.proof.actors import CHECK_MS
from tests.proof.producers import RETRY_MS
from tests.proof.soak.programs import ALL_QUEUES, AT_ONCE
from tests.proof.soak.spark import LOCK_MS, STREAMED, place_of, processor, session
from tests.support.drivers import processing_query

#: A job may lose its worker as often as workers are killed.
MAX_STALLED = 1_000


def echo(jobs: DataFrame) -> DataFrame:
    return jobs.select("id", "token", f.struct("data.row").alias("returnvalue"))


def main(plan: dict[str, str]) -> None:
    place = place_of(plan)
    spark = session(3)
    common = {"url": place.url, "prefix": place.prefix, "protocol": "bullmq", "retry_ms": RETRY_MS}
    common |= {"lock_ms": LOCK_MS, "check_ms": CHECK_MS, "max_stalled": MAX_STALLED, "progress": False}
    slots = Worker(
        spark,
        queues=[queue for queue in ALL_QUEUES if queue != STREAMED],
        processor=processor(place.notes),
        slots=1,
        concurrency=4,
        group={"by": "tenant", "concurrency": AT_ONCE},
        **common,
    )
    options = {"url": place.url, "prefix": place.prefix, "protocol": "bullmq", "retryMs": RETRY_MS}
    checkpoint, schema = place.notes.path.parent / "work", "row STRING"
    rescuing = Promoter(
        place.url, [STREAMED], check_ms=CHECK_MS, max_stalled=MAX_STALLED, prefix=place.prefix, protocol="bullmq"
    )
    batches = processing_query(spark, echo, checkpoint, options, queue=STREAMED, payload_schema=schema, lockMs=LOCK_MS)
    with slots, rescuing, batches as query:
        while not (slots.await_termination(1) or query.awaitTermination(1)):
            pass


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
