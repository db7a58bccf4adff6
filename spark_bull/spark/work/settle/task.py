"""One task attempt of mode=settle: a chunk at a time, in one call of a script, or in several if it adds many jobs."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from spark_bull.core.errors import DialectError
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.outcomes import LOST, Claim, ClaimedJob, Failed, FollowUp, Keep, Outcomes
from spark_bull.core.queue.handle.handle import RECEIPT_TTL_MS, QueueHandle, open_handle
from spark_bull.core.queue.work.claim import CLAIM_BYTES, read_claimed, work
from spark_bull.core.queue.work.verbs import CLAIMS_TTL_MS
from spark_bull.run.job.job_options import keep_of
from spark_bull.run.job.outcome_policy import fail_blocked, strategy_for
from spark_bull.run.job.outcomes import Outcome, failure
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.slot.slot_report import FailedAttempt, Failures
from spark_bull.spark.dispatch.jobs_column import JobsColumn
from spark_bull.spark.platform.datasource import begin_task
from spark_bull.spark.work.settle.plan import THEN, SettlePlan
from spark_bull.spark.work.settle.rows import (
    Completed,
    Row,
    all_completed,
    by_queue_and_reader,
    read_follow_ups,
    without_repeats,
)

log = logging.getLogger("spark_bull")

#: What becomes of a job, or that its outcome was rejected.
RowOutcome = Literal["completed", "failed", "retried", "returned", "lost"]


class Settled(WriterCommitMessage):
    """What one task has settled: the number of outcomes by kind, and the failures that are to be logged."""

    def __init__(self, counts: Mapping[RowOutcome, int], failures: Sequence[FailedAttempt] = ()) -> None:
        self.counts = dict(counts)
        self.failures = list(failures)


def settle_task(plan: SettlePlan, batches: Iterator[pa.RecordBatch]) -> Settled:
    """Settles the rows of one task attempt, a chunk at a time."""
    begin_task()
    size, counts, handles = int(plan.options.chunk_size), Counter[RowOutcome](), plan.ask(plan.handles)
    failures = Failures()
    for batch in batches:
        for start in range(0, batch.num_rows, size):
            part = batch.slice(start, size)
            completed = all_completed(plan, part)
            if completed is not None:
                handle = _handle_of(plan, handles, completed.queue)
                counts.update(_Chunk(plan, handle, completed.reader, failures).complete(completed))
                continue
            then = part.column(plan.columns[THEN]) if plan.follow_ups else None
            for (queue, reader), rows in by_queue_and_reader(plan, part).items():
                chunk = _Chunk(plan, _handle_of(plan, handles, queue), reader, failures)
                for of_different_jobs in without_repeats(rows):
                    counts.update(chunk.settle(of_different_jobs, then))
    return Settled(counts, failures.last)


def _handle_of(plan: SettlePlan, handles: dict[str, QueueHandle], queue: str) -> QueueHandle:
    if queue not in handles:
        handles[queue] = plan.ask(partial(open_handle, plan.options, queue))
    return handles[queue]


@dataclass(frozen=True)
class _Chunk:
    """Settles rows of different jobs of one queue, claimed by one reader. failures: of the task."""

    plan: SettlePlan
    handle: QueueHandle
    reader: str
    failures: Failures

    def complete(self, jobs: Completed) -> Counter[RowOutcome]:
        """Settles jobs all of which have completed."""
        values = jobs.values
        if not self.handle.payloads.is_plain:
            named = zip(jobs.values, jobs.ids, jobs.tokens, strict=True)
            values = [self.handle.sealed("returnvalue", value, f"{job_id}:{token}") for value, job_id, token in named]
        outcomes = _outcomes_of(jobs.ids, jobs.tokens)
        outcomes.complete_all(jobs.ids, values, [self._keep_of(None)] * len(values))
        counts = self._send(outcomes, dict.fromkeys(jobs.ids, "completed"), jobs.rows)
        self.plan.ask(lambda: self._count(counts))
        return counts

    def settle(self, rows: list[Row], then: pa.Array | None) -> Counter[RowOutcome]:
        """Settles rows. then: the column `then` of all rows of their slice."""
        follow_ups = dict[str, list[FollowUp]]()
        if any(row.waits_for_children for row in rows):
            rows = self._check_flows(rows)
        if self.plan.follow_ups is not None and then is not None:
            rows, follow_ups = self._read_follow_ups(self.plan.follow_ups, then, rows)
        counts = Counter[RowOutcome]()
        for part in _parts(rows, follow_ups):
            counts.update(self._settle(part, follow_ups))
        self.plan.ask(lambda: self._count(counts))
        return counts

    def _check_flows(self, rows: list[Row]) -> list[Row]:
        """Fails the attempts that wait for children, in a dialect whose jobs have none."""
        try:
            self.handle.dialect.require("flows")
        except DialectError as error:
            why = str(error)
            return [row._replace(postponed=None, error=why) if row.waits_for_children else row for row in rows]
        return rows

    def _read_follow_ups(
        self, plan: JobsColumn, then: pa.Array, rows: Sequence[Row]
    ) -> tuple[list[Row], dict[str, list[FollowUp]]]:
        """The follow-ups of the rows, which fail those whose follow-ups are invalid."""
        ended = [row for row in rows if row.postponed is None]
        ids, column = [row.id for row in ended], then.take(pa.array([row.position for row in ended], pa.int64()))
        read = self.plan.ask(lambda: read_follow_ups(plan, self.handle, ids, column))
        errors = {row.id: "; ".join(filter(None, (row.error, read.errors.get(row.id)))) for row in ended}
        return [row._replace(error=errors[row.id]) if row.id in read.errors else row for row in rows], read.valid

    def _settle(self, rows: Sequence[Row], follow_ups: Mapping[str, Sequence[FollowUp]]) -> Counter[RowOutcome]:
        outcomes, lost = _outcomes_of([row.id for row in rows], [row.token for row in rows]), 0
        self._postpone(outcomes, {row.id: row.postponed for row in rows if row.postponed is not None})
        kinds: dict[str, RowOutcome] = dict.fromkeys(outcomes.all_ids(), "returned")
        ended = [row for row in rows if row.postponed is None]
        to_read = [row.id for row in ended if row.error is not None or not row.is_plain]
        known = {job.id: job for job in self.plan.ask(lambda: read_claimed(self.handle, to_read))}
        for row in ended:
            if row.id in follow_ups:
                outcomes.add_follow_ups(follow_ups[row.id])
            job = known.get(row.id)
            if row.error is None and (job or row.is_plain):
                value = self.handle.sealed("returnvalue", row.value, f"{row.id}:{row.token}")
                outcomes.complete(row.id, value, self._keep_of(job))
                kinds[row.id] = "completed"
            elif row.error is not None and job:
                kinds[row.id] = self._fail(outcomes, job, row, row.error)
            else:
                lost += self._lost(row, "missing")
        counts = self._send(outcomes, kinds, lambda: rows)
        counts["lost"] += lost
        return counts

    def _send(
        self, outcomes: Outcomes, kinds: dict[str, RowOutcome], rows: Callable[[], Sequence[Row]]
    ) -> Counter[RowOutcome]:
        """Settles jobs. kinds: what becomes of them, by job id. rows: makes their rows, which few chunks need."""
        lost = 0
        if len(outcomes):
            claim = self._work(outcomes)
            if claim.lost:
                by_id = {row.id: row for row in rows()}
                for one in claim.lost:
                    kinds.pop(one.id, None)
                    if not one.is_blocked:
                        lost += self._lost(by_id[one.id], one.why)
                kinds |= self._fail_blocked(outcomes, claim)
        counts = Counter[RowOutcome](kinds.values())
        if counts["retried"] or counts["returned"]:
            again = [row for row in rows() if kinds.get(row.id) in ("retried", "returned")]
            self.plan.ask(lambda: _remember_settled(self.handle, again))
        counts["lost"] = lost
        return counts

    def _work(self, outcomes: Outcomes) -> Claim:
        work_settings = WorkSettings(f"settle:{uuid4().hex}", max_metrics=self.plan.options.metrics_minutes)
        call = uuid4().hex
        claim = self.plan.ask(lambda: work(self.handle, work_settings, outcomes, 0, call=call))
        self.failures.add(self.handle.keys.queue, outcomes)
        return claim

    def _keep_of(self, job: ClaimedJob | None) -> Keep:
        """Which completed jobs to keep. job: None when its options have no such rule."""
        default = self.plan.policy.keep_completed
        return default if job is None else keep_of(self.handle.dialect, job.opts, "removeOnComplete", default)

    def _fail(self, outcomes: Outcomes, job: ClaimedJob, row: Row, error: str) -> RowOutcome:
        decided = failure(
            self.handle.dialect,
            job,
            error,
            stack=error if row.stack is None else row.stack,
            unrecoverable=row.unrecoverable,
            strategy=strategy_for(self.plan.strategy, RunningJob(job, self.handle)),
            default_keep=self.plan.policy.keep_failed,
        )
        outcomes.add_failure(decided)
        return "failed" if isinstance(decided, Failed) else "retried"

    def _fail_blocked(self, outcomes: Outcomes, claim: Claim) -> dict[str, RowOutcome]:
        """Settles parents that can't complete yet; returns what became of them, by job id."""
        blocked = self.plan.ask(lambda: fail_blocked(self.handle, self.plan.policy, outcomes, claim.lost, claim.now))
        if blocked:
            self._work(blocked)
        kinds: dict[str, RowOutcome] = {job.id: "failed" for job in blocked.failed}
        return kinds | {job.id: "retried" for job in blocked.retried}

    def _postpone(self, outcomes: Outcomes, endings: Mapping[str, Outcome]) -> None:
        """Adds jobs that run again without counting the attempt, by job id."""
        is_now_needed = any(ending.kind == "delayed by" for ending in endings.values())
        now = self.plan.ask(self.handle.connection.now_ms) if is_now_needed else 0
        for job_id, ending in endings.items():
            ending.postpone(outcomes, job_id, now)

    def _lost(self, row: Row, why: str) -> int:
        """1 for a rejected outcome, 0 when an earlier attempt of this task has settled the job."""
        if self.plan.ask(lambda: _was_settled(self.handle, row, why)):
            return 0
        log.warning("queue %s: outcome of job %s was rejected (%s)", self.handle.keys.queue, row.id, LOST[why])
        return 1

    def _count(self, counts: Counter[RowOutcome]) -> None:
        key = self.handle.keys.settled(self.reader)
        increments = [("HINCRBY", key, name, count) for name, count in counts.items() if count]
        self.handle.connection.pipeline([*increments, ("PEXPIRE", key, CLAIMS_TTL_MS)])


