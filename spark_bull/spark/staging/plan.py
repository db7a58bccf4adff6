"""The plan of a write, created on the driver before any task starts, and the messages of its tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar
from uuid import uuid4

from pyspark.sql.datasource import WriterCommitMessage

from spark_bull.core.dialects.base import Dialect
from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.errors import DialectError, OptionError
from spark_bull.core.keys import shard
from spark_bull.core.options.parts import Staged
from spark_bull.core.queue.dispatch.roll_forward import recover
from spark_bull.core.queue.dispatch.write_records import Fields, Identity, QueuePlan, StagedPart, is_written
from spark_bull.core.queue.handle.admission import check_intake, check_replicas, replica_terms_of
from spark_bull.core.queue.handle.handle import QueueHandle, open_handle, opening
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.round_trips import run_all


@dataclass(kw_only=True)
class TaskPart(StagedPart):
    """The rows that a task has written to one queue. `stage` is empty if they are added directly. `flow_queues`: the
    other queues that have children of these jobs, or that jobs are moved to. `graph`: the ids of the jobs, each with
    those that it depends on. `schedulers`: the ids of the rows' job
    schedulers; `frequent`: the ids of the ones with very short intervals.
    """

    queue: str
    dialect: str
    stage: str = ""
    chunks: int = 0
    rows: int = 0
    added: int = 0
    duplicates: int = 0
    deduplicated: int = 0
    rejected: int = 0
    dropped: int = 0
    flow_queues: set[str] = field(default_factory=set)
    graph: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    schedulers: tuple[str, ...] = ()
    frequent: tuple[str, ...] = ()


@dataclass(frozen=True)
class CommitMessage(WriterCommitMessage):
    """The commit message of a task: what it wrote to each queue, and when it started (time of Redis, ms since 1970)."""

    write_id: str
    parts: tuple[TaskPart, ...]
    started_on: int
    identity: Identity | None = None


R = TypeVar("R")
Plan = TypeVar("Plan", bound="StagedPlan[Any]")


def check_write(options: Staged, *, is_stream: bool) -> int:
    """Returns the time of Redis, ms since 1970.

    Raises OptionError for options of a stream that give it an identity of its own, and if Redis can't be written to.
    """
    if is_stream and options.txn_app_id is not None:
        raise OptionError("`txnAppId` is for batch writes: a stream is identified by its checkpoint; leave it out")
    connection = Connection(options.redis)
    queue = options.queue
    if queue is not None and options.value("shards") is not None:
        queue = shard(queue, 0)
    connection.check(options.prefix, [] if queue is None else [queue], write=True)
    return connection.now_ms()


def primaries_of(options: Staged) -> frozenset[str]:
    """With `replicas`, the replication ids of Redis. Raises NotReplicated if a primary has too few replicas."""
    terms = replica_terms_of(options)
    return check_replicas(Connection(options.redis), terms, options.queue or "") if terms else frozenset()


@dataclass(frozen=True, kw_only=True)
class StagedPlan(Generic[R]):
    """Picklable.

    rows: how to read the rows. started_on: time of Redis, ms since 1970. handle: the queue of the option `queue`, None
    if rows name their queues. replayed: whether a write with this identity was committed before. primaries: with
    `replicas`, the replication ids of Redis before the write.
    """

    #: Whether it adds jobs or job schedulers.
    adds: ClassVar[bool] = True

    options: Staged
    rows: R
    is_stream: bool = False
    write_id: str = field(default_factory=lambda: uuid4().hex)
    started_on: int
    handle: QueueHandle | None = None
    replayed: bool = False
    primaries: frozenset[str] = frozenset()

    @classmethod
    def planned(cls: type[Plan], options: Staged, rows: R, *, is_stream: bool) -> Plan:
        """Checks Redis and the queue of the option `queue`, and recovers its interrupted writes.

        Raises OptionError, DialectError, IntakeClosed, NotReplicated or ConnectionLost before any task starts.
        """
        started_on, primaries = check_write(options, is_stream=is_stream), primaries_of(options)
        plan = cls(options=options, rows=rows, is_stream=is_stream, started_on=started_on, primaries=primaries)
        return plan.opened()

    def opened(self: Plan) -> Plan:
        """The plan with the queue of the option `queue`, if there is one."""
        queue, protocol = self.options.queue, self.options.protocol
        if queue is not None:
            return self.for_queue(open_handle(self.options, queue))
        if protocol in DIALECTS:
            self.check_dialect(DIALECTS[protocol])
        return self

    def for_queue(self: Plan, handle: QueueHandle) -> Plan:
        """The plan of a write to one queue, whose interrupted writes are recovered.

        Raises IntakeClosed, DialectError or OptionError if the queue accepts no jobs, and the write adds some.
        """
        self.check_dialect(handle.dialect)
        self.check_queue(handle)
        recover(handle)
        replayed = self.has_written(handle, self.identity)
        if self.adds and not replayed:
            check_intake(handle)
        return replace(self, handle=handle, replayed=replayed)

    def check_dialect(self, dialect: Dialect) -> None:
        """Raises DialectError or OptionError for a dialect whose queues the write can't be for."""

    def check_queue(self, handle: QueueHandle) -> None:
        """Raises DialectError or OptionError for a queue that the write can't be for."""
        if self.adds:
            handle.dialect.check_work(handle.keys.queue)

    @property
    def exactly_once(self) -> bool:
        """Whether nothing is written before the commit."""
        return True

    @property
    def identity(self) -> Identity | None:
        """The identity of a batch by `txnAppId` and `txnVersion`; None if not set. Only tasks know a stream's."""
        app_id, version = self.options.txn_app_id, self.options.txn_version
        return None if app_id is None or version is None else Identity(app_id, version)

    def identity_in(self, written: Sequence[CommitMessage]) -> Identity | None:
        """The identity of a write with these messages."""
        return written[0].identity if written else self.identity

    def write_id_in(self, written: Sequence[CommitMessage]) -> str:
        """The id in the tasks: Spark plans each batch of a stream twice, for its tasks and for its commit."""
        return written[0].write_id if written else self.write_id

    def has_nothing(self, written: Sequence[CommitMessage]) -> bool:
        """Whether the tasks of a micro-batch had nothing to send: it has no rows, or was committed before."""
        return self.is_stream and not any(message.parts for message in written)

    def has_written(self, handle: QueueHandle, identity: Identity | None) -> bool:
        """Whether an earlier write with this identity was committed to a queue."""
        return identity is not None and is_written(handle, identity)

    def handle_of(self, queue: str) -> QueueHandle:
        """Opens a queue that a row or a message names."""
        return self.handles_of([queue])[queue]

    def handles_of(self, queues: Iterable[str]) -> dict[str, QueueHandle]:
        """Opens many queues in shared round trips. Raises OptionError for one without a hash tag in a cluster."""
        own, connection = self.handle, Connection(self.options.redis)
        others = [queue for queue in queues if own is None or queue != own.keys.queue]
        connection.check_tags(self.options.prefix, others)
        opened = run_all(connection, [opening(self.options, queue) for queue in others])
        for handle in opened:
            self.check_queue(handle)
        return dict(zip(others, opened, strict=True)) | ({own.keys.queue: own} if own is not None else {})

    @property
    def planned_queues(self) -> list[str]:
        """The queues that are part of the write also without rows."""
        return [] if self.handle is None else [self.handle.keys.queue]

    def idle_plans(self, written: Sequence[CommitMessage]) -> list[QueuePlan]:
        """The parts of a write without rows, as it was committed before."""
        handles = self.handles_of(self.idle_queues) if written and self.handle is not None else {}
        return [QueuePlan(handle, [], {}) for handle in handles.values()]

    @property
    def idle_queues(self) -> list[str]:
        """The queues that a write without rows would have been for."""
        return self.planned_queues

    def common_fields(self, written: Sequence[CommitMessage], queues: Sequence[str]) -> Fields:
        """The fields of the record of the write in all of its queues."""
        return {}

    def fields(self, handle: QueueHandle, parts: Sequence[TaskPart]) -> Fields:
        """Further fields of the record of the write of these parts to a queue."""
        raise NotImplementedError

    def queue_plans(self, written: Sequence[CommitMessage]) -> list[QueuePlan]:
        """The parts of the write for all queues; for `planned_queues` also without rows.

        Raises DialectError if a queue has another dialect than its rows.
        """
        by_queue: dict[str, list[TaskPart]] = defaultdict(list, {queue: [] for queue in self.planned_queues})
        for message in written:
            for part in message.parts:
                by_queue[part.queue].append(part)
        handles = self.handles_of(by_queue)
        for queue, parts in by_queue.items():
            dialect = handles[queue].dialect.name
            if parts and dialect != parts[0].dialect:
                raise DialectError(
                    f"expected queue {queue} to have dialect {parts[0].dialect}, as when its rows were written, got "
                    f"{dialect}: set the option `protocol`"
                )
        since = min([self.started_on, *(message.started_on for message in written)])
        common = {"startedOn": since, **self.common_fields(written, [*by_queue])}
        return [
            QueuePlan(
                handles[queue],
                [part for part in parts if part.stage],
                {**common, **self.fields(handles[queue], parts)},
            )
            for queue, parts in by_queue.items()
        ]
