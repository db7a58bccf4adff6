"""Commands in one round trip: their replies, and the connections that they come on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from redis import Redis
from redis.connection import AbstractConnection

from spark_bull import SparkBullError
from spark_bull.core.options.redis_settings import RedisSettings
from spark_bull.core.store import server
from spark_bull.core.store.client import client_of
from spark_bull.core.store.connection import Connection
from tests.support.wait import wait_until


@pytest.fixture
def connection(redis_url: str) -> Connection:
    return Connection(RedisSettings(redis_url))


def test_replies_come_in_the_order_of_the_commands(connection: Connection, client: Redis, prefix: str) -> None:
    client.hset(f"{prefix}h", mapping={"a": "1", "b": "é"})
    replies = connection.pipeline(
        [("HMGET", f"{prefix}h", "b", "x"), ("EXISTS", f"{prefix}none"), ("GET", f"{prefix}none")], raw=True
    )
    assert replies == [["é".encode(), None], 0, None]
    assert connection.pipeline([], raw=True) == []


def test_after_an_error_the_next_command_gets_its_own_reply(connection: Connection, client: Redis, prefix: str) -> None:
    client.set(f"{prefix}s", "x")
    client.hset(f"{prefix}h", "a", "1")
    # A key of another type has no reply.
    assert connection.pipeline([("HMGET", f"{prefix}s", "a"), ("HMGET", f"{prefix}h", "a")], raw=True) == [None, [b"1"]]
    with pytest.raises(SparkBullError, match="wrong number of arguments"):
        connection.pipeline([("HMGET",), ("GET", f"{prefix}s")], raw=True)
    assert connection.call("GET", f"{prefix}s") == b"x"
    assert connection.pipeline([("GET", f"{prefix}s")], raw=True) == [b"x"]


class Interrupted(BaseException):
    """As a timeout of a job raises it in a thread, at any place."""


@pytest.mark.parametrize("where", ["sent", "received"])
def test_an_interrupted_call_leaves_no_reply_to_the_next_one(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    send = AbstractConnection.send_packed_command

    def interrupted(*call: Any) -> Any:
        if where == "sent":
            send(*call)
        raise Interrupted

    assert connection.call("ECHO", "a") == b"a"
    with monkeypatch.context() as patch:
        if where == "sent":
            patch.setattr(AbstractConnection, "send_packed_command", interrupted)
        else:
            patch.setattr(server, "_receive", interrupted)
        with pytest.raises(Interrupted):
            connection.call("ECHO", "b")
    assert connection.call("ECHO", "c") == b"c"


@pytest.mark.parametrize("protocol", ["2", "3"])
def test_redis_is_not_asked_for_messages_that_would_be_skipped(redis_url: str, protocol: str) -> None:
    client = client_of(RedisSettings(redis_url, extra=(("protocol", protocol),)))
    pool = client.run(lambda known: known.client.connection_pool)
    # An older redis-py has no such messages.
    assert not getattr(pool, "maint_notifications_enabled", bool)()


def connection_id(redis_url: str) -> int:
    """The number of the connection that a reply came on. Nothing is tried again."""
    return int(Connection(RedisSettings(redis_url, retry_ms=0)).pipeline([("CLIENT", "ID")], raw=True)[0])


def test_replies_come_on_one_connection_and_only_other_threads_get_others(
    redis_url: str, client: Redis, prefix: str
) -> None:
    first = connection_id(redis_url)
    assert connection_id(redis_url) == first
    with ThreadPoolExecutor() as pool:
        waiting = Connection(RedisSettings(redis_url, retry_ms=0))
        blocked = pool.submit(waiting.pipeline, [("BLPOP", f"{prefix}:none", 0), ("CLIENT", "ID")])
        wait_until(
            lambda: any(one["cmd"] == "blpop" and one["id"] == str(first) for one in waiting.clients()),
            "a thread to use the connection",
        )
        assert connection_id(redis_url) != first
        client.rpush(f"{prefix}:none", "x")
        assert blocked.result()[1] == first


def test_a_connection_that_the_server_has_closed_is_opened_again_without_another_try(
    redis_url: str, client: Redis
) -> None:
    closed = connection_id(redis_url)
    client.execute_command("CLIENT", "KILL", "ID", closed)
    opened = connection_id(redis_url)
    assert opened != closed
    assert connection_id(redis_url) == opened


def test_a_forked_process_leaves_the_connections_to_the_other_one(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = connection_id(redis_url)
    known = client_of(RedisSettings(redis_url, retry_ms=0)).run(lambda found: found)
    monkeypatch.setattr(server, "getpid", lambda: 0)
    # `client_of` has another client for another process; a caller may have kept this one.
    assert known.ask("CLIENT", "ID") != first


def test_methods_of_redis_py_use_the_connection_of_calls(redis_url: str) -> None:
    # A client of its own, which has one connection.
    settings = RedisSettings(redis_url, extra=(("client_name", "methods"),))
    known = client_of(settings).run(lambda found: found)
    assert known.ask("CLIENT", "ID") == known.client.client_id() == known.ask("CLIENT", "ID")
