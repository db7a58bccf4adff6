"""Translates redis-py's errors, and distinguishes transient errors from permanent ones.

An error reply such as `NOREPLICAS Not enough good replicas to write.` starts with a code. Transient errors become
RedisUnavailable: the call can be repeated, because Redis rejects a command before it changes data, and a script before
its first write. Permanent errors become ConnectionLost, OptionError or QueueDamaged if the cause is known, else
ScriptError.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, Final

import redis
from redis import exceptions

from spark_bull.core.errors import (
    ConnectionLost,
    OptionError,
    PermissionDenied,
    QueueDamaged,
    RedisUnavailable,
    ScriptError,
    SparkBullError,
)
from spark_bull.core.options.redis_settings import URL_VARIABLE, RedisSettings
from spark_bull.core.store.scripts import located

#: Settings of redis-py that name files.
_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
#: OpenSSL's numbers of the errors that a name, or an address, is not one of those in the certificate.
_OTHER_ADDRESS: Final = (62, 64)


def check_files(arguments: Mapping[str, Any]) -> None:
    """Raises OptionError for a file of certificates or keys that cannot be read. arguments: of redis-py."""
    for name in _FILES:
        path = arguments.get(name)
        if path is not None and not os.access(path, os.R_OK):
            raise OptionError(f"expected `redis.{name}` to be a file that this machine can read, got: {path!r}")


def tls_message(error: BaseException, where: str) -> str:
    """The message for an error of TLS; empty for a connection that was closed, and for all other errors."""
    if not isinstance(error, ssl.SSLError) or isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return ""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message.removesuffix(".")
        if error.verify_code in _OTHER_ADDRESS:
            return (
                f"the certificate of Redis at {where} is for another address: {said}: use an address that the "
                "certificate has, or set `redis.ssl_check_hostname` to false"
            )
        return (
            f"the certificate of Redis at {where} is not trusted: {said}: set `redis.ssl_ca_certs` to the file of the "
            "authority that signed it"
        )
    said = (error.reason or str(error)).lower().replace("_", " ")
    if "alert" in said:
        return (
            f"Redis at {where} refused the certificate of the client: {said}: set `redis.ssl_certfile` and "
            "`redis.ssl_keyfile`"
        )
    return (
        f"no TLS connection to Redis at {where}: {said}: check the files of `redis.ssl_ca_certs`, `redis.ssl_certfile` "
        "and `redis.ssl_keyfile`, or use a URL without TLS if Redis has none"
    )


#: Codes of transient errors, with the state of Redis that they mean.
TRANSIENT: Final[Mapping[str, str]] = {
    "LOADING": "is still loading its data",
    "READONLY": "is a read-only replica: wait for the end of the fail-over, or give the address of its primary",
    "UNBLOCKED": "has become a replica: wait for the end of the fail-over, or give the address of its primary",
    "MASTERDOWN": "is a replica that has lost its primary",
    "NOREPLICAS": "has too few replicas for a write (`replicas`, or min-replicas-to-write)",
    "MISCONF": "rejects writes because it cannot save its data to disk: see its log",
    "BUSY": "is busy running a slow script",
    "CLUSTERDOWN": "is a Redis Cluster that does not serve the slot of the queue",
    "TRYAGAIN": "is a Redis Cluster that is migrating the slot of the queue",
    # Never followed: keys of the same queue may not have been moved yet.
    "ASK": "is a Redis Cluster that is migrating the slot of the queue",
    "MOVED": "is a Redis Cluster that has moved the slot of the queue",
}
#: Codes of the errors that redis-py raises as classes without the code in the message.
_CODE_OF: Final[Mapping[type[BaseException], str]] = {
    exceptions.BusyLoadingError: "LOADING",
    exceptions.ReadOnlyError: "READONLY",
    exceptions.MasterDownError: "MASTERDOWN",
    exceptions.ClusterDownError: "CLUSTERDOWN",
    exceptions.TryAgainError: "TRYAGAIN",
    exceptions.AskError: "ASK",
    exceptions.MovedError: "MOVED",
    exceptions.OutOfMemoryError: "OOM",
    exceptions.NoPermissionError: "NOPERM",
}
#: Redis 6.2 prepends text to the code of a script's error:
#: `Error running script (…): @user_script:1: @user_script: 1: -OOM …`.
_CODE: Final = re.compile(
    r"(?:Error running script \(call to \w+\): @user_script:\d+: @user_script: \d+: -)?([A-Z]+)\b"
)
#: What core/lua/lib/jobs.lua and values.lua say of a key.
_WRONG_KEY: Final = re.compile(r"expected (.+) to be a (?:\w+, found a \w+|number below 2\^53, found '[^']*')")
#: Messages of a permission error in a script, which has no code.
_FORBIDDEN_IN_SCRIPT: Final = ("The user executing the script can't", "ACL failure in script")
#: What Redis says of a command that is disabled or renamed. The name is followed by arguments, such as passwords.
_UNKNOWN_COMMAND: Final = re.compile(
    r"unknown (?:redis )?command(?: [`'\"]([\w|]+)| called from script)", re.IGNORECASE
)


def code_of(error: BaseException) -> str:
    """Returns the code of an error reply, also of an error in a script; '' if there is none."""
    if known := _CODE_OF.get(type(error)):
        return known
    found = _CODE.match(str(error)) if isinstance(error, exceptions.ResponseError) else None
    return found[1] if found else ""


def is_denied(error: BaseException) -> bool:
    """Whether Redis has refused a command: the user lacks the right to it, or it is disabled."""
    said = str(error)
    return (
        code_of(error) == "NOPERM"
        or any(text in said for text in _FORBIDDEN_IN_SCRIPT)
        or bool(_UNKNOWN_COMMAND.search(said))
    )


def translated(
    error: redis.RedisError, settings: RedisSettings, what: str, *, was_reached: bool = False, announced: str = ""
) -> SparkBullError:
    """Translates an error of redis-py. The message never contains secrets of the URL.

    what: what was sent. was_reached: whether Redis has answered before, so that its address is right. announced: the
    address that failed, if a server has announced it and it was never reached.
    """
    where, code = settings.where, code_of(error)
    if isinstance(error, (exceptions.AuthenticationError, exceptions.AuthorizationError)):
        return ConnectionLost(
            f"Redis at {where} refused the user or password: check `url`, `username` and "
            f"`password` ({first_line(error)})"
        )
    if code in TRANSIENT:
        said = first_line(error)
        if isinstance(error, exceptions.AskError):  # MOVED, too
            said = f"slot {error.slot_id} to {error.host}:{error.port}"
        return RedisUnavailable(f"Redis at {where} {TRANSIENT[code]} ({said})")
    if isinstance(error, (redis.ConnectionError, redis.TimeoutError)):
        for cause in _with_causes(error):
            if said := tls_message(cause, settings.where):
                return ConnectionLost(said)
        if announced:
            return _announced(error, settings, announced)
        return _unreachable(error, settings, "" if was_reached else hint(settings) + _of_tls(error, settings))
    if unknown := _UNKNOWN_COMMAND.search(str(error)):
        # Traces show it as the cause of ours.
        error.args = (str(error).partition(",")[0],)
        name = unknown[1] or "of a script"
        return PermissionDenied(
            f"expected Redis at {where} to know the command {name}, which is disabled or renamed: enable it"
            + (", or set the option `redis.protocol` to 2" if name == "HELLO" else "")
        )
    if is_denied(error):
        return PermissionDenied(f"Redis at {where} denied the user a required permission: {first_line(error)}")
    if code == "OOM":
        return ConnectionLost(f"Redis at {where} is out of memory (maxmemory reached): free memory or raise maxmemory")
    if isinstance(error, exceptions.ClusterCrossSlotError):
        return OptionError(
            f"{where} is a Redis Cluster, where all keys of a queue (and all queues of one write) must share a hash "
            "tag. Put one into `prefix`, such as prefix={bull}, or into the name of the queue, such as {mail}"
        )
    if "WRONGTYPE" in str(error):
        named = _WRONG_KEY.search(first_line(error))
        return QueueDamaged(
            f"a key of the queue has an unexpected type at Redis {where}: {named[0] if named else first_line(error)}. "
            "Restore or delete the key; or, if the queue is of another dialect, set the option `protocol` to it, or "
            "leave it out"
        )
    return ScriptError(f"{what} failed at Redis {where}: {first_line(located(str(error), what))}")


def _unreachable(error: redis.RedisError, settings: RedisSettings, advice: str) -> ConnectionLost:
    if is_unknown_host(error):
        return ConnectionLost(
            f"expected Redis at {settings.where}, but its host is unknown: {first_line(error)}: check "
            f"{'`url`' if not settings.assumed else 'the name'}{advice}"
        )
    return RedisUnavailable(
        f"expected Redis at {settings.where}, got none{_tried(settings)}: {first_line(error)}{advice}"
    )


def _announced(error: redis.RedisError, settings: RedisSettings, address: str) -> ConnectionLost:
    is_unknown = is_unknown_host(error)
    problem = "but its host is unknown here" if is_unknown else f"got none{_tried(settings)}"
    return (ConnectionLost if is_unknown else RedisUnavailable)(
        f"expected a server at {address}, the address that was announced at {settings.where}, {problem}: "
        f"{first_line(error)}. Let the server announce an address that can be reached from here "
        "(cluster-announce-ip, sentinel announce-ip), or map it with the option `addressMap`"
    )


def _tried(settings: RedisSettings) -> str:
    return f" within {settings.retry_ms / 1000:g} s of trying" if settings.retry_ms else ""


def _of_tls(error: redis.RedisError, settings: RedisSettings) -> str:
    """Advice if a server has ended a connection without an answer, as with TLS on one side only."""
    ended = any(
        isinstance(cause, (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError)) for cause in _with_causes(error)
    )
    silent = settings.url.startswith("rediss") and isinstance(error, redis.TimeoutError)
    if not (ended or silent or "closed by" in str(error)):
        return ""
    if not settings.url.startswith("rediss"):
        return "; if the server requires TLS, use rediss:// in `url`"
    return (
        "; if the server requires a certificate of the client, set `redis.ssl_certfile` and `redis.ssl_keyfile`; "
        "if it has no TLS, use redis:// in `url`"
    )


def is_unknown_host(error: BaseException) -> bool:
    """Whether an error was caused by a host name that cannot be resolved."""
    return any(isinstance(cause, socket.gaierror) for cause in _with_causes(error))


def reason(error: BaseException) -> str:
    """Summarizes why a call waits for Redis."""
    code = code_of(error)
    return f"it {TRANSIENT[code]}" if code in TRANSIENT else first_line(error)


def hint(settings: RedisSettings) -> str:
    """Returns advice for a missing address; empty if an address was given."""
    if not settings.assumed:
        return ""
    return (
        f"; no address was given: set the option `url` or ${URL_VARIABLE}, or start a local Redis with "
        "spark_bull.EmbeddedRedis()"
    )


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def first_line(error: BaseException | str) -> str:
    """The first line of a message, without the full stop, as advice may follow."""
    return str(error).partition("\n")[0][:300].removesuffix(".")
