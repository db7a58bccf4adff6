"""Connections: sources of their settings, calls that fail, no secret is shown."""

from __future__ import annotations

import pickle
import re
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import pytest
from redis import Redis
from redis.connection import Connection as RedisConnection

from spark_bull.core.embedded import EmbeddedRedis
from spark_bull.core.errors import ConnectionLost, OptionError
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.redis_settings import RedisSettings
from spark_bull.core.options.table import WriteOptions
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.scripts import RepeatedKeys
from spark_bull.ops.cli import main
from tests.support.network import new_listener
from tests.support.redis_servers import become_cluster
from tests.support.wait import wait_until

SECRET = "hunter2"


def settings(**options: str) -> RedisSettings:
    return parse_options(options, WriteOptions).redis


def ping(**options: str) -> None:
    Connection(settings(**options)).call("PING")


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_BULL_URL", raising=False)
    monkeypatch.delenv("SPARK_BULL_PASSWORD", raising=False)


def test_the_address_is_that_of_options_or_the_environment_or_localhost(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings().url == "redis://localhost:6379/0"
    monkeypatch.setenv("SPARK_BULL_URL", "redis://elsewhere:1/2")
    assert settings().url == "redis://elsewhere:1/2"
    assert settings(url="redis://here").url == "redis://here"


def test_the_password_of_the_environment_has_the_lowest_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BULL_PASSWORD", SECRET)
    for url in ("redis://:own@h", "redis://me:own@h", "unix:///run/redis.sock?password=own"):
        assert settings(url=url).password is None
    assert settings(url="redis://me@h").password == settings().password == SECRET
    assert settings(password="other").password == "other"


def test_parsed_options_are_independent_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [
        parse_options(options, WriteOptions)
        for options in ({"shardUrls": "redis://h,redis://i"}, {"url": "redis://h"}, {}, {"password": "mine"})
    ]
    before = [options.redis for options in given]
    monkeypatch.setenv("SPARK_BULL_URL", "redis://elsewhere")
    monkeypatch.setenv("SPARK_BULL_PASSWORD", SECRET)
    assert [pickle.loads(pickle.dumps(options)).redis for options in given] == before


def test_the_option_overrides_the_password_of_the_url(own_redis: Callable[..., EmbeddedRedis]) -> None:
    server = own_redis({"user": f"ada on ~* +@all >{SECRET}"})
    where = f"127.0.0.1:{server.port}"
    for url in ("ada@{}", "ada:wrong@{}", "{}?username=ada&password=wrong"):
        connection = Connection(settings(url=f"redis://{url.format(where)}", password=SECRET))
        assert connection.call("ACL", "WHOAMI") == b"ada"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("localhost:6379", "localhost:6379"),
        (f"amqp://me:{SECRET}@h", "amqp://***@h"),
        (f"redis://:{SECRET}/@h:1#x", "redis://***@h:***"),
        (f"redis://me:{SECRET}", "redis://me:***"),
        ("redis://[::1]:1/x", "redis://[::1]:1/x"),
        (f"redis://h/x?password={SECRET}", "redis://h/x?***"),
    ],
)
def test_a_bad_url_of_an_option_or_the_environment_is_shown_as_typed_without_its_secrets(
    url: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for given in ({"url": url}, {}):
        with pytest.raises(OptionError, match=f"got: '{re.escape(shown)}'") as error:
            settings(**given)
        assert SECRET not in str(error.value)
        monkeypatch.setenv("SPARK_BULL_URL", url)


def test_a_failed_connection_without_an_address_explains_how_to_give_one() -> None:
    hint = r"no address was given: set the option `url` or \$SPARK_BULL_URL, or .*EmbeddedRedis"
    unsaid = replace(settings(retryMs="0"), url="redis://127.0.0.1:1/0")
    with pytest.raises(ConnectionLost, match=hint):
        Connection(unsaid).call("PING")
    with pytest.raises(ConnectionLost, match=r"Redis at redis://127.0.0.1:1/0, got none within 0.06 s") as error:
        ping(url=f"redis://me:{SECRET}@127.0.0.1:1/0", retryMs="60")
    assert not any(text in str(error.value) for text in ("EmbeddedRedis", SECRET))


def test_the_address_is_shown_without_its_secrets() -> None:
    shown = {
        f"redis://me:{SECRET}@h:1/2": "redis://h:1/2",
        f"redis://h:1/2?password={SECRET}": "redis://h:1/2",
        f"unix://me:{SECRET}@/run/redis.sock?db=1": "unix:///run/redis.sock",
        f"rediss://me:{SECRET}%40x@[::1]:1": "rediss://[::1]:1",
    }
    assert {url: RedisSettings(url).where for url in shown} == shown


def test_options_and_their_settings_can_be_pickled_and_never_show_secrets() -> None:
    raw = {"url": f"redis://me:{SECRET}@h", "password": SECRET, "queue": "mail", "redis.ssl_password": SECRET}
    options = parse_options(raw, WriteOptions)
    again = pickle.loads(pickle.dumps(options))
    assert repr(options) == repr(again) == "Options({'queue': 'mail'})"
    given = options.redis
    assert (again.redis, given.password, given.extra) == (given, SECRET, (("ssl_password", SECRET),))
    for shown in (repr(given), str(given), repr(again.redis), repr(Connection(given)), repr(vars(Connection(given)))):
        assert SECRET not in shown
    assert "redis://h" in repr(given)


def test_settings_of_redis_py_are_passed_on_and_one_that_it_does_not_know_is_refused() -> None:
    given = settings(callTimeoutMs="1000", retryMs="50", **{"redis.client_name": "me"})
    assert (given.timeout_ms, given.retry_ms, given.extra) == (1000, 50, (("client_name", "me"),))
    with pytest.raises(OptionError, match="nonsense"):
        ping(url="redis://localhost:1", retryMs="10", **{"redis.nonsense": "1"})


def test_a_wait_for_redis_that_is_not_repeated_names_no_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_bull.core.store.client.WARN_AFTER_S", 0.05)
    with new_listener() as silent, caplog.at_level("WARNING", "spark_bull"):
        port = silent.getsockname()[1]
        for retry_ms in ("0", "1"):
            with pytest.raises(ConnectionLost):
                ping(url=f"redis://127.0.0.1:{port}", callTimeoutMs="500", retryMs=retry_ms)
    # Not of `caplog.text`: PySpark gives the handlers of logs another format.
    assert [message for message in caplog.messages if message.startswith("waiting for Redis at ")] == [
        f"waiting for Redis at redis://127.0.0.1:{port}: no answer",
        f"waiting for Redis at redis://127.0.0.1:{port}, 0.001 s at most: no answer",
    ]


@pytest.mark.parametrize(("retry_ms", "tries"), [(0, 1), (100, 2), (800, 2)])
def test_the_time_of_hanging_calls_counts_towards_the_retry_limit(retry_ms: int, tries: int) -> None:
    """If only pauses counted, 800 ms would allow five tries of 500 ms each."""
    with new_listener() as silent, ExitStack() as taken:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConnectionLost, match="got none within" if retry_ms else "got none: Timeout"):
            ping(url=url, callTimeoutMs="500", retryMs=str(retry_ms))
        silent.setblocking(False)
        for _ in range(tries):
            taken.enter_context(silent.accept()[0])
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_the_retry_limit_holds_when_the_server_dies_between_two_calls(
    own_redis: Callable[..., EmbeddedRedis], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within each try of a command, redis-py connects with all its own retries."""
    server = own_redis()
    connection = Connection(replace(settings(url=server.url, retryMs="500"), assumed=True))
    connection.call("PING")
    tries: list[object] = []
    connect = RedisConnection._connect

    def count_and_connect(self: RedisConnection) -> socket.socket:
        tries.append(self)
        return connect(self)

    monkeypatch.setattr(RedisConnection, "_connect", count_and_connect)
    server.kill()
    with pytest.raises(ConnectionLost, match=r"got none within 0\.5 s") as error:
        connection.call("PING")
    assert "no address" not in str(error.value)
    # Pauses that double from 50 ms on leave no time for more.
    assert 1 <= len(tries) <= 6
    server.start()
    assert connection.call("PING")


def test_closing_a_connection_does_not_interrupt_other_threads(own_redis: Callable[..., EmbeddedRedis]) -> None:
    """All threads of a process share the client of one Redis, such as a queue that is closed and a running worker."""
    server = own_redis()
    connection, other = (Connection(settings(url=server.url, callTimeoutMs=ms)) for ms in ("30000", "30001"))
    taken: list[object] = []
    waiting = threading.Thread(target=lambda: taken.append(connection.call("BLPOP", "list", 20)))
    waiting.start()
    wait_until(lambda: other.call("INFO")["blocked_clients"] == 1, "the call to wait")
    connections = other.call("INFO")["total_connections_received"]
    connection.close()
    other.call("RPUSH", "list", "a")
    waiting.join()
    assert taken == [(b"list", b"a")]
    assert other.call("INFO")["total_connections_received"] == connections


def test_an_out_of_memory_error_does_not_advise_to_repeat_the_write(own_redis: Callable[..., EmbeddedRedis]) -> None:
    """Only the caller knows whether the operation may be repeated."""
    server = own_redis({"maxmemory": "1", "maxmemory-policy": "noeviction"})
    connection = Connection(settings(url=server.url))
    for ask in (
        lambda: connection.call("SET", "k", 1),
        lambda: connection.script("write/stage", {"stage": "k"}, {"number": 0, "chunk": b"", "ttl_ms": 1}),
    ):
        with pytest.raises(ConnectionLost, match=r"out of memory \(maxmemory reached\): free memory or raise") as error:
            ask()
        assert "again" not in str(error.value)


def test_keys_without_a_hash_tag_are_an_error_in_python_and_in_the_command(
    own_redis: Callable[..., EmbeddedRedis], capsys: pytest.CaptureFixture[str]
) -> None:
    server = own_redis({"cluster-enabled": "yes"})
    with Redis.from_url(server.url) as client:
        become_cluster(client)
    said = "must share a hash tag. Put one into {}, such as prefix={{bull}}"
    with pytest.raises(OptionError, match=re.escape(said.format("`prefix`"))):
        BullQueue("mail", url=server.url)
    with pytest.raises(OptionError, match=re.escape(said.format("`prefix`"))):
        BullQueue("mail", url=server.url, protocol="bullmq").add({})
    assert main(["add", "mail", "{}", "--url", server.url]) == 2
    assert said.format("`--prefix`") in capsys.readouterr().err
    assert BullQueue("mail", url=server.url, prefix="{bull}").add({}) == "1"
    assert main(["add", "{mail}", "{}", "--url", server.url]) == 0


NAME = "queues/forget"


def test_a_script_with_repeated_keys_is_sent_again_to_a_server_that_does_not_know_it(
    own_redis: Callable[..., EmbeddedRedis],
) -> None:
    server, keys = Connection(RedisSettings(own_redis().url)), RepeatedKeys({"registry": "r"})
    server.call("ZADD", "r", 1, "a", 1, "b", 1, "c")
    removed = []
    for name in ("a", "b", "c"):
        removed.append(server.script(NAME, keys, {"entries": [name, 1]}))
        server.call("SCRIPT", "FLUSH")
    assert removed == [1, 1, 1]


@pytest.mark.parametrize("kind", [dict, RepeatedKeys])
def test_a_key_that_cannot_be_encoded_is_an_error_of_ours(
    kind: Callable[[dict[str, str]], dict[str, str]], own_redis: Callable[..., EmbeddedRedis]
) -> None:
    with pytest.raises(OptionError, match="UTF-8"):
        Connection(RedisSettings(own_redis().url)).script(NAME, kind({"registry": "\ud800"}), {"entries": []})
