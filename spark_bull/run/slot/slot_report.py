"""What a slot tells about itself: counters in its report in Redis, failed attempts, damaged queues, metrics.

The driver logs why attempts fail: the first ones, then a few a minute.
"""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from socket import gethostname
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spark_bull.core.clock import epoch_ms, monotonic_s
from spark_bull.core.error_text import sendable
from spark_bull.core.errors import SparkBullError
from spark_bull.core.model.outcomes import Claim, Failed, Outcomes, Retried
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.run.slot.status import Slot, damage_in

if TYPE_CHECKING:
    from spark_bull.core.tracing.otel import JobMeter, State

log = logging.getLogger("spark_bull")


#: Maximum number of failures that are reported in a period, and its duration, s.
MOST: Final = 3
PERIOD_S: Final = 60.0
#: Maximum characters of a reason, and of a trace.
_MAX_REASON: Final = 500
_MAX_TRACE: Final = 3_000


class FewInPeriod:
    """Tells whether there were fewer than MOST in the last PERIOD_S."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=MOST)

    def take(self) -> bool:
        """Counts one more; False: it is one too many."""
        now = monotonic_s()
        if len(self._times) == MOST and now - self._times[0] < PERIOD_S:
            return False
        self._times.append(now)
        return True


@dataclass(frozen=True)
class FailedAttempt:
    """A failed attempt of a job. number: how many of this slot or task had failed with it. trace: may be empty."""

    number: int
    queue: str
    job: str
    reason: str
    trace: str


class Failures:
    """The last failures of a slot or task that are to be logged."""

    def __init__(self) -> None:
        self._count = 0
        self._few = FewInPeriod()
        self._last: deque[FailedAttempt] = deque(maxlen=MOST)

    def add(self, queue: str, outcomes: Outcomes) -> None:
        """Adds the failed attempts among the outcomes of settled jobs."""
        failed: list[Failed | Retried] = [*outcomes.failed, *outcomes.retried]
        for one in failed:
            self._count += 1
            if self._few.take():
                reason, trace = sendable(one.reason, _MAX_REASON), sendable(_last_trace(one), _MAX_TRACE)
                self._last.append(FailedAttempt(self._count, queue, one.id, reason, trace))

    @property
    def last(self) -> list[FailedAttempt]:
        return list(self._last)

    def as_report(self) -> list[dict[str, Any]]:
        """The failures as they are in a slot's report."""
        return [asdict(one) for one in self.last]


def failures_in(report: dict[str, Any]) -> Iterator[FailedAttempt]:
    """Reads the failures from a slot's report, which has none if an older version wrote it."""
    for one in report.get("failures", ()):
        yield FailedAttempt(**one)


def _last_trace(failed: Failed | Retried) -> str:
    traces = json.loads(failed.stack) if failed.stack else []
    # An outcome without a trace has its reason there.
    return str(traces[-1]) if traces and traces[-1] != failed.reason else ""


#: How often a busy slot publishes its counters.
REPORT_INTERVAL_S: Final = 1.0
#: How long they stay in Redis after that.
REPORT_TTL_MS: Final = 30 * 86_400_000


@dataclass
class SlotStats:
    """Jobs by what became of them.

    `returned`: given back by the processor, delayed, or waiting for their children. `lost`: their outcomes were
    rejected.
    """

    claimed: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    returned: int = 0
    lost: int = 0

    def add(self, counted: Mapping[str, int]) -> None:
        """Adds what a call has counted."""
        for name, number in counted.items():
            setattr(self, name, getattr(self, name) + number)


def report_name(slot: int, started: int) -> str:
    """The field of the report of a slot. started: ms since 1970."""
    return f"{slot}:{started}"


class SlotReport:
    """Publishes a slot's state and counters. state: starting, idle, busy or stopped.

    damaged: texts of the damage of the slot's queues, by their names.
    """

    def __init__(
        self,
        handle: QueueHandle,
        worker: str,
        run: int,
        slot: int,
        stats: SlotStats,
        failures: Failures,
        damaged: Mapping[str, str],
    ) -> None:
        self._handle = handle
        self._key = handle.keys.slots(worker)
        self._run = run
        self._slot = slot
        self._stats = stats
        self._failures = failures
        self._damaged = damaged
        self._started = epoch_ms()
        # All slots of an executor have the same parent, the daemon of PySpark.
        self._executor = f"{gethostname()}:{os.getppid()}"
        self._published = ""
        self._state = ""
        self._published_at = 0.0

    def publish_busy(self, clients: Sequence[int]) -> None:
        """Publishes at once that the slot is busy, and counters unless that was done within the last second."""
        if self._state != "busy" or monotonic_s() - self._published_at > REPORT_INTERVAL_S:
            self.publish("busy", clients)

    def publish(self, state: str, clients: Sequence[int]) -> None:
        """Publishes the counters if they have changed. clients: ids of the connections on which the slot waits."""
        fixed = {"run": self._run, "slot": self._slot, "started": self._started, "executor": self._executor}
        counted = {**asdict(self._stats), "failures": self._failures.as_report(), "damaged": self._damaged}
        report = json.dumps({**fixed, "state": state, "clients": list(clients), **counted})
        # Also if it fails: a Redis that refuses reports must not be asked for each chunk.
        self._published_at, self._state = monotonic_s(), state
        if report == self._published:
            return
        name = report_name(self._slot, self._started)
        try:
            self._handle.connection.pipeline([("HSET", self._key, name, report), ("PEXPIRE", self._key, REPORT_TTL_MS)])
            self._published = report
        except SparkBullError as error:
            queue = self._handle.keys.queue
            log.warning("queue %s, slot %d: could not publish its status report (%s)", queue, self._slot, error)


