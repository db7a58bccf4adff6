"""The base of a dialect: keys of its states, form of its options, checks of its limits."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, TypedDict

from spark_bull.core.clock import LAST_ETA_MS, epoch_ms
from spark_bull.core.dialects.events import EventChannels
from spark_bull.core.dialects.features import FEATURES, HOLDERS, Feature, FeatureColumn, lacks
from spark_bull.core.dialects.fields import BULLMQ_FIELDS, CLAIMED_FIELDS
from spark_bull.core.dialects.terms import (
    DEDUPLICATION,
    ID_MARK,
    PARENT,
    PARENT_MARK,
    QueuePriority,
    Rule,
    bull_exponential_ms,
    check_integer,
    failure_flag,
    prepare_terms,
    priority_number,
)
from spark_bull.core.errors import DialectError, OptionError, check_encodable, encodable, expected, is_encodable
from spark_bull.core.keys import SEGMENTS, QueueKeys
from spark_bull.core.model import javascript
from spark_bull.core.model.jobs import RawJson
from spark_bull.core.options.parts import Claiming, Options
from spark_bull.core.options.values import check_keep
from spark_bull.core.store.scripts import Command

if TYPE_CHECKING:
    from spark_bull.core.dialects.schedule.repeating import NewScheduler
    from spark_bull.core.model.outcomes import ClaimedJob
    from spark_bull.core.model.queues import QueueEvent, Scheduler

#: Marks in a job's options text that a script replaces; JSON text can't contain control characters.
MARKS: Final = {"jobId": "\x03", "delay": "\x02", "timestamp": "\x01"}

DEFAULT_NAME: Final = "__default__"

#: Options of the Node libraries that need more keys than a plain job, and what to do.
UNSUPPORTED_OPTIONS: Final = {
    "repeat": "create a job scheduler, with mode=schedule or BullQueue.upsert_scheduler",
    "repeatJobKey": "create a job scheduler, with mode=schedule or BullQueue.upsert_scheduler",
    "rateLimiterKey": "leave it out",
}

#: States whose names in the methods of the Node libraries differ from the names of their keys.
_NAMES_OF_NODE: Final = {"wait": "waiting"}

#: Verbs that are the same in all dialects; their scripts are in lua/job.
SHARED_VERBS: Final = frozenset(
    {"claimed", "start", "extend", "relock", "log", "update_data", "cancel", "free_deduplication", "remove_orphans"}
)

#: Actions that put a job with a priority into `prioritized`, where BullMQ 3 never looks.
_BY_PRIORITY: Final = ("promote", "prioritize")

KeyKind = Literal["list", "zset", "set"]


class StateKey(NamedTuple):
    """Where the ids of a state's jobs are: name of the key in contracts, and its type."""

    key: str
    kind: KeyKind


class Prepared(NamedTuple):
    """Checked options, which jobs can share: their text, with marks, and the values that scripts need.

    deduplication: the rule for the job's deduplication id, JSON text; None if it is the simple one. on_failure: the
    flag for the job's failure in its field `parent`; see `parents.FAILURE_FLAGS`. at_most_once: whether the job never
    runs twice.
    """

    opts: str
    priority: int
    lifo: bool
    attempts: int
    size_limit: int | None
    deduplication: str | None = None
    on_failure: str | None = None
    at_most_once: bool = False


class OlderNext(TypedDict):
    """How an older repeatable job of BullMQ continues, see `NextJob`.

    members: of the ZSET, one of which it has; ids: for each, the start of the ids of its jobs. due, next: times of this
    job and of the next one, ms. shift: how much later the next one runs, ms.
    """

    members: list[str]
    ids: list[str]
    due: int
    next: int
    shift: int
    opts: str


