"""What Redis refuses, and what becomes of it: the one place that tells passing states from lasting ones.

A reply such as `NOREPLICAS Not enough good replicas to write.` starts with a code. A state that passes is
RedisUnavailable: the same call may be sent again, as Redis refuses a command before it has changed anything, and a
script with its first write. What lasts is ConnectionLost, OptionError or DialectError when the cause is known, else
ScriptError.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from typing import Final

import redis
from redis import exceptions

from spark_bull.errors import (
    ConnectionLost,
    DialectError,
    OptionError,
    RedisUnavailable,
    ScriptError,
    SparkBullError,
)
from spark_bull.store.settings import URL_VARIABLE, RedisSettings

#: Code of a reply -> what it says of a Redis that will serve again without a change on our side.
PASSING: Final[Mapping[str, str]] = {
    "LOADING": "is still loading its data",
    "READONLY": "is a read-only replica: wait for the end of the fail-over, or give the address of its primary",
    "UNBLOCKED": "has become a replica: wait for the end of the fail-over, or give the address of its primary",
    "MASTERDOWN": "is a replica that has lost its primary",
    "NOREPLICAS": "takes no writes, because too few replicas are connected (min-replicas-to-write)",
    "MISCONF": "takes no writes, because it can't save its data to disk: its log says why",
    "BUSY": "is busy with a script that takes too long",
    "CLUSTERDOWN": "is a Redis Cluster that doesn't serve the queue now",
    "TRYAGAIN": "is a Redis Cluster that doesn't serve the queue now, because it moves keys",
}
#: Of these redis-py has classes, and cuts the code off the text.
_CODE_OF: Final[Mapping[type[BaseException], str]] = {
    exceptions.BusyLoadingError: "LOADING",
    exceptions.ReadOnlyError: "READONLY",
    exceptions.MasterDownError: "MASTERDOWN",
    exceptions.ClusterDownError: "CLUSTERDOWN",
    exceptions.TryAgainError: "TRYAGAIN",
    exceptions.OutOfMemoryError: "OOM",
    exceptions.NoPermissionError: "NOPERM",
}
#: Redis 6.2 hides the code of what a script met: `Error running script (…): @user_script:1: @user_script: 1: -OOM …`.
_CODE: Final = re.compile(
    r"(?:Error running script \(call to \w+\): @user_script:\d+: @user_script: \d+: -)?([A-Z]+)\b"
)
#: How a script is told that its user may not touch a key, or run a command; no code says it.
_FORBIDDEN_IN_SCRIPT: Final = ("The user executing the script can't", "ACL failure in script")


def code_of(error: BaseException) -> str:
    """The code of an error reply, also of one that a script met; '' when there is none."""
    if known := _CODE_OF.get(type(error)):
        return known
    found = _CODE.match(str(error)) if isinstance(error, exceptions.ResponseError) else None
    return found[1] if found else ""


def in_our_words(error: redis.RedisError, settings: RedisSettings, what: str) -> SparkBullError:
    """The error to be raised instead of redis-py's; `what` was sent. It never holds the URL's secrets."""
    where, code = settings.where, code_of(error)
    if isinstance(error, (exceptions.AuthenticationError, exceptions.AuthorizationError)):
        return ConnectionLost(
            f"Redis at {where} refused the user or password: check `url`, `username` and "
            f"`password` ({first_line(error)})"
        )
    if code in PASSING:
        return RedisUnavailable(f"Redis at {where} {PASSING[code]} ({first_line(error)})")
    if isinstance(error, (redis.ConnectionError, redis.TimeoutError)):
        return _unreachable(error, settings)
    if code == "NOPERM" or any(text in str(error) for text in _FORBIDDEN_IN_SCRIPT):
        return ConnectionLost(f"Redis at {where} forbids the user what we need: {first_line(error)}")
    if code == "OOM":
        return ConnectionLost(f"Redis at {where} is out of memory (maxmemory reached): free some, or raise maxmemory")
    if isinstance(error, exceptions.ClusterCrossSlotError):
        return OptionError(
            f"{where} is a Redis Cluster, where all keys of a queue (and all queues of one write) must share a hash "
            "tag: put one into `prefix`, such as prefix={bull}, or into the name of the queue, such as {mail}"
        )
    if isinstance(error, exceptions.AskError):  # MOVED, too
        return ConnectionLost(
            f"{where} is one of several nodes of a Redis Cluster, and the queue is on another one: give the address "
            f"of that ({error.host}:{error.port}) and make all keys of a queue share a hash tag, such as "
            "prefix={bull}, or use a Redis that is no cluster"
        )
    if "WRONGTYPE" in str(error):
        return DialectError(
            f"a key of the queue has another type than expected at Redis {where}: give the option `protocol` "
            f"the dialect of the queue, or leave it out ({first_line(error)})"
        )
    return ScriptError(f"{what} failed at Redis {where}: {first_line(error)}")


def _unreachable(error: redis.RedisError, settings: RedisSettings) -> ConnectionLost:
    if is_unknown_host(error):
        return ConnectionLost(
            f"expected Redis at {settings.where}, but its host is unknown: {first_line(error)}: check "
            f"{'`url`' if not settings.assumed else 'the name'}{hint(settings)}"
        )
    return RedisUnavailable(
        f"expected Redis at {settings.where}, got none within {settings.retry_ms / 1000:g} s of trying: "
        f"{first_line(error)}{hint(settings)}"
    )


def is_unknown_host(error: BaseException) -> bool:
    """Whether an error came about because a host name has no address."""
    return any(isinstance(cause, socket.gaierror) for cause in _with_causes(error))


def reason(error: BaseException) -> str:
    """Why Redis is waited for, in short."""
    code = code_of(error)
    return f"it {PASSING[code]}" if code in PASSING else first_line(error)


def hint(settings: RedisSettings) -> str:
    """What to do when nothing said where Redis is."""
    if not settings.assumed:
        return ""
    return (
        f"; nothing said where Redis is: give the option `url` or set ${URL_VARIABLE}, or start a Redis for a trial "
        "with spark_bull.EmbeddedRedis()"
    )


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:300]
