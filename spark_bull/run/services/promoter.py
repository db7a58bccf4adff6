"""Promoter: promotes delayed jobs when they are due, fails expired ones, rescues stalled ones, and recovers writes.

It also ages jobs and runs guards. A Rescuer only moves stalled jobs back to `wait`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from spark_bull.core.clock import monotonic_s
from spark_bull.core.error_text import short_errors
from spark_bull.core.errors import SparkBullError
from spark_bull.core.model.guards import Guard
from spark_bull.core.options.arguments import ServiceArguments, with_options
from spark_bull.core.options.parse import parse_arguments
from spark_bull.core.options.table import ServiceOptions
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, QueueHandle
from spark_bull.core.queue.work.claim import Rescued, rescue
from spark_bull.core.queue.work.verbs import promote_due
from spark_bull.run.claims.waits import DamagedQueues
from spark_bull.run.services.guarding import Guarding, age_jobs, ageing_of
from spark_bull.run.services.service import MISSING_S, LossCheck, QueueSet, Recovery, Service, watches

if TYPE_CHECKING:
    from typing_extensions import Unpack

log = logging.getLogger("spark_bull")


@short_errors
@with_options(ServiceArguments, ServiceOptions)
class Rescuer(Service):
    """Rescues stalled jobs in a background thread, as workers of the Node libraries do.

        with Rescuer("redis://localhost:6379", queues=["mail"]):
            ...

    Several Rescuers may run in parallel, also with Node workers: one of them performs the check in each interval.
    A queue with a damaged key is logged and tried again; the others go on.

    Parameters:
      url: `redis://`, `rediss://` or `unix://` URL, with user, password and database. Default: $SPARK_BULL_URL, else
        localhost.
      queues: names or globs of the queues; default: all queues of the prefix.
      options: options of the connection, `check_ms` and `max_stalled`; see ServiceArguments.

    Raises:
      OptionError: for an invalid or unknown argument, or one that conflicts with another.
    """

    def __init__(
        self, url: str | None = None, queues: str | Iterable[str] = (), **options: Unpack[ServiceArguments]
    ) -> None:
        super().__init__("rescuer")
        parsed = parse_arguments({"url": url, **options}, ServiceOptions)
        self._queues = QueueSet(parsed, queues, works=True)
        self._damaged = DamagedQueues()
        self._check_ms: int = parsed.check_ms
        self._max_stalled: int = parsed.max_stalled

    def round(self) -> None:
        """Checks each queue, then waits for `check_ms`."""
        for handle in self._queues.handles():
            rescue = partial(rescue_and_log, handle, self._check_ms, self._max_stalled)
            self._damaged.attempt(handle.keys, "rescue jobs", rescue)
        self._over.wait(self._check_ms / 1000)


def rescue_and_log(handle: QueueHandle, check_ms: int, max_stalled: int) -> Rescued:
    """Checks one queue, and logs the number of stalled jobs if there are any."""
    rescued = rescue(handle, check_ms=check_ms, max_stalled=max_stalled)
    if rescued.stalled or rescued.failed:
        log.warning(
            "queue %s: %d stalled jobs were moved back to wait, %d failed because they stalled too often",
            handle.keys.queue,
            len(rescued.stalled),
            len(rescued.failed),
        )
    return rescued


#: Maximum pause between two rounds; a signal ends it earlier.
MAX_PAUSE_S: Final = 5.0
#: Minimum pause between two rounds, so that jobs due one after the other are promoted together.
MIN_PAUSE_S: Final = 0.002


@dataclass(frozen=True)
class PromoterStats:
    """Counters of a Promoter.

    Parameters:
      promoted: delayed jobs that were promoted.
      rescued: stalled jobs that were moved back to `wait`.
      failed: jobs that failed because they stalled too often.
      recovered: interrupted writes that were completed.
      expired: jobs that have expired.
      aged: jobs that got a higher priority, as they have waited for long.
      paused: how often a guard has paused a queue.
      resumed: how often a guard has resumed one.
    """

    promoted: int = 0
    rescued: int = 0
    failed: int = 0
    recovered: int = 0
    expired: int = 0
    aged: int = 0
    paused: int = 0
    resumed: int = 0


@short_errors
@with_options(ServiceArguments, ServiceOptions)
class Promoter(Service):
    """Promotes delayed jobs when they are due, in a background thread.

        with Promoter("redis://localhost:6379", queues=["mail"]):
            ...

    It also fails jobs that have expired, completes interrupted writes of Spark, logs those that Redis has lost and,
    unless `rescue` is False, rescues stalled jobs as a Rescuer does. Several Promoters may run in parallel, also with
    Node workers. `done` has the counters. A queue with a damaged key is logged and tried again; the others go on.

    Parameters:
      url: `redis://`, `rediss://` or `unix://` URL, with user, password and database. Default: $SPARK_BULL_URL, else
        localhost.
      queues: names or globs of the queues; default: all queues of the prefix.
      rescue: whether stalled jobs are rescued.
      ageing: {"after_ms": ms, "priority": number or name}: jobs of BullMQ with a lower priority that have waited for so
        long get this one, by default critical; default: none.
      guards: rules that pause a queue while its jobs fail, such as Guard("mail", "failedRate > 0.2 over 1m"). Of
        several Promoters with equal guards, one pauses a queue; any of them resumes it.
      options: options of the connection, `check_ms` and `max_stalled`; see ServiceArguments.

    Raises:
      OptionError: for an invalid or unknown argument, or one that conflicts with another.
    """

    def __init__(
        self,
        url: str | None = None,
        queues: str | Iterable[str] = (),
        *,
        rescue: bool = True,
        ageing: Mapping[str, Any] | None = None,
        guards: Guard | Iterable[Guard] = (),
        **options: Unpack[ServiceArguments],
    ) -> None:
        super().__init__("promoter")
        parsed = parse_arguments({"url": url, **options}, ServiceOptions)
        self._queues = QueueSet(parsed, queues, works=True)
        self._rescue = rescue
        self._ageing = ageing_of(ageing)
        self._damaged = DamagedQueues()
        self._guarding = Guarding(guards, self._queues.requested, self._damaged)
        self._check_ms: int = parsed.check_ms
        self._max_stalled: int = parsed.max_stalled
        self._signal = Event()
        self._watched: list[QueueHandle] = []
        self._watches: list[Service] = []
        self._recovery = Recovery(self._damaged)
        self._losses = LossCheck(damaged=self._damaged)
        self._rescue_at = self._age_at = 0.0
        self.done = PromoterStats()

    def once(self) -> PromoterStats:
        """Promotes all jobs that are due, and runs the checks that are due, in the calling thread.

        Returns:
          The counters of this Promoter.

        Raises:
          ConnectionLost: if Redis cannot be reached.
          DialectError: if a named queue has another dialect than `protocol`.
        """
        handles = self._queues.handles()
        self._run_checks(handles)
        while self._promote(handles) == 0:
            pass
        return self.done

    def round(self) -> None:
        """Promotes one chunk per queue, then waits until the next job is due or a signal arrives."""
        self._signal.clear()
        handles = self._queues.handles()
        self._watch(handles)
        self._run_checks(handles)
        pause = min(self._promote(handles), self._until_checks())
        if pause and not self._signal.wait(max(pause, MIN_PAUSE_S)):
            return
        if pause > MIN_PAUSE_S:
            self._over.wait(MIN_PAUSE_S)

    def wake(self) -> None:
        """Ends the wait of the current round."""
        self._signal.set()

    def _release(self) -> None:
        for watch in self._watches:
            try:
                watch.stop(0)
            except SparkBullError:
                log.debug("a watch had already failed", exc_info=True)

    def _promote(self, handles: Sequence[QueueHandle]) -> float:
        """Promotes and expires about a chunk of jobs per queue; returns the time until more is due, s."""
        pause = MAX_PAUSE_S
        moved = expired = 0
        for handle in handles:
            promoted = self._damaged.attempt(handle.keys, "promote jobs", partial(promote_due, handle, CHUNK_SIZE))
            if promoted is None:
                continue
            moved, expired = moved + promoted.moved, expired + promoted.expired
            if promoted.next_due is not None:
                pause = min(pause, max(0.0, (promoted.next_due - promoted.now) / 1000))
        self._count(promoted=moved, expired=expired)
        return pause

    def _count(self, **more: int) -> None:
        """Adds to counters."""
        self.done = replace(self.done, **{name: getattr(self.done, name) + count for name, count in more.items()})

    def _until_checks(self) -> float:
        """The time until the next check, s."""
        checks = [
            self._recovery.next_at,
            self._rescue_at,
            self._guarding.next_at,
            *([self._age_at] if self._ageing else []),
        ]
        pause = max(0.0, min(checks) - monotonic_s())
        return pause if self._queues.complete else min(pause, MISSING_S)

    def _run_checks(self, handles: Sequence[QueueHandle]) -> None:
        self._losses.run(handles)
        for handle, record in self._recovery.run(handles):
            log.warning("queue %s: recovered write %s, %d jobs", handle.keys.queue, record.id, record.done)
            self._count(recovered=1)
        self._count(**self._guarding.run(handles))
        now = monotonic_s()
        if self._ageing is not None and now >= self._age_at:
            for handle in handles:
                aged = self._damaged.attempt(handle.keys, "age jobs", partial(age_jobs, handle, self._ageing))
                self._count(aged=aged or 0)
            self._age_at = now + self._ageing.interval_s
        if not self._rescue:
            self._rescue_at = now + MAX_PAUSE_S
        elif now >= self._rescue_at:
            for handle in handles:
                rescue = partial(rescue_and_log, handle, self._check_ms, self._max_stalled)
                if rescued := self._damaged.attempt(handle.keys, "rescue jobs", rescue):
                    self._count(rescued=len(rescued.stalled), failed=len(rescued.failed))
            self._rescue_at = now + self._check_ms / 1000

    def _watch(self, handles: Sequence[QueueHandle]) -> None:
        """Restarts the watches if the set of queues has changed."""
        if [handle.keys for handle in handles] == [handle.keys for handle in self._watched]:
            return
        self._release()
        self._watched = list(handles)
        self._watches = watches(handles, self._signal)
        for watch in self._watches:
            watch.start()
