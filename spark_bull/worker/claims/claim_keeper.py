"""Extends the locks of the jobs of a claiming query until they are settled."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from threading import Event, Lock, Thread
from typing import NamedTuple

from spark_bull.errors import SparkBullError
from spark_bull.queue.core.handle import QueueHandle
from spark_bull.queue.process.claim import extend

log = logging.getLogger("spark_bull")


class _Hold(NamedTuple):
    """The token of a job's lock, and the duration of the lock, ms."""

    token: str
    lock_ms: int


class ClaimKeeper:
    """A daemon thread that extends the locks of jobs every `lock_ms` / 3, or a third of the shortest duration.

    Jobs whose lock is gone are dropped.

    The thread starts with the first jobs and runs until the process exits; there is no stop().
    """

    def __init__(self, handle: QueueHandle, lock_ms: int) -> None:
        self._handle = handle
        self._lock_ms = lock_ms
        self._guard = Lock()
        self._held: dict[str, _Hold] = {}
        self._wake = Event()
        self._thread: Thread | None = None

    def hold(self, token: str, job_ids: Iterable[str], own_ms: Mapping[str, int]) -> None:
        """Adds jobs whose locks are extended, which hold `token`.

        own_ms: durations of the locks of jobs that have their own, by job id.
        """
        with self._guard:
            self._held.update(dict.fromkeys(job_ids, _Hold(token, self._lock_ms)))
            self._held.update({job_id: _Hold(token, lock_ms) for job_id, lock_ms in own_ms.items()})
            if own_ms:
                self._wake.set()
            if self._held and self._thread is None:
                self._thread = Thread(target=self._keep, name="spark-bull-claims", daemon=True)
                self._thread.start()

    def extend(self) -> int:
        """Extends the locks of all jobs once; returns how many jobs are still held. Raises ConnectionLost."""
        with self._guard:
            by_hold: dict[_Hold, list[str]] = defaultdict(list)
            for job_id, hold in self._held.items():
                by_hold[hold].append(job_id)
        for hold, job_ids in by_hold.items():
            gone = extend(self._handle, hold.token, job_ids, hold.lock_ms)
            with self._guard:
                for job_id in gone:
                    # It may have been claimed again meanwhile.
                    if self._held.get(job_id) == hold:
                        del self._held[job_id]
        return len(self._held)

    def _keep(self) -> None:
        while True:
            with self._guard:
                shortest_ms = min((self._lock_ms, *(hold.lock_ms for hold in self._held.values())))
            if self._wake.wait(shortest_ms / 3000):
                self._wake.clear()
            try:
                self.extend()
            except SparkBullError as error:
                log.warning("queue %s: could not extend locks: %s", self._handle.keys.queue, error)
