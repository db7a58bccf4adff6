"""Metrics of jobs in OpenTelemetry, with the names, units and attributes of BullMQ. Needs opentelemetry-api."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal

from opentelemetry.metrics import Counter, Histogram, Meter, MeterProvider, get_meter_provider

from spark_bull.core.tracing.calls import Calls
from spark_bull.core.version import VERSION

__all__ = ["JobMeter", "Measured", "MeterProvider", "State", "get_meter_provider"]

#: What has become of a job, as BullMQ names it.
State = Literal["completed", "failed", "delayed", "retried", "waiting", "waiting-children"]
_UNDERSCORED: Final = {"waiting-children": "waiting_children"}


#: A settled job: its name, None in a dialect without names, and how long ago it was claimed, ms.
Measured = tuple[str | None, int]


class JobMeter:
    """Records metrics with one MeterProvider. No method raises an error of OpenTelemetry: metrics are missing then.

    is_own: whether the provider ends with the meter.
    """

    def __init__(self, provider: MeterProvider, *, is_own: bool) -> None:
        self._provider = provider
        self._is_own = is_own
        self._calls = Calls("metrics")
        self._counters: dict[State, Counter] = {}

    def settled(self, queue: str, state: State, jobs: Sequence[Measured]) -> None:
        """Counts jobs of a queue that were settled, and records how long they were processed."""
        self._calls.run("recording jobs", lambda: self._record(queue, state, jobs))

    def counts(self, queue: str, counts: Mapping[str, int]) -> None:
        """Records the number of jobs by state."""
        self._calls.run("recording counts", lambda: self._set(queue, counts))

    def end(self) -> None:
        """Exports what was recorded, if the provider is one of the SDK; its own one exports nothing more."""
        end = getattr(self._provider, "shutdown" if self._is_own else "force_flush", None)
        if end is not None:
            self._calls.run("exporting metrics", end)

    @cached_property
    def _meter(self) -> Meter:
        return self._provider.get_meter("spark_bull", VERSION)

    @cached_property
    def _durations(self) -> Histogram:
        return self._meter.create_histogram("bullmq.job.duration", unit="ms", description="Job processing duration")

    @cached_property
    def _numbers(self) -> Any:
        description = "Number of jobs in the queue by state"
        return self._meter.create_gauge("bullmq.queue.jobs", unit="{jobs}", description=description)

    def _counter(self, state: State) -> Counter:
        if state not in self._counters:
            name = f"bullmq.jobs.{_UNDERSCORED.get(state, state)}"
            description = f"Number of jobs {state}"
            self._counters[state] = self._meter.create_counter(name, unit="1", description=description)
        return self._counters[state]

    def _record(self, queue: str, state: State, jobs: Sequence[Measured]) -> None:
        counter, durations = self._counter(state), self._durations
        fixed = {"bullmq.queue.name": queue, "bullmq.job.state": state}
        for name, ms in jobs:
            attributes = fixed if name is None else {**fixed, "bullmq.job.name": name}
            counter.add(1, attributes)
            durations.record(ms, attributes)

    def _set(self, queue: str, counts: Mapping[str, int]) -> None:
        for state, number in counts.items():
            self._numbers.set(number, {"bullmq.queue.name": queue, "bullmq.queue.jobs.state": state})
