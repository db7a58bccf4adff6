"""Reads the rows of mode=settle, or of a DataFrame that a function returned: the outcome of each one for its job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

from spark_bull.core.errors import DialectError, OptionError
from spark_bull.core.model.outcomes import FollowUp
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import SettleOptions
from spark_bull.core.queue.dispatch.flows import check_bounds, encode_follow_ups
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.run.job.outcomes import Outcome, StatedOutcome
from spark_bull.run.job.running_job import RunningJob
from spark_bull.spark.dispatch.jobs_column import JobsColumn, jobs_in
from spark_bull.spark.json.json_text import is_json, ms_of, to_json
from spark_bull.spark.staging.columns import QUEUE
from spark_bull.spark.work.claim_batch import read_settle_token
from spark_bull.spark.work.settle.plan import ON, OUTCOMES, POSTPONING, SETTLED_COLUMNS, THEN, SettlePlan, plan_columns


class Row(NamedTuple):
    """The outcome of one job. `position`: its row in the slice. `token`: of the job's lock. `is_plain`: see
    SettleToken. `value` is JSON text.
    """

    position: int
    id: str
    token: str
    is_plain: bool
    value: str
    error: str | None
    stack: str | None
    unrecoverable: bool
    postponed: Outcome | None

    @property
    def waits_for_children(self) -> bool:
        return self.postponed is not None and self.postponed.kind == "waiting for children"


class Completed(NamedTuple):
    """The outcomes of jobs of one queue that have completed, by columns. `tokens`: of their locks."""

    queue: str
    reader: str
    ids: list[str]
    tokens: list[str]
    values: list[str]

    def rows(self) -> list[Row]:
        return [
            Row(position, job_id, token, True, value, None, None, False, None)
            for position, (job_id, token, value) in enumerate(zip(self.ids, self.tokens, self.values, strict=True))
        ]


def completed_columns(plan: SettlePlan, batch: pa.RecordBatch) -> tuple[list[str], list[str], list[str]] | None:
    """The columns `id` and `token`, and the values, of rows that complete a job each; None for other rows.

    Takes a fraction of the time that rows take one by one.
    """
    columns = {name: batch.column(index) for name, index in plan.columns.items()}
    exceptions = (columns[name] for name in ("error", *POSTPONING, THEN) if name in columns)
    required = [columns[name] for name in ("id", "token", QUEUE) if name in columns]
    if any(column.null_count < batch.num_rows for column in exceptions) or any(c.null_count for c in required):
        return None
    ids, values = columns["id"].to_pylist(), _values(plan, batch)
    if len(set(ids)) < len(ids) or (plan.is_text and not all(map(is_json, set(values)))):
        return None
    return ids, columns["token"].to_pylist(), values


def all_completed(plan: SettlePlan, batch: pa.RecordBatch) -> Completed | None:
    """The rows if each of them completes another job of one queue and one query, whose options say nothing of that."""
    found = completed_columns(plan, batch)
    if found is None:
        return None
    ids, texts, values = found
    given = plan.options.queue
    queues = {given} if given else set(batch.column(plan.columns[QUEUE]).to_pylist())
    tokens = {text: read_settle_token(text) for text in set(texts)}
    readers = {token.reader for token in tokens.values()}
    if not len(queues) == len(readers) == 1 or not all(token.is_plain for token in tokens.values()):
        return None
    (queue,), (reader,) = queues, readers
    return Completed(queue, reader, ids, [tokens[text].lock_token for text in texts], values)


def by_queue_and_reader(plan: SettlePlan, batch: pa.RecordBatch) -> dict[tuple[str, str], list[Row]]:
    """Reads rows, by the name of their queue and the query that has claimed their jobs. Raises OptionError."""
    columns = {name: batch.column(index) for name, index in plan.columns.items()}
    count = batch.num_rows

    def column(name: str, default: Any) -> Sequence[Any]:
        return columns[name].to_pylist() if name in columns else [default] * count

    queues = [plan.options.queue] * count if plan.options.queue else column("queue", None)
    ids, settle_tokens = column("id", None), column("token", None)
    if None in queues or None in ids or None in settle_tokens:
        raise OptionError("expected `id`, `token` and `queue` of every row with mode=settle, got NULL in one")
    tokens = {text: read_settle_token(text) for text in set(settle_tokens)}
    values = _values(plan, batch)
    errors = {text: _error_of(text) for text in set(values)} if plan.is_text else {}
    grouped: dict[tuple[str, str], list[Row]] = {}
    for position, (queue, job_id, settle_token, value, error, stack, unrecoverable, postponed) in enumerate(
        zip(
            queues,
            ids,
            settle_tokens,
            values,
            column("error", None),
            column("stacktrace", None),
            column("unrecoverable", None),
            _postponed(columns, count),
            strict=True,
        )
    ):
        token, reader, is_plain = tokens[settle_token]
        why = errors.get(value) if error is None else error
        row = Row(position, job_id, token, is_plain, value, why, stack, bool(unrecoverable), postponed)
        grouped.setdefault((queue, reader), []).append(row)
    return grouped


def _values(plan: SettlePlan, batch: pa.RecordBatch) -> list[str]:
    """The column `returnvalue` as JSON texts."""
    if "returnvalue" not in plan.columns:
        return ["null"] * batch.num_rows
    index = plan.columns["returnvalue"]
    array = batch.column(index)
    texts = array if plan.is_text else to_json(array, batch.schema.field(index), ignore_nulls=False)
    return ["null" if text is None else text for text in texts.to_pylist()]


def _error_of(value: str) -> str | None:
    """Why a `returnvalue` fails the attempt; None for JSON."""
    return None if is_json(value) else f"expected `returnvalue` to hold JSON, got: {value[:200]!r}"


def _postponed(columns: Mapping[str, pa.Array], count: int) -> list[Outcome | None]:
    """What the columns POSTPONING say of each row; None for jobs whose attempt counts."""
    given = {name: columns[name] for name in POSTPONING if name in columns and columns[name].null_count < count}
    if not given:
        return [None] * count
    if "runAt" in given:
        given["runAt"] = ms_of(given["runAt"])
    rows = zip(*(given[name].to_pylist() if name in given else [None] * count for name in POSTPONING), strict=True)
    return [_ending_of(*row) for row in rows]


def _ending_of(
    delay: int | None,
    run_at: int | None,
    rate_limit: int | None,
    group_rate_limit: int | None,
    waits_for_children: bool | None,
) -> Outcome | None:
    if waits_for_children:
        return Outcome("waiting for children")
    if rate_limit is not None:
        return Outcome("returned", rate_limit)
    if group_rate_limit is not None:
        return Outcome("rested", group_rate_limit)
    if run_at is not None:
        return Outcome("delayed until", run_at)
    return None if delay is None else Outcome("delayed by", max(0, delay))


def without_repeats(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Divides rows so that the claims of a job that was claimed several times are apart. One row of a claim counts."""
    left = list({(row.id, row.token): row for row in rows}.values())
    while left:
        first = {row.id: row for row in reversed(left)}
        yield [row for row in left if first[row.id] is row]
        left = [row for row in left if first[row.id] is not row]


