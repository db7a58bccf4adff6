"""Many commands in one round trip, with as little CPU as redis-py's connections allow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import redis
from hiredis import pack_command

from spark_bull.store.errors import code_of
from spark_bull.store.scripts import Value


def raw_replies(client: redis.Redis, commands: Iterable[tuple[Value, ...]]) -> list[Any]:
    """Sends commands in one round trip, and returns their replies without redis-py's conversions.

    None for a command on a key of another type; raises the first other error. In RESP2, a reply that is a map in RESP3
    is a list of keys and values.
    """
    packed = [pack_command(command) for command in commands]  # type: ignore[arg-type]  # of any length
    if not packed:
        return []
    connection = client.connection_pool.get_connection()
    try:
        connection.send_packed_command([b"".join(packed)])
        return [_reply(connection) for _ in packed]
    except BaseException:
        # Replies that were not read must not answer the next command.
        connection.disconnect()
        raise
    finally:
        client.connection_pool.release(connection)


def _reply(connection: Any) -> Any:
    try:
        return connection.read_response()
    except redis.ResponseError as error:
        if code_of(error) == "WRONGTYPE":
            return None
        raise