class NextJob(TypedDict, total=False):
    """The argument of the script `advance`: the next job of a job scheduler. None counts as missing.

    next: when it is due, ms. key, due, data (Bull): member of the scheduler, time of the current job, payload. every,
    offset, deduplication_id (BullMQ): interval and its shift, ms, and the deduplication id. older (BullMQ): if it is a
    repeatable job of BullMQ 5.9 or older.
    """

    id: str
    name: str
    opts: str
    priority: int
    lifo: bool
    next: int | None
    key: str
    due: int
    data: str
    every: int | None
    offset: int | None
    deduplication_id: str | None
    older: OlderNext | None


class Repeated(TypedDict, total=False):
    """The argument of the script `schedule`: a job scheduler and its first job. None counts as missing.

    next: when the first job is due, ms; None: the script decides. every, offset, start (BullMQ): interval, its shift
    and the start, ms; fields: names and values of its hash. key, job_id (Bull): member of the job scheduler, and
    id of its first job; replaces: members that the job scheduler replaces, with the start of the ids of their jobs.
    """

    id: str
    name: str
    data: str
    opts: str
    priority: int
    lifo: bool
    next: int | None
    every: int | None
    offset: int | None
    start: int | None
    fields: list[str | int]
    key: str
    job_id: str
    replaces: list[tuple[str, str]]


