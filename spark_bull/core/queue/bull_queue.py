"""BullQueue: one queue from plain Python, no Spark needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_bull.core.dialects.encode.codec import carrying, check_defaults, defaults_of
from spark_bull.core.error_text import short_errors
from spark_bull.core.options.arguments import QueueArguments, with_options
from spark_bull.core.options.parse import parse_arguments
from spark_bull.core.options.table import QueueOptions
from spark_bull.core.queue.changing import Changing
from spark_bull.core.queue.handle.admission import length_limit_of, replica_terms_of
from spark_bull.core.queue.handle.handle import QueueHandle, open_handle
from spark_bull.core.queue.managing import Managing
from spark_bull.core.queue.reading import Reading
from spark_bull.core.queue.scheduling import Scheduling
from spark_bull.core.tracing.tracer import MeterSource, TracerSource, meter_of, spans_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


@short_errors
@with_options(QueueArguments, QueueOptions)
class BullQueue(Scheduling, Reading, Changing, Managing):
    """A queue of any dialect, from plain Python.

        queue = BullQueue("mail", url="redis://localhost:6379")
        queue.add({"to": "ada@example.org"}, delay=60_000)

    The connection opens with the first call. Every method raises ConnectionLost when Redis can't be reached for longer
    than `retry_ms`, or refuses the call.

    Parameters:
      queue: name of the queue.
      tracer: makes a span for each call that adds jobs, whose context the jobs carry, as with `telemetry` in BullMQ.
        True for the global tracer, a tracer of OpenTelemetry, or a function that returns one. BullMQ only.
      meter: where `record_counts` records: True for the global MeterProvider, a MeterProvider of OpenTelemetry, or a
        function that returns one.
      options: options of the connection, limits of calls and of the queue, and defaults of jobs; see QueueArguments.

    Raises:
      OptionError: for an argument that is wrong, unknown, or does not go with another one.
      DialectError: when the queue in Redis has another dialect than `protocol`.
      ConnectionLost: when Redis can't be reached.
    """

    def __init__(
        self,
        queue: str,
        *,
        tracer: TracerSource = None,
        meter: MeterSource = None,
        **options: Unpack[QueueArguments],
    ) -> None:
        self._options = parse_arguments(options, QueueOptions)
        self.handle: QueueHandle = open_handle(self._options, queue)
        self._defaults = defaults_of(self._options)
        self._limit = length_limit_of(self._options)
        self._replica_terms = replica_terms_of(self._options)
        self._spans = spans_of(tracer)
        self._meter = meter_of(meter)
        check_defaults(self.handle.dialect, self._defaults | carrying("{}" if self._spans else ""))

    def __repr__(self) -> str:
        where = self.handle.connection.settings.where
        return f"BullQueue({self.name!r}, protocol={self.protocol!r}, url={where!r})"

    def __enter__(self) -> BullQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes this process' connections that are not in use; the next call opens a new one."""
        self.handle.connection.close()
