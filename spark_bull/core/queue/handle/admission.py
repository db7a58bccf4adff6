"""Whether a queue takes jobs: its intake and its maximum length; and whether replicas have what was written.

The command WAIT waits for replicas. What one connection waits for includes the writes of all others before it:
replication is one stream. So the driver can wait once for the writes of all tasks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Container, Sequence
from typing import Any, Final, NamedTuple

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import IntakeClosed, NotReplicated, QueueFull, RedisUnavailable, SparkBullError
from spark_bull.core.keys import QueueKeys
from spark_bull.core.options.parts import Adding, Replicated
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.errors import code_of
from spark_bull.core.store.scripts import Command

log = logging.getLogger("spark_bull")


#: Pauses between two looks at a full queue, s.
_MIN_PAUSE_S: Final = 0.02
_MAX_PAUSE_S: Final = 1.0
#: Interval of the lines in the log about a writer that waits.
_LOG_S: Final = 10.0


class LengthLimit(NamedTuple):
    """The maximum length of a queue for one writer. when_full: fail, wait or drop."""

    max_length: int
    when_full: str

    @property
    def fields(self) -> dict[str, str | int]:
        """The fields of a write's hash."""
        return {"maxLength": self.max_length, "whenFull": self.when_full}


def length_limit_of(options: Adding) -> LengthLimit | None:
    """The limit that a writer's options set; None: none."""
    return None if options.max_length is None else LengthLimit(options.max_length, options.when_full)


class RoomPauses:
    """The pauses between looks at a full queue: each is twice as long as the one before, up to a maximum."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Jobs were added: the next pause is a short one."""
        self._pause_s = _MIN_PAUSE_S

    def next_s(self) -> float:
        """The next pause, s."""
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, _MAX_PAUSE_S)
        return pause_s


class RoomWait:
    """The wait of a writer while its queue is full, with a line in the log from time to time."""

    def __init__(self, queue: str, limit: LengthLimit) -> None:
        self._queue, self._limit = queue, limit
        self._log_at = monotonic_s() + _MAX_PAUSE_S
        self._pauses = RoomPauses()

    def reset(self) -> None:
        """Jobs were added: the next pause is a short one."""
        self._pauses.reset()

    def pause(self, length: int, done: int, total: int) -> None:
        """Pauses before the next look. done, total: jobs that the writer has processed, and has to process."""
        now = monotonic_s()
        if now >= self._log_at:
            self._log_at = now + _LOG_S
            log.warning(
                "a write waits for room: queue %s has %d jobs of at most %d; %d of %d jobs of the write are processed",
                self._queue,
                length,
                self._limit.max_length,
                done,
                total,
            )
        time.sleep(self._pauses.next_s())


def queue_full(queue: str, length: int, max_length: int, jobs: int, added: str) -> QueueFull:
    """Creates the error of a writer that finds no room. jobs: how many did not fit; added: what else was added."""
    return QueueFull(
        f"expected room for {jobs:,} jobs in queue {queue}, which has {length:,} of at most {max_length:,} "
        f"(`maxLength`): {added}. Write again when workers have processed some, raise `maxLength`, or set `whenFull` "
        "to wait or drop",
        queue=queue,
        length=length,
        max_length=max_length,
    )


def intake_closed(queue: str) -> IntakeClosed:
    """Creates the error of a writer whose queue accepts no jobs."""
    return IntakeClosed(
        f"queue {queue} accepts no jobs until `BullQueue.open_intake()` or `spark-bull open-intake {queue}` opens it: "
        "write again then",
        queue=queue,
    )


def is_intake_open(handle: QueueHandle) -> bool:
    return not handle.connection.call(*intake_check(handle.keys))


def intake_check(keys: QueueKeys) -> Command:
    """The command that returns more than 0 if the intake is closed."""
    return ("EXISTS", keys["intake_closed"])


def check_intake(handle: QueueHandle) -> None:
    """Raises IntakeClosed for a queue that accepts no jobs."""
    if not is_intake_open(handle):
        raise intake_closed(handle.keys.queue)


class Refusal(NamedTuple):
    """Nothing was added: the queue accepts no jobs (`closed`), or is `full`. length: of a full queue."""

    reason: str
    length: int = 0


