"""The commit of a write of job schedulers, on the driver."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence

from spark_bull.core.errors import OptionError
from spark_bull.core.model.queues import WriteRecord
from spark_bull.core.queue.dispatch.stages import QueuePlan
from spark_bull.core.queue.schedule.schedulers import warn_of_frequent
from spark_bull.spark.schedule.plan import SchedulePlan
from spark_bull.spark.staging.commit import commit_staged
from spark_bull.spark.staging.messages import CommitMessage, TaskPart

log = logging.getLogger("spark_bull")


def commit_schedulers(plan: SchedulePlan, written: Sequence[CommitMessage]) -> None:
    """Registers the staged job schedulers, then creates or changes them, partition by partition.

    Raises OptionError if two rows have the same id; then nothing was changed.
    """
    parts = [part for message in written for part in message.parts]
    _check_ids(parts)

    def warn(plans: Sequence[QueuePlan]) -> None:
        for keys in (queue_plan.handle.keys for queue_plan in plans):
            frequent = [one for part in parts if part.queue == keys.queue for one in part.frequent]
            if frequent:
                warn_of_frequent(keys, frequent)

    commit_staged(plan, written, _report, "the job schedulers were written", after=warn)


def twice(scheduler_id: str, queue: str, where: str) -> OptionError:
    """The error for a job scheduler that a write has twice."""
    return OptionError(
        f"expected each `id` once, got {scheduler_id!r} of queue {queue} twice ({where}): keep one of the rows, as "
        "their order is not defined"
    )


def _check_ids(parts: Sequence[TaskPart]) -> None:
    seen: dict[str, set[str]] = defaultdict(set)
    for part in parts:
        for scheduler_id in seen[part.queue].intersection(part.schedulers):
            raise twice(scheduler_id, part.queue, "in two partitions")
        seen[part.queue].update(part.schedulers)


def _report(record: WriteRecord) -> None:
    log.info(
        "write %s: %d job schedulers of queue %s created or changed, %s ms",
        record.id,
        record.added,
        record.queue,
        record.duration_ms,
    )
    if record.rejected:
        log.warning(
            "write %s: %d job schedulers of queue %s were not changed, as a job with the id of their next one exists: "
            "remove these jobs, or write the job schedulers again when they have been removed",
            record.id,
            record.rejected,
            record.queue,
        )
