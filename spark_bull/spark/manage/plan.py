"""The plan of a write that changes jobs, created on the driver before any task starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

from pyspark.sql.types import StructType

from spark_bull.dialects.changes import action_of
from spark_bull.errors import DialectError
from spark_bull.option_table import MANAGE
from spark_bull.options import Options, parse_options
from spark_bull.queue.handle import QueueHandle, open_handle
from spark_bull.queue.writes import is_written, recover
from spark_bull.spark.dispatch.plan import identity_of
from spark_bull.spark.manage.result_file import check_path
from spark_bull.spark.manage.rows import ChangeRows, plan_rows
from spark_bull.store.connection import Connection
from spark_bull.store.settings import resolved, settings_of


@dataclass(frozen=True)
class ManagePlan:
    """Picklable.

    handle: the queue of the option `queue`. replayed: whether a write with this identity was committed.
    """

    options: Options
    rows: ChangeRows
    write_id: str
    started_on: int
    handle: QueueHandle | None = None
    replayed: bool = False

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


def plan_manage(raw: Mapping[str, str], schema: StructType) -> ManagePlan:
    """Checks the options, columns and Redis, and recovers interrupted writes.

    Raises OptionError, DialectError or ConnectionLost before any task starts.
    """
    options = resolved(parse_options(raw, MANAGE))
    rows = plan_rows(schema, options)
    connection, queue = Connection(settings_of(options)), options["queue"]
    connection.check(options["prefix"], [queue or ""], write=True)
    check_path(options["resultPath"])
    started_on, write_id = connection.now_ms(), uuid4().hex
    if queue is None:
        return ManagePlan(options, rows, write_id, started_on)
    handle = open_handle(options, queue)
    if options["action"] is not None:
        action_of(handle.dialect, options["action"])
    recover(handle)
    identity = identity_of(options)
    replayed = identity is not None and is_written(handle, identity)
    return ManagePlan(options, rows, write_id, started_on, handle, replayed)
