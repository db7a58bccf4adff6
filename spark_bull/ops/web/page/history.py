"""Samples of how many jobs queues have, from a thread that runs while somebody looks at the page."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from threading import Event, Lock
from typing import Final, NamedTuple

from fastapi import Request

from spark_bull.core.clock import epoch_ms
from spark_bull.core.errors import ConnectionLost, SparkBullError
from spark_bull.core.threads import DaemonThread

log = logging.getLogger("spark_bull")

#: Time between two samples, s, and number of samples that are kept: those of one hour.
PERIOD_S: Final = 5.0
KEPT: Final = 720
#: Maximum number of queues that are sampled.
SAMPLED_QUEUES: Final = 200
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

    def total(self) -> list[Sample]:
        """The sums over all queues, of the times at which all that still exist were sampled."""
        self._keep_running()
        sums: dict[int, dict[str, int]] = {}
        with self._lock:
            for samples in self._samples.values():
                for sample in samples:
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
