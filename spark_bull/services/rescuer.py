"""Rescuer: jobs whose worker is gone come back."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from spark_bull.errors import expected
from spark_bull.options import READ, as_texts, parse_options
from spark_bull.queue.claim import Rescued, rescue
from spark_bull.queue.handle import QueueHandle
from spark_bull.services.queue_set import QueueSet
from spark_bull.services.service import Service

log = logging.getLogger("spark_bull")


class Rescuer(Service):
    """Looks for stalled jobs every `check_ms`, as the Node libraries' workers do; whoever looks first does it for all.

        with Rescuer("redis://localhost:6379", queues=["mail"]):
            ...

    A job that stalled more than `max_stalled` times fails. queues: names or globs, all of the prefix when there are
    none; further options are those of the data source. Raises OptionError for a bad one.
    """

    def __init__(
        self,
        url: str | None = None,
        queues: Iterable[str] = (),
        *,
        check_ms: int = 30_000,
        max_stalled: int = 1,
        **options: Any,
    ) -> None:
        super().__init__("rescuer")
        for name, value, least in (("check_ms", check_ms, 1), ("max_stalled", max_stalled, 0)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise expected(name, f"an integer >= {least}", value)
        self._queues = QueueSet(parse_options(as_texts({"url": url, **options}), READ), queues)
        self._check_ms = check_ms
        self._max_stalled = max_stalled

    def round(self) -> None:
        for handle in self._queues.handles():
            rescue_and_tell(handle, self._check_ms, self._max_stalled)
        self._over.wait(self._check_ms / 1000)


def rescue_and_tell(handle: QueueHandle, check_ms: int, max_stalled: int) -> Rescued:
    """One check of one queue, which is logged when it finds something."""
    rescued = rescue(handle, check_ms=check_ms, max_stalled=max_stalled)
    if rescued.stalled or rescued.failed:
        log.warning(
            "queue %s: %d jobs had lost their worker and wait again, %d have failed because it happened too often",
            handle.keys.queue,
            len(rescued.stalled),
            len(rescued.failed),
        )
    return rescued
