"""Registers the staged chunks of a write and rolls them forward, or discards them; on the driver."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from spark_bull.core.errors import ConnectionLost, SparkBullError, StagedDataLost, restated
from spark_bull.core.keys import QueueKeys
from spark_bull.core.queue.dispatch.registration import leader_of, register
from spark_bull.core.queue.dispatch.roll_forward import (
    KnownWrites,
    lost_batch,
    pass_batch,
    recover,
    report_losses,
    roll_forward,
)
from spark_bull.core.queue.dispatch.write_records import Identity, QueuePlan, discard
from spark_bull.core.queue.handle.admission import JOBS_ADDED, record_replicas, replica_terms_of, wait_for_replicas
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.round_trips import all_together, batches_together
from spark_bull.spark.staging.plan import CommitMessage, StagedPlan

if TYPE_CHECKING:
    from spark_bull.core.model.queues import WriteRecord

log = logging.getLogger("spark_bull")

#: Gets the parts of a write for its queues.
Step: TypeAlias = Callable[[Sequence[QueuePlan]], None]

#: Maximum number of queues named in a message.
_MAX_SHOWN: Final = 5

#: Spark runs the commits of a session in few processes, which it keeps for a minute.
_known: Final = KnownWrites()


def _nothing(plans: Sequence[QueuePlan]) -> None:
    """What most writes do before and after their registration."""


def reporting(done: str, **warnings: str) -> Callable[[WriteRecord], None]:
    """Returns a function that logs what a write has done to a queue, by its record.

    done, warnings: texts with fields of the record; a warning is logged if the field with its name is not 0.
    """

    def report(record: WriteRecord) -> None:
        said = {**vars(record), "duration_ms": record.duration_ms}
        log.info(f"write %(id)s: {done}, %(duration_ms)s ms", said)
        for name, text in warnings.items():
            if said[name]:
                log.warning(f"write %(id)s: {text}", said)

    return report


def commit_staged(
    plan: StagedPlan[Any],
    written: Sequence[CommitMessage],
    report: Callable[[WriteRecord], None],
    done: str = JOBS_ADDED,
    *,
    before: Step = _nothing,
    after: Step = _nothing,
    repeated: Step = _nothing,
) -> None:
    """Registers a write and rolls it forward, partition by partition, unless it was committed before; then waits for
    replicas, if it has such terms.

    report: called with the record for each queue. done: what the write has done, for errors. before, after: called
    before the registration, and after the last row. repeated: called instead, if the write was committed before; also
    for a micro-batch without rows, which keeps its terms. Raises the errors of `_commit_rows`, and NotReplicated.
    """
    if plan.has_nothing(written):
        _commit_nothing(plan, written)
        plans, is_new = plan.idle_plans(written), False
    else:
        plans = plan.queue_plans(written)
        is_new = _commit_rows(plan, written, plans, report, before)
    (after if is_new else repeated)(plans)
    _confirm_replicas(plan, plan.write_id_in(written), plans, is_new=is_new, done=done)


def _commit_rows(
    plan: StagedPlan[Any],
    written: Sequence[CommitMessage],
    plans: Sequence[QueuePlan],
    report: Callable[[WriteRecord], None],
    before: Step,
) -> bool:
    """Returns False if the write was committed before.

    With `failOnDataLoss`, raises DataLost before the registration if an earlier write is lost. Raises StagedDataLost if
    staged chunks are missing, after finishing all other queues. Any other SparkBullError names the queues that remain
    to be recovered.
    """
    write_id, identity = plan.write_id_in(written), plan.identity_in(written)
    all_together([one for one in plans if one.handle is not plan.handle], lambda one: recover(one.handle))
    _check_losses(plan, identity, [one.handle for one in plans])
    before(plans)
    try:
        is_registered = register(write_id, plans, identity)
    except ConnectionLost as error:
        if not plan.exactly_once:
            raise
        raise ConnectionLost(
            f"it is not known whether this write is registered. If `spark-bull writes "
            f"{leader_of(plans).handle.keys.queue}` lists {write_id}, don't run it again: the next write, or "
            f"`spark-bull recover` for each queue, finishes it. Otherwise nothing was written. Cause: {error}"
        ) from error
    if is_registered:
        for one in plans:
            _known.add(one.handle, write_id, plan.started_on)
        _finish(write_id, plans, report)
    else:
        _tell_of_repetition(plan, write_id, identity)
    return is_registered


def _tell_of_repetition(plan: StagedPlan[Any], write_id: str, identity: Identity | None) -> None:
    """Warns of a batch that has added nothing. A stream repeats its last micro-batch whenever it is started again."""
    log.log(
        logging.INFO if plan.is_stream else logging.WARNING,
        "write %s: nothing changed, because this version, or a later one, was committed before (%s). Its jobs are not "
        "added again, even if their queue was deleted: for that, use a higher txnVersion",
        write_id,
        identity,
    )


def _confirm_replicas(
    plan: StagedPlan[Any], write_id: str, plans: Sequence[QueuePlan], *, is_new: bool, done: str
) -> None:
    """Waits until enough replicas of Redis have the write, if it has such terms. Raises NotReplicated."""
    terms = replica_terms_of(plan.options)
    if terms is None or not plan.primaries or not plans:
        return
    # One server has one stream of replication.
    servers = plans if plans[0].handle.connection.is_divided else plans[:1]
    handles = [one.handle for one in servers]
    replicas = min(wait_for_replicas(one.connection, one.keys, terms, plan.primaries, done) for one in handles)
    log.info("write %s: %d replicas have it", write_id, replicas)
    try:
        for queue_plan in plans if is_new else []:
            record_replicas(queue_plan.handle.connection, queue_plan.handle.keys, write_id, replicas)
    except SparkBullError as error:
        log.warning("write %s: its record lacks the number of replicas: %s", write_id, error)


def _commit_nothing(plan: StagedPlan[Any], written: Sequence[CommitMessage]) -> None:
    """Notes that a micro-batch was committed that has nothing to send. Raises DataLost as `_commit_rows`."""
    identity = plan.identity_in(written)
    if plan.handle is not None and identity is not None:
        _check_losses(plan, identity, [plan.handle])
        pass_batch(plan.handle, identity)


def _check_losses(plan: StagedPlan[Any], identity: Identity | None, handles: Sequence[QueueHandle]) -> None:
    """Logs, or raises, that Redis has lost earlier writes of this process, or of the query.

    A query commits one micro-batch after the other, so the number of the last one is known after a restart, too.
    """
    lost = _known.lost([handle for handle in handles if _known.has(handle)])
    if not lost and plan.is_stream and plan.handle is not None and identity is not None:
        before = lost_batch(plan.handle, identity)
        lost = [] if before is None else [before]
    report_losses(lost, strict=plan.options.fail_on_data_loss)


def _finish(write_id: str, plans: Sequence[QueuePlan], report: Callable[[WriteRecord], None]) -> None:
    """Rolls a registered write forward in all of its queues, many at a time; calls report(record) for each."""
    lost: list[StagedDataLost] = []
    left = plans
    # Those with room first: a full queue does not hold up the others.
    for waits in (False, True):
        left = _roll_all_forward(write_id, left, report, lost, waits=waits)
    if lost:
        others = (
            f"; the rows of the other {len(plans) - len(lost)} queues were committed" if len(plans) > len(lost) else ""
        )
        raise StagedDataLost("; ".join(str(error) for error in lost[:_MAX_SHOWN]) + others) from lost[0]


def _roll_all_forward(
    write_id: str,
    plans: Sequence[QueuePlan],
    report: Callable[[WriteRecord], None],
    lost: list[StagedDataLost],
    *,
    waits: bool,
) -> list[QueuePlan]:
    """Rolls a write forward in these queues; returns those that have to wait for room, none if `waits`.

    lost: receives the errors of queues whose staged chunks are missing: the others can still be finished.
    """
    left: list[QueuePlan] = []
    started = 0
    for batch in batches_together(plans, lambda plan: roll_forward(plan.handle, write_id, _log_progress, waits=waits)):
        started += len(batch)
        cause: SparkBullError | None = None
        for plan, result in batch:
            if isinstance(result, StagedDataLost):
                lost.append(result)
            elif isinstance(result, SparkBullError):
                left.append(plan)
                cause = cause or result
            elif result.state == "open":
                left.append(plan)
            else:
                report(result)
        if cause is not None:
            names = _names([one.handle.keys.queue for one in (*left, *plans[started:])])
            raise restated(
                cause,
                f"don't run this write again: it is registered as {write_id}, and the next write to queue "
                f"{names}, or `spark-bull recover` for each, finishes it. Cause: {cause}",
            ) from cause
    return left


def discard_stages(plan: StagedPlan[Any], written: Sequence[CommitMessage]) -> bool:
    """Discards the staged chunks of a failed write. Returns False if this fails: then they expire (`stageTtlMs`)."""
    connection = Connection(plan.options.redis)
    stages: dict[tuple[str, str], list[str]] = defaultdict(list)
    for message in written:
        for part in message.parts:
            if part.stage:
                stages[part.queue, message.write_id].append(part.stage)
    try:
        for (queue, write_id), staged in stages.items():
            discard(connection, QueueKeys(queue, plan.options.prefix), write_id, staged)
    except SparkBullError as error:
        log.warning("could not discard the staged chunks of a failed write, they expire later: %s", error)
        return False
    return True


def _names(queues: list[str]) -> str:
    """Lists the first queues by name."""
    more = f" and {len(queues) - _MAX_SHOWN} more" if len(queues) > _MAX_SHOWN else ""
    return ", ".join(queues[:_MAX_SHOWN]) + more


def _log_progress(done: int, total: int) -> None:
    log.debug("%d of %d jobs added", done, total)
