"""The exceptions of spark_bull.

SparkBullError
├── OptionError        an option, a column or an argument is invalid; nothing was sent
├── DialectError       the queue has another dialect, or the dialect lacks the feature
│   └── QueueDamaged       a key of the queue has another type than its dialect has there
├── ConnectionLost     Redis cannot be reached, or denies access
│   ├── RedisUnavailable   the same call may succeed later
│   └── PermissionDenied   the user lacks the right to a command, a key or a channel
├── ScriptError        a Lua script failed, or its contract is violated
├── PatternError       a job scheduler's pattern or time zone is invalid
├── ReaderInUse        another query reads results with the same `readerId`
├── DataLost           Redis has lost writes
│   ├── StagedDataLost     staged chunks were missing at the commit of a write
│   └── ResultsLost        finished jobs were lost, and `failOnDataLoss` is true
├── WorkerFailed       the slots of a worker could not be started, or its query failed
├── ParentError        the parent of a job is missing, or the job has another one
├── QueueBusy          a queue to be deleted has active jobs
├── QueueFull          a queue has no room for the jobs of a write
├── IntakeClosed       a queue accepts no jobs
├── NotReplicated      too few replicas of Redis have a write
├── ProcessorMissing   a worker has no processor for jobs of this name
├── JobTimeout         a job exceeded its timeout
├── JobDamaged         a field of a job is invalid
├── PayloadUnreadable  an encrypted or stored payload or result cannot be opened
├── PayloadNotStored   a payload or result cannot be stored outside of Redis
├── UnrecoverableError raised by a processor: the job fails without a further attempt
│   └── JobCancelled       the job was cancelled
├── DelayedError       raised by a processor: the job runs again later
├── RateLimitError     raised by a processor: the queue, or the group of the job, is rate limited
├── ReturnedError      raised by a processor: the job returns to the queue
├── WaitingForChildren raised by a processor: the job runs again when its children have ended
└── JobError           an operation on a job failed
    ├── JobMissing     the job does not exist
    ├── JobLocked      a worker has locked the job
    ├── JobLockLost    the job has lost its lock while it was processed
    ├── JobFailed      the job that was waited for has failed
    ├── WaitTimeout    the job that was waited for has not ended in time
    └── WrongState     the job is in another state

A message says what was expected, what came and what to do. It never contains a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from copyreg import __newobj__  # type: ignore[attr-defined]
from difflib import get_close_matches
from typing import Any, Final, SupportsIndex, TypeVar

from spark_bull.core.clock import LAST_ETA_MS

E = TypeVar("E", bound="SparkBullError")

#: What is expected of texts that are sent to Redis.
ENCODABLE: Final = "a text that UTF-8 can encode, without unpaired surrogates"


class SparkBullError(Exception):
    """Base class of all errors of this package. All of them can be pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return __newobj__, (type(self), *self.args), vars(self)


def restated(error: E, message: str) -> E:
    """Copies an error, with its attributes and another message."""
    copied = type(error).__new__(type(error))
    copied.args = (message,)
    vars(copied).update(vars(error))
    return copied


class OptionError(SparkBullError, ValueError):
    """An option, a column or an argument is invalid; nothing was sent to Redis."""


class DialectError(SparkBullError):
    """The queue has another dialect than requested, or the dialect lacks the feature."""


class QueueDamaged(DialectError):
    """A key of the queue has another type than its dialect has there."""


class ConnectionLost(SparkBullError, ConnectionError):
    """Redis cannot be reached, or denies access."""


class RedisUnavailable(ConnectionLost):
    """Redis is temporarily unavailable: the same call may succeed later."""


class PermissionDenied(ConnectionLost):
    """The user of Redis lacks the right to a command, a key or a channel."""


class ScriptError(SparkBullError):
    """A Lua script failed, or its contract is violated."""


class PatternError(SparkBullError, ValueError):
    """The cron pattern or time zone of a job scheduler is invalid."""


class DataLost(SparkBullError):
    """Redis has lost data of a queue that it had confirmed, such as a registered write."""


class StagedDataLost(DataLost):
    """Staged chunks were missing (expired, evicted or flushed) at the commit of a write."""


class ResultsLost(DataLost):
    """Finished jobs were lost, and `failOnDataLoss` is true."""


class ReaderInUse(SparkBullError):
    """Another query reads results with the same `readerId`."""


class WorkerFailed(SparkBullError):
    """The slots of a worker could not be started, or its streaming query failed."""


class ParentError(SparkBullError):
    """A job was not added as a child: its parent is missing, the job has another parent, or is one of its ancestors."""


