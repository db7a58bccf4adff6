"""What all kinds of workers have in common: start, stop, pause, status, and what runs beside."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, TextIO, TypeVar
from uuid import uuid4

from spark_bull.core.clock import monotonic_s
from spark_bull.core.error_text import log, short_errors
from spark_bull.core.errors import ConnectionLost, OptionError, QueueDamaged, SparkBullError
from spark_bull.core.model.guards import Guard
from spark_bull.core.options.table import WorkOptions
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.manage.cancel import request_cancel
from spark_bull.run.job.interrupts import interrupted_once, killed_by_interrupts, sigterm_raises
from spark_bull.run.progress_line import ProgressLine
from spark_bull.run.services.promoter import Promoter
from spark_bull.run.services.service import LossWatch, Service
from spark_bull.run.slot.status import WorkerStatus, lag_of
from spark_bull.run.worker.slot_engine import SlotEngine
from spark_bull.run.worker.slots_plan import OpenedQueue
from spark_bull.run.worker.worker_options import check_guards

Self = TypeVar("Self", bound="BaseWorker")

#: Maximum time for jobs to finish by default, and after Ctrl-C, s.
STOP_WITHIN_S: Final = 30.0
INTERRUPT_WITHIN_S: Final = 5.0


_INTERVAL_S: Final = 1.0
#: Shortest time between two looks at whether a worker is idle.
_LOOK_S: Final = 0.05


class HasStatus(Protocol):
    def status(self) -> WorkerStatus: ...


class WorkerProgress:
    """Shows `worker.status()` every second between start() and stop()."""

    def __init__(self, worker: HasStatus, stream: TextIO | None = None) -> None:
        self._worker = worker
        self._line = ProgressLine(self._text, _INTERVAL_S, stream)

    def start(self, *, force: bool = False) -> None:
        """Starts on a terminal and in a notebook; with `force` anywhere."""
        if force or self._line.in_place:
            self._line.start()

    def stop(self) -> None:
        """Shows the last state and ends the line."""
        self._line.stop(self._text)

    def _text(self) -> str:
        try:
            return str(self._worker.status())
        except SparkBullError as error:
            return str(error)


@short_errors
class BaseWorker:
    """Processes the jobs of queues with its engine until it is stopped.

    options: the parsed arguments. connection: the arguments that its Promoter takes, as the user gave them; guards: its
    guards.
    """

    _engine: SlotEngine

    def __init__(
        self,
        queues: Sequence[OpenedQueue],
        options: WorkOptions,
        connection: Mapping[str, Any],
        guards: Guard | Iterable[Guard] = (),
    ) -> None:
        self.handles = [one.handle for one in queues]
        self.handle: QueueHandle = self.handles[0]
        for handle in self.handles:
            handle.dialect.check_options(options)
            handle.dialect.check_work(handle.keys.queue)
        check_guards(options, guards)
        self.id = uuid4().hex[:12]
        # A promoter looks for losses, too.
        self._service: Service = LossWatch(self.handles)
        if options.promoter:
            self._service = Promoter(
                queues=[handle.keys.queue for handle in self.handles],
                events=options.events,
                max_stalled=options.max_stalled,
                check_ms=options.check_ms,
                guards=guards,
                **connection,
            )
        self._progress = WorkerProgress(self) if options.progress is not False else None
        self._forced_progress = bool(options.progress)
        self._state = "new"
        self._sample = (monotonic_s(), 0)

    def __repr__(self) -> str:
        queues = ", ".join(handle.keys.queue for handle in self.handles)
        return f"{type(self).__name__}(queue={queues!r}, state={self._current_state()!r})"

    def start(self: Self) -> Self:
        """Starts the slots and returns immediately.

        Returns:
          This worker.

        Raises:
          OptionError: if the processor cannot be pickled.
          SparkBullError: if the worker was started before.
          ConnectionLost: if Redis cannot be reached, or the user lacks a permission that a worker needs.
        """
        if self._state != "new":
            raise SparkBullError(
                f"expected a worker that has not been started, got one that is {self._state}: create another one"
            )
        self.handle.connection.check(
            self.handle.keys.prefix, [handle.keys.queue for handle in self.handles], write=True
        )
        if log.isEnabledFor(logging.INFO):
            waiting = ", ".join(f"{one.keys.queue}: {_known_lag(one, {}):,} waiting" for one in self.handles)
            log.info("worker %s starts; %s", self.id, waiting)
        try:
            with interrupted_once():
                self._engine.start()
        except KeyboardInterrupt:
            if self._engine.running:
                self._stop_on_interrupt()
            raise
        except BaseException:
            if self._engine.running:
                # Only some slots have started.
                self._engine.stop(0)
                self._state = "stopped"
            raise
        self._state, self._sample = "running", (monotonic_s(), 0)
        self._service.start()
        if self._progress is not None:
            self._progress.start(force=self._forced_progress)
        return self

    def stop(self, timeout_s: float = STOP_WITHIN_S) -> bool:
        """Stops claiming and waits until the slots have finished their claimed jobs. Calling it again has no effect.

        Parameters:
          timeout_s: maximum time to wait, s. Jobs that still run then return to the queue, and have
            stalled. Those that have not started return as they were.

        Returns:
          Whether all slots have finished.
        """
        if self._state in ("new", "stopped"):
            self._state = "stopped"
            return True
        finished = self._engine.stop(timeout_s)
        self._stop_services()
        return finished

    def pause(self) -> None:
        """Claims no more jobs until resume() is called; jobs that are claimed are finished.

        Raises:
          SparkBullError: if the worker does not run.
          ConnectionLost: if Redis cannot be reached.
        """
        self._slots("pause").set_paused(True)
        self._state = "paused"

    def resume(self) -> None:
        """Claims jobs again after pause().

        Raises:
          SparkBullError: if the worker does not run.
          ConnectionLost: if Redis cannot be reached.
        """
        self._slots("resume").set_paused(False)
        self._state = "running"

    def cancel(self, job_id: str, reason: str | None = None, *, queue: str | None = None) -> None:
        """Ends a job that is processed: it fails without a further attempt.

        A function or UDF gets JobCancelled within a second, a coroutine CancelledError; `RunningJob.cancelled` is true.
        A job that ends before that, or returns a value nevertheless, keeps its outcome. The job fails with the reason
        `cancelled`, or `cancelled: <reason>`.

        Parameters:
          job_id: id of the job.
          reason: why it is cancelled.
          queue: name of its queue; required if the worker has several queues, as ids are unique per queue only.

        Raises:
          JobMissing: if there is no such job.
          WrongState: if it is not active, or held by a Node worker.
          OptionError: for a wrong `queue`, or none where it is required.
          SparkBullError: if the worker does not run.
          ConnectionLost: if Redis cannot be reached.
        """
        self._slots("cancel")
        handles = [handle for handle in self.handles if queue in (None, handle.keys.queue)]
        if len(handles) != 1:
            names = ", ".join(handle.keys.queue for handle in self.handles)
            raise OptionError(f"expected `queue` to be one of this worker's queues ({names}), got: {queue!r}")
        request_cancel(handles[0], job_id, reason)

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Waits until the worker is stopped or fails, or the program is to end: a `with` block then stops the worker.

        SIGTERM raises SystemExit. Ctrl-C raises an exception that is a KeyboardInterrupt, and a SystemExit with the
        status 130 unless Python is interactive: a program that does not catch it ends without a trace.

        Parameters:
          timeout_s: maximum time to wait, s; None: unlimited.

        Returns:
          Whether the worker has ended.

        Raises:
          WorkerFailed: if the slots could not be started.
        """
        with sigterm_raises(SystemExit(128 + signal.SIGTERM)), interrupted_once():
            ended = self._engine.wait(timeout_s)
        if ended:
            self._stop_services()
            if self._engine.error is not None:
                self._engine.stop(0)
                raise self._engine.error
        return ended

    def await_idle(self, idle_s: float = 1.0) -> None:
        """Waits until there has been nothing to do for some time, or the worker has ended. Delayed jobs do not count.

        While Redis cannot be reached, the worker is not idle.

        Parameters:
          idle_s: for how long no job has run or could be claimed, s.

        Raises:
          WorkerFailed: if the slots could not be started.
        """
        # Also while the status is read: PySpark's handler of Ctrl-C would kill the slots.
        with sigterm_raises(SystemExit(128 + signal.SIGTERM)), interrupted_once():
            self._await_idle(idle_s)

    def _await_idle(self, idle_s: float) -> None:
        idle_since, finished = monotonic_s(), 0
        while not self.await_termination(min(1.0, max(_LOOK_S, idle_s))):
            try:
                status = self.status()
            except ConnectionLost:
                idle_since = monotonic_s()
                continue
            waits = status.damaged or (status.waiting_slots and not status.slots)
            if status.finished != finished or status.lag or status.busy or waits:
                idle_since, finished = monotonic_s(), status.finished
            elif monotonic_s() - idle_since >= idle_s:
                return

    def status(self) -> WorkerStatus:
        """Returns the state and counters of the worker, and the backlog of the queue.

        Returns:
          The counters; `jobs_per_second` is the rate since the previous call.

        Raises:
          ConnectionLost: if Redis cannot be reached.
        """
        totals = self._engine.totals()
        finished = totals["completed"] + totals["failed"]
        now, (before, finished_before) = monotonic_s(), self._sample
        self._sample = (now, finished)
        rate = (finished - finished_before) / (now - before) if now > before else 0.0
        damaged = dict(totals.pop("damaged", {}))
        return WorkerStatus(
            state=self._current_state(),
            jobs_per_second=max(0.0, rate),
            lag=sum(_known_lag(handle, damaged) for handle in self.handles),
            damaged=damaged,
            **totals,
        )

    def __enter__(self: Self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or not issubclass(kind, KeyboardInterrupt):
            self.stop()
            return
        self._stop_on_interrupt()

    def _stop_on_interrupt(self) -> None:
        """Stops the worker, and prints in one line what it has done. Ctrl-C again ends the process at once."""
        with killed_by_interrupts():
            if self._state == "new":
                # Its engine has started, but not all of it.
                self._state = "running"
            self.stop(INTERRUPT_WITHIN_S)
            queues = ", ".join(handle.keys.queue for handle in self.handles)
            try:
                done = str(self.status())
            except SparkBullError as error:
                done = str(error)
            print(f"Ctrl-C: worker of {queues}: {done}", file=sys.stderr)

    def _slots(self, method: str) -> SlotEngine:
        """Returns the engine. Raises SparkBullError unless it runs."""
        state = self._current_state()
        if state not in ("running", "paused"):
            raise SparkBullError(f"expected a running worker for {method}(), this one is {state}")
        return self._engine

    def _current_state(self) -> str:
        if self._state in ("running", "paused") and not self._engine.running:
            return "failed" if self._engine.error else "stopped"
        return self._state

    def _stop_services(self) -> None:
        self._state = "failed" if self._engine.error else "stopped"
        if self._progress is not None:
            self._progress.stop()
        self._service.stop()


def _known_lag(handle: QueueHandle, damaged: dict[str, str]) -> int:
    """The number of jobs that can be claimed now; 0 if a damaged key keeps it from being counted, which it adds."""
    try:
        return lag_of(handle)
    except QueueDamaged as error:
        damaged.setdefault(handle.keys.queue, str(error))
        return 0
