"""The calls by which a slot settles and claims jobs of one queue, each with one effect.

It knows the jobs that were claimed and not settled yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Final, NamedTuple, TypeVar
from uuid import uuid4

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import QueueDamaged, UnrecoverableError
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.outcomes import Claim, Outcomes
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.work.claim import parts_to_return, work
from spark_bull.core.queue.work.verbs import stall
from spark_bull.run.claims.lock_keeper import LockKeeper
from spark_bull.run.claims.waits import Damage, retry_until_connected
from spark_bull.run.job.job_options import own_locks
from spark_bull.run.job.job_runner import Result
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.slot.slot_report import QueueMeter

#: Number of jobs of a UDF's chunk that one script claims, settles or returns, so that it does not block Redis for long.
SCRIPT_JOBS: Final = 200
#: Why a job fails whose process ends, and that must not run again.
ENDED: Final = "the process of the worker was ended while the job ran, and the job may run at most once"
#: Why running jobs are returned.
STALLED: Final = "the process of the worker is to end: they have stalled"


class Unsettled:
    """What is known of jobs from their claim until they are settled, and their return when the process is to end."""

    def __init__(
        self,
        handle: QueueHandle,
        plan: SlotPlan,
        work_settings: WorkSettings,
        keeper: LockKeeper,
        warn: Callable[[str, object], None],
        meter: QueueMeter | None = None,
    ) -> None:
        self._handle = handle
        self._plan = plan
        # The receipt of the slot may belong to a call that another thread makes.
        self._work_settings = work_settings._replace(sender=f"{work_settings.sender}:end")
        self._keeper = keeper
        self._warn = warn
        self._meter = meter
        #: Ids of the jobs for which the processor was called.
        self.begun: set[str] = set()
        #: Jobs that must never run twice.
        self.only_once: dict[str, RunningJob] = {}
        #: Guards `ended`, and the outcomes that the loop records.
        self.recording = Lock()
        #: Results of jobs that have ended, until the loop records their outcomes; by job id.
        self.ended: dict[str, Result] = {}
        self._recorded: list[Outcomes] = []

    def new_outcomes(self, token: str) -> Outcomes:
        """Returns where the loop is to record outcomes, with `recording` held; return_all() settles them, too."""
        outcomes = Outcomes(token)
        self._recorded.append(outcomes)
        return outcomes

    def forget(self, outcomes: Outcomes, settled: set[str]) -> None:
        """Forgets outcomes that were settled. settled: the ids of their jobs."""
        self.begun -= settled
        for job_id in self.only_once.keys() & settled:
            del self.only_once[job_id]
        with self.recording:
            self._recorded = [one for one in self._recorded if one is not outcomes]

    def return_all(self, now: int, since: int) -> None:
        """Returns all jobs that are held to the queue; to be called with `recording` held. Raises ConnectionLost.

        Jobs that have ended are settled. Jobs whose function has not been called are as they were before they were
        claimed. Jobs that have begun have stalled; they fail if they must never run twice. now: time of Redis;
        since: time of the first claim; ms since 1970.
        """
        self._record_ended(now)
        held, ended = self._keeper.give_up(), set[str]()
        for recorded in filter(len, self._recorded):
            ended |= recorded.all_ids()
            self._settle(recorded)
        by_token: dict[str, list[str]] = {}
        for job_id, hold in held.items():
            if job_id not in ended:
                by_token.setdefault(hold.token, []).append(job_id)
        stalled = self.begun - self.only_once.keys()
        for token, ids in reversed(by_token.items()):
            others = [job_id for job_id in ids if job_id not in stalled]
            for part in parts_to_return(others, SCRIPT_JOBS):
                self._settle(self._unfinished(token, part, now))
            for part in parts_to_return([job_id for job_id in ids if job_id in stalled], SCRIPT_JOBS):
                self._stall(token, part, since)

    def _record_ended(self, now: int) -> None:
        """Records the outcomes of jobs that have ended, which the loop will not do any more."""
        held, outcomes = self._keeper.held(), dict[str, Outcomes]()
        for job_id, result in self.ended.items():
            if job_id in held and not result.job.lock_lost:
                token = held[job_id].token
                if token not in outcomes:
                    outcomes[token] = self.new_outcomes(token)
                self._plan.policy.record(outcomes[token], self._handle.dialect, result, now)
        self.ended.clear()

    def _unfinished(self, token: str, ids: Sequence[str], now: int) -> Outcomes:
        """The outcomes of jobs that have not begun when the process is to end, or must never run twice."""
        outcomes = Outcomes(token)
        for job_id in ids:
            if job_id in self.begun and job_id in self.only_once:
                result = Result(self.only_once[job_id], None, UnrecoverableError(ENDED))
                self._plan.policy.record(outcomes, self._handle.dialect, result, now)
            else:
                outcomes.unstarted.append(job_id)
        return outcomes

    def _settle(self, outcomes: Outcomes) -> None:
        claim = work(self._handle, self._work_settings, outcomes, 0)
        if self._meter is not None:
            self._meter.add(outcomes, claim)

    def _stall(self, token: str, ids: Sequence[str], since: int) -> None:
        reply = stall(self._handle, token, ids, max_stalled=self._plan.max_stalled, since=since)
        self._warn(f"running jobs returned to the queue: {len(reply.returned)}, failed: {len(reply.failed)}", STALLED)


T = TypeVar("T")

#: When the process is to end: how long to wait for each lock, s.
_LOCK_S: Final = 5.0
#: What the control key says: to stop, to return the jobs that are held, or to claim none.
STOP: Final = b"stop"
END: Final = b"end"
PAUSE: Final = b"pause"


class Call(NamedTuple):
    """A call that settles and claims. name: for its repetition. held: id of a job that a wait has moved to `active`."""

    name: str
    outcomes: Outcomes | None
    held: bytes = b""
    limit: int = 0
    token: str = ""
    most_bytes: int = 1


def settling(outcomes: Outcomes) -> Call:
    """A call that claims nothing."""
    return Call(uuid4().hex, outcomes)


class _Clock(NamedTuple):
    """Time of Redis at a call, ms since 1970; when the call was sent and when it was answered, monotonic, s."""

    redis_ms: int
    sent_s: float
    answered_s: float


class QueueCalls:
    """Sends calls one at a time, each until Redis answers. `keeper` has the locks of the jobs, `unsettled` the jobs.

    A call that fails as the queue is damaged is owed: it is sent again, under its name, before the next one.

    follow: gets what a call has settled, and its reply; returns outcomes that are to be settled next, or None.
    tell_damage: gets the text of the queue's damage, "" when it is repaired. warn: gets a message and its reason.
    """

    def __init__(
        self,
        handle: QueueHandle,
        settings: WorkSettings,
        keeper: LockKeeper,
        unsettled: Unsettled,
        *,
        follow: Callable[[Outcomes | None, Claim], Outcomes | None],
        tell_damage: Callable[[str], None],
        warn: Callable[[str, object], None],
    ) -> None:
        self._handle = handle
        self._settings = settings
        self._keeper = keeper
        self._unsettled = unsettled
        self._follow = follow
        self._warn = warn
        self._damage = Damage(tell_damage)
        self._owed: deque[Call] = deque()
        self._clock = _Clock(0, 0.0, 0.0)
        #: Held during the calls that are owed, and the changes that follow from each.
        self._calling = Lock()
        #: Whether claimed jobs are to start later. Then none are claimed while the queue or its groups have limits.
        self.is_ahead = False
        #: Whether no more jobs are claimed, as the process is to end.
        self.is_ending = False
        #: Time of Redis at the first call, ms since 1970.
        self.since = 0

    @property
    def now(self) -> int:
        """Redis' clock, ms since 1970, as of the last call."""
        clock = self._clock
        return clock.redis_ms + int(1000 * (monotonic_s() - clock.answered_s))

    def monotonic_of(self, ms: int) -> float:
        """A time of Redis' clock on the monotonic clock, s; not later than by Redis' clock: a call takes time.

        ms: since 1970; Redis' time of a call is without fractions of a ms.
        """
        clock = self._clock
        return clock.sent_s + (ms - clock.redis_ms - 1) / 1000

    def send(self, call: Call) -> Claim:
        """Sends the calls that are owed, this one, and what follows from each.

        While the queue is damaged, nothing is claimed, and the claim says how long the queue rests; the outcomes are
        settled when it is repaired.
        """
        with self._calling:
            self._owed.append(call)
            claim = None if self._damage.rest_s else self._send_owed(call)
            if claim is not None:
                return claim
            self._owed.pop()
            # Only the first of the owed calls may have been sent: its claim is lost unless it is sent again.
            if call.outcomes or call.held or not self._owed:
                self._owed.append(call._replace(limit=0))
        return self._no_claim()

    def end(self) -> None:
        """Sends the calls that are owed for the last time."""
        with self._calling:
            if self._owed:
                self._send_owed(None)
        if jobs := sum(len(call.outcomes) for call in self._owed if call.outcomes):
            self._warn(
                f"outcomes of {jobs} jobs are lost, which run again after their locks expire", self._damage.error
            )

    @contextmanager
    def held_for_return(self) -> Iterator[None]:
        """Keeps calls, and the recording of outcomes, from happening in the block; in another thread than the loop's.

        A call that claims jobs may be under way; without Redis it takes too long: the block begins after _LOCK_S.
        """
        with _held_for(self._calling), _held_for(self._unsettled.recording):
            yield

    def retry(self, call: Callable[[], T]) -> T:
        """Repeats what has no further effect until Redis answers."""
        where = self._handle.connection.settings.where
        return retry_until_connected(call, self._warn, on_reconnect=lambda: self._warn("reconnected to Redis", where))

    def _send_owed(self, last: Call | None) -> Claim | None:
        """Sends all calls that are owed, and what follows from them; returns the claim of `last`, None without it.

        What others have claimed returns as it was.
        """
        claim = None
        try:
            while self._owed:
                call = self._owed[0]
                reply = self._exchange(call)
                follow = self._follow(call.outcomes, reply)
                self._owed.popleft()
                if call is last:
                    claim = reply
                elif reply.jobs:
                    unstarted = Outcomes(reply.token, unstarted=[job.id for job in reply.jobs])
                    self._owed.appendleft(settling(unstarted))
                if follow:
                    self._owed.appendleft(settling(follow))
            self._damage.end()
        except QueueDamaged as error:
            self._damage.begin(error)
        return claim

    def _exchange(self, call: Call) -> Claim:
        """Sends a call until Redis answers. Raises QueueDamaged."""
        outcomes = call.outcomes
        settled = set() if outcomes is None else outcomes.all_ids()
        most = 0 if self.is_ending else call.limit
        settings = self._settings._replace(at_once=0) if self.is_ahead else self._settings

        def send() -> tuple[float, Claim]:
            return monotonic_s(), work(
                self._handle,
                settings,
                outcomes,
                most,
                most_bytes=call.most_bytes,
                held=call.held,
                call=call.name,
                token=call.token,
            )

        with self._keeper.settling("" if outcomes is None else outcomes.token, settled):
            sent_s, claim = self.retry(send)
        if outcomes is not None:
            self._unsettled.forget(outcomes, settled)
        if claim.jobs:
            self._keeper.hold(claim.token, [job.id for job in claim.jobs], claim.now, own_locks(claim.jobs))
        self._clock = _Clock(claim.now, sent_s, monotonic_s())
        self.since = self.since or claim.now
        return claim

    def _no_claim(self) -> Claim:
        """The claim of a queue that rests as it is damaged."""
        key = self._settings.control
        control = self.retry(lambda: self._handle.connection.call("GET", key)) if key else None
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


@contextmanager
def _held_for(lock: Lock) -> Iterator[None]:
    """Holds a lock in the block; begins the block without it after _LOCK_S."""
    is_held = lock.acquire(timeout=_LOCK_S)
    try:
        yield
    finally:
        if is_held:
            lock.release()
