"""The options, for the data source, the Python API, the command line and the documentation.

A class has the options of a verb, as typed attributes: with the parser, the default and the description of each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from spark_bull.core.keys import DEFAULT_PREFIX
from spark_bull.core.model.job_json import camel_case
from spark_bull.core.model.jobs import KeepRule, Priority
from spark_bull.core.model.limits import GroupLimits, Limiter, SlotRange, group_limits, parse_limiter
from spark_bull.core.options import values
from spark_bull.core.options.redis_settings import RedisSettings
from spark_bull.core.options.values import KeySource, key_sources

PROTOCOLS: Final = ("auto", "bull-1", "bull", "bullmq")
VIEWS: Final = (
    "jobs",
    "counts",
    "queues",
    "writes",
    "logs",
    "dependencies",
    "flows",
    "schedulers",
    "groups",
    "workers",
    "metrics",
    "stats",
    "events",
)
#: The default of the option `events`: as the Node libraries.
ALL_EVENTS: Final = "all"
#: See run/claims/claimer.py.
BATCH_SIZE: Final = "10,000; with a backlog up to 100,000, while batches take less than 5 s"
#: Options that can have secrets.
_NOT_SHOWN: Final = frozenset({"password", "url", "shardUrls", "resultPath", "offloadTo"})


class Option:
    """An option of a verb; see `option`. attribute: its name in Python, as in the class that has it."""

    attribute: str

    def __init__(self, parse: values.Parser, doc: str, default: Any, shown: str | None) -> None:
        self.parse, self.doc, self.default, self.shown = parse, doc, default, shown

    def __set_name__(self, _: type, name: str) -> None:
        self.attribute = name

    @property
    def name(self) -> str:
        """The name in Spark: `chunkSize`."""
        return camel_case(self.attribute)

    @property
    def default_text(self) -> str:
        """The default as Markdown."""
        if self.shown:
            return self.shown
        if isinstance(self.default, bool):
            return f"`{str(self.default).lower()}`"
        text = ",".join(self.default) if isinstance(self.default, tuple) else self.default
        return "" if text is None else f"`{text}`"


def option(parse: values.Parser, doc: str, default: Any = None, shown: str | None = None) -> Any:
    """An attribute with the value of an option. default: parsed. shown: the default as printed in the documentation."""
    return Option(parse, doc, default, shown)


def in_snake_case(name: str) -> str:
    """Returns the name of an option in Python: `chunk_size` for `chunkSize`."""
    return re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name)


class Options:
    """Parsed options: where a queue is. Attributes are named as in Python.

    given: names of the options that the user set, as in Spark. redis: the settings of the connection.
    """

    title: ClassVar[str]
    #: Whether the options are arguments of a Python function, which spells them in snake_case.
    in_python: ClassVar[bool] = False
    given: frozenset[str]
    redis: RedisSettings
    url: str | None = option(
        values.secret,
        "`redis://`, `rediss://` or `unix://` URL, with user, password and database; hosts with commas between them, "
        "of which the primary is used; a node of a Redis Cluster; or `redis+sentinel://host,host/name of the primary`",
        shown="`$SPARK_BULL_URL`, else `redis://localhost:6379`",
    )
    shard_urls: str | None = option(
        values.secrets,
        "instead of `url`: the URLs of the servers that share the shards of a queue, with spaces or commas between "
        "them. Shard n is on the server n modulo their number",
    )
    password: str | None = option(
        values.secret,
        "password, if it comes apart from the URL, as from a store of secrets; takes precedence over the one in `url`; "
        "never shown",
        shown="`$SPARK_BULL_PASSWORD`",
    )
    call_timeout_ms: int = option(values.integer(1), "timeout of one call to Redis, after which it is retried", 30_000)
    retry_ms: int = option(
        values.integer(0), "how long a call is retried, with exponential backoff, while Redis is unavailable", 20_000
    )
    address_map: values.AddressPairs | None = option(
        values.addresses,
        "addresses that the nodes of a cluster or Sentinels announce, and those to connect to instead, as behind NAT: "
        "`10.0.0.5:6379=127.0.0.1:7001, redis-2=localhost`; without a port, for all ports of the host",
        shown="`$SPARK_BULL_ADDRESS_MAP`",
    )
    prefix: str = option(values.text, "first part of every key, as in the Node library", DEFAULT_PREFIX)
    scan_keys: bool = option(
        values.flag,
        "whether a glob of queues scans all keys of the database; `false`: it finds the queues that spark_bull has "
        "written or worked, from a registry",
        True,
    )
    protocol: str = option(
        values.choice(*PROTOCOLS),
        "dialect of the queue: `bull-1` (Bull 1, 2), `bull` (3, 4), `bullmq` (5, 6); `auto` detects it",
        "auto",
    )
    bullmq_version: str = option(
        values.choice("auto", "5", "6"),
        "version of BullMQ where they differ: the list of jobs of a paused queue, `paused` (5) or `wait` (6), and some "
        "rules of deduplication ids; `auto` follows `meta.version`, else 5",
        "auto",
    )

    def __init__(self, given: frozenset[str], redis: RedisSettings, values: Mapping[str, Any]) -> None:
        vars(self).update(values, given=given, redis=redis)

    @classmethod
    def spelled(cls, name: str) -> str:
        """The name of an option, such as `chunkSize`, as its user spells it."""
        return in_snake_case(name) if cls.in_python else name

    def value(self, name: str) -> Any:
        """The value of an option by its name in Spark; None for one of another verb."""
        return getattr(self, in_snake_case(name), None)

    def __repr__(self) -> str:
        shown = {name: self.value(name) for name in sorted(self.given - _NOT_SHOWN)}
        return f"Options({shown})"


class SparkOptions(Options):
    """Options that all verbs of Spark have."""

    queue: str | None = option(
        values.text,
        "write: name of the queue (takes precedence over a `queue` column); read: names, comma separated, or a glob",
        shown="required, or a `queue` column",
    )
    mode: str | None = option(
        values.choose_mode,
        "`claim`: a streaming read claims jobs to be processed. `settle`: a write records the outcomes of claimed "
        "jobs. `schedule`: a write creates or changes job schedulers. `manage`: a write changes existing jobs. "
        "`limits`: a write sets limits of groups of jobs",
        shown="none: jobs are added or inspected",
    )
    chunk_size: int = option(
        values.integer(1, 2_000),
        "maximum number of jobs per script call",
        500,
        "500; when jobs are added or changed: 250",
    )


class Chunked(Options):
    """Of verbs that add or change jobs."""

    chunk_size: int = option(values.integer(1, 2_000), "maximum number of jobs per script call", 250)
    chunk_bytes: int = option(
        values.integer(1_024, 256 << 20),
        "maximum bytes of payload per script call; a larger job is sent alone",
        1 << 20,
    )


class Encrypted(Options):
    """Of verbs that see payloads or results."""

    encrypt_with: tuple[KeySource, ...] | None = option(
        key_sources,
        "keys that encrypt payloads and results, as ids and where the keys are: `a=env:NAME` or `a=file:/path`, with "
        "commas between them; the first one encrypts, all of them open",
        shown="nothing is encrypted, and encrypted payloads are shown as they are",
    )


class Offloading(Encrypted):
    """Of verbs that open payloads or results."""

    offload_to: str | None = option(
        values.secret,
        "folder for large payloads and results, a path or URL that fsspec knows, such as `s3://bucket/jobs`; one "
        "folder belongs to one Redis",
        shown="none, and the places of payloads that are stored there are shown as they are",
    )


class Storing(Offloading):
    """Of verbs that keep payloads or results."""

    offload_above: int | None = option(
        values.size,
        "with `offloadTo`: payloads and results of more bytes than this are stored there, such as `64kb`",
        shown="nothing is stored there",
    )


class Sharded(Options):
    """Of verbs that know the shards of a queue."""

    shards: int | str | None = option(
        values.shards,
        "number of the queues, `mail{0}`, `mail{1}`, …, that together are the logical queue `mail`; `auto`: as many as "
        "it has",
        shown="the queue has no shards",
    )


class Eventful(Options):
    """Of verbs that write events."""

    events: str = option(
        values.choice(ALL_EVENTS, "ends", "none"),
        "which events of jobs are written. `all`: as by the Node libraries. `ends`: not `added`, `waiting`, "
        "`waiting-children` and `active`. `none`: only `delayed`. Then nobody can wait for the end of a job, or read "
        "results of jobs that are removed when they end",
        ALL_EVENTS,
    )


class Replicated(Options):
    """Of verbs that can wait for replicas."""

    replicas: int | None = option(
        values.integer(1),
        "number of replicas of Redis that must have what was written before a write, or a call that adds jobs, ends "
        "(command `WAIT`)",
        shown="none",
    )
    replica_timeout_ms: int = option(
        values.integer(1),
        "with `replicas`, for how long to wait for them before the write or call fails, although it was made",
        10_000,
    )


class Staged(Replicated, SparkOptions):
    """Of writes that are staged and registered."""

    stage_ttl_ms: int = option(
        values.integer(1_000),
        "lifetime of the staged jobs of an uncommitted write; must exceed the duration of the Spark job",
        86_400_000,
    )
    txn_app_id: str | None = option(
        values.text, "with `txnVersion`: a write of the same application with the same or a lower version adds nothing"
    )
    txn_version: int | None = option(values.integer(0), "see `txnAppId`; an increasing number")
    fail_on_data_loss: bool = option(
        values.flag,
        "fail the write, before it has written anything, if Redis has lost an earlier one that the query or the "
        "process has made; `false`: log it",
        False,
    )


class Adding(Chunked, Storing, Eventful, Replicated):
    """Of verbs that add jobs: limits of the queue, and defaults of the jobs."""

    max_length: int | None = option(
        values.integer(1),
        "maximum number of jobs of the queue that are not active and have not ended, after jobs were added; see "
        "`whenFull`",
        shown="unlimited",
    )
    when_full: str = option(
        values.choice("fail", "wait", "drop"),
        "with `maxLength`, what happens to jobs for which there is no room: `fail`: an error; `wait`: they are added "
        "when there is room; `drop`: they are not added, and counted",
        "fail",
    )
    name: str | None = option(values.text, "default for a column of this name", shown="`__default__`")
    delay: int | None = option(values.integer(0), "default for a column of this name, ms")
    priority: Priority | None = option(
        values.priority,
        "default for a column of this name: a number, or `critical`, `high`, `medium`, `normal`, `low` (1 to 5)",
    )
    attempts: int | None = option(values.integer(0), "default for a column of this name")
    backoff: int | dict[str, Any] | None = option(
        values.backoff, "default for a column of this name: ms, or JSON with type, delay, jitter"
    )
    lifo: bool | None = option(values.flag, "default for a column of this name")
    remove_on_complete: KeepRule | None = option(
        values.keep, "default for a column of this name: true, a count, or JSON with age (s) and count"
    )
    remove_on_fail: KeepRule | None = option(values.keep, "default for a column of this name, as above")
    deduplication: str | dict[str, Any] | None = option(
        values.deduplication,
        "default for a column of this name: an id that one unfinished job of the queue can have, or JSON with id and a "
        "rule. JSON without id is the rule of all rows that give an id. BullMQ and Bull 4",
    )
    expire_after_ms: int | None = option(
        values.integer(1),
        "default for a column of this name: ms after its creation, after which a job does not start any more",
    )
    spread_ms: int | None = option(
        values.integer(0), "default for a column of this name: jobs are delayed by different times up to this one, ms"
    )
    lock_ms: int | None = option(
        values.integer(300),
        "default for a column of this name: duration of the lock of a job, ms, instead of its worker's; workers "
        "of Node ignore it",
    )
    opts: dict[str, Any] | None = option(values.json_object, "other options of the Node library, JSON, merged last")


class Reading(SparkOptions, Sharded):
    """Of all that reads queues for Spark."""

    fail_on_data_loss: bool = option(
        values.flag,
        "fail the query if finished jobs or events may be lost, or a job was removed before it was read. A stream of "
        "results fails if writes to the queue may be lost, too; a read with `writeId`, if a job is gone and nothing "
        "tells how it has ended. `false`: log it, or deliver a row with the state NULL",
        True,
    )


class Viewing(Reading):
    """Of reads that have views."""

    view: str = option(
        values.choice(*VIEWS),
        "table to read: `jobs`, `counts`, `queues`, `writes`, `logs`, `dependencies`, `flows`, `schedulers`, "
        "`groups`, `workers`, `metrics`, `stats` or `events`, which is also a stream (BullMQ)",
        "jobs",
    )


class PayloadTyped(Options):
    """Of verbs that give payloads a type."""

    payload_schema: str | None = option(
        values.text,
        "type of the column `data`: columns as DDL, a type of SQL, or `infer` (batch reads only); a write fails for a "
        "payload that does not match",
        shown="JSON text; a write checks nothing",
    )


class Resulting(Reading, PayloadTyped, Offloading):
    """Of reads of jobs."""

    return_schema: str | None = option(
        values.text, "type of the column `returnvalue`, as `payloadSchema`", shown="JSON text"
    )
    states: tuple[str, ...] = option(values.states, "only jobs in these states, comma separated", (), "all")
    write_id: str | None = option(
        values.text,
        "only the jobs of this write: one with the option `keepIds`, or an exactly-once write of jobs without ids of "
        "their own. A job that is gone has the state and value of its last event; the state NULL if it was removed "
        "before it had ended",
        shown="all",
    )


class Waiting(SparkOptions):
    """Of streams whose micro-batches can wait for more rows."""

    max_trigger_delay_ms: int = option(
        values.integer(0),
        "how long a micro-batch waits for `minJobsPerTrigger`, or `minEventsPerTrigger`, from the first of them on, ms",
        900_000,
    )


class Measured(Waiting):
    """Of streams whose micro-batches can have a maximum size."""

    max_bytes_per_trigger: int | None = option(
        values.integer(1),
        "maximum size of a micro-batch, bytes: the values of its rows as Redis has them; each queue has an equal "
        "share, and gives one row at least",
        shown="unlimited",
    )


class Ledgered(Waiting, Offloading):
    """Of streams whose progress is in a ledger."""

    min_jobs_per_trigger: int = option(
        values.integer(1), "number of jobs for which a micro-batch waits, for `maxTriggerDelayMs` at most", 1
    )
    max_jobs_per_trigger: int | None = option(
        values.integer(1), "maximum number of jobs per micro-batch", shown=BATCH_SIZE
    )
    reader_id: str | None = option(
        values.text, "name of the ledger; one query uses it at a time", shown="generated, stored in the checkpoint"
    )


class Starting(Reading):
    """Of streams of what has happened."""

    starting_offsets: str = option(
        values.start,
        "where a new query starts. `earliest`: with all finished jobs that exist, or the oldest event that is kept. "
        "`latest`: with jobs or events from now on; for results, this requires `readerId`. A time, ISO 8601 or ms "
        "since 1970: with jobs or events since then. Not for bull-1",
        values.EARLIEST,
    )


class Claiming(Offloading):
    """Of what claims jobs."""

    lock_ms: int = option(
        values.integer(300),
        "duration of the jobs' locks, ms, after which jobs of a dead query or slot can be rescued; extended while it "
        "runs",
        30_000,
    )
    limiter: Limiter | None = option(
        parse_limiter,
        "rate limit of the whole queue: at most `max` jobs start in `duration` ms, "
        '`{"max": 100, "duration": 1000}`. In Bull 3 and 4, `groupKey` limits each group, and jobs over the limit are '
        "delayed, unless `bounceBack` is true",
    )
    group: GroupLimits | None = option(
        group_limits,
        "limits of each group of jobs that has none of its own, "
        '`{"by": "tenant", "max": 5, "duration_ms": 1000, "concurrency": 2}`: at most `max` jobs start in '
        "`duration_ms`, and `concurrency` run at the same time, all optional. A job's group is its `opts.group.id`, "
        "else the field `by` of its payload",
    )


class Settling(Storing, Eventful):
    """Of what settles jobs."""

    remove_on_complete: KeepRule | None = option(
        values.keep,
        "which completed jobs to remove, for jobs without their own option: true removes all, false none; a number is "
        'how many to keep; `{"age": seconds, "count": jobs}` limits both',
        shown="all are kept",
    )
    remove_on_fail: KeepRule | None = option(values.keep, "the same for failed jobs", shown="all are kept")
    metrics_minutes: int = option(
        values.integer(0), "minutes of metrics to keep, as Node's `maxDataPoints`; 0: none", 0
    )


class Rescuing(Sharded, Eventful):
    """Of what returns stalled jobs."""

    max_stalled: int = option(values.integer(0), "how often a job may stall before it fails", 1)
    check_ms: int = option(values.integer(1), "interval of the check for stalled jobs, ms", 30_000)


class WriteOptions(Adding, Staged, Sharded, PayloadTyped):
    """The options of `df.write` and `df.writeStream`."""

    title = "writes"
    shard_by: tuple[str, ...] = option(
        values.names,
        "columns whose values say which shard a row goes to, so that jobs of one key keep their order",
        (),
        "`sequenceBy`, `uniqueBy` or the job id, whichever is given; else rows go to the shards in turn",
    )
    delivery: str = option(
        values.choice("exactly-once", "at-least-once", "at-most-once"),
        "`exactly-once`: all jobs become visible when Spark commits. "
        "`at-least-once`: each chunk as soon as it is complete. "
        "`at-most-once`: as `exactly-once`, and no job runs twice, unless a column `delivery` says `at-least-once`",
        "exactly-once",
    )
    keep_ids: bool = option(
        values.flag,
        "whether the write keeps the ids of its jobs for 30 days, for `writeId` and `spark_bull.write_results`. An "
        "exactly-once write of jobs without ids of their own needs it not: their numbers follow each other",
        False,
    )
    confirm_obliterate: bool = option(
        values.flag, 'with `mode("overwrite")`: delete the queue and all its jobs first (batch only)', False
    )
    job_columns: tuple[str, ...] = option(
        values.names,
        "columns that are settings of the job, comma separated, for a DataFrame without a column `data`; "
        "all other columns are the payload",
        (),
        "none",
    )
    job_id_column: str | None = option(
        values.text,
        "a column whose values are the ids of the jobs, and that stays in the payload: a row that is written again "
        "adds no second job. STRING or, except for BullMQ, an integer",
    )
    unique_by: tuple[str, ...] = option(
        values.names,
        "columns, comma separated, whose values as a JSON array are the deduplication id of a row. Columns beside "
        "`data` that are not settings are used for nothing else",
        (),
        "none",
    )
    on_finish: dict[str, Any] | None = option(
        values.json_object,
        "a job that runs once, when all jobs of the write have ended: JSON with name, data, opts and queue (by default "
        "the write's); BullMQ only",
        shown="none",
    )
    sequence_by: tuple[str, ...] = option(
        values.names,
        "columns, comma separated: jobs with the same values in them run one after the other, in the order of the rows "
        "and over several writes. Columns beside `data` that are not settings are used for nothing else. BullMQ only",
        (),
        "none",
    )
    on_failure: str | None = option(
        values.choice("wait", "ignore", "fail", "continue", "remove"),
        "what becomes of the job of `onFinish` when a job fails for good. `wait`: it waits until that job is retried. "
        "`ignore`, `remove`: it goes on. `fail`: it fails. `continue`: it starts at once. With `sequenceBy`, what "
        "becomes of the next job of its sequence: `ignore` or `fail`. With a column `dependsOn`, what becomes of the "
        "jobs that depend on it: not `continue`",
        shown="`wait`; with `sequenceBy` `ignore`",
    )
    telemetry: str = option(
        values.trace_context,
        "trace context of OpenTelemetry that jobs carry, JSON as returned by `current_trace()`; BullMQ only",
        "",
        "none",
    )


class ReadOptions(Viewing, Resulting):
    """The options of `spark.read`."""

    title = "reads"
    window_ms: int = option(
        values.integer(1),
        "`view=stats`: period, up to now, of the finished jobs whose times count, and of the rates",
        3_600_000,
    )
    max_depth: int = option(values.integer(1, 1_000), "`view=flows`: maximum number of levels of each flow", 10)
    max_jobs: int = option(values.integer(1, 100_000), "`view=flows`: maximum number of jobs of each flow", 1_000)
    job_ids: tuple[str, ...] = option(values.names, "only these jobs, comma separated", (), "all")
    num_partitions: int | None = option(
        values.integer(1, 10_000),
        "number of partitions, by a hash of the queue and the job id",
        shown="by size: 1 per 100,000 jobs, at most 4",
    )


class ClaimOptions(Ledgered, Claiming, Eventful):
    """The options of `spark.readStream` with `mode=claim`."""

    title = "streaming reads with mode=claim"
    rows_per_partition: int = option(
        values.integer(1),
        "maximum number of jobs, or events, per task of a micro-batch; fewer give more tasks, for more cores",
        5_000,
    )
    worker_name: str | None = option(
        values.text, "name that BullMQ stores as `processedBy`", shown="`spark-` and `readerId`"
    )


class SettleOptions(SparkOptions, Settling):
    """The options of `df.writeStream` with `mode=settle`."""

    title = "writes with mode=settle"


class ScheduleOptions(Staged):
    """The options of writes with `mode=schedule`."""

    title = "writes with mode=schedule"


class ManageOptions(Chunked, Staged, Encrypted):
    """The options of writes with `mode=manage`."""

    title = "writes with mode=manage"
    action: str | None = option(values.text, "what is done to the jobs, where no column `action` says it")
    on_mismatch: str = option(
        values.choice("skip", "fail"),
        "jobs that are gone, locked by a worker or in another state. `skip` leaves them alone and counts them. `fail` "
        "checks all jobs first and, if there is such a job, changes none",
        "skip",
    )
    result_path: str | None = option(
        values.text,
        "directory for a Parquet file with the outcome of each row: queue, id, action, outcome; path or URI of pyarrow",
        shown="none",
    )


class LimitsOptions(SparkOptions):
    """The options of writes with `mode=limits`."""

    title = "writes with mode=limits"


class CollectOptions(Starting, Resulting, Ledgered, Measured):
    """The options of `spark.readStream`: finished jobs."""

    title = "streaming reads"
    states: tuple[str, ...] = option(
        values.states, "only jobs in these states, comma separated", ("completed", "failed")
    )
    max_jobs_per_trigger: int = option(values.integer(1), "maximum number of jobs per micro-batch", 300_000)
    rows_per_partition: int | None = option(
        values.integer(1),
        "maximum number of jobs per task of a micro-batch; fewer give more tasks, for more cores",
        shown="150,000; of a micro-batch of 50,000 jobs or more at most half",
    )
    lookback_ms: int = option(
        values.integer(1_000, 86_400_000),
        "tolerated clock skew and delay of workers; the ledger keeps the ids of jobs of this period",
        60_000,
    )
    remove_on_read: bool = option(values.flag, "delete jobs from Redis after the batch with them is committed", False)


class EventsOptions(Starting, Viewing, Measured):
    """The options of `spark.readStream` with `view=events`."""

    title = "streaming reads with view=events"
    min_events_per_trigger: int = option(
        values.integer(1), "number of events for which a micro-batch waits, for `maxTriggerDelayMs` at most", 1
    )
    max_events_per_trigger: int = option(
        values.integer(1), "maximum number of events per micro-batch; each queue has an equal share", 500_000
    )
    rows_per_partition: int = option(
        values.integer(1),
        "maximum number of jobs, or events, per task of a micro-batch; fewer give more tasks, for more cores",
        50_000,
    )


class WorkOptions(Claiming, Settling, Rescuing):
    """The options of a Worker and a LocalWorker."""

    title = "a Worker"
    in_python = True
    retry: dict[str, int] | None = option(
        values.retry_rules,
        "maximum attempts of a job by the class of its error, instead of its own `attempts`; the most specific class "
        'wins; 0 fails the job at once; `{"TimeoutError": 5, "ValueError": 0}`',
        shown="each job has its own",
    )
    slots: int | SlotRange | None = option(
        values.slots,
        "number of Spark tasks that process jobs in parallel, one core each. `(1, 40)`: from 1 to 40, as many as the "
        "backlog needs, see `targetWaitS`. For functions of DataFrames: number of threads of the driver",
        shown="all cores but one, also cores of later executors, unless Spark allocates executors dynamically; for "
        "functions of DataFrames one",
    )
    target_wait_s: float = option(
        values.positive,
        "with a range of `slots`: there are enough slots for waiting jobs to start within this time, s",
        30.0,
    )
    concurrency: int = option(
        values.integer(1, 2_000),
        "maximum number of jobs that a slot processes at the same time: functions in threads, coroutine functions in "
        "an event loop. Each job is settled when it ends. Not for UDFs",
        1,
    )
    min_chunk: int = option(
        values.integer(1, 2_000),
        "number of jobs for which a call of a UDF or a function of DataFrames waits, `chunkWaitMs` at most",
        1,
    )
    chunk_wait_ms: int = option(values.integer(0), "see `minChunk`; ms", 1_000)
    chunk_size: int | None = option(
        values.integer(1, 100_000),
        "maximum number of jobs per claim of a slot, and per call of a UDF (2,000 at most) or a function of DataFrames",
        shown="100; UDFs: 200, or a larger `minChunk`; functions of DataFrames: 10,000, or 1,000 with `timeoutMs`",
    )
    timeout_ms: int = option(
        values.integer(0),
        "maximum duration of a job, for which its own `timeout` takes precedence, or of one call of a UDF or a "
        "function of DataFrames, ms; 0: unlimited",
        0,
    )
    extend_timeout_on_progress: bool = option(
        values.flag,
        "whether each report of a job's progress begins its timeout anew, as in Kue: functions of a job only",
        False,
    )
    worker_name: str | None = option(
        values.text,
        "name of the worker, which BullMQ stores as `processedBy` of its jobs",
        shown="`spark-` and the worker's id",
    )
    max_started: int = option(
        values.integer(0),
        "how often a job may start before it fails, also if its attempts ended without an outcome, as BullMQ's "
        "`maxStartedAttempts`; 0: unlimited; BullMQ only",
        0,
    )
    dead_letter_queue: str | None = option(
        values.text,
        "a queue that gets a copy of each job whose last attempt fails, with its origin and reason in "
        "`opts.deadLetter`, in the step that fails the job",
        shown="none",
    )
    promoter: bool = option(values.flag, "whether a `Promoter` for the queues runs on the driver", True)
    progress: bool | None = option(
        values.flag, "whether to show a line with the worker's progress", shown="on a terminal or in a notebook"
    )


class QueueOptions(Adding):
    """The options of a BullQueue."""

    title = "a BullQueue"
    in_python = True
    delivery: str = option(
        values.choice("at-least-once", "at-most-once"), "`at-most-once`: jobs never run twice", "at-least-once"
    )


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


_ROWS: Final[dict[type[Options], Mapping[str, Option]]] = {}


def options_in(scope: type[Options]) -> Mapping[str, Option]:
    """The options of a class by their names as users spell them, in lower case."""
    if scope not in _ROWS:
        own = {name: row for kind in reversed(scope.__mro__) for name, row in vars(kind).items()}
        rows = [row for row in own.values() if isinstance(row, Option)]
        _ROWS[scope] = {scope.spelled(row.name).lower(): row for row in rows}
    return _ROWS[scope]
