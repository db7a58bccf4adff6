"""The settling sink, and how its rows are settled."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Final, Literal, NamedTuple, TypeVar
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, BooleanType, DataType, IntegralType, StringType, StructType, TimestampType

from spark_bull.clock import LAST_ETA_MS
from spark_bull.errors import DialectError, OptionError, did_you_mean
from spark_bull.model.outcomes import LOST, Claim, ClaimedJob, Delayed, Failed, FollowUp, Keep, Outcomes
from spark_bull.options.parse import Options, parse_options
from spark_bull.options.table import SETTLE
from spark_bull.queue.core.claim_settings import ClaimSettings
from spark_bull.queue.core.handle import RECEIPT_TTL_MS, QueueHandle, open_handle
from spark_bull.queue.process.claim import CLAIM_BYTES, read_claimed, work
from spark_bull.spark.json.json_text import is_encodable, is_json, to_json
from spark_bull.spark.platform.python_worker import freeze_loaded_objects
from spark_bull.spark.process.settle.follow_up_column import THEN, FollowUpPlan, plan_follow_ups
from spark_bull.spark.process.settle.tokens import read_settle_token
from spark_bull.spark.schemas import CLAIM_SCHEMA
from spark_bull.store.settings import resolved
from spark_bull.worker.claims.job_signal import retry_until_connected
from spark_bull.worker.job.failure import failure
from spark_bull.worker.job.job_options import keep_of, keep_rule
from spark_bull.worker.job.outcome_policy import BackoffStrategy, OutcomePolicy, strategy_for
from spark_bull.worker.job.running_job import RunningJob
from spark_bull.worker.slot.blocked_parents import fail_blocked

log = logging.getLogger("spark_bull")

T = TypeVar("T")
#: What becomes of a job, or that its outcome was rejected.
Ending = Literal["completed", "failed", "retried", "returned", "lost"]

#: TTL of the totals of a claiming query after its last batch.
TOTALS_TTL_MS: Final = 7 * 86_400_000
#: Optional columns, their types, and the names of the types in SQL.
_OPTIONAL: Final[Mapping[str, tuple[type[DataType], str]]] = {
    "queue": (StringType, "STRING"),
    "error": (StringType, "STRING"),
    "stacktrace": (StringType, "STRING"),
    "unrecoverable": (BooleanType, "BOOLEAN"),
    "delay": (IntegralType, "an integer (ms)"),
    "runAt": (TimestampType, "TIMESTAMP"),
    "rateLimit": (IntegralType, "an integer (ms)"),
    "waitForChildren": (BooleanType, "BOOLEAN"),
    THEN: (ArrayType, "ARRAY<STRUCT<data, …>>"),
}
_BY_LOWER: Final = {name.lower(): name for name in ("id", "token", "returnvalue", *_OPTIONAL)}
#: Columns that say when a job runs again without counting the attempt, in the order of _Postponed.
_POSTPONING: Final = ("delay", "runAt", "rateLimit", "waitForChildren")
#: Columns of which at least one is required.
OUTCOMES: Final = ("returnvalue", "error", *_POSTPONING)
#: All columns that settling reads.
SETTLED_COLUMNS: Final = tuple(_BY_LOWER.values())
#: Other columns of the claim, which are ignored.
_IGNORED: Final = frozenset(field.name.lower() for field in CLAIM_SCHEMA)

#: Schema of the counts of outcomes.
COUNTS: Final = "outcome STRING, jobs BIGINT"
_COUNTS: Final = pa.schema([("outcome", pa.string()), ("jobs", pa.int64())])


class Settled(WriterCommitMessage):
    """The number of outcomes that one task has settled, by kind."""

    def __init__(self, counts: Mapping[Ending, int]) -> None:
        self.counts = dict(counts)


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
    names = {_BY_LOWER.get(field.name.lower(), field.name.lower()): field for field in schema}
    for name in ("id", "token"):
        if name not in names or not isinstance(names[name].dataType, StringType):
            raise OptionError(f"expected a column `{name}` STRING with mode=settle, as the claim gave it")
    if not names.keys() & OUTCOMES:
        raise OptionError("expected a column `returnvalue` or `error` with mode=settle, got neither")
    for name, field in names.items():
        wanted, words = _OPTIONAL.get(name, (DataType, ""))
        if not isinstance(field.dataType, wanted):
            kind = field.dataType.simpleString().upper()
            raise OptionError(f"expected column `{field.name}` to be {words}, got: {kind}")
        if name not in {*SETTLED_COLUMNS, *_IGNORED}:
            near = did_you_mean(field.name, ("returnvalue", *_OPTIONAL))
            raise OptionError(f"unknown column `{field.name}`{near}: put it into `returnvalue`, or drop it")
    value = names.get("returnvalue")
    if value is not None and not is_encodable(to_arrow_schema(StructType([value]), timezone="UTC")[0]):
        raise OptionError(
            f"expected column `returnvalue` to be of types that JSON can hold, got: {value.dataType.simpleString()}"
        )
    if options["queue"] is None and "queue" not in names:
        raise OptionError("expected an option `queue`, or a column `queue`, got neither")
    is_text = value is not None and isinstance(value.dataType, StringType)
    follow_ups = plan_follow_ups(names[THEN]) if THEN in names else None
    plan = SettlePlan(options, tuple(names), is_text, strategy, follow_ups=follow_ups)
    for handle in plan.handles().values():
        handle.dialect.check_options(options)
        handle.connection.check(handle.keys.prefix, [handle.keys.queue], write=True)
    return plan


class BatchSettler(DataSourceArrowWriter):
    """One `save()` with mode=settle."""

    def __init__(self, plan: SettlePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Settled:
        return settle_task(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        log_rejected(messages)


class StreamSettler(DataSourceStreamArrowWriter):
    """One micro-batch with mode=settle."""

    def __init__(self, plan: SettlePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Settled:
        return settle_task(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log_rejected(messages)


@dataclass(frozen=True)
class Settling:
    """The same for `DataFrame.mapInArrow`, in one Spark job without a sink; returns rows of COUNTS.

    transform: makes the rows with outcomes of batches of claimed jobs, in the same process; None: these are given.
    """

    plan: SettlePlan
    transform: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts = settle_task(self.plan, batches if self.transform is None else self.transform(batches)).counts
        yield pa.RecordBatch.from_pydict({"outcome": list(counts), "jobs": list(counts.values())}, schema=_COUNTS)


def log_rejected(messages: list[WriterCommitMessage | None]) -> None:
    """Logs how many outcomes were rejected."""
    total = sum((Counter(m.counts) for m in messages if isinstance(m, Settled)), Counter[Ending]())
    if total["lost"]:
        log.warning(
            "%d outcomes were rejected, as their jobs' locks had expired; see the logs of the tasks", total["lost"]
        )


def settle_task(plan: SettlePlan, batches: Iterator[pa.RecordBatch]) -> Settled:
    """Settles the rows of one task attempt, a chunk at a time."""
    freeze_loaded_objects()
    size, counts, handles = int(plan.options["chunkSize"]), Counter[Ending](), plan.ask(plan.handles)
    for batch in batches:
        for start in range(0, batch.num_rows, size):
            part = batch.slice(start, size)
            then = part.column(plan.names.index(THEN)) if plan.follow_ups else None
            for (queue, reader), rows in _by_queue_and_reader(plan, part).items():
                if queue not in handles:
                    handles[queue] = plan.ask(partial(open_handle, plan.options, queue))
                for of_different_jobs in _without_repeats(rows):
                    counts.update(_Rows(plan, handles[queue], reader, of_different_jobs, then).settle())
    return Settled(counts)


class _Postponed(NamedTuple):
    """When a job runs again that does not count the attempt."""

    delay: int | None
    run_at: datetime | None
    rate_limit: int | None
    waits_for_children: bool | None


class _Row(NamedTuple):
    """The outcome of one job. `position`: its row in the slice. `token`: that of the job's lock. `is_plain`: see
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
    postponed: _Postponed | None


