"""Keeps the locks of claimed jobs while they are worked on, however long that takes."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Lock, Thread

from spark_bull.errors import SparkBullError
from spark_bull.outcomes import Outcomes
from spark_bull.queue.claim import extend
from spark_bull.queue.handle import QueueHandle

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
        self._settling: set[str] = set()
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

    @contextmanager
    def settling(self, outcomes: Outcomes | None) -> Iterator[None]:
        """Settles jobs in the block: its script deletes their locks, so that those are not lost when they are gone."""
        with self._guard:
            self._settling = outcomes.all_ids() if outcomes and self._held else set()
        yield
        with self._guard:
            if self._held:
                token, held = self._held
                self._held = token, [job_id for job_id in held if job_id not in self._settling]
            self._settling = set()

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
            self._lose(held[0], gone)

    def _lose(self, token: str, gone: Sequence[str]) -> None:
        """Notes locks that were gone when Redis was asked, but not those of jobs that have been settled since."""
        with self._guard:
            if self._held is None or self._held[0] != token:
                return
            new = set(gone).intersection(self._held[1]) - self._settling - self._lost
            self._lost |= new
        for job_id in new:
            log.warning(
                "queue %s: job %s lost its lock while it was worked on; another worker may have it",
                self._handle.keys.queue,
                job_id,
            )
