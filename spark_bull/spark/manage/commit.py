"""The commit of a write that changes jobs, on the driver."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from spark_bull.core.errors import SparkBullError, restated
from spark_bull.core.model.jobs import Changed
from spark_bull.core.model.queues import WriteRecord
from spark_bull.core.queue.dispatch.stages import Identity, QueuePlan, is_written
from spark_bull.core.queue.dispatch.write_records import read_outcomes
from spark_bull.core.queue.manage.changes import error_of
from spark_bull.core.queue.manage.verbs import check_managed
from spark_bull.spark.manage.plan import ManagePlan
from spark_bull.spark.manage.result_file import write_outcomes
from spark_bull.spark.staging.commit import commit_staged
from spark_bull.spark.staging.messages import CommitMessage

log = logging.getLogger("spark_bull")


def commit_changes(plan: ManagePlan, written: Sequence[CommitMessage]) -> None:
    """Registers the staged changes, then makes them, partition by partition.

    With `onMismatch=fail`, raises the error of the first job that can't be changed, before any is changed.
    """
    fails, path = plan.options.on_mismatch == "fail", plan.options.result_path
    records: list[WriteRecord] = []

    def check(plans: Sequence[QueuePlan]) -> None:
        if fails:
            _check(plans, plan.identity_in(written))

    def note(plans: Sequence[QueuePlan]) -> None:
        if path is not None:
            _write_outcomes(path, plan.write_id_in(written), plans)

    def report(record: WriteRecord) -> None:
        records.append(record)
        _report(record)

    commit_staged(plan, written, report, "the jobs were changed", before=check, after=note)
    skipped = sum(record.jobs - record.changed for record in records)
    if fails and skipped:
        raise SparkBullError(
            f"{skipped:,} of {sum(record.jobs for record in records):,} jobs were not changed, as others have changed "
            "them since they were checked (`onMismatch=fail`); all others were: don't run this write again, see "
            "view=writes"
        )


def _check(plans: Sequence[QueuePlan], identity: Identity | None) -> None:
    """Raises the error of the first job that can't be changed."""
    for queue_plan in plans:
        handle = queue_plan.handle
        if identity is not None and is_written(handle, identity):
            continue
        for part in queue_plan.parts:
            for number in range(part.chunks):
                found = check_managed(handle, part.stage, number)
                if found is not None:
                    error = error_of(handle, Changed(*found))
                    raise SparkBullError(
                        f"no job was changed (`onMismatch=fail`): the action {found[1]} is not possible: {error}"
                    ) from error


def _report(record: WriteRecord) -> None:
    log.info(
        "write %s: %d of %d jobs of queue %s changed, %d missing, %d locked, %d in a wrong state, %s ms",
        record.id,
        record.changed,
        record.jobs,
        record.queue,
        record.missing,
        record.locked,
        record.wrong_state,
        record.duration_ms,
    )


def _write_outcomes(path: str, write_id: str, plans: Sequence[QueuePlan]) -> None:
    def outcomes() -> Iterator[tuple[str, Changed]]:
        for queue_plan in plans:
            for changed in read_outcomes(queue_plan.handle, write_id):
                yield queue_plan.handle.keys.queue, changed

    try:
        name = write_outcomes(path, write_id, outcomes())
    except SparkBullError as error:
        raise restated(
            error,
            "the jobs were changed, but the file with the outcomes was not written: don't run this write again; "
            f'BullQueue.outcomes("{write_id}") of each queue reads them for 30 days. Cause: {error}',
        ) from error
    log.info("write %s: outcomes are in %s", write_id, name)
    for queue_plan in plans:
        queue_plan.handle.connection.call("UNLINK", queue_plan.handle.keys.outcomes(write_id))