@dataclass(frozen=True)
class _Rows:
    """Rows of different jobs of one queue, claimed by one reader. `then`: the column of all rows of the slice."""

    plan: SettlePlan
    handle: QueueHandle
    reader: str
    rows: list[_Row]
    then: pa.Array | None

    def settle(self) -> Counter[Ending]:
        rows, follow_ups = self.rows, dict[str, list[FollowUp]]()
        if any(row.postponed and row.postponed.waits_for_children for row in rows):
            rows = self._check_flows(rows)
        if self.plan.follow_ups is not None and self.then is not None:
            rows, follow_ups = self._read_follow_ups(self.plan.follow_ups, self.then, rows)
        counts = Counter[Ending]()
        for part in _parts(rows, follow_ups):
            counts.update(self._settle(part, follow_ups))
        self.plan.ask(lambda: self._count(counts))
        return counts

    def _check_flows(self, rows: list[_Row]) -> list[_Row]:
        """Fails the attempts that wait for children, in a dialect whose jobs have none."""
        try:
            self.handle.dialect.check_flows()
        except DialectError as error:
            why = str(error)
            return [
                row._replace(postponed=None, error=why) if row.postponed and row.postponed.waits_for_children else row
                for row in rows
            ]
        return rows

    def _read_follow_ups(
        self, plan: FollowUpPlan, then: pa.Array, rows: Sequence[_Row]
    ) -> tuple[list[_Row], dict[str, list[FollowUp]]]:
        """The follow-ups of the rows, which fail those whose follow-ups are invalid."""
        ended = [row for row in rows if row.postponed is None]
        ids, column = [row.id for row in ended], then.take(pa.array([row.position for row in ended], pa.int64()))
        read = self.plan.ask(lambda: plan.read(self.handle, ids, column))
        errors = {row.id: "; ".join(filter(None, (row.error, read.errors.get(row.id)))) for row in ended}
        return [row._replace(error=errors[row.id]) if row.id in read.errors else row for row in rows], read.valid

    def _settle(self, rows: Sequence[_Row], follow_ups: Mapping[str, Sequence[FollowUp]]) -> Counter[Ending]:
        outcomes, lost = _outcomes_of(rows), 0
        self._postpone(outcomes, {row.id: row.postponed for row in rows if row.postponed is not None})
        kinds: dict[str, Ending] = dict.fromkeys(outcomes.all_ids(), "returned")
        ended = [row for row in rows if row.postponed is None]
        to_read = [row.id for row in ended if row.error is not None or not row.is_plain]
        known = {job.id: job for job in self.plan.ask(lambda: read_claimed(self.handle, to_read))}
        for row in ended:
            if row.id in follow_ups:
                outcomes.add_follow_ups(follow_ups[row.id])
            job = known.get(row.id)
            if row.error is None and (job or row.is_plain):
                outcomes.complete(row.id, row.value, self._keep_of(job))
                kinds[row.id] = "completed"
            elif row.error is not None and job:
                kinds[row.id] = self._fail(outcomes, job, row, row.error)
            else:
                lost += self._lost(row, "missing")
        if len(outcomes):
            claim, by_id = self._work(outcomes), {row.id: row for row in rows}
            for one in claim.lost:
                kinds.pop(one.id, None)
                if not one.is_blocked:
                    lost += self._lost(by_id[one.id], one.why)
            kinds |= self._fail_blocked(outcomes, claim)
        self._remember([row for row in rows if kinds.get(row.id) in ("retried", "returned")])
        counts = Counter[Ending](kinds.values())
        counts["lost"] = lost
        return counts

    def _work(self, outcomes: Outcomes) -> Claim:
        claim_settings = ClaimSettings(f"settle:{uuid4().hex}", max_metrics=self.plan.options["metricsMinutes"])
        call = uuid4().hex
        return self.plan.ask(lambda: work(self.handle, claim_settings, outcomes, 0, call=call))

    def _keep_of(self, job: ClaimedJob | None) -> Keep:
        """Which completed jobs to keep. job: None when its options have no such rule."""
        default = self.plan.policy.keep_completed
        return default if job is None else keep_of(self.handle.dialect, job.opts, "removeOnComplete", default)

    def _fail(self, outcomes: Outcomes, job: ClaimedJob, row: _Row, error: str) -> Ending:
        decided = failure(
            self.handle.dialect,
            job,
            error,
            stack=error if row.stack is None else row.stack,
            unrecoverable=row.unrecoverable,
            strategy=strategy_for(self.plan.strategy, RunningJob(job, self.handle)),
            default_keep=self.plan.policy.keep_failed,
        )
        outcomes.add_failure(decided)
        return "failed" if isinstance(decided, Failed) else "retried"

    def _fail_blocked(self, outcomes: Outcomes, claim: Claim) -> dict[str, Ending]:
        """Settles parents that can't complete yet; returns what became of them, by job id."""
        blocked = self.plan.ask(lambda: fail_blocked(self.handle, self.plan.policy, outcomes, claim.lost, claim.now))
        if blocked:
            self._work(blocked)
        kinds: dict[str, Ending] = {job.id: "failed" for job in blocked.failed}
        return kinds | {job.id: "retried" for job in blocked.retried}

    def _postpone(self, outcomes: Outcomes, jobs: Mapping[str, _Postponed]) -> None:
        """Has the effect of DelayedError, RateLimitError and WaitingForChildren in a processor, by job id."""
        now = self.plan.ask(self.handle.connection.now_ms) if any(to.delay is not None for to in jobs.values()) else 0
        for job_id, to in jobs.items():
            if to.waits_for_children:
                outcomes.waiting_for_children.append(job_id)
            elif to.rate_limit is not None:
                outcomes.returned.append(job_id)
                outcomes.limited_ms = max(outcomes.limited_ms, to.rate_limit)
            else:
                until = now + max(0, to.delay or 0) if to.run_at is None else round(to.run_at.timestamp() * 1000)
                outcomes.delayed.append(Delayed(job_id, min(until, LAST_ETA_MS)))

    def _lost(self, row: _Row, why: str) -> int:
        """1 for a rejected outcome, 0 when an earlier attempt of this task has settled the job."""
        if why in ("unlocked", "missing") and self.plan.ask(lambda: self._has_ended(row.id)):
            return 0
        if why in ("unlocked", "missing", "owner") and self.plan.ask(lambda: self._is_remembered(row)):
            return 0
        log.warning("queue %s: outcome of job %s was rejected (%s)", self.handle.keys.queue, row.id, LOST[why])
        return 1

    def _remember(self, rows: Sequence[_Row]) -> None:
        """Records that these jobs were settled: as they run again, Redis does not show it."""
        by_key: dict[str, list[str]] = {}
        for row in rows:
            by_key.setdefault(self.handle.keys.settled_again(row.token), []).append(row.id)
        if by_key:
            adds = [("SADD", key, *ids) for key, ids in by_key.items()]
            limits = [("PEXPIRE", key, RECEIPT_TTL_MS) for key in by_key]
            self.plan.ask(lambda: self.handle.connection.pipeline([*adds, *limits]))

    def _is_remembered(self, row: _Row) -> bool:
        return bool(self.handle.connection.call("SISMEMBER", self.handle.keys.settled_again(row.token), row.id))

    def _has_ended(self, job_id: str) -> bool:
        keys = self.handle.keys
        if self.handle.dialect.has_finish_times:
            return bool(self.handle.connection.call("HEXISTS", keys.job(job_id), "finishedOn"))
        checks = [("SISMEMBER", keys["completed"], job_id), ("SISMEMBER", keys["failed"], job_id)]
        return any(self.handle.connection.pipeline(checks))

    def _count(self, counts: Counter[Ending]) -> None:
        key = self.handle.keys.settled(self.reader)
        increments = [("HINCRBY", key, name, count) for name, count in counts.items() if count]
        self.handle.connection.pipeline([*increments, ("PEXPIRE", key, TOTALS_TTL_MS)])


