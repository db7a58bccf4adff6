"""The limits of a BullMQ queue over all its workers: how many jobs are active at once, and how many start in a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_bull.core.clock import LAST_ETA_MS
from spark_bull.core.dialects.fields import integer_of
from spark_bull.core.errors import OptionError, expected
from spark_bull.core.model.jobs import QueueLimits
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.manage import verbs

#: Number of started jobs that exhausts every rate limit, as in BullMQ: the largest integer of JavaScript.
_EXHAUSTED: Final = 2**53 - 1
#: Field of `meta` with a limit that has another name.
_FIELDS: Final = {"duration_ms": "duration"}


def set_limits(
    handle: QueueHandle,
    *,
    concurrency: int | None = None,
    max: int | None = None,
    duration_ms: int | None = None,
) -> None:
    """Sets the limits that are given. Raises OptionError or DialectError."""
    handle.dialect.require("queue-limits")
    given = given_limits({"concurrency": concurrency, "max": max, "duration_ms": duration_ms})
    verbs.set_limits(handle, {_FIELDS.get(name, name): value for name, value in given.items()}, ())


def given_limits(limits: Mapping[str, int | None], duration: str = "duration_ms") -> dict[str, int]:
    """The limits that are given: `concurrency`, `max` and a duration. Raises OptionError for none, and wrong ones.

    duration: the name of the duration, ms.
    """
    given = {name: value for name, value in limits.items() if value is not None}
    if not given:
        raise OptionError(f"expected `concurrency`, or `max` and `{duration}`, got none")
    if ("max" in given) != (duration in given):
        missing = duration if "max" in given else "max"
        raise OptionError(f"expected `max` and `{duration}` together, got no `{missing}`")
    for name, value in given.items():
        _check_positive(name, value)
    return given


def remove_limits(handle: QueueHandle, *, concurrency: bool = True, rate: bool = True) -> None:
    """Removes the limits. Raises DialectError."""
    handle.dialect.require("queue-limits")
    names = [*(["concurrency"] if concurrency else []), *(["max", "duration"] if rate else [])]
    verbs.set_limits(handle, {}, names)


def limits(handle: QueueHandle) -> QueueLimits:
    """Reads the limits. Raises DialectError."""
    handle.dialect.require("queue-limits")
    keys = handle.keys
    fields, active, started, left, left_of_spark = handle.connection.pipeline(
        [
            ("HMGET", keys["meta"], "concurrency", "max", "duration"),
            ("LLEN", keys["active"]),
            ("GET", keys["limiter"]),
            ("PTTL", keys["limiter"]),
            ("PTTL", keys["rate_limited"]),
        ]
    )
    concurrency, most, duration = map(integer_of, fields)
    is_exhausted = (integer_of(started) or 0) >= (most or _EXHAUSTED)
    limited_ms = max(left if is_exhausted else 0, left_of_spark, 0)
    return QueueLimits(concurrency, most, duration, limited_ms, concurrency is not None and active >= concurrency)


def rate_limit(handle: QueueHandle, duration_ms: int) -> None:
    """Keeps jobs from starting for a time. Raises OptionError or DialectError."""
    handle.dialect.require("queue-limits")
    _check_positive("duration_ms", duration_ms)
    keys = handle.keys
    # The first key is for workers with a limiter, also those of Node, the second one for all workers of Spark.
    handle.connection.pipeline(
        [
            ("SET", keys["limiter"], _EXHAUSTED, "PX", duration_ms),
            ("SET", keys["rate_limited"], 1, "PX", duration_ms),
        ]
    )


def remove_rate_limit(handle: QueueHandle) -> None:
    """Ends the current rate limit, and forgets how many jobs have started in its period. Raises DialectError."""
    handle.dialect.require("queue-limits")
    handle.connection.call("DEL", handle.keys["limiter"], handle.keys["rate_limited"])


def _check_positive(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LAST_ETA_MS:
        raise expected(name, f"an integer from 1 to {LAST_ETA_MS}", value)
