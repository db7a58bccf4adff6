"""The outcomes in a DataFrame with the columns of mode=settle, collected on the driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame

from spark_bull.core.errors import OptionError
from spark_bull.core.model.jobs import RawJson
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import SettleOptions
from spark_bull.run.job.endings import Stated
from spark_bull.run.job.running_job import RunningJob
from spark_bull.spark.work.settle.plan import OUTCOMES, SETTLED_COLUMNS, THEN, plan_columns
from spark_bull.spark.work.settle.rows import Row, by_queue_and_reader, completed_columns, read_follow_ups

_REQUIRED: Final = frozenset({"id", "token"})


def outcomes_of(jobs: Sequence[RunningJob], result: object) -> dict[str, Stated | RawJson]:
    """Runs the query of a result, and returns the value or error of each of these jobs that it has, by job id.

    The jobs, of one queue, get their follow-ups. Rows of other jobs are left out. Raises OptionError for a result
    without the columns of mode=settle.
    """
    frame = checked_frame(result)
    frame = frame.select(*[name for name in SETTLED_COLUMNS if name in frame.columns])
    handle = jobs[0].handle
    plan = plan_columns(parse_options({"queue": handle.keys.queue}, SettleOptions), frame.schema)
    by_claim, found = {(job.id, job.token): job for job in jobs}, dict[str, Stated | RawJson]()
    for batch in frame.toArrow().combine_chunks().to_batches():
        completed = completed_columns(plan, batch)
        if completed is not None:
            outcomes = zip(*completed, strict=True)
            found.update((job_id, RawJson(value)) for job_id, token, value in outcomes if (job_id, token) in by_claim)
            continue
        for rows in by_queue_and_reader(plan, batch).values():
            # Of several rows for a job, the last one counts, as in the sink.
            known = list({(row.id, row.token): row for row in rows if (row.id, row.token) in by_claim}.values())
            errors: dict[str, str] = {}
            if plan.follow_ups is not None:
                ended = [row for row in known if row.postponed is None]
                then = batch.column(plan.columns[THEN]).take([row.position for row in ended])
                follow_ups = read_follow_ups(plan.follow_ups, handle, [row.id for row in ended], then)
                errors = follow_ups.errors
                for row in ended:
                    by_claim[row.id, row.token].follow(follow_ups.valid.get(row.id, ()))
            for row in known:
                found[row.id] = _outcome(row, errors.get(row.id))
    return found


def checked_frame(result: object) -> DataFrame:
    """Returns what a transformation has returned. Raises OptionError if it settles no job."""
    if not isinstance(result, DataFrame):
        raise OptionError(f"expected the transformation to return a DataFrame, got: {type(result).__name__}")
    if not set(result.columns) >= _REQUIRED or not set(OUTCOMES) & set(result.columns):
        raise OptionError(
            "expected the transformation to return the columns id, token and returnvalue or error, got: "
            + ", ".join(result.columns)
        )
    return result


def _outcome(row: Row, invalid: str | None) -> Stated | RawJson:
    if row.postponed is not None:
        return Stated(row.postponed.kind, "", ms=row.postponed.ms)
    error = "; ".join(filter(None, (row.error, invalid)))
    if row.error is None and invalid is None:
        return RawJson(row.value)
    return Stated("failed for good" if row.unrecoverable else "failed", error, stack=row.stack)
