"""Public data types: a job to add; a job, a scheduler and an event as read; states of jobs; the record of a write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_bull.core.model.job_json import json_or_text, opts_of, payload_of

STATES = (
    "wait",
    "active",
    "delayed",
    "prioritized",
    "paused",
    "waiting-children",
    "completed",
    "failed",
)
#: States of jobs that have ended.
ENDED = frozenset({"completed", "failed"})
#: States of jobs that are neither active nor have ended: those that the length of a queue counts.
NOT_STARTED = frozenset(STATES) - ENDED - {"active"}

#: The period that metrics of workers count, ms.
MINUTE_MS = 60_000

#: Delay before the next attempt: ms, or a mapping with `type`, `delay` (ms) and, in BullMQ, `jitter` (0 to 1).
Backoff = int | Mapping[str, Any]
#: A number, 1 is the highest, or a name: critical, high, medium, normal, low.
Priority = int | str
#: How many finished jobs to keep: True none, False all, a number as many jobs, or {"age": seconds, "count": jobs}.
KeepRule = bool | int | Mapping[str, int]
#: The deduplication id of a job, or a mapping with `id` and a rule, by the names of BullMQ.
Deduplication = str | Mapping[str, Any]


#: The parent of a job: a mapping with `queue`, `id` and, optionally, `onFailure`.
Parent = Mapping[str, str]


@dataclass(frozen=True)
class RawJson:
    """JSON text, stored unchanged.

    Parameters:
      text: the JSON text.
    """

    text: str


@dataclass(frozen=True)
class NewJob:
    """A job to add with BullQueue.add_many, or as a follow-up with RunningJob.then.

    A field that is None gets the queue's default, if it has one.

    Parameters:
      data: the payload: anything JSON can hold, or RawJson.
      name: the job's name, as in the Node library; default: `__default__`. BullMQ and Bull 3 and 4 only.
      job_id: the job's id; a job whose id exists in the queue is not added. Default: the queue's next number.
      delay: ms to wait before the job may run.
      run_at: when the job may run, ms since 1970; instead of `delay`.
      priority: 1 is the highest; 0 is none. `critical`, `high`, `medium`, `normal` and `low` are 1 to 5.
      attempts: maximum number of attempts, the first one included.
      backoff: the delay before the next attempt: ms, or a mapping with `type` (fixed, exponential, or a custom
        type of the workers), `delay` (ms) and, in BullMQ, `jitter` (0 to 1).
      lifo: True makes the job the next one of those that wait.
      remove_on_complete: True removes the job once it has completed, False keeps it; a number keeps as many completed
        jobs of the queue; {"age": seconds, "count": jobs} limits both.
      remove_on_fail: the same for a job that has failed.
      timestamp: creation time of the job, ms since 1970; default: the current time of Redis.
      opts: other options of the Node library, by its own names; they take precedence over the others.
      deduplication: an id that one unfinished job of the queue can have: while it is taken, the job is not added. Or a
        mapping with `id` and a rule: `ttl` (ms), `extend`, `replace`, `reschedule`, `keepLastIfActive` as in BullMQ,
        and `deferrableBy` (s). Bull 4 has only `id` and `ttl`; Bull 1 to 3 have no such ids.
      parent: a job that waits for this one: a mapping with its `queue`, `id` and optionally `onFailure`: what becomes
        of it when this job fails: `wait` (the default), `fail`, `continue`, `ignore` or `remove`. BullMQ only.
      expire_after_ms: ms after its creation, after which the job does not start any more: it fails as `expired`.
      expire_at: when that is, ms since 1970; instead of `expire_after_ms`.
      spread_ms: the job is delayed by a time up to this one, ms, in addition to its delay; jobs that
        are added together get different times.
      delivery: `at-most-once`: the job never runs twice, and fails if its worker dies; default: `at-least-once`.
      lock_ms: duration of the job's lock, ms, instead of the worker's. Workers of Node ignore it.
    """

    data: Any
    name: str | None = None
    job_id: str | None = None
    delay: int | None = None
    run_at: int | None = None
    priority: Priority | None = None
    attempts: int | None = None
    backoff: Backoff | None = None
    lifo: bool | None = None
    remove_on_complete: KeepRule | None = None
    remove_on_fail: KeepRule | None = None
    timestamp: int | None = None
    opts: Mapping[str, Any] | None = None
    deduplication: Deduplication | None = None
    parent: Parent | None = None
    expire_after_ms: int | None = None
    expire_at: int | None = None
    spread_ms: int | None = None
    delivery: str | None = None
    lock_ms: int | None = None


@dataclass(frozen=True)
class FlowJob(NewJob):
    """A job of a flow, to add with BullQueue.add_flow: a NewJob that waits for its children. BullMQ only.

    The job with all jobs below it is added at once, and waits until its children have ended. Its id is a UUID unless
    `job_id` is given. Only the first job of a flow may have a `parent`, and a `deduplication` if it has no children. It
    has the parameters of NewJob, and these:

    Parameters:
      queue: name of the job's queue; default: its parent's queue, and for the first job the BullQueue's.
      on_failure: what becomes of the parent when this job fails: `wait` (the default: it waits on), `fail` (it fails),
        `continue` (it starts at once), `ignore` or `remove` (it no longer waits for this job).
      children: the jobs for which this one waits.
    """

    queue: str | None = None
    on_failure: str | None = None
    children: Sequence[FlowJob] = ()


@dataclass(frozen=True)
class AddedFlow:
    """A job of a flow that was added.

    Parameters:
      queue: name of its queue.
      id: id of the job.
      children: the jobs for which it waits, in the order given.
    """

    queue: str
    id: str
    children: tuple[AddedFlow, ...] = ()


@dataclass(frozen=True)
class Dependency:
    """A child of a job, as BullMQ keeps it with the parent.

    Parameters:
      queue: name of the parent's queue.
      id: id of the parent.
      child_queue: name of the child's queue.
      child_id: id of the child.
      state: `unprocessed`, `processed`, `ignored` (failed, which its parent ignores), or `failed` (with its parent).
      value: return value of a processed child, JSON text; reason of the failure of an ignored one; else None.
    """

    queue: str
    id: str
    child_queue: str
    child_id: str
    state: str
    value: str | None = None


@dataclass(frozen=True)
class Job:
    """A job as read from Redis. Times are ms since 1970.

    The properties `data`, `opts`, `progress` and `returnvalue` are parsed JSON, as in a processor. A field that the
    hash lacks is None, or the default of the Node libraries: 0 for attempts, delay and priority.

    Parameters:
      queue: name of the queue.
      id: id of the job.
      state: one of spark_bull.core.model.jobs.STATES; None for a job that is in no state's list.
      name: name of the job.
      data_text: the payload, JSON text as stored in Redis.
      opts_text: the options, JSON text.
      progress_text: the progress last reported, JSON text.
      returnvalue_text: return value of the processor, JSON text.
      failed_reason: error message of the last failed attempt.
      stacktrace: traces of failed attempts, oldest first.
      attempts_made: attempts that have ended.
      attempts_started: attempts that have started; BullMQ only.
      stalled_counter: how often the job has stalled.
      returned_counter: how often a processor has returned the job to its queue, by ReturnedError.
      timestamp: when the job was added.
      processed_on: when its last attempt started.
      finished_on: when it completed or failed.
      delay: ms that the job waits before it may run.
      run_at: when a delayed job is due.
      priority: 1 is the highest, 0 is none.
      processed_by: name of the worker; BullMQ only.
      parent_key: Redis key of the parent job; BullMQ only.
      deduplication_id: deduplication id of the job; BullMQ and Bull 4 only.
      repeat_job_key: key of the job scheduler that made the job.
    """

    queue: str
    id: str
    state: str | None
    name: str | None = None
    data_text: str = "{}"
    opts_text: str = "{}"
    progress_text: str | None = None
    returnvalue_text: str | None = None
    failed_reason: str | None = None
    stacktrace: tuple[str, ...] = ()
    attempts_made: int = 0
    attempts_started: int | None = None
    stalled_counter: int = 0
    returned_counter: int = 0
    timestamp: int | None = None
    processed_on: int | None = None
    finished_on: int | None = None
    delay: int = 0
    run_at: int | None = None
    priority: int = 0
    processed_by: str | None = None
    parent_key: str | None = None
    deduplication_id: str | None = None
    repeat_job_key: str | None = None

    @property
    def data(self) -> Any:
        """The payload. Raises JobDamaged, a ValueError, when it is not JSON."""
        return payload_of(self.id, self.data_text, self.opts_text)

    @property
    def opts(self) -> dict[str, Any]:
        """The options, as the Node library stores them. Raises JobDamaged when they are not a JSON object."""
        return opts_of(self.id, self.opts_text)

    @property
    def progress(self) -> Any:
        """The progress last reported, or None; the text itself when it is not JSON."""
        return json_or_text(self.progress_text)

    @property
    def returnvalue(self) -> Any:
        """The return value of the processor, or None; the text itself when it is not JSON."""
        return json_or_text(self.returnvalue_text)

    def parsed(self, name: str = "data") -> Any:
        """Returns the attribute `data`, `opts`, `progress` or `returnvalue`.

        Parameters:
          name: name of the attribute.

        Returns:
          Its value.

        Raises:
          JobDamaged: when `data` or `opts` can't be parsed.
        """
        return getattr(self, name)


@dataclass(frozen=True)
class QueueEvent:
    """An event of a queue, as `BullQueue.events` returns it. What an event lacks is None.

    Parameters:
      queue: name of the queue.
      id: id of the entry in the queue's stream of events (BullMQ); None in Bull, which keeps no events.
      event: what happened, by the name of the Node library, such as waiting, active, progress, completed or failed.
      job_id: id of the job.
      timestamp: when it happened, by the clock of Redis (BullMQ); when it was received (Bull). ms since 1970.
      prev: the state that the job has left, as far as the library says so; `waiting` stands for wait.
      data: the progress of the job, parsed; in a custom event, the text of the field `data`.
      returnvalue: return value of the processor, parsed.
      failed_reason: error message of a failed job.
      run_at: when a delayed job is due, ms since 1970.
      fields: all other fields of the event, such as `name` or `attemptsMade`; texts.
    """

    queue: str
    id: str | None
    event: str
    job_id: str | None
    timestamp: int
    prev: str | None = None
    data: Any = None
    returnvalue: Any = None
    failed_reason: str | None = None
    run_at: int | None = None
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FlowNode:
    """A job of a flow, as read from Redis, with the jobs below it.

    Parameters:
      queue: name of its queue; with the prefix of its keys in front if that is another one.
      id: id of the job.
      depth: number of jobs above it; 0: it is the first one.
      job: the job; None if it was removed.
      parent_queue: name of the queue of its parent; None for the first job.
      parent_id: id of its parent; None for the first job.
      dependency: what has become of it for its parent, as `state` of Dependency; None for the first job.
      child_count: number of its children, also of those that were not read.
      children: its children that were read.
    """

    queue: str
    id: str
    depth: int = 0
    job: Job | None = None
    parent_queue: str | None = None
    parent_id: str | None = None
    dependency: str | None = None
    child_count: int = 0
    children: tuple[FlowNode, ...] = ()

    def walk(self) -> Iterator[FlowNode]:
        """Iterates over this job and all below it, each before its children.

        Returns:
          The jobs.
        """
        left = [self]
        while left:
            node = left.pop()
            yield node
            left += reversed(node.children)


@dataclass(frozen=True)
class QueueLimits:
    """The limits of a BullMQ queue over all its workers. None: there is no such limit.

    Parameters:
      concurrency: maximum number of active jobs.
      max: maximum number of jobs that start in `duration_ms`.
      duration_ms: the period of `max`, ms.
      limited_ms: ms until the rate limits let the next job start; 0: they let it start now.
      is_maxed: whether as many jobs are active as `concurrency` allows.
    """

    concurrency: int | None
    max: int | None
    duration_ms: int | None
    limited_ms: int = 0
    is_maxed: bool = False


@dataclass(frozen=True)
class QueueMetrics:
    """How many jobs have completed or failed per minute, as workers count them; as Node's getMetrics.

    Parameters:
      queue: name of the queue.
      state: completed or failed.
      count: number of jobs since the counters exist.
      prev_ts: when the first job of the current minute ended, ms since 1970; 0: none was counted.
      prev_count: value of `count` before that job.
      data: jobs per minute, the newest minute first, without the current one.
      points: number of minutes that are kept.
      start: position of the first minute of `data` among them.
    """

    queue: str
    state: str
    count: int
    prev_ts: int
    prev_count: int
    data: tuple[int, ...]
    points: int
    start: int = 0

    @property
    def minutes(self) -> dict[int, int]:
        """Jobs by the minute in which they ended, ms since 1970, the newest first.

        With `start` 0, the first one is the minute of `prev_ts`, in which more jobs may end.
        """
        if not self.prev_ts:
            return {}
        current = self.prev_ts // MINUTE_MS * MINUTE_MS
        found = {current - (self.start + n) * MINUTE_MS: jobs for n, jobs in enumerate(self.data, start=1)}
        return found if self.start else {current: self.count - self.prev_count} | found


@dataclass(frozen=True)
class Percentiles:
    """Percentiles of durations, ms, interpolated between the two nearest ones.

    Parameters:
      p50: half of the durations are shorter.
      p95: 95 % of them are shorter.
      p99: 99 % of them are shorter.
    """

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class JobStats:
    """Numbers of the jobs of a queue, or of those with one name.

    Parameters:
      queue: name of the queue.
      name: name of the jobs; None: all jobs of the queue.
      jobs: number of jobs by state. By name they are estimates if `is_estimate` is True.
      is_estimate: whether a state has more jobs than were read.
      oldest_waiting_ms: for how long the oldest of the jobs waits that could start, ms since it was added; None: no
        job waits.
      timed: number of finished jobs whose times `wait` and `run` are about.
      wait: from when jobs were added until their last attempt started, delays included; None: no such jobs are kept.
      run: the duration of their last attempts; None: no such jobs are kept.
      work_ms: the sum of these durations of all jobs that have ended in the window and are kept: an estimate if not all
        of them were read; None: the dialect keeps no times.
      added_per_s: jobs added per second; None: nothing that is kept tells it.
      added_over_ms: the time of which that is the average, ms.
      finished_per_s: jobs completed or failed for good per second; None: as above.
      finished_over_ms: the time of which that is the average, ms.
      drained_in_ms: in how many ms no job that could start would wait any more if both rates stay, a forecast; 0: none
        waits; None: never, or a rate is unknown.
    """

    queue: str
    name: str | None
    jobs: Mapping[str, int]
    is_estimate: bool
    oldest_waiting_ms: int | None
    timed: int
    wait: Percentiles | None
    run: Percentiles | None
    work_ms: int | None
    added_per_s: float | None
    added_over_ms: int | None
    finished_per_s: float | None
    finished_over_ms: int | None
    drained_in_ms: int | None = None


@dataclass(frozen=True)
class Added:
    """The result of adding jobs.

    Parameters:
      ids: ids of the jobs, in the order given; for a deduplicated one, the id of the job that was there first.
      added: number of jobs that were added.
      duplicates: number of jobs that were not added because their id existed.
      deduplicated: number of jobs that were not added because their deduplication id was taken.
      rejected: why jobs were not added as children, by their positions from 0: `missing` (the parent), `other parent`,
        `cycle`; their id is "".
      dropped: number of jobs that were not added because the queue was full (`when_full="drop"`); their id is "".
      replicas: number of replicas of Redis that have the jobs, with the argument `replicas` of the queue; else None.
    """

    ids: list[str]
    added: int
    duplicates: int
    deduplicated: int = 0
    rejected: Mapping[int, str] = field(default_factory=dict)
    dropped: int = 0
    replicas: int | None = None


@dataclass(frozen=True)
class Scheduler:
    """A job scheduler as read from Redis. Times are ms since 1970, intervals ms.

    Parameters:
      queue: name of the queue.
      id: id of the job scheduler; of one that was made in Bull without `jobId`, its key.
      name: name of its jobs.
      next: when its next job is due.
      every: interval of its jobs; None for one with a pattern.
      pattern: cron pattern; None for one with an interval.
      tz: name of the time zone of the pattern; None: the zone of the machine on which the next time is computed.
      limit: maximum number of jobs; BullMQ only.
      offset: by how much its times are shifted from multiples of the interval; BullMQ only.
      start_date: no job runs before; BullMQ only.
      end_date: no more jobs are added after.
      iteration_count: number of jobs that were added; BullMQ only.
      data_text: payload of its jobs, JSON text; BullMQ only.
      opts_text: options of its jobs, JSON text; BullMQ only.
    """

    queue: str
    id: str
    name: str | None
    next: int
    every: int | None = None
    pattern: str | None = None
    tz: str | None = None
    limit: int | None = None
    offset: int | None = None
    start_date: int | None = None
    end_date: int | None = None
    iteration_count: int | None = None
    data_text: str | None = None
    opts_text: str | None = None

    @property
    def data(self) -> Any:
        """Payload of its jobs, or None; the text itself when it is not JSON."""
        return json_or_text(self.data_text)

    @property
    def opts(self) -> Any:
        """Options of its jobs, as the Node library stores them, or None; the text itself when it is not JSON."""
        return json_or_text(self.opts_text)


@dataclass(frozen=True)
class Change:
    """A change of an existing job, for BullQueue.manage. A field that the action does not use is ignored.

    Parameters:
      id: id of the job.
      action: retry, promote, delay, prioritize, update, remove, fail, complete, move, free or discard-children.
      data: the new payload: anything JSON can hold, or RawJson; None: unchanged. Of `update` (required), `retry`,
        `promote`, `delay`, `prioritize` and `move`.
      delay: ms from now, of `delay`.
      priority: of `prioritize`: a number, 0 is none, or a name.
      lifo: whether the job is the next one; of `retry` and `prioritize`.
      reset_attempts: whether attempts count from 0 again; of `retry`.
      state: the state of a job to `retry`: failed (default), or completed (BullMQ).
      failed_reason: of `fail`.
      returnvalue: of `complete`: anything JSON can hold, or RawJson; None is null.
      to: name of the queue, of `move`.
    """

    id: str
    action: str
    data: Any = None
    delay: int | None = None
    priority: Priority | None = None
    lifo: bool | None = None
    reset_attempts: bool | None = None
    state: str | None = None
    failed_reason: str | None = None
    returnvalue: Any = None
    to: str | None = None


@dataclass(frozen=True)
class Changed:
    """What has become of a change.

    Parameters:
      id: id of the job.
      action: the action.
      outcome: done; missing, when there is no such job; locked, when a worker has it; wrong_state; scheduled, when it
        is the next job of a job scheduler; exists, when the other queue has a job of this id.
    """

    id: str
    action: str
    outcome: str


@dataclass(frozen=True)
class WriteRecord:
    """The record of one write of Spark. Times are ms since 1970.

    Parameters:
      id: id of the write.
      queue: name of the queue.
      state: open, finished, or broken (staged jobs were lost).
      delivery: exactly-once or at-least-once.
      jobs: number of jobs of the write.
      done: number of jobs processed so far, including those that were not added.
      added: number of jobs that were added.
      duplicates: number of jobs that were not added because their id existed.
      started_on: when the write was registered.
      finished_on: when its last job was added.
      app_id: the option `txnAppId`, or the id of the streaming query.
      version: the option `txnVersion`, or the number of the micro-batch.
      deduplicated: number of jobs that were not added because their deduplication id was taken.
      rejected: number of jobs that were not added because their parent was missing, or they had another one.
      dropped: number of jobs that were not added because the queue was full.
      replicas: number of replicas of Redis that had the jobs when the write ended, with the option `replicas`.
      changed: number of jobs that a write with mode=manage has changed.
      missing: number of jobs that it has skipped because they do not exist.
      locked: number of jobs that it has skipped because a worker has them.
      wrong_state: number of jobs that it has skipped because they were in another state.
    """

    id: str
    queue: str
    state: str
    delivery: str
    jobs: int
    done: int
    added: int
    duplicates: int
    started_on: int | None
    finished_on: int | None
    app_id: str | None = None
    version: int | None = None
    deduplicated: int = 0
    rejected: int = 0
    dropped: int = 0
    replicas: int | None = None
    changed: int = 0
    missing: int = 0
    locked: int = 0
    wrong_state: int = 0

    @property
    def duration_ms(self) -> int | None:
        """Duration of the write, ms; None while it is unfinished."""
        if self.started_on is None or self.finished_on is None:
            return None
        return self.finished_on - self.started_on
