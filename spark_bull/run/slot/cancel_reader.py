"""Reads the requests to cancel jobs of a slot."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from spark_bull.core.errors import JobCancelled, SparkBullError
from spark_bull.core.queue.manage.cancel import CancelRequest, cancel_requests, forget_request
from spark_bull.core.threads import PollingThread
from spark_bull.run.claims.lock_keeper import Hold
from spark_bull.run.slot.slot_queue import SlotQueue

log = logging.getLogger("spark_bull")

#: Interval of the reads.
READ_S: Final = 0.5


class Cancelled(NamedTuple):
    """A job that the slot holds was cancelled. `hold`: the claim that this applies to."""

    queue: SlotQueue
    job_id: str
    hold: Hold
    error: JobCancelled

    @property
    def is_current(self) -> bool:
        """Whether the slot still holds the job under this claim."""
        return self.queue.keeper.holds(self.job_id, self.hold)


class CancelReader(PollingThread):
    """Reads the requests for the jobs that the slot holds. While it holds none, it sends nothing.

    `on_cancel` gets each cancelled job, in this thread, and again at each read for as long as the job is held.
    """

    def __init__(self, queues: Sequence[SlotQueue], on_cancel: Callable[[Cancelled], None]) -> None:
        super().__init__("cancels", READ_S)
        self._queues = queues
        self._on_cancel = on_cancel
        self._cancelled: list[Cancelled] = []

    def poll(self) -> bool:
        self._cancelled = [cancelled for cancelled in self._cancelled if cancelled.is_current]
        new: list[Cancelled] = []
        for queue in self._queues:
            try:
                new += self._newly_cancelled(queue)
            except SparkBullError as error:
                log.warning("queue %s: could not read requests to cancel jobs: %s", queue.handle.keys.queue, error)
        self._cancelled += new
        for cancelled in self._cancelled:
            self._on_cancel(cancelled)
        # A request that is gone has had its effect.
        self._forget(new)
        return False

    def _newly_cancelled(self, queue: SlotQueue) -> list[Cancelled]:
        """The held jobs that have been cancelled since the last read."""
        held = queue.keeper.held()
        if not held:
            return []
        return [
            Cancelled(queue, job_id, held[job_id], _cancellation(request))
            for job_id, request in cancel_requests(queue.handle, list(held)).items()
            if _applies(request, held[job_id])
        ]

    def _forget(self, read: Sequence[Cancelled]) -> None:
        for cancelled in read:
            handle = cancelled.queue.handle
            try:
                forget_request(handle, cancelled.job_id)
            except SparkBullError as error:
                # They expire; for a later claim of the job they do not apply.
                log.warning("queue %s: could not remove requests to cancel jobs: %s", handle.keys.queue, error)
                return


def _applies(request: CancelRequest, hold: Hold) -> bool:
    """Whether it is for this claim of the job: a slot may claim further attempts under the same token."""
    return request.token == hold.token and request.at >= hold.since


def _cancellation(request: CancelRequest) -> JobCancelled:
    return JobCancelled(f"cancelled: {request.reason}") if request.reason else JobCancelled()