def refusal_of(reply: Sequence[Any]) -> Refusal | None:
    """The refusal that a reply is, if it is one."""
    return Refusal(reply[0].decode(), *reply[1:]) if isinstance(reply[0], bytes) else None


_MARK_TTL_MS: Final = 60_000
#: What a write of jobs has done.
JOBS_ADDED: Final = "the jobs were added"


class ReplicaTerms(NamedTuple):
    """How many replicas must have a write, and how long a writer waits for them, ms."""

    replicas: int
    timeout_ms: int


def replica_terms_of(options: Replicated) -> ReplicaTerms | None:
    """The terms that a writer's options set; None: none."""
    return None if options.replicas is None else ReplicaTerms(options.replicas, options.replica_timeout_ms)


def check_replicas(connection: Connection, terms: ReplicaTerms, queue: str) -> frozenset[str]:
    """Returns replication ids, before a write: of the primary that has the queue of a connection, or of all primaries.

    queue: its name, for errors. Waits for replicas as for a lost connection, as one may restart; raises NotReplicated
    if a primary still has too few.
    """
    nodes = [connection] if connection.home else connection.primaries()
    return frozenset(_checked_primary(node, terms, queue) for node in nodes)


def _checked_primary(connection: Connection, terms: ReplicaTerms, queue: str) -> str:
    try:
        return str(connection.replication(terms.replicas)["master_replid"])
    except RedisUnavailable as error:
        if code_of(error.__cause__ or error) != "NOREPLICAS":
            raise
        connected = int(connection.replication()["connected_slaves"])
        raise NotReplicated(
            f"expected `replicas` to be at most {connected}, the number of replicas that are connected to Redis at "
            f"{connection.where}, got: {terms.replicas}. Nothing was written: check the replicas, and write again",
            queue=queue,
            replicas=connected,
            was_written=False,
        ) from error


def wait_for_replicas(
    connection: Connection, keys: QueueKeys, terms: ReplicaTerms, primaries: Container[str], done: str = JOBS_ADDED
) -> int:
    """Waits until enough replicas have all writes so far to the server of a queue; returns how many have them.

    primaries: what `check_replicas` has returned before the first of them. done: what the write has done, for errors.
    Raises NotReplicated if that takes too long or fails, or there is another primary.
    """
    settings = connection.settings
    waiting = connection.having(timeout_ms=settings.timeout_ms + terms.timeout_ms)
    try:
        # WAIT counts from the last write of its own connection.
        _, replicas, info = waiting.pipeline(
            [
                ("SET", keys["replica_mark"], 1, "PX", _MARK_TTL_MS),
                ("WAIT", terms.replicas, terms.timeout_ms),
                ("INFO", "replication"),
            ]
        )
    except SparkBullError as error:
        raise NotReplicated(
            f"{done}, but Redis at {settings.where} did not say whether {terms.replicas} replicas have what was "
            f"written to queue {keys.queue}. Check what exists before you write again; jobs with a `jobId` are not "
            f"added twice. Cause: {error}",
            queue=keys.queue,
            replicas=0,
        ) from error
    if str(info["master_replid"]) not in primaries:
        raise NotReplicated(
            f"another server has become the primary at {settings.where} during a write to queue {keys.queue}, and may "
            "lack that write. Check what exists before you write again; jobs with a `jobId` are not added twice",
            queue=keys.queue,
            replicas=0,
        )
    if replicas < terms.replicas:
        raise NotReplicated(
            f"expected {terms.replicas} replicas of Redis at {settings.where} to have what was written to "
            f"queue {keys.queue} within {terms.timeout_ms} ms, got {replicas}. {done[0].upper()}{done[1:]}: don't "
            "write again; check the replicas, or raise `replicaTimeoutMs`",
            queue=keys.queue,
            replicas=replicas,
        )
    return int(replicas)


def record_replicas(connection: Connection, keys: QueueKeys, write_id: str, replicas: int) -> None:
    """Notes in the record of a write how many replicas have it."""
    connection.call("HSET", keys.write(write_id), "replicas", replicas)
