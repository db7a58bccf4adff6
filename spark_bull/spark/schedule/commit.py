"""The commit of a write of job schedulers, on the driver."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence

from spark_bull.core.model.jobs import WriteRecord
from spark_bull.core.queue.schedule.schedulers import warn_of_frequent
from spark_bull.spark.schedule.plan import SchedulePlan
from spark_bull.spark.schedule.task import twice
from spark_bull.spark.staging.commit import commit_nothing, commit_staged, confirm_again, confirm_replicas
from spark_bull.spark.staging.messages import TaskPart, Written

log = logging.getLogger("spark_bull")


def commit_schedulers(plan: SchedulePlan, written: Sequence[Written]) -> None:
    """Registers the staged job schedulers, then creates or changes them, partition by partition.

    Raises OptionError if two rows have the same id; then nothing was changed.
    """
    if plan.has_nothing(written):
        commit_nothing(plan, written)
        confirm_again(plan, written)
        return
    parts = [part for message in written for part in message.parts]
    _check_ids(parts)
    plans = plan.queue_plans(written)
    registered = commit_staged(plan, written, plans, _report)
    done = "the job schedulers were written"
    confirm_replicas(plan, plan.write_id_in(written), plans, is_new=registered, done=done)
    if registered:
        for queue_plan in plans:
            keys = queue_plan.handle.keys
            frequent = [one for part in parts if part.queue == keys.queue for one in part.frequent]
            if frequent:
                warn_of_frequent(keys, frequent)


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
