"""What a dialect is: where its states live, what its options look like, what it refuses."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from spark_bull.clock import LAST_ETA_MS, epoch_ms
from spark_bull.dialects.backoff import bull_exponential_ms
from spark_bull.dialects.fields import CLAIMED_FIELDS
from spark_bull.errors import DialectError, OptionError, expected
from spark_bull.keys import SEGMENTS, QueueKeys
from spark_bull.options import Options, check_keep
from spark_bull.outcomes import ClaimedJob
from spark_bull.store.connection import Command

#: Marks in a job's options text that a script fills in; JSON text never holds control characters.
MARKS: Final = {"jobId": "\x03", "delay": "\x02", "timestamp": "\x01"}

DEFAULT_NAME: Final = "__default__"

#: Options of the Node libraries that need more keys than a plain job; not dispatched yet.
UNSUPPORTED_OPTIONS: Final = ("parent", "deduplication", "debounce", "repeat", "repeatJobKey", "rateLimiterKey")

#: Verbs that are the same in all dialects; their scripts are in lua/job.
SHARED_VERBS: Final = frozenset({"claimed", "extend", "relock", "log", "update_data"})

Kind = Literal["list", "zset", "set"]


@dataclass(frozen=True)
class StateKey:
    """Where the ids of a state's jobs are: a key's contract name, and the type of that key."""

    key: str
    kind: Kind


@dataclass(frozen=True)
class Prepared:
    """What jobs with the same options share: the options text, with marks, and its structure."""

    opts: str
    priority: int
    lifo: bool
    attempts: int
    size_limit: int | None


class Dialect(ABC):
    """One dialect of the protocol. Stateless; the Lua of its verbs is in `lua/<folder>/`."""

    name: ClassVar[str]
    folder: ClassVar[str]
    states: ClassVar[Mapping[str, StateKey]]
    #: Payloads that this library replaces by {} because JavaScript calls them false.
    replaced_data: ClassVar[frozenset[str]] = frozenset()
    #: Whether custom ids may be integers.
    takes_integer_ids: ClassVar[bool] = True
    #: Options, and arguments of a Worker, that this dialect has nothing for.
    lacks: ClassVar[frozenset[str]] = frozenset()
    #: Field of a job's hash, by attribute of ClaimedJob: what a claim reads.
    claim_fields: ClassVar[Mapping[str, str]] = {field.claimed: field.names[0] for field in CLAIMED_FIELDS.values()}
    #: Whether all that happens to jobs is kept for a while in a Redis stream.
    has_event_stream: ClassVar[bool] = False
    #: Whether jobs keep the time at which they finished.
    has_finish_times: ClassVar[bool] = True
    #: Whether `removeOnComplete` and `removeOnFail` may say how many jobs to keep, and for how long.
    has_keep_rules: ClassVar[bool] = True
    #: Results, as JSON, of which the hash of the job gets none.
    unwritten_results: ClassVar[frozenset[str]] = frozenset()
    #: Whether `backoff` may have a jitter.
    has_jitter: ClassVar[bool] = False
    #: The states from which a job that has ended can be retried by hand.
    retryable_states: ClassVar[tuple[str, ...]] = ("failed",)

    def script(self, verb: str) -> str:
        """The name of the script of a verb, such as bullmq/add."""
        return f"{'job' if verb in SHARED_VERBS else self.folder}/{verb}"

    def state_key(self, state: str) -> StateKey:
        """Raises DialectError for a state that this dialect doesn't have."""
        try:
            return self.states[state]
        except KeyError:
            raise DialectError(f"expected a state of {self.name} ({', '.join(self.states)}), got: {state!r}") from None

    def check_queue(self, queue: str) -> None:
        """Raises OptionError for a queue name that the Node library refuses."""
        if not queue:
            raise OptionError("expected `queue` to be the name of a queue, got an empty one")

    def check_options(self, options: Options) -> None:
        """Raises DialectError for an option that has no effect in this dialect."""
        for name in sorted(self.lacks & options.given):
            if options[name]:
                raise DialectError(f"`{name}` has no effect: {self.name} has no such thing; leave it out")

    def check_job_id(self, job_id: str) -> None:
        """Raises OptionError for a custom job id that the Node library refuses, or that spells another key."""
        # The Node libraries take such an id, and it destroys the queue.
        if not job_id:
            raise expected("jobId", "a text that is not empty", job_id)
        first, *others = job_id.split(":")
        if job_id in _RESERVED or first in _RESERVED_FIRST or (others and others[-1] in _RESERVED_LAST):
            raise OptionError(
                f"expected `jobId` not to spell another key of the queue, got: {job_id!r}; "
                "put a word in front or use '-'"
            )

    def exponential_ms(self, delay: float, attempts_made: int, jitter: float) -> int:
        """ms until the next attempt with the backoff `exponential`."""
        return bull_exponential_ms(delay, attempts_made)

    def stack_limit(self, given: int | None) -> int | None:
        """How many traces a job keeps whose option `stackTraceLimit` is `given`; None: all."""
        return given or None

    def paused_checks(self, keys: QueueKeys) -> list[Command]:
        """Commands of which one answers with more than 0 when the queue is paused."""
        return [("EXISTS", keys["meta_paused"])]

    def worker_client_name(self, keys: QueueKeys, worker: str) -> str:
        """How the library calls the connection on which a worker waits for jobs."""
        return keys.client_name

    def wait_command(self, keys: QueueKeys, timeout_s: float) -> Command:
        """What a worker waits with: it answers with the id of a job that it has moved to `active`."""
        return ("BLMOVE", keys["wait"], keys["active"], "RIGHT", "LEFT", timeout_s)

    def moved_job(self, answer: object) -> str:
        """The id of the job that `wait_command` has moved to `active`, or ''."""
        return answer.decode() if isinstance(answer, bytes) else ""

    @abstractmethod
    def _opts(self, given: dict[str, Any]) -> dict[str, Any]:
        """The options as the Node library stores them; marks stand as they are."""

    def check_priority(self, priority: object) -> int:
        """Raises OptionError unless it is one that the Node library takes."""
        if not isinstance(priority, int) or isinstance(priority, bool) or priority < 0:
            raise expected("priority", "an integer >= 0", priority)
        return priority

    def next_job(self, job: ClaimedJob, now: int, version: str) -> Mapping[str, Any] | None:
        """What the script `advance` needs to add the next job of the schedule that a claimed job may belong to.

        None when the schedule is over, or there is none. version: what the queue's `meta` says of the library.
        Raises PatternError for a schedule that can't be read.
        """
        return None

    def prepare(self, given: Mapping[str, Any]) -> Prepared:
        """Checks a job's options and writes them as text.

        `given` has the Node library's names; `timestamp`, `delay` and `jobId` are there when the
        job has one, their values don't count. Raises OptionError or DialectError.
        """
        for name in UNSUPPORTED_OPTIONS:
            if name in given:
                raise DialectError(
                    f"`{name}` in `opts` makes more than a plain job, which can't be dispatched yet: leave it out"
                )
        opts = dict(given)
        priority = self.check_priority(opts.get("priority", 0))
        attempts = opts.get("attempts", 1)
        if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 0:
            raise expected("attempts", "an integer >= 0", attempts)
        _check_backoff(opts.get("backoff"))
        for name in ("removeOnComplete", "removeOnFail"):
            if opts.get(name) is not None:
                check_keep(name, opts[name])
        for name, mark in MARKS.items():
            if name in opts:
                opts[name] = mark
        text = with_bare_marks("opts", self._opts(opts))
        return Prepared(text, priority, bool(opts.get("lifo")), max(1, attempts), opts.get("sizeLimit"))


