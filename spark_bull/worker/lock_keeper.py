"""Extends the locks of claimed jobs while they are processed."""

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
    """A thread that extends the locks of the current chunk every `lock_ms` / 3.

        with LockKeeper(handle, lock_ms) as keeper:
            with keeper.keeping(token, ids):
                ...

    It sends nothing while there is no chunk. `lost` has the ids of jobs whose lock is gone: another worker may have
    claimed them.
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
        """Ids of the jobs of the current chunk whose lock is gone."""
        return self._lost

    @contextmanager
    def keeping(self, token: str, job_ids: Sequence[str]) -> Iterator[None]:
        """Extends the locks of these jobs during the block, which may settle some of them."""
        with self._guard:
            self._held, self._lost = (token, list(job_ids)), set()
        try:
            yield
        finally:
            with self._guard:
                self._held = None

    @contextmanager
    def settling(self, outcomes: Outcomes | None) -> Iterator[None]:
        """Marks jobs that the block settles: the script deletes their locks, which are then not reported as lost."""
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
                # The loop fails with the same error and handles it.
                log.warning("queue %s: could not extend locks: %s", self._handle.keys.queue, error)
                continue
            self._record_lost(held[0], gone)

    def _record_lost(self, token: str, gone: Sequence[str]) -> None:
        """Records locks that were gone, except those of jobs that have been settled meanwhile."""
        with self._guard:
            if self._held is None or self._held[0] != token:
                return
            new = set(gone).intersection(self._held[1]) - self._settling - self._lost
            self._lost |= new
        for job_id in new:
            log.warning(
                "queue %s: job %s lost its lock while it was processed; another worker may have claimed it",
                self._handle.keys.queue,
                job_id,
            )
