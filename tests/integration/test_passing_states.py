"""Calls are retried while Redis refuses them temporarily, as while it is unreachable."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import BusyLoadingError, ResponseError, TryAgainError

from spark_bull import BullQueue, ConnectionLost, EmbeddedRedis, RedisUnavailable, ScriptError
from spark_bull.core.options.redis_settings import RedisSettings
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.errors import TRANSIENT, translated
from tests.support.redis_servers import STATES, become_cluster, error_replies
from tests.support.wait import wait_until

OwnRedis = Callable[..., EmbeddedRedis]
#: A hash tag, for the state in which the server is a cluster.
PREFIX = "{p}"


@pytest.fixture(params=list(STATES))
def code(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(own_redis: OwnRedis, code: str) -> EmbeddedRedis:
    return own_redis(STATES[code].config)


@pytest.fixture
def client(server: EmbeddedRedis, code: str) -> Iterator[Redis]:
    with Redis.from_url(server.url) as client:
        if code == "CLUSTERDOWN":
            become_cluster(client)
        yield client


def heard(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    return any(words in record.getMessage() for record in caplog.records)


def test_a_call_is_retried_until_the_state_has_passed(
    server: EmbeddedRedis, client: Redis, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = BullQueue("q", url=server.url, prefix=PREFIX, protocol="bullmq", retry_ms=300_000)
    keys, connection = queue.handle.keys, queue.handle.connection
    ways: dict[str, Callable[[], object]] = {
        "a script": lambda: queue.add({}),
        "a command": lambda: connection.call("SET", keys.job("x"), 1),
        "a pipeline": lambda: connection.pipeline([("SET", keys.job("y"), 1)]),
    }
    with queue, ThreadPoolExecutor(len(ways)) as pool:
        STATES[code].begin(client)
        asking = {way: pool.submit(ask) for way, ask in ways.items()}
        wait_until(lambda: heard(caplog, f"waiting for Redis at redis://127.0.0.1:{server.port}/0"), "a warning")
        assert not [way for way, one in asking.items() if one.done()]
        STATES[code].end(client)
        for one in asking.values():
            one.result(120)
        assert heard(caplog, "is back")
        assert queue.counts()["wait"] == 1


def test_without_retries_the_error_names_the_state(server: EmbeddedRedis, client: Redis, code: str) -> None:
    with BullQueue("q", url=server.url, prefix=PREFIX, protocol="bullmq", retry_ms=0) as queue:
        queue.add({})
        STATES[code].begin(client)
        with pytest.raises(RedisUnavailable) as script:
            queue.add({})
        key = queue.handle.keys.job("y")
        with pytest.raises(RedisUnavailable) as pipeline:
            queue.handle.connection.pipeline([("GET", key), ("SET", key, 1)])
        STATES[code].end(client)
        assert queue.add({}) == "2"
    for error in (script, pipeline):
        assert TRANSIENT[code] in str(error.value)


def test_a_check_for_writes_waits_for_the_end_of_a_fail_over(
    own_redis: OwnRedis, caplog: pytest.LogCaptureFixture
) -> None:
    server = own_redis()
    with Redis.from_url(server.url) as client, ThreadPoolExecutor(1) as pool:
        STATES["READONLY"].begin(client)
        patient = Connection(RedisSettings(server.url, retry_ms=300_000))
        checked = pool.submit(patient.check, PREFIX, ["q"], write=True)
        wait_until(lambda: heard(caplog, "waiting for Redis"), "a warning")
        assert not checked.done()
        hasty = Connection(RedisSettings(server.url, retry_ms=0))
        with pytest.raises(RedisUnavailable, match=r"is a read-only replica: .* give the address of its primary"):
            hasty.check(PREFIX, ["q"], write=True)
        hasty.check(PREFIX, ["q"], write=False)
        STATES["READONLY"].end(client)
        checked.result(120)


def test_other_temporary_states_are_retried_too_and_an_error_in_a_script_is_not() -> None:
    script = "Error running script (call to f_ab): @user_script:3: user_script:3: attempt to index a nil value"
    for error, kind, said in (
        (BusyLoadingError("Redis is loading"), RedisUnavailable, TRANSIENT["LOADING"]),
        (TryAgainError("Multiple keys request"), RedisUnavailable, TRANSIENT["TRYAGAIN"]),
        (ResponseError(script), ScriptError, "script `bullmq/add` failed"),
    ):
        raised = translated(error, RedisSettings("redis://h"), "script `bullmq/add`")
        assert type(raised) is kind
        assert said in str(raised)


def test_a_blocked_command_is_retried_after_a_change_of_roles(own_redis: OwnRedis) -> None:
    """Redis ends it with UNBLOCKED, and later with READONLY."""
    server = own_redis()
    with (
        Redis.from_url(server.url) as client,
        BullQueue("q", url=server.url, protocol="bull", retry_ms=300_000) as queue,
        ThreadPoolExecutor(1) as pool,
    ):
        keys, connection = queue.handle.keys, queue.handle.connection
        moved = pool.submit(connection.call, "BLMOVE", keys["wait"], keys["active"], "RIGHT", "LEFT", 600)
        wait_until(lambda: client.info("clients")["blocked_clients"], "the command to block")
        before = error_replies(client)
        STATES["READONLY"].begin(client)
        wait_until(lambda: error_replies(client) > before, "the command to be refused")
        STATES["READONLY"].end(client)
        queue.add({})
        assert moved.result(120) == b"1"


def test_an_unknown_host_and_a_refused_password_are_not_retried(own_redis: OwnRedis) -> None:
    """With retries this test would time out."""
    port, refused = own_redis({"requirepass": "right"}).port, "refused the user or password: check `url`"
    for url, said in (
        ("redis://no-such-host.invalid", r"redis://no-such-host\.invalid, but its host is unknown.*`url`"),
        (f"redis://:wrong@127.0.0.1:{port}", refused),
        (f"redis://127.0.0.1:{port}", refused),
    ):
        with pytest.raises(ConnectionLost, match=said):
            Connection(RedisSettings(url, retry_ms=86_400_000)).call("PING")


def test_a_host_that_was_resolved_before_is_retried(own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name services of clusters fail temporarily."""
    server = own_redis()
    connection = Connection(RedisSettings(server.url, retry_ms=300_000))
    connection.call("PING")
    resolve, asked = socket.getaddrinfo, []

    def unknown_twice(host: str, *rest: Any, **more: Any) -> Any:
        asked.append(host)
        if len(asked) < 3:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return resolve(host, *rest, **more)

    server.restart()
    monkeypatch.setattr(socket, "getaddrinfo", unknown_twice)
    assert connection.call("PING")
    assert len(asked) >= 3
