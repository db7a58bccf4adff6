"""The metrics: BullMQ's, by its names and descriptions, and our own; and their text, as BullMQ writes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple


@dataclass(frozen=True)
class Family:
    """A metric: its name, type, and description."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str


class Sample(NamedTuple):
    """A value of a metric."""

    family: Family
    labels: Mapping[str, str]
    value: float


JOB_COUNT: Final = Family("bullmq_job_count", "gauge", "Number of jobs in the queue by state")
COMPLETED: Final = Family("bullmq_job_completed_total", "counter", "Total number of completed jobs")
FAILED: Final = Family("bullmq_job_failed_total", "counter", "Total number of failed jobs")

READABLE: Final = Family("spark_bull_queue_readable", "gauge", "Whether the metrics of the queue could be read")
UNREAD: Final = Family("spark_bull_queues_unread", "gauge", "Queues that the scrape had no time to read")
ADDED: Final = Family("spark_bull_jobs_added_total", "counter", "Jobs added, with those whose id existed")
PAUSED: Final = Family("spark_bull_queue_paused", "gauge", "Whether the queue is paused")
INTAKE_OPEN: Final = Family("spark_bull_queue_intake_open", "gauge", "Whether the queue accepts jobs of spark_bull")
OVERDUE: Final = Family("spark_bull_jobs_overdue", "gauge", "Delayed jobs that are due, but were not promoted")
OVERDUE_LAG: Final = Family("spark_bull_overdue_seconds", "gauge", "Time since the first overdue job was due")
WORKERS: Final = Family("spark_bull_workers", "gauge", "Connected workers")
OPEN_WRITES: Final = Family("spark_bull_unfinished_writes", "gauge", "Writes of Spark that are open for over a minute")
BROKEN_WRITES: Final = Family("spark_bull_broken_writes", "gauge", "Writes of Spark, of the last 100, that lost jobs")
OLDEST: Final = Family("spark_bull_oldest_waiting_seconds", "gauge", "Age of the oldest job that could start")
WANTED_SLOTS: Final = Family(
    "spark_bull_wanted_slots", "gauge", "Slots, of one job at a time, that start the waiting jobs within the target"
)
ADDED_RATE: Final = Family("spark_bull_jobs_added_per_second", "gauge", "Average number of jobs added in the window")
FINISHED_RATE: Final = Family(
    "spark_bull_jobs_finished_per_second", "gauge", "Average number of jobs completed or failed in the window"
)
JOBS_BY_NAME: Final = Family("spark_bull_jobs", "gauge", "Number of jobs by name and state, estimated for large queues")
WAIT: Final = Family(
    "spark_bull_job_wait_seconds", "gauge", "Percentiles of the times from when jobs were added until they started"
)
RUN: Final = Family("spark_bull_job_run_seconds", "gauge", "Percentiles of the durations of the last attempts of jobs")

#: All metrics, in the order of the text.
FAMILIES: Final = (
    *(JOB_COUNT, COMPLETED, FAILED),
    *(READABLE, UNREAD, ADDED, PAUSED, INTAKE_OPEN, OVERDUE, OVERDUE_LAG, WORKERS, OPEN_WRITES, BROKEN_WRITES),
    *(OLDEST, WANTED_SLOTS, ADDED_RATE, FINISHED_RATE, JOBS_BY_NAME, WAIT, RUN),
)


CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def as_text(samples: Iterable[Sample], labels: Mapping[str, str] | None = None) -> str:
    """The samples, ordered by metric, without a final newline. labels: further ones of all samples."""
    by_family: dict[str, list[str]] = {family.name: [] for family in FAMILIES}
    for sample in samples:
        by_family[sample.family.name].append(_line(sample, labels or {}))
    lines = []
    for family in FAMILIES:
        if by_family[family.name]:
            lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
            lines += by_family[family.name]
    return "\n".join(lines)


def _line(sample: Sample, labels: Mapping[str, str]) -> str:
    named = {**sample.labels, **labels}
    texts = ", ".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in named.items())
    return f"{sample.family.name}{{{texts}}} {sample.value}"
