"""Extends the locks of claimed jobs while they are processed."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event, Lock, Thread

from spark_bull.errors import SparkBullError
from spark_bull.outcomes import Outcomes
from spark_bull.queue.claim import extend
from spark_bull.queue.handle import QueueHandle

log = logging.getLogger("spark_bull")


class Hold:
    """One claim of jobs. A later claim of the same jobs is another one. `since`: time of the claim, ms since 1970."""

    __slots__ = ("since", "token")

    def __init__(self, token: str, since: int) -> None:
        self.token = token
        self.since = since


class LockKeeper:
    """A thread that extends the locks of the jobs that are held, every third of `lock_ms`.

        with LockKeeper(handle, lock_ms) as keeper:
            keeper.hold(token, ids)
            ...
            keeper.release(ids)

    While no job is held it sends nothing. `lost` has the held jobs whose lock is gone: another worker may have them.
    """

    def __init__(self, handle: QueueHandle, lock_ms: int) -> None:
        self._handle = handle
        self._lock_ms = lock_ms
        self._guard = Lock()
        self._over = Event()
        self._held: dict[str, Hold] = {}
        self._settling: set[str] = set()
        self._lost: set[str] = set()
        self._has_given_up = False
        self._thread = Thread(target=self._keep, name="spark-bull-locks", daemon=True)

    def __enter__(self) -> LockKeeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeout=1)

    @property
    def lost(self) -> Collection[str]:
        """Ids of held jobs whose lock is gone."""
        return self._lost

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

    def hold(self, token: str, job_ids: Sequence[str], since: int = 0) -> None:
        """Starts to extend the locks of these jobs, which hold `token`. since: time of the claim, ms since 1970."""
        with self._guard:
            self._held.update(dict.fromkeys(job_ids, Hold(token, since)))
            self._forget_lost(job_ids)

    def release(self, job_ids: Collection[str]) -> None:
        """Stops extending the locks of these jobs."""
        with self._guard:
            for job_id in job_ids:
                self._held.pop(job_id, None)
            self._forget_lost(job_ids)

    @contextmanager
    def keeping(self, token: str, job_ids: Sequence[str], since: int = 0) -> Iterator[None]:
        """Holds these jobs during the block, which may settle some of them."""
        self.hold(token, job_ids, since)
        try:
            yield
        finally:
            self.release(job_ids)

    @contextmanager
    def settling(self, outcomes: Outcomes | None) -> Iterator[None]:
        """Releases the jobs that are settled in the block. Its script deletes their locks: they are not lost."""
        ids = outcomes.all_ids() if outcomes and self._held else set()
        with self._guard:
            self._settling = ids
        yield
        if ids:
            self.release(ids)
            with self._guard:
                self._settling = set()

    def _forget_lost(self, job_ids: Collection[str]) -> None:
        if self._lost and not self._has_given_up:
            self._lost.difference_update(job_ids)

    def _keep(self) -> None:
        while not self._over.wait(self._lock_ms / 3000):
            held = self.held()
            by_token: dict[str, list[str]] = defaultdict(list)
            for job_id, hold in held.items():
                by_token[hold.token].append(job_id)
            for token, ids in by_token.items():
                try:
                    gone = extend(self._handle, token, ids, self._lock_ms)
                except SparkBullError as error:
                    # The loop fails with the same error and handles it.
                    log.warning("queue %s: could not extend locks: %s", self._handle.keys.queue, error)
                    break
                self._record_lost(held, gone)

    def _record_lost(self, held: Mapping[str, Hold], gone: Sequence[str]) -> None:
        """Records locks that were gone when `held` was extended, except those of jobs that were settled since."""
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
