"""Claims jobs for a streaming query, extends their locks, and claims the next jobs while a batch is processed.

A micro-batch has a fixed cost, but its jobs are claimed together: other workers cannot take them until it ends. So its
size follows the backlog and the duration of jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Final

from spark_bull.core.dialects.terms import LOCK_MS
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.queue.work.claim import take_up, unpack_claimed
from spark_bull.core.queue.work.claim_ledger import ClaimLedger, Portion
from spark_bull.run.claims.lock_keeper import Hold, LockKeeper
from spark_bull.run.job.job_options import own_locks

#: Size of the packed jobs at which a batch ends, as they are kept in memory.
MAX_PACKED_BYTES: Final = 64 << 20


class QueryLockKeeper(LockKeeper):
    """Drops jobs whose lock is gone: they were settled. Its thread starts with the first jobs, and never ends."""

    thread_name = "claims"

    def hold(self, token: str, job_ids: Sequence[str], since: int = 0, own_ms: Mapping[str, int] | None = None) -> None:
        super().hold(token, job_ids, since, own_ms)
        with self._guard:
            if self._held and self._thread.ident is None:
                self._thread.start()

    def _record_lost(self, held: Mapping[str, Hold], gone: Sequence[str]) -> None:
        with self._guard:
            for job_id in gone:
                # It may have been claimed again meanwhile.
                if self._held.get(job_id) is held[job_id]:
                    del self._held[job_id]


class Claimer:
    """Claims the jobs of one query. It lives as long as the query's process; its daemon threads end with it."""

    def __init__(self, ledger: ClaimLedger, work_settings: WorkSettings, chunk_size: int) -> None:
        self.ledger = ledger
        self._work_settings = work_settings
        self._chunk_size = chunk_size
        self._keeper = QueryLockKeeper(ledger.handle, work_settings.lock_ms)
        self._portions: list[Portion] = []
        self._prefetch: Future[int] | None = None
        #: Set when the next batch waits for the jobs that are being claimed ahead.
        self._is_awaited = Event()
        #: Whether the last claim has left jobs that could be claimed.
        self.has_more = True
        #: Remaining rate limit at the last claim, ms.
        self.limited_ms = 0
        #: Jobs before this position are locked by us and their schedulers are advanced; None: unknown after a restart.
        self._locked_until: int | None = None

    def end(self) -> int:
        """Ends claim_ahead() and returns the number of jobs claimed by the query. Raises ConnectionLost."""
        if self._prefetch is not None:
            prefetch, self._prefetch = self._prefetch, None
            self._is_awaited.set()
            prefetch.result()
        return self.ledger.end()

    def go_on_at(self, position: int) -> None:
        """Claims the next job at this position, as the ledger, which had more jobs, was lost."""
        self.ledger.go_on_at(position)
        self._portions = []

    def claim(self, max_jobs: int) -> int:
        """Claims up to `max_jobs` jobs; returns how many."""
        return self._claim(self._work_settings, max_jobs)

    def _claim(self, work_settings: WorkSettings, max_jobs: int, enough: int | None = None) -> int:
        """Claims jobs; the locks of the first ones are extended meanwhile.

        enough: the number of jobs after which no more are claimed once they are awaited; None: any.
        """
        claimed, self.has_more = 0, True
        size = sum(len(portion.packed) for portion in self._portions)
        for portion, ids, limited_ms, more in self.ledger.claim(work_settings, max_jobs, self._chunk_size):
            self.limited_ms, self.has_more = limited_ms, more
            if ids:
                self._locked_until = portion.start + len(ids)
                self._keeper.hold(portion.token, ids, own_ms=self._own_locks(portion))
                self._portions.append(portion)
                claimed += len(ids)
                size += len(portion.packed)
            is_enough = enough is not None and claimed >= enough and self._is_awaited.is_set()
            if is_enough or size >= MAX_PACKED_BYTES:
                break
        return claimed

    def _own_locks(self, portion: Portion) -> dict[str, int]:
        """The durations of the locks of jobs that have their own; packed jobs without any are not unpacked."""
        if LOCK_MS.encode() not in portion.packed:
            return {}
        return own_locks(unpack_claimed(portion.packed).jobs(self.ledger.handle.dialect))

    def held(self) -> int:
        """The number of claimed jobs that are not settled. Raises ConnectionLost."""
        self._keeper.extend()
        return len(self._keeper.held())

    def claim_ahead(self, max_jobs: int, enough: int) -> None:
        """Starts claiming the jobs of the next batch in the background, up to `max_jobs`.

        If the next batch could begin before that, it has the jobs claimed until then, but at least `enough`, if that
        many wait: else its tasks would wait. Claims nothing while the queue has a concurrency or rate limit, because
        these jobs do not start yet.
        """
        if self._prefetch is None:
            pool = ThreadPoolExecutor(1, thread_name_prefix="spark-bull-claimer")
            self._is_awaited.clear()
            self._prefetch = pool.submit(self._claim, self._work_settings._replace(at_once=0), max_jobs, enough)
            pool.shutdown(wait=False)

    def take_up(self, start: int, stop: int) -> None:
        """Takes over claimed jobs at these positions whose process or call died before it locked them for us.

        The first call takes over all jobs from `start` on, including those claimed ahead before a restart.
        """
        first = start if self._locked_until is None else max(start, self._locked_until)
        if self._locked_until is None:
            stop = self.ledger.end()
        for claim in self.ledger.claims(first, stop):
            take_up(self.ledger.handle, claim.token, claim.ids, self._work_settings.lock_ms)
            self._keeper.hold(claim.token, claim.ids)
        self._locked_until = max(first, stop)

    def end_of_batch(self, start: int, end: int, most: int) -> int:
        """The end of a batch of about `most` of the jobs at start..end; those in memory are divided by portion."""
        stops = [portion.start + portion.jobs for portion in self._portions if portion.start >= start]
        if not stops:
            return min(end, start + most)
        return max((stop for stop in stops if stop <= start + most), default=stops[0])

    def portions(self, start: int, stop: int) -> Sequence[Portion]:
        """Removes and returns the packed jobs at these positions, in order; empty unless all of them are in memory."""
        found = [
            portion for portion in self._portions if start <= portion.start and portion.start + portion.jobs <= stop
        ]
        self._portions = [portion for portion in self._portions if portion.start >= stop]
        return found if sum(portion.jobs for portion in found) == stop - start else []


