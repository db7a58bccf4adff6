"""Extends the locks of the jobs of a claiming query until they are settled."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from threading import Lock, Thread

from spark_bull.errors import SparkBullError
from spark_bull.queue.claim import extend
from spark_bull.queue.handle import QueueHandle

log = logging.getLogger("spark_bull")


class ClaimKeeper:
    """A daemon thread that extends the locks of jobs every `lock_ms` / 3, and drops jobs whose lock is gone.

    The thread starts with the first jobs and runs until the process exits; there is no stop().
    """

    def __init__(self, handle: QueueHandle, token: str, lock_ms: int) -> None:
        self._handle = handle
        self._token = token
        self._lock_ms = lock_ms
        self._guard = Lock()
        self._held: dict[str, None] = {}
        self._thread: Thread | None = None

    def hold(self, job_ids: Iterable[str]) -> None:
        """Adds jobs whose locks are extended."""
        with self._guard:
            self._held.update(dict.fromkeys(job_ids))
            if self._held and self._thread is None:
                self._thread = Thread(target=self._keep, name="spark-bull-claims", daemon=True)
                self._thread.start()

    def extend(self) -> None:
        """Extends the locks of all jobs once. Raises ConnectionLost."""
        with self._guard:
            held = list(self._held)
        gone = extend(self._handle, self._token, held, self._lock_ms)
        with self._guard:
            for job_id in gone:
                self._held.pop(job_id, None)

    def _keep(self) -> None:
        while True:
            time.sleep(self._lock_ms / 3000)
            try:
                self.extend()
            except SparkBullError as error:
                log.warning("queue %s: could not extend locks: %s", self._handle.keys.queue, error)
