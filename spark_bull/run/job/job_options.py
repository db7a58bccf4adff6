"""The options of a job that affect its outcome; and its progress with its checkpoint.

Both share the field `progress` of its hash. Without a checkpoint the field has the progress alone, as in Node: `50`.
With one it has an object with both: `{"progress":50,"checkpoint":{"row":700}}`. An object with the key `checkpoint`
that Node has stored is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from spark_bull.core.dialects.base import Dialect, json_text
from spark_bull.core.dialects.terms import AT_MOST_ONCE, DELIVERY, LOCK_MS
from spark_bull.core.model.javascript import ceiling, given_number, is_true, number_of, whole
from spark_bull.core.model.job_json import json_or_text, parsed_opts
from spark_bull.core.model.outcomes import ClaimedJob, Keep

#: What the options of a job with a lock duration of its own contain. Options are not parsed for what they do not
#: contain: that takes longer than all else that a plain job costs, and each job with an id of its own has other text.
_LOCK_MS: Final = f'"{LOCK_MS}":'


@dataclass(frozen=True)
class JobOptions:
    """The options of a job that a worker obeys. `timeout`: ms, 0: none. Keep rules: `...` if not set.

    attempts: as given, see `Dialect.attempts_of`. backoff: an object, {} for a value that means nothing; None: retries
    do not wait. lock_ms: duration of the lock, 0: the worker's. at_most_once: whether the job runs once only.
    """

    attempts: Any
    backoff: Mapping[str, Any] | None
    lifo: bool
    keep_completed: Any
    keep_failed: Any
    stack_limit: int | None
    log_limit: int
    timeout: int
    deduplication_id: str | None
    lock_ms: int
    at_most_once: bool


@lru_cache(maxsize=4096)
def job_options(opts: str) -> JobOptions:
    """Parses a job's `opts`, whose values mean what they mean in JavaScript. Text that is no JSON object is ignored."""
    given = parsed_opts(opts) or {}
    return JobOptions(
        attempts=given.get("attempts"),
        backoff=_backoff(given.get("backoff")),
        lifo=is_true(given.get("lifo")),
        keep_completed=_keep(given, "removeOnComplete"),
        keep_failed=_keep(given, "removeOnFail"),
        stack_limit=_stack_limit(given.get("stackTraceLimit")),
        log_limit=_integer(given.get("kl", given.get("keepLogs"))),
        timeout=_integer(given.get("timeout")),
        deduplication_id=_deduplication_id(given.get("de", given.get("debounce"))),
        lock_ms=_integer(given.get(LOCK_MS)),
        at_most_once=given.get(DELIVERY) == AT_MOST_ONCE,
    )


def own_locks(jobs: Sequence[ClaimedJob]) -> dict[str, int]:
    """The durations of the locks of those jobs that have their own, ms, by job id."""
    return {job.id: ms for job in _jobs_with(_LOCK_MS, jobs) if (ms := job_options(job.opts).lock_ms)}


def once_only(jobs: Sequence[ClaimedJob]) -> set[str]:
    """The ids of those jobs that must never run twice."""
    return {job.id for job in _jobs_with(AT_MOST_ONCE, jobs) if runs_at_most_once(job.opts)}


def _jobs_with(text: str, jobs: Sequence[ClaimedJob]) -> Sequence[ClaimedJob]:
    """The jobs whose options contain a text. Mostly there are none, which takes one search of all options together."""
    if text not in "".join([job.opts for job in jobs]):
        return ()
    return [job for job in jobs if text in job.opts]


def runs_at_most_once(opts: str) -> bool:
    """Whether a job with these options must never run twice."""
    return AT_MOST_ONCE in opts and job_options(opts).at_most_once


def timeout_of(opts: str) -> int:
    """Maximum duration of a job with these options, ms; 0: none."""
    return job_options(opts).timeout if "timeout" in opts else 0


def _integer(value: object) -> int:
    """A whole number >= 0; 0 for all else."""
    return max(0, whole(given_number(value) or 0))


def _backoff(value: object) -> Mapping[str, Any] | None:
    delay = given_number(value)
    if delay is not None:
        return {"type": "fixed", "delay": delay}
    return value if isinstance(value, dict) else {} if is_true(value) else None


def _stack_limit(value: object) -> int | None:
    """How many of the last traces are kept; None: all, as with a text or a fraction that is cut to 0."""
    if value == 0 and not isinstance(value, bool):
        return 0
    return whole(number_of(value)) or None


def _deduplication_id(rule: object) -> str | None:
    deduplication_id = rule.get("id") if isinstance(rule, dict) else None
    is_id = isinstance(deduplication_id, (str, int, float)) and not isinstance(deduplication_id, bool)
    return str(deduplication_id) if is_id else None


def _keep(given: Mapping[str, Any], name: str) -> Any:
    """Returns the keep rule of an option, `...` if it is not set: see `keep_rule`."""
    value = given.get(name)
    return ... if value is None else keep_rule(value)


def keep_rule(value: object) -> Keep:
    """Parses removeOnComplete or removeOnFail: a number keeps that many, an object has count and age (s).

    Another value that JavaScript takes for true keeps none: true, and each text.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return {"count": ceiling(number_of(value))} if value >= 0 else None
    if isinstance(value, (dict, list)):
        rule = value if isinstance(value, dict) else {}
        numbers = {name: given_number(rule.get(name)) for name in ("count", "age", "limit")}
        return {name: whole(number) for name, number in numbers.items() if number is not None} or None
    return {"count": 0} if is_true(value) else None


def keep_of(dialect: Dialect, opts: str, name: str, default: Keep = None) -> Keep:
    """Returns how many finished jobs to keep. name: removeOnComplete or removeOnFail; default: rule of the worker."""
    if name not in opts:
        return default
    options = job_options(opts)
    given: Any = options.keep_completed if name == "removeOnComplete" else options.keep_failed
    if given is ...:
        return default
    if not dialect.has("keep-rules"):
        # The dialect only knows true and false.
        return {"count": 0} if name == "removeOnComplete" and given is not None else None
    rule: Keep = given
    return rule


_PROGRESS: Final = "progress"
_CHECKPOINT: Final = "checkpoint"


class Reported(NamedTuple):
    """What the attempts of a job have reported. None: nothing."""

    progress: Any = None
    checkpoint: Any = None

    @classmethod
    def of(cls, value: Any) -> Reported:
        """Splits a value of the field `progress`."""
        if isinstance(value, dict) and _CHECKPOINT in value:
            return cls(value.get(_PROGRESS), value[_CHECKPOINT])
        return cls(value)

    @classmethod
    def parsed(cls, text: str | None) -> Reported:
        """Splits the stored field."""
        return cls.of(json_or_text(text))

    def json_text(self) -> str:
        """Returns the field as it is stored. Raises OptionError if JSON cannot hold it."""
        if self.checkpoint is None:
            return json_text(_PROGRESS, self.progress)
        progress = json_text(_PROGRESS, 0 if self.progress is None else self.progress)
        return f'{{"{_PROGRESS}":{progress},"{_CHECKPOINT}":{json_text(_CHECKPOINT, self.checkpoint)}}}'