@dataclass(frozen=True)
class FollowUps:
    """Follow-ups by the ids of the settled jobs, and why the follow-ups of other jobs are invalid."""

    valid: dict[str, list[FollowUp]]
    errors: dict[str, str]


def read_follow_ups(plan: JobsColumn, handle: QueueHandle, job_ids: Sequence[str], column: pa.Array) -> FollowUps:
    """Reads and checks the column `then` of these jobs, one row each. Invalid ones do not affect other rows."""
    try:
        return FollowUps(_follow_ups(plan, handle, job_ids, column), {})
    except (OptionError, DialectError) as error:
        if len(job_ids) == 1:
            return FollowUps({}, {job_ids[0]: f"column `{THEN}`: {error}"})
    parts = [read_follow_ups(plan, handle, [job_id], column.slice(row, 1)) for row, job_id in enumerate(job_ids)]
    return FollowUps(
        {job_id: jobs for part in parts for job_id, jobs in part.valid.items()},
        {job_id: error for part in parts for job_id, error in part.errors.items()},
    )


def _follow_ups(
    plan: JobsColumn, handle: QueueHandle, job_ids: Sequence[str], column: pa.Array
) -> dict[str, list[FollowUp]]:
    jobs, rows = jobs_in(column)
    if not rows:
        return {}
    plan.rows.check_dialect(handle.dialect)
    properties, others = plan.read(jobs, range(len(rows)))
    queues = properties.pop(QUEUE, [None] * len(rows))
    ons = (
        ["success" if on is None else on for on in others[ON].to_pylist()] if ON in others else ["success"] * len(rows)
    )
    by_job: dict[str, list[FollowUp]] = defaultdict(list)
    for one in encode_follow_ups(handle, properties, [job_ids[row] for row in rows], queues, ons):
        by_job[one.of].append(one)
    for follow_ups in by_job.values():
        check_bounds(follow_ups)
    return by_job


_REQUIRED: Final = frozenset({"id", "token"})


def outcomes_of(jobs: Sequence[RunningJob], result: object) -> dict[str, StatedOutcome | str]:
    """Runs the query of a result, and returns the JSON text or error of each of these jobs that it has, by job id.

    The jobs, of one queue, get their follow-ups. Rows of other jobs are left out. Raises OptionError for a result
    without the columns of mode=settle.
    """
    frame = checked_frame(result)
    frame = frame.select(*[name for name in SETTLED_COLUMNS if name in frame.columns])
    handle = jobs[0].handle
    plan = plan_columns(parse_options({"queue": handle.keys.queue}, SettleOptions), frame.schema)
    tokens, found = {job.claimed.id: job.token for job in jobs}, dict[str, StatedOutcome | str]()
    for batch in frame.toArrow().combine_chunks().to_batches():
        completed = completed_columns(plan, batch)
        if completed is not None:
            outcomes = zip(*completed, strict=True)
            found.update((job_id, value) for job_id, token, value in outcomes if tokens.get(job_id) == token)
            continue
        by_claim = {(job.id, job.token): job for job in jobs}
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


def _outcome(row: Row, invalid: str | None) -> StatedOutcome | str:
    if row.postponed is not None:
        return StatedOutcome(row.postponed.kind, "", ms=row.postponed.ms)
    error = "; ".join(filter(None, (row.error, invalid)))
    if row.error is None and invalid is None:
        return row.value
    return StatedOutcome("failed for good" if row.unrecoverable else "failed", error, stack=row.stack)
