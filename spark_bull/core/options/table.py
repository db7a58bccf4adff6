"""The options of each verb, for the data source, the Python API, the command line and the documentation."""

from __future__ import annotations

from typing import Any, Final

from spark_bull.core.model.limits import SlotRange
from spark_bull.core.options import values
from spark_bull.core.options.parts import (
    Adding,
    Chunked,
    Claiming,
    Encrypted,
    Eventful,
    Ledgered,
    Measured,
    Options,
    PayloadTyped,
    Rescuing,
    Resulting,
    Settling,
    Sharded,
    SparkOptions,
    Staged,
    Starting,
    Viewing,
    option,
)


class WriteOptions(Adding, Staged, Sharded, PayloadTyped):
    """The options of `df.write` and `df.writeStream`.

    Options:
      shard_by: columns whose values say which shard a row goes to, so that jobs of one key keep their order. Default:
        `sequenceBy`, `uniqueBy` or the job id, whichever is given; else rows go to the shards in turn
      delivery: `exactly-once`: all jobs become visible when Spark commits. `at-least-once`: each chunk as soon as it is
        complete. `at-most-once`: as `exactly-once`, and no job runs twice, unless a column `delivery` says
        `at-least-once`
      keep_ids: whether the write keeps the ids of its jobs for 30 days, for `writeId` and `spark_bull.write_results`.
        An exactly-once write of jobs without ids of their own does not need it: its ids are consecutive
      confirm_obliterate: with `mode("overwrite")`: delete the queue and all its jobs first (batch only)
      job_columns: columns that are settings of the job, comma separated, for a DataFrame without a column `data`; all
        other columns are the payload. Default: none
      job_id_column: a column whose values are the ids of the jobs, and that stays in the payload: a row that is written
        again adds no second job. STRING or, except for BullMQ, an integer
      unique_by: columns, comma separated, whose values as a JSON array are the deduplication id of a row. Columns
        beside `data` that are not settings are used for nothing else. Default: none
      on_finish: a job that runs once, when all jobs of the write have ended: JSON with name, data, opts and queue (by
        default the write's); BullMQ only. Default: none
      sequence_by: columns, comma separated: jobs with the same values in them run one after the other, in the order of
        the rows and over several writes. Columns beside `data` that are not settings are used for nothing else. BullMQ
        only. Default: none
      on_failure: what becomes of the job of `onFinish` when a job fails for good. `wait`: it waits until that job is
        retried. `ignore`, `remove`: it goes on. `fail`: it fails. `continue`: it starts at once. With `sequenceBy`,
        what becomes of the next job of its sequence: `ignore` or `fail`. With a column `dependsOn`, what becomes of the
        jobs that depend on it: not `continue`. Default: `wait`; with `sequenceBy` `ignore`
      telemetry: trace context of OpenTelemetry that jobs carry, JSON as returned by `current_trace()`; BullMQ only.
        Default: none
    """

    title = "writes"
    shard_by: tuple[str, ...] = option(default=())
    delivery: str = option(values.choice("exactly-once", "at-least-once", "at-most-once"), "exactly-once")
    keep_ids: bool = option(default=False)
    confirm_obliterate: bool = option(default=False)
    job_columns: tuple[str, ...] = option(default=())
    job_id_column: str | None = option()
    unique_by: tuple[str, ...] = option(default=())
    on_finish: dict[str, Any] | None = option(values.json_object)
    sequence_by: tuple[str, ...] = option(default=())
    on_failure: str | None = option(values.choice("wait", "ignore", "fail", "continue", "remove"))
    telemetry: str = option(values.trace_context, "")


class ReadOptions(Viewing, Resulting):
    """The options of `spark.read`.

    Options:
      window_ms: `view=stats`: period, up to now, of the finished jobs whose times count, and of the rates
      max_depth: `view=flows`: maximum number of levels of each flow
      max_jobs: `view=flows`: maximum number of jobs of each flow
      job_ids: only these jobs, comma separated. Default: all
      num_partitions: number of partitions, by a hash of the queue and the job id. Default: by size: 1 per 100,000 jobs,
        at most 4
    """

    title = "reads"
    window_ms: int = option(values.integer(1), 3_600_000)
    max_depth: int = option(values.integer(1, 1_000), 10)
    max_jobs: int = option(values.integer(1, 100_000), 1_000)
    job_ids: tuple[str, ...] = option(default=())
    num_partitions: int | None = option(values.integer(1, 10_000))


class ClaimOptions(Ledgered, Claiming, Eventful):
    """The options of `spark.readStream` with `mode=claim`.

    Options:
      rows_per_partition: maximum number of jobs, or events, per task of a micro-batch; fewer give more tasks, for more
        cores
      worker_name: name that BullMQ stores as `processedBy`. Default: `spark-` and `readerId`
    """

    title = "streaming reads with mode=claim"
    rows_per_partition: int = option(values.integer(1), 5_000)
    worker_name: str | None = option()


class SettleOptions(SparkOptions, Settling):
    """The options of `df.writeStream` with `mode=settle`."""

    title = "writes with mode=settle"


class ScheduleOptions(Staged):
    """The options of writes with `mode=schedule`."""

    title = "writes with mode=schedule"


class ManageOptions(Chunked, Staged, Encrypted):
    """The options of writes with `mode=manage`.

    Options:
      action: what is done to the jobs, where no column `action` says it
      on_mismatch: jobs that are gone, locked by a worker or in another state. `skip` leaves them alone and counts them.
        `fail` checks all jobs first and, if there is such a job, changes none
      result_path: directory for a Parquet file with the outcome of each row: queue, id, action, outcome; path or URI of
        pyarrow. Default: none
    """

    title = "writes with mode=manage"
    action: str | None = option()
    on_mismatch: str = option(values.choice("skip", "fail"), "skip")
    result_path: str | None = option()


