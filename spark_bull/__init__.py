"""Bull and BullMQ queues in Apache Spark: dispatch, inspect, process and collect jobs.

    import spark_bull
    spark_bull.register(spark)
    df.write.format("bull").option("queue", "mail").mode("append").save()
    with spark_bull.Worker(spark, queue="mail", processor=send) as worker:
        worker.await_termination()

The public names are imported lazily, so that `spark_bull.BullQueue` and the command line do not import PySpark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from spark_bull.version import VERSION as __version__

if TYPE_CHECKING:
    from spark_bull.embedded.redis import EmbeddedRedis
    from spark_bull.errors import (
        ConnectionLost,
        DelayedError,
        DialectError,
        IntakeClosed,
        JobCancelled,
        JobDamaged,
        JobError,
        JobFailed,
        JobLocked,
        JobLockLost,
        JobMissing,
        JobTimeout,
        NotReplicated,
        OptionError,
        ParentError,
        PatternError,
        PermissionDenied,
        ProcessorMissing,
        QueueBusy,
        QueueFull,
        RateLimitError,
        ReaderInUse,
        RedisUnavailable,
        ResultsLost,
        ReturnedError,
        ScriptError,
        SparkBullError,
        StagedDataLost,
        UnrecoverableError,
        WaitingForChildren,
        WaitTimeout,
        WorkerFailed,
        WrongState,
    )
    from spark_bull.model.jobs import (
        Added,
        AddedFlow,
        Change,
        Changed,
        Dependency,
        FlowJob,
        Job,
        JobStats,
        NewJob,
        Percentiles,
        QueueEvent,
        QueueLimits,
        QueueMetrics,
        RawJson,
        Scheduler,
        WriteRecord,
    )
    from spark_bull.queue.bull_queue import BullQueue
    from spark_bull.queue.events.events import QueueEvents
    from spark_bull.services.promoter import Promoter, PromoterStats
    from spark_bull.services.rescuer import Rescuer
    from spark_bull.spark.process.worker import Worker
    from spark_bull.spark.provider import BullDataSource, register
    from spark_bull.spark.results import results
    from spark_bull.tracing.tracer import current_trace
    from spark_bull.worker.job.running_job import RunningJob
    from spark_bull.worker.slot.status import WorkerStatus

_LAZY_EXPORTS = {
    "Added": "spark_bull.model.jobs",
    "AddedFlow": "spark_bull.model.jobs",
    "BullDataSource": "spark_bull.spark.provider",
    "BullQueue": "spark_bull.queue.bull_queue",
    "Change": "spark_bull.model.jobs",
    "Changed": "spark_bull.model.jobs",
    "ConnectionLost": "spark_bull.errors",
    "DelayedError": "spark_bull.errors",
    "Dependency": "spark_bull.model.jobs",
    "DialectError": "spark_bull.errors",
    "EmbeddedRedis": "spark_bull.embedded.redis",
    "FlowJob": "spark_bull.model.jobs",
    "IntakeClosed": "spark_bull.errors",
    "Job": "spark_bull.model.jobs",
    "JobCancelled": "spark_bull.errors",
    "JobDamaged": "spark_bull.errors",
    "JobError": "spark_bull.errors",
    "JobFailed": "spark_bull.errors",
    "JobLockLost": "spark_bull.errors",
    "JobLocked": "spark_bull.errors",
    "JobMissing": "spark_bull.errors",
    "JobStats": "spark_bull.model.jobs",
    "JobTimeout": "spark_bull.errors",
    "NewJob": "spark_bull.model.jobs",
    "NotReplicated": "spark_bull.errors",
    "OptionError": "spark_bull.errors",
    "ParentError": "spark_bull.errors",
    "PatternError": "spark_bull.errors",
    "Percentiles": "spark_bull.model.jobs",
    "PermissionDenied": "spark_bull.errors",
    "ProcessorMissing": "spark_bull.errors",
    "Promoter": "spark_bull.services.promoter",
    "PromoterStats": "spark_bull.services.promoter",
    "QueueBusy": "spark_bull.errors",
    "QueueEvent": "spark_bull.model.jobs",
    "QueueEvents": "spark_bull.queue.events.events",
    "QueueFull": "spark_bull.errors",
    "QueueLimits": "spark_bull.model.jobs",
    "QueueMetrics": "spark_bull.model.jobs",
    "RateLimitError": "spark_bull.errors",
    "ReturnedError": "spark_bull.errors",
    "RawJson": "spark_bull.model.jobs",
    "ReaderInUse": "spark_bull.errors",
    "RedisUnavailable": "spark_bull.errors",
    "Rescuer": "spark_bull.services.rescuer",
    "ResultsLost": "spark_bull.errors",
    "RunningJob": "spark_bull.worker.job.running_job",
    "Scheduler": "spark_bull.model.jobs",
    "ScriptError": "spark_bull.errors",
    "SparkBullError": "spark_bull.errors",
    "StagedDataLost": "spark_bull.errors",
    "UnrecoverableError": "spark_bull.errors",
    "WaitTimeout": "spark_bull.errors",
    "WaitingForChildren": "spark_bull.errors",
    "Worker": "spark_bull.spark.process.worker",
    "WorkerFailed": "spark_bull.errors",
    "WorkerStatus": "spark_bull.worker.slot.status",
    "WriteRecord": "spark_bull.model.jobs",
    "WrongState": "spark_bull.errors",
    "current_trace": "spark_bull.tracing.tracer",
    "register": "spark_bull.spark.provider",
    "results": "spark_bull.spark.results",
}

__all__ = [
    "Added",
    "AddedFlow",
    "BullDataSource",
    "BullQueue",
    "Change",
    "Changed",
    "ConnectionLost",
    "DelayedError",
    "Dependency",
    "DialectError",
    "EmbeddedRedis",
    "FlowJob",
    "IntakeClosed",
    "Job",
    "JobCancelled",
    "JobDamaged",
    "JobError",
    "JobFailed",
    "JobLockLost",
    "JobLocked",
    "JobMissing",
    "JobStats",
    "JobTimeout",
    "NewJob",
    "NotReplicated",
    "OptionError",
    "ParentError",
    "PatternError",
    "Percentiles",
    "PermissionDenied",
    "ProcessorMissing",
    "Promoter",
    "PromoterStats",
    "QueueBusy",
    "QueueEvent",
    "QueueEvents",
    "QueueFull",
    "QueueLimits",
    "QueueMetrics",
    "RateLimitError",
    "RawJson",
    "ReaderInUse",
    "RedisUnavailable",
    "Rescuer",
    "ResultsLost",
    "ReturnedError",
    "RunningJob",
    "Scheduler",
    "ScriptError",
    "SparkBullError",
    "StagedDataLost",
    "UnrecoverableError",
    "WaitTimeout",
    "WaitingForChildren",
    "Worker",
    "WorkerFailed",
    "WorkerStatus",
    "WriteRecord",
    "WrongState",
    "__version__",
    "current_trace",
    "register",
    "results",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name not in _LAZY_EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY_EXPORTS[name]), name)
