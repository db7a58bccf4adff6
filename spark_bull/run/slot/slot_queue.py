"""One queue of a slot: claims and settles its jobs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from uuid import uuid4

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import QueueDamaged
from spark_bull.core.model.outcomes import LOST, Claim, ClaimedJob, Outcomes
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.work.claim import work
from spark_bull.run.claims.damage import Damage
from spark_bull.run.claims.job_signal import retry_until_connected
from spark_bull.run.claims.lock_keeper import LockKeeper
from spark_bull.run.job.job_options import once_only, own_locks
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.slot.blocked_parents import fail_blocked
from spark_bull.run.slot.failures import Failures
from spark_bull.run.slot.job_wait import JobWait, Signalled
from spark_bull.run.slot.queue_meter import QueueMeter
from spark_bull.run.slot.slot_plan import SlotPlan, SlotQueuePlan
from spark_bull.run.slot.slot_stats import SlotStats
from spark_bull.run.slot.unsettled import Unsettled

if TYPE_CHECKING:
    from spark_bull.core.tracing.meter import JobMeter

log = logging.getLogger("spark_bull")

T = TypeVar("T")

#: When the process is to end: how long to wait for each lock, s.
_LOCK_S: Final = 5.0
#: What the control key says: to stop, to return the jobs that are held, or to claim none.
STOP: Final = b"stop"
END: Final = b"end"
PAUSE: Final = b"pause"


class _Clock(NamedTuple):
    """Time of Redis at a call, ms since 1970; when the call was sent and when it was answered, monotonic, s."""

    redis_ms: int
    sent_s: float
    answered_s: float


class _Call(NamedTuple):
    """A call that settles and claims. name: for its repetition. held: id of a job that a wait has moved to `active`."""

    name: str
    outcomes: Outcomes | None
    held: bytes
    limit: int = 0
    token: str = ""
    most_bytes: int = 1


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
    """One queue as one slot works on it: `keeper` has the locks of its jobs, `unsettled` the jobs, `wait` its waits.

    damaged: gets the text of the queue's damage, by its name. post: see JobWait. at_once: how many of the claimed jobs
    start at once; None: all. meter: None records nothing.

    Three locks, taken in this order: `_calling`, `unsettled.recording`, that of the keeper; see
    docs/develop/threads-and-locks.md.
    """

    def __init__(
        self,
        plan: SlotPlan,
        queue: SlotQueuePlan,
        slot: int,
        stats: SlotStats,
        failures: Failures,
        damaged: dict[str, str],
        post: Callable[[Signalled], None] | None,
        at_once: int | None,
        meter: JobMeter | None = None,
    ) -> None:
        self.handle: QueueHandle = queue.handle
        self.weight = queue.weight
        #: What `setup` has made for the jobs of the slot.
        self.state: Any = None
        settings = self._claim_settings = replace(queue.claim_settings, sender=f"{plan.worker}:{slot}", at_once=at_once)
        self.keeper = LockKeeper(self.handle, settings.lock_ms)
        self._meter = None if meter is None else QueueMeter(meter, self.handle.keys.queue)
        self.unsettled = Unsettled(self.handle, plan, settings, self.keeper, self._warn, self._meter)
        self.wait = JobWait(self.handle, plan.worker, settings.worker or plan.worker, post, self._warn)
        self._start_limit = queue.start_limit
        self._plan = plan
        self._slot = slot
        self._stats = stats
        self._failures = failures
        self._damaged = damaged
        self._damage = Damage(self._tell_damage)
        #: Calls that are sent when the damage of the queue is repaired.
        self._owed: list[_Call] = []
        self._clock = _Clock(0, 0.0, 0.0)
        #: Held during a call that settles and claims.
        self._calling = Lock()
        #: Time of Redis at the first claim, ms since 1970.
        self._since = 0
        self._is_ending = False

    def __enter__(self) -> SlotQueue:
        self.wait.__enter__()
        self.keeper.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.wait.__exit__()
        self.keeper.__exit__()

    @property
    def now(self) -> int:
        """Redis' clock, ms since 1970, as of the last call."""
        return self._clock.redis_ms + int(1000 * (monotonic_s() - self._clock.answered_s))

    def work(self, outcomes: Outcomes | None, limit: int, token: str = "", claimed_bytes: int = 0) -> Claim:
        """Settles and claims. A retry after a lost connection sends the same call id and so has no second effect.

        While the queue is damaged, nothing is claimed, and the claim says how long the queue rests; its outcomes are
        settled when it is repaired. token: see `spark_bull.core.queue.work.claim.work`. claimed_bytes: size of the
        payloads that the chunk has.
        """
        most_bytes = max(1, min(self._plan.chunk_bytes, self._plan.most_bytes - claimed_bytes))
        call = _Call(uuid4().hex, outcomes, self.wait.take_active(), limit, token, most_bytes)
        if not self._damage.rest_s:
            try:
                self._send_owed()
                claim = self._send(call)
                self._damage.end()
                return claim
            except QueueDamaged as error:
                self._damage.begin(error)
        # Only the first of these calls may have been sent.
        if call.outcomes or call.held or not self._owed:
            self._owed.append(call._replace(limit=0))
        return self._no_claim()

    def end_work(self) -> None:
        """Settles what is left if the queue was damaged."""
        try:
            self._send_owed()
        except QueueDamaged as error:
            if jobs := sum(len(call.outcomes) for call in self._owed if call.outcomes):
                self._warn(f"outcomes of {jobs} jobs are lost, which run again after their locks expire", error)

    def _send_owed(self) -> None:
        """Sends the calls that have failed. What they have claimed nevertheless returns as it was."""
        while self._owed:
            call = self._owed.pop(0)
            try:
                claim = self._send(call)
            except QueueDamaged:
                self._owed.insert(0, call)
                raise
            if claim.jobs:
                unstarted = Outcomes(claim.token, unstarted=[job.id for job in claim.jobs])
                self._owed.insert(0, _Call(uuid4().hex, unstarted, b""))

    def _no_claim(self) -> Claim:
        """The claim of a queue that rests as it is damaged."""
        key = self._claim_settings.control
        control = self._retry(lambda: self.handle.connection.call("GET", key)) if key else None
        return Claim(
            "",
            jobs=[],
            lost=[],
            limited_ms=max(1, int(1000 * self._damage.rest_s)),
            next_due=None,
            more=False,
            stop=control in (STOP, END),
            paused=control == PAUSE,
            now=self.now,
            claimed=0,
            counted={},
        )

    def _send(self, call: _Call) -> Claim:
        outcomes = call.outcomes
        settled = set() if outcomes is None else outcomes.all_ids()
        with self._calling:
            most = 0 if self._is_ending else call.limit

            def send() -> tuple[float, Claim]:
                return monotonic_s(), work(
                    self.handle,
                    self._claim_settings,
                    outcomes,
                    most,
                    most_bytes=call.most_bytes,
                    held=call.held,
                    call=call.name,
                    token=call.token,
                )

            with self.keeper.settling("" if outcomes is None else outcomes.token, settled):
                sent_s, claim = self._retry(send)
            if outcomes is not None:
                self.unsettled.forget(outcomes, settled)
            if claim.jobs:
                self.keeper.hold(claim.token, [job.id for job in claim.jobs], claim.now, own_locks(claim.jobs))
        self._clock = _Clock(claim.now, sent_s, monotonic_s())
        self._since = self._since or claim.now
        self._stats.add(claim.counted)
        if self._meter is not None:
            self._meter.add(outcomes, claim)
        if outcomes is not None:
            self._failures.add(self.handle.keys.queue, outcomes)
        if outcomes is not None and claim.lost:
            self._process_lost(outcomes, claim)
        if self._start_limit is not None:
            return claim._replace(jobs=self._start_limit.checked(claim.jobs))
        return claim

    def running(self, jobs: Sequence[ClaimedJob], token: str) -> list[RunningJob]:
        """Returns claimed jobs as processors receive them."""
        unsettled = self.unsettled
        if unsettled.begun:
            # An earlier attempt, whose lock was lost, may have begun here.
            unsettled.begun.difference_update(job.id for job in jobs)
        handle, lost, state, begun = self.handle, self.keeper.lost, self.state, unsettled.begun
        running = [
            RunningJob(
                job,
                handle,
                token,
                lost,
                state,
                begun,
                None if job.expire_at is None else self._expires_s(job.expire_at),
            )
            for job in jobs
        ]
        if once := once_only(jobs):
            unsettled.only_once.update((job.id, job) for job in running if job.id in once)
        if self._start_limit is not None:
            for job in running:
                if self._start_limit.is_last(job.claimed):
                    job.discard()
        return running

    def _expires_s(self, expire_at: int) -> float:
        """When a job expires, on the monotonic clock, s; not later than by Redis' clock: a call takes time.

        expire_at: ms since 1970, by Redis' clock, whose time here is without fractions of a ms.
        """
        return self._clock.sent_s + (expire_at - self._clock.redis_ms - 1) / 1000

    def is_to_end(self) -> bool:
        """Whether the worker no longer waits for the jobs that the slot holds. Raises ConnectionLost."""
        control = self._claim_settings.control
        return bool(control and self.handle.connection.call("GET", control) == END)

    def end(self) -> None:
        """Claims and waits for no more jobs; may be called in any thread."""
        self._is_ending = True
        self.wait.end_for_good()

    def return_held(self) -> None:
        """Returns all jobs that are held to the queue after end(); may be called in any thread. Raises ConnectionLost.

        See `Unsettled.return_all`.
        """
        # A call that claims jobs may be under way; without Redis, it takes too long.
        with _held_for(self._calling, _LOCK_S), _held_for(self.unsettled.recording, _LOCK_S):
            self.unsettled.return_all(self.now, self._since)

    def _process_lost(self, outcomes: Outcomes, claim: Claim) -> None:
        """Logs the rejected outcomes, and fails parents that could not complete."""
        for one in claim.lost:
            # When the process is to end, another thread has returned the jobs.
            if not one.is_blocked and not self._is_ending:
                self._warn(f"outcome of job {one.id} was rejected", LOST[one.why])
        blocked = self._retry(lambda: fail_blocked(self.handle, self._plan.policy, outcomes, claim.lost, claim.now))
        if blocked:
            self.work(blocked, 0)

    def _retry(self, call: Callable[[], T]) -> T:
        where = self.handle.connection.settings.where
        return retry_until_connected(call, self._warn, on_reconnect=lambda: self._warn("reconnected to Redis", where))

    def _tell_damage(self, error: str) -> None:
        """Tells the driver, which logs it once for all slots."""
        queue = self.handle.keys.queue
        if error:
            self._damaged[queue] = error
        else:
            del self._damaged[queue]
        log.info("queue %s, slot %d: %s", queue, self._slot, error or "is no longer damaged")

    def _warn(self, what: str, why: object) -> None:
        log.warning("queue %s, slot %d: %s (%s)", self.handle.keys.queue, self._slot, what, why)
