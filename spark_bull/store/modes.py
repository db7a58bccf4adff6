"""Servers that lack queues: a node of a Redis Cluster has only some of them, a Redis Sentinel has none."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import redis
from redis.exceptions import ResponseError

from spark_bull.errors import ConnectionLost, OptionError
from spark_bull.keys import hash_tag
from spark_bull.store.settings import RedisSettings


def check_scan(client: redis.Redis, settings: RedisSettings, prefix: str) -> None:
    """Raises OptionError, or redis-py's MovedError, if a scan of this server misses queues of a prefix."""
    if _mode_of(client) != "cluster":
        return
    if hash_tag(prefix, ""):
        # All queues of the prefix are in one slot: another node answers with MOVED.
        client.exists(f"{prefix}:")
    elif (nodes := int(client.execute_command("CLUSTER INFO")["cluster_size"])) > 1:
        raise OptionError(
            f"{settings.where} is one of {nodes} nodes of a Redis Cluster and knows only its own queues: expected "
            "names of queues instead of a glob or all queues, or a `prefix` with a hash tag, which keeps all queues on "
            f"one node, such as prefix={{{prefix}}}, got: prefix={prefix}"
        )


def sentinel_error(client: redis.Redis, settings: RedisSettings) -> ConnectionLost | None:
    """Returns the error for a server that is a Sentinel; None if it is not."""
    with suppress(redis.RedisError):
        if _mode_of(client) == "sentinel":
            reply: Any = client.sentinel_masters()
            primaries = reply.values() if isinstance(reply, dict) else reply
            known = ", ".join(f"redis://{one['ip']}:{one['port']} ({one['name']})" for one in primaries)
            return ConnectionLost(
                f"{settings.where} is a Redis Sentinel, which holds no queues and is not supported as an address yet: "
                f"use the `url` of the primary that it watches: {known or 'it watches none'}"
            )
    return None


def _mode_of(client: redis.Redis) -> str:
    """standalone, cluster or sentinel, as HELLO says, for which no right is needed; "" if the server has no HELLO."""
    try:
        reply = client.execute_command("HELLO")
    except ResponseError:
        return ""
    fields = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
    return str(fields[b"mode"].decode())
