"""What all loops of a slot share: its queues, their order, the events it waits for, its counters."""

from __future__ import annotations

import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from spark_bull.core.errors import SparkBullError
from spark_bull.core.threads import PollingThread
from spark_bull.core.tracing.tracer import meter_of
from spark_bull.run.job.interrupts import recording_interrupts
from spark_bull.run.job.job_runner import Result, handling_alarms
from spark_bull.run.job.job_threads import JobTasks
from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.slot.slot_queue import Signalled, SlotQueue
from spark_bull.run.slot.slot_report import Failures, SlotReport, SlotStats
from spark_bull.run.slot.slot_state import SlotState
from spark_bull.run.slot.termination import READ_S, Cancelled, CancelReader, return_jobs, returning_jobs

if TYPE_CHECKING:
    from spark_bull.core.tracing.otel import Spans

log = logging.getLogger("spark_bull")


class EndReader(PollingThread):
    """Reads whether the slot is to return its jobs; `on_end` is called when it has done so.

    While the slot holds no job, it sends nothing.
    """

    def __init__(self, queues: Sequence[SlotQueue], on_end: Callable[[], None]) -> None:
        super().__init__("end-reader", READ_S)
        self._queues = queues
        self._on_end = on_end

    def poll(self) -> bool:
        try:
            if any(queue.is_to_end() for queue in self._queues if queue.keeper.held()):
                return_jobs(self._queues)
                self._on_end()
                return True
        except SparkBullError as error:
            log.info("could not read whether the slot is to end: %s", error)
        return False


class StateEnded:
    """What `setup` made for the slot has ended by itself."""


#: A result of a job; the end of a wait; a job that was cancelled; the end of the slot's state; or None: a thread that
#: was abandoned has ended.
Event = Result | Signalled | Cancelled | StateEnded | None
#: How often a wait is ended again that had not begun when it was to be ended, s.
_UNBLOCK_AGAIN_S: Final = 0.05


class SlotLoop(ABC):
    """Processes jobs until the control key says "stop"."""

    def __init__(self, plan: SlotPlan, slot: int, *, at_once: int | None, waits_in_thread: bool = True) -> None:
        self._plan = plan
        self._stats = SlotStats()
        failures, damaged = Failures(), dict[str, str]()
        self._report = SlotReport(plan.handle, plan.worker, plan.run, slot, self._stats, failures, damaged)
        self._inbox: SimpleQueue[Event] = SimpleQueue()
        self._is_stopping = False
        self._close_state: Callable[[], None] = lambda: None
        #: Makes the spans of the slot.
        self.spans: Spans | None = None
        self._meter = meter_of(plan.meter)
        post = self._inbox.put if waits_in_thread else None
        self.queues: Sequence[SlotQueue] = [
            SlotQueue(plan, queue, slot, self._stats, failures, damaged, post, at_once, self._meter)
            for queue in plan.queues
        ]

    def run(self) -> SlotStats:
        """Runs until it is to stop; what has begun by then is finished. Raises only what no job has caused."""
        self._report.publish("starting", [])
        with ExitStack() as stack:
            stack.callback(self._export)
            for queue in self.queues:
                stack.enter_context(queue)
            stack.enter_context(recording_interrupts())
            stack.enter_context(handling_alarms())
            stack.enter_context(returning_jobs(self.queues, self._close_early))
            stack.enter_context(CancelReader(self.queues, self._cancel))
            stack.enter_context(EndReader(self.queues, lambda: self._report.publish("stopped", self.clients)))
            state = stack.enter_context(self._state())
            for queue in self.queues:
                queue.state = state
            self._report.publish("idle", self.clients)
            self._loop()
            for queue in self.queues:
                queue.end_work()
        self._report.publish("stopped", self.clients)
        return self._stats

    @property
    def clients(self) -> list[int]:
        """Ids of the connections on which the slot waits, by its queues; 0: unknown. CLIENT UNBLOCK ends a wait."""
        return [queue.wait.client for queue in self.queues]

    def _state(self) -> AbstractContextManager[Any]:
        """Makes the state of the slot, and closes it when the block is left."""
        return self._setup()

    @contextmanager
    def _setup(self, tasks: JobTasks | None = None, on_end: Callable[[], None] = lambda: None) -> Iterator[Any]:
        state = SlotState(self._plan.setup, tasks, on_end)
        with state as value:
            self._close_state = state.close
            yield value

    def _close_early(self) -> None:
        """Exports spans and metrics, and closes the state, as the process is to end; called in another thread."""
        self._export()
        self._close_state()

    def _export(self) -> None:
        """Exports the spans that have ended, and the metrics."""
        if self.spans is not None:
            self.spans.flush()
        if self._meter is not None:
            self._meter.end()

    @abstractmethod
    def _loop(self) -> None:
        """Claims and processes jobs until the slot is to stop."""

    @abstractmethod
    def _cancel(self, cancelled: Cancelled) -> None:
        """Ends a job that was cancelled; called in another thread, repeatedly for as long as the job is held."""

    def _events(self, timeout_s: float | None = None) -> list[Event]:
        """All events that have arrived; waits for the first one, `timeout_s` at most."""
        events: list[Event] = []
        try:
            events.append(self._inbox.get(timeout=timeout_s))
            while True:
                events.append(self._inbox.get_nowait())
        except Empty:
            return events

    def _take_events(self, timeout_s: float | None = None) -> None:
        """Waits for an event, `timeout_s` at most, and handles all that have arrived."""
        for event in self._events(timeout_s):
            self._take(event)

    def _take(self, event: Event) -> None:
        """Handles an event."""
        if isinstance(event, Signalled):
            if event.error is not None:
                event.wait.end(b"")
                raise event.error
            event.wait.end(event.active_id)

    def _end_waits(self) -> None:
        """Ends the waits of all queues: a slot without a free place must not receive signals that others could use."""
        while any(queue.wait.is_on for queue in self.queues):
            for queue in self.queues:
                if queue.wait.is_on:
                    queue.wait.unblock()
            self._take_events(_UNBLOCK_AGAIN_S)
        for queue in self.queues:
            if queue.wait.has_woken:
                queue.work(None, 0)


#: Chunks that a slot claims of one queue with a weight, while it has jobs, before it draws again.
TURN: Final = 4


class Weighted(Protocol):
    """What has a weight; 0: none."""

    @property
    def weight(self) -> int: ...


W = TypeVar("W", bound=Weighted)


def in_order(queues: Sequence[W]) -> Sequence[W]:
    """The queues as they are listed, or in random order: the first one is drawn in proportion to the weights.

    Formula: Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006.
    """
    if not any(queue.weight for queue in queues):
        return queues
    return sorted(queues, key=lambda queue: random.random() ** (1 / max(1, queue.weight)), reverse=True)


class Turns(Generic[W]):
    """The order for a slot that processes chunks: it stays with a queue that has a weight for TURN chunks.

    A script settles a chunk and claims the next one of the same queue; for another queue, two are needed.
    """

    def __init__(self, queues: Sequence[W]) -> None:
        self._queues = queues
        self._last: W | None = None
        self._left = 0

    def order(self) -> Sequence[W]:
        """The queues in the order in which they are asked now."""
        last = self._last
        if last is None or not self._left:
            return in_order(self._queues)
        return [last, *(queue for queue in in_order(self._queues) if queue is not last)]

    def claimed(self, queue: W) -> None:
        """A chunk of this queue was claimed."""
        if not queue.weight:
            return
        self._left = (self._left if queue is self._last and self._left else TURN) - 1
        self._last = queue
