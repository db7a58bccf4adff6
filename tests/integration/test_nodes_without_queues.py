"""Addresses of servers that lack queues: one of several nodes of a Redis Cluster, and a Redis Sentinel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis import Redis

from spark_bull.cli import main
from spark_bull.embedded.redis import EmbeddedRedis, redis_server
from spark_bull.errors import ConnectionLost, OptionError
from spark_bull.options.parse import parse_options
from spark_bull.options.table import READ
from spark_bull.queue.bull_queue import BullQueue
from spark_bull.queue.monitor.find import find_queues, select_queues
from spark_bull.services.promoter import Promoter
from spark_bull.spark.inspect.source import matching
from spark_bull.store.connection import Connection
from spark_bull.store.settings import RedisSettings
from tests.support.passing_state import become_cluster, is_cluster_ready
from tests.support.wait import wait_until

#: Ends of the slots of the nodes.
SLOTS = (0, 5461, 10922, 16384)
ALL_QUEUES = r"is one of 3 nodes of a Redis Cluster and knows only its own queues: expected names of queues"


def connection(url: str) -> Connection:
    return Connection(RedisSettings(url, retry_ms=0))


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[str]]:
    """The URLs of the three nodes of a cluster; the first one has the slot of {bull}."""
    with ExitStack() as stack:
        servers = [stack.enter_context(EmbeddedRedis({"cluster-enabled": "yes"})) for _ in SLOTS[1:]]
        clients = [stack.enter_context(Redis.from_url(server.url)) for server in servers]
        for client, first, end in zip(clients, SLOTS, SLOTS[1:], strict=False):
            client.execute_command("CLUSTER", "ADDSLOTS", *range(first, end))
        for server in servers[1:]:
            clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", server.port)
        for client in clients:
            wait_until(lambda client=client: is_cluster_ready(client), "the nodes to have met")
        slot = int(clients[0].execute_command("CLUSTER", "KEYSLOT", "bull"))
        home = next(number for number, end in enumerate(SLOTS[1:]) if slot < end)
        urls = [server.url for server in servers]
        BullQueue("mail", url=urls[home], prefix="{bull}").add({})
        yield [urls[home], *urls[:home], *urls[home + 1 :]]


def address(url: str) -> str:
    return url.split("/")[2]


def test_a_glob_is_refused_on_one_of_several_nodes_of_a_cluster(nodes: list[str]) -> None:
    for url in nodes:
        with pytest.raises(OptionError, match=ALL_QUEUES):
            find_queues(connection(url), "bull", "m*")
        assert select_queues(connection(url), "bull", ["mail"]) == ["mail"]


def test_a_glob_with_a_hash_tag_finds_its_queues_or_names_their_node(nodes: list[str]) -> None:
    home, *others = nodes
    assert find_queues(connection(home), "{bull}") == ["mail"]
    for url in others:
        with pytest.raises(ConnectionLost, match=rf"on another node: .*\({address(home)}\)"):
            find_queues(connection(url), "{bull}", "m*")
        with pytest.raises(ConnectionLost, match=rf"on another node: .*\({address(home)}\)"):
            BullQueue("mail", url=url, prefix="{bull}")


def test_a_cluster_of_one_node_has_all_queues(own_redis: Callable[..., EmbeddedRedis]) -> None:
    url = own_redis({"cluster-enabled": "yes"}).url
    with Redis.from_url(url) as client:
        become_cluster(client)
    BullQueue("{mail}", url=url).add({})
    assert find_queues(connection(url), "bull") == ["{mail}"]


def test_a_read_a_promoter_and_the_command_refuse_a_glob(nodes: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OptionError, match=ALL_QUEUES):
        matching(parse_options({"url": nodes[0], "retryMs": "0"}, READ), ("m*",))
    with pytest.raises(OptionError, match=ALL_QUEUES), Promoter(nodes[0], retry_ms=0) as promoter:
        promoter.await_termination(60)
    assert main(["--url", nodes[1], "queues"]) == 1
    assert "is one of 3 nodes of a Redis Cluster" in capsys.readouterr().err


def test_the_doctor_names_the_node_of_a_queue_and_what_to_do_for_all(
    nodes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    home, other, _ = nodes
    assert main(["--url", other, "--prefix", "{bull}", "doctor", "mail"]) == 2
    assert f"use the address of that node ({address(home)})" in capsys.readouterr().out
    assert main(["--url", home, "doctor"]) == 2
    assert "is one of 3 nodes of a Redis Cluster" in capsys.readouterr().out
    main(["--url", home, "--prefix", "{bull}", "doctor", "mail"])
    assert "mail orphans: no orphaned jobs" in capsys.readouterr().out


def test_the_address_of_a_sentinel_is_refused_with_that_of_the_primary(
    own_redis: Callable[..., EmbeddedRedis], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    primary = own_redis()
    # Redis is a Sentinel under this name.
    program = tmp_path / "redis-sentinel"
    program.symlink_to(redis_server())
    with EmbeddedRedis({"sentinel": f"monitor main 127.0.0.1 {primary.port} 1"}, executable=program) as sentinel:
        server = connection(sentinel.url)
        said = rf"is a Redis Sentinel.* of the primary .*:{primary.port} \(main\)"
        for ask in (
            lambda: BullQueue("mail", url=sentinel.url),
            lambda: server.call("GET", "bull:mail:id"),
            lambda: server.replies([("GET", "bull:mail:id")]),
            lambda: find_queues(server, "bull"),
            lambda: server.check("bull", ["mail"], write=True),
        ):
            with pytest.raises(ConnectionLost, match=said):
                ask()
        assert main(["--url", sentinel.url, "doctor"]) == 2
    assert "is a Redis Sentinel, which holds no queues" in capsys.readouterr().out