def _parts(rows: list[_Row], follow_ups: Mapping[str, Sequence[FollowUp]]) -> Iterator[list[_Row]]:
    """Splits rows with many follow-ups for several calls of a script."""
    if not follow_ups:
        yield rows
        return
    part, sent = list[_Row](), Outcomes("")
    for row in rows:
        part.append(row)
        sent.add_follow_ups(follow_ups.get(row.id, ()))
        if sent.is_large(CLAIM_BYTES):
            yield part
            part, sent = [], Outcomes("")
    if part:
        yield part


def _error_of(value: str) -> str | None:
    """Why a `returnvalue` fails the attempt; None for JSON."""
    return None if is_json(value) else f"expected `returnvalue` to hold JSON, got: {value[:200]!r}"


def _outcomes_of(rows: Sequence[_Row]) -> Outcomes:
    """Outcomes to be filled, with the tokens of these rows: usually all are of one claim."""
    token = rows[0].token
    others = {row.id: row.token for row in rows if row.token != token}
    return Outcomes(token, tokens=others)


def _without_repeats(rows: Sequence[_Row]) -> Iterator[list[_Row]]:
    """Divides rows so that the claims of a job that was claimed several times are apart. One row of a claim counts."""
    left = list({(row.id, row.token): row for row in rows}.values())
    while left:
        first = {row.id: row for row in reversed(left)}
        yield [row for row in left if first[row.id] is row]
        left = [row for row in left if first[row.id] is not row]