class Dialect(ABC):
    """One dialect of the protocol. Stateless; the Lua of its verbs is in `lua/<folder>/`."""

    name: ClassVar[str]
    folder: ClassVar[str]
    #: Its column in the table of features.
    column: ClassVar[FeatureColumn]
    states: ClassVar[Mapping[str, StateKey]]
    #: Payloads that the Node library replaces by {}, as they are false in JavaScript.
    replaced_data: ClassVar[frozenset[str]] = frozenset()
    #: Field of a job's hash, by attribute of ClaimedJob: what a claim reads.
    claim_fields: ClassVar[Mapping[str, str]] = {
        field.claimed: field.names[0] for name, field in CLAIMED_FIELDS.items() if name not in BULLMQ_FIELDS
    }
    #: Results, as JSON, that are not written to the job's hash.
    unwritten_results: ClassVar[frozenset[str]] = frozenset()
    #: The Node library's option with the deduplication id of a job, and its members beside `id`; None: it has none.
    deduplication_option: ClassVar[str | None] = None
    deduplication_members: ClassVar[frozenset[str]] = frozenset()
    #: The states from which a finished job can be retried.
    retryable_states: ClassVar[tuple[str, ...]] = ("failed",)
    #: Of a queue whose library is older than the dialect: its version, and what shows it.
    version: str | None = None
    older: str = ""

    def column_of(self, version: str) -> FeatureColumn:
        """The column of a version, as the queue's `meta` names the library; '' if it names none."""
        return self.column

    def has(self, feature: Feature, version: str | None = None) -> bool:
        """Whether this dialect has the feature. version: as in `column_of`; None: the newest one."""
        return (self.column if version is None else self.column_of(version)) in HOLDERS[FEATURES[feature].where]

    def require(self, feature: Feature, what: str = "") -> None:
        """Raises DialectError for a dialect without the feature. what: what the user asked for, if that is optional."""
        if not self.has(feature):
            raise lacks(feature, self.name, what)

    def script(self, verb: str) -> str:
        """The name of the script of a verb, such as bullmq/add."""
        return f"{'job' if verb in SHARED_VERBS else self.folder}/{verb}"

    def state_key(self, state: str) -> StateKey:
        """Raises DialectError for a state that this dialect lacks."""
        try:
            return self.states[state]
        except KeyError:
            raise DialectError(f"expected a state of {self.name} ({', '.join(self.states)}), got: {state!r}") from None

    def allows(self, queue: str) -> bool:
        """Whether the Node library takes a queue of this name."""
        return True

    def check_work(self, queue: str) -> None:
        """Raises OptionError or DialectError for a queue whose jobs can be inspected, collected and managed only."""
        if self.older:
            raise self._too_old(
                f"expected queue {queue} to be one of BullMQ 5 or 6, as jobs added or run could be lost"
            )
        if not self.allows(queue):
            raise OptionError(f"expected `queue` without ':' (BullMQ refuses it), got: {queue!r}")

    def check_action(self, action: str) -> None:
        """Raises DialectError for an action that could lose the job."""
        if self.older and action in _BY_PRIORITY:
            raise self._too_old(f"expected no action {action} in a queue of BullMQ 3 or 4, as its job could be lost")

    def _too_old(self, what: str) -> DialectError:
        return DialectError(
            f"{what}, but {self.older}: open the queue with BullMQ 5 or 6, or set `bullmqVersion` if all of its "
            "programs have these; its jobs can be inspected, collected and managed"
        )

    def event_channels(self, keys: QueueKeys) -> EventChannels:
        """The channels of a queue's events, in a dialect that has no stream of events."""
        raise NotImplementedError

    def event_of(self, keys: QueueKeys, channel: str, message: bytes) -> QueueEvent | None:
        """The event of a message on one of those channels; None for a message that can't be read."""
        raise NotImplementedError

    def counted_states(self, jobs: Mapping[str, int], version: str | None) -> dict[str, str]:
        """The states that getJobCounts of the Node library returns, by its names, sorted by them.

        jobs: numbers of jobs by state; version: that which a Queue object of Node has left.
        """
        return dict(sorted(((state, _NAMES_OF_NODE.get(state, state)) for state in jobs), key=lambda item: item[1]))

    def repeated(self, scheduler: NewScheduler, now: int, version: str) -> Repeated:
        """The argument of the script `schedule`. now, version: as in `next_job`. Raises OptionError or DialectError."""
        raise NotImplementedError

    def scheduler(self, queue: str, member: str, next_ms: int, fields: Mapping[str, str]) -> Scheduler:
        """A job scheduler as read. member: its member in the ZSET; fields: its hash, if there is one."""
        raise NotImplementedError

    def is_older(self, member: str, fields: Collection[str]) -> bool:
        """Whether a job scheduler is a repeatable job of an older version, whose jobs have other ids.

        fields: names in its hash.
        """
        return False

    def job_ids_of(self, member: str) -> str:
        """The start of the ids of a scheduler's jobs; their times follow. member: of the scheduler, in the ZSET."""
        raise NotImplementedError

    def check_options(self, options: Options) -> None:
        """Raises DialectError for an option that has no effect in this dialect."""
        for feature, row in FEATURES.items():
            for name in row.options:
                if name in options.given and options.value(name):
                    self.require(feature, f"`{options.spelled(name)}`")
        limiter = options.limiter if isinstance(options, Claiming) else None
        if limiter is not None and limiter.group_key is not None:
            self.require("limiter-groups", "`groupKey` in `limiter`")
        if limiter is not None and limiter.bounce_back:
            self.require("limiter-delays", "`bounceBack` in `limiter`")

    def check_job_id(self, job_id: str) -> None:
        """Raises OptionError for a custom job id that the Node library refuses, or that is the name of another key."""
        # The Node libraries accept such an id, and the job overwrites the key.
        if not job_id:
            raise expected("jobId", "a text that is not empty", job_id)
        encodable("jobId", job_id)
        first, *others = job_id.split(":")
        if job_id in _RESERVED or first in _RESERVED_FIRST or (others and others[-1] in _RESERVED_LAST):
            raise OptionError(
                f"expected `jobId` not to be the name of another key of the queue, got: {job_id!r}; "
                "put a prefix in front, or use '-' in place of ':'"
            )

    def are_plain_ids(self, job_ids: Collection[str]) -> bool:
        """Whether `check_job_id` certainly accepts all of these ids; with False, it has to be asked for each."""
        joined = "\n".join(job_ids)
        return is_encodable(joined) and not ("" in job_ids or ":" in joined or _NO_PLAIN_IDS.intersection(job_ids))

    def exponential_ms(self, delay: float, attempts_made: int, jitter: float) -> int:
        """ms until the next attempt with the backoff `exponential`."""
        return bull_exponential_ms(delay, attempts_made)

    def attempts_of(self, given: object) -> int:
        """How often a job may run; 0 counts as 1. given: its option `attempts`, a value of JSON."""
        return javascript.parsed_int(given)

    def stack_limit(self, given: int | None) -> int | None:
        """How many stack traces a job keeps. given: its option `stackTraceLimit`. None: all."""
        return given or None

    def pause_marks(self, keys: QueueKeys) -> list[Command]:
        """Commands that return the signs that the queue is paused, None for none."""
        return [("GET", keys["meta_paused"])]

    def worker_client_name(self, keys: QueueKeys, worker: str) -> str:
        """Client name of the connection on which a Node worker waits for jobs."""
        return keys.client_name

    def wait_command(self, keys: QueueKeys, timeout_s: float) -> Command:
        """The blocking command of an idle worker: it returns the id of a job that it has moved to `active`."""
        return ("BLMOVE", keys["wait"], keys["active"], "RIGHT", "LEFT", timeout_s)

    def moved_job(self, answer: object) -> bytes:
        """The id of the job that `wait_command` has moved to `active`, or b""."""
        return answer if isinstance(answer, bytes) else b""

    @abstractmethod
    def _opts(self, given: dict[str, Any]) -> dict[str, Any]:
        """The options as the Node library stores them; marks stay unchanged."""

    def check_priority(self, priority: object) -> int:
        """The number of a priority, which may be a name. Raises OptionError unless the Node library takes it."""
        return priority_number(priority)

    def next_job(self, job: ClaimedJob, now: int, version: str) -> NextJob | None:
        """The argument of the script `advance` for the next job of the job scheduler that a claimed job may belong to.

        None when the scheduler has ended, or there is none. version: of the library, in the queue's `meta`. Raises
        PatternError for a job scheduler that can't be read.
        """
        return None

    def prepare(self, given: Mapping[str, Any]) -> Prepared:
        """Checks a job's options and formats them as text.

        `given` has the Node library's names. It has `timestamp`, `delay`, `jobId` and `parent` if the job has them,
        with any value. If the job has a deduplication id, `deduplication` is a Rule. Raises OptionError or
        DialectError.
        """
        rule: Rule | None = given.get(DEDUPLICATION)
        if rule is not None and PARENT in given:
            raise OptionError(
                f"expected one of `{DEDUPLICATION}` and `{PARENT}`, got both: a child can't be deduplicated"
            )
        if PARENT in given:
            self.require("flows", f"`{PARENT}`")
        for name, remedy in UNSUPPORTED_OPTIONS.items():
            if name in given:
                raise DialectError(f"expected no `{name}` in `opts`: a plain job can't have it; {remedy}")
        if "telemetry" in given:
            self.require("telemetry", "`telemetry` or `tracer`")
        if "debounce" in given:
            raise DialectError(f"expected no `debounce` in `opts`: {self.name} has none; use `{DEDUPLICATION}`")
        opts = dict(given)
        priority = self.check_priority(opts.get("priority", 0))
        if "priority" in opts and not isinstance(opts["priority"], QueuePriority):
            opts["priority"] = priority
        attempts = check_integer("attempts", opts.get("attempts", 1), 0, "an integer >= 0")
        group = opts.get("group")
        if isinstance(group, Mapping):
            check_encodable("opts.group.id", group.get("id"))
        at_most_once = prepare_terms(opts)
        _check_backoff(opts.get("backoff"))
        for name in ("removeOnComplete", "removeOnFail"):
            if opts.get(name) is not None:
                check_keep(name, opts[name])
        if rule is not None and rule.sets_delay:
            opts["delay"] = 0
        for name, mark in MARKS.items():
            if name in opts:
                opts[name] = mark
        if rule is not None and self.deduplication_option:
            del opts[DEDUPLICATION]
            opts[self.deduplication_option] = RawJson(rule.text_with_id(ID_MARK))
        if PARENT in opts:
            opts[PARENT] = RawJson(PARENT_MARK)
        return Prepared(
            with_bare_marks(self._opts(opts)),
            priority,
            bool(opts.get("lifo")),
            max(1, attempts),
            opts.get("sizeLimit"),
            rule.text if rule and rule.members else None,
            failure_flag(given),
            at_most_once,
        )