def _parts(rows: list[Row], follow_ups: Mapping[str, Sequence[FollowUp]]) -> Iterator[list[Row]]:
    """Splits rows with many follow-ups for several calls of a script."""
    if not follow_ups:
        yield rows
        return
    part, sent = list[Row](), Outcomes("")
    for row in rows:
        part.append(row)
        sent.add_follow_ups(follow_ups.get(row.id, ()))
        if sent.is_large(CLAIM_BYTES):
            yield part
            part, sent = [], Outcomes("")
    if part:
        yield part


def _outcomes_of(ids: Sequence[str], tokens: Sequence[str]) -> Outcomes:
    """Outcomes to be filled, with the tokens of these jobs: usually all are of one claim."""
    first = tokens[0]
    is_one = tokens.count(first) == len(tokens)
    others = {} if is_one else {job_id: token for job_id, token in zip(ids, tokens, strict=True) if token != first}
    return Outcomes(first, tokens=others)


def _remember_settled(handle: QueueHandle, rows: Sequence[Row]) -> None:
    """Records that these jobs were settled: as they run again, Redis does not show it."""
    by_key: dict[str, list[str]] = {}
    for row in rows:
        by_key.setdefault(handle.keys.settled_again(row.token), []).append(row.id)
    if by_key:
        adds = [("SADD", key, *ids) for key, ids in by_key.items()]
        limits = [("PEXPIRE", key, RECEIPT_TTL_MS) for key in by_key]
        handle.connection.pipeline([*adds, *limits])


def _was_settled(handle: QueueHandle, row: Row, why: str) -> bool:
    """Whether an earlier attempt has settled a job whose outcome was rejected. why: one of LOST."""
    if why in ("unlocked", "missing") and _has_ended(handle, row.id):
        return True
    return why in ("unlocked", "missing", "owner") and _is_remembered(handle, row)


def _has_ended(handle: QueueHandle, job_id: str) -> bool:
    keys = handle.keys
    if handle.dialect.has("finish-times"):
        return bool(handle.connection.call("HEXISTS", keys.job(job_id), "finishedOn"))
    checks = [("SISMEMBER", keys["completed"], job_id), ("SISMEMBER", keys["failed"], job_id)]
    return any(handle.connection.pipeline(checks))


def _is_remembered(handle: QueueHandle, row: Row) -> bool:
    return bool(handle.connection.call("SISMEMBER", handle.keys.settled_again(row.token), row.id))
