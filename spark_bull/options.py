"""The table of options, for the data source, the Python API, the command line and the documentation.

A row has the name, the parser, the default, the scopes and the description of an option. Names are case-insensitive
(Spark converts them to lower case), values are case-sensitive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Final
from urllib.parse import urlsplit

from spark_bull.errors import OptionError, did_you_mean, expected
from spark_bull.group_limits import group_limits
from spark_bull.keys import DEFAULT_PREFIX
from spark_bull.model import STATES

Parser = Callable[[str, str], Any]

WRITE: Final = "write"
READ: Final = "read"
CLAIM: Final = "claim"
SETTLE: Final = "settle"
COLLECT: Final = "collect"
WORK: Final = "work"
QUEUE: Final = "bull_queue"
SERVICE: Final = "service"

#: Scopes whose options are arguments of Python functions, which spell them in snake_case.
PYTHON_SCOPES: Final = frozenset({WORK, QUEUE, SERVICE})

#: Titles of the scopes in errors.
_SCOPE_TITLES: Final = {
    WRITE: "writes",
    READ: "reads",
    CLAIM: "streaming reads with mode=claim",
    SETTLE: "writes with mode=settle",
    COLLECT: "streaming reads",
    WORK: "a Worker",
    QUEUE: "a BullQueue",
    SERVICE: "a Promoter or Rescuer",
}

#: Keys that Spark adds to the options of a source.
SPARK_OPTIONS: Final = frozenset({"path", "checkpointlocation", "queryname", "owner", "provider"})
REDIS_PREFIX: Final = "redis."
#: Settings of redis-py that have an option of this package.
OWNED_REDIS_SETTINGS: Final = frozenset(
    {"url", "host", "port", "db", "username", "password", "decode_responses", "connection_pool"}
)
PROTOCOLS: Final = ("auto", "bull-1", "bull", "bullmq")
VIEWS: Final = ("jobs", "counts", "queues", "writes", "logs", "workers")


def text(_name: str, value: str) -> str:
    return value


def flag(name: str, value: str) -> bool:
    lowered = value.strip().lower()
    if lowered in ("true", "1", "yes"):
        return True
    if lowered in ("false", "0", "no"):
        return False
    raise expected(name, "true or false", value)


def integer(low: int, high: int | None = None) -> Parser:
    if high is not None:
        what = f"an integer from {low:,} to {high:,}"
    else:
        what = {0: "an integer >= 0", 1: "a positive integer"}.get(low, f"an integer >= {low:,}")

    def parse(name: str, value: str) -> int:
        try:
            number = int(value.strip())
        except ValueError:
            raise expected(name, what, value) from None
        if number < low or (high is not None and number > high):
            raise expected(name, what, value)
        return number

    return parse


def choice(*choices: str) -> Parser:
    def parse(name: str, value: str) -> str:
        lowered = value.strip().lower()
        if lowered not in choices:
            raise expected(name, "one of " + ", ".join(choices), value)
        return lowered

    return parse


def names(_name: str, value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def states(name: str, value: str) -> tuple[str, ...]:
    found = names(name, value)
    for state in found:
        if state not in STATES:
            hint = did_you_mean(state, STATES)
            raise OptionError(f"expected `{name}` to list some of {', '.join(STATES)}, got: {state!r}{hint}")
    return found


def instant(name: str, value: str) -> int:
    """Parses ISO 8601 (UTC if there is no offset) or ms since 1970; returns ms since 1970."""
    if value.strip().isdigit():
        return int(value)
    try:
        moment = datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
    except ValueError:
        raise expected(name, "an ISO 8601 time or ms since 1970", value) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return int(moment.timestamp() * 1000)


def json_object(name: str, value: str) -> dict[str, Any]:
    parsed = _json_or_none(value)
    if not isinstance(parsed, dict):
        raise expected(name, "a JSON object", value)
    return parsed


def trace_context(name: str, value: str) -> str:
    """Checks the text, which is stored as it is; an empty object is nothing to store."""
    return value if json_object(name, value) else ""


def backoff(name: str, value: str) -> int | dict[str, Any]:
    """Parses ms or a JSON object, whose members are checked with the job."""
    parsed = _json_or_none(value)
    if isinstance(parsed, (int, dict)) and not (isinstance(parsed, bool) and parsed):
        return parsed
    raise expected(name, "ms, or a JSON object with type and delay", value)


KEEP_RULE: Final = "true, false, a count, or an object with age (s) and count"


def keep(name: str, value: str) -> Any:
    """Parses the rule how many finished jobs are kept: true keeps none, false all, a number is the count to keep."""
    lowered = value.strip().lower()
    parsed = lowered == "true" if lowered in ("true", "false") else _json_or_none(value)
    if parsed is None:
        raise expected(name, KEEP_RULE, value)
    check_keep(name, parsed)
    return parsed


def check_keep(name: str, value: object) -> None:
    """Raises OptionError for an invalid rule how many jobs to keep. -1 keeps all, as in the Node libraries."""
    if isinstance(value, Mapping):
        numbers = [number for key, number in value.items() if key in ("age", "count", "limit")]
        is_valid = bool(numbers) and len(numbers) == len(value) and all(map(_is_count, numbers))
    else:
        is_valid = isinstance(value, bool) or _is_count(value)
    if not is_valid:
        raise expected(name, KEEP_RULE, value)


def _is_count(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= -1


def limiter(name: str, value: str) -> tuple[int, int]:
    """Parses a JSON object {"max": jobs, "duration": ms}; returns (jobs, ms)."""
    parsed = _json_or_none(value)
    if isinstance(parsed, dict) and set(parsed) == {"max", "duration"}:
        limit = (parsed["max"], parsed["duration"])
        if all(isinstance(number, int) and not isinstance(number, bool) and number >= 1 for number in limit):
            return limit
    raise expected(name, 'an object such as {"max": 100, "duration": 1000} (jobs, ms), both positive integers', value)


def _json_or_none(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


choose_mode: Final = choice("claim", "settle")


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


ALL: Final = (WRITE, READ, CLAIM, SETTLE, COLLECT)
#: Scopes of the options that locate a queue and connect to Redis.
EVERYWHERE: Final = (*ALL, WORK, QUEUE, SERVICE)

TABLE: Final[tuple[Option, ...]] = (
    # where the queue is
    Option(
        "url",
        text,
        None,
        EVERYWHERE,
        "`redis://`, `rediss://` or `unix://` URL, with user, password and database",
        "`$SPARK_BULL_URL`, else host and port",
    ),
    Option("host", text, "localhost", EVERYWHERE, "host of Redis if there is no `url`"),
    Option("port", integer(1, 65535), 6379, EVERYWHERE, "port of Redis if there is no `url`"),
    Option("db", integer(0), 0, EVERYWHERE, "number of the database if there is no `url`"),
    Option("username", text, None, EVERYWHERE, "ACL user; takes precedence over the one in `url`"),
    Option(
        "password",
        text,
        None,
        EVERYWHERE,
        "password; takes precedence over the one in `url`; never shown",
        "`$SPARK_BULL_PASSWORD`",
    ),
    Option("ssl", flag, False, EVERYWHERE, "whether to use TLS if there is no `url`"),
    Option("callTimeoutMs", integer(1), 30_000, EVERYWHERE, "timeout of one call to Redis, after which it is retried"),
    Option(
        "retryMs",
        integer(0),
        20_000,
        EVERYWHERE,
        "how long a call is retried, with exponential backoff, while Redis is unavailable",
    ),
    Option("prefix", text, DEFAULT_PREFIX, EVERYWHERE, "first part of every key, as in the Node library"),
    Option(
        "queue",
        text,
        None,
        ALL,
        "write: name of the queue (takes precedence over a `queue` column); read: names, comma separated, or a glob",
        "required, or a `queue` column",
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
        "where jobs of a paused BullMQ queue go: list `paused` (5) or `wait` (6); "
        "`auto` follows `meta.version`, else 6",
    ),
    Option(
        "mode",
        choose_mode,
        None,
        ALL,
        "`claim`: a streaming read claims jobs to be processed; `settle`: a write records the outcomes of claimed jobs",
        "none: jobs are added or inspected",
    ),
    # how a write works
    Option(
        "delivery",
        choice("exactly-once", "at-least-once"),
        "exactly-once",
        (WRITE,),
        "`exactly-once`: all jobs become visible when Spark commits; "
        "`at-least-once`: each chunk as soon as it is complete",
    ),
    Option("chunkSize", integer(1, 2_000), 500, (*ALL, QUEUE), "maximum number of jobs per script call"),
    Option(
        "chunkBytes",
        integer(1_024, 256 << 20),
        1 << 20,
        (WRITE, QUEUE),
        "maximum bytes of payload per script call; a larger job is sent alone",
    ),
    Option(
        "stageTtlMs",
        integer(1_000),
        86_400_000,
        (WRITE,),
        "lifetime of the staged jobs of an uncommitted write; must exceed the duration of the Spark job",
    ),
    Option(
        "txnAppId",
        text,
        None,
        (WRITE,),
        "with `txnVersion`: a write of the same application with the same or a lower version adds nothing",
    ),
    Option("txnVersion", integer(0), None, (WRITE,), "see `txnAppId`; an increasing number"),
    Option(
        "confirmObliterate",
        flag,
        False,
        (WRITE,),
        'with `mode("overwrite")`: delete the queue and all its jobs first (batch only)',
    ),
    Option(
        "ignoreNullFields",
        flag,
        True,
        (WRITE,),
        "omit null fields from the JSON of a STRUCT, as Spark's `to_json` does",
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
    # defaults for all rows
    Option("name", text, None, (WRITE, QUEUE), "default for a column of this name", "`__default__`"),
    Option("delay", integer(0), None, (WRITE, QUEUE), "default for a column of this name, ms"),
    Option("runAt", instant, None, (WRITE, QUEUE), "default for a column of this name, ISO 8601 or ms"),
    Option("priority", integer(0), None, (WRITE, QUEUE), "default for a column of this name"),
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
    Option("timestamp", instant, None, (WRITE, QUEUE), "default for a column of this name", "now (Redis)"),
    Option("opts", json_object, None, (WRITE, QUEUE), "further options of the Node library, JSON, merged last"),
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
        10_000,
        (CLAIM, COLLECT),
        "maximum number of jobs per micro-batch",
        scope_defaults={COLLECT: 100_000},
    ),
    Option(
        "rowsPerPartition",
        integer(1),
        5_000,
        (CLAIM, COLLECT),
        "maximum number of jobs per task of a micro-batch",
        scope_defaults={COLLECT: 50_000},
    ),
    Option(
        "lockMs",
        integer(300),
        30_000,
        (CLAIM,),
        "duration of the jobs' locks, after which jobs of a dead query can be rescued; extended while the query runs",
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
        limiter,
        None,
        (CLAIM, WORK),
        'rate limit of the whole queue: at most `max` jobs start in `duration` ms, `{"max": 100, "duration": 1000}`',
    ),
    Option(
        "group",
        group_limits,
        None,
        (CLAIM, WORK),
        "limits of each group of jobs: at most `max` start in `duration_ms`, and `concurrency` run at the same time; a "
        "job's group is its `opts.group.id`, else the field `by` of its payload, "
        '`{"by": "tenant", "max": 5, "duration_ms": 1000, "concurrency": 2}`',
    ),
    # how they are settled
    Option(
        "removeOnComplete", keep, None, (SETTLE,), f"for jobs without a rule of their own: {KEEP_RULE}", "all are kept"
    ),
    Option("removeOnFail", keep, None, (SETTLE,), "for jobs without a rule of their own, as above", "all are kept"),
    Option(
        "metricsMinutes", integer(0), 0, (SETTLE,), "minutes of metrics to keep, as Node's `maxDataPoints`; 0: none"
    ),
    # how results are collected
    Option(
        "startingOffsets",
        choice("earliest", "latest"),
        "earliest",
        (COLLECT,),
        "where a new query starts: with all existing finished jobs, or with jobs that finish from now on "
        "(requires `readerId`)",
    ),
    Option(
        "startingTimestamp",
        instant,
        None,
        (COLLECT,),
        "where a new query starts: with jobs that finished since this time, ISO 8601 or ms; not for bull-1",
        "by `startingOffsets`",
    ),
    Option(
        "minPartitions",
        integer(1, 10_000),
        1,
        (COLLECT,),
        "minimum number of tasks per micro-batch, if it has that many jobs",
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
        (COLLECT,),
        "fail the query if finished jobs may be lost, or a job was removed before it was read; `false`: log a warning",
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
        (READ,),
        "table to read: `jobs`, `counts`, `queues`, `writes`, `logs` or `workers`",
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
    Option("jobIds", names, (), (READ,), "only these jobs, comma separated", "all"),
    Option(
        "numPartitions",
        integer(1, 10_000),
        None,
        (READ,),
        "number of partitions, by a hash of the job id",
        "by size: 1 per 100,000 jobs, at most 16",
    ),
    # arguments of a Worker, as Python spells them
    Option(
        "engine",
        choice("auto", "loop", "stream"),
        "auto",
        (WORK,),
        "`loop`: long tasks; `stream`: micro-batches; `auto`: `stream` for functions of DataFrames, else `loop`",
    ),
    Option(
        "slots", integer(1), None, (WORK,), "number of Spark tasks that process jobs in parallel", "all cores but one"
    ),
    Option(
        "concurrency",
        integer(1, 2_000),
        1,
        (WORK,),
        "maximum number of jobs that a slot processes at the same time: functions in threads, coroutine functions in "
        "an event loop; each job is settled when it ends",
    ),
    Option(
        "min_chunk",
        integer(1, 2_000),
        1,
        (WORK,),
        "number of jobs for which a call of a UDF waits, `chunk_wait_ms` at most; engine `loop`",
    ),
    Option("chunk_wait_ms", integer(0), 1_000, (WORK,), "see `min_chunk`; ms"),
    Option("chunk_size", integer(1, 2_000), 200, (WORK,), "maximum number of jobs per claim of a slot"),
    Option(
        "timeout_ms", integer(0), 0, (WORK,), "maximum duration of a job, or of one call of a UDF, ms; 0: unlimited"
    ),
    Option(
        "lock_ms",
        integer(300),
        30_000,
        (WORK,),
        "duration of the jobs' locks, ms, after which jobs of a dead slot can be rescued; extended while the slot runs",
    ),
    Option("name", text, None, (WORK,), "name of the worker, which BullMQ stores as `processedBy`"),
    Option(
        "remove_on_complete", keep, None, (WORK,), f"for jobs without a rule of their own: {KEEP_RULE}", "all are kept"
    ),
    Option("remove_on_fail", keep, None, (WORK,), "for jobs without a rule of their own, as above", "all are kept"),
    Option("metrics_minutes", integer(0), 0, (WORK,), "minutes of metrics to keep, as Node's `maxDataPoints`; 0: none"),
    Option(
        "max_started",
        integer(0),
        0,
        (WORK,),
        "how often a job may start, whatever ended its attempts, before it fails, as BullMQ's `maxStartedAttempts`; "
        "0: unlimited; BullMQ only",
    ),
    Option("max_stalled", integer(0), 1, (WORK, SERVICE), "how often a job may stall before it fails"),
    Option("check_ms", integer(1), 30_000, (WORK, SERVICE), "interval of the check for stalled jobs, ms"),
    Option("promoter", flag, True, (WORK,), "run a `Promoter` on the driver"),
    Option(
        "checkpoint",
        text,
        None,
        (WORK,),
        "engine `stream`: checkpoint folder, from which a later program continues",
        "a temporary one",
    ),
    Option(
        "max_jobs_per_trigger", integer(1), 10_000, (WORK,), "engine `stream`: maximum number of jobs per micro-batch"
    ),
    Option("progress", flag, None, (WORK,), "show a line with the worker's progress", "on a terminal or in a notebook"),
)


def spelled(name: str, scope: str) -> str:
    """Returns the spelling of an option in a scope: `chunkSize`, and `chunk_size` in Python."""
    if scope not in PYTHON_SCOPES:
        return name
    return re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name)


#: The rows by lower-case name and scope. A name may have different rows in different scopes.
_ROWS: Final = {(spelled(row.name, scope).lower(), scope): row for row in TABLE for scope in row.scopes}


@dataclass(frozen=True, repr=False)
class Options:
    """Parsed options: `options["chunkSize"]`. given: names of the options that the user set."""

    values: Mapping[str, Any]
    given: frozenset[str]
    redis: Mapping[str, str]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __repr__(self) -> str:
        shown = {n: self.values[n] for n in sorted(self.given) if n not in ("password", "url")}
        return f"Options({shown})"


def parse_options(raw: Mapping[str, str], scope: str) -> Options:
    """Parses the options of a scope.

    Raises OptionError for an unknown name (with the nearest known one), an option of another scope, and an invalid
    value.
    """
    given: dict[str, Any] = {}
    redis_settings: dict[str, str] = {}
    for name, value in raw.items():
        lowered = name.lower()
        if is_spark_option(lowered):
            continue
        if lowered.startswith(REDIS_PREFIX):
            setting = lowered[len(REDIS_PREFIX) :]
            if setting in OWNED_REDIS_SETTINGS:
                raise OptionError(
                    f"`{name}` cannot be passed to redis-py: use `url`, `host`, `port`, `db`, `username` or `password`"
                )
            redis_settings[setting] = value
            continue
        option = _ROWS.get((lowered, scope))
        if option is None:
            raise unknown_option(name, scope)
        given[option.name] = option.parse(spelled(option.name, scope), value)
    values = {o.name: given.get(o.name, o.default_in(scope)) for o in TABLE if scope in o.scopes}
    _check_together(given, scope)
    return Options(values, frozenset(given), redis_settings)


def is_spark_option(lowered: str) -> bool:
    """Whether Spark adds an option of this lower-case name to the options of a source."""
    return lowered in SPARK_OPTIONS or lowered.startswith("option.")


def scopes_of(name: str) -> frozenset[str]:
    """Returns the scopes that have an option of this name."""
    return frozenset(scope for lowered, scope in _ROWS if lowered == name.lower())


def unknown_option(name: str, *scopes: str) -> OptionError:
    """Creates the error for an unknown option, with the nearest option of the scopes."""
    near = did_you_mean(name, (spelled(row.name, scope) for row in TABLE for scope in scopes if scope in row.scopes))
    same_name = [option for option in TABLE if option.name.lower() == name.lower()]
    if not same_name or any(set(scopes) & set(option.scopes) for option in same_name):
        return OptionError(f"unknown option `{name}`{near}")
    other = same_name[0]
    return OptionError(
        f"option `{other.name}` is for {_SCOPE_TITLES[other.scopes[0]]}, not for {_SCOPE_TITLES[scopes[0]]}{near}"
    )


def parse_arguments(
    arguments: Mapping[str, Any], redis: Mapping[str, str] | None, scope: str, unknown: Mapping[str, Any]
) -> Options:
    """Parses the arguments of a Python function; None means not given.

    redis: settings of redis-py. unknown: arguments that are not in the function's signature. Raises OptionError as
    parse_options does.
    """
    for name in unknown:
        raise unknown_option(name, scope)
    return parse_options(as_texts(arguments) | redis_options(redis), scope)


def redis_options(redis: Mapping[str, str] | None) -> dict[str, str]:
    """Converts settings of redis-py to options: `redis.client_name`, …"""
    return {f"{REDIS_PREFIX}{name}": str(value) for name, value in (redis or {}).items()}


def as_options(arguments: Mapping[str, Any], scope: str) -> dict[str, str]:
    """Converts arguments of a Python function to options of the data source."""
    return {_ROWS[name, scope].name: value for name, value in as_texts(arguments).items()}


def as_texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Converts keyword arguments to strings that options are parsed from; drops None. Raises OptionError."""
    return {name: _as_text(name, value) for name, value in options.items() if value is not None}


