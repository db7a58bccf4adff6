"""The oldest version of Redis whose commands the scripts use."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import redis

from spark_bull.errors import ConnectionLost
from spark_bull.options.urls import without_secrets
from spark_bull.store.plain_client import new_client
from spark_bull.store.settings import RedisSettings

MIN_REDIS: Final = (6, 2)


def check_version(settings: RedisSettings, url: str, said: Mapping[bytes, Any]) -> None:
    """Raises ConnectionLost for a server that is too old. said: its reply to HELLO, {} from one that has no HELLO."""
    version = said[b"version"].decode() if said else _version_in_info(settings, url)
    if version and tuple(int(part) for part in version.split(".")[:2]) < MIN_REDIS:
        least = ".".join(map(str, MIN_REDIS))
        raise ConnectionLost(
            f"expected Redis {least} or newer at {without_secrets(url)}, got: {version}; upgrade it, or give another "
            "address"
        )


def _version_in_info(settings: RedisSettings, url: str) -> str | None:
    """The version that a server without HELLO has in its INFO; None if it is not told to this user."""
    # redis-py sends HELLO to each new connection of RESP3.
    with (
        suppress(redis.RedisError),
        new_client(replace(settings, extra=(*settings.extra, ("protocol", "2"))), url) as client,
    ):
        return str(client.info("server")["redis_version"])
    return None
