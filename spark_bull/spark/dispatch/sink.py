"""The sink that adds rows as jobs, exactly once or at least once.

With `delivery=at-least-once`, tasks add each chunk directly; nothing of it is staged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql.types import StructType

from spark_bull.core.dialects.priorities import PRIORITY
from spark_bull.core.errors import OptionError
from spark_bull.core.keys import priority_queue
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.manage.manage import check_obliterate, obliterate
from spark_bull.spark.dispatch.commit import abort_write, commit_write
from spark_bull.spark.dispatch.plan import plan_write
from spark_bull.spark.dispatch.task import write_task
from spark_bull.spark.dispatch.write_plan import WritePlan
from spark_bull.spark.staging.messages import CommitMessage
from spark_bull.spark.staging.sink import Sink


def write_sink(
    raw: Mapping[str, str], schema: StructType, overwrite: bool, *, is_stream: bool
) -> Sink[WritePlan, CommitMessage]:
    """Plans a write that adds jobs. Raises the errors of `plan_write`."""
    if overwrite and is_stream:
        raise OptionError('outputMode("complete") would replace the queue with every batch: use outputMode("append")')
    plan = plan_write(raw, schema, is_stream=is_stream)
    if overwrite:
        queues = _replaceable_queues(plan)
        if not plan.replayed and not plan.exactly_once:
            # Tasks add jobs directly, so the old ones must be removed before.
            for queue in queues:
                obliterate(queue, force=True)
        plan = replace(plan, replaces=True)
    return Sink(plan, write_task, commit_write, abort_write)


def _replaceable_queues(plan: WritePlan) -> list[QueueHandle]:
    """Returns the queue that mode("overwrite") replaces, or its shards. Raises OptionError, or QueueBusy if one has
    active jobs.
    """
    if not plan.options["confirmObliterate"]:
        raise OptionError(
            'mode("overwrite") deletes the queue with all its jobs: expected the option '
            '`confirmObliterate` to be true, got false; use mode("append") to add jobs'
        )
    if plan.handle is None:
        raise OptionError('mode("overwrite") expects the option `queue`, got a column `queue`')
    if plan.handle.dialect.has("priority-queues") and (
        PRIORITY in plan.rows.columns or plan.options[PRIORITY] is not None
    ):
        raise OptionError(
            f'mode("overwrite") replaces one queue, but each `{PRIORITY}` of {plan.handle.dialect.name} is a queue: '
            f"obliterate {priority_queue(plan.handle.keys.queue, 'high')} and the others, then write with "
            'mode("append")'
        )
    queues = list(plan.handles_of(plan.layout.all_names).values()) if plan.layout else [plan.handle]
    for queue in [] if plan.replayed else queues:
        check_obliterate(queue)
    return queues