def with_bare_marks(opts: Mapping[str, Any]) -> str:
    """Options as JSON text, with marks without quotes, and RawJson unchanged."""
    texts = {key: value if value == MARKS.get(key) else json_text("opts", value) for key, value in opts.items()}
    return "{" + ",".join(f"{json_text('opts', key)}:{text}" for key, text in texts.items()) + "}"


#: One encoder for all calls, as making one takes longer than encoding a short text.
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def json_text(name: str, value: Any) -> str:
    """The value as compact JSON, formatted as by JavaScript; the text of RawJson.

    Raises OptionError for a value that JSON can't hold.
    """
    if value is None:  # What most processors return.
        return "null"
    if isinstance(value, RawJson):
        return encodable(name, value.text)
    try:
        text = _ENCODER.encode(value)
        if not text.isascii():
            text.encode()
        return text
    except UnicodeEncodeError:
        # An unpaired surrogate, which JavaScript allows, can only be sent escaped.
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise OptionError(f"expected `{name}` to be nested less deeply: Python can't format it as JSON") from None
    except (TypeError, ValueError) as error:
        raise OptionError(f"expected `{name}` to be a value that JSON can hold: {error}") from None


def normal_backoff(opts: Mapping[str, Any]) -> dict[str, Any]:
    """`backoff` as the Node libraries store it: a number of ms is the fixed strategy."""
    backoff = opts.get("backoff")
    if isinstance(backoff, (int, float)) and not isinstance(backoff, bool):
        return {"backoff": {"type": "fixed", "delay": backoff}}
    return {"backoff": backoff} if backoff else {}


