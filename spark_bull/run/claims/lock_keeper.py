"""Extends the locks of claimed jobs while they are processed."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event, Lock
from typing import ClassVar

from spark_bull.core.errors import QueueDamaged, SparkBullError
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.work.claim import extend
from spark_bull.core.threads import DaemonThread
from spark_bull.run.claims.waits import Damage

log = logging.getLogger("spark_bull")


class Hold:
    """One claim of jobs whose locks last equally long. A later claim of the same jobs is another one.

    since: time of the claim, ms since 1970. lock_ms: duration of the locks.
    """

    __slots__ = ("lock_ms", "since", "token")

    def __init__(self, token: str, since: int, lock_ms: int) -> None:
        self.token = token
        self.since = since
        self.lock_ms = lock_ms


class LockKeeper:
    """A thread that extends the locks of the jobs that are held, every third of `lock_ms`, or of the shortest one.

        with LockKeeper(handle, lock_ms) as keeper:
            keeper.hold(token, ids)
            ...
            keeper.release(ids)

    While no job is held it sends nothing. `lost` has the held jobs whose lock is gone: another worker may have them.
    """

    thread_name: ClassVar = "locks"

    def __init__(self, handle: QueueHandle, lock_ms: int) -> None:
        self._handle = handle
        self._lock_ms = lock_ms
        self._guard = Lock()
        self._is_over = False
        #: Set when the thread has something to do before the period is over.
        self._wake = Event()
        #: Duration of the shortest lock that is held, ms.
        self._shortest_ms = lock_ms
        self._held: dict[str, Hold] = {}
        self._settling: set[str] = set()
        self._lost: set[str] = set()
        self._has_given_up = False
        self._damage = Damage(self._log_damage)
        self._thread = DaemonThread(self.thread_name, self._keep)

    def __enter__(self) -> LockKeeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._wake.set()
        self._thread.join(timeout=1)

    @property
    def lost(self) -> Collection[str]:
        """Ids of held jobs whose lock is gone."""
        return self._lost

    @property
    def has_given_up(self) -> bool:
        """Whether all jobs were made lost for good."""
        return self._has_given_up

    def held(self) -> dict[str, Hold]:
        """The claims of the jobs that are held, by job id."""
        with self._guard:
            return dict(self._held)

    def holds(self, job_id: str, hold: Hold) -> bool:
        """Whether the job is still held under this claim."""
        return self._held.get(job_id) is hold

    def give_up(self) -> dict[str, Hold]:
        """Makes all held jobs lost for good, so that those that have not started do not start; returns their claims."""
        with self._guard:
            self._has_given_up = True
            self._lost.update(self._held)
            return dict(self._held)

    def hold(self, token: str, job_ids: Sequence[str], since: int = 0, own_ms: Mapping[str, int] | None = None) -> None:
        """Starts to extend the locks of these jobs, which hold `token`.

        since: time of the claim, ms since 1970. own_ms: durations of the locks of jobs that have their own, by job id.
        """
        with self._guard:
            self._held.update(dict.fromkeys(job_ids, Hold(token, since, self._lock_ms)))
            for job_id, lock_ms in (own_ms or {}).items():
                self._held[job_id] = Hold(token, since, lock_ms)
            self._forget_lost(job_ids)
            if own_ms and min(own_ms.values()) < self._shortest_ms:
                self._shortest_ms = min(own_ms.values())
                self._wake.set()

    def release(self, job_ids: Collection[str]) -> None:
        """Stops extending the locks of these jobs."""
        with self._guard:
            if self._held.keys() == job_ids:
                self._held.clear()
            else:
                for job_id in job_ids:
                    self._held.pop(job_id, None)
            self._forget_lost(job_ids)

    @contextmanager
    def settling(self, token: str, job_ids: Collection[str]) -> Iterator[None]:
        """Releases jobs that are settled in the block. Its script deletes their locks: they are not lost.

        token: of their locks. Jobs that were claimed again since, under another token, stay held.
        """
        with self._guard:
            held = self._held
            ids = {job_id for job_id in job_ids if (hold := held.get(job_id)) is not None and hold.token == token}
            self._settling = ids
        try:
            yield
            self.release(ids)
        finally:
            with self._guard:
                self._settling = set()

    def _forget_lost(self, job_ids: Collection[str]) -> None:
        if self._lost and not self._has_given_up:
            self._lost.difference_update(job_ids)

    def extend(self) -> None:
        """Extends the locks of all held jobs once. Raises ConnectionLost."""
        held = self.held()
        by_lock: dict[tuple[str, int], list[str]] = defaultdict(list)
        for job_id, hold in held.items():
            by_lock[hold.token, hold.lock_ms].append(job_id)
        with self._guard:
            self._shortest_ms = min((self._lock_ms, *(lock_ms for _, lock_ms in by_lock)))
        for (token, lock_ms), ids in by_lock.items():
            self._record_lost(held, extend(self._handle, token, ids, lock_ms))
            self._damage.end()

    def _keep(self) -> None:
        while True:
            self._wake.wait(self._shortest_ms / 3000)
            if self._is_over:
                return
            self._wake.clear()
            try:
                self.extend()
            except QueueDamaged as error:
                self._damage.begin(error)
            except SparkBullError as error:
                # The loop fails with the same error and handles it.
                log.warning("queue %s: could not extend locks: %s", self._handle.keys.queue, error)

    def _log_damage(self, error: str) -> None:
        queue = self._handle.keys.queue
        if error:
            log.warning("queue %s: could not extend locks, trying again until it is repaired: %s", queue, error)
        else:
            log.warning("queue %s is no longer damaged: locks are extended again", queue)

    def _record_lost(self, held: Mapping[str, Hold], gone: Sequence[str]) -> None:
        """Records locks that were gone when `held` was extended, except for jobs that were settled since."""
        with self._guard:
            new = {
                job_id
                for job_id in gone
                if self._held.get(job_id) is held[job_id] and job_id not in self._settling | self._lost
            }
            self._lost |= new
        for job_id in new:
            log.warning(
                "queue %s: job %s lost its lock while it was processed; another worker may have claimed it",
                self._handle.keys.queue,
                job_id,
            )
