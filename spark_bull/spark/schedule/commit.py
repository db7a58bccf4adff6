"""The commit of a write of schedules, on the driver."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence

from spark_bull.model.jobs import WriteRecord
from spark_bull.queue.dispatch.writes import Identity, QueuePlan, StagedPart
from spark_bull.queue.schedule.schedulers import warn_of_frequent
from spark_bull.spark.schedule.plan import SchedulePlan, WrittenSchedules
from spark_bull.spark.schedule.task import twice
from spark_bull.spark.staging.commit import finish_write, recover_queues, register_write

log = logging.getLogger("spark_bull")


def commit_schedules(plan: SchedulePlan, written: Sequence[WrittenSchedules], identity: Identity | None) -> None:
    """Registers the staged schedules, then creates or changes them, partition by partition.

    Raises OptionError if two rows have the same id; then nothing was changed.
    """
    write_id = written[0].write_id if written else plan.write_id
    _check_ids(written)
    plans = _queue_plans(plan, written)
    if plan.handle is None:
        recover_queues(plans)
    if not register_write(write_id, plans, identity):
        log.info("write %s: nothing changed, because it was committed before (%s)", write_id, identity)
        return
    _warn(plans, written)
    finish_write(write_id, plans, _report)


def _check_ids(written: Sequence[WrittenSchedules]) -> None:
    seen: dict[str, set[str]] = defaultdict(set)
    for message in written:
        for queue, ids in (message.ids or {}).items():
            for schedule_id in seen[queue].intersection(ids):
                raise twice(schedule_id, queue, "in two partitions")
            seen[queue].update(ids)


def _queue_plans(plan: SchedulePlan, written: Sequence[WrittenSchedules]) -> list[QueuePlan]:
    fields: dict[str, str | int] = {"mode": "schedule", "startedOn": plan.begun_on(written)}
    return [
        QueuePlan(handle, [StagedPart(part.stage, part.chunks, part.rows) for part in parts], fields)
        for handle, parts in plan.handles_and_parts(written)
    ]


def _warn(plans: Sequence[QueuePlan], written: Sequence[WrittenSchedules]) -> None:
    for queue_plan in plans:
        keys = queue_plan.handle.keys
        ids = [one for message in written for one in (message.frequent or {}).get(keys.queue, ())]
        if ids:
            warn_of_frequent(keys, ids)


def _report(record: WriteRecord) -> None:
    log.info(
        "write %s: %d schedules of queue %s created or changed, %s ms",
        record.id,
        record.added,
        record.queue,
        record.duration_ms,
    )
    if record.rejected:
        log.warning(
            "write %s: %d schedules of queue %s were not changed, as a job with the id of their next one exists: "
            "remove these jobs, or write the schedules again when they have been removed",
            record.id,
            record.rejected,
            record.queue,
        )
