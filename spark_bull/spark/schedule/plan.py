"""The plan of a write of schedules, created on the driver before any task starts, and the messages of its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pyspark.sql.types import StructType

from spark_bull.dialects.registry import DIALECTS
from spark_bull.errors import DialectError
from spark_bull.option_table import SCHEDULE
from spark_bull.options import Options, parse_options
from spark_bull.queue.handle import QueueHandle, open_handle
from spark_bull.queue.writes import is_written, recover
from spark_bull.spark.dispatch.plan import Written, identity_of
from spark_bull.spark.schedule.rows import ScheduleRows, plan_rows
from spark_bull.store.connection import Connection
from spark_bull.store.settings import resolved, settings_of


@dataclass(frozen=True)
class WrittenSchedules(Written):
    """The commit message of a task. ids: of the schedules, by queue. frequent: of those with very short intervals."""

    ids: Mapping[str, tuple[str, ...]] | None = None
    frequent: Mapping[str, tuple[str, ...]] | None = None


@dataclass(frozen=True)
class SchedulePlan:
    """Picklable.

    handle: the queue of the option `queue`. replayed: whether a write with this identity was committed.
    """

    options: Options
    rows: ScheduleRows
    write_id: str
    started_on: int
    handle: QueueHandle | None = None
    replayed: bool = False

    @property
    def defaults(self) -> dict[str, Any]:
        """The defaults of the jobs of all schedules."""
        return {name: self.options[name] for name in ("name", "opts") if self.options[name] is not None}

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


def plan_schedules(raw: Mapping[str, str], schema: StructType) -> SchedulePlan:
    """Checks the options, columns and Redis, and recovers interrupted writes.

    Raises OptionError, DialectError or ConnectionLost before any task starts.
    """
    options = resolved(parse_options(raw, SCHEDULE))
    rows = plan_rows(schema, options)
    connection, queue = Connection(settings_of(options)), options["queue"]
    connection.check(options["prefix"], [queue or ""], write=True)
    started_on, write_id = connection.now_ms(), uuid4().hex
    if queue is None:
        if options["protocol"] in DIALECTS:
            DIALECTS[options["protocol"]].check_schedules()
        return SchedulePlan(options, rows, write_id, started_on)
    handle = open_handle(options, queue)
    handle.dialect.check_schedules()
    recover(handle)
    identity = identity_of(options)
    replayed = identity is not None and is_written(handle, identity)
    return SchedulePlan(options, rows, write_id, started_on, handle, replayed)
