"""Spans and metrics of jobs in OpenTelemetry, with the names, units and attributes of BullMQ. Needs opentelemetry-api.

The context of a span travels in the job's option `tm`, as JSON of what the propagators of OpenTelemetry inject, by
default `{"traceparent":"00-<trace>-<span>-01"}`."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final, Literal, TypeVar

from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.metrics import Counter, Histogram, Meter, MeterProvider
from opentelemetry.propagate import extract, inject
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    get_current_span,
    get_tracer,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from spark_bull.core.clock import epoch_ms
from spark_bull.core.error_text import described, reason_of
from spark_bull.core.errors import SparkBullError
from spark_bull.core.version import VERSION

log = logging.getLogger("spark_bull")

T = TypeVar("T")


class Calls:
    """Calls OpenTelemetry. An error there is no error of a job: it is logged, once for each kind of call.

    kind: what the calls are about, for the log.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._failed: set[str] = set()

    def run(self, what: str, call: Callable[[], T]) -> T | None:
        """Returns what the call returns; None if it fails."""
        try:
            return call()
        except SparkBullError:
            # The timeout or the cancellation of a job, which interrupts the code that it runs.
            raise
        except Exception as error:
            if what not in self._failed:
                self._failed.add(what)
                log.warning("%s: %s failed (%s)", self._kind, what, described(error))
            return None


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


Attributes = Mapping[str, AttributeValue | None]
#: What fails when a context cannot be injected, for the log.
_INJECTING = "injecting a context"


def global_tracer() -> Tracer:
    """The tracer of the TracerProvider of this process."""
    return get_tracer("spark_bull", VERSION)


def current_context() -> str:
    """Returns the current context as jobs carry it: JSON text; "" if there is nothing to carry."""
    return Calls("traces").run("injecting the current context", _injected) or ""


class JobSpan:
    """A span of jobs; None: it could not be started. No method raises an error of OpenTelemetry."""

    def __init__(self, span: Span | None, calls: Calls) -> None:
        self._span = span
        self._calls = calls

    def set(self, attributes: Attributes) -> None:
        """Sets the attributes that are not None."""
        self._run("setting attributes", lambda span: span.set_attributes(_present(attributes)))

    def record(self, error: BaseException) -> None:
        """Records that what the span stands for has failed."""
        self._run("recording an exception", lambda span: span.record_exception(error))
        self._run("setting the status", lambda span: span.set_status(Status(StatusCode.ERROR, reason_of(error))))

    def completed(self, attempts_made: int) -> None:
        """Records that the attempt has succeeded."""
        self._run("adding an event", lambda span: span.add_event("job completed"))
        self.set({"bullmq.job.attempts.made": attempts_made})

    def failed(self, error: BaseException, attempts_made: int) -> None:
        """Records that the attempt has failed."""
        self._add_failure({"bullmq.job.failed.reason": reason_of(error)})
        self.set({"bullmq.job.attempts.made": attempts_made})
        self.record(error)

    def failed_job(self, job_id: str, error: BaseException) -> None:
        """Records that a job of a batch has failed."""
        self._add_failure({"bullmq.job.id": job_id, "bullmq.job.failed.reason": reason_of(error)})

    def failed_of(self, count: int, failed: int) -> None:
        """Records how many of the `count` jobs of a batch have failed."""
        if failed:
            status = Status(StatusCode.ERROR, f"{failed} of {count} jobs have failed")
            self._run("setting the status", lambda span: span.set_status(status))

    def carried(self) -> str:
        """Returns the context for jobs that are added within the span: of the current span, else of this one."""
        if get_current_span().get_span_context().is_valid or self._span is None:
            return self._calls.run(_INJECTING, _injected) or ""
        context = set_span_in_context(self._span)
        return self._calls.run(_INJECTING, lambda: _injected(context)) or ""

    def _add_failure(self, attributes: Attributes) -> None:
        self._run("adding an event", lambda span: span.add_event("job failed", _present(attributes)))

    def _run(self, what: str, call: Callable[[Span], object]) -> None:
        span = self._span
        if span is not None:
            self._calls.run(what, lambda: call(span))


