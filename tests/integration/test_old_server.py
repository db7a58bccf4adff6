"""A Redis that is too old, or has no HELLO, is named with its version and what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis import Redis

from spark_bull import BullQueue, ConnectionLost, EmbeddedRedis
from spark_bull.core.store import servers
from spark_bull.ops.cli import main

WITHOUT_HELLO = {"rename-command": 'HELLO ""'}
OwnRedis = Callable[..., EmbeddedRedis]


# Versions before 6 have no HELLO.
@pytest.mark.parametrize("config", [{}, WITHOUT_HELLO])
def test_a_server_that_is_too_old_is_named_with_its_version(
    own_redis: OwnRedis,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    config: dict[str, str],
) -> None:
    server = own_redis({"requirepass": "open-sesame", **config})
    with Redis.from_url(server.url, protocol=2) as client:
        version = client.info("server")["redis_version"]
    monkeypatch.setattr(servers, "MIN_REDIS", (99, 2))
    where = f"redis://127.0.0.1:{server.port}/0"
    said = f"expected Redis 99.2 or newer at {where}, got: {version}; upgrade it, or give another address"
    assert main(["counts", "mail", "--url", server.url]) == 1
    assert capsys.readouterr().err == f"spark-bull counts: {said}\n"
    assert main(["doctor", "--url", server.url]) == 2
    assert f"problem   redis: {said}\n" in capsys.readouterr().out


def test_a_server_whose_hello_is_disabled_can_be_used_with_resp2(own_redis: OwnRedis) -> None:
    url = own_redis(WITHOUT_HELLO).url
    with pytest.raises(ConnectionLost, match=r"to know the command HELLO, which is disabled.* `redis.protocol` to 2"):
        BullQueue("mail", url=url, redis={"protocol": "3"})
    with BullQueue("mail", url=url, redis={"protocol": "2"}) as queue:
        assert queue.add({}) == "1"
