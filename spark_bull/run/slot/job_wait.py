"""The waits of a slot for jobs of one queue."""

from __future__ import annotations

import math
from collections.abc import Callable
from queue import SimpleQueue
from threading import Event
from typing import Final, NamedTuple

from spark_bull.core.errors import ConnectionLost, QueueDamaged, SparkBullError
from spark_bull.core.model.outcomes import Claim
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.threads import DaemonThread
from spark_bull.run.claims.waits import RECONNECT_PAUSE_S, RETRY_S, JobSignal

#: An idle slot sends three commands per queue in this time: CLIENT ID, one that waits for a job, one that claims.
IDLE_S: Final = 10.0
#: Maximum duration of a wait if Redis denies CLIENT UNBLOCK, and the slot has several queues.
SHORT_WAIT_S: Final = 1.0
#: Maximum time until a wait has ended when the process is to end.
_PARK_S: Final = 1.0


class Signalled(NamedTuple):
    """A wait is over, or has failed with `error`.

    active_id: id of the job that it has moved to `active` (Bull), or b"".
    """

    wait: JobWait
    active_id: bytes
    error: BaseException | None = None


class JobWait:
    """Waits until there may be a job in a queue, on a connection of its own.

    `post` gets a Signalled when a wait is over, which runs in a thread; without it, waits run in `run`. worker: id of
    the worker. name: of the connection.
    """

    def __init__(
        self,
        handle: QueueHandle,
        worker: str,
        name: str,
        post: Callable[[Signalled], None] | None,
        warn: Callable[[str, object], None],
    ) -> None:
        self.is_on = False
        #: Whether a wait is over, and the slot has not asked for jobs since.
        self.has_woken = False
        self._handle = handle
        self._worker = worker
        self._post = post
        self._warn = warn
        self._signal = JobSignal(handle, name, IDLE_S)
        #: Claims that did not get a job, and how long to wait after each, s.
        self._requests: SimpleQueue[tuple[Claim, float] | None] = SimpleQueue()
        self._max_wait_s = IDLE_S
        self._active_id = b""
        self._is_ending = False
        self._parked = Event()
        self._is_lost = False
        #: Ends a pause after a lost connection.
        self._unblocked = Event()

    def __enter__(self) -> JobWait:
        self._signal.identify()
        if self._post is not None:
            post = self._post
            DaemonThread("signal", lambda: self._serve(post)).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.put(None)
        self._signal.close()

    @property
    def client(self) -> int:
        """Id of the connection, for CLIENT UNBLOCK; 0 if unknown."""
        return self._signal.client

    def begin(self, claim: Claim, timeout_s: float = math.inf) -> None:
        """Begins to wait until there may be a job that this claim did not get, for `timeout_s` at most."""
        self.is_on = True
        self._unblocked.clear()
        self._requests.put((claim, min(timeout_s, self._max_wait_s)))

    def run(self) -> None:
        """Runs the wait in this thread, which takes less time than to hand it to another one and back."""
        request = self._requests.get()
        if request is not None:
            self.end(self._wait(*request))

    def end(self, active_id: bytes) -> None:
        """Ends the wait, which has moved this job to `active`; b"": none."""
        self.is_on, self.has_woken = False, True
        self._active_id = active_id

    def take_active(self) -> bytes:
        """Takes the job that the last wait has moved to `active`, or b"".

        The next call claims it; or puts it back, and signals other workers, if it is to claim nothing.
        """
        active_id, self._active_id, self.has_woken = self._active_id, b"", False
        return active_id

    def unblock(self) -> None:
        """Ends the wait early, if Redis permits that."""
        self._unblocked.set()
        try:
            self._handle.connection.call("CLIENT", "UNBLOCK", self.client)
        except SparkBullError as error:
            if self._max_wait_s > SHORT_WAIT_S:
                self._warn(f"a wait for jobs could not be ended; waits take {SHORT_WAIT_S:g} s from now on", error)
            self._max_wait_s = SHORT_WAIT_S

    def end_for_good(self) -> None:
        """Ends the wait, and lets no other one begin; may be called in any thread."""
        self._is_ending = True
        if self.is_on:
            self.unblock()
            # It may have moved a job to `active`, which the loop puts back before it waits again.
            self._parked.wait(_PARK_S)

    def _serve(self, post: Callable[[Signalled], None]) -> None:
        while (request := self._requests.get()) is not None:
            try:
                active_id = self._wait(*request)
            except BaseException as error:
                post(Signalled(self, b"", error))
            else:
                post(Signalled(self, active_id))

    def _wait(self, claim: Claim, timeout: float) -> bytes:
        if self._is_ending:
            self._parked.set()
            Event().wait()
        if claim.next_due is not None:
            timeout = min(timeout, (claim.next_due - claim.now) / 1000)
        try:
            active_id = self._signalled(claim, timeout)
        except ConnectionLost as error:
            if not self._is_lost:
                self._warn("lost Redis, retrying", error)
            self._is_lost = True
            # A call that claims may succeed: without a pause, both would be repeated at once.
            self._unblocked.wait(RECONNECT_PAUSE_S)
            return b""
        self._is_lost = False
        return active_id

    def _signalled(self, claim: Claim, timeout: float) -> bytes:
        if claim.limited_ms or claim.paused:
            self._signal.pause(self._worker, min(claim.limited_ms / 1000 or timeout, timeout))
            return b""
        try:
            return self._signal.wait(timeout)
        except QueueDamaged:
            # The next call of the slot fails, too, and says why.
            self._signal.pause(self._worker, RETRY_S)
            return b""