#: Said once, with the first failure.
_FURTHER: Final = "; further failures are logged a few per minute; see each job's failedReason"


class FailureLog:
    """Logs the failures of a worker, each of them once. who: begins each line, such as `worker 1f2e`."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._few = FewInPeriod()
        self._logged: dict[tuple[int, int], int] = {}
        self._advice = _FURTHER
        self._logging = Lock()

    def log_reports(self, reports: Iterable[Slot]) -> None:
        """Logs the new failures in reports of slots. May be called in several threads."""
        with self._logging:
            for report in reports:
                run = int(report["slot"]), int(report["started"])
                for one in failures_in(report):
                    if one.number > self._logged.get(run, 0):
                        self._logged[run] = one.number
                        self.log(one)

    def log(self, one: FailedAttempt) -> None:
        """Logs a failure, unless there were too many."""
        if self._few.take():
            trace = f"\n{one.trace}" if one.trace else ""
            log.warning(
                "%s: job %s of queue %s failed: %s%s%s",
                self._who,
                one.job,
                one.queue,
                one.reason,
                self._advice,
                trace,
            )
            self._advice = ""


class DamageLog:
    """Logs the damage of the queues of a worker."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._known: Mapping[str, str] = {}
        self._logging = Lock()

    def log_reports(self, reports: Sequence[Slot]) -> None:
        """Logs what has changed since the last reports of the slots that run. May be called in several threads."""
        if not reports:
            return
        with self._logging:
            known, self._known = self._known, damage_in(reports)
            for queue, error in self._known.items():
                if known.get(queue) != error:
                    log.error(
                        "worker %s: no jobs of queue %s are processed until it is repaired: %s",
                        self._worker,
                        queue,
                        error,
                    )
            for queue in known.keys() - self._known.keys():
                log.warning("worker %s: queue %s is no longer damaged", self._worker, queue)


class _Held(NamedTuple):
    """A job that the slot holds. since: when it was claimed, ms since 1970, by Redis' clock."""

    name: str | None
    since: int


class QueueMeter:
    """Records each job when it is settled, as BullMQ's workers do. Jobs that return as they were are not recorded."""

    def __init__(self, meter: JobMeter, queue: str) -> None:
        self._meter = meter
        self._queue = queue
        self._held: dict[str, _Held] = {}

    def add(self, outcomes: Outcomes | None, claim: Claim) -> None:
        """Records the outcomes that a call has settled, and remembers the jobs that it has claimed."""
        if outcomes is not None:
            self._settle(outcomes, claim)
        self._held.update((job.id, _Held(job.name, claim.now)) for job in claim.jobs)

    def _settle(self, outcomes: Outcomes, claim: Claim) -> None:
        # A job that is blocked is settled again, with another outcome.
        blocked = {one.id: self._held[one.id] for one in claim.lost if one.is_blocked and one.id in self._held}
        for one in claim.lost:
            self._held.pop(one.id, None)
        for state, ids in _by_state(outcomes):
            settled = [held for job_id in ids if (held := self._held.pop(job_id, None)) is not None]
            if settled:
                self._meter.settled(self._queue, state, [(held.name, claim.now - held.since) for held in settled])
        for job_id in outcomes.unstarted:
            self._held.pop(job_id, None)
        self._held.update(blocked)


def _by_state(outcomes: Outcomes) -> Iterator[tuple[State, Iterable[str]]]:
    """The ids of the jobs by what becomes of them, as BullMQ names it."""
    yield "completed", outcomes.completed_ids
    yield "failed", (job.id for job in outcomes.failed)
    yield "retried", (job.id for job in outcomes.retried if not job.delay)
    yield "delayed", [*(job.id for job in outcomes.retried if job.delay), *(job.id for job in outcomes.delayed)]
    yield "waiting", [*outcomes.returned, *(job.id for job in outcomes.rested)]
    yield "waiting-children", outcomes.waiting_for_children
