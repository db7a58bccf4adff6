"""Bull and BullMQ queues in Spark: dispatch, inspect, process and collect jobs.

    import spark_bull
    spark_bull.register(spark)
    df.write.format("bull").option("queue", "mail").mode("append").save()
    with spark_bull.Worker(spark, queue="mail", processor=send) as worker:
        worker.await_termination()

The public names below are loaded when first used, so that `spark_bull.BullQueue` and the command
line don't pay for importing PySpark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from spark_bull.version import VERSION as __version__

if TYPE_CHECKING:
    from spark_bull.errors import DelayedError, RateLimitError, SparkBullError, UnrecoverableError
    from spark_bull.local import EmbeddedRedis
    from spark_bull.model import Job, NewJob, RawJson, WriteRecord
    from spark_bull.queue.bull_queue import BullQueue
    from spark_bull.services.promoter import Promoter
    from spark_bull.services.rescuer import Rescuer
    from spark_bull.spark.process.worker import Worker
    from spark_bull.spark.provider import BullDataSource, register
    from spark_bull.worker.running_job import RunningJob

_LAZY_EXPORTS = {
    "BullQueue": "spark_bull.queue.bull_queue",
    "DelayedError": "spark_bull.errors",
    "RateLimitError": "spark_bull.errors",
    "SparkBullError": "spark_bull.errors",
    "UnrecoverableError": "spark_bull.errors",
    "EmbeddedRedis": "spark_bull.local",
    "Job": "spark_bull.model",
    "NewJob": "spark_bull.model",
    "RawJson": "spark_bull.model",
    "WriteRecord": "spark_bull.model",
    "RunningJob": "spark_bull.worker.running_job",
    "Promoter": "spark_bull.services.promoter",
    "Rescuer": "spark_bull.services.rescuer",
    "Worker": "spark_bull.spark.process.worker",
    "BullDataSource": "spark_bull.spark.provider",
    "register": "spark_bull.spark.provider",
}

__all__ = [
    "BullDataSource",
    "BullQueue",
    "DelayedError",
    "EmbeddedRedis",
    "Job",
    "NewJob",
    "Promoter",
    "RateLimitError",
    "RawJson",
    "Rescuer",
    "RunningJob",
    "SparkBullError",
    "UnrecoverableError",
    "Worker",
    "WriteRecord",
    "__version__",
    "register",
]


def __getattr__(name: str) -> object:
    if name not in _LAZY_EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY_EXPORTS[name]), name)