def without_nulls(opts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in opts.items() if value is not None}


def opts_object(value: Any) -> Mapping[str, Any]:
    """The value of the property `opts`, a mapping or JSON text. Raises OptionError if it is no object."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise expected("opts", "a JSON object", value[:200]) from None
    if not isinstance(value, Mapping):
        raise expected("opts", "a JSON object", value)
    return value


def check_eta(run_at: int | None, delay: int | None, timestamp: int | None) -> None:
    """Raises OptionError for a negative delay, or a time beyond the largest score."""
    if delay is not None and delay < 0:
        raise expected("delay", "ms >= 0", delay)
    eta = run_at if run_at is not None else (epoch_ms() if timestamp is None else timestamp) + (delay or 0)
    if eta > LAST_ETA_MS and (delay or run_at is not None):
        raise OptionError(
            f"expected `{'runAt' if run_at is not None else 'delay'}` to end before 2039-09-07, "
            f"the last time that the protocol's scores can hold, got: {run_at or delay}"
        )


def _check_backoff(backoff: object) -> None:
    if backoff is None or (isinstance(backoff, int) and not isinstance(backoff, bool)):
        if isinstance(backoff, int) and backoff < 0:
            raise expected("backoff", "ms >= 0", backoff)
        return
    if not isinstance(backoff, Mapping) or not isinstance(backoff.get("type"), str):
        raise expected("backoff", "ms, or an object with type and delay", backoff)
    delay = backoff.get("delay", 0)
    if not isinstance(delay, (int, float)) or delay < 0:
        raise expected("backoff.delay", "ms >= 0", delay)
    jitter = backoff.get("jitter", 0)
    if not isinstance(jitter, (int, float)) or not 0 <= jitter <= 1:
        raise expected("backoff.jitter", "a number from 0 to 1", jitter)


#: Names of keys that are not jobs; first and last segments of further ones.
_RESERVED = frozenset(SEGMENTS.values())
_RESERVED_FIRST = frozenset({"spark", "de", "metrics"})
_RESERVED_LAST = frozenset({"lock", "logs"})
_NO_PLAIN_IDS = _RESERVED | _RESERVED_FIRST


def may_be_other_key(job_id: str) -> bool:
    """Whether a key with this id as its name can be another key of the queue than a job."""
    return job_id in _RESERVED or ":" in job_id
