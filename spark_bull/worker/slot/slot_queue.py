"""One queue of a slot: claims and settles its jobs, keeps their locks, and waits for further ones."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any, Final, NamedTuple, TypeVar
from uuid import uuid4

from spark_bull.clock import monotonic_s
from spark_bull.errors import ConnectionLost, SparkBullError, UnrecoverableError
from spark_bull.model.outcomes import LOST, Claim, ClaimedJob, Outcomes
from spark_bull.queue.core.claim_settings import ClaimSettings
from spark_bull.queue.core.handle import QueueHandle
from spark_bull.queue.core.verbs import stall
from spark_bull.queue.process.claim import parts_to_return, work
from spark_bull.worker.claims.job_signal import JobSignal, retry_until_connected
from spark_bull.worker.claims.lock_keeper import LockKeeper
from spark_bull.worker.job.job_options import own_locks, runs_at_most_once
from spark_bull.worker.job.job_runner import Result
from spark_bull.worker.job.running_job import RunningJob
from spark_bull.worker.slot.blocked_parents import fail_blocked
from spark_bull.worker.slot.slot_plan import QueuePlan, SlotPlan
from spark_bull.worker.slot.slot_stats import SlotStats

log = logging.getLogger("spark_bull")

T = TypeVar("T")

#: An idle slot sends three commands per queue in this time: CLIENT ID, one that waits for a job, one that claims.
IDLE_S: Final = 10.0
#: Maximum duration of a wait if Redis denies CLIENT UNBLOCK, and the slot has several queues.
SHORT_WAIT_S: Final = 1.0
#: Number of jobs of a UDF's chunk that one script claims, settles or returns, so that it does not block Redis for long.
SCRIPT_JOBS: Final = 200
#: When the process is to end: maximum duration of a call under way, and until a wait has ended.
_CALL_S: Final = 5.0
_PARK_S: Final = 1.0
#: Why a job fails whose process ends, and that must not run again.
ENDED: Final = "the process of the worker was ended while the job ran, and the job may run at most once"
#: What the control key says when slots are to return the jobs that they hold.
END: Final = b"end"
#: Why running jobs are returned.
STALLED: Final = "the process of the worker is to end: they have stalled"


class Signalled(NamedTuple):
    """A wait is over, or has failed with `error`.

    active_id: id of the job that it has moved to `active` (Bull), or ''.
    """

    queue: SlotQueue
    active_id: str
    error: BaseException | None = None


class _Clock(NamedTuple):
    """Time of Redis at a call, ms since 1970; when the call was sent and when it was answered, monotonic, s."""

    redis_ms: int
    sent_s: float
    answered_s: float


class _Wait(NamedTuple):
    """A wait for jobs that a claim did not get."""

    claim: Claim
    timeout_s: float


@contextmanager
def _held_for(lock: Lock, timeout_s: float) -> Iterator[None]:
    """Holds a lock in the block; begins the block without it after `timeout_s`."""
    is_held = lock.acquire(timeout=timeout_s)
    try:
        yield
    finally:
        if is_held:
            lock.release()


class SlotQueue:
    """One queue as one slot works on it.

    `post` gets a Signalled when a wait is over, which runs in a thread; without it, waits run in `wait`. at_once: how
    many of the claimed jobs start at once; None: all.
    """

    def __init__(
        self,
        plan: SlotPlan,
        queue: QueuePlan,
        slot: int,
        stats: SlotStats,
        post: Callable[[Signalled], None] | None,
        at_once: int | None,
    ) -> None:
        self.handle: QueueHandle = queue.handle
        self.weight = queue.weight
        #: What `setup` has made for the jobs of the slot.
        self.state: Any = None
        self._start_limit = queue.start_limit
        self.keeper = LockKeeper(queue.handle, queue.claim_settings.lock_ms)
        self.is_waiting = False
        self.has_woken = False
        self._max_wait_s = IDLE_S
        self._plan = plan
        self._slot = slot
        self._stats = stats
        self._post = post
        self._claim_settings: ClaimSettings = replace(
            queue.claim_settings, sender=f"{plan.worker}:{slot}", at_once=at_once
        )
        self._signal = JobSignal(queue.handle, queue.claim_settings.worker or plan.worker, IDLE_S)
        self._waits: SimpleQueue[_Wait | None] = SimpleQueue()
        self._active_id = ""
        self._clock = _Clock(0, 0.0, 0.0)
        #: Ids of the jobs for which the processor was called, until they are settled.
        self._begun: set[str] = set()
        #: Claimed jobs that must never run twice, until they are settled.
        self._only_once: dict[str, RunningJob] = {}
        #: Results of jobs that have ended, until the loop records their outcomes, with `recording` held; by job id.
        self.ended: dict[str, Result] = {}
        #: Outcomes that the loop records, with `recording` held, until they are settled.
        self._recorded: list[Outcomes] = []
        self.recording = Lock()
        self._calling = Lock()
        #: Time of Redis at the first claim, ms since 1970.
        self._since = 0
        self._is_ending = False
        self._parked = Event()

    def __enter__(self) -> SlotQueue:
        self._signal.identify()
        self.keeper.__enter__()
        if self._post is not None:
            Thread(target=self._serve, args=(self._post,), name="spark-bull-signal", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._waits.put(None)
        self._signal.close()
        self.keeper.__exit__()

    @property
    def client(self) -> int:
        """Id of the connection that waits, for CLIENT UNBLOCK; 0 if unknown."""
        return self._signal.client

    @property
    def now(self) -> int:
        """Redis' clock, ms since 1970, as of the last call."""
        return self._clock.redis_ms + int(1000 * (monotonic_s() - self._clock.answered_s))

    def work(self, outcomes: Outcomes | None, limit: int, token: str = "", claimed_bytes: int = 0) -> Claim:
        """Settles and claims. A retry after a lost connection sends the same call id and so has no second effect.

        token: see `spark_bull.queue.process.claim.work`. claimed_bytes: size of the payloads that the chunk has.
        """
        call, active_id = uuid4().hex, self._active_id
        self._active_id, self.has_woken = "", False
        with self._calling:
            most = 0 if self._is_ending else limit

            def send() -> tuple[float, Claim]:
                return monotonic_s(), work(
                    self.handle,
                    self._claim_settings,
                    outcomes,
                    most,
                    most_bytes=max(1, self._plan.chunk_bytes - claimed_bytes),
                    held=active_id,
                    call=call,
                    token=token,
                )

            with self.keeper.settling(outcomes):
                sent_s, claim = self._retry(send)
            if outcomes:
                settled = outcomes.all_ids()
                self._begun -= settled
                for job_id in self._only_once.keys() & settled:
                    del self._only_once[job_id]
            self._recorded = [one for one in self._recorded if one is not outcomes]
            if claim.jobs:
                self.keeper.hold(claim.token, [job.id for job in claim.jobs], claim.now, own_locks(claim.jobs))
        self._clock = _Clock(claim.now, sent_s, monotonic_s())
        self._since = self._since or claim.now
        self._stats.claimed += len(claim.jobs)
        if outcomes:
            self._process_reply(outcomes, claim)
        if self._start_limit is not None:
            return replace(claim, jobs=self._start_limit.checked(claim.jobs))
        return claim

    def new_outcomes(self, token: str) -> Outcomes:
        """Returns where the loop is to record outcomes, with `recording` held; return_held() settles them, too."""
        outcomes = Outcomes(token)
        self._recorded.append(outcomes)
        return outcomes

    def is_to_end(self) -> bool:
        """Whether the worker no longer waits for the jobs that the slot holds. Raises ConnectionLost."""
        control = self._claim_settings.control
        return bool(control and self.handle.connection.call("GET", control) == END)

    def end(self) -> None:
        """Claims and waits for no further job; may be called in any thread."""
        self._is_ending = True
        if self.is_waiting:
            self.unblock()
            # It may have moved a job to `active`, which the loop puts back before it waits again.
            self._parked.wait(_PARK_S)

    def return_held(self) -> None:
        """Returns all jobs that are held to the queue after end(); may be called in any thread. Raises ConnectionLost.

        Those that have ended are settled. Jobs whose function has not been called are as they were before they were
        claimed. Jobs that have begun have stalled; those of them that must never run twice fail.
        """
        # A call that claims jobs may be under way; without Redis, it takes too long.
        with _held_for(self._calling, _CALL_S), _held_for(self.recording, _CALL_S):
            self._record_ended()
            held, ended = self.keeper.give_up(), set[str]()
            for recorded in filter(len, self._recorded):
                ended |= recorded.all_ids()
                self._settle_at_end(recorded)
            by_token: dict[str, list[str]] = {}
            for job_id, hold in held.items():
                if job_id not in ended:
                    by_token.setdefault(hold.token, []).append(job_id)
            stalled = self._begun - self._only_once.keys()
            for token, ids in reversed(by_token.items()):
                others = [job_id for job_id in ids if job_id not in stalled]
                for part in parts_to_return(others, SCRIPT_JOBS):
                    self._settle_at_end(self._unfinished(token, part))
                for part in parts_to_return([job_id for job_id in ids if job_id in stalled], SCRIPT_JOBS):
                    self._stall(token, part)

    def _record_ended(self) -> None:
        """Records the outcomes of jobs that have ended, which the loop will not do any more."""
        held, outcomes = self.keeper.held(), dict[str, Outcomes]()
        for job_id, result in self.ended.items():
            if job_id in held and not result.job.lock_lost:
                token = held[job_id].token
                if token not in outcomes:
                    outcomes[token] = self.new_outcomes(token)
                self._plan.policy.record(outcomes[token], self.handle.dialect, result, self.now)
        self.ended.clear()

    def _settle_at_end(self, outcomes: Outcomes) -> None:
        # The receipt of the slot may belong to a call that another thread makes.
        work(self.handle, replace(self._claim_settings, sender=f"{self._claim_settings.sender}:end"), outcomes, 0)

    def _stall(self, token: str, ids: Sequence[str]) -> None:
        reply = stall(self.handle, token, ids, max_stalled=self._plan.max_stalled, since=self._since)
        self._warn(f"running jobs returned to the queue: {len(reply.returned)}, failed: {len(reply.failed)}", STALLED)

    def _unfinished(self, token: str, ids: Sequence[str]) -> Outcomes:
        """The outcomes of jobs that have not begun when the process is to end, or must never run twice."""
        outcomes = Outcomes(token)
        for job_id in ids:
            if job_id in self._begun and job_id in self._only_once:
                result = Result(self._only_once[job_id], None, UnrecoverableError(ENDED))
                self._plan.policy.record(outcomes, self.handle.dialect, result, self.now)
            else:
                outcomes.unstarted.append(job_id)
        return outcomes

    def running(self, jobs: Sequence[ClaimedJob], token: str) -> list[RunningJob]:
        """Returns claimed jobs as processors receive them."""
        ids = [job.id for job in jobs]
        if self._plan.runner.one_by_one:
            # An earlier attempt, whose lock was lost, may have begun here.
            self._begun.difference_update(ids)
        else:
            self._begun.update(ids)
        running = [
            RunningJob(job, self.handle, token, self.keeper.lost, self.state, self._begun, self._expires_s(job))
            for job in jobs
        ]
        self._only_once.update((job.id, job) for job in running if runs_at_most_once(job.claimed.opts))
        if self._start_limit is not None:
            for job in running:
                if self._start_limit.is_last(job.claimed):
                    job.discard()
        return running

    def _expires_s(self, job: ClaimedJob) -> float | None:
        """When a job expires, on the monotonic clock, s; not later than by Redis' clock: a call takes time.

        Redis' time is without fractions of a ms.
        """
        if job.expire_at is None:
            return None
        return self._clock.sent_s + (job.expire_at - self._clock.redis_ms - 1) / 1000

    def begin_wait(self, claim: Claim, timeout_s: float = math.inf) -> None:
        """Begins to wait until there may be a job that this claim did not get, for `timeout_s` at most."""
        self.is_waiting = True
        self._waits.put(_Wait(claim, min(timeout_s, self._max_wait_s)))

    def wait(self) -> None:
        """Runs the wait in this thread, which takes less time than to hand it to another one and back."""
        wait = self._waits.get()
        if wait is not None:
            self.end_wait(self._wait(wait))

    def end_wait(self, active_id: str) -> None:
        """Takes the job that the wait has moved to `active`.

        The next call of `work` claims it; or puts it back, and signals other workers, if it is to claim nothing.
        """
        self.is_waiting, self.has_woken = False, True
        self._active_id = active_id

    def unblock(self) -> None:
        """Ends the wait early, if Redis permits that."""
        try:
            self.handle.connection.call("CLIENT", "UNBLOCK", self.client)
        except SparkBullError as error:
            if self._max_wait_s > SHORT_WAIT_S:
                self._warn(f"a wait for jobs could not be ended; waits take {SHORT_WAIT_S:g} s from now on", error)
            self._max_wait_s = SHORT_WAIT_S

    def _serve(self, post: Callable[[Signalled], None]) -> None:
        while (wait := self._waits.get()) is not None:
            try:
                active_id = self._wait(wait)
            except BaseException as error:
                post(Signalled(self, "", error))
            else:
                post(Signalled(self, active_id))

    def _wait(self, wait: _Wait) -> str:
        if self._is_ending:
            self._parked.set()
            Event().wait()
        claim, timeout = wait
        if claim.next_due is not None:
            timeout = min(timeout, (claim.next_due - claim.now) / 1000)
        try:
            if claim.limited_ms or claim.paused:
                self._signal.pause(self._plan.worker, min(claim.limited_ms / 1000 or timeout, timeout))
                return ""
            return self._signal.wait(timeout)
        except ConnectionLost as error:
            self._warn("lost Redis, retrying", error)
            return ""

    def _process_reply(self, outcomes: Outcomes, claim: Claim) -> None:
        """Counts the settled outcomes, logs the rejected ones, and fails parents that could not complete."""
        self._stats.count(outcomes, claim.lost)
        for one in claim.lost:
            # When the process is to end, another thread has returned the jobs.
            if not one.is_blocked and not self._is_ending:
                self._warn(f"outcome of job {one.id} was rejected", LOST[one.why])
        blocked = self._retry(lambda: fail_blocked(self.handle, self._plan.policy, outcomes, claim.lost, claim.now))
        if blocked:
            self.work(blocked, 0)

    def _retry(self, call: Callable[[], T]) -> T:
        return retry_until_connected(call, self._warn, on_reconnect=self._on_reconnect)

    def _on_reconnect(self) -> None:
        self._warn("reconnected to Redis", self.handle.connection.settings.where)

    def _warn(self, what: str, why: object) -> None:
        log.warning("queue %s, slot %d: %s (%s)", self.handle.keys.queue, self._slot, what, why)