def _as_text(name: str, value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if not isinstance(value, (bool, int, float, dict, list, tuple)):
        return str(value)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise OptionError(f"expected `{name}` to be a value that JSON can hold: {error}") from None


def _check_together(given: Mapping[str, Any], scope: str) -> None:
    if ("txnAppId" in given) != ("txnVersion" in given):
        missing = "txnVersion" if "txnAppId" in given else "txnAppId"
        raise OptionError(f"expected `txnAppId` and `txnVersion` together, got no `{missing}`")
    if "delay" in given and "runAt" in given:
        run_at = spelled("runAt", scope)
        raise OptionError(f"expected one of `delay` and `{run_at}`, got both: leave one out")
    if "startingOffsets" in given and "startingTimestamp" in given:
        raise OptionError("expected one of `startingOffsets` and `startingTimestamp`, got both: leave one out")
    if "url" in given and ("host" in given or "port" in given):
        raise OptionError("expected one of `url` and `host`/`port`, got both: leave one out")
    if "url" in given:
        check_url(given["url"])


def check_url(url: str) -> None:
    """Raises OptionError unless redis-py accepts `url`. The message contains no password."""
    scheme = url.partition("://")[0] if "://" in url else "none"
    if scheme not in ("redis", "rediss", "unix"):
        raise OptionError(f"expected `url` to start with redis://, rediss:// or unix://, got: {masked(url)!r}")
    try:
        parts = urlsplit(url)
        is_valid = scheme == "unix" or (
            parts.port != 0 and not parts.fragment and re.fullmatch("(/[0-9]*)?", parts.path)
        )
    except ValueError:
        is_valid = False
    if not is_valid or "@" in parts.query:
        raise OptionError(
            f"expected `url` to be {scheme}://[user[:password]@]host[:port][/database], got: {masked(url)!r}: "
            "percent-encode a password with one of / ? # @ : [ ], or pass it as `password`"
        )


def masked(url: str) -> str:
    """Masks what is, or may be, a secret in a URL, which may be invalid."""
    scheme, separator, rest = url.rpartition("://")
    _, at, place = rest.rpartition("@")
    place, question, query = place.partition("?")
    if scheme != "unix":
        # A non-numeric port may be a password without a host.
        place = re.sub(r"(^|[^:\[]):(?![\d/]*(?:/|$))[^\]/]*(?=/|$)", r"\1:***", place)
    hidden = question and "password" in query.lower()
    return f"{scheme}{separator}{'***@' if at else ''}{place}{question}{'***' if hidden else query}"
