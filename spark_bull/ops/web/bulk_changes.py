"""Changes of all jobs that a condition selects, each in a thread of this server. Their records are in Redis."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from threading import BoundedSemaphore
from typing import Annotated, Final

from fastapi import Depends, Request

from spark_bull.core.errors import SparkBullError
from spark_bull.core.model.read_jobs import Change
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.manage.bulk import BulkChange
from spark_bull.core.threads import DaemonThread
from spark_bull.ops.web.problems import RETRY_AFTER_S, Problem

log = logging.getLogger("spark_bull")

#: Maximum number of changes at once.
MOST_CHANGES: Final = 4


class BulkChanges:
    """Starts changes. Thread-safe."""

    def __init__(self) -> None:
        self._free = BoundedSemaphore(MOST_CHANGES)

    def start(self, handle: QueueHandle, change: Change, found: Iterable[Sequence[str]]) -> str:
        """Starts the change of the jobs with the ids that are found; returns the id of its write.

        Raises Problem 429 if too many run, and the errors of BulkChange.
        """
        if not self._free.acquire(blocking=False):
            raise Problem(
                429,
                f"expected at most {MOST_CHANGES} changes of many jobs at once, all run: wait until one has ended, or "
                "abort one",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )
        try:
            bulk = BulkChange(handle, change)
            DaemonThread("change", lambda: self._run(bulk.run, found)).start()
        except BaseException:
            self._free.release()
            raise
        return bulk.write_id

    def _run(self, run: Callable[[Iterable[Sequence[str]]], object], found: Iterable[Sequence[str]]) -> None:
        try:
            run(found)
        except SparkBullError as error:
            log.error("a change of many jobs has ended early: %s", error)
        finally:
            self._free.release()


def _changes_of(request: Request) -> BulkChanges:
    changes: BulkChanges = request.app.state.changes
    return changes


AllChanges = Annotated[BulkChanges, Depends(_changes_of)]
