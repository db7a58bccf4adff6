"""Which server a call goes to: the one of the URL, the primary among several, or the node of a cluster that has a key.

redis-py's RedisCluster would need the right to COMMAND, whose reply of 100 kB it reads in each process. Calls go to
plain clients of the nodes, whose replies are read without conversions.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import redis
from redis.crc import key_slot
from redis.exceptions import ClusterDownError, ReadOnlyError, ResponseError
from redis.sentinel import MasterNotFoundError, Sentinel

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import ConnectionLost, OptionError
from spark_bull.core.keys import shard_number
from spark_bull.core.options.redis_settings import (
    RedisSettings,
    at_address,
    sentinels_of,
    server_urls,
    urls_of,
    without_secrets,
)
from spark_bull.core.store.errors import is_denied
from spark_bull.core.store.server import Server, new_client, sentinel_arguments

S = TypeVar("S")
T = TypeVar("T")

#: A map of slots that is younger is not read again, as many threads may find it outdated at once.
_YOUNG_S: Final = 0.2
_SLOTS: Final = 16_384
_PORT: Final = 6379
#: What a node announces that does not know its host.
_UNKNOWN: Final = (None, b"", b"?")


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
        return name_and_version(client.info("server"))[1]
    return None


def name_and_version(info: Mapping[str, Any]) -> tuple[str, str]:
    """The name and version of a server by its INFO; `redis_version` of Valkey is another one."""
    valkey = info.get("valkey_version")
    return ("Valkey", str(valkey)) if valkey else ("Redis", str(info["redis_version"]))


class Node(NamedTuple):
    """One primary of a cluster. Picklable; the repr contains no secrets."""

    url: str

    def __repr__(self) -> str:
        return f"Node({without_secrets(self.url)})"


#: A key, whose server is meant; a node; None: any server.
Place = str | bytes | Node | None


class _Slots(NamedTuple):
    """The primaries of a cluster: the URL of each range of slots, by the first slot of the range, and its last one."""

    first: Sequence[int]
    last: Sequence[int]
    urls: Sequence[str]

    def url_of(self, key: str | bytes) -> str:
        slot = key_slot(key if isinstance(key, bytes) else key.encode())
        at = bisect_right(self.first, slot) - 1
        if at < 0 or slot > self.last[at]:
            raise ClusterDownError(f"no node serves slot {slot}; not served are {', '.join(self.gaps())}")
        return self.urls[at]

    def gaps(self) -> Iterator[str]:
        """The ranges of slots without a node."""
        begin = 0
        for first, last in zip((*self.first, _SLOTS), (*self.last, _SLOTS), strict=True):
            if first > begin:
                yield f"{begin}-{first - 1}"
            begin = last + 1


class Servers:
    """The servers of one Redis. Thread-safe. `find` has to be called first, and after an error of a server."""

    def __init__(self, settings: RedisSettings) -> None:
        self._settings = settings
        self._given = server_urls(settings.url)
        self._sentinels = sentinels_of(settings.url)
        self._servers: dict[str, Server] = {}
        self._lock = Lock()
        self._found_at = float("-inf")
        self._slots: _Slots | None = None
        self._turn = 0
        #: Addresses that servers have announced, by their URLs, until they are reached: where to connect, and which.
        self._announced: dict[str, tuple[str, str]] = {}
        self._reached: set[str] = set()
        self._primary = self._given[0]
        if self._sentinels is None:
            # Checks the settings.
            self._server(self._primary)

    @property
    def is_cluster(self) -> bool:
        return self._slots is not None

    @property
    def is_divided(self) -> bool:
        """Whether keys are on several servers."""
        return self.is_cluster

    def at(self, place: Place) -> Server:
        """The server of a place. Raises ClusterDownError if no node has the slot of a key."""
        if isinstance(place, Node):
            return self._server(place.url)
        if self._slots is None or place is None:
            return self._server(self._primary)
        return self._server(self._slots.url_of(place))

    def site_of(self, key: str) -> int:
        """The number of the slot of a key in a cluster, else 0."""
        return 0 if self._slots is None else key_slot(key.encode())

    def hub_of(self, channel: str) -> int:
        """Always 0: one connection can subscribe to all channels, as the nodes of a cluster pass messages on."""
        return 0

    def primaries(self) -> list[Node]:
        """The primaries of a cluster in the order of their addresses, else the one server."""
        return [Node(url) for url in (sorted(set(self._slots.urls)) if self._slots else [self._primary])]

    def announced_in(self, text: str) -> str:
        """The announced address that was never reached, and that an error names; '' if there is none."""
        for address, announced in list(self._announced.values()):
            if re.search(rf"(?<![\w.:-]){re.escape(address)}(?!\d)", text):
                return announced
        return ""

    def close(self) -> None:
        """Closes the connections that are not in use; other threads may use the rest."""
        for server in list(self._servers.values()):
            server.close()

    def find(self) -> None:
        """Finds the primary, or reads the map of slots. Raises redis-py's errors, or ConnectionLost for a wrong URL."""
        with self._lock:
            if monotonic_s() - self._found_at < _YOUNG_S:
                return
            if self._sentinels is not None:
                self._primary = self._url_at(*self._ask(self._sentinels.service))
                check_version(self._settings, self._primary, _hello(self._server(self._primary)))
            elif self._slots is not None or (found := self._find_primary()) is None:
                if self._settings.url.startswith("unix:"):
                    raise ConnectionLost(
                        f"{self._settings.where} is a node of a Redis Cluster, whose nodes are reached over the "
                        "network only: give the host and port of a node as `url`"
                    )
                self._primary, self._slots = self._read_slots()
            else:
                self._primary = found
            self._found_at = monotonic_s()

    def _find_primary(self) -> str | None:
        """The URL of the primary; None if the servers are nodes of a cluster."""
        for url, said in self._each(self._given, _hello):
            if said.get(b"mode") == b"sentinel":
                raise _sentinel_error(self._server(url).client, self._settings)
            is_node = said.get(b"mode") == b"cluster"
            if is_node or len(self._given) == 1 or said.get(b"role") == b"master":
                check_version(self._settings, url, said)
                return None if is_node else url
        raise ReadOnlyError("none of the servers that answer is a primary")

    def _read_slots(self) -> tuple[str, _Slots]:
        """The first node that answers, and its map of the slots."""
        known = list(dict.fromkeys([*(self._slots.urls if self._slots else ()), *self._given]))
        # In turns, as a node that is cut off from the others keeps an old map.
        self._turn = (self._turn + 1) % len(known)
        url, found = next(self._each([*known[self._turn :], *known[: self._turn]], self._ranges_at))
        first, last, urls = zip(*sorted(found), strict=True) if found else ((), (), ())
        return url, _Slots(first, last, urls)

    def _ranges_at(self, server: Server) -> list[tuple[int, int, str]]:
        asked = str(server.settings.get("host", "localhost"))
        ranges = server.ask("CLUSTER", "SLOTS")
        return [
            # A node that does not know its address says nothing about it.
            (int(first), int(last), self._url_at(host.decode() if host not in _UNKNOWN else asked, int(port)))
            for first, last, (host, port, *_), *_ in ranges
        ]

    def _url_at(self, host: str, port: int) -> str:
        """The URL of a server whose address was announced, as `addressMap` maps it."""
        known = dict(self._settings.addresses)
        to_host, to_port = known.get((host.lower(), port)) or known.get((host.lower(), None)) or (host, None)
        address = f"{to_host}:{to_port or port}"
        url = at_address(self._settings.url, to_host, to_port or port)
        given = [(one.hostname, one.port or _PORT) for one in map(urlsplit, self._given)]
        if url not in self._reached and (to_host, to_port or port) not in given:
            announced = f"{host}:{port}"
            said = announced if address == announced else f"{address}, to which `addressMap` maps {announced}"
            self._announced[url] = address, said
        return url

    def _each(self, urls: Sequence[str], ask: Callable[[Server], T]) -> Iterator[tuple[str, T]]:
        """The answers of the servers that can be reached, with their URLs. Raises the last error if none can."""

        def asked(url: str) -> tuple[str, T]:
            if not self._may_be_replaced:
                return url, ask(self._server(url))
            with closing(Server(new_client(self._settings, url))) as server:
                return url, ask(server)

        return _answers(urls, asked)

    def _ask(self, service: str) -> tuple[str, int]:
        """The address of the primary that the Sentinels name."""
        assert self._sentinels is not None
        sentinel = Sentinel(self._sentinels.addresses, sentinel_kwargs=sentinel_arguments(self._settings))
        try:
            with suppress(MasterNotFoundError):
                host, port = sentinel.discover_master(service)
                return str(host), int(port)
            # Outside of a handler, which would replace the cause of the error.
            raise self._why_unknown(sentinel.sentinels, service)
        finally:
            for one in sentinel.sentinels:
                one.close()

    def _why_unknown(self, sentinels: Sequence[redis.Redis], service: str) -> Exception:
        """The error for a primary that no Sentinel names: a Sentinel's own error, if none answers."""
        try:
            known = next(_answers(sentinels, _watched))
        except redis.RedisError as error:
            return error
        if service in (names := [name for name, _ in known]):
            return MasterNotFoundError(f"the Sentinels know no primary of {service!r} that is up")
        return ConnectionLost(
            f"expected the Sentinels at {self._settings.where} to watch a primary named {service!r}, "
            f"they watch: {', '.join(names) or 'none'}"
        )

    def _server(self, url: str) -> Server:
        if url not in self._servers:
            client = new_client(self._settings, url)
            arguments = client.connection_pool.connection_kwargs
            arguments["redis_connect_func"] = partial(self._on_connect, url, arguments["redis_connect_func"])
            self._servers[url] = Server(client)
        return self._servers[url]

    @property
    def _may_be_replaced(self) -> bool:
        """Whether another server may become the primary that has the calls; a cluster redirects them itself."""
        return self._slots is None and (self._sentinels is not None or len(self._given) > 1)

    def _on_connect(self, url: str, prepare: Callable[[Any], None], connection: Any) -> None:
        """Prepares a new connection. Raises ConnectionError if the server is not the primary any more.

        redis-py opens idle connections again that a server has closed. A server that was killed may be back as a
        replica, which answers reads, or as a primary that nobody replicates.
        """
        prepare(connection)
        self._reached.add(url)
        self._announced.pop(url, None)
        if not self._may_be_replaced:
            return
        if self._sentinels is not None:
            primary = self._url_at(*self._ask(self._sentinels.service))
        else:
            connection.send_command("HELLO")
            said = _said(partial(connection.read_response, disable_decoding=True))
            primary = url if said.get(b"role") == b"master" else ""
        if primary != url:
            raise redis.ConnectionError("the server is not the primary any more")