class LimitsOptions(SparkOptions):
    """The options of writes with `mode=limits`."""

    title = "writes with mode=limits"


class CollectOptions(Starting, Resulting, Ledgered, Measured):
    """The options of `spark.readStream`: finished jobs.

    Options:
      states: only jobs in these states, comma separated
      max_jobs_per_trigger: maximum number of jobs per micro-batch
      rows_per_partition: maximum number of jobs per task of a micro-batch; fewer give more tasks, for more cores.
        Default: 150,000; of a micro-batch of 50,000 jobs or more at most half
      lookback_ms: tolerated clock skew and delay of workers; the ledger keeps the ids of jobs of this period
      remove_on_read: delete jobs from Redis after the batch with them is committed
    """

    title = "streaming reads"
    states: tuple[str, ...] = option(values.states, ("completed", "failed"))
    max_jobs_per_trigger: int = option(values.integer(1), 300_000)
    rows_per_partition: int | None = option(values.integer(1))
    lookback_ms: int = option(values.integer(1_000, 86_400_000), 60_000)
    remove_on_read: bool = option(default=False)


class EventsOptions(Starting, Viewing, Measured):
    """The options of `spark.readStream` with `view=events`.

    Options:
      min_events_per_trigger: number of events for which a micro-batch waits, for `maxTriggerDelayMs` at most
      max_events_per_trigger: maximum number of events per micro-batch; each queue has an equal share
      rows_per_partition: maximum number of jobs, or events, per task of a micro-batch; fewer give more tasks, for more
        cores
    """

    title = "streaming reads with view=events"
    min_events_per_trigger: int = option(values.integer(1), 1)
    max_events_per_trigger: int = option(values.integer(1), 500_000)
    rows_per_partition: int = option(values.integer(1), 50_000)


class WorkOptions(Claiming, Settling, Rescuing):
    """The options of a Worker and a LocalWorker.

    Options:
      retry: maximum attempts of a job by the class of its error, instead of its own `attempts`. The most specific class
        wins; 0 fails the job at once; `{"TimeoutError": 5, "ValueError": 0}`. Default: each job has its own
      slots: number of Spark tasks that process jobs in parallel, one core each. `(1, 40)`: from 1 to 40, as many as the
        backlog needs, see `targetWaitS`. For functions of DataFrames: number of threads of the driver. Default: all
        cores but one, also cores of later executors, unless Spark allocates executors dynamically; for functions of
        DataFrames one
      target_wait_s: with a range of `slots`: there are enough slots for waiting jobs to start within this time, s
      concurrency: maximum number of jobs that a slot processes at the same time: functions in threads, coroutine
        functions in an event loop. Each job is settled when it ends. Not for UDFs
      min_chunk: number of jobs for which a call of a UDF or a function of DataFrames waits, `chunkWaitMs` at most
      chunk_wait_ms: see `minChunk`; ms
      chunk_size: maximum number of jobs per claim of a slot, and per call of a UDF (2,000 at most) or a function of
        DataFrames. Default: 100; UDFs: 200, or a larger `minChunk`; functions of DataFrames: 10,000, or 1,000 with
        `timeoutMs`
      timeout_ms: maximum duration of a job, for which its own `timeout` takes precedence, or of one call of a UDF or a
        function of DataFrames, ms; 0: unlimited
      extend_timeout_on_progress: whether each report of a job's progress begins its timeout anew, as in Kue: functions
        of a job only
      worker_name: name of the worker, which BullMQ stores as `processedBy` of its jobs. Default: `spark-` and the
        worker's id
      max_started: how often a job may start before it fails, also if its attempts ended without an outcome, as BullMQ's
        `maxStartedAttempts`; 0: unlimited; BullMQ only
      dead_letter_queue: a queue that gets a copy of each job whose last attempt fails, with its origin and reason in
        `opts.deadLetter`, in the step that fails the job. Default: none
      promoter: whether a `Promoter` for the queues runs on the driver
      progress: whether to show a line with the worker's progress. Default: on a terminal or in a notebook
    """

    title = "a Worker"
    in_python = True
    retry: dict[str, int] | None = option(values.retry_rules)
    slots: int | SlotRange | None = option(values.slots)
    target_wait_s: float = option(values.positive, 30.0)
    concurrency: int = option(values.integer(1, 2_000), 1)
    min_chunk: int = option(values.integer(1, 2_000), 1)
    chunk_wait_ms: int = option(values.integer(0), 1_000)
    chunk_size: int | None = option(values.integer(1, 100_000))
    timeout_ms: int = option(values.integer(0), 0)
    extend_timeout_on_progress: bool = option(default=False)
    worker_name: str | None = option()
    max_started: int = option(values.integer(0), 0)
    dead_letter_queue: str | None = option()
    promoter: bool = option(default=True)
    progress: bool | None = option()


class QueueOptions(Adding):
    """The options of a BullQueue.

    Options:
      delivery: `at-most-once`: jobs never run twice
    """

    title = "a BullQueue"
    in_python = True
    delivery: str = option(values.choice("at-least-once", "at-most-once"), "at-least-once")


class ServiceOptions(Rescuing):
    """The options of a Promoter or Rescuer."""

    title = "a Promoter or Rescuer"
    in_python = True


#: The classes of all verbs.
SCOPES: Final[tuple[type[Options], ...]] = (
    WriteOptions,
    ReadOptions,
    ClaimOptions,
    SettleOptions,
    ScheduleOptions,
    ManageOptions,
    LimitsOptions,
    CollectOptions,
    EventsOptions,
    WorkOptions,
    QueueOptions,
    ServiceOptions,
)
