"""The commit of a write on the driver: registers and adds the staged jobs, or discards them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from spark_bull.core.errors import SparkBullError
from spark_bull.core.model.jobs import WriteRecord
from spark_bull.core.queue.dispatch.callbacks import drop_callback
from spark_bull.core.queue.dispatch.writes import QueuePlan, open_writes, read_record, roll_forward
from spark_bull.spark.dispatch.depends_on import with_graph
from spark_bull.spark.dispatch.write_plan import WritePlan
from spark_bull.spark.staging.commit import commit_staged, discard_stages
from spark_bull.spark.staging.messages import CommitMessage

log = logging.getLogger("spark_bull")


def commit_write(plan: WritePlan, written: list[CommitMessage]) -> None:
    """Registers the staged chunks, then adds their jobs, partition by partition."""
    written = with_graph(plan, written)
    identity = plan.identity_in(written)

    def finish_earlier(plans: Sequence[QueuePlan]) -> None:
        """Finishes writes of the same query or application that were registered before, and still wait for room."""
        if identity is None or plan.options["whenFull"] != "wait" or not plan.exactly_once:
            return
        for handle in (queue_plan.handle for queue_plan in plans):
            for write_id in open_writes(handle):
                record = read_record(handle, write_id)
                if record is not None and record.app_id == identity.app_id:
                    _report(roll_forward(handle, write_id))

    commit_staged(plan, written, _report, repeated=finish_earlier)


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


def _drop_callback(plan: WritePlan, written: list[CommitMessage]) -> None:
    """Removes the callback of a failed write with at-least-once delivery, unless jobs were added.

    That of a registered write, of which only the commit has failed, stays for whoever finishes the write.
    """
    if plan.on_finish is None or plan.exactly_once:
        return
    write_id = plan.write_id_in(written)
    queues = [part.queue for message in written for part in message.parts]
    first = plan.handle or plan.on_finish.handle
    handle = replace(first, keys=replace(first.keys, queue=queues[0])) if queues else first
    if read_record(handle, write_id) is not None:
        return
    callback = plan.on_finish.callback(write_id, plan.identity_in(written))
    if not drop_callback(plan.on_finish.handle, callback):
        log.warning(
            "job %s of queue %s (`onFinish`) can't start, as the write failed after it had added jobs: repeat the "
            "write (a stream does; a batch with the same `txnAppId` and `txnVersion`), or remove the job",
            callback.id,
            callback.job.queue,
        )


def abort_write(plan: WritePlan, written: list[CommitMessage]) -> None:
    """Discards the staged chunks of a failed write, and its callback.

    A micro-batch without finished tasks is unknown here; its callback stays for the batch that repeats it.
    """
    if discard_stages(plan, written):
        try:
            _drop_callback(plan, written)
        except SparkBullError as error:
            log.warning("could not remove the callback of a failed write: %s", error)