class QueueBusy(SparkBullError):
    """A queue that is to be deleted has active jobs.

    Parameters:
      message: the message.
      queue: name of the queue.
      active: number of active jobs.
    """

    def __init__(self, message: str, *, queue: str, active: int) -> None:
        super().__init__(message)
        self.queue = queue
        self.active = active


class QueueFull(SparkBullError):
    """A queue has no room for the jobs of a write, by its `maxLength`.

    Parameters:
      message: the message.
      queue: name of the queue.
      length: number of its jobs that wait.
      max_length: maximum length for this write.
    """

    def __init__(self, message: str, *, queue: str, length: int, max_length: int) -> None:
        super().__init__(message)
        self.queue = queue
        self.length = length
        self.max_length = max_length


class IntakeClosed(SparkBullError):
    """A queue accepts no jobs, as its intake is closed.

    Parameters:
      message: the message.
      queue: name of the queue.
    """

    def __init__(self, message: str, *, queue: str) -> None:
        super().__init__(message)
        self.queue = queue


class NotReplicated(SparkBullError):
    """Too few replicas of Redis have a write, although its jobs were added; or too few were connected to begin it.

    Parameters:
      message: the message.
      queue: name of the queue.
      replicas: number of replicas that are known to have it, or that were connected.
      was_written: whether the jobs were added.
    """

    def __init__(self, message: str, *, queue: str, replicas: int, was_written: bool = True) -> None:
        super().__init__(message)
        self.queue = queue
        self.replicas = replicas
        self.was_written = was_written


class JobError(SparkBullError):
    """An operation on a job failed.

    Parameters:
      message: the message.
      queue: name of the queue.
      job_id: id of the job.
    """

    def __init__(self, message: str, *, queue: str, job_id: str) -> None:
        super().__init__(message)
        self.queue = queue
        self.job_id = job_id


class JobMissing(JobError):
    """The job does not exist."""


class JobLocked(JobError):
    """A worker has locked the job."""


class JobLockLost(JobError):
    """The job has lost its lock while it was processed; another worker may have claimed it."""


class JobFailed(JobError):
    """The job that was waited for has failed.

    Parameters:
      message: the message.
      queue: name of the queue.
      job_id: id of the job.
      reason: its `failedReason`; None if the library keeps none.
    """

    def __init__(self, message: str, *, queue: str, job_id: str, reason: str | None) -> None:
        super().__init__(message, queue=queue, job_id=job_id)
        self.reason = reason


class WaitTimeout(JobError):
    """The job that was waited for has not ended in time. `job_id` is "" for a write that has not added all its jobs."""


class WrongState(JobError):
    """The job is not in the state that the call requires."""


class UnrecoverableError(SparkBullError):
    """Raised by a processor: the job fails without a further attempt."""


class JobCancelled(UnrecoverableError):
    """The job was cancelled while a worker held it: it fails without a further attempt.

    Parameters:
      message: the reason that the job fails with.
    """

    def __init__(self, message: str = "cancelled") -> None:
        super().__init__(message)


_AT: Final = "to run again at "
#: Start of the text of a RateLimitError of a group.
_GROUP: Final = "group "


class DelayedError(SparkBullError):
    """Raised by a processor: the job runs again later without using an attempt. Exactly one parameter is required.

    Parameters:
      delay_ms: time until the job runs again, ms.
      until: time at which the job runs again, ms since 1970.
    """

    def __init__(self, delay_ms: int | None = None, *, until: int | None = None) -> None:
        if (delay_ms is None) == (until is None):
            raise OptionError(
                "expected DelayedError with one of `delay_ms` and `until` (ms since 1970), got both or neither"
            )
        super().__init__(f"to run again in {delay_ms} ms" if until is None else f"{_AT}{until}")
        self.delay_ms = None if delay_ms is None else _milliseconds("delay_ms", delay_ms)
        self.until = None if until is None else _milliseconds("until", until)

    def due(self, now: int) -> int:
        """Returns the time at which the job runs again.

        Parameters:
          now: the current time, ms since 1970.

        Returns:
          The time at which the job is due, ms since 1970.

        Raises:
          OptionError: if an attribute was changed to an invalid value.
        """
        if self.until is not None:
            return _milliseconds("until", self.until)
        return min(now + _milliseconds("delay_ms", self.delay_ms), LAST_ETA_MS)


class RateLimitError(SparkBullError):
    """Raised by a processor: the job returns to the queue, and no job of the queue starts for a time.

    Parameters:
      duration_ms: duration of the rate limit, ms.
      group: whether it is for the group of the job only, in a Worker with `group`; a job in no group is delayed.
    """

    def __init__(self, duration_ms: int, *, group: bool = False) -> None:
        super().__init__(f"{_GROUP if group else ''}rate limited for {duration_ms} ms")
        self.duration_ms = _milliseconds("duration_ms", duration_ms)
        self.group = group

    def rest(self) -> int:
        """Returns the duration of the rate limit, ms.

        Raises:
          OptionError: if the attribute was changed to an invalid value.
        """
        return _milliseconds("duration_ms", self.duration_ms)


