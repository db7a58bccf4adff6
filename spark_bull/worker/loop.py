"""One slot of a worker: claim a chunk, run it, settle it and claim the next one in the same round trip."""

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
from spark_bull.worker.interrupts import watching_interrupts
from spark_bull.worker.job_runner import OutcomePolicy, Result, Runner
from spark_bull.worker.job_signal import JobSignal, patiently
from spark_bull.worker.lock_keeper import LockKeeper
from spark_bull.worker.running_job import RunningJob

log = logging.getLogger("spark_bull")

T = TypeVar("T")

#: An idle slot sends two commands in this time: one that waits, one that looks.
IDLE_S: Final = 10.0
#: A chunk of jobs that run one by one is settled in parts when it takes longer, and what is left is given back. Any
#: chunk is settled in parts when its outcomes are larger than `chunk_bytes`.
SETTLE_S: Final = 0.5
GIVE_BACK_S: Final = 2.0
#: How often a busy slot says what it has done.
REPORT_INTERVAL_S: Final = 1.0
#: How long it stays in Redis after that.
REPORT_TTL_MS: Final = 30 * 86_400_000


@dataclass
class SlotStats:
    """What a slot has done so far. `returned`: given back or delayed by the processor; `lost`: outcomes not taken."""

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
    """What a slot is to do; picklable.

    worker: id under which the driver finds what its slots tell. chunk_size, chunk_bytes: most jobs, and most bytes of
    payload, claimed at a time.
    """

    handle: QueueHandle
    claim_settings: ClaimSettings
    worker: str
    runner: Runner
    rules: OutcomePolicy = field(default_factory=OutcomePolicy)
    chunk_size: int = 200
    chunk_bytes: int = 1 << 20


class WorkerLoop:
    """Works until the key `claim_settings.control` exists."""

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
        self._suspects = False
        self._started = epoch_ms()
        self._reported = ""
        self._reported_at = 0.0
        self.client = 0

    def run(self) -> SlotStats:
        """Runs until it is told to stop; what is claimed by then is finished. Raises only what is no fault of a job."""
        self.client = self._signal.client_id()
        with self._keeper, watching_interrupts():
            self._report("idle")
            self._loop()
        self._report("stopped")
        return self._stats

    def _loop(self) -> None:
        outcomes: Outcomes | None = None
        held = ""
        while True:
            claim = self._work(outcomes, self._limit(), held)
            outcomes, held = None, ""
            if claim.jobs:
                self._stats.claimed += len(claim.jobs)
                outcomes = self._run(self._alone(claim))
                self._report_now_and_then()
            elif claim.stop:
                return
            elif not claim.more:
                self._report("idle")
                held = self._wait(claim)

    def _limit(self) -> int:
        if self._suspects:
            return 1
        return self._size.now if self._plan.runner.one_by_one else self._plan.chunk_size

    def _alone(self, claim: Claim) -> Claim:
        """A job that stalled before may have killed its worker: it runs alone, so that it takes no other down."""
        suspect = next((job for job in claim.jobs if job.stalled_counter), None)
        self._suspects = suspect is not None
        if suspect is None or len(claim.jobs) == 1:
            return claim
        others = [job.id for job in claim.jobs if job is not suspect]
        self._work(Outcomes(claim.token, unstarted=others), 0)
        return replace(claim, jobs=[suspect])

    def _run(self, claim: Claim) -> Outcomes:
        """Runs a chunk; returns what of it isn't settled yet."""
        jobs, outcomes = claim.jobs, Outcomes(claim.token)
        rules, dialect, one_by_one = self._plan.rules, self._handle.dialect, self._plan.runner.one_by_one
        started = settled_at = monotonic_s()
        done = 0
        with self._keeper.keeping(claim.token, [job.id for job in jobs]):
            for result in self._results(jobs):
                now_s = monotonic_s()
                rules.note(outcomes, dialect, result, claim.now + int(1000 * (now_s - started)))
                done += 1
                too_long = one_by_one and now_s - settled_at > SETTLE_S
                if (one_by_one and outcomes.limited_ms) or (too_long and now_s - started > GIVE_BACK_S):
                    outcomes.unstarted += self._not_started(jobs, result)
                    break
                if done < len(jobs) and (too_long or outcomes.size > self._plan.chunk_bytes):
                    self._work(outcomes, 0)
                    outcomes, settled_at = Outcomes(claim.token), monotonic_s()
                    self._report_now_and_then()
        self._size.took(done, monotonic_s() - started)
        return outcomes

    def _not_started(self, jobs: Sequence[ClaimedJob], last: Result) -> list[str]:
        ids = [job.id for job in jobs]
        return [job_id for job_id in ids[ids.index(last.job.claimed.id) + 1 :] if job_id not in self._keeper.lost]

    def _results(self, jobs: Sequence[ClaimedJob]) -> Iterator[Result]:
        """A result for each job in its order, but for those that aren't ours any more."""
        running = [RunningJob(job, self._handle) for job in jobs]
        if all(job.deferred_failure is None for job in jobs):
            yield from self._plan.runner(running, self._keeper.lost)
            return
        for job in running:
            if job.claimed.deferred_failure is None:
                yield from self._plan.runner([job], self._keeper.lost)
            else:
                yield Result(job, None, UnrecoverableError(job.claimed.deferred_failure))

    def _work(self, outcomes: Outcomes | None, limit: int, held: str = "") -> Claim:
        """Settles and claims; the call that is made again after Redis was away is the same one."""
        call = uuid4().hex
        with self._keeper.settling(outcomes):
            claim = self._patiently(
                lambda: work(
                    self._handle,
                    self._claim_settings,
                    outcomes,
                    limit,
                    most_bytes=self._plan.chunk_bytes,
                    held=held,
                    call=call,
                )
            )
        if outcomes:
            self._account(outcomes, claim)
        return claim

    def _patiently(self, ask: Callable[[], T]) -> T:
        return patiently(ask, self._warn, back=self._has_redis_back)

    def _has_redis_back(self) -> None:
        self._warn("reconnected to Redis", self._handle.connection.settings.where)
        self.client = self._signal.client_id()

    def _account(self, outcomes: Outcomes, claim: Claim) -> None:
        """Counts what was settled, and says which outcomes were not taken."""
        self._stats.count(outcomes, claim.lost)
        for one in claim.lost:
            if not one.is_blocked:
                self._warn(f"outcome of job {one.id} was rejected", LOST[one.why])
        blocked = self._patiently(
            lambda: fail_blocked(self._handle, self._plan.rules, outcomes.token, claim.lost, claim.now)
        )
        if blocked:
            self._work(blocked, 0)

    def _wait(self, claim: Claim) -> str:
        """Waits until there may be a job. Returns the id of one that is in `active` already, or ''."""
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

    def _report_now_and_then(self) -> None:
        if monotonic_s() - self._reported_at > REPORT_INTERVAL_S:
            self._report("busy")

    def _report(self, state: str) -> None:
        """Leaves word of what the slot has done, unless it has said so already."""
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
            self._warn("could not tell what it has done", error)

    def _warn(self, what: str, why: object) -> None:
        log.warning("queue %s, slot %d: %s (%s)", self._handle.keys.queue, self._slot, what, why)
