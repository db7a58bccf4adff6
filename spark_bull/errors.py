"""Everything spark_bull raises, in one tree.

SparkBullError
├── OptionError        an option, a column or an argument is wrong; nothing was sent
├── DialectError       the queue speaks another dialect, or the dialect has no such thing
├── ConnectionLost     Redis can't be reached, or refuses us
│   └── RedisUnavailable   … for now: the same call may succeed later
├── ScriptError        a Lua script failed, or its contract is broken
├── PatternError       a schedule's pattern or time zone can't be read
├── ResultsLost        finished jobs were lost, and `failOnDataLoss` is true
├── ReaderInUse        another query reads results under the same `readerId`
├── StagedDataLost     staged chunks were gone when the write was to be committed
├── WorkerFailed       the slots of a worker could not be started
├── QueueBusy          workers hold jobs of a queue that is to be deleted
├── JobTimeout         a job took longer than it may
├── JobDamaged         a field of a job isn't what it should be
├── UnrecoverableError raised by a processor: its job has failed for good
├── DelayedError       raised by a processor: its job is to run later
├── RateLimitError     raised by a processor: its queue is rate limited
└── JobError           one job can't do what was asked
    ├── JobMissing     there is no such job
    ├── JobLocked      a worker holds the job
    └── WrongState     the job is in another state

A message says what was expected, what came and what to do; it never holds a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from copyreg import __newobj__  # type: ignore[attr-defined]
from difflib import get_close_matches
from typing import Any, Final, SupportsIndex

from spark_bull.clock import LAST_ETA_MS


class SparkBullError(Exception):
    """The root of every error of this package. All of them travel between processes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return __newobj__, (type(self), *self.args), vars(self)


class OptionError(SparkBullError, ValueError):
    """An option, a column or an argument is wrong; nothing was sent to Redis."""


class DialectError(SparkBullError):
    """The queue speaks another dialect than asked for, or the dialect lacks the feature."""


class ConnectionLost(SparkBullError, ConnectionError):
    """Redis can't be reached, or refuses what we ask of it."""


class RedisUnavailable(ConnectionLost):
    """Redis can't be reached or can't serve now, in a state that passes: the same call may succeed later."""


class ScriptError(SparkBullError):
    """A Lua script failed, or its contract is broken."""


class PatternError(SparkBullError, ValueError):
    """A schedule's cron pattern, or its time zone, can't be read."""


class StagedDataLost(SparkBullError):
    """Staged chunks were gone (expired, evicted, flushed) when the write was to be committed."""


class ResultsLost(SparkBullError):
    """Finished jobs were lost, and `failOnDataLoss` is true."""


class ReaderInUse(SparkBullError):
    """Another query reads results under the same `readerId`."""


class WorkerFailed(SparkBullError):
    """The slots of a worker could not be started, or Spark gave them up."""


class QueueBusy(SparkBullError):
    """Workers hold jobs of a queue that is to be deleted.

    Parameters:
      message: what is wrong, and what to do.
      queue: name of the queue.
      active: how many of its jobs are active.
    """

    def __init__(self, message: str, *, queue: str, active: int) -> None:
        super().__init__(message)
        self.queue = queue
        self.active = active


class JobError(SparkBullError):
    """One job can't do what was asked.

    Parameters:
      message: what is wrong, and what to do.
      queue: name of the queue.
      job_id: id of the job.
    """

    def __init__(self, message: str, *, queue: str, job_id: str) -> None:
        super().__init__(message)
        self.queue = queue
        self.job_id = job_id


class JobMissing(JobError):
    """There is no such job."""


class JobLocked(JobError):
    """A worker holds the job's lock."""


class WrongState(JobError):
    """The job is in another state than the call needs."""


class UnrecoverableError(SparkBullError):
    """Raised by a processor: the job has failed for good, whatever attempts are left."""


_AT: Final = "to run again at "


class DelayedError(SparkBullError):
    """Raised by a processor: the job runs again later, and no attempt counts. One of the parameters is required.

    Parameters:
      delay: ms until the job runs again.
      until: when it runs again, ms since 1970.
    """

    def __init__(self, delay: int | None = None, *, until: int | None = None) -> None:
        if (delay is None) == (until is None):
            raise OptionError("expected DelayedError with one of `delay` (ms) and `until` (ms since 1970)")
        super().__init__(f"to run again in {delay} ms" if until is None else f"{_AT}{until}")
        self.delay = None if delay is None else _milliseconds("delay", delay)
        self.until = None if until is None else _milliseconds("until", until)

    def due(self, now: int) -> int:
        """Tells when the job is to run again.

        Parameters:
          now: the time, ms since 1970.

        Returns:
          When the job is due, ms since 1970.

        Raises:
          OptionError: when an attribute was changed to what is no time.
        """
        if self.until is not None:
            return _milliseconds("until", self.until)
        return min(now + _milliseconds("delay", self.delay), LAST_ETA_MS)


class RateLimitError(SparkBullError):
    """Raised by a processor: the job goes back to the queue, of which no job starts for a time.

    Parameters:
      duration: that time, ms.
    """

    def __init__(self, duration: int) -> None:
        super().__init__(f"rate limited for {duration} ms")
        self.duration = _milliseconds("duration", duration)

    def rest(self) -> int:
        """Tells for how long no job of the queue starts.

        Returns:
          That time, ms.

        Raises:
          OptionError: when the attribute was changed to what is no time.
        """
        return _milliseconds("duration", self.duration)


class JobTimeout(SparkBullError):
    """A job ran longer than its `timeout` allows."""


class JobDamaged(SparkBullError, ValueError):
    """A field of a job's hash is not what it should be, whatever attempts are left."""


def _milliseconds(name: str, value: object) -> int:
    number = value.__index__() if isinstance(value, SupportsIndex) and not isinstance(value, bool) else value
    if not isinstance(number, (int, float)) or isinstance(number, bool) or not 0 <= number <= LAST_ETA_MS:
        raise expected(name, f"a number of ms from 0 to {LAST_ETA_MS}", value)
    return int(number)


def control_error(trace: str) -> SparkBullError | None:
    """The UnrecoverableError, DelayedError or RateLimitError that a Python trace ends with, for where only its text
    arrives; None for any other.
    """
    said = re.findall(
        rf"^{__name__}\.(UnrecoverableError|DelayedError|RateLimitError)(?:: (.*))?$", trace, re.MULTILINE
    )
    if not said:
        return None
    kind, message = said[-1]
    number = re.search(r"\d+", message)
    if kind == "UnrecoverableError":
        return UnrecoverableError(message)
    if number is None:
        return None
    if kind == "RateLimitError":
        return RateLimitError(int(number[0]))
    return DelayedError(until=int(number[0])) if message.startswith(_AT) else DelayedError(int(number[0]))


def expected(name: str, what: str, got: object) -> OptionError:
    """The usual message of a bad option: what was expected of `name`, and what came."""
    return OptionError(f"expected `{name}` to be {what}, got: {got!r}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' (did you mean `x`?)' for the nearest of the known names, or an empty string."""
    by_lower = {k.lower(): k for k in known}
    near = get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
    return f" (did you mean `{by_lower[near[0]]}`?)" if near else ""
