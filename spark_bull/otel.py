"""Spans of jobs in OpenTelemetry, with the names and attributes of BullMQ. Needs the package opentelemetry-api.

The context of a span travels in the job's option `tm`, as JSON of what the propagators of OpenTelemetry inject, by
default `{"traceparent":"00-<trace>-<span>-01"}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.propagate import extract, inject
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, get_tracer, set_span_in_context
from opentelemetry.util.types import AttributeValue

from spark_bull.clock import epoch_ms
from spark_bull.version import VERSION

__all__ = ["Spans", "Tracer", "context_text", "global_tracer"]

Attributes = Mapping[str, AttributeValue | None]


def global_tracer() -> Tracer:
    """The tracer of the TracerProvider of this process."""
    return get_tracer("spark_bull", VERSION)


def context_text(context: Context | None = None) -> str:
    """Returns a context, by default the current one, as jobs carry it: JSON text; "" if there is nothing to carry."""
    carrier: dict[str, str] = {}
    inject(carrier, context)
    return json.dumps(carrier, separators=(",", ":")) if carrier else ""


def _context_of(text: object) -> Context | None:
    """The context that a job carries; None if there is none, or it is damaged."""
    try:
        carrier = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(carrier, dict):
        return None
    return extract({name: value for name, value in carrier.items() if isinstance(value, str)})


class Spans:
    """Makes the spans of one tracer."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    @contextmanager
    def adding(self, queue: str, operation: str, destination: str) -> Iterator[tuple[Span, str]]:
        """A span around a call that adds jobs, child of the current one, and its context for the jobs to carry."""
        with self._span(SpanKind.PRODUCER, queue, operation, destination, None) as span:
            try:
                yield span, context_text()
            except Exception as error:
                _record(span, error)
                raise

    @contextmanager
    def processing(self, queue: str, carried: object, attributes: Attributes) -> Iterator[Span]:
        """A span around one attempt of a job, child of the span whose context the job carries."""
        with self._span(SpanKind.CONSUMER, queue, "process", queue, _context_of(carried)) as span:
            span.set_attributes(_present(attributes))
            span.set_attribute("bullmq.job.processed.timestamp", epoch_ms())
            try:
                yield span
            finally:
                span.set_attribute("bullmq.job.attempt_finished_timestamp", epoch_ms())

    def flush(self) -> None:
        """Exports the spans that have ended, if the tracer is one of the SDK of OpenTelemetry."""
        flush = getattr(getattr(self._tracer, "span_processor", None), "force_flush", None)
        if flush is not None:
            flush()

    @contextmanager
    def _span(
        self, kind: SpanKind, queue: str, operation: str, destination: str, parent: Context | None
    ) -> Iterator[Span]:
        context = get_current() if parent is None else parent
        attributes = {"bullmq.queue.name": queue, "bullmq.queue.operation": operation}
        span = self._tracer.start_span(f"{operation} {destination}", context, kind, attributes)
        token = attach(set_span_in_context(span, context))
        try:
            yield span
        finally:
            detach(token)
            span.end()

    @staticmethod
    def completed(span: Span, attempts_made: int) -> None:
        """Records that the attempt has succeeded."""
        span.add_event("job completed")
        span.set_attribute("bullmq.job.attempts.made", attempts_made)

    @staticmethod
    def failed(span: Span, error: BaseException, attempts_made: int) -> None:
        """Records that the attempt has failed."""
        span.add_event("job failed", {"bullmq.job.failed.reason": str(error)})
        span.set_attribute("bullmq.job.attempts.made", attempts_made)
        _record(span, error)


def _record(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, str(error)))


def _present(attributes: Attributes) -> dict[str, AttributeValue]:
    return {name: value for name, value in attributes.items() if value is not None}
