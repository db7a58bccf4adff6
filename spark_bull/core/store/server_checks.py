"""Warns of a Redis that deletes keys when its memory is full: jobs, and what this library stores about them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import redis
from redis.exceptions import NoPermissionError, ResponseError

log = logging.getLogger("spark_bull")

#: The policy with which Redis refuses writes instead.
NO_EVICTION: Final = "noeviction"
#: Where the servers are that this process has warned of.
_told: Final[set[str]] = set()


def warn_of_eviction(where: str, info: Mapping[str, Any]) -> None:
    """Logs once per process and server if its policy evicts keys. info: the reply of INFO, which may be empty."""
    policy = info.get("maxmemory_policy", NO_EVICTION)
    if policy != NO_EVICTION and where not in _told:
        _told.add(where)
        log.warning(
            "expected maxmemory-policy noeviction at %s, got %s: Redis may delete jobs when its memory is full; set "
            "it in redis.conf, and run spark-bull doctor",
            where,
            policy,
        )


def denials(client: redis.Redis, names: Sequence[str], key: str) -> dict[str, str]:
    """See `Connection.denials`."""
    single = client.client()
    try:
        rows = _replies(single, [("COMMAND", "INFO", *(name.partition("|")[0] for name in names))])[0]
        _raise_error(rows)
        known = {name: abs(row[1]) for name, row in zip(names, rows, strict=True) if row}
        # Without MULTI, the commands would run.
        _raise_error(_replies(single, [("MULTI",)])[0])
        replies = _replies(single, [_example(name, arity, key) for name, arity in known.items()])
    finally:
        # Closing the connection discards the queued commands.
        if single.connection:
            single.connection.disconnect()
        single.close()
    return {name: str(r) for name, r in zip(known, replies, strict=True) if isinstance(r, NoPermissionError)}


def _example(name: str, arity: int, key: str) -> list[str]:
    """A call with as many arguments as the command needs: Redis checks their number before the rights."""
    words = name.split("|")
    return words + [key] * (arity - len(words))


def _replies(single: redis.Redis, commands: Sequence[Sequence[str]]) -> list[Any]:
    """Sends commands in one round trip; returns the replies as they are, errors included."""
    connection: Any = single.connection
    connection.send_packed_command(connection.pack_commands(commands))
    replies: list[Any] = []
    for _ in commands:
        try:
            replies.append(connection.read_response(disable_decoding=True))
        except ResponseError as error:
            replies.append(error)
    return replies


def _raise_error(reply: Any) -> None:
    if isinstance(reply, redis.RedisError):
        raise reply
