"""One queue of a slot: waits for its jobs, claims and settles them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

from spark_bull.core.errors import ConnectionLost, QueueDamaged, SparkBullError
from spark_bull.core.model.outcomes import LOST, Claim, ClaimedJob, Outcomes
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.threads import DaemonThread
from spark_bull.run.claims.lock_keeper import LockKeeper
from spark_bull.run.claims.waits import RECONNECT_PAUSE_S, RETRY_S, JobSignal
from spark_bull.run.job.job_options import once_only
from spark_bull.run.job.outcome_policy import fail_blocked
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.slot.queue_calls import END, Call, QueueCalls, Unsettled
from spark_bull.run.slot.slot_plan import SlotPlan, SlotQueuePlan
from spark_bull.run.slot.slot_report import Failures, QueueMeter, SlotStats

if TYPE_CHECKING:
    from spark_bull.core.tracing.otel import JobMeter

log = logging.getLogger("spark_bull")


#: An idle slot sends three commands per queue in this time: CLIENT ID, one that waits for a job, one that claims.
IDLE_S: Final = 10.0
#: Maximum duration of a wait if Redis denies CLIENT UNBLOCK, and the slot has several queues.
SHORT_WAIT_S: Final = 1.0
#: Maximum time until a wait has ended when the process is to end.
_PARK_S: Final = 1.0


class Signalled(NamedTuple):
    """A wait is over, or has failed with `error`.

    active_id: id of the job that it has moved to `active` (Bull), or b"".
    """

    wait: JobWait
    active_id: bytes
    error: BaseException | None = None


class JobWait:
    """Waits until there may be a job in a queue, on a connection of its own.

    `post` gets a Signalled when a wait is over, which runs in a thread; without it, waits run in `run`. worker: id of
    the worker. name: of the connection.
    """

    def __init__(
        self,
        handle: QueueHandle,
        worker: str,
        name: str,
        post: Callable[[Signalled], None] | None,
        warn: Callable[[str, object], None],
    ) -> None:
        self.is_on = False
        #: Whether a wait is over, and the slot has not asked for jobs since.
        self.has_woken = False
        self._handle = handle
        self._worker = worker
        self._post = post
        self._warn = warn
        self._signal = JobSignal(handle, name, IDLE_S)
        #: Claims that did not get a job, and how long to wait after each, s.
        self._requests: SimpleQueue[tuple[Claim, float] | None] = SimpleQueue()
        self._max_wait_s = IDLE_S
        self._active_id = b""
        self._is_ending = False
        self._parked = Event()
        self._is_lost = False
        #: Ends a pause after a lost connection.
        self._unblocked = Event()

    def __enter__(self) -> JobWait:
        self._signal.identify()
        if self._post is not None:
            post = self._post
            DaemonThread("signal", lambda: self._serve(post)).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.put(None)
        self._signal.close()

    @property
    def client(self) -> int:
        """Id of the connection, for CLIENT UNBLOCK; 0 if unknown."""
        return self._signal.client

    def begin(self, claim: Claim, timeout_s: float = math.inf) -> None:
        """Begins to wait until there may be a job that this claim did not get, for `timeout_s` at most."""
        self.is_on = True
        self._unblocked.clear()
        self._requests.put((claim, min(timeout_s, self._max_wait_s)))

    def run(self) -> None:
        """Runs the wait in this thread, which takes less time than to hand it to another one and back."""
        request = self._requests.get()
        if request is not None:
            self.end(self._wait(*request))

    def end(self, active_id: bytes) -> None:
        """Ends the wait, which has moved this job to `active`; b"": none."""
        self.is_on, self.has_woken = False, True
        self._active_id = active_id

    def take_active(self) -> bytes:
        """Takes the job that the last wait has moved to `active`, or b"".

        The next call claims it; or puts it back, and signals other workers, if it is to claim nothing.
        """
        active_id, self._active_id, self.has_woken = self._active_id, b"", False
        return active_id

    def unblock(self) -> None:
        """Ends the wait early, if Redis permits that."""
        self._unblocked.set()
        try:
            self._handle.connection.call("CLIENT", "UNBLOCK", self.client)
        except SparkBullError as error:
            if self._max_wait_s > SHORT_WAIT_S:
                self._warn(f"a wait for jobs could not be ended; waits take {SHORT_WAIT_S:g} s from now on", error)
            self._max_wait_s = SHORT_WAIT_S

    def end_for_good(self) -> None:
        """Ends the wait, and lets no other one begin; may be called in any thread."""
        self._is_ending = True
        if self.is_on:
            self.unblock()
            # It may have moved a job to `active`, which the loop puts back before it waits again.
            self._parked.wait(_PARK_S)

    def _serve(self, post: Callable[[Signalled], None]) -> None:
        while (request := self._requests.get()) is not None:
            try:
                active_id = self._wait(*request)
            except BaseException as error:
                post(Signalled(self, b"", error))
            else:
                post(Signalled(self, active_id))

    def _wait(self, claim: Claim, timeout: float) -> bytes:
        if self._is_ending:
            self._parked.set()
            Event().wait()
        if claim.next_due is not None:
            timeout = min(timeout, (claim.next_due - claim.now) / 1000)
        try:
            active_id = self._signalled(claim, timeout)
        except ConnectionLost as error:
            if not self._is_lost:
                self._warn("lost Redis, retrying", error)
            self._is_lost = True
            # A call that claims may succeed: without a pause, both would be repeated at once.
            self._unblocked.wait(RECONNECT_PAUSE_S)
            return b""
        self._is_lost = False
        return active_id

    def _signalled(self, claim: Claim, timeout: float) -> bytes:
        if claim.limited_ms or claim.paused:
            self._signal.pause(self._worker, min(claim.limited_ms / 1000 or timeout, timeout))
            return b""
        try:
            return self._signal.wait(timeout)
        except QueueDamaged:
            # The next call of the slot fails, too, and says why.
            self._signal.pause(self._worker, RETRY_S)
            return b""


class SlotQueue:
    """One queue as one slot works on it: `keeper` has the locks of its jobs, `unsettled` the jobs, `wait` its waits.

    damaged: gets the text of the queue's damage, by its name. post: see JobWait. at_once: how many of the claimed jobs
    start at once; None: all. meter: None records nothing.

    Three locks, taken in this order: `QueueCalls._calling`, `unsettled.recording`, the keeper's; see
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
        settings = queue.work_settings._replace(sender=f"{plan.worker}:{slot}", at_once=at_once)
        self._control = settings.control
        self._plan = plan
        self._slot = slot
        self._start_limit = queue.start_limit
        self._stats = stats
        self._failures = failures
        self._damaged = damaged
        self._meter = None if meter is None else QueueMeter(meter, self.handle.keys.queue)
        self.keeper = LockKeeper(self.handle, settings.lock_ms)
        self.unsettled = Unsettled(self.handle, plan, settings, self.keeper, self._warn, self._meter)
        self.wait = JobWait(self.handle, plan.worker, settings.worker or plan.worker, post, self._warn)
        self.calls = QueueCalls(
            self.handle,
            settings,
            self.keeper,
            self.unsettled,
            follow=self._note,
            tell_damage=self._tell_damage,
            warn=self._warn,
        )

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
        return self.calls.now

    def work(self, outcomes: Outcomes | None, limit: int, token: str = "", claimed_bytes: int = 0) -> Claim:
        """Settles and claims. A retry after a lost connection sends the same call id and so has no second effect.

        While the queue is damaged, nothing is claimed, and the claim says how long the queue rests; its outcomes are
        settled when it is repaired. token: see `spark_bull.core.queue.work.claim.work`. claimed_bytes: size of the
        payloads that the chunk has.
        """
        most_bytes = max(1, min(self._plan.chunk_bytes, self._plan.most_bytes - claimed_bytes))
        claim = self.calls.send(Call(uuid4().hex, outcomes, self.wait.take_active(), limit, token, most_bytes))
        return claim if self._start_limit is None else claim._replace(jobs=self._start_limit.checked(claim.jobs))

    def end_work(self) -> None:
        """Settles what is left if the queue was damaged."""
        self.calls.end()

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
                None if job.expire_at is None else self.calls.monotonic_of(job.expire_at),
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

    def is_to_end(self) -> bool:
        """Whether the worker no longer waits for the jobs that the slot holds. Raises ConnectionLost."""
        return bool(self._control and self.handle.connection.call("GET", self._control) == END)

    def end(self) -> None:
        """Claims and waits for no more jobs; may be called in any thread."""
        self.calls.is_ending = True
        self.wait.end_for_good()

    def return_held(self) -> None:
        """Returns all jobs that are held to the queue after end(); may be called in any thread. Raises ConnectionLost.

        See `Unsettled.return_all`.
        """
        with self.calls.held_for_return():
            self.unsettled.return_all(self.calls.now, self.calls.since)

    def _note(self, outcomes: Outcomes | None, claim: Claim) -> Outcomes | None:
        """Counts what a call has done, and logs rejected outcomes; returns the failures of parents that are blocked."""
        blocked = None
        if outcomes is not None and claim.lost:
            # First, as it may fail: the call is then sent again, and counted once.
            policy = self._plan.policy
            blocked = self.calls.retry(lambda: fail_blocked(self.handle, policy, outcomes, claim.lost, claim.now))
        self._stats.add(claim.counted)
        if self._meter is not None:
            self._meter.add(outcomes, claim)
        if outcomes is not None:
            self._failures.add(self.handle.keys.queue, outcomes)
        for one in claim.lost:
            # When the process is to end, another thread has returned the jobs.
            if not one.is_blocked and not self.calls.is_ending:
                self._warn(f"outcome of job {one.id} was rejected", LOST[one.why])
        return blocked

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
