"""Plain clients of redis-py for one server, with the settings of a connection."""

from __future__ import annotations

import logging
import socket
from functools import partial
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from spark_bull.core.errors import OptionError
from spark_bull.core.options.redis_settings import RedisSettings
from spark_bull.core.options.urls import at_address
from spark_bull.core.store.errors import check_files, is_denied

try:
    from redis.driver_info import DriverInfo
except ImportError:  # an older redis-py
    _DRIVER: dict[str, Any] = {}
else:
    # Otherwise redis-py 8 reads its version from a file for each connection, which takes longer than connecting.
    _DRIVER = {"driver_info": DriverInfo()}

try:
    from redis.maint_notifications import MaintNotificationsConfig
except ImportError:  # an older redis-py
    _NOTIFICATIONS: dict[str, Any] = {}
else:
    # redis-py 8 would subscribe each new connection to messages about maintenance of the server, which takes a round
    # trip, and server.py skips them. Calls are repeated instead.
    _NOTIFICATIONS = {"maint_notifications_config": MaintNotificationsConfig(enabled=False)}

log = logging.getLogger("spark_bull")

#: A connection that is silent for a minute is probed. Otherwise a balancer that forgets it without a word, after some
#: minutes, would leave a listener waiting for ever. TCP_KEEPALIVE is the name on macOS.
_PROBES: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPALIVE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 3}
_KEEPALIVE: Final = {
    "socket_keepalive": True,
    "socket_keepalive_options": {getattr(socket, name): n for name, n in _PROBES.items() if hasattr(socket, name)},
}
CONNECT_TIMEOUT_S: Final = 5.0
#: Settings `redis.sentinel_…` are for the connections to Sentinels.
_OF_SENTINELS: Final = "sentinel_"


def new_client(settings: RedisSettings, url: str) -> redis.Redis:
    """A client of the server at `url`. Opens no socket. Raises OptionError for settings that redis-py refuses."""
    # hiredis parses a list of names and values in a fifth of the time of a map of RESP3.
    arguments = {"protocol": 2, **_timeouts(settings), **({} if url.startswith("unix:") else _KEEPALIVE)}
    arguments.update((name, _typed(text)) for name, text in settings.extra if not name.startswith(_OF_SENTINELS))
    try:
        client = redis.Redis.from_url(url, **arguments)
        pool = client.connection_pool
        if not {"lib_name", "lib_version"} & set(pool.connection_kwargs):
            pool.connection_kwargs.update(_DRIVER)
        # Set here because from_url() gives precedence to the URL.
        if settings.password is not None:
            pool.connection_kwargs["password"] = settings.password
        # Set here as redis-py fails to connect without the right to set a name.
        name = pool.connection_kwargs.pop("client_name", None)
        pool.connection_kwargs["redis_connect_func"] = partial(_prepare, name)
        # Validates the settings, which the pool does only with the first command. Opens no socket.
        pool.connection_class(**pool.connection_kwargs)
    except (TypeError, ValueError) as error:
        raise OptionError(f"expected settings that redis-py accepts: {error}") from None
    check_files(pool.connection_kwargs)
    return client


def _prepare(name: str | None, connection: Any) -> None:
    """Prepares a new connection, and gives it a name, which is not needed, if Redis permits that."""
    connection.on_connect()
    if name:
        connection.send_command("CLIENT", "SETNAME", name)
        try:
            connection.read_response()
        except redis.ResponseError as error:
            if not is_denied(error):
                raise
            log.info("connections to Redis have no name: %s", error)


def sentinel_arguments(settings: RedisSettings) -> dict[str, Any]:
    """The arguments of clients of Sentinels, which have a user and a password of their own."""
    of_primary = new_client(settings, at_address(settings.url, "localhost", 0)).connection_pool.connection_kwargs
    shared = {name: value for name, value in of_primary.items() if name.startswith("ssl_")}
    own = {n.removeprefix(_OF_SENTINELS): _typed(text) for n, text in settings.extra if n.startswith(_OF_SENTINELS)}
    timeouts = {**_timeouts(settings), "socket_timeout": CONNECT_TIMEOUT_S}
    return {"ssl": settings.url.startswith("rediss"), **timeouts, **shared, **own}


def _timeouts(settings: RedisSettings) -> dict[str, Any]:
    return {
        "socket_timeout": settings.timeout_ms / 1000,
        "socket_connect_timeout": min(CONNECT_TIMEOUT_S, settings.timeout_ms / 1000),
        "retry": Retry(NoBackoff(), 0),
        **_NOTIFICATIONS,
    }


def _typed(text: str) -> Any:
    """Parses a setting for redis-py as a bool, a number or a string."""
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