class Spans:
    """Makes the spans of one tracer. No method raises an error of OpenTelemetry: jobs then have no span."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._calls = Calls("traces")

    @contextmanager
    def adding(self, queue: str, operation: str, destination: str) -> Iterator[tuple[JobSpan, str]]:
        """A span around a call that adds jobs, child of the current one, and its context for the jobs to carry."""
        with self._span(SpanKind.PRODUCER, queue, operation, destination, None) as span:
            try:
                yield span, self._calls.run(_INJECTING, _injected) or ""
            except Exception as error:
                span.record(error)
                raise

    @contextmanager
    def processing(self, queue: str, carried: object, attributes: Attributes) -> Iterator[JobSpan]:
        """A span around one attempt of a job, child of the span whose context the job carries."""
        parent = self._calls.run("extracting the context of a job", lambda: _extracted(carried))
        with self._span(SpanKind.CONSUMER, queue, "process", queue, parent) as span:
            span.set({**attributes, "bullmq.job.processed.timestamp": epoch_ms()})
            try:
                yield span
            finally:
                span.set({"bullmq.job.attempt_finished_timestamp": epoch_ms()})

    @contextmanager
    def processing_batch(
        self, queue: str, jobs: Sequence[tuple[object, Attributes]], attributes: Attributes
    ) -> Iterator[JobSpan]:
        """A span around a call that processes jobs, with a link to each span whose context one of them carries.

        jobs: what each job carries, and the attributes of its link.
        """
        links = self._calls.run("extracting the contexts of jobs", lambda: list(_links(jobs)))
        with self._span(SpanKind.CONSUMER, queue, "process", queue, None, links) as span:
            started = {"bullmq.job.bulk.count": len(jobs), "bullmq.job.processed.timestamp": epoch_ms()}
            span.set({**attributes, **started})
            try:
                yield span
            except Exception as error:
                span.record(error)
                raise
            finally:
                span.set({"bullmq.job.attempt_finished_timestamp": epoch_ms()})

    def flush(self) -> None:
        """Exports the spans that have ended, if the tracer is one of the SDK of OpenTelemetry."""
        flush = getattr(getattr(self._tracer, "span_processor", None), "force_flush", None)
        if flush is not None:
            self._calls.run("exporting spans", flush)

    @contextmanager
    def _span(
        self,
        kind: SpanKind,
        queue: str,
        operation: str,
        destination: str,
        parent: Context | None,
        links: Sequence[Link] | None = None,
    ) -> Iterator[JobSpan]:
        context = get_current() if parent is None else parent
        attributes = {"bullmq.queue.name": queue, "bullmq.queue.operation": operation}
        span = self._calls.run(
            "starting a span",
            lambda: self._tracer.start_span(f"{operation} {destination}", context, kind, attributes, links),
        )
        token = attach(context if span is None else set_span_in_context(span, context))
        try:
            yield JobSpan(span, self._calls)
        finally:
            detach(token)
            if span is not None:
                self._calls.run("ending a span", span.end)


def _injected(context: Context | None = None) -> str:
    """A context (None: the current one) as jobs carry it; "" if there is nothing to carry."""
    carrier: dict[str, str] = {}
    inject(carrier, context)
    return json.dumps(carrier, separators=(",", ":")) if carrier else ""


def _links(jobs: Sequence[tuple[object, Attributes]]) -> Iterator[Link]:
    for carried, attributes in jobs:
        context = _extracted(carried)
        if context is not None and (linked := get_current_span(context).get_span_context()).is_valid:
            yield Link(linked, _present(attributes))


def _present(attributes: Attributes) -> dict[str, AttributeValue]:
    return {name: value for name, value in attributes.items() if value is not None}


def _extracted(text: object) -> Context | None:
    """The context that a job carries; None if there is none, or it is damaged."""
    try:
        carrier = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(carrier, dict):
        return None
    return extract({name: value for name, value in carrier.items() if isinstance(value, str)})
