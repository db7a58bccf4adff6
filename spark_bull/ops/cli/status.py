"""The exit statuses of the command: one for each kind of error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_bull.core import errors

FAILED, WRONG_USAGE, NOT_FOUND, UNREACHABLE, DENIED, REFUSED, WARNINGS, PROBLEMS, UNKNOWN = range(1, 10)
#: `timeout` has the first one, shells have the others: after SIGINT, a broken pipe, and SIGTERM.
TIMED_OUT, INTERRUPTED, PIPE_BROKEN, TERMINATED = 124, 130, 141, 143

MEANINGS: Final[Mapping[int, str]] = {
    0: "done",
    FAILED: "`wait`: a job has failed; otherwise, an error that is none of the others",
    WRONG_USAGE: "wrong arguments; nothing was changed",
    NOT_FOUND: "no such queue, job, write or job scheduler",
    UNREACHABLE: "Redis cannot be reached; try again later",
    DENIED: "Redis denies access, is full, or is too old",
    REFUSED: "the queue or the job is in a state that forbids it",
    WARNINGS: "`doctor` found warnings",
    PROBLEMS: "`doctor` found problems",
    UNKNOWN: "`wait`: no job has failed, but jobs are gone, and nothing tells how they have ended",
    TIMED_OUT: "`wait`: the time was over before all jobs had ended",
    INTERRUPTED: "ended by Ctrl-C",
    PIPE_BROKEN: "the reader of a pipe has ended",
    TERMINATED: "ended by SIGTERM; commands that run until Ctrl-C end with 0",
}


class NotFound(errors.SparkBullError):
    """A queue, a write or a job scheduler does not exist."""


#: The first class that an error is of decides.
_OF_ERRORS: Final = (
    ((errors.OptionError, errors.PatternError), WRONG_USAGE),
    ((NotFound, errors.JobMissing), NOT_FOUND),
    ((errors.WaitTimeout,), TIMED_OUT),
    ((errors.RedisUnavailable,), UNREACHABLE),
    ((errors.ConnectionLost,), DENIED),
    ((errors.WrongState, errors.JobLocked, errors.QueueBusy), REFUSED),
    ((errors.QueueFull, errors.IntakeClosed, errors.DialectError), REFUSED),
)


def status_of(error: errors.SparkBullError) -> int:
    return next((status for classes, status in _OF_ERRORS if isinstance(error, classes)), FAILED)
