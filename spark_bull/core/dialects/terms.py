"""Terms of a job: by when it has to start, whether it may run twice, how long its lock lasts, how starts are spread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from zlib import crc32

from spark_bull.core.errors import OptionError, expected

EXPIRE_AFTER_MS: Final = "expireAfterMs"
EXPIRE_AT: Final = "expireAt"
DELIVERY: Final = "delivery"
LOCK_MS: Final = "lockMs"
SPREAD_MS: Final = "spreadMs"
#: What makes the delays by `spreadMs` of one write, or one call, differ from those of others.
SPREAD_SEED: Final = "spreadSeed"

AT_LEAST_ONCE: Final = "at-least-once"
AT_MOST_ONCE: Final = "at-most-once"
#: The shortest duration of a lock, ms.
MIN_LOCK_MS: Final = 300
#: The last ms of the year 9999, the maximum of Spark's and Python's timestamps.
_LAST_MS: Final = 253_402_300_799_999


class Expiry(NamedTuple):
    """When a job expires: ms after its creation, or a time, ms since 1970. At most one is given."""

    after: int | None = None
    at: int | None = None


def take_expiry(row: dict[str, Any]) -> Expiry:
    """Takes the properties out of those of a row, whose other properties are checked. Raises OptionError."""
    after, at = row.pop(EXPIRE_AFTER_MS, None), row.pop(EXPIRE_AT, None)
    if after is not None and at is not None:
        raise OptionError(f"expected one of `{EXPIRE_AFTER_MS}` and `{EXPIRE_AT}`, got both: leave one out")
    if after is not None:
        check_integer(EXPIRE_AFTER_MS, after, 1, "a positive integer (ms)")
    if at is not None:
        check_integer(EXPIRE_AT, at, 1, "a time (ms since 1970)")
    return Expiry(after, at)


def take_spread(row: dict[str, Any]) -> int:
    """Takes `spreadMs` out of the properties of a row; 0: none. Raises OptionError."""
    spread = row.pop(SPREAD_MS, None)
    if spread is None:
        return 0
    return check_integer(SPREAD_MS, spread, 0, "an integer >= 0 (ms)")


def delay_within(spread: int, seed: object, number: object) -> int:
    """The delay of a job from 0 to `spread`, ms. The same seed and number give the same one."""
    return crc32(f"{seed}:{number}".encode()) * spread >> 32


def check_start(expiry: Expiry, delay: int, run_at: int | None, timestamp: int | None) -> None:
    """Raises OptionError for a job that expires before it may start.

    delay: with the longest one by `spreadMs`, ms. timestamp: time of creation, ms since 1970, if given.
    """
    start: int | None = None
    if expiry.after is not None:
        start = delay if run_at is None else (None if timestamp is None else run_at - timestamp)
    elif expiry.at is not None:
        start = run_at if run_at is not None else (None if timestamp is None else timestamp + delay)
    name, end = (EXPIRE_AFTER_MS, expiry.after) if expiry.at is None else (EXPIRE_AT, expiry.at)
    if start is not None and end is not None and end <= start and (delay or run_at is not None):
        what = "runAt" if run_at is not None else "delay"
        raise OptionError(
            f"expected `{name}` to end after `{what}`, with which the job may start, got: {end} and {start} ms: such a "
            "job would never run"
        )


def prepare_terms(opts: dict[str, Any]) -> bool:
    """Checks `delivery` and `lockMs` in a job's options. Returns whether the job runs at most once.

    Such a job has one attempt. Raises OptionError.
    """
    if opts.get(LOCK_MS) is not None:
        check_integer(LOCK_MS, opts[LOCK_MS], MIN_LOCK_MS, f"an integer >= {MIN_LOCK_MS} (ms)")
    delivery = opts.get(DELIVERY)
    if delivery not in (None, AT_LEAST_ONCE, AT_MOST_ONCE):
        raise expected(DELIVERY, f"{AT_MOST_ONCE} or {AT_LEAST_ONCE} for a job", delivery)
    if delivery != AT_MOST_ONCE:
        opts.pop(DELIVERY, None)
        return False
    if (opts.get("attempts") or 1) > 1:
        raise OptionError(
            f"expected `attempts` to be 1 with `{DELIVERY}` {AT_MOST_ONCE}, got: {opts['attempts']}: another attempt "
            "would run the job again"
        )
    opts["attempts"] = 1
    return True


def check_not_stored(given: Mapping[str, Any], rule: str | None) -> None:
    """Raises OptionError for a job with such terms whose deduplication rule stores it, to be added when another ends.

    given: the terms. rule: the member of the rule that does so; None: none.
    """
    for name, value in given.items():
        if rule and value:
            raise OptionError(
                f"expected no `{name}` with `deduplication.{rule}`: jobs that are stored to run later lose it"
            )


def check_integer(name: str, value: object, low: int, what: str) -> int:
    """Raises OptionError unless the value of a property is an integer of at least `low`, and not beyond all times."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= _LAST_MS:
        raise expected(name, what, value)
    return value
