"""The table of features: which dialects and versions of BullMQ have a feature, and what errors say in others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from spark_bull.core.errors import DialectError

#: The columns of the table: dialects, and the versions of BullMQ that differ.
FeatureColumn = Literal["bull-1", "bull", "bullmq-5", "bullmq-6"]
Feature = Literal[
    "ageing",
    "classic-cron",
    "client-names",
    "custom-events",
    "deduplication",
    "event-stream",
    "failed-attempt-events",
    "finish-times",
    "flows",
    "integer-ids",
    "interval-offsets",
    "interval-starts",
    "jitter",
    "keep-rules",
    "limiter-delays",
    "limiter-groups",
    "metrics",
    "paused-list",
    "priorities",
    "priority-queues",
    "queue-limits",
    "retry-at-limit",
    "scheduler-hashes",
    "schedulers",
    "start-limits",
    "telemetry",
    "worker-names",
]

#: What has a feature, in the words of errors, and the columns.
HOLDERS: Final[Mapping[str, tuple[FeatureColumn, ...]]] = {
    "Bull": ("bull-1", "bull"),
    "Bull 1 or 2": ("bull-1",),
    "Bull 3 or 4": ("bull",),
    "Bull 3 or 4 or BullMQ 5": ("bull", "bullmq-5"),
    "Bull 4 or BullMQ": ("bull", "bullmq-5", "bullmq-6"),  # Keys do not tell Bull 3 from Bull 4.
    "Bull or BullMQ 5": ("bull-1", "bull", "bullmq-5"),
    "BullMQ": ("bullmq-5", "bullmq-6"),
    "BullMQ 5": ("bullmq-5",),
    "BullMQ or Bull 3 or 4": ("bull", "bullmq-5", "bullmq-6"),
}


class Support(NamedTuple):
    """A row of the table. where: what has the feature, a name of HOLDERS. lacking: what the others lack.

    remedy: what to do there, beside the use of another queue. options: the options that have no effect
    without the feature.
    """

    where: str
    lacking: str
    remedy: str = ""
    options: tuple[str, ...] = ()


_COLLECT: Final = "read them as they happen with BullQueue.events(), or collect finished jobs with spark.readStream"

FEATURES: Final[Mapping[Feature, Support]] = {
    "ageing": Support("BullMQ", "{dialect} keeps jobs with a priority among the others, so that they do not age"),
    "classic-cron": Support("Bull 3 or 4 or BullMQ 5", "{dialect} does not read patterns as cron-parser 4"),
    "client-names": Support("BullMQ or Bull 3 or 4", "workers of {dialect} give their connections no names"),
    "custom-events": Support(
        "BullMQ", "{dialect} has no custom events", "use PUBLISH of Redis with a channel of your own"
    ),
    "deduplication": Support("Bull 4 or BullMQ", "{dialect} has no deduplication ids", "use `jobId`"),
    "event-stream": Support("BullMQ", "{dialect} publishes events on channels, and keeps none", _COLLECT),
    "failed-attempt-events": Support("Bull 1 or 2", "{dialect} publishes `failed` only for the last attempt"),
    "finish-times": Support("BullMQ or Bull 3 or 4", "jobs of {dialect} have no finish time"),
    "flows": Support("BullMQ", "jobs of {dialect} have no children and no parents"),
    "integer-ids": Support("Bull", "a custom id of {dialect} may not be an integer"),
    "interval-offsets": Support("BullMQ", "an interval of {dialect} has no offset"),
    "interval-starts": Support("BullMQ", "an interval of {dialect} has no start"),
    "jitter": Support("BullMQ", "`backoff` of {dialect} has no jitter"),
    "keep-rules": Support("BullMQ or Bull 3 or 4", "{dialect} keeps all finished jobs, or none"),
    "limiter-delays": Support("Bull 3 or 4", "{dialect} keeps the jobs over a limit in `wait`"),
    "limiter-groups": Support("Bull 3 or 4", "{dialect} has no such groups", "use the argument `group`"),
    "metrics": Support("Bull 4 or BullMQ", "workers of {dialect} keep no metrics", options=("metricsMinutes",)),
    "paused-list": Support("Bull or BullMQ 5", "{dialect} keeps the jobs of a paused queue in `wait`"),
    "priorities": Support(
        "BullMQ or Bull 3 or 4",
        "jobs of {dialect} have no priority",
        "leave it out, or add the jobs to the queue of the priority, such as mail:prio:high, as writes of Spark do for "
        "priorities by name",
    ),
    "priority-queues": Support("Bull 1 or 2", "{dialect} has one queue for all priorities"),
    "queue-limits": Support(
        "BullMQ", "a queue of {dialect} has no limits of its own", "use the argument `limiter` of the workers"
    ),
    "retry-at-limit": Support("BullMQ 5", "a job of {dialect} is not retried after its last start"),
    "scheduler-hashes": Support("BullMQ", "a job scheduler of {dialect} has no hash"),
    "schedulers": Support("BullMQ or Bull 3 or 4", "{dialect} has no job schedulers"),
    "start-limits": Support("BullMQ", "{dialect} does not count starts", options=("maxStarted",)),
    "telemetry": Support("BullMQ", "jobs of {dialect} carry no trace context", options=("telemetry",)),
    "worker-names": Support("BullMQ", "workers of {dialect} have no name", options=("workerName",)),
}


def lacks(feature: Feature, dialect: str, what: str = "") -> DialectError:
    """The error for a dialect without the feature. what: what the user asked for; '': the call needs the feature."""
    row = FEATURES[feature]
    lacking = row.lacking.format(dialect=dialect)
    if what:
        return DialectError(
            f"expected no {what}: {lacking}; {row.remedy or 'leave it out'}, or use a queue of {row.where}"
        )
    return DialectError(f"expected a queue of {row.where}: {lacking}{row.remedy and '; '}{row.remedy}")
