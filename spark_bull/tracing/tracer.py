"""The argument `tracer`, and the current trace context. Imports OpenTelemetry only when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_bull.errors import OptionError, expected

if TYPE_CHECKING:
    from spark_bull.tracing.otel import Spans, Tracer

#: True: the global tracer of the process; or a function that returns a tracer; or (not for a Worker) a tracer.
TracerSource = Any


def spans_of(tracer: TracerSource) -> Spans | None:
    """Returns what makes the spans; None for None and False. Raises OptionError."""
    if tracer is None or tracer is False:
        return None
    otel = _otel()
    made: Tracer
    if tracer is True:
        made = otel.global_tracer()
    else:
        made = tracer if isinstance(tracer, otel.Tracer) or not callable(tracer) else tracer()
    if not isinstance(made, otel.Tracer):
        raise expected("tracer", "True, a Tracer of OpenTelemetry, or a function that returns one", made)
    spans: Spans = otel.Spans(made)
    return spans


def check_sendable(tracer: TracerSource) -> None:
    """Raises OptionError for a tracer that cannot be used in another process, or without OpenTelemetry."""
    if tracer is None or tracer is False:
        return
    otel = _otel()
    if isinstance(tracer, otel.Tracer):
        raise OptionError(
            "expected `tracer` to be True or a function that returns a Tracer, got a Tracer, which cannot be sent to "
            "the executors: create it, and its exporter, in a function"
        )
    if tracer is not True and not callable(tracer):
        raise expected("tracer", "True, or a function that returns a Tracer of OpenTelemetry", tracer)


def current_trace() -> str:
    """Returns the current context of OpenTelemetry, for the option `telemetry` of a write.

        with tracer.start_as_current_span("nightly"):
            df.write.format("bull").option("queue", "mail").option("telemetry", current_trace()).mode("append").save()

    Returns:
      JSON text with the W3C trace context, as BullMQ stores it; `{}` outside of spans.

    Raises:
      OptionError: without the package opentelemetry-api.
    """
    text: str = _otel().current_context()
    return text or "{}"


def _otel() -> Any:
    try:
        # Imported late: it is optional, and importing it takes time.
        from spark_bull.tracing import otel
    except ModuleNotFoundError as error:
        raise OptionError(
            f"expected the package opentelemetry-api for traces, found none ({error.name}): "
            "pip install 'spark-bull[otel]', on the executors too"
        ) from None
    return otel