class ReturnedError(SparkBullError):
    """Raised by a processor: the job returns to the queue, as the next one of its priority. The attempt does not count.

    The same worker may get it again at once: use DelayedError if it has to wait.

    Parameters:
      message: a text for logs.
    """

    def __init__(self, message: str = "to run again") -> None:
        super().__init__(message)


class WaitingForChildren(SparkBullError):
    """Raised by a processor: the job waits for its children, and runs again when they have ended (BullMQ).

    The attempt does not count. Without unfinished children, the job runs again at once; with a failed child that fails
    its parent, it fails.

    Parameters:
      message: a text for logs.
    """

    def __init__(self, message: str = "to run again when the children have ended") -> None:
        super().__init__(message)


#: What a processor raises for the job to run again without having lost an attempt.
POSTPONING: Final = (DelayedError, RateLimitError, ReturnedError, WaitingForChildren)


class JobTimeout(SparkBullError):
    """A job exceeded its timeout."""


class ProcessorMissing(SparkBullError):
    """A worker has processors by name, and none for the name of this job."""


class JobDamaged(SparkBullError, ValueError):
    """A field of a job's hash is invalid: the job fails without a further attempt."""


class PayloadUnreadable(SparkBullError):
    """An encrypted or stored payload or result cannot be opened: another key, or an object that is gone.

    Parameters:
      message: the text of the error.
      may_pass: whether it may open later, as the file system of `offloadTo` has failed.
    """

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class PayloadNotStored(SparkBullError):
    """A payload or result cannot be stored in `offloadTo`: its file system has failed."""


#: What fails a job without a further attempt.
FINAL: Final = (UnrecoverableError, JobDamaged)


def _milliseconds(name: str, value: object) -> int:
    number = value.__index__() if isinstance(value, SupportsIndex) and not isinstance(value, bool) else value
    if not isinstance(number, (int, float)) or isinstance(number, bool) or not 0 <= number <= LAST_ETA_MS:
        raise expected(name, f"a number of ms from 0 to {LAST_ETA_MS}", value)
    return int(number)


def control_error(trace: str) -> SparkBullError | None:
    """Recreates one of FINAL or POSTPONING at the end of a Python trace: Spark passes on the text only.

    None for any other error.
    """
    kinds: dict[str, type[SparkBullError]] = {kind.__name__: kind for kind in (*FINAL, *POSTPONING)}
    raised = re.findall(rf"^{__name__}\.({'|'.join(kinds)})(?:: (.*))?$", trace, re.MULTILINE)
    if not raised:
        return None
    kind, message = raised[-1]
    if kind not in ("DelayedError", "RateLimitError"):
        return kinds[kind](message)
    number = re.search(r"\d+", message)
    if number is None:
        return None
    if kind == "RateLimitError":
        return RateLimitError(int(number[0]), group=message.startswith(_GROUP))
    return DelayedError(until=int(number[0])) if message.startswith(_AT) else DelayedError(int(number[0]))


def expected(name: str, what: str, got: object) -> OptionError:
    """Creates an OptionError that says what was expected of `name`, and what came."""
    return OptionError(f"expected `{name}` to be {what}, got: {got!r}")


def check_count(name: str, value: object, least: int = 0) -> None:
    """Raises OptionError, with its `name`, for a value that is no integer >= `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise expected(name, f"an integer >= {least}", value)


def is_encodable(text: str) -> bool:
    """Whether UTF-8 can encode a text: it has no unpaired surrogate."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def encodable(name: str, text: str) -> str:
    """Returns a text. Raises OptionError, with its `name`, if UTF-8 can't encode it."""
    if not is_encodable(text):
        first = next(position for position, sign in enumerate(text) if not is_encodable(sign))
        raise expected(name, ENCODABLE, text[max(0, first - 100) : first + 100])
    return text


def check_encodable(name: str, value: object) -> None:
    """Raises OptionError for the first text in a value that UTF-8 can't encode; names the member that it is of."""
    if isinstance(value, str):
        encodable(name, value)
    elif isinstance(value, Mapping):
        for member, one in value.items():
            check_encodable(name, member)
            check_encodable(str(member), one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            check_encodable(name, one)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns ' (did you mean `x`?)' with the nearest known name, or ''."""
    by_lower = {k.lower(): k for k in known}
    near = get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
    return f" (did you mean `{by_lower[near[0]]}`?)" if near else ""
