"""Keeps which workers and queries a queue has, as finding them scans all keys of the database."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Annotated, Final, NamedTuple

from fastapi import Depends, Request

from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.monitor.find import Ledger, ledgers, workers_of_spark
from spark_bull.ops.web.scans import Kept

#: Of how many queues they are kept.
_QUEUES: Final = 100


class Readers(NamedTuple):
    """The ids of the workers of Spark of a queue, and the ledgers of the queries that read its results."""

    workers: Sequence[str]
    ledgers: Sequence[Ledger]


class KnownReaders:
    """The workers and ledgers of queues. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: dict[str, Kept[Readers]] = {}

    def of(self, queue: BullQueue) -> Readers:
        """Those of a queue."""
        handle = queue.handle
        with self._lock:
            if queue.name not in self._found and len(self._found) >= _QUEUES:
                del self._found[next(iter(self._found))]
            kept = self._found.setdefault(queue.name, Kept())
        return kept.get(lambda: Readers(workers_of_spark(handle), ledgers(handle)))


def readers_of(request: Request) -> KnownReaders:
    """Dependency: the KnownReaders of the application that got a request."""
    known: KnownReaders = request.app.state.readers
    return known


AllReaders = Annotated[KnownReaders, Depends(readers_of)]
