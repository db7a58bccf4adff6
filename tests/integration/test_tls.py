"""TLS with certificates of clients: one server, a cluster, and a primary behind a Sentinel that has TLS as well."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from redis import Redis

from spark_bull import BullQueue, ConnectionLost, EmbeddedRedis, OptionError, RedisUnavailable
from spark_bull.core.options.redis_settings import RedisSettings
from spark_bull.core.queue.monitor.find import find_queues
from spark_bull.core.store.connection import Connection
from tests.support.redis_servers import RedisCluster, Sentinels
from tests.support.tls import Authority, TlsServer
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

#: On all nodes of a cluster.
NAMES = [f"{{q{n}}}" for n in range(6)]
ADDRESS = "IP:127.0.0.1"


class Place(NamedTuple):
    url: str
    servers: list[TlsServer]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def settings(authority: Authority) -> Mapping[str, str]:
    return authority.client()


@pytest.fixture(scope="module", params=["server", "cluster", "sentinel"])
def place(
    request: pytest.FixtureRequest, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    with ExitStack() as stack:
        if request.param == "cluster":
            yield cluster(stack, authority, [ADDRESS] * 3)
        elif request.param == "sentinel":
            yield watched(stack, authority, stack.enter_context(Sentinels(tmp_path_factory.mktemp("sentinels"))))
        else:
            redis = stack.enter_context(EmbeddedRedis())
            server = stack.enter_context(TlsServer(authority.server(), redis.port))
            yield Place(f"rediss://127.0.0.1:{server.port}/0", [server])


def cluster(stack: ExitStack, authority: Authority, addresses: list[str]) -> Place:
    """A cluster whose nodes name the ports with TLS. addresses: those in the certificates of the nodes."""
    contexts = [authority.server(f"node{number}", address) for number, address in enumerate(addresses)]
    servers = [stack.enter_context(TlsServer(context)) for context in contexts]
    nodes = RedisCluster(3, announced=[server.port for server in servers])
    for server, node in zip(servers, nodes.primaries, strict=True):
        server.target = node.port
    stack.enter_context(nodes)
    return Place(f"rediss://127.0.0.1:{servers[0].port}", servers)


def watched(stack: ExitStack, authority: Authority, servers: Sentinels) -> Place:
    """A Sentinel that has TLS, and names the port of the primary that has TLS."""
    context = authority.server()
    primary = stack.enter_context(TlsServer(context, servers.primary.port))
    sentinel = stack.enter_context(TlsServer(context, servers.sentinel.port))
    with Redis.from_url(servers.sentinel.url) as client:
        client.execute_command("SENTINEL", "REMOVE", servers.NAME)
        client.execute_command("SENTINEL", "MONITOR", servers.NAME, "127.0.0.1", primary.port, 1)
    return Place(f"rediss+sentinel://127.0.0.1:{sentinel.port}/{servers.NAME}/0", [primary, sentinel])


def test_all_servers_are_reached_by_tls(place: Place, settings: Mapping[str, str]) -> None:
    queues = [BullQueue(name, url=place.url, protocol="bullmq", prefix="tls", redis=settings) for name in NAMES]
    with OurWorker([queue.handle for queue in queues], lambda job: job.data["n"], chunk_size=1):
        for queue in queues:
            queue.add({"n": 7})
        for queue in queues:
            wait_until(lambda queue=queue: queue.counts()["completed"] == 1, "the job")
    assert find_queues(queues[0].handle.connection, "tls") == NAMES
    assert all(server.handshakes for server in place.servers)


def test_settings_of_tls_in_the_url_are_those_of_the_sentinels_too(place: Place, settings: Mapping[str, str]) -> None:
    query = "&".join(f"{name}={value}" for name, value in settings.items())
    assert BullQueue("{mail}", url=f"{place.url}?{query}", retry_ms=0).add({}) == "1"


def test_a_certificate_of_an_unknown_authority_is_refused_at_once_and_a_missing_one_of_the_client_is_named(
    place: Place, settings: Mapping[str, str]
) -> None:
    without = {name: value for name, value in settings.items() if name != "ssl_ca_certs"}
    with pytest.raises(ConnectionLost, match=r"is not trusted: .*: set `redis.ssl_ca_certs` to the file") as error:
        BullQueue("{mail}", url=place.url, redis=without)
    assert not isinstance(error.value, RedisUnavailable)
    # Python may notice first that the connection was closed.
    said = r"certificate of the client.* set `redis.ssl_certfile` and `redis.ssl_key"
    with pytest.raises(ConnectionLost, match=said):
        BullQueue("{mail}", url=place.url, redis={"ssl_ca_certs": settings["ssl_ca_certs"]}, retry_ms=0)


def test_a_node_whose_certificate_is_for_another_address_is_named(
    authority: Authority, settings: Mapping[str, str]
) -> None:
    with ExitStack() as stack:
        url, _ = cluster(stack, authority, [ADDRESS, "DNS:redis.example", ADDRESS])
        unchecked = {**settings, "ssl_check_hostname": "false"}
        found = [BullQueue(name, url=url, redis=unchecked).add({}) for name in NAMES]
        assert found == ["1"] * len(NAMES)
        refused = [said for name in NAMES if (said := error_of(name, url, settings))]
        assert 0 < len(refused) < len(NAMES), "expected queues on this node, and on others"
        expected = r"is for another address: .*'127.0.0.1'.*`redis.ssl_check_hostname`"
        assert [said for said in refused if not re.search(expected, said)] == []


def error_of(name: str, url: str, settings: Mapping[str, str]) -> str:
    try:
        BullQueue(name, url=url, redis=settings).counts()
    except ConnectionLost as error:
        return str(error)
    return ""


def test_one_side_without_tls_and_files_that_cannot_be_read_are_named(
    authority: Authority, settings: Mapping[str, str], tmp_path: Path
) -> None:
    (wrong := tmp_path / "wrong.crt").write_text("no certificate")
    _, key = authority.signed("other")
    with EmbeddedRedis() as redis, TlsServer(authority.server(), redis.port) as server:
        tls, plain = f"rediss://127.0.0.1:{server.port}", redis.url.replace("redis://", "rediss://")
        for url, changed, kind, said in (
            (tls.replace("rediss", "redis"), {}, RedisUnavailable, "requires TLS, use rediss:// in `url`"),
            (plain, {"socket_timeout": "0.2"}, RedisUnavailable, "if it has no TLS, use redis:// in `url`"),
            (tls, {"ssl_ca_certs": "nowhere.crt"}, OptionError, r"`redis.ssl_ca_certs` to be a file .*'nowhere.crt'"),
            (tls, {"ssl_certfile": "nowhere.crt"}, OptionError, r"`redis.ssl_certfile` to be a file .*'nowhere.crt'"),
            (tls, {"ssl_ca_certs": str(wrong)}, ConnectionLost, "check the files of `redis.ssl_ca_certs`"),
            (tls, {"ssl_keyfile": str(key)}, ConnectionLost, "key values mismatch: check the files of"),
        ):
            used = {} if url.startswith("redis:") else {**settings, **changed}
            connection = Connection(RedisSettings(url, retry_ms=0, extra=tuple(sorted(used.items()))))
            with pytest.raises(kind, match=said):
                connection.call("PING")
