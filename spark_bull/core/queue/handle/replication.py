"""Waits until replicas of Redis have what was written, with the command WAIT.

What one connection waits for includes the writes of all others before it: replication is one stream. So the driver can
wait once for the writes of all tasks.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final, NamedTuple

from spark_bull.core.errors import NotReplicated, RedisUnavailable, SparkBullError
from spark_bull.core.keys import QueueKeys
from spark_bull.core.options.table import Replicated
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.errors import code_of

_MARK_TTL_MS: Final = 60_000
#: What a write of jobs has done.
JOBS_ADDED: Final = "the jobs were added"


class ReplicaTerms(NamedTuple):
    """How many replicas must have a write, and how long a writer waits for them, ms."""

    replicas: int
    timeout_ms: int


def replica_terms_of(options: Replicated) -> ReplicaTerms | None:
    """The terms that a writer's options set; None: none."""
    if options.replicas is None:
        return None
    return ReplicaTerms(options.replicas, options.replica_timeout_ms)


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
            f"written to queue {keys.queue}: don't write it again before you have checked what exists (jobs with a "
            f"`jobId` are not added twice). Cause: {error}",
            queue=keys.queue,
            replicas=0,
        ) from error
    if str(info["master_replid"]) not in primaries:
        raise NotReplicated(
            f"another server has become the primary at {settings.where} during a write to queue {keys.queue}, and may "
            "lack that write: check what exists before you write again (jobs with a `jobId` are not added twice)",
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
