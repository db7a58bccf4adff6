"""What ends the jobs of a slot early: requests to cancel them, and a signal that ends the process.

An executor that shuts down, or is preempted, gets the signal. The slot then returns its jobs to their queues.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import current_thread, main_thread
from types import FrameType
from typing import Final, NamedTuple

from spark_bull.core.errors import JobCancelled, SparkBullError
from spark_bull.core.queue.manage.cancel import CancelRequest, cancel_requests, forget_request
from spark_bull.core.threads import DaemonThread, PollingThread
from spark_bull.run.claims.lock_keeper import Hold
from spark_bull.run.slot.slot_queue import SlotQueue

log = logging.getLogger("spark_bull")


#: Spark ends the Python processes of an executor that shuts down with SIGHUP; cluster managers send SIGTERM.
SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
#: Maximum time to export spans and to close the state of the slot, s.
END_S: Final = 5.0

#: The signals that return the jobs of the slot of this process.
_handled: Final[list[int]] = []


def _leave_jobs_to_parent() -> None:
    """Lets signals end only this process, which a processor has forked: the jobs belong to its parent."""
    for number in _handled:
        signal.signal(number, signal.SIG_DFL)
    if _handled:
        signal.set_wakeup_fd(-1)
        _handled.clear()


os.register_at_fork(after_in_child=_leave_jobs_to_parent)


@contextmanager
def returning_jobs(queues: Sequence[SlotQueue], end: Callable[[], None]) -> Iterator[None]:
    """In this block, a signal that ends the process first returns the jobs that the slot holds to their queues.

    They run again elsewhere at once; without this, they wait for their locks to expire. No attempt counts, but jobs
    that were running have stalled, as others may end the process because of them. Then `end` is called, which
    may take END_S. Has no effect outside the main thread, and in processes that a processor forks.
    """
    if current_thread() is not main_thread():
        yield
        return

    _handled[:] = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    received, sent = os.pipe()
    os.set_blocking(sent, False)

    def wait_for_signal() -> None:
        # In a thread: the main one may hold a lock, or run C code, which delays handlers of Python.
        while number := os.read(received, 1):
            if number[0] in _handled:
                _end(queues, end, number[0])
        os.close(received)

    def tell(number: int, _frame: FrameType | None) -> None:
        # Once more, as the processor may have set another file descriptor.
        with suppress(BlockingIOError):
            os.write(sent, bytes([number]))

    DaemonThread("termination", wait_for_signal).start()
    previous = signal.set_wakeup_fd(sent, warn_on_full_buffer=False)
    for number in _handled:
        signal.signal(number, tell)
    try:
        yield
    finally:
        for number in _handled:
            signal.signal(number, signal.SIG_DFL)
        _handled.clear()
        signal.set_wakeup_fd(previous)
        os.close(sent)


def return_jobs(queues: Sequence[SlotQueue]) -> None:
    """Returns the jobs that a slot holds to their queues; it claims no more jobs. May be called in any thread."""
    for queue in queues:
        queue.end()
    for queue in queues:
        try:
            queue.return_held()
        except SparkBullError as error:
            log.warning(
                "queue %s: could not return jobs, they are rescued when their locks expire: %s",
                queue.handle.keys.queue,
                error,
            )


def _end(queues: Sequence[SlotQueue], end: Callable[[], None], number: int) -> None:
    try:
        return_jobs(queues)
        ending = DaemonThread("end", end)
        ending.start()
        ending.join(END_S)
    finally:
        os._exit(128 + number)


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
