"""Checks the options and columns of mode=settle on the driver, and says what its tasks need."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

from pyspark.sql.types import ArrayType, BooleanType, DataType, StringType, StructType, TimestampType

from spark_bull.core.errors import OptionError
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import SettleOptions
from spark_bull.core.queue.handle.handle import QueueHandle, open_handle
from spark_bull.run.claims.waits import retry_until_connected
from spark_bull.run.job.job_options import keep_rule
from spark_bull.run.job.outcome_policy import BackoffStrategy, OutcomePolicy
from spark_bull.spark.dispatch.jobs_column import JobsColumn, plan_jobs
from spark_bull.spark.schemas import CLAIM_SCHEMA
from spark_bull.spark.staging.columns import MS, TEXT, ColumnRule, check_json_types, column, column_indexes

log = logging.getLogger("spark_bull")

T = TypeVar("T")

#: The column with jobs that are added in the step that settles the job of the row.
THEN: Final = "then"
#: The field of its STRUCTs that says when: success (default) or failure.
ON: Final = "on"
_COLUMNS: Final[Mapping[str, ColumnRule]] = {
    "id": column("STRING, as the claim gave it", StringType),
    "token": column("STRING, as the claim gave it", StringType),
    "returnvalue": column("of any type", DataType),
    "queue": TEXT,
    "error": TEXT,
    "stacktrace": TEXT,
    "unrecoverable": column("BOOLEAN", BooleanType),
    "delay": MS,
    "runAt": column("TIMESTAMP", TimestampType),
    "rateLimit": MS,
    "groupRateLimit": MS,
    "waitForChildren": column("BOOLEAN", BooleanType),
    THEN: column("ARRAY<STRUCT<data, …>>", ArrayType),
}
#: Columns that say when a job runs again without counting the attempt.
POSTPONING: Final = ("delay", "runAt", "rateLimit", "groupRateLimit", "waitForChildren")
#: Columns of which at least one is required.
OUTCOMES: Final = ("returnvalue", "error", *POSTPONING)
#: All columns that settling reads.
SETTLED_COLUMNS: Final = tuple(_COLUMNS)
#: Other columns of the claim, which are ignored.
_IGNORED: Final = frozenset(field.name.lower() for field in CLAIM_SCHEMA)


@dataclass(frozen=True)
class SettlePlan:
    """All that a settling task needs; made on the driver, picklable.

    columns: their indexes. is_text: whether `returnvalue` is STRING, which holds JSON. strategy: for backoffs that
    aren't built in. patient: a Redis that is away, or a queue that is damaged, is waited for; else the task fails.
    follow_ups: how to read the column `then`; None if it is absent.
    """

    options: SettleOptions
    columns: Mapping[str, int]
    is_text: bool
    strategy: BackoffStrategy | None = None
    patient: bool = False
    follow_ups: JobsColumn | None = None

    @cached_property
    def policy(self) -> OutcomePolicy:
        """What holds for jobs that say nothing themselves."""
        keep = keep_rule(self.options.remove_on_complete), keep_rule(self.options.remove_on_fail)
        return OutcomePolicy(*keep, strategy=self.strategy)

    def handles(self) -> dict[str, QueueHandle]:
        """The opened queue of the option `queue`; empty when rows have a column `queue`."""
        queue = self.options.queue
        return {} if queue is None else {queue: open_handle(self.options, queue)}

    def ask(self, ask: Callable[[], T]) -> T:
        """The result of a call to Redis."""
        return retry_until_connected(ask, _warn, until_repaired=True) if self.patient else ask()


def _warn(what: str, why: object) -> None:
    log.warning("a task that settles jobs %s (%s)", what, why)


def plan_settle(raw: Mapping[str, str], schema: StructType, strategy: BackoffStrategy | None = None) -> SettlePlan:
    """Checks options, columns and the connection, before any task starts. Raises OptionError or ConnectionLost."""
    plan = plan_columns(parse_options(raw, SettleOptions), schema, strategy)
    options = plan.options
    if options.queue is None and "queue" not in plan.columns:
        raise OptionError("expected an option `queue`, or a column `queue`, got neither")
    for handle in plan.handles().values():
        handle.dialect.check_options(options)
        handle.dialect.check_work(handle.keys.queue)
        handle.connection.check(handle.keys.prefix, [handle.keys.queue], write=True)
    return plan


def plan_columns(options: SettleOptions, schema: StructType, strategy: BackoffStrategy | None = None) -> SettlePlan:
    """Checks the columns only. Raises OptionError."""
    columns = _columns_of(schema)
    is_text = "returnvalue" in columns and isinstance(schema[columns["returnvalue"]].dataType, StringType)
    follow_ups = plan_jobs(schema[columns[THEN]], ON) if THEN in columns else None
    return SettlePlan(options, columns, is_text, strategy, follow_ups=follow_ups)


def _columns_of(schema: StructType) -> dict[str, int]:
    """The indexes of the columns. Raises OptionError."""
    columns = column_indexes(schema, _COLUMNS, ": put it into `returnvalue`, or drop it", _IGNORED)
    for name in ("id", "token"):
        if name not in columns:
            raise OptionError(f"expected a column `{name}` STRING with mode=settle, as the claim gave it")
    if not columns.keys() & set(OUTCOMES):
        raise OptionError("expected a column `returnvalue` or `error` with mode=settle, got neither")
    check_json_types(schema, [columns[name] for name in ("returnvalue",) if name in columns])
    return columns