def _by_queue_and_reader(plan: SettlePlan, batch: pa.RecordBatch) -> dict[tuple[str, str], list[_Row]]:
    columns = {name: batch.column(index) for index, name in enumerate(plan.names)}
    count = batch.num_rows

    def column(name: str, default: Any) -> Sequence[Any]:
        return columns[name].to_pylist() if name in columns else [default] * count

    queues = [plan.options["queue"]] * count if plan.options["queue"] else column("queue", None)
    ids, settle_tokens = column("id", None), column("token", None)
    if None in queues or None in ids or None in settle_tokens:
        raise OptionError("expected `id`, `token` and `queue` of every row with mode=settle, got NULL in one")
    tokens = {text: read_settle_token(text) for text in set(settle_tokens)}
    values = _values(plan, batch)
    errors = {text: _error_of(text) for text in set(values)} if plan.is_text else {}
    grouped: dict[tuple[str, str], list[_Row]] = {}
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
        row = _Row(position, job_id, token, is_plain, value, why, stack, bool(unrecoverable), postponed)
        grouped.setdefault((queue, reader), []).append(row)
    return grouped


def _values(plan: SettlePlan, batch: pa.RecordBatch) -> list[str]:
    """The column `returnvalue` as JSON texts."""
    if "returnvalue" not in plan.names:
        return ["null"] * batch.num_rows
    index = plan.names.index("returnvalue")
    array = batch.column(index)
    texts = array if plan.is_text else to_json(array, batch.schema.field(index), ignore_nulls=False)
    return ["null" if text is None else text for text in texts.to_pylist()]


def _postponed(columns: Mapping[str, pa.Array], count: int) -> list[_Postponed | None]:
    """When the job of each row runs again; None for jobs whose attempt counts."""
    given = {name: columns[name] for name in _POSTPONING if name in columns and columns[name].null_count < count}
    if not given:
        return [None] * count
    rows = zip(*(given[name].to_pylist() if name in given else [None] * count for name in _POSTPONING), strict=True)
    return [_Postponed(*row) if row[3] or any(value is not None for value in row[:3]) else None for row in rows]
