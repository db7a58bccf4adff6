"""One write: what is settled on the driver before any task starts, and what tasks tell the driver afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from spark_bull.dialects.codec import check_defaults, defaults_of
from spark_bull.dialects.registry import DIALECTS
from spark_bull.errors import DialectError
from spark_bull.options import WRITE, Options, parse_options
from spark_bull.queue.handle import QueueHandle, open_handle
from spark_bull.queue.writes import Identity, is_written, recover
from spark_bull.spark.dispatch.rows import RowPlan, plan_rows
from spark_bull.store.connection import Connection
from spark_bull.store.settings import resolved, settings_of


@dataclass(frozen=True)
class Part:
    """One task's share of one queue. `stage` is empty when the jobs were added at once."""

    queue: str
    dialect: str
    stage: str = ""
    chunks: int = 0
    rows: int = 0
    added: int = 0
    duplicates: int = 0


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task tells the driver: what it staged or added, by queue, and when it started (ms, Redis' clock)."""

    write_id: str
    parts: tuple[Part, ...]
    started_on: int
    identity: Identity | None = None


@dataclass(frozen=True)
class Plan:
    """Everything about one write that its tasks need; made on the driver, picklable.

    `replayed`: a write of this identity is done. `replaces`: the queue's old jobs go, mode("overwrite").
    """

    options: Options
    rows: RowPlan
    write_id: str
    started_on: int
    handle: QueueHandle | None = None
    replayed: bool = False
    replaces: bool = False

    @property
    def exactly_once(self) -> bool:
        return bool(self.options["delivery"] == "exactly-once")

    def handle_of(self, queue: str, dialect: str | None = None) -> QueueHandle:
        """The handle of a queue that a row or a message names."""
        if self.handle is not None and self.handle.keys.queue == queue:
            return self.handle
        handle = open_handle(self.options, queue)
        if dialect is not None and handle.dialect.name != dialect:
            raise DialectError(
                f"queue {queue} spoke {dialect} when rows were written and now speaks "
                f"{handle.dialect.name}: give the option `protocol`"
            )
        return handle


def plan_write(raw: Mapping[str, str], schema: StructType) -> Plan:
    """Checks options, columns and Redis; finishes what an earlier write left open.

    Raises OptionError, DialectError or ConnectionLost before any task has started.
    """
    options = resolved(parse_options(raw, WRITE))
    rows = plan_rows(schema, options)
    connection = Connection(settings_of(options))
    queue = options["queue"]
    connection.check(options["prefix"], [queue or ""], write=True)
    started_on, write_id = connection.now_ms(), uuid4().hex
    if queue is None:
        if options["protocol"] in DIALECTS:
            rows.check_dialect(DIALECTS[options["protocol"]])
        return Plan(options, rows, write_id, started_on)
    handle = open_handle(options, queue)
    rows.check_dialect(handle.dialect)
    check_defaults(handle.dialect, defaults_of(options))
    recover(handle)
    identity = identity_of(options)
    replayed = identity is not None and is_written(handle, identity)
    return Plan(options, rows, write_id, started_on, handle, replayed)


def identity_of(options: Options) -> Identity | None:
    """The identity that a batch write's options give it, if any."""
    if options["txnAppId"] is None:
        return None
    return Identity(options["txnAppId"], options["txnVersion"])
