"""The queues that a server shows, opened for a request, with the job in its path and the version that a change expects.

What is found by scanning all keys is kept for a while.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from hashlib import blake2b
from math import inf
from threading import Lock
from typing import Annotated, Final, Generic, NamedTuple, TypeVar

from fastapi import Depends, Header, Path, Request

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import PermissionDenied, SparkBullError
from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.read_jobs import Job
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.handle.handle import QueueHandle, opening
from spark_bull.core.queue.handle.report import job_missing
from spark_bull.core.queue.jobs.read import counting
from spark_bull.core.queue.monitor import find
from spark_bull.core.store.round_trips import TOGETHER, RoundTrips, run_together
from spark_bull.ops.web.access import queues_of_caller
from spark_bull.ops.web.middleware import unescaped
from spark_bull.ops.web.problems import Problem
from spark_bull.ops.web.settings import WebSettings

log = logging.getLogger("spark_bull")

T = TypeVar("T")
#: The shortest time that names are kept, s, and how many times as long as the scan has taken: Redis scans for a
#: twentieth of the time at most.
LEAST_S: Final = 15.0
_TIMES: Final = 20


class Kept(Generic[T]):
    """What a scan finds: some seconds old at most, or longer in a large database. Thread-safe.

    least_s: for how long it is kept in a small one.
    """

    def __init__(self, least_s: float = LEAST_S) -> None:
        self._least_s = least_s
        self._lock = Lock()
        self._until_s = -inf

    def get(self, scan: Callable[[], T]) -> T:
        """What was kept, else what `scan` finds."""
        with self._lock:
            started = monotonic_s()
            if started > self._until_s:
                self._found = scan()
                ended = monotonic_s()
                self._until_s = ended + max(self._least_s, _TIMES * (ended - started))
            return self._found

    def forget(self) -> None:
        """Scans again for the next call."""
        with self._lock:
            self._until_s = -inf


#: For how long one request reads queues, s.
READING_S: Final = 2.0


@dataclass(frozen=True)
class QueuePart(Generic[T]):
    """What was read of some queues by their names, or why it could not be read.

    next: the queue after them, None: there is none; is_partial: whether they are fewer than wanted, as time was over.
    """

    found: Mapping[str, T | SparkBullError]
    next: str | None
    is_partial: bool


class Queues:
    """Opens queues, and finds their names. Thread-safe."""

    def __init__(self, settings: WebSettings) -> None:
        self._settings = settings
        self._prefix: str = settings.options.prefix
        self.connection = settings.connection()
        self._names = Kept[list[str]]()
        self._allowed: tuple[str, ...] = ("*",)

    def limited_to(self, globs: tuple[str, ...]) -> Queues:
        """The queues that names or globs select; finds them together with this object."""
        if globs == self._allowed:
            return self
        limited = copy(self)
        limited._allowed = globs
        return limited

    def selects(self, name: str) -> bool:
        """Whether the settings select a queue of this name, and the caller may know it."""
        return all(any(fnmatchcase(name, glob) for glob in globs) for globs in (self._settings.queues, self._allowed))

    def check_shown(self, name: str) -> None:
        """Raises Problem 404 for a queue that is not selected. name: also with the prefix of its keys, as in BullMQ."""
        prefix, _, plain = name.rpartition(":")
        if prefix not in ("", self._prefix) or not self.selects(plain):
            raise _no_such_queue(name)

    def names(self) -> list[str]:
        """Names of the queues, sorted; as old as `Kept` allows."""
        names = self._names.get(lambda: sorted(self._find()))
        return names if self._allowed == ("*",) else [name for name in names if self.selects(name)]

    def _find(self) -> Iterator[str]:
        selected = self._settings.queues
        if any(map(find.is_glob, selected)):
            found = find.find_queues(self.connection, self._prefix)
            yield from (name for name in found if any(fnmatchcase(name, glob) for glob in selected))
        else:
            yield from (name for name in set(selected) if find.exists(self.connection, QueueKeys(name, self._prefix)))

    def open(self, name: str) -> BullQueue:
        """Opens a queue that may not exist. Raises Problem 404 for one that is not selected."""
        if not self.selects(name):
            raise _no_such_queue(name)
        return BullQueue(name, **self._settings.arguments)

    def read(
        self, read: Callable[[QueueHandle], RoundTrips[T]], names: Sequence[str], until_s: float = inf
    ) -> list[T | SparkBullError]:
        """What a read finds in each of these queues, or its error, in round trips that they share.

        until_s: time by the monotonic clock when no more queues are begun.
        """
        return run_together(self.connection, [self._opened(name, read) for name in names], until_s)

    def read_some(self, read: Callable[[QueueHandle], RoundTrips[T]], first: str, most: int) -> QueuePart[T]:
        """What a read finds in at most `most` queues from the name `first` on, for READING_S, but in one at least."""
        names = [name for name in self.names() if name >= first]
        results = self.read(read, names[:most], monotonic_s() + READING_S)
        found = dict(zip(names, results, strict=False))
        following = names[len(found)] if len(found) < len(names) else None
        return QueuePart(found, following, len(found) < len(names[:most]))

    def check_readable(self) -> None:
        """Raises ConnectionLost if Redis does not answer, or refuses to read each of some queues."""
        if not self.read(counting, self.names()[:TOGETHER]):
            self.connection.call("PING")

    def _opened(self, name: str, read: Callable[[QueueHandle], RoundTrips[T]]) -> RoundTrips[T]:
        return (yield from read((yield from opening(self._settings.options, name))))

    def existing(self, name: str) -> BullQueue:
        """Opens a queue. Raises Problem 404 if it does not exist."""
        queue = self.open(name)
        if not find.exists(queue.handle.connection, queue.handle.keys):
            raise _no_such_queue(name)
        return queue

    def check_removable(self, queue: BullQueue, job_id: str) -> None:
        """Raises Problem 409 for a job with children in queues that do not exist for the caller, who must keep them."""
        if self._settings.queues == self._allowed == ("*",) or not queue.handle.dialect.has("flows"):
            return
        flow = queue.get_flow(job_id)
        for node in flow.walk() if flow else ():
            if ":" in node.queue or not self.selects(node.queue) or node.child_count > len(node.children):
                raise Problem(
                    409,
                    "expected a job whose children are in queues that you may change, got others, or too many to read: "
                    "remove it with withChildren=false, or use a token for all queues",
                )

    def forget_names(self) -> None:
        """Reads the names again for the next request."""
        self._names.forget()


def queues_of(request: Request) -> Queues:
    """Dependency: the queues of the server that exist for the caller."""
    queues: Queues = request.app.state.queues
    return queues.limited_to(queues_of_caller(request))


QueueName = Annotated[str, Path(description="name of the queue", min_length=1, max_length=1_000, examples=["mail"])]


def existing_queue(queues: Annotated[Queues, Depends(queues_of)], queue: QueueName) -> BullQueue:
    """Dependency: the queue in the path. Raises Problem 404."""
    return queues.existing(unescaped(queue))


AllQueues = Annotated[Queues, Depends(queues_of)]
ExistingQueue = Annotated[BullQueue, Depends(existing_queue)]


def _no_such_queue(name: str) -> Problem:
    return Problem(404, f"no such queue on this server: {name[:200]}; GET /api/queues lists all")


#: Of how many queues they are kept.
_QUEUES: Final = 100


class Readers(NamedTuple):
    """The ids of the workers of Spark of a queue, and the ledgers of the queries that read its results."""

    workers: Sequence[str]
    ledgers: Sequence[find.Ledger]


class KnownReaders:
    """The workers and ledgers of queues. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: dict[str, Kept[Readers]] = {}

    def of(self, queue: BullQueue) -> Readers:
        """The readers of a queue."""
        handle = queue.handle
        with self._lock:
            if queue.name not in self._found and len(self._found) >= _QUEUES:
                del self._found[next(iter(self._found))]
            kept = self._found.setdefault(queue.name, Kept())
        return kept.get(lambda: Readers(find.workers_of_spark(handle), find.ledgers(handle)))


