"""How many slots the jobs of a queue need, for a program that starts workers, such as KEDA in Kubernetes."""

from __future__ import annotations

from math import ceil

from spark_bull.model.jobs import JobStats
from spark_bull.model.slots import slots_for


def wanted_slots_of(stats: JobStats, window_ms: int, sample: int, target_wait_s: float) -> int:
    """The number of slots that keep up with the queue, and start the waiting jobs within `target_wait_s`.

    stats: of all jobs that the queue has, of this window and this sample. A slot processes one job at a time. While
    nothing is known of the duration of jobs, one slot is wanted.
    """
    waiting = stats.jobs.get("wait", 0) + stats.jobs.get("prioritized", 0)
    finished_per_s = stats.finished_per_s or 0.0
    # If not all jobs were read that have ended, the work is an estimate for all of them.
    ended = stats.timed if stats.timed < sample else max(stats.timed, finished_per_s * window_ms / 1_000)
    work_s = (stats.work_ms or 0) / 1_000
    busy = finished_per_s * work_s / ended if ended else 0.0
    for_backlog = slots_for(waiting, ended / work_s if work_s else None, target_wait_s)
    return max(ceil(max(busy, for_backlog)), int(waiting > 0 or stats.jobs.get("active", 0) > 0))
