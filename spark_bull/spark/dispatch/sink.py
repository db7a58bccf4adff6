"""The sink that adds rows as jobs, exactly once or at least once.

With `delivery=at-least-once`, tasks add each chunk directly; nothing of it is staged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructType

from spark_bull.core.dialects.terms import PRIORITY
from spark_bull.core.errors import OptionError, SparkBullError
from spark_bull.core.keys import priority_queue
from spark_bull.core.late import late
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import WriteOptions
from spark_bull.core.queue.dispatch.write_records import QueuePlan
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.spark.dispatch.feature import WriteFeature, WriteRequest
from spark_bull.spark.dispatch.features.flows import Children, Parents
from spark_bull.spark.dispatch.features.limits import KeptIds, MaxLength, Sealing
from spark_bull.spark.dispatch.features.on_finish import OnFinish
from spark_bull.spark.dispatch.features.order import DependsOn, Sequences
from spark_bull.spark.dispatch.features.routing import PriorityQueues, Shards
from spark_bull.spark.dispatch.rows import plan_rows
from spark_bull.spark.dispatch.task import WritePlan, write_task
from spark_bull.spark.staging.commit import commit_staged, discard_stages, reporting
from spark_bull.spark.staging.plan import CommitMessage, check_write, primaries_of
from spark_bull.spark.staging.sink import Sink

if TYPE_CHECKING:
    from spark_bull.core.queue.manage import manage
else:
    (manage,) = late("manage", of="spark_bull.core.queue.manage")

log = logging.getLogger("spark_bull")


def commit_write(plan: WritePlan, written: list[CommitMessage]) -> None:
    """Registers the staged chunks, then adds their jobs, partition by partition."""
    for feature in plan.features:
        written = feature.committing(plan, written)

    def finish_earlier(plans: Sequence[QueuePlan]) -> None:
        for feature in plan.features:
            for record in feature.repeated(plan, plans, plan.identity_in(written)):
                _report(record)

    commit_staged(plan, written, _report, repeated=finish_earlier)


_report: Final = reporting(
    "%(added)d jobs added to queue %(queue)s, %(duplicates)d duplicates, %(deduplicated)d deduplicated",
    rejected="%(rejected)d jobs were not added to queue %(queue)s: their parent has gone or depends on them, or they "
    "have another one by now",
    dropped="%(dropped)d jobs were dropped, as queue %(queue)s was full",
)


def abort_write(plan: WritePlan, written: list[CommitMessage]) -> None:
    """Discards the staged chunks of a failed write, and what its features have left."""
    if not discard_stages(plan, written):
        return
    for feature in plan.features:
        try:
            feature.aborted(plan, written)
        except SparkBullError as error:
            log.warning("could not undo all of a failed write: %s", error)


#: The features of a write, in the order in which they change its jobs: keys of sequences before jobs are held for
#: others, sealing last. The shards are read when all else is right.
_FEATURES: Final[Sequence[type[WriteFeature]]] = (
    PriorityQueues,
    Children,
    OnFinish,
    Parents,
    Sequences,
    DependsOn,
    KeptIds,
    MaxLength,
    Shards,
    Sealing,
)


def write_sink(
    raw: Mapping[str, str], schema: StructType, overwrite: bool, *, is_stream: bool
) -> Sink[WritePlan, CommitMessage]:
    """Plans a write that adds jobs: checks everything on the driver, and recovers interrupted writes.

    Raises OptionError, DialectError, IntakeClosed, NotReplicated or ConnectionLost before any task starts.
    """
    if overwrite and is_stream:
        raise OptionError('outputMode("complete") would replace the queue with every batch: use outputMode("append")')
    options = parse_options(raw, WriteOptions)
    rows = plan_rows(schema, options)
    rows.check_delivery(options)
    started_on = check_write(options, is_stream=is_stream)
    request = WriteRequest(options, schema, rows, overwrite)
    features = tuple(one for kind in _FEATURES if (one := kind.planned(request)) is not None)
    plan = WritePlan(
        options=options,
        rows=rows,
        is_stream=is_stream,
        started_on=started_on,
        features=features,
        shards=next((one for one in features if isinstance(one, Shards)), None),
        primaries=primaries_of(options),
    ).opened()
    return Sink(_replacing(plan) if overwrite else plan, write_task, commit_write, abort_write)


def _replacing(plan: WritePlan) -> WritePlan:
    """The plan of a write that replaces the queue. Raises the errors of `_replaceable_queues`."""
    queues = _replaceable_queues(plan)
    if not plan.replayed and not plan.exactly_once:
        # Tasks add jobs directly, so the old ones must be removed before.
        for queue in queues:
            manage.obliterate(queue, force=True)
    return replace(plan, replaces=True)


def _replaceable_queues(plan: WritePlan) -> list[QueueHandle]:
    """Returns the queue that mode("overwrite") replaces, or its shards. Raises OptionError, or QueueBusy if one has
    active jobs.
    """
    if not plan.options.confirm_obliterate:
        raise OptionError(
            'mode("overwrite") deletes the queue with all its jobs: expected the option '
            '`confirmObliterate` to be true, got false; use mode("append") to add jobs'
        )
    if plan.handle is None:
        raise OptionError('mode("overwrite") expects the option `queue`, got a column `queue`')
    if plan.handle.dialect.has("priority-queues") and (
        PRIORITY in plan.rows.columns or plan.options.priority is not None
    ):
        raise OptionError(
            f'mode("overwrite") replaces one queue, but each `{PRIORITY}` of {plan.handle.dialect.name} is a queue: '
            f"obliterate {priority_queue(plan.handle.keys.queue, 'high')} and the others, then write with "
            'mode("append")'
        )
    queues = list(plan.handles_of(plan.shards.layout.all_names).values()) if plan.shards else [plan.handle]
    for queue in [] if plan.replayed else queues:
        manage.check_obliterate(queue)
    return queues