def readers_of(request: Request) -> KnownReaders:
    """Dependency: the KnownReaders of the application that got a request."""
    known: KnownReaders = request.app.state.readers
    return known


AllReaders = Annotated[KnownReaders, Depends(readers_of)]


def connected_workers(handle: QueueHandle) -> list[find.ConnectedWorker] | None:
    """The connected workers of a queue; None if the user of Redis may not see its connections."""
    try:
        return find.workers(handle.connection, handle.keys)
    except PermissionDenied as error:
        log.info("queue %s: connected workers are not known: %s", handle.keys.queue, error)
        return None


def existing_job(queue: BullQueue, job_id: str) -> Job:
    """A job of a queue. Raises JobMissing."""
    job = queue.job(job_id)
    if job is None:
        raise job_missing(queue.handle, job_id[:200])
    return job


def job_in_path(
    queue: ExistingQueue, id: Annotated[str, Path(description="id of the job", min_length=1, examples=["42"])]
) -> Job:
    """Dependency: the job in the path. Raises JobMissing."""
    return existing_job(queue, unescaped(id))


ExistingJob = Annotated[Job, Depends(job_in_path)]


def expected_job(
    job: ExistingJob,
    if_match: Annotated[
        str | None, Header(description="ETag of the job, as GET returns it: the request is refused if it has changed")
    ] = None,
) -> Job:
    """Dependency: the job in the path, in the version of the header If-Match. Raises JobMissing, or Problem 409."""
    if if_match not in (None, "*") and etag_of(job) not in [tag.strip() for tag in (if_match or "").split(",")]:
        raise Problem(
            409,
            f"expected job {job.id} of queue {job.queue} to be as in If-Match, it has changed and is "
            f"{job.state or 'in no state'}: read it again",
        )
    return job


ExpectedJob = Annotated[Job, Depends(expected_job)]


def etag_of(job: Job) -> str:
    """A text that changes when the job does, except for its progress."""
    digest = blake2b(repr(replace(job, progress_text=None)).encode("utf-8", "surrogatepass"), digest_size=12)
    return f'"{digest.hexdigest()}"'
