"""Settings of the claims of a slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spark_bull.core.model.limits import GroupLimits, Limiter

#: The settings of a worker for jobs that end without one: no limits of groups, and no metrics.
NO_WORKER: Final = {"group": "", "max_metrics": 0}


@dataclass(frozen=True)
class ClaimSettings:
    """Settings of a slot's claims. `sender` names its receipt.

    lock_ms: lifetime of locks without `extend`. worker: name that BullMQ shows as processedBy, or empty. limiter: at
    most `max` jobs of the queue start per `duration` ms, unless the queue's meta has other values. max_metrics: minutes
    of metrics to keep, 0: none are written. control: key that says "stop", "end" or "pause". counters: key of
    the numbers of jobs of the worker. at_once: how many claimed jobs start at once; while the queue or its groups have
    a limit, no more are claimed. None: all. group: the limits of each group of jobs.
    """

    sender: str
    lock_ms: int = 30_000
    worker: str = ""
    limiter: Limiter | None = None
    max_metrics: int = 0
    control: str = ""
    counters: str = ""
    at_once: int | None = None
    group: GroupLimits | None = None


def default_worker(worker_id: str) -> str:
    """The name that BullMQ shows as processedBy when the user gave none."""
    return f"spark-{worker_id}"
