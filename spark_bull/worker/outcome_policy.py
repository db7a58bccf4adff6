"""Decides the outcome of a job, by its options and dialect: completed, retried or failed, kept or removed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeGuard

from spark_bull.clock import LAST_ETA_MS, epoch_ms
from spark_bull.dialects.backoff import fixed_ms
from spark_bull.dialects.base import Dialect, json_text
from spark_bull.error_text import reason_of, sendable
from spark_bull.job_json import parsed_opts
from spark_bull.model import RawJson
from spark_bull.outcomes import ClaimedJob, Failed, Keep, Retried
from spark_bull.worker.interrupts import raise_if_interrupted

#: strategy(attempts made, backoff type, error) -> ms; -1: no further attempt.
Strategy = Callable[[int, str, BaseException], Any]


#: Maximum characters of a return value as JSON text.
MAX_RETURNVALUE: Final = 2**26
#: Larger numbers in a job's options are ignored.
_MAX_OPTION: Final = 2**53
#: Exponent at which exponential backoff stops growing; the delay is beyond all limits by then.
_MAX_EXPONENT: Final = 60


class NoReturnValue(TypeError):
    """The value that a processor returned cannot be stored as JSON."""


class BackoffFailed(ValueError):
    """A backoff strategy raised an exception, or did not return a number (ms)."""


@dataclass(frozen=True)
class JobOptions:
    """The options of a job that affect its outcome. `timeout`: ms, 0: none. Keep rules: `...` if not set."""

    attempts: int
    backoff: Mapping[str, Any] | None
    lifo: bool
    keep_completed: Any
    keep_failed: Any
    stack_limit: int | None
    log_limit: int
    timeout: int


@lru_cache(maxsize=4096)
def job_options(opts: str) -> JobOptions:
    """Parses a job's `opts`. Text that is not a JSON object, and values of a wrong type, are ignored."""
    given = parsed_opts(opts) or {}
    backoff = given.get("backoff")
    if _is_number(backoff):
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
    )


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _MAX_OPTION


def _integer(value: object) -> int | None:
    return int(value) if _is_number(value) else None


def _keep(given: Mapping[str, Any], name: str) -> Any:
    """Returns the keep rule of an option, `...` if it is not set: see `keep_rule`."""
    value = given.get(name)
    return keep_rule(value) if isinstance(value, (bool, int, float, dict)) else ...


def keep_rule(value: object) -> Keep:
    """Parses removeOnComplete or removeOnFail: True keeps none, a number so many, an object has count and age (s)."""
    if _is_number(value):
        count = _integer(value)
        return {"count": count} if count is not None and count >= 0 else None
    if isinstance(value, dict):
        rule = {name: int(n) for name, n in value.items() if name in ("count", "age", "limit") and _is_number(n)}
        return rule or None
    return {"count": 0} if value is True else None


def keep_of(dialect: Dialect, opts: str, name: str, default: Keep = None) -> Keep:
    """Returns how many finished jobs to keep. name: removeOnComplete or removeOnFail; default: rule of the worker."""
    options = job_options(opts)
    given: Any = options.keep_completed if name == "removeOnComplete" else options.keep_failed
    if given is ...:
        return default
    if not dialect.has_keep_rules:
        # The dialect only knows true and false.
        return {"count": 0} if name == "removeOnComplete" and given is not None else None
    rule: Keep = given
    return rule


def returnvalue_text(dialect: Dialect, value: Any) -> str:
    """Encodes the value that a processor returned as JSON text; '' for a value that the dialect does not store.

    Raises NoReturnValue if JSON cannot hold the value, or its text is too long.
    """
    try:
        text = _raw_text(value) if isinstance(value, RawJson) else json_text("returnvalue", value)
    except BaseException as error:  # A value may hold objects whose methods raise anything.
        raise_if_interrupted()
        raise NoReturnValue(
            "expected the processor to return a value that JSON can hold, "
            f"got {type(value).__name__}: {reason_of(error)}"
        ) from None
    if len(text) > MAX_RETURNVALUE:
        raise NoReturnValue(
            f"expected the processor to return at most {MAX_RETURNVALUE:,} characters of JSON, got {len(text):,}: "
            "store the result elsewhere and return its location"
        )
    return "" if text in dialect.unwritten_results else text


def _raw_text(value: RawJson) -> str:
    if not isinstance(value.text, str):
        raise TypeError(f"expected the text of RawJson to be a string, got: {type(value.text).__name__}")
    value.text.encode()
    return value.text


def failure(
    dialect: Dialect,
    job: ClaimedJob,
    error: BaseException | str,
    *,
    stack: str | None = None,
    unrecoverable: bool = False,
    strategy: Strategy | None = None,
    default_keep: Keep = None,
) -> Failed | Retried:
    """Decides whether a job whose attempt failed is retried, immediately or after a delay, or has failed.

    stack: text of the trace to store; None stores none. unrecoverable: whether remaining attempts are skipped.
    strategy: computes backoff of types that are not built in. default_keep: for jobs without `removeOnFail`.
    """
    options = job_options(job.opts)
    reason = reason_of(error) if isinstance(error, BaseException) else sendable(error)
    traces = _with_trace(job.stacktrace, stack, dialect.stack_limit(options.stack_limit))
    allowed = options.attempts if job.attempts is None else job.attempts
    made = job.attempts_made + 1
    delay = -1
    if made < allowed and not unrecoverable:
        try:
            delay = min(_backoff_ms(dialect, options.backoff, made, error, strategy), LAST_ETA_MS - epoch_ms())
        except BackoffFailed as failed:
            reason = f"{reason} ({failed})"
    if delay < 0:
        return Failed(job.id, reason, traces, keep_of(dialect, job.opts, "removeOnFail", default_keep), allowed)
    return Retried(job.id, reason, traces, delay, options.lifo)


def _with_trace(traces: str | None, stack: str | None, limit: int | None) -> str:
    """Appends a trace to the JSON list of a job's traces and keeps the last `limit` of them."""
    try:
        known = json.loads(traces) if traces else []
    except (ValueError, RecursionError):
        known = []
    kept: list[Any] = known if isinstance(known, list) else []
    if stack is not None:
        kept = [*kept, stack]
        if limit is not None and limit >= 0:
            kept = kept[-limit:] if limit else []
    return json_text("stacktrace", kept)


def _backoff_ms(
    dialect: Dialect,
    backoff: Mapping[str, Any] | None,
    made: int,
    error: BaseException | str,
    strategy: Strategy | None,
) -> int:
    """Returns the ms until the next attempt; 0: immediately, -1: never, as for an unknown type."""
    if not backoff:
        return 0
    kind, delay, jitter = backoff.get("type"), backoff.get("delay"), backoff.get("jitter")
    if not _is_number(delay):
        delay = 0
    if not dialect.has_jitter or not _is_number(jitter):
        jitter = 0
    if kind == "fixed":
        return fixed_ms(delay, min(jitter, 1))
    if kind == "exponential":
        return dialect.exponential_ms(delay, min(made, _MAX_EXPONENT), min(jitter, 1))
    if strategy is None:
        return -1
    try:
        ms = strategy(made, str(kind), error if isinstance(error, BaseException) else RuntimeError(error))
    except BaseException as raised:
        raise_if_interrupted()
        raise BackoffFailed(f"no further attempt: the backoff strategy raised {reason_of(raised)}") from None
    if not _is_number(ms):
        raise BackoffFailed(f"no further attempt: expected the backoff strategy to return ms, got: {type(ms).__name__}")
    return int(ms)
