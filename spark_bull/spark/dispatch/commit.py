"""The commit of a write on the driver: registers and adds the staged jobs, or discards them."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

from spark_bull.errors import SparkBullError
from spark_bull.model.jobs import WriteRecord
from spark_bull.queue.core.handle import QueueHandle
from spark_bull.queue.core.replication import record_replicas, replica_terms_of, wait_for_replicas
from spark_bull.queue.core.room import length_limit_of
from spark_bull.queue.dispatch.callbacks import drop_callback
from spark_bull.queue.dispatch.writes import Identity, QueuePlan, StagedPart, open_writes, read_record, roll_forward
from spark_bull.spark.dispatch.write_plan import WritePlan
from spark_bull.spark.staging.commit import discard_stages, finish_write, recover_queues, register_write
from spark_bull.spark.staging.messages import TaskPart, Written

log = logging.getLogger("spark_bull")


def commit_write(plan: WritePlan, written: list[Written], identity: Identity | None) -> None:
    """Registers the staged chunks, then adds their jobs, partition by partition.

    Raises StagedDataLost if staged chunks are missing, after adding the jobs of all other queues. Any other
    SparkBullError names the queues that remain to be recovered.
    """
    write_id = written[0].write_id if written else plan.write_id
    plans = _with_callback(plan, _queue_plans(plan, written), write_id, identity)
    if plan.handle is None:
        recover_queues(plans)
    registered = register_write(write_id, plans, identity, exactly_once=plan.exactly_once)
    if registered:
        finish_write(write_id, plans, _report)
    else:
        log.info("write %s: nothing added, because it was committed before (%s)", write_id, identity)
        _finish_earlier(plan, plans, identity)
    _confirm(plan, write_id, plans, is_new=registered)


def commit_empty(plan: WritePlan, identity: Identity | None) -> None:
    """Ends a micro-batch whose tasks had nothing to send: it has no rows, or was committed before.

    In the latter case, the terms of the write hold, too: it waits for room, and for replicas.
    """
    if plan.handle is not None:
        plans = [_queue_plan(plan, plan.handle, [], plan.started_on)]
        _finish_earlier(plan, plans, identity)
        _confirm(plan, plan.write_id, plans, is_new=False)


def _finish_earlier(plan: WritePlan, plans: list[QueuePlan], identity: Identity | None) -> None:
    """Finishes writes of the same query or application that were registered before, and still wait for room."""
    if identity is None or plan.options["whenFull"] != "wait" or not plan.exactly_once:
        return
    for handle in (queue_plan.handle for queue_plan in plans):
        for write_id in open_writes(handle):
            record = read_record(handle, write_id)
            if record is not None and record.app_id == identity.app_id:
                _report(roll_forward(handle, write_id))


def _confirm(plan: WritePlan, write_id: str, plans: list[QueuePlan], *, is_new: bool) -> None:
    """Waits until enough replicas of Redis have the write, if it has such terms: also when it was committed before."""
    terms = replica_terms_of(plan.options)
    if terms is None or plan.primary is None or not plans:
        return
    handle = plans[0].handle
    replicas = wait_for_replicas(handle.connection, handle.keys, terms, plan.primary)
    log.info("write %s: %d replicas have its jobs", write_id, replicas)
    try:
        for queue_plan in plans if is_new else []:
            record_replicas(handle.connection, queue_plan.handle.keys, write_id, replicas)
    except SparkBullError as error:
        log.warning("write %s: its record lacks the number of replicas: %s", write_id, error)


def _report(record: WriteRecord) -> None:
    log.info(
        "write %s: %d jobs added to queue %s, %d duplicates, %d deduplicated, %s ms",
        record.id,
        record.added,
        record.queue,
        record.duplicates,
        record.deduplicated,
        record.duration_ms,
    )
    if record.rejected:
        log.warning(
            "write %s: %d jobs were not added to queue %s: their parent has gone or depends on them, or they have "
            "another one by now",
            record.id,
            record.rejected,
            record.queue,
        )
    if record.dropped:
        log.warning("write %s: %d jobs were dropped, as queue %s was full", record.id, record.dropped, record.queue)


def _queue_plans(plan: WritePlan, written: list[Written]) -> list[QueuePlan]:
    started_on = plan.begun_on(written)
    return [_queue_plan(plan, handle, parts, started_on) for handle, parts in plan.handles_and_parts(written)]


def _with_callback(
    plan: WritePlan, plans: list[QueuePlan], write_id: str, identity: Identity | None
) -> list[QueuePlan]:
    """Adds the callback of the write to the plans, if it has one. A write without rows is one to its queue."""
    on_finish = plan.on_finish
    if on_finish is None:
        return plans
    plans = plans or [_queue_plan(plan, plan.handle_of(on_finish.job.queue), [], plan.started_on)]
    queues = [queue_plan.handle.keys.queue for queue_plan in plans] if plan.exactly_once else None
    callback = on_finish.callback(write_id, identity, queues).text
    return [replace(one, fields={**one.fields, "callback": callback}) for one in plans]


def _queue_plan(plan: WritePlan, handle: QueueHandle, parts: list[TaskPart], started_on: int) -> QueuePlan:
    staged = [StagedPart(part.stage, part.chunks, part.rows) for part in parts if part.stage]
    fields: dict[str, str | int] = {
        "delivery": "exactly-once" if plan.exactly_once else "at-least-once",
        "startedOn": started_on,
        "jobs": sum(part.rows for part in parts),
    }
    if plan.children is not None:
        fields["flows"] = json.dumps(sorted({queue for part in parts for queue in part.flow_queues}))
    if plan.options["keepIds"]:
        fields["keepsIds"] = 1
    if plan.exactly_once and plan.replaces:
        fields["replace"] = 1
    if not plan.exactly_once:
        fields["position"] = fields["jobs"]
        fields["added"] = sum(part.added for part in parts)
        fields["duplicates"] = sum(part.duplicates for part in parts)
        fields["deduplicated"] = sum(part.deduplicated for part in parts)
        fields["rejected"] = sum(part.rejected for part in parts)
        fields["dropped"] = sum(part.dropped for part in parts)
    limit = length_limit_of(plan.options)
    if limit is not None and plan.exactly_once:
        fields |= limit.fields
    return QueuePlan(handle, staged, fields)


def _drop_callback(plan: WritePlan, written: list[Written], identity: Identity | None) -> None:
    """Removes the callback of a failed write with at-least-once delivery, unless jobs were added.

    That of a registered write, of which only the commit has failed, stays for whoever finishes the write.
    """
    if plan.on_finish is None or plan.exactly_once:
        return
    write_id = written[0].write_id if written else plan.write_id
    queues = [part.queue for message in written for part in message.parts]
    first = plan.handle or plan.on_finish.handle
    handle = replace(first, keys=replace(first.keys, queue=queues[0])) if queues else first
    if read_record(handle, write_id) is not None:
        return
    callback = plan.on_finish.callback(write_id, identity)
    if not drop_callback(plan.on_finish.handle, callback):
        log.warning(
            "job %s of queue %s (`onFinish`) can't start, as the write failed after it had added jobs: repeat the "
            "write (a stream does; a batch with the same `txnAppId` and `txnVersion`), or remove the job",
            callback.id,
            callback.job.queue,
        )


def abort_write(plan: WritePlan, written: list[Written], identity: Identity | None) -> None:
    """Discards the staged chunks of a failed write, and its callback."""
    if discard_stages(plan.options, written):
        try:
            _drop_callback(plan, written, identity)
        except SparkBullError as error:
            log.warning("could not remove the callback of a failed write: %s", error)
