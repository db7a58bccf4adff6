"""The arguments `tracer` and `meter`, and the current trace context. Imports OpenTelemetry only when they are used."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from spark_bull.core.errors import OptionError, expected

if TYPE_CHECKING:
    from spark_bull.core.tracing.otel import JobMeter, Spans

#: True: the global tracer of the process; or a function that returns a tracer; or (not for a Worker) a tracer.
TracerSource = Any
#: The same with MeterProviders.
MeterSource = Any


def spans_of(tracer: TracerSource) -> Spans | None:
    """Returns what makes the spans; None for None and False. Raises OptionError."""
    if tracer is None or tracer is False:
        return None
    otel = _otel()
    spans: Spans = otel.Spans(_made("tracer", tracer, otel.Tracer, otel.global_tracer))
    return spans


def meter_of(meter: MeterSource) -> JobMeter | None:
    """Returns what records the metrics; None for None and False. Raises OptionError."""
    if meter is None or meter is False:
        return None
    otel = _otel()
    from opentelemetry.metrics import get_meter_provider

    provider = _made("meter", meter, otel.MeterProvider, get_meter_provider)
    made: JobMeter = otel.JobMeter(provider, is_own=meter is not True and provider is not meter)
    return made


def check_sendable(tracer: TracerSource, meter: MeterSource = None) -> None:
    """Raises OptionError for an argument that cannot be used in another process, or without OpenTelemetry."""
    if tracer is not None and tracer is not False:
        _check_sendable("tracer", tracer, _otel().Tracer)
    if meter is not None and meter is not False:
        _check_sendable("meter", meter, _otel().MeterProvider)


def _made(name: str, given: Any, kind: type, global_one: Callable[[], Any]) -> Any:
    """The tracer or provider that an argument gives or makes. Raises OptionError."""
    if given is True:
        return global_one()
    made = given if isinstance(given, kind) or not callable(given) else given()
    if not isinstance(made, kind):
        raise expected(name, f"True, a {kind.__name__} of OpenTelemetry, or a function that returns one", made)
    return made


def _check_sendable(name: str, given: Any, kind: type) -> None:
    if isinstance(given, kind):
        raise OptionError(
            f"expected `{name}` to be True or a function that returns a {kind.__name__}, got a {kind.__name__}, which "
            "cannot be sent to the executors: create it, and its exporter, in a function"
        )
    if given is not True and not callable(given):
        raise expected(name, f"True, or a function that returns a {kind.__name__} of OpenTelemetry", given)


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
    """The module that needs OpenTelemetry, which is optional and takes time to import. Raises OptionError."""
    try:
        return import_module("spark_bull.core.tracing.otel")
    except ModuleNotFoundError as error:
        raise OptionError(
            f"expected the package opentelemetry-api for traces and metrics, found none ({error.name}): "
            "pip install 'spark-bull[otel]', on the executors too"
        ) from None
