"""The table of features: which dialects and versions of BullMQ have a feature, and what errors say in others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from spark_bull.errors import DialectError

#: The columns of the table: dialects, and the versions of BullMQ that differ.
Column = Literal["bull-1", "bull", "bullmq-5", "bullmq-6"]
Feature = Literal[
    "classic-cron",
    "custom-events",
    "deduplication",
    "event-stream",
    "failed-attempt-events",
    "finish-times",
    "flows",
    "integer-ids",
    "jitter",
    "keep-rules",
    "limiter-groups",
    "metrics",
    "paused-list",
    "priorities",
    "priority-queues",
    "queue-limits",
    "retry-at-limit",
    "schedule-hashes",
    "schedules",
    "start-limits",
    "telemetry",
    "worker-names",
]

_BULLMQ: Final[tuple[Column, ...]] = ("bullmq-5", "bullmq-6")
_BULL_3: Final[tuple[Column, ...]] = ("bull", *_BULLMQ)


class Support(NamedTuple):
    """A row of the table. columns: what has the feature; where: the same in words. lacking: what the others lack.

    remedy: what to do there, beside the use of another queue. options: those that have no effect without the feature.
    """

    columns: tuple[Column, ...]
    where: str
    lacking: str
    remedy: str = ""
    options: tuple[str, ...] = ()


FEATURES: Final[Mapping[Feature, Support]] = {
    "classic-cron": Support(
        ("bull", "bullmq-5"), "Bull 3 or 4 or BullMQ 5", "{dialect} does not read patterns as cron-parser 4"
    ),
    "custom-events": Support(
        _BULLMQ, "BullMQ", "{dialect} has no custom events", "use PUBLISH of Redis with a channel of your own"
    ),
    "deduplication": Support(_BULL_3, "BullMQ or Bull 4", "{dialect} has no deduplication ids", "use `jobId`"),
    "event-stream": Support(
        _BULLMQ,
        "BullMQ",
        "{dialect} publishes events on channels, and keeps none",
        "read them as they happen with BullQueue.events(), or collect finished jobs with spark.readStream",
    ),
    "failed-attempt-events": Support(
        ("bull-1",), "Bull 1 or 2", "{dialect} publishes `failed` only for attempts without a retry"
    ),
    "finish-times": Support(_BULL_3, "BullMQ or Bull 3 or 4", "jobs of {dialect} have no finish time"),
    "flows": Support(_BULLMQ, "BullMQ", "jobs of {dialect} have no children and no parents"),
    "integer-ids": Support(("bull-1", "bull"), "Bull", "a custom id of {dialect} may not be an integer"),
    "jitter": Support(_BULLMQ, "BullMQ", "`backoff` of {dialect} has no jitter"),
    "keep-rules": Support(_BULL_3, "BullMQ or Bull 3 or 4", "{dialect} keeps all finished jobs, or none"),
    "limiter-groups": Support(("bull",), "Bull 3 or 4", "{dialect} has no such groups", "use the argument `group`"),
    "metrics": Support(
        _BULL_3,
        "Bull 4 or BullMQ",
        "workers of {dialect} keep no metrics",
        options=("metricsMinutes", "metrics_minutes"),
    ),
    "paused-list": Support(
        ("bull-1", "bull", "bullmq-5"), "BullMQ 5 or Bull", "{dialect} keeps the jobs of a paused queue in `wait`"
    ),
    "priorities": Support(_BULL_3, "BullMQ or Bull 3 or 4", "jobs of {dialect} have no priority"),
    "priority-queues": Support(("bull-1",), "Bull 1 or 2", "{dialect} has one queue for all priorities"),
    "queue-limits": Support(
        _BULLMQ,
        "BullMQ",
        "a queue of {dialect} has no limits of its own",
        "use the argument `limiter` of the workers",
    ),
    "retry-at-limit": Support(("bullmq-5",), "BullMQ 5", "a job of {dialect} is not retried after its last start"),
    "schedule-hashes": Support(_BULLMQ, "BullMQ", "a schedule of {dialect} has no hash"),
    "schedules": Support(_BULL_3, "BullMQ or Bull 3 or 4", "{dialect} has no schedules"),
    "start-limits": Support(_BULLMQ, "BullMQ", "{dialect} does not count starts", options=("max_started",)),
    "telemetry": Support(_BULLMQ, "BullMQ", "jobs of {dialect} carry no trace context", options=("telemetry",)),
    "worker-names": Support(_BULLMQ, "BullMQ", "workers of {dialect} have no name", options=("name", "workerName")),
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
