"""The data of the charts: samples from a thread that runs while somebody looks at the page, and metrics of workers."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Lock
from typing import Any, Final, NamedTuple

from fastapi import Request

from spark_bull.core.clock import epoch_ms
from spark_bull.core.errors import ConnectionLost, SparkBullError
from spark_bull.core.model.jobs import STATES
from spark_bull.core.model.queues import MINUTE_MS, QueueMetrics
from spark_bull.core.threads import DaemonThread

log = logging.getLogger("spark_bull")

#: Time between two samples, s, and number of samples that are kept: an hour.
PERIOD_S: Final = 5.0
KEPT: Final = 720
#: Maximum number of queues that are sampled.
SAMPLED_QUEUES: Final = 500
#: The thread ends when nobody has looked for so long, s.
IDLE_S: Final = 3_600.0

Counts = Mapping[str, int]


class Sample(NamedTuple):
    """The number of jobs by state at a time, ms since 1970."""

    time: int
    counts: Counts


class History:
    """The last samples of each queue. `read`: the counts of all queues by name. Thread-safe."""

    def __init__(self, read: Callable[[], Mapping[str, Counts]]) -> None:
        self._read = read
        self._samples: dict[str, deque[Sample]] = {}
        self._lock = Lock()
        self._looked_on = 0.0
        self._thread: DaemonThread | None = None
        self._is_closed = Event()

    def of(self, queue: str) -> list[Sample]:
        """The samples of a queue, the oldest first."""
        self._keep_running()
        with self._lock:
            return list(self._samples.get(queue, ()))

    def total(self, selects: Callable[[str], bool]) -> list[Sample]:
        """The sums over the selected queues, of the times at which all that still exist were sampled."""
        self._keep_running()
        sums: dict[int, dict[str, int]] = {}
        with self._lock:
            for queue, samples in self._samples.items():
                for sample in samples if selects(queue) else ():
                    counts = sums.setdefault(sample.time, {})
                    for state, count in sample.counts.items():
                        counts[state] = counts.get(state, 0) + count
        return [Sample(at, sums[at]) for at in sorted(sums)]

    def close(self) -> None:
        """Ends the thread; no samples are added any more."""
        self._is_closed.set()

    def sample(self) -> None:
        """Adds a sample of each queue; queues that are gone lose theirs."""
        found = self._read()
        now = epoch_ms()
        with self._lock:
            for queue in self._samples.keys() - found.keys():
                del self._samples[queue]
            for queue, counts in found.items():
                self._samples.setdefault(queue, deque(maxlen=KEPT)).append(Sample(now, counts))

    def _keep_running(self) -> None:
        self._looked_on = time.monotonic()
        with self._lock:
            if self._is_closed.is_set() or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = DaemonThread("page history", self._run)
            self._thread.start()

    def _run(self) -> None:
        while not self._is_closed.is_set() and time.monotonic() - self._looked_on < IDLE_S:
            try:
                self.sample()
            except ConnectionLost:
                # The client of Redis logs that it waits.
                pass
            except SparkBullError as error:
                log.warning("the samples of the page have a gap: %s", error)
            self._is_closed.wait(PERIOD_S)


def history_of(request: Request) -> History:
    """The history of the application that got a request."""
    history: History = request.app.state.history
    return history


Chart = dict[str, Any]

#: Without the completed jobs, beside whose number the other lines would be flat.
_SHOWN_STATES: Final = tuple(state for state in STATES if state != "completed")
#: Minutes of the chart of rates.
MINUTES: Final = 120
#: Points of the chart of samples, about.
_POINTS: Final = 240


def chart_of_samples(samples: Sequence[Sample]) -> Chart:
    """Jobs by state over time; states that have had no job are left out."""
    step = -(-len(samples) // _POINTS) or 1
    shown = samples[::-1][::step][::-1]
    return {
        "times": [sample.time / 1000 for sample in shown],
        "series": [
            {"label": state, "state": state, "values": [sample.counts.get(state, 0) for sample in shown]}
            for state in _SHOWN_STATES
            if any(sample.counts.get(state) for sample in shown)
        ],
    }


def chart_of_metrics(metrics: Sequence[QueueMetrics]) -> Chart | None:
    """Jobs that have ended per minute, of the last two hours, without the current one; None if nothing was counted."""
    counted = [each for each in metrics if each.minutes]
    if not counted:
        return None
    last = epoch_ms() // MINUTE_MS
    minutes = range(last - MINUTES, last)
    return {
        "times": [minute * 60 for minute in minutes],
        "series": [
            {
                "label": state,
                "state": state,
                "values": [
                    sum(each.minutes.get(minute * MINUTE_MS, 0) for each in counted if each.state == state)
                    for minute in minutes
                ],
            }
            for state in ("completed", "failed")
        ],
    }