def _answers(servers: Iterable[S], ask: Callable[[S], T]) -> Iterator[T]:
    """The answers of the servers that can be reached. Raises the last error if none can."""
    lost: redis.RedisError | None = None
    answered = False
    for server in servers:
        try:
            answer = ask(server)
        except (redis.ConnectionError, redis.TimeoutError) as error:
            lost = error
            continue
        answered = True
        yield answer
    if lost is not None and not answered:
        raise lost


def _hello(server: Server) -> dict[bytes, Any]:
    """What a server says of itself, for which no right is needed; nothing if it has no HELLO."""
    return _said(partial(server.ask, "HELLO"))


def _said(read: Callable[[], Any]) -> dict[bytes, Any]:
    """The reply to HELLO that `read` returns; nothing if the server does not know this command."""
    try:
        reply = read()
    except ResponseError as error:
        if not is_denied(error):
            raise
        return {}
    # RESP2 sends a map as a list of names and values.
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def _watched(client: redis.Redis) -> list[tuple[str, str]]:
    """The names and addresses of the primaries that a Sentinel watches."""
    reply: Any = client.sentinel_masters()
    return [
        (one["name"], f"{one['ip']}:{one['port']}") for one in (reply.values() if isinstance(reply, dict) else reply)
    ]


def _sentinel_error(client: redis.Redis, settings: RedisSettings) -> ConnectionLost:
    """The error for the address of a Sentinel in place of a Redis server's."""
    host = settings.where.partition("://")[2].partition("/")[0]
    known = [f"redis+sentinel://{host}/{name} ({address})" for name, address in _watched(client)]
    return ConnectionLost(
        f"{settings.where} is a Redis Sentinel, which holds no queues: give the name of the primary that it watches in "
        f"`url`: {', '.join(known) or 'it watches none'}"
    )


