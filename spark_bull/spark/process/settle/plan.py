"""Checks a query with mode=settle on the driver, and says what its tasks need."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from pyspark.sql.types import StringType, StructType

from spark_bull.errors import OptionError
from spark_bull.options.parse import Options, parse_options
from spark_bull.options.table import SETTLE
from spark_bull.queue.core.handle import QueueHandle, open_handle
from spark_bull.spark.process.settle.columns import check_columns
from spark_bull.spark.process.settle.follow_up_column import THEN, FollowUpPlan, plan_follow_ups
from spark_bull.store.settings import resolved
from spark_bull.worker.claims.job_signal import retry_until_connected
from spark_bull.worker.job.job_options import keep_rule
from spark_bull.worker.job.outcome_policy import BackoffStrategy, OutcomePolicy

log = logging.getLogger("spark_bull")

T = TypeVar("T")


@dataclass(frozen=True)
class SettlePlan:
    """All that a settling task needs; made on the driver, picklable.

    strategy: for backoffs that aren't built in. patient: a Redis that is away is waited for; else the task fails.
    follow_ups: how to read the column `then`; None if it is absent.
    """

    options: Options
    names: tuple[str, ...]
    is_text: bool
    strategy: BackoffStrategy | None = None
    patient: bool = False
    follow_ups: FollowUpPlan | None = None

    @cached_property
    def policy(self) -> OutcomePolicy:
        """What holds for jobs that say nothing themselves."""
        keep_completed, keep_failed = (keep_rule(self.options[name]) for name in ("removeOnComplete", "removeOnFail"))
        return OutcomePolicy(keep_completed=keep_completed, keep_failed=keep_failed, strategy=self.strategy)

    def handles(self) -> dict[str, QueueHandle]:
        """The opened queue of the option `queue`; empty when rows have a column `queue`."""
        queue = self.options["queue"]
        return {} if queue is None else {queue: open_handle(self.options, queue)}

    def ask(self, ask: Callable[[], T]) -> T:
        """The result of a call to Redis."""
        return retry_until_connected(ask, _warn) if self.patient else ask()


def _warn(what: str, why: object) -> None:
    log.warning("a task that settles jobs %s (%s)", what, why)


def plan_settle(raw: Mapping[str, str], schema: StructType, strategy: BackoffStrategy | None = None) -> SettlePlan:
    """Checks options, columns and the connection, before any task starts. Raises OptionError or ConnectionLost."""
    options = resolved(parse_options(raw, SETTLE))
    names = check_columns(schema)
    if options["queue"] is None and "queue" not in names:
        raise OptionError("expected an option `queue`, or a column `queue`, got neither")
    value = names.get("returnvalue")
    is_text = value is not None and isinstance(value.dataType, StringType)
    follow_ups = plan_follow_ups(names[THEN]) if THEN in names else None
    plan = SettlePlan(options, tuple(names), is_text, strategy, follow_ups=follow_ups)
    for handle in plan.handles().values():
        handle.dialect.check_options(options)
        handle.connection.check(handle.keys.prefix, [handle.keys.queue], write=True)
    return plan