#: Maximum duration of a micro-batch that is expected, s.
TARGET_S: Final = 5.0
#: The limit with which a query begins, and the highest one.
LEAST, MOST = 10_000, 100_000
#: How many times the jobs of the last batch the next one may have: its duration is expected to be as many times longer.
GROWTH: Final = 10
#: Part of its largest size with which a batch begins whose tasks would wait for more jobs: a batch has a fixed cost.
WORTHWHILE: Final = 4


class BatchSize:
    """The maximum number of jobs of the next batch, `current`: `fixed`, or else between `least` and `most`.

    worthwhile: the number of jobs for which batches wait.
    """

    def __init__(self, fixed: int | None = None, worthwhile: int = 1) -> None:
        self.most = fixed or max(MOST, worthwhile)
        self.least = fixed or max(LEAST, worthwhile)
        self.current = self.least

    @property
    def enough(self) -> int:
        """The number of jobs with which a batch begins rather than wait for more."""
        return max(self.least, self.current // WORTHWHILE)

    def update(self, jobs: int, seconds: float) -> None:
        """Adapts to the last batch: its number of jobs and its duration, s.

        One that was not full can show that the jobs are quick, but not that they are slow, unless it took too long: its
        fixed cost has a larger share.
        """
        fitting = self.most if seconds <= 0 else int(TARGET_S * jobs / seconds)
        fitting = max(self.least, min(fitting, GROWTH * jobs, self.most))
        shows_slowness = jobs >= self.current or seconds > TARGET_S
        self.current = fitting if shows_slowness else max(self.current, fitting)
