"""Plans a write that adds jobs: checks everything on the driver, before any task starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql.types import StructType

from spark_bull.core.dialects.encode.codec import check_defaults, defaults_of
from spark_bull.core.dialects.priorities import PRIORITY, QueuePriority
from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.errors import OptionError
from spark_bull.core.keys import QueueKeys
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import WRITE
from spark_bull.core.queue.dispatch.writes import recover
from spark_bull.core.queue.handle.handle import open_handle
from spark_bull.core.queue.shards.layout import ShardLayout, of_dialect
from spark_bull.core.queue.shards.reshard import settled_layout
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.settings import resolved, settings_of
from spark_bull.core.store.together import all_together
from spark_bull.spark.dispatch.batch_callback import on_finish_of
from spark_bull.spark.dispatch.children_column import ON_FAILURE
from spark_bull.spark.dispatch.depends_on import check_depends_on
from spark_bull.spark.dispatch.jobs_column import plan_jobs
from spark_bull.spark.dispatch.priority_queues import are_named
from spark_bull.spark.dispatch.rows import CHILDREN, plan_rows
from spark_bull.spark.dispatch.sequence import check_sequence
from spark_bull.spark.dispatch.shards import check_shards
from spark_bull.spark.dispatch.write_plan import WritePlan
from spark_bull.spark.staging.plan import check_write, primaries_of


def plan_write(raw: Mapping[str, str], schema: StructType, *, is_stream: bool = False) -> WritePlan:
    """Checks the options, columns and Redis, and recovers interrupted writes.

    Raises OptionError, DialectError or ConnectionLost before any task starts.
    """
    options = resolved(parse_options(raw, WRITE))
    rows = plan_rows(schema, options)
    check_sequence(options, rows)
    check_shards(options, rows)
    check_depends_on(options, rows)
    rows.check_delivery(options)
    started_on = check_write(options, is_stream=is_stream)
    on_finish = on_finish_of(options)
    if on_finish is not None:
        on_finish.check_rows(rows, options)
    if CHILDREN in rows.columns and options["maxLength"] is not None:
        raise OptionError("expected no `maxLength` with a column `children`, got both: leave the option out")
    column = schema.fields[rows.columns[CHILDREN]] if CHILDREN in rows.columns else None
    plan = WritePlan(
        options=options,
        is_stream=is_stream,
        started_on=started_on,
        rows=rows,
        on_finish=on_finish,
        children=None if column is None else plan_jobs(column, ON_FAILURE, CHILDREN),
        primaries=primaries_of(options),
    )
    if options["queue"] is None:
        if options["protocol"] in DIALECTS:
            rows.check_dialect(DIALECTS[options["protocol"]])
        return plan
    if options["shards"] is None:
        handle = open_handle(options, options["queue"])
    else:
        layout, handle = settled_layout(options, options["queue"])
        plan = replace(plan, options=of_dialect(options, layout), layout=layout)
        _recover_shards(plan, layout)
    rows.check_dialect(handle.dialect)
    if rows.sequence_by:
        handle.dialect.require("flows", "`sequenceBy`")
    if on_finish is not None:
        on_finish.check_queue(handle)
    defaults = defaults_of(options)
    if handle.dialect.has("priority-queues") and are_named({}, defaults):
        defaults[PRIORITY] = QueuePriority(defaults[PRIORITY])
    check_defaults(handle.dialect, defaults)
    return plan.for_queue(handle)


def _recover_shards(plan: WritePlan, layout: ShardLayout) -> None:
    """Finishes interrupted writes to all shards: a write that is repeated does not reach those of its earlier run."""
    keys = [QueueKeys(name, plan.options["prefix"]) for name in layout.all_names]
    unfinished = Connection(settings_of(plan.options)).pipeline([("EXISTS", one["open_writes"]) for one in keys])
    names = [one.queue for one, found in zip(keys, unfinished, strict=True) if found]
    all_together([*plan.handles_of(names).values()], recover)
