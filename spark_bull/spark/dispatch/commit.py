"""The commit of a write on the driver: registers and adds the staged jobs, or discards them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from spark_bull.core.errors import SparkBullError
from spark_bull.core.model.queues import WriteRecord
from spark_bull.core.queue.dispatch.write_records import QueuePlan
from spark_bull.spark.dispatch.plan import WritePlan
from spark_bull.spark.staging.commit import commit_staged, discard_stages
from spark_bull.spark.staging.plan import CommitMessage

log = logging.getLogger("spark_bull")


def commit_write(plan: WritePlan, written: list[CommitMessage]) -> None:
    """Registers the staged chunks, then adds their jobs, partition by partition."""
    for feature in plan.features:
        written = feature.committing(plan, written)

    def finish_earlier(plans: Sequence[QueuePlan]) -> None:
        for feature in plan.features:
            for record in feature.repeated(plan, plans, plan.identity_in(written)):
                _report(record)

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


def abort_write(plan: WritePlan, written: list[CommitMessage]) -> None:
    """Discards the staged chunks of a failed write, and what its features have left."""
    if not discard_stages(plan, written):
        return
    for feature in plan.features:
        try:
            feature.aborted(plan, written)
        except SparkBullError as error:
            log.warning("could not undo all of a failed write: %s", error)
