"""What a call of a script sends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark_bull.embedded.redis import EmbeddedRedis
from spark_bull.errors import OptionError
from spark_bull.store.call_start import CallStart, RepeatedKeys
from spark_bull.store.connection import Connection
from spark_bull.store.raw_replies import packed_command
from spark_bull.store.scripts import load
from spark_bull.store.settings import RedisSettings

NAME = "queues/forget"
KEYS = {"registry": "réf"}


def connection(url: str) -> Connection:
    return Connection(RedisSettings(url))


@pytest.mark.parametrize("args", [(), ("",), ("é", b"\r\n*1\r\n", 7, 1.5)])
def test_repeated_keys_are_sent_as_other_ones(args: tuple[Any, ...]) -> None:
    script, keys = load(NAME), RepeatedKeys(KEYS)
    command = CallStart(script, KEYS).with_args(args)
    assert isinstance(command, tuple)
    for _ in range(2):
        assert keys.start_of(script).with_args(args) == packed_command(command)


def test_repeated_keys_are_bound_for_each_script() -> None:
    keys = RepeatedKeys({"registry": "r", "active": "a"})
    assert [keys.start_of(load(name)).keys for name in (NAME, "read/unlocked", NAME)] == [["r"], ["a"], ["r"]]


def test_a_script_with_repeated_keys_is_sent_again_to_a_server_that_does_not_know_it(
    own_redis: Callable[..., EmbeddedRedis],
) -> None:
    server, keys = connection(own_redis().url), RepeatedKeys({"registry": "r"})
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
        connection(own_redis().url).script(NAME, kind({"registry": "\ud800"}), {"entries": []})
