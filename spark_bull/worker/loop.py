"""One slot of a worker: claims a chunk, runs it, and settles it in the round trip that claims the next one."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final, TypeVar
from uuid import uuid4

from spark_bull.clock import epoch_ms, monotonic_s
from spark_bull.errors import ConnectionLost, SparkBullError, UnrecoverableError
from spark_bull.outcomes import LOST, Claim, ClaimedJob, Lost, Outcomes
from spark_bull.queue.claim import ClaimSettings, work
from spark_bull.queue.handle import QueueHandle
from spark_bull.worker.blocked_parents import fail_blocked
from spark_bull.worker.chunk_size import ChunkSize
from spark_bull.worker.interrupts import recording_interrupts
from spark_bull.worker.job_runner import OutcomePolicy, Result, Runner
from spark_bull.worker.job_signal import JobSignal, retry_until_connected
from spark_bull.worker.lock_keeper import LockKeeper
from spark_bull.worker.running_job import RunningJob

log = logging.getLogger("spark_bull")

T = TypeVar("T")

#: Period in which an idle slot sends two commands: one that blocks and one that claims.
IDLE_S: Final = 10.0
#: Interval at which a chunk of jobs that run one by one is settled in parts. Any chunk is also settled in parts when
#: its outcomes exceed `chunk_bytes`.
SETTLE_S: Final = 0.5
#: Duration after which the rest of a chunk of jobs that run one by one is returned to the queue.
RETURN_S: Final = 2.0
#: Minimum interval between two status reports of a busy slot.
REPORT_INTERVAL_S: Final = 1.0
#: How long the last report stays in Redis.
REPORT_TTL_MS: Final = 30 * 86_400_000


@dataclass
class SlotStats:
    """Counters of a slot. `returned`: jobs returned to the queue or delayed; `lost`: rejected outcomes."""

    claimed: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    returned: int = 0
    lost: int = 0

    def count(self, outcomes: Outcomes, lost: Sequence[Lost]) -> None:
        gone = {job_id for job_id, _ in lost}
        self.completed += len(outcomes.completed_ids) - sum(job_id in gone for job_id in outcomes.completed_ids if gone)
        self.failed += sum(job.id not in gone for job in outcomes.failed)
        self.retried += sum(job.id not in gone for job in outcomes.retried)
        self.returned += sum(job_id not in gone for job_id in (*outcomes.returned, *outcomes.unstarted))
        self.returned += sum(job.id not in gone for job in outcomes.delayed)
        self.lost += sum(not one.is_blocked for one in lost)


@dataclass(frozen=True)
class SlotPlan:
    """The configuration of a slot. Picklable.

    worker: id of the worker, under which its slots publish their reports. policy: defaults for the outcomes.
    chunk_size, chunk_bytes: maximum number of jobs, and bytes of payload, per claim.
    """

    handle: QueueHandle
    claim_settings: ClaimSettings
    worker: str
    runner: Runner
    policy: OutcomePolicy = field(default_factory=OutcomePolicy)
    chunk_size: int = 200
    chunk_bytes: int = 1 << 20


class WorkerLoop:
    """Claims, runs and settles jobs until the key `claim_settings.control` exists."""

    def __init__(self, plan: SlotPlan, slot: int) -> None:
        self._plan = plan
        self._slot = slot
        self._handle = plan.handle
        at_once = 1 if plan.runner.one_by_one else None
        self._claim_settings = replace(plan.claim_settings, sender=f"{plan.worker}:{slot}", at_once=at_once)
        self._size = ChunkSize(plan.chunk_size)
        self._signal = JobSignal(plan.handle, plan.claim_settings.worker or plan.worker, IDLE_S)
        self._keeper = LockKeeper(plan.handle, plan.claim_settings.lock_ms)
        self._stats = SlotStats()
        self._isolating = False
        self._started = epoch_ms()
        self._reported = ""
        self._reported_at = 0.0
        self.client = 0

    def run(self) -> SlotStats:
        """Runs until the slot is stopped, and finishes the jobs claimed by then. An error of a job is not raised."""
        self.client = self._signal.client_id()
        with self._keeper, recording_interrupts():
            self._report("idle")
            self._loop()
        self._report("stopped")
        return self._stats

    def _loop(self) -> None:
        outcomes: Outcomes | None = None
        active_id = ""
        while True:
            claim = self._work(outcomes, self._claim_limit(), active_id)
            outcomes, active_id = None, ""
            if claim.jobs:
                self._stats.claimed += len(claim.jobs)
                outcomes = self._run(self._isolate_stalled(claim))
                self._report_periodically()
            elif claim.stop:
                return
            elif not claim.more:
                self._report("idle")
                active_id = self._wait(claim)

    def _claim_limit(self) -> int:
        if self._isolating:
            return 1
        return self._size.current if self._plan.runner.one_by_one else self._plan.chunk_size

    def _isolate_stalled(self, claim: Claim) -> Claim:
        """Reduces the claim to its first job that has stalled before, as this job may have killed its worker."""
        stalled = next((job for job in claim.jobs if job.stalled_counter), None)
        self._isolating = stalled is not None
        if stalled is None or len(claim.jobs) == 1:
            return claim
        others = [job.id for job in claim.jobs if job is not stalled]
        self._work(Outcomes(claim.token, unstarted=others), 0)
        return replace(claim, jobs=[stalled])

    def _run(self, claim: Claim) -> Outcomes:
        """Runs a chunk and returns the outcomes that are not settled yet."""
        jobs, outcomes = claim.jobs, Outcomes(claim.token)
        policy, dialect, one_by_one = self._plan.policy, self._handle.dialect, self._plan.runner.one_by_one
        started = settled_at = monotonic_s()
        done = 0
        with self._keeper.keeping(claim.token, [job.id for job in jobs]):
            for result in self._results(jobs):
                now_s = monotonic_s()
                policy.record(outcomes, dialect, result, claim.now + int(1000 * (now_s - started)))
                done += 1
                too_long = one_by_one and now_s - settled_at > SETTLE_S
                if (one_by_one and outcomes.limited_ms) or (too_long and now_s - started > RETURN_S):
                    outcomes.unstarted += self._not_started(jobs, result)
                    break
                if done < len(jobs) and (too_long or outcomes.size > self._plan.chunk_bytes):
                    self._work(outcomes, 0)
                    outcomes, settled_at = Outcomes(claim.token), monotonic_s()
                    self._report_periodically()
        self._size.update(done, monotonic_s() - started)
        return outcomes

    def _not_started(self, jobs: Sequence[ClaimedJob], last: Result) -> list[str]:
        ids = [job.id for job in jobs]
        return [job_id for job_id in ids[ids.index(last.job.claimed.id) + 1 :] if job_id not in self._keeper.lost]

    def _results(self, jobs: Sequence[ClaimedJob]) -> Iterator[Result]:
        """Yields the results of the jobs in order, except for jobs that have lost their lock."""
        running = [RunningJob(job, self._handle) for job in jobs]
        if all(job.deferred_failure is None for job in jobs):
            yield from self._plan.runner(running, self._keeper.lost)
            return
        for job in running:
            if job.claimed.deferred_failure is None:
                yield from self._plan.runner([job], self._keeper.lost)
            else:
                yield Result(job, None, UnrecoverableError(job.claimed.deferred_failure))

    def _work(self, outcomes: Outcomes | None, limit: int, active_id: str = "") -> Claim:
        """Settles and claims. A retry after a lost connection sends the same call id and so has no second effect."""
        call = uuid4().hex
        with self._keeper.settling(outcomes):
            claim = self._retry(
                lambda: work(
                    self._handle,
                    self._claim_settings,
                    outcomes,
                    limit,
                    most_bytes=self._plan.chunk_bytes,
                    held=active_id,
                    call=call,
                )
            )
        if outcomes:
            self._process_reply(outcomes, claim)
        return claim

    def _retry(self, call: Callable[[], T]) -> T:
        return retry_until_connected(call, self._warn, on_reconnect=self._on_reconnect)

    def _on_reconnect(self) -> None:
        self._warn("reconnected to Redis", self._handle.connection.settings.where)
        self.client = self._signal.client_id()

    def _process_reply(self, outcomes: Outcomes, claim: Claim) -> None:
        """Counts the settled outcomes, logs the rejected ones, and fails parents that could not complete."""
        self._stats.count(outcomes, claim.lost)
        for one in claim.lost:
            if not one.is_blocked:
                self._warn(f"outcome of job {one.id} was rejected", LOST[one.why])
        blocked = self._retry(
            lambda: fail_blocked(self._handle, self._plan.policy, outcomes.token, claim.lost, claim.now)
        )
        if blocked:
            self._work(blocked, 0)

    def _wait(self, claim: Claim) -> str:
        """Waits until there may be a job. Returns the id of a job that was moved to `active`, or ''."""
        timeout = IDLE_S
        if claim.next_due is not None:
            timeout = min(timeout, (claim.next_due - claim.now) / 1000)
        try:
            if claim.limited_ms:
                self._signal.pause(self._plan.worker, min(claim.limited_ms / 1000, IDLE_S))
                return ""
            return self._signal.wait(timeout)
        except ConnectionLost as error:
            self._warn("lost Redis, retrying", error)
            return ""

    def _report_periodically(self) -> None:
        if monotonic_s() - self._reported_at > REPORT_INTERVAL_S:
            self._report("busy")

    def _report(self, state: str) -> None:
        """Publishes the slot's state and counters if they changed."""
        slot = {"slot": self._slot, "started": self._started, "state": state, "client": self.client}
        report = json.dumps(slot | asdict(self._stats))
        self._reported_at = monotonic_s()
        if report == self._reported:
            return
        key, name = self._handle.keys.slots(self._plan.worker), f"{self._slot}:{self._started}"
        try:
            self._handle.connection.pipeline([("HSET", key, name, report), ("PEXPIRE", key, REPORT_TTL_MS)])
            self._reported = report
        except SparkBullError as error:
            self._warn("could not publish its status report", error)

    def _warn(self, what: str, why: object) -> None:
        log.warning("queue %s, slot %d: %s (%s)", self._handle.keys.queue, self._slot, what, why)
