"""Keeps the locks of claimed jobs while they are worked on, however long that takes."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Lock, Thread

from spark_bull.dialects.handle import QueueHandle
from spark_bull.errors import SparkBullError
from spark_bull.outcomes import Outcomes
from spark_bull.working import extend

log = logging.getLogger("spark_bull")


class LockKeeper:
    """A thread that extends the locks of what is held, every third of `lock_ms`.

        with LockKeeper(handle, lock_ms) as keeper:
            with keeper.keeping(token, ids):
                ...

    While nothing is held it sends nothing. Locks that are gone are in `lost`: another worker may have the job.
    """

    def __init__(self, handle: QueueHandle, lock_ms: int) -> None:
        self._handle = handle
        self._lock_ms = lock_ms
        self._guard = Lock()
        self._over = Event()
        self._held: tuple[str, list[str]] | None = None
        self._lost: set[str] = set()
        self._thread = Thread(target=self._keep, name="spark-bull-locks", daemon=True)

    def __enter__(self) -> LockKeeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeout=1)

    @property
    def lost(self) -> Collection[str]:
        """Ids among those held whose lock turned out to be gone."""
        return self._lost

    @contextmanager
    def keeping(self, token: str, job_ids: Sequence[str]) -> Iterator[None]:
        """Holds the locks of these jobs during the block, which may settle some of them."""
        with self._guard:
            self._held, self._lost = (token, list(job_ids)), set()
        try:
            yield
        finally:
            with self._guard:
                self._held = None

    def settled(self, outcomes: Outcomes) -> None:
        """Says that some of the jobs held are done, and have no lock any more."""
        with self._guard:
            if self._held is None:
                return
            done = outcomes.all_ids()
            token, held = self._held
            self._held = token, [job_id for job_id in held if job_id not in done]

    def _keep(self) -> None:
        while not self._over.wait(self._lock_ms / 3000):
            with self._guard:
                held = self._held
                if held is None or not held[1]:
                    continue
                try:
                    gone = extend(self._handle, *held, self._lock_ms)
                except SparkBullError as error:
                    # The loop itself will meet the same trouble, and report it.
                    log.warning("queue %s: locks could not be extended: %s", self._handle.keys.queue, error)
                    continue
                for job_id in set(gone) - self._lost:
                    log.warning(
                        "queue %s: job %s lost its lock while it was worked on; another worker may have it",
                        self._handle.keys.queue,
                        job_id,
                    )
                self._lost.update(gone)
