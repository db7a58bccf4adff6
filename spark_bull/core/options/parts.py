"""The options that several verbs have; table.py has all options of each verb.

A class has the options of a verb, as typed attributes with parsers and defaults. Its docstring lists what they do;
`Default:` stands at the end of a text for a default that is no value.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Final

from spark_bull.core.keys import DEFAULT_PREFIX
from spark_bull.core.model.job_json import camel_case
from spark_bull.core.model.jobs import KeepRule, Priority
from spark_bull.core.model.limits import GroupLimits, Limiter, group_limits, parse_limiter
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
#: Options that can have secrets.
_NOT_SHOWN: Final = frozenset({"password", "url", "shardUrls", "resultPath", "offloadTo"})
#: Parsers by the types of attributes.
_PARSERS: Final[Mapping[str, values.Parser]] = {
    "str": values.text,
    "str | None": values.text,
    "bool": values.flag,
    "bool | None": values.flag,
    "tuple[str, ...]": values.names,
}


class Option:
    """An option of a verb; see `option`. attribute: its name in Python, as in the class that has it."""

    attribute: str

    def __init__(self, parse: values.Parser | None, default: Any) -> None:
        self._parse, self.default = parse, default

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self.attribute = owner, name

    @property
    def name(self) -> str:
        """The name in Spark: `chunkSize`."""
        return camel_case(self.attribute)

    @property
    def parse(self) -> values.Parser:
        """The parser of the value."""
        return self._parse or _PARSERS[self._owner.__annotations__[self.attribute]]

    @property
    def doc(self) -> str:
        """What the option does, as Markdown; "" without docstrings (`python -OO`)."""
        return self._texts[0]

    @property
    def default_text(self) -> str:
        """The default as Markdown."""
        if self._texts[2]:
            return self._texts[2]
        if isinstance(self.default, bool):
            return f"`{str(self.default).lower()}`"
        text = ",".join(self.default) if isinstance(self.default, tuple) else self.default
        return "" if text is None else f"`{text}`"

    @property
    def _texts(self) -> tuple[str, str, str]:
        text = listed_texts(self._owner.__doc__, "Options").get(self.attribute, "")
        return " ".join(text.split()).partition(". Default: ")


def option(parse: values.Parser | None = None, default: Any = None) -> Any:
    """An attribute with the value of an option, which the docstring of the class describes.

    parse: default: by the type of the attribute. default: the parsed value without the option.
    """
    return Option(parse, default)


@cache
def listed_texts(doc: str | None, title: str) -> dict[str, str]:
    """Returns what each name of a list in a docstring means, such as a parameter of the list `Parameters:`."""
    _, _, after = inspect.cleandoc(doc or "").partition(f"\n{title}:\n")
    return dict(re.findall(r"^  (\w+): (.*(?:\n    .*)*)", after.partition("\n\n")[0], re.MULTILINE))


def in_snake_case(name: str) -> str:
    """Returns the name of an option in Python: `chunk_size` for `chunkSize`."""
    return re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name)


class Options:
    """Parsed options: where a queue is. Attributes are named as in Python.

    given: names of the options that the user set, as in Spark. redis: the settings of the connection.

    Options:
      url: `redis://`, `rediss://` or `unix://` URL, with user, password and database; hosts with commas between them,
        of which the primary is used; a node of a Redis Cluster; or `redis+sentinel://host,host/name of the primary`.
        Default: `$SPARK_BULL_URL`, else `redis://localhost:6379`
      shard_urls: instead of `url`: the URLs of the servers that share the shards of a queue, with spaces or commas
        between them. Shard n is on the server n modulo their number
      password: password, if it comes apart from the URL, as from a store of secrets; takes precedence over the one in
        `url`; never shown. Default: `$SPARK_BULL_PASSWORD`
      call_timeout_ms: timeout of one call to Redis, after which it is retried
      retry_ms: how long a call is retried, with exponential backoff, while Redis is unavailable
      address_map: addresses that the nodes of a cluster or Sentinels announce, and those to connect to instead, as
        behind NAT: `10.0.0.5:6379=127.0.0.1:7001, redis-2=localhost`; without a port, for all ports of the host.
        Default: `$SPARK_BULL_ADDRESS_MAP`
      prefix: first part of every key, as in the Node library
      scan_keys: whether a glob of queues scans all keys of the database; `false`: it finds the queues that spark_bull
        has written or worked, from a registry
      protocol: dialect of the queue: `bull-1` (Bull 1, 2), `bull` (3, 4), `bullmq` (5, 6); `auto` detects it
      bullmq_version: version of BullMQ where they differ: the list of jobs of a paused queue, `paused` (5) or `wait`
        (6), and some rules of deduplication ids. `auto` follows `meta.version`, else 5
    """

    title: ClassVar[str]
    #: Whether the options are arguments of a Python function, which spells them in snake_case.
    in_python: ClassVar[bool] = False
    given: frozenset[str]
    redis: RedisSettings
    url: str | None = option(values.secret)
    shard_urls: str | None = option(values.secrets)
    password: str | None = option(values.secret)
    call_timeout_ms: int = option(values.integer(1), 30_000)
    retry_ms: int = option(values.integer(0), 20_000)
    address_map: values.AddressPairs | None = option(values.addresses)
    prefix: str = option(default=DEFAULT_PREFIX)
    scan_keys: bool = option(default=True)
    protocol: str = option(values.choice(*PROTOCOLS), "auto")
    bullmq_version: str = option(values.choice("auto", "5", "6"), "auto")

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
    """Options that all verbs of Spark have.

    Options:
      queue: write: name of the queue (takes precedence over a `queue` column); read: names, comma separated, or a glob.
        Default: required, or a `queue` column
      mode: `claim`: a streaming read claims jobs to be processed. `settle`: a write records the outcomes of claimed
        jobs. `schedule`: a write creates or changes job schedulers. `manage`: a write changes existing jobs. `limits`:
        a write sets limits of groups of jobs. Default: none: jobs are added or inspected
      chunk_size: maximum number of jobs per script call. Default: 500; when jobs are added or changed: 250
    """

    queue: str | None = option()
    mode: str | None = option(values.choose_mode)
    chunk_size: int = option(values.integer(1, 2_000), 500)


class Chunked(Options):
    """Of verbs that add or change jobs.

    Options:
      chunk_size: maximum number of jobs per script call
      chunk_bytes: maximum bytes of payload per script call; a larger job is sent alone
    """

    chunk_size: int = option(values.integer(1, 2_000), 250)
    chunk_bytes: int = option(values.integer(1_024, 256 << 20), 1 << 20)


class Encrypted(Options):
    """Of verbs that see payloads or results.

    Options:
      encrypt_with: keys that encrypt payloads and results, as ids and where the keys are: `a=env:NAME` or
        `a=file:/path`, with commas between them. The first one encrypts, all of them open. Default: nothing is
        encrypted, and encrypted payloads are shown as they are
    """

    encrypt_with: tuple[KeySource, ...] | None = option(key_sources)


class Offloading(Encrypted):
    """Of verbs that open payloads or results.

    Options:
      offload_to: folder for large payloads and results, a path or URL that fsspec knows, such as `s3://bucket/jobs`.
        One folder belongs to one Redis. Default: none, and the places of payloads that are stored there are shown as
        they are
    """

    offload_to: str | None = option(values.secret)


class Storing(Offloading):
    """Of verbs that keep payloads or results.

    Options:
      offload_above: with `offloadTo`: payloads and results of more bytes than this are stored there, such as `64kb`.
        Default: nothing is stored there
    """

    offload_above: int | None = option(values.size)


class Sharded(Options):
    """Of verbs that know the shards of a queue.

    Options:
      shards: number of the queues, `mail{0}`, `mail{1}`, …, that together are the logical queue `mail`; `auto`: as many
        as it has. Default: the queue has no shards
    """

    shards: int | str | None = option(values.shards)


class Eventful(Options):
    """Of verbs that write events.

    Options:
      events: which events of jobs are written. `all`: as by the Node libraries. `ends`: not `added`, `waiting`,
        `waiting-children` and `active`. `none`: only `delayed`. Then nobody can wait for the end of a job, or read
        results of jobs that are removed when they end
    """

    events: str = option(values.choice(ALL_EVENTS, "ends", "none"), ALL_EVENTS)


class Replicated(Options):
    """Of verbs that can wait for replicas.

    Options:
      replicas: number of replicas of Redis that must have what was written before a write, or a call that adds jobs,
        ends (command `WAIT`). Default: none
      replica_timeout_ms: with `replicas`, for how long to wait for them before the write or call fails, although it was
        made
    """

    replicas: int | None = option(values.integer(1))
    replica_timeout_ms: int = option(values.integer(1), 10_000)


class Staged(Replicated, SparkOptions):
    """Of writes that are staged and registered.

    Options:
      stage_ttl_ms: lifetime of the staged jobs of an uncommitted write; must exceed the duration of the Spark job
      txn_app_id: with `txnVersion`: a write of the same application with the same or a lower version adds nothing
      txn_version: see `txnAppId`; an increasing number
      fail_on_data_loss: fail the write, before it has written anything, if Redis has lost an earlier one that the query
        or the process has made; `false`: log it
    """

    stage_ttl_ms: int = option(values.integer(1_000), 86_400_000)
    txn_app_id: str | None = option()
    txn_version: int | None = option(values.integer(0))
    fail_on_data_loss: bool = option(default=False)


class Adding(Chunked, Storing, Eventful, Replicated):
    """Of verbs that add jobs: limits of the queue, and defaults of the jobs.

    Options:
      max_length: maximum number of jobs of the queue that are not active and have not ended, after jobs were added; see
        `whenFull`. Default: unlimited
      when_full: with `maxLength`, what happens to jobs for which there is no room. `fail`: an error. `wait`: they are
        added when there is room. `drop`: they are not added, and counted
      name: default for a column of this name. Default: `__default__`
      delay: default for a column of this name, ms
      priority: default for a column of this name: a number, or `critical`, `high`, `medium`, `normal`, `low` (1 to 5)
      attempts: default for a column of this name
      backoff: default for a column of this name: ms, or JSON with type, delay, jitter
      lifo: default for a column of this name
      remove_on_complete: default for a column of this name: true, a count, or JSON with age (s) and count
      remove_on_fail: default for a column of this name, as above
      deduplication: default for a column of this name: an id that one unfinished job of the queue can have, or JSON
        with id and a rule. JSON without id is the rule of all rows that give an id. BullMQ and Bull 4
      expire_after_ms: default for a column of this name: ms after its creation, after which a job does not start any
        more
      spread_ms: default for a column of this name: jobs are delayed by different times up to this one, ms
      lock_ms: default for a column of this name: duration of the lock of a job, ms, instead of its worker's; workers of
        Node ignore it
      opts: other options of the Node library, JSON, merged last
    """

    max_length: int | None = option(values.integer(1))
    when_full: str = option(values.choice("fail", "wait", "drop"), "fail")
    name: str | None = option()
    delay: int | None = option(values.integer(0))
    priority: Priority | None = option(values.priority)
    attempts: int | None = option(values.integer(0))
    backoff: int | dict[str, Any] | None = option(values.backoff)
    lifo: bool | None = option()
    remove_on_complete: KeepRule | None = option(values.keep)
    remove_on_fail: KeepRule | None = option(values.keep)
    deduplication: str | dict[str, Any] | None = option(values.deduplication)
    expire_after_ms: int | None = option(values.integer(1))
    spread_ms: int | None = option(values.integer(0))
    lock_ms: int | None = option(values.integer(300))
    opts: dict[str, Any] | None = option(values.json_object)


class Reading(SparkOptions, Sharded):
    """Of all that reads queues for Spark.

    Options:
      fail_on_data_loss: fail the query if finished jobs or events may be lost, or a job was removed before it was read.
        A stream of results fails if writes to the queue may be lost, too; a read with `writeId`, if a job is gone and
        nothing tells how it has ended. `false`: log it, or deliver a row with the state NULL
    """

    fail_on_data_loss: bool = option(default=True)


class Viewing(Reading):
    """Of reads that have views.

    Options:
      view: table to read: `jobs`, `counts`, `queues`, `writes`, `logs`, `dependencies`, `flows`, `schedulers`,
        `groups`, `workers`, `metrics`, `stats` or `events`, which is also a stream (BullMQ)
    """

    view: str = option(values.choice(*VIEWS), "jobs")


class PayloadTyped(Options):
    """Of verbs that give payloads a type.

    Options:
      payload_schema: type of the column `data`: columns as DDL, a type of SQL, or `infer` (batch reads only). A write
        fails for a payload that does not match. Default: JSON text; a write checks nothing
    """

    payload_schema: str | None = option()


class Resulting(Reading, PayloadTyped, Offloading):
    """Of reads of jobs.

    Options:
      return_schema: type of the column `returnvalue`, as `payloadSchema`. Default: JSON text
      states: only jobs in these states, comma separated. Default: all
      write_id: only the jobs of this write: one with the option `keepIds`, or an exactly-once write of jobs without ids
        of their own. A job that is gone has the state and value of its last event; the state NULL if it was removed
        before it had ended. Default: all
    """

    return_schema: str | None = option()
    states: tuple[str, ...] = option(values.states, ())
    write_id: str | None = option()


class Waiting(SparkOptions):
    """Of streams whose micro-batches can wait for more rows.

    Options:
      max_trigger_delay_ms: how long a micro-batch waits for `minJobsPerTrigger`, or `minEventsPerTrigger`, from the
        first of them on, ms
    """

    max_trigger_delay_ms: int = option(values.integer(0), 900_000)


class Measured(Waiting):
    """Of streams whose micro-batches can have a maximum size.

    Options:
      max_bytes_per_trigger: maximum size of a micro-batch, bytes: the values of its rows as Redis has them; each queue
        has an equal share, and gives one row at least. Default: unlimited
    """

    max_bytes_per_trigger: int | None = option(values.integer(1))


class Ledgered(Waiting, Offloading):
    """Of streams whose progress is in a ledger.

    Options:
      min_jobs_per_trigger: number of jobs for which a micro-batch waits, for `maxTriggerDelayMs` at most
      max_jobs_per_trigger: maximum number of jobs per micro-batch. Default: 10,000; with a backlog up to 100,000, while
        batches take less than 5 s
      reader_id: name of the ledger; one query uses it at a time. A second collecting query ends with `ReaderInUse`.
        A second claiming query is not noticed: both run the same jobs. Default: generated, stored in the checkpoint
    """

    min_jobs_per_trigger: int = option(values.integer(1), 1)
    max_jobs_per_trigger: int | None = option(values.integer(1))
    reader_id: str | None = option()


class Starting(Reading):
    """Of streams of what has happened.

    Options:
      starting_offsets: where a new query starts. `earliest`: with all finished jobs that exist, or the oldest event
        that is kept. `latest`: with jobs or events from now on; for results, this requires `readerId`. A time, ISO 8601
        or ms since 1970: with jobs or events since then. Not for bull-1
    """

    starting_offsets: str = option(values.start, values.EARLIEST)


class Claiming(Offloading):
    """Of what claims jobs.

    Options:
      lock_ms: duration of the jobs' locks, ms, after which jobs of a dead query or slot can be rescued; extended while
        it runs
      limiter: rate limit of the whole queue: at most `max` jobs start in `duration` ms, `{"max": 100, "duration":
        1000}`. In Bull 3 and 4, `groupKey` limits each group, and jobs over the limit are delayed, unless `bounceBack`
        is true
      group: limits of each group of jobs that has none of its own, `{"by": "tenant", "max": 5, "duration_ms": 1000,
        "concurrency": 2}`: at most `max` jobs start in `duration_ms`, and `concurrency` run at the same time, all
        optional. A job's group is its `opts.group.id`, else the field `by` of its payload
    """

    lock_ms: int = option(values.integer(300), 30_000)
    limiter: Limiter | None = option(parse_limiter)
    group: GroupLimits | None = option(group_limits)


class Settling(Storing, Eventful):
    """Of what settles jobs.

    Options:
      remove_on_complete: which completed jobs to remove, for jobs without their own option: true removes all, false
        none. A number is how many to keep; `{"age": seconds, "count": jobs}` limits both. Default: all are kept
      remove_on_fail: the same for failed jobs. Default: all are kept
      metrics_minutes: minutes of metrics to keep, as Node's `maxDataPoints`; 0: none
    """

    remove_on_complete: KeepRule | None = option(values.keep)
    remove_on_fail: KeepRule | None = option(values.keep)
    metrics_minutes: int = option(values.integer(0), 0)


class Rescuing(Sharded, Eventful):
    """Of what returns stalled jobs.

    Options:
      max_stalled: how often a job may stall before it fails
      check_ms: interval of the check for stalled jobs, ms
    """

    max_stalled: int = option(values.integer(0), 1)
    check_ms: int = option(values.integer(1), 30_000)


_ROWS: Final[dict[type[Options], Mapping[str, Option]]] = {}


def options_in(scope: type[Options]) -> Mapping[str, Option]:
    """The options of a class by their names as users spell them, in lower case."""
    if scope not in _ROWS:
        own = {name: row for kind in reversed(scope.__mro__) for name, row in vars(kind).items()}
        rows = [row for row in own.values() if isinstance(row, Option)]
        _ROWS[scope] = {scope.spelled(row.name).lower(): row for row in rows}
    return _ROWS[scope]
