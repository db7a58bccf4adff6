"""The end of a write on the driver: register and add what the tasks staged, or forget it."""

from __future__ import annotations

import logging
from collections import defaultdict

from spark_bull.connection import Connection, settings_of
from spark_bull.errors import ConnectionLost, SparkBullError
from spark_bull.spark.write_plan import Part, Plan, Written
from spark_bull.staging import Identity, QueuePlan, StagedPart, discard, recover, register, roll_forward

log = logging.getLogger("spark_bull")


def commit_write(plan: Plan, written: list[Written], identity: Identity | None) -> None:
    """Registers what the tasks staged, then adds the jobs, partition after partition."""
    plans = _queue_plans(plan, written)
    if plan.handle is None:
        for queue_plan in plans:
            recover(queue_plan.handle)
    write_id = written[0].write_id if written else plan.write_id
    if not register(write_id, plans, identity):
        log.info("write %s was done before (%s): nothing added", write_id, identity)
        return
    for queue_plan in plans:
        try:
            record = roll_forward(queue_plan.handle, write_id, _log_progress)
        except ConnectionLost as error:
            raise ConnectionLost(
                f"don't run this write again: it is registered as {write_id}, and the next write to queue "
                f"{queue_plan.handle.keys.queue}, or `spark-bull recover`, adds what is left of it. "
                f"What happened: {error}"
            ) from error
        log.info(
            "write %s: %d jobs added to queue %s, %d duplicates, %s ms",
            write_id,
            record.added,
            record.queue,
            record.duplicates,
            record.duration_ms,
        )


def _queue_plans(plan: Plan, written: list[Written]) -> list[QueuePlan]:
    by_queue: dict[str, list[Part]] = defaultdict(list)
    if plan.handle is not None:
        by_queue[plan.handle.keys.queue] = []
    for message in written:
        for part in message.parts:
            by_queue[part.queue].append(part)
    # Each batch of a stream is planned twice: for its tasks, and for its commit.
    started_on = min([plan.started_on, *(message.started_on for message in written)])
    return [_queue_plan(plan, queue, parts, started_on) for queue, parts in by_queue.items()]


def _queue_plan(plan: Plan, queue: str, parts: list[Part], started_on: int) -> QueuePlan:
    handle = plan.handle_of(queue, parts[0].dialect if parts else None)
    staged = [StagedPart(part.stage, part.chunks, part.rows) for part in parts if part.stage]
    fields: dict[str, str | int] = {
        "delivery": plan.options["delivery"],
        "startedOn": started_on,
        "jobs": sum(part.rows for part in parts),
    }
    if plan.exactly_once and plan.replaces:
        fields["replace"] = 1
    if not plan.exactly_once:
        fields["position"] = fields["jobs"]
        fields["added"] = sum(part.added for part in parts)
        fields["duplicates"] = sum(part.duplicates for part in parts)
    return QueuePlan(handle, staged, fields)


def _log_progress(done: int, total: int) -> None:
    log.debug("%d of %d jobs added", done, total)


def abort_write(plan: Plan, written: list[Written]) -> None:
    """Forgets what the tasks of a failed write staged; their TTL would do so anyway."""
    stages = [part.stage for message in written for part in message.parts if part.stage]
    try:
        discard(Connection(settings_of(plan.options)), stages)
    except SparkBullError as error:
        log.warning("staged chunks of a failed write stay until their TTL ends: %s", error)
