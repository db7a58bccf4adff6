"""What is read about a queue: events, limits, metrics, statistics, job schedulers, and the records of writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_bull.core.model.job_json import json_or_text

#: The period that metrics of workers count, ms.
MINUTE_MS = 60_000


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
      work_ms: the sum of these durations of all jobs that have ended in the window and are kept. It is an estimate if
        not all of them were read. None: the dialect keeps no times.
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
class WriteEnd:
    """What has become of the jobs of one write of Spark to a queue.

    Parameters:
      completed: number of completed jobs.
      failed: number of failed jobs.
      unknown: number of jobs that are gone, of which no event tells how they have ended.
      reasons: how many jobs have failed for each reason, the most frequent one first.
    """

    completed: int
    failed: int
    unknown: int
    reasons: Mapping[str, int]


@dataclass(frozen=True)
class WriteRecord:
    """The record of one write of Spark. Times are ms since 1970.

    Parameters:
      id: id of the write.
      queue: name of the queue.
      state: open, finished, broken (staged jobs were lost), or aborted; prepared while its jobs are still looked for.
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
