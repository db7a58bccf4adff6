"""The options of a job that affect its outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeGuard

from spark_bull.dialects.base import Dialect
from spark_bull.dialects.terms import AT_MOST_ONCE, DELIVERY, LOCK_MS
from spark_bull.model.job_json import parsed_opts
from spark_bull.model.outcomes import ClaimedJob, Keep

#: Larger numbers in a job's options are ignored.
_MAX_OPTION: Final = 2**53
#: What the options of a job with a lock duration of its own contain. Options are not parsed for what they do not
#: contain: that takes longer than all else that a plain job costs, and each job with an id of its own has other text.
_LOCK_MS: Final = f'"{LOCK_MS}":'


@dataclass(frozen=True)
class JobOptions:
    """The options of a job that a worker obeys. `timeout`: ms, 0: none. Keep rules: `...` if not set.

    lock_ms: duration of the lock, 0: that of the worker. at_most_once: whether the job must never run twice.
    """

    attempts: int
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
    """Parses a job's `opts`. Text that is not a JSON object, and values of a wrong type, are ignored."""
    given = parsed_opts(opts) or {}
    backoff = given.get("backoff")
    if is_number(backoff):
        backoff = {"type": "fixed", "delay": backoff}
    return JobOptions(
        attempts=_integer(given.get("attempts")) or 0,
        backoff=backoff if isinstance(backoff, dict) else None,
        lifo=given.get("lifo") is True,
        keep_completed=_keep(given, "removeOnComplete"),
        keep_failed=_keep(given, "removeOnFail"),
        stack_limit=_integer(given.get("stackTraceLimit")),
        log_limit=_integer(given.get("kl", given.get("keepLogs"))) or 0,
        timeout=_integer(given.get("timeout")) or 0,
        deduplication_id=_deduplication_id(given.get("de", given.get("debounce"))),
        lock_ms=max(0, _integer(given.get(LOCK_MS)) or 0),
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


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value of an option counts as a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _MAX_OPTION


def _integer(value: object) -> int | None:
    return int(value) if is_number(value) else None


def _deduplication_id(rule: object) -> str | None:
    deduplication_id = rule.get("id") if isinstance(rule, dict) else None
    return str(deduplication_id) if is_number(deduplication_id) or isinstance(deduplication_id, str) else None


def _keep(given: Mapping[str, Any], name: str) -> Any:
    """Returns the keep rule of an option, `...` if it is not set: see `keep_rule`."""
    value = given.get(name)
    return keep_rule(value) if isinstance(value, (bool, int, float, dict)) else ...


def keep_rule(value: object) -> Keep:
    """Parses removeOnComplete or removeOnFail: True keeps none, a number that many, an object has count and age (s)."""
    if is_number(value):
        count = _integer(value)
        return {"count": count} if count is not None and count >= 0 else None
    if isinstance(value, dict):
        rule = {name: int(n) for name, n in value.items() if name in ("count", "age", "limit") and is_number(n)}
        return rule or None
    return {"count": 0} if value is True else None


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
