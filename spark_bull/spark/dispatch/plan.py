"""The plan of a write, created on the driver before any task starts, and the messages of its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from spark_bull.dialects.codec import check_defaults, defaults_of
from spark_bull.dialects.priorities import NAME as PRIORITY
from spark_bull.dialects.priorities import QueuePriority
from spark_bull.dialects.registry import DIALECTS
from spark_bull.dialects.terms import AT_LEAST_ONCE, DELIVERY
from spark_bull.errors import DialectError, OptionError
from spark_bull.option_table import WRITE
from spark_bull.options import Options, parse_options
from spark_bull.queue.handle import QueueHandle, open_handle
from spark_bull.queue.intake import check_intake
from spark_bull.queue.replication import check_replicas, replica_terms_of
from spark_bull.queue.writes import Identity, is_written, recover
from spark_bull.spark.dispatch.batch_callback import OnFinish, on_finish_of
from spark_bull.spark.dispatch.children_column import ChildrenPlan, plan_children
from spark_bull.spark.dispatch.priority_queues import are_named
from spark_bull.spark.dispatch.rows import CHILDREN, RowPlan, plan_rows
from spark_bull.spark.dispatch.sequence import check_sequence, check_sequence_queue
from spark_bull.store.connection import Connection
from spark_bull.store.settings import resolved, settings_of


@dataclass(frozen=True)
class TaskPart:
    """The rows that a task wrote to one queue. `stage` is empty if they were added directly. `flow_queues`: the other
    queues of their children, or those that they move jobs to.
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
    flow_queues: tuple[str, ...] = ()


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The commit message of a task: what it wrote to each queue, and when it started (time of Redis, ms since 1970)."""

    write_id: str
    parts: tuple[TaskPart, ...]
    started_on: int
    identity: Identity | None = None


@dataclass(frozen=True)
class WritePlan:
    """The plan of a write, created on the driver for its tasks. Picklable.

    on_finish: the job that runs when all jobs of the write have ended. replayed: whether a write with this identity was
    committed before. replaces: whether the write replaces the queue, mode("overwrite"). children: how to read the
    column of children; None: rows are no flows. primary: with `replicas`, the replication id of Redis before the write.
    """

    options: Options
    rows: RowPlan
    write_id: str
    started_on: int
    handle: QueueHandle | None = None
    on_finish: OnFinish | None = None
    replayed: bool = False
    replaces: bool = False
    children: ChildrenPlan | None = None
    primary: str | None = None

    @property
    def exactly_once(self) -> bool:
        return bool(self.options[DELIVERY] != AT_LEAST_ONCE)

    def handle_of(self, queue: str, dialect: str | None = None) -> QueueHandle:
        """Opens a queue that a row or a message names. Raises DialectError if its dialect is not `dialect`."""
        if self.handle is not None and self.handle.keys.queue == queue:
            return self.handle
        handle = open_handle(self.options, queue)
        if dialect is not None and handle.dialect.name != dialect:
            raise DialectError(
                f"expected queue {queue} to have dialect {dialect}, as when its rows were written, got "
                f"{handle.dialect.name}: set the option `protocol`"
            )
        return handle


def plan_write(raw: Mapping[str, str], schema: StructType) -> WritePlan:
    """Checks the options, columns and Redis, and recovers interrupted writes.

    Raises OptionError, DialectError or ConnectionLost before any task starts.
    """
    options = resolved(parse_options(raw, WRITE))
    rows = plan_rows(schema, options)
    check_sequence(options, rows)
    rows.check_delivery(options)
    connection = Connection(settings_of(options))
    queue = options["queue"]
    connection.check(options["prefix"], [queue or ""], write=True)
    terms = replica_terms_of(options)
    primary = check_replicas(connection, terms) if terms else None
    on_finish = on_finish_of(options)
    if on_finish is not None:
        on_finish.check_rows(rows, options)
    if CHILDREN in rows.columns and options["maxLength"] is not None:
        raise OptionError("expected no `maxLength` with a column `children`, got both: leave the option out")
    children = plan_children(schema.fields[rows.columns[CHILDREN]]) if CHILDREN in rows.columns else None
    started_on, write_id = connection.now_ms(), uuid4().hex
    if queue is None:
        if options["protocol"] in DIALECTS:
            rows.check_dialect(DIALECTS[options["protocol"]])
        return WritePlan(options, rows, write_id, started_on, on_finish=on_finish, children=children, primary=primary)
    handle = open_handle(options, queue)
    rows.check_dialect(handle.dialect)
    if rows.sequence_by:
        check_sequence_queue(handle.dialect)
    if on_finish is not None:
        on_finish.check_queue(handle)
    defaults = defaults_of(options)
    if handle.dialect.has_priority_queues and are_named({}, defaults):
        defaults[PRIORITY] = QueuePriority(defaults[PRIORITY])
    check_defaults(handle.dialect, defaults)
    recover(handle)
    identity = identity_of(options)
    replayed = identity is not None and is_written(handle, identity)
    if not replayed:
        check_intake(handle)
    return WritePlan(
        options, rows, write_id, started_on, handle, on_finish, replayed, children=children, primary=primary
    )


def identity_of(options: Options) -> Identity | None:
    """Returns the identity of a batch write by its options `txnAppId` and `txnVersion`; None if not set."""
    if options["txnAppId"] is None:
        return None
    return Identity(options["txnAppId"], options["txnVersion"])