def with_bare_marks(name: str, opts: Mapping[str, Any]) -> str:
    """Options as JSON text, in which marks stand without quotes."""
    members = [
        f"{json_text(name, key)}:{value if value == MARKS.get(key) else json_text(name, value)}"
        for key, value in opts.items()
    ]
    return "{" + ",".join(members) + "}"


def json_text(name: str, value: Any) -> str:
    """The value as compact JSON, as JavaScript would write it. Raises OptionError for what JSON can't hold."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        if not text.isascii():
            text.encode()
        return text
    except UnicodeEncodeError:
        # Half a character, as JavaScript allows it, can only be sent escaped.
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise OptionError(f"expected `{name}` to be nested less deeply: Python can't write it as JSON") from None
    except (TypeError, ValueError) as error:
        raise OptionError(f"expected `{name}` to be what JSON can hold: {error}") from None


def normal_backoff(opts: Mapping[str, Any]) -> dict[str, Any]:
    """`backoff` as the Node libraries store it: a number of ms is the fixed strategy."""
    backoff = opts.get("backoff")
    if isinstance(backoff, (int, float)) and not isinstance(backoff, bool):
        return {"backoff": {"type": "fixed", "delay": backoff}}
    return {"backoff": backoff} if backoff else {}


def without_nulls(opts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in opts.items() if value is not None}


def check_eta(run_at: int | None, delay: int | None, timestamp: int | None) -> None:
    """Raises OptionError for a negative delay or a time that no score can hold."""
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


#: Names of keys that aren't jobs; first and last segments of further ones.
_RESERVED = frozenset(SEGMENTS.values())
_RESERVED_FIRST = frozenset({"spark", "de", "metrics"})
_RESERVED_LAST = frozenset({"lock", "logs"})


def may_spell_other_key(job_id: str) -> bool:
    """Whether a job that is there already, whoever made it, has to be told from another key of the queue."""
    return job_id in _RESERVED or ":" in job_id