class ShardServers:
    """Has the methods of Servers. Shard n is on the server n modulo their number; other keys are on the first server.

    Thread-safe. A server is found when it is needed first, so that a lost one does not affect calls to the others.
    """

    is_cluster = False
    is_divided = True

    def __init__(self, settings: RedisSettings) -> None:
        self._servers = [Servers(replace(settings, url=url)) for url in urls_of(settings.url)]
        self._lost = set(range(len(self._servers)))

    def at(self, place: Place) -> Server:
        """The server of a place. Raises redis-py's errors if it can't be found, OptionError for a cluster."""
        if isinstance(place, Node):
            nodes = self.primaries()
            # One that was the primary when the caller asked may not be it any more.
            return self._servers[nodes.index(place) if place in nodes else 0].at(place)
        return self._found(0 if place is None else self.site_of(place)).at(None)

    def site_of(self, key: str | bytes) -> int:
        """The number of the server of a key."""
        text = key.decode("utf-8", "replace") if isinstance(key, bytes) else key
        return (shard_number(text) or 0) % len(self._servers)

    def hub_of(self, channel: str) -> int:
        """Servers do not pass on each other's messages."""
        return self.site_of(channel)

    def primaries(self) -> list[Node]:
        """The primary of each server, in their order."""
        return [node for number in range(len(self._servers)) for node in self._found(number).primaries()]

    def announced_in(self, text: str) -> str:
        """See `Servers.announced_in`."""
        return next(filter(None, (servers.announced_in(text) for servers in self._servers)), "")

    def close(self) -> None:
        """Closes the connections that are not in use."""
        for servers in self._servers:
            servers.close()

    def find(self) -> None:
        """Lets each server be found again when it is needed."""
        self._lost = set(range(len(self._servers)))

    def _found(self, number: int) -> Servers:
        servers = self._servers[number]
        if number in self._lost:
            servers.find()
            if servers.is_cluster:
                raise OptionError(
                    "expected `shardUrls` to list servers, got a node of a Redis Cluster, which divides shards by "
                    "itself: give its address as `url`"
                )
            self._lost.discard(number)
        return servers
