"""The queues that a server shows: those that its settings select, opened for a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from threading import Lock
from typing import Annotated, Final, Generic, NamedTuple, TypeVar

from fastapi import Depends, Path, Request

from spark_bull.clock import monotonic_s
from spark_bull.queue.bull_queue import BullQueue
from spark_bull.queue.core.handle import QueueHandle, opening
from spark_bull.queue.jobs.read import counting
from spark_bull.queue.monitor.find import exists, find_queues, is_glob
from spark_bull.store.steps import TOGETHER, Steps, run_all, run_together
from spark_bull.web.guard import unescaped
from spark_bull.web.problems import Problem
from spark_bull.web.scans import kept_s
from spark_bull.web.settings import CALL_TIMEOUT_MS, RETRY_MS, WebSettings

T = TypeVar("T")
#: For how long one request reads queues, s.
READING_S: Final = 2.0


class QueuePart(NamedTuple, Generic[T]):
    """What was read of some queues, in the order of their names.

    next: the queue after them, None: there is none; is_partial: whether they are fewer than wanted, as time was over.
    """

    found: list[T]
    next: str | None
    is_partial: bool


class Queues:
    """Opens queues, and finds their names. Thread-safe."""

    def __init__(self, settings: WebSettings) -> None:
        self._settings = settings
        self.connection = settings.connection()
        self._lock = Lock()
        self._names: list[str] = []
        self._kept_until: float | None = None

    def selects(self, name: str) -> bool:
        """Whether the settings select a queue of this name."""
        return any(fnmatchcase(name, glob) for glob in self._settings.queues)

    def check_shown(self, name: str) -> None:
        """Raises Problem 404 for a queue that is not selected. name: also with the prefix of its keys, as in BullMQ."""
        prefix, _, plain = name.rpartition(":")
        if prefix not in ("", self._settings.options["prefix"]) or not self.selects(plain):
            raise _missing(name)

    def names(self) -> list[str]:
        """Names of the queues, sorted; some seconds old at most, or longer in a large database: see `kept_s`."""
        with self._lock:
            started = monotonic_s()
            if self._kept_until is None or started > self._kept_until:
                self._names = sorted(self._find())
                ended = monotonic_s()
                self._kept_until = ended + kept_s(ended - started)
            return self._names

    def _find(self) -> Iterator[str]:
        selected = self._settings.queues
        if any(map(is_glob, selected)):
            found = find_queues(self.connection, self._settings.options["prefix"])
            yield from (name for name in found if self.selects(name))
        else:
            yield from (name for name in set(selected) if exists(self.open(name).handle))

    def open(self, name: str) -> BullQueue:
        """Opens a queue that may not exist. Raises Problem 404 for one that is not selected."""
        if not self.selects(name):
            raise _missing(name)
        settings = self._settings
        return BullQueue(
            name,
            url=settings.url,
            prefix=settings.prefix,
            protocol=settings.protocol,
            call_timeout_ms=CALL_TIMEOUT_MS,
            retry_ms=RETRY_MS,
        )

    def read_all(self, read: Callable[[QueueHandle], Steps[T]], most: int | None = None) -> dict[str, T]:
        """What a read finds in each queue, or in the first `most`, in round trips that they share.

        Raises the error of the first queue that has one.
        """
        names = self.names()[:most]
        reads = [self._opened(name, read) for name in names]
        return dict(zip(names, run_all(self.connection, reads), strict=True))

    def read_some(self, read: Callable[[QueueHandle], Steps[T]], first: str, most: int) -> QueuePart[T]:
        """What a read finds in at most `most` queues from the name `first` on, for READING_S, but in one at least.

        Raises the error of the first queue that has one.
        """
        until_s = monotonic_s() + READING_S
        names = [name for name in self.names() if name >= first]
        found = run_all(self.connection, [self._opened(name, read) for name in names[:most]], until_s)
        following = names[len(found)] if len(found) < len(names) else None
        return QueuePart(found, following, len(found) < len(names[:most]))

    def check_readable(self) -> None:
        """Raises ConnectionLost if Redis does not answer, or refuses to read each of some queues."""
        reads = [self._opened(name, counting) for name in self.names()[:TOGETHER]]
        if reads:
            run_together(self.connection, reads)
        else:
            self.connection.call("PING")

    def _opened(self, name: str, read: Callable[[QueueHandle], Steps[T]]) -> Steps[T]:
        return (yield from read((yield from opening(self._settings.options, name))))

    def existing(self, name: str) -> BullQueue:
        """Opens a queue. Raises Problem 404 if it does not exist."""
        queue = self.open(name)
        if not exists(queue.handle):
            raise _missing(name)
        return queue

    def forget_names(self) -> None:
        """Reads the names again for the next request."""
        with self._lock:
            self._kept_until = None


def queues_of(request: Request) -> Queues:
    """Dependency: the queues of the server."""
    queues: Queues = request.app.state.queues
    return queues


QueueName = Annotated[str, Path(description="name of the queue", min_length=1, max_length=1_000, examples=["mail"])]


def existing_queue(queues: Annotated[Queues, Depends(queues_of)], queue: QueueName) -> BullQueue:
    """Dependency: the queue in the path. Raises Problem 404."""
    return queues.existing(unescaped(queue))


AllQueues = Annotated[Queues, Depends(queues_of)]
ExistingQueue = Annotated[BullQueue, Depends(existing_queue)]


def _missing(name: str) -> Problem:
    return Problem(404, f"expected a queue of this server, found none: {name[:200]}; GET /api/queues lists all")
