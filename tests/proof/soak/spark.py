"""The Spark drivers of the soak, as separate processes with a JVM each, and what workers in Python do with a job."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import spark_bull
from tests.proof.actors import JOB_S
from tests.proof.producers import RETRY_MS, Notes, Place
from tests.proof.soak.programs import ALL_QUEUES
from tests.support.worker import OurWorker, behave

#: Heap of a JVM.
MEMORY = "512m"


def session(cores: int) -> SparkSession:
    """A session whose tasks are tried again, as their processes are killed."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": MEMORY,
        # All of the heap is resident from the beginning: what grows is something else, and a full heap is an error.
        "spark.driver.extraJavaOptions": f"-Xms{MEMORY} -XX:+AlwaysPreTouch -XX:+ExitOnOutOfMemoryError",
        "spark.sql.shuffle.partitions": "2",
        # A kill in the first batch leaves a temporary file, and Spark refuses the checkpoint then.
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
        # What Spark keeps of past jobs and batches would grow up to its limits during the whole run.
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "100",
        "spark.sql.ui.retainedExecutions": "20",
        "spark.sql.streaming.numRecentProgressUpdates": "10",
    }
    builder = SparkSession.builder.master(f"local[{cores},8]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark_bull.register(spark)
    return spark


def place_of(plan: dict[str, str]) -> Place:
    return Place(plan["url"], plan["prefix"], Notes(Path(plan["notes"])), 0, ())


def options_of(place: Place) -> dict[str, Any]:
    """How the data source reaches the queues."""
    return {"url": place.url, "prefix": place.prefix, "protocol": "bullmq", "retryMs": str(RETRY_MS)}


LOCK_MS = 10_000
#: Only Spark limits groups.
LIMITED = "group"
#: The jobs of the stream are for a query with mode=claim, and for Node.
STREAMED = "frames"
#: Starts of their jobs are noted: those that may run once, and those that must not run when they have expired.
NOTED = ("most", "expire")
#: Node knows no expiry and no groups, and notes nothing.
NOT_FOR_NODE = (LIMITED, *NOTED)


def processor(notes: Notes) -> Callable[[Any], Any]:
    """A function of a job that does what its payload asks for, and notes some starts."""

    def process(job: Any) -> Any:
        queue = job.handle.keys.queue
        if queue in NOTED:
            notes.add("start", queue, job_id=job.id)
        time.sleep(JOB_S)
        return behave(job)

    return process


def work(place: Place) -> None:
    """A slot without Spark."""
    queues = [place.queue(name).handle for name in ALL_QUEUES if name not in (LIMITED, STREAMED)]
    OurWorker(queues, processor(place.notes), chunk_size=3, lock_ms=LOCK_MS).loop.run()
