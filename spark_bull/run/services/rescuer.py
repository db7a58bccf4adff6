"""Rescuer: moves stalled jobs back to `wait`."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from spark_bull.core.error_text import short_errors
from spark_bull.core.options.arguments import ServiceArguments, with_options
from spark_bull.core.options.parse import parse_arguments
from spark_bull.core.options.table import ServiceOptions
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.work.claim import Rescued, rescue
from spark_bull.run.claims.waits import DamagedQueues
from spark_bull.run.services.queue_set import QueueSet
from spark_bull.run.services.service import Service

if TYPE_CHECKING:
    from typing_extensions import Unpack

log = logging.getLogger("spark_bull")


@short_errors
@with_options(ServiceArguments, ServiceOptions)
class Rescuer(Service):
    """Rescues stalled jobs in a background thread, as workers of the Node libraries do.

        with Rescuer("redis://localhost:6379", queues=["mail"]):
            ...

    Several Rescuers may run in parallel, also with Node workers: one of them performs the check in each interval.
    A queue with a damaged key is logged and tried again; the others go on.

    Parameters:
      url: `redis://`, `rediss://` or `unix://` URL, with user, password and database. Default: $SPARK_BULL_URL, else
        localhost.
      queues: names or globs of the queues; default: all queues of the prefix.
      options: options of the connection, `check_ms` and `max_stalled`; see ServiceArguments.

    Raises:
      OptionError: for an invalid or unknown argument, or one that conflicts with another.
    """

    def __init__(
        self, url: str | None = None, queues: str | Iterable[str] = (), **options: Unpack[ServiceArguments]
    ) -> None:
        super().__init__("rescuer")
        parsed = parse_arguments({"url": url, **options}, ServiceOptions)
        self._queues = QueueSet(parsed, queues, works=True)
        self._damaged = DamagedQueues()
        self._check_ms: int = parsed.check_ms
        self._max_stalled: int = parsed.max_stalled

    def round(self) -> None:
        """Checks each queue, then waits for `check_ms`."""
        for handle in self._queues.handles():
            rescue = partial(rescue_and_log, handle, self._check_ms, self._max_stalled)
            self._damaged.attempt(handle.keys, "rescue jobs", rescue)
        self._over.wait(self._check_ms / 1000)


def rescue_and_log(handle: QueueHandle, check_ms: int, max_stalled: int) -> Rescued:
    """Checks one queue, and logs the number of stalled jobs if there are any."""
    rescued = rescue(handle, check_ms=check_ms, max_stalled=max_stalled)
    if rescued.stalled or rescued.failed:
        log.warning(
            "queue %s: %d stalled jobs were moved back to wait, %d failed because they stalled too often",
            handle.keys.queue,
            len(rescued.stalled),
            len(rescued.failed),
        )
    return rescued
