"""The table of options, for the data source, the Python API, the command line and the documentation.

A row has the name, the parser, the default, the scopes and the description of an option.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from spark_bull.core.keys import DEFAULT_PREFIX
from spark_bull.core.model.key_sources import key_sources
from spark_bull.core.model.limits import group_limits, parse_limiter
from spark_bull.core.options.values import (
    EARLIEST,
    Parser,
    addresses,
    backoff,
    choice,
    choose_mode,
    deduplication,
    flag,
    integer,
    json_object,
    keep,
    names,
    positive,
    priority,
    retry_rules,
    secret,
    secrets,
    shards,
    size,
    slots,
    start,
    states,
    text,
    trace_context,
)

WRITE: Final = "write"
READ: Final = "read"
CLAIM: Final = "claim"
SETTLE: Final = "settle"
SCHEDULE: Final = "schedule"
MANAGE: Final = "manage"
LIMITS: Final = "limits"
COLLECT: Final = "collect"
EVENTS: Final = "events"
WORK: Final = "work"
QUEUE: Final = "bull_queue"
SERVICE: Final = "service"

#: Scopes whose options are arguments of Python functions, which spell them in snake_case.
PYTHON_SCOPES: Final = frozenset({WORK, QUEUE, SERVICE})

#: Titles of the scopes in errors.
SCOPE_TITLES: Final = {
    WRITE: "writes",
    READ: "reads",
    CLAIM: "streaming reads with mode=claim",
    SETTLE: "writes with mode=settle",
    SCHEDULE: "writes with mode=schedule",
    MANAGE: "writes with mode=manage",
    LIMITS: "writes with mode=limits",
    COLLECT: "streaming reads",
    EVENTS: "streaming reads with view=events",
    WORK: "a Worker",
    QUEUE: "a BullQueue",
    SERVICE: "a Promoter or Rescuer",
}

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


@dataclass(frozen=True)
class Option:
    """One row of the table.

    default: the default value, parsed. shown: the default as printed in the documentation. scope_defaults: defaults of
    scopes that differ.
    """

    name: str
    parse: Parser
    default: Any
    scopes: tuple[str, ...]
    doc: str
    shown: str | None = None
    scope_defaults: Mapping[str, Any] = field(default_factory=dict)

    def default_in(self, scope: str) -> Any:
        return self.scope_defaults.get(scope, self.default)

    def default_text(self, scope: str | None = None) -> str:
        """The default as Markdown; that of a scope takes precedence over `shown`."""
        if self.shown and scope not in self.scope_defaults:
            return self.shown
        default = self.default if scope is None else self.default_in(scope)
        if isinstance(default, bool):
            return f"`{str(default).lower()}`"
        text = ",".join(default) if isinstance(default, tuple) else default
        return "" if default is None else f"`{text}`"


#: The default of the option `events`: as the Node libraries.
ALL_EVENTS: Final = "all"
#: See run/claims/batch_size.py.
BATCH_SIZE: Final = "10,000; with a backlog up to 100,000, while batches take less than 5 s"
ALL: Final = (WRITE, READ, CLAIM, SETTLE, SCHEDULE, MANAGE, LIMITS, COLLECT, EVENTS)
#: Scopes of the options that locate a queue and connect to Redis.
EVERYWHERE: Final = (*ALL, WORK, QUEUE, SERVICE)

TABLE: Final[tuple[Option, ...]] = (
    # where the queue is
    Option(
        "url",
        secret,
        None,
        EVERYWHERE,
        "`redis://`, `rediss://` or `unix://` URL, with user, password and database; hosts with commas between them, "
        "of which the primary is used; a node of a Redis Cluster; or `redis+sentinel://host,host/name of the primary`",
        "`$SPARK_BULL_URL`, else `redis://localhost:6379`",
    ),
    Option(
        "shardUrls",
        secrets,
        None,
        EVERYWHERE,
        "instead of `url`: the URLs of the servers that share the shards of a queue, with spaces or commas between "
        "them; shard n is on the server n modulo their number",
    ),
    Option(
        "password",
        secret,
        None,
        EVERYWHERE,
        "password, if it comes apart from the URL, as from a store of secrets; takes precedence over the one in `url`; "
        "never shown",
        "`$SPARK_BULL_PASSWORD`",
    ),
    Option("callTimeoutMs", integer(1), 30_000, EVERYWHERE, "timeout of one call to Redis, after which it is retried"),
    Option(
        "retryMs",
        integer(0),
        20_000,
        EVERYWHERE,
        "how long a call is retried, with exponential backoff, while Redis is unavailable",
    ),
    Option(
        "addressMap",
        addresses,
        None,
        EVERYWHERE,
        "addresses that the nodes of a cluster or Sentinels announce, and those to connect to instead, as behind NAT: "
        "`10.0.0.5:6379=127.0.0.1:7001, redis-2=localhost`; without a port, for all ports of the host",
        "`$SPARK_BULL_ADDRESS_MAP`",
    ),
    Option("prefix", text, DEFAULT_PREFIX, EVERYWHERE, "first part of every key, as in the Node library"),
    Option(
        "scanKeys",
        flag,
        True,
        EVERYWHERE,
        "whether a glob of queues scans all keys of the database; `false`: it finds the queues that spark_bull has "
        "written or worked, from a registry",
    ),
    Option(
        "queue",
        text,
        None,
        ALL,
        "write: name of the queue (takes precedence over a `queue` column); read: names, comma separated, or a glob",
        "required, or a `queue` column",
    ),
    Option(
        "shards",
        shards,
        None,
        (WRITE, READ, COLLECT, EVENTS, WORK, SERVICE),
        "number of the queues, `mail{0}`, `mail{1}`, …, that together are the logical queue `mail`; `auto`: as many as "
        "it has",
        "the queue has no shards",
    ),
    Option(
        "shardBy",
        names,
        (),
        (WRITE,),
        "columns whose values say which shard a row goes to, so that jobs of one key keep their order",
        "`sequenceBy`, `uniqueBy` or the job id, whichever is given; else rows go to the shards in turn",
    ),
    Option(
        "protocol",
        choice(*PROTOCOLS),
        "auto",
        EVERYWHERE,
        "dialect of the queue: `bull-1` (Bull 1, 2), `bull` (3, 4), `bullmq` (5, 6); `auto` detects it",
    ),
    Option(
        "bullmqVersion",
        choice("auto", "5", "6"),
        "auto",
        EVERYWHERE,
        "version of BullMQ where they differ: the list of jobs of a paused queue, `paused` (5) or `wait` (6), and some "
        "rules of deduplication ids; `auto` follows `meta.version`, else 5",
    ),
    Option(
        "mode",
        choose_mode,
        None,
        ALL,
        "`claim`: a streaming read claims jobs to be processed; `settle`: a write records the outcomes of claimed "
        "jobs; `schedule`: a write creates or changes job schedulers; `manage`: a write changes existing jobs; "
        "`limits`: a write sets limits of groups of jobs",
        "none: jobs are added or inspected",
    ),
    # how payloads and results are kept
    Option(
        "encryptWith",
        key_sources,
        None,
        (WRITE, READ, CLAIM, SETTLE, MANAGE, COLLECT, WORK, QUEUE),
        "keys that encrypt payloads and results, as ids and where the keys are: `a=env:NAME` or `a=file:/path`, with "
        "commas between them; the first one encrypts, all of them open",
        "nothing is encrypted, and encrypted payloads are shown as they are",
    ),
    Option(
        "offloadTo",
        secret,
        None,
        (WRITE, READ, CLAIM, SETTLE, COLLECT, WORK, QUEUE),
        "folder for large payloads and results, a path or URL that fsspec knows, such as `s3://bucket/jobs`; one "
        "folder belongs to one Redis",
        "none, and the places of payloads that are stored there are shown as they are",
    ),
    Option(
        "offloadAbove",
        size,
        None,
        (WRITE, SETTLE, WORK, QUEUE),
        "with `offloadTo`: payloads and results of more bytes than this are stored there, such as `64kb`",
        "nothing is stored there",
    ),
    # how a write works
    Option(
        "delivery",
        choice("exactly-once", "at-least-once", "at-most-once"),
        "exactly-once",
        (WRITE,),
        "`exactly-once`: all jobs become visible when Spark commits; "
        "`at-least-once`: each chunk as soon as it is complete; "
        "`at-most-once`: as `exactly-once`, and no job runs twice, unless a column `delivery` says `at-least-once`",
    ),
    Option(
        "delivery",
        choice("at-least-once", "at-most-once"),
        "at-least-once",
        (QUEUE,),
        "`at-most-once`: jobs never run twice",
    ),
    Option(
        "events",
        choice(ALL_EVENTS, "ends", "none"),
        ALL_EVENTS,
        (WRITE, CLAIM, SETTLE, WORK, QUEUE, SERVICE),
        "which events of jobs are written: `all`, as by the Node libraries; `ends`: not `added`, `waiting`, "
        "`waiting-children` and `active`; `none`: only `delayed`, so that waits for the end of a job, and results of "
        "jobs that are removed when they end, do not work",
    ),
    Option(
        "chunkSize",
        integer(1, 2_000),
        500,
        (*ALL, QUEUE),
        "maximum number of jobs per script call",
        "500; when jobs are added or changed: 250",
        {WRITE: 250, MANAGE: 250, QUEUE: 250},
    ),
    Option(
        "chunkBytes",
        integer(1_024, 256 << 20),
        1 << 20,
        (WRITE, MANAGE, QUEUE),
        "maximum bytes of payload per script call; a larger job is sent alone",
    ),
    Option(
        "stageTtlMs",
        integer(1_000),
        86_400_000,
        (WRITE, SCHEDULE, MANAGE),
        "lifetime of the staged jobs of an uncommitted write; must exceed the duration of the Spark job",
    ),
    Option(
        "keepIds",
        flag,
        False,
        (WRITE,),
        "whether the write keeps the ids of its jobs for 30 days, for `writeId` and `spark_bull.write_results`. An "
        "exactly-once write of jobs without ids of their own needs it not: their numbers follow each other",
    ),
    Option(
        "txnAppId",
        text,
        None,
        (WRITE, SCHEDULE, MANAGE),
        "with `txnVersion`: a write of the same application with the same or a lower version adds nothing",
    ),
    Option("txnVersion", integer(0), None, (WRITE, SCHEDULE, MANAGE), "see `txnAppId`; an increasing number"),
    Option(
        "maxLength",
        integer(1),
        None,
        (WRITE, QUEUE),
        "maximum number of jobs of the queue that are not active and have not ended, after jobs were added; see "
        "`whenFull`",
        "unlimited",
    ),
    Option(
        "whenFull",
        choice("fail", "wait", "drop"),
        "fail",
        (WRITE, QUEUE),
        "with `maxLength`, what happens to jobs for which there is no room: `fail`: an error; `wait`: they are added "
        "when there is room; `drop`: they are not added, and counted",
    ),
    Option(
        "replicas",
        integer(1),
        None,
        (WRITE, SCHEDULE, MANAGE, QUEUE),
        "number of replicas of Redis that must have what was written before a write, or a call that adds jobs, ends "
        "(command `WAIT`)",
        "none",
    ),
    Option(
        "replicaTimeoutMs",
        integer(1),
        10_000,
        (WRITE, SCHEDULE, MANAGE, QUEUE),
        "with `replicas`, for how long to wait for them before the write or call fails, although it was made",
    ),
    Option(
        "confirmObliterate",
        flag,
        False,
        (WRITE,),
        'with `mode("overwrite")`: delete the queue and all its jobs first (batch only)',
    ),
    Option(
        "jobColumns",
        names,
        (),
        (WRITE,),
        "columns that are settings of the job, comma separated, for a DataFrame without a column `data`; "
        "all other columns are the payload",
        "none",
    ),
    Option(
        "jobIdColumn",
        text,
        None,
        (WRITE,),
        "a column whose values are the ids of the jobs, and that stays in the payload: a row that is written again "
        "adds no second job; STRING or, except for BullMQ, an integer",
    ),
    # defaults for all rows
    Option("name", text, None, (WRITE, QUEUE), "default for a column of this name", "`__default__`"),
    Option("delay", integer(0), None, (WRITE, QUEUE), "default for a column of this name, ms"),
    Option(
        "priority",
        priority,
        None,
        (WRITE, QUEUE),
        "default for a column of this name: a number, or `critical`, `high`, `medium`, `normal`, `low` (1 to 5)",
    ),
    Option("attempts", integer(0), None, (WRITE, QUEUE), "default for a column of this name"),
    Option(
        "backoff",
        backoff,
        None,
        (WRITE, QUEUE),
        "default for a column of this name: ms, or JSON with type, delay, jitter",
    ),
    Option("lifo", flag, None, (WRITE, QUEUE), "default for a column of this name"),
    Option(
        "removeOnComplete",
        keep,
        None,
        (WRITE, QUEUE),
        "default for a column of this name: true, a count, or JSON with age (s) and count",
    ),
    Option(
        "removeOnFail",
        keep,
        None,
        (WRITE, QUEUE),
        "default for a column of this name, as above",
    ),
    Option(
        "deduplication",
        deduplication,
        None,
        (WRITE, QUEUE),
        "default for a column of this name: an id that one unfinished job of the queue can have, or JSON with id and a "
        "rule; JSON without id is the rule of all rows that give an id; BullMQ and Bull 4",
    ),
    Option(
        "uniqueBy",
        names,
        (),
        (WRITE,),
        "columns, comma separated, whose values as a JSON array are the deduplication id of a row; columns beside "
        "`data` that are not settings are used for nothing else",
        "none",
    ),
    Option(
        "onFinish",
        json_object,
        None,
        (WRITE,),
        "a job that runs once, when all jobs of the write have ended: JSON with name, data, opts and queue (by default "
        "that of the write); BullMQ only",
        "none",
    ),
    Option(
        "sequenceBy",
        names,
        (),
        (WRITE,),
        "columns, comma separated: jobs with the same values in them run one after the other, in the order of the rows "
        "and over several writes; columns beside `data` that are not settings are used for nothing else; BullMQ only",
        "none",
    ),
    Option(
        "onFailure",
        choice("wait", "ignore", "fail", "continue", "remove"),
        None,
        (WRITE,),
        "what a job that fails for good does to the job of `onFinish`: `wait`, until it is retried; `ignore` and "
        "`remove` go on; `fail` fails it; `continue` starts it at once. With `sequenceBy`, to the next job of its "
        "sequence: `ignore` or `fail`. With a column `dependsOn`, to the jobs that depend on it: not `continue`",
        "`wait`; with `sequenceBy` `ignore`",
    ),
    Option(
        "expireAfterMs",
        integer(1),
        None,
        (WRITE, QUEUE),
        "default for a column of this name: ms after its creation, after which a job does not start any more",
    ),
    Option(
        "spreadMs",
        integer(0),
        None,
        (WRITE, QUEUE),
        "default for a column of this name: jobs are delayed by different times up to this one, ms",
    ),
    Option(
        "lockMs",
        integer(300),
        None,
        (WRITE, QUEUE),
        "default for a column of this name: duration of the lock of a job, ms, instead of that of its worker; workers "
        "of Node ignore it",
    ),
    Option("opts", json_object, None, (WRITE, QUEUE), "other options of the Node library, JSON, merged last"),
    Option(
        "telemetry",
        trace_context,
        "",
        (WRITE,),
        "trace context of OpenTelemetry that jobs carry, JSON as returned by `current_trace()`; BullMQ only",
        "none",
    ),
    # how jobs are claimed
    Option(
        "maxJobsPerTrigger",
        integer(1),
        None,
        (CLAIM, COLLECT),
        "maximum number of jobs per micro-batch",
        BATCH_SIZE,
        scope_defaults={COLLECT: 300_000},
    ),
    Option(
        "maxEventsPerTrigger",
        integer(1),
        500_000,
        (EVENTS,),
        "maximum number of events per micro-batch; each queue has an equal share",
    ),
    Option(
        "rowsPerPartition",
        integer(1),
        5_000,
        (CLAIM, EVENTS),
        "maximum number of jobs, or events, per task of a micro-batch; fewer give more tasks, for more cores",
        scope_defaults={EVENTS: 50_000},
    ),
    Option(
        "lockMs",
        integer(300),
        30_000,
        (CLAIM, WORK),
        "duration of the jobs' locks, ms, after which jobs of a dead query or slot can be rescued; extended while it "
        "runs",
    ),
    Option(
        "readerId",
        text,
        None,
        (CLAIM, COLLECT),
        "name of the ledger; one query uses it at a time",
        "generated, stored in the checkpoint",
    ),
    Option(
        "workerName",
        text,
        None,
        (CLAIM,),
        "name that BullMQ stores as `processedBy`",
        "`spark-` and `readerId`",
    ),
    Option(
        "limiter",
        parse_limiter,
        None,
        (CLAIM, WORK),
        "rate limit of the whole queue: at most `max` jobs start in `duration` ms, "
        '`{"max": 100, "duration": 1000}`; in Bull 3 and 4, `groupKey` limits each group, and jobs over the limit are '
        "delayed, unless `bounceBack` is true",
    ),
    Option(
        "group",
        group_limits,
        None,
        (CLAIM, WORK),
        "limits of each group of jobs that has none of its own: at most `max` start in `duration_ms`, and "
        "`concurrency` run at the same time, all optional; a job's group is its `opts.group.id`, "
        "else the field `by` of its payload, "
        '`{"by": "tenant", "max": 5, "duration_ms": 1000, "concurrency": 2}`',
    ),
    # how they are settled
    Option(
        "retry",
        retry_rules,
        {},
        (WORK,),
        "maximum attempts of a job by the class of its error, instead of its own `attempts`: the nearest class of the "
        'error that has a rule counts, 0 fails the job at once, `{"TimeoutError": 5, "ValueError": 0}`; engine `loop`',
        "each job has its own",
    ),
    Option(
        "removeOnComplete",
        keep,
        None,
        (SETTLE, WORK),
        "which completed jobs to remove, for jobs without their own option: true removes all, false none; a number is "
        'how many to keep; `{"age": seconds, "count": jobs}` limits both',
        "all are kept",
    ),
    Option("removeOnFail", keep, None, (SETTLE, WORK), "the same for failed jobs", "all are kept"),
    Option(
        "metricsMinutes",
        integer(0),
        0,
        (SETTLE, WORK),
        "minutes of metrics to keep, as Node's `maxDataPoints`; 0: none",
    ),
    # how existing jobs are changed
    Option("action", text, None, (MANAGE,), "what is done to the jobs, where no column `action` says it"),
    Option(
        "onMismatch",
        choice("skip", "fail"),
        "skip",
        (MANAGE,),
        "jobs that are gone, locked by a worker or in another state: `skip` leaves them alone and counts them; `fail` "
        "checks all jobs first and, if there is one, changes none",
    ),
    Option(
        "resultPath",
        text,
        None,
        (MANAGE,),
        "directory for a Parquet file with the outcome of each row: queue, id, action, outcome; path or URI of pyarrow",
        "none",
    ),
    # how results are collected
    Option(
        "rowsPerPartition",
        integer(1),
        None,
        (COLLECT,),
        "maximum number of jobs per task of a micro-batch; fewer give more tasks, for more cores",
        "150,000; of a micro-batch of 50,000 jobs or more at most half",
    ),
    Option(
        "startingOffsets",
        start,
        EARLIEST,
        (COLLECT, EVENTS),
        "where a new query starts: `earliest`: with all existing finished jobs, or the oldest event that is kept; "
        "`latest`: with those from now on (with results, this requires `readerId`); a time, ISO 8601 or ms since 1970: "
        "with those since then; not for bull-1",
    ),
    Option(
        "maxPartitions",
        integer(1, 10_000),
        None,
        (CLAIM,),
        "maximum number of tasks per micro-batch; takes precedence over `rowsPerPartition`",
        "none",
    ),
    Option(
        "settledInBatch",
        flag,
        False,
        (CLAIM,),
        "whether all jobs of a micro-batch are settled when it ends: their locks are not extended after that, which "
        "saves work; a `Worker` sets it",
    ),
    Option(
        "lookbackMs",
        integer(1_000, 86_400_000),
        60_000,
        (COLLECT,),
        "tolerated clock skew and delay of workers; the ledger keeps the ids of jobs of this period",
    ),
    Option(
        "failOnDataLoss",
        flag,
        True,
        (READ, COLLECT, EVENTS),
        "fail the query if finished jobs, events or, with a stream of results, writes to the queue may be lost, or a "
        "job was removed before it was read; a read with `writeId`, if nothing tells how a job has ended that is gone; "
        "`false`: log it, or a row with the state NULL",
    ),
    Option(
        "failOnDataLoss",
        flag,
        False,
        (WRITE, SCHEDULE, MANAGE),
        "fail the write, before it has written anything, if Redis has lost an earlier one that the query or the "
        "process has made; `false`: log it",
    ),
    Option(
        "removeOnRead",
        flag,
        False,
        (COLLECT,),
        "delete jobs from Redis after the batch with them is committed",
    ),
    # what a read shows
    Option(
        "view",
        choice(*VIEWS),
        "jobs",
        (READ, EVENTS),
        "table to read: `jobs`, `counts`, `queues`, `writes`, `logs`, `dependencies`, `flows`, `schedulers`, "
        "`groups`, `workers`, `metrics`, `stats` or `events`, which is also a stream (BullMQ)",
    ),
    Option(
        "payloadSchema",
        text,
        None,
        (READ, COLLECT, WRITE),
        "type of the column `data`: columns as DDL, a type of SQL, or `infer` (batch reads only); a write fails for a "
        "payload that does not match",
        "JSON text; a write checks nothing",
    ),
    Option(
        "returnSchema",
        text,
        None,
        (READ, COLLECT),
        "type of the column `returnvalue`, as `payloadSchema`",
        "JSON text",
    ),
    Option(
        "states",
        states,
        (),
        (READ, COLLECT),
        "only jobs in these states, comma separated",
        "all",
        scope_defaults={COLLECT: ("completed", "failed")},
    ),
    Option(
        "windowMs",
        integer(1),
        3_600_000,
        (READ,),
        "`view=stats`: period, up to now, of the finished jobs whose times count, and of the rates",
    ),
    Option("maxDepth", integer(1, 1_000), 10, (READ,), "`view=flows`: maximum number of levels of each flow"),
    Option("maxJobs", integer(1, 100_000), 1_000, (READ,), "`view=flows`: maximum number of jobs of each flow"),
    Option("jobIds", names, (), (READ,), "only these jobs, comma separated", "all"),
    Option(
        "writeId",
        text,
        None,
        (READ, COLLECT),
        "only the jobs of this write: one with the option `keepIds`, or an exactly-once write of jobs without ids of "
        "their own. A job that is gone has the state and value of its last event; the state NULL if it was removed "
        "before it had ended",
        "all",
    ),
    Option(
        "numPartitions",
        integer(1, 10_000),
        None,
        (READ,),
        "number of partitions, by a hash of the queue and the job id",
        "by size: 1 per 100,000 jobs, at most 4",
    ),
    # arguments of a Worker
    Option(
        "engine",
        choice("auto", "loop", "stream"),
        "auto",
        (WORK,),
        "`loop`: slots; `stream`: micro-batches of a query; `auto`: `stream` for a function of DataFrames with a "
        "`checkpoint`, else `loop`",
    ),
    Option(
        "slots",
        slots,
        None,
        (WORK,),
        "number of Spark tasks that process jobs in parallel, one core each; `(1, 40)`: from 1 to 40, as many as the "
        "backlog needs, see `targetWaitS`",
        "all cores but one, also cores of executors that start later, unless Spark allocates executors dynamically",
    ),
    Option(
        "targetWaitS",
        positive,
        30.0,
        (WORK,),
        "with a range of `slots`: there are so many slots that jobs which wait now start within this time, s",
    ),
    Option(
        "concurrency",
        integer(1, 2_000),
        1,
        (WORK,),
        "maximum number of jobs that a slot processes at the same time: functions in threads, coroutine functions in "
        "an event loop; each job is settled when it ends; not for UDFs",
    ),
    Option(
        "minChunk",
        integer(1, 2_000),
        1,
        (WORK,),
        "number of jobs for which a call of a UDF waits, `chunkWaitMs` at most; engine `loop`",
    ),
    Option("chunkWaitMs", integer(0), 1_000, (WORK,), "see `minChunk`; ms"),
    Option(
        "chunkSize",
        integer(1, 2_000),
        None,
        (WORK,),
        "maximum number of jobs per claim of a slot, and per call of a UDF",
        "100; UDFs: 200, or `minChunk` if that is larger; functions of DataFrames: see `maxJobsPerTrigger`; engine "
        "`stream`: 500",
    ),
    Option(
        "timeoutMs",
        integer(0),
        0,
        (WORK,),
        "maximum duration of a job, for which its own `timeout` takes precedence, or of one call of a UDF or a "
        "function of DataFrames, ms; 0: unlimited",
    ),
    Option(
        "extendTimeoutOnProgress",
        flag,
        False,
        (WORK,),
        "whether each report of a job's progress begins its timeout anew, as in Kue: functions of a job only",
    ),
    Option(
        "workerName",
        text,
        None,
        (WORK,),
        "name of the worker, which BullMQ stores as `processedBy` of its jobs",
        "`spark-` and the worker's id",
    ),
    Option(
        "maxStarted",
        integer(0),
        0,
        (WORK,),
        "how often a job may start before it fails, also if its attempts ended without an outcome, as BullMQ's "
        "`maxStartedAttempts`; 0: unlimited; BullMQ only",
    ),
    Option("maxStalled", integer(0), 1, (WORK, SERVICE), "how often a job may stall before it fails"),
    Option("checkMs", integer(1), 30_000, (WORK, SERVICE), "interval of the check for stalled jobs, ms"),
    Option("promoter", flag, True, (WORK,), "whether a `Promoter` for the queues runs on the driver"),
    Option(
        "checkpoint",
        text,
        None,
        (WORK,),
        "engine `stream`: checkpoint folder, from which a later program continues",
        "a temporary one",
    ),
    Option(
        "maxJobsPerTrigger",
        integer(1),
        None,
        (WORK,),
        "maximum number of jobs per DataFrame: in slots 10,000 by default, or 1,000 with `timeoutMs`",
        BATCH_SIZE,
    ),
    Option(
        "progress",
        flag,
        None,
        (WORK,),
        "whether to show a line with the worker's progress",
        "on a terminal or in a notebook",
    ),
)
