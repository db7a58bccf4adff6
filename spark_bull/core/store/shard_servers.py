"""Several servers that share the shards of queues: each is one Redis, or one behind Sentinels."""

from __future__ import annotations

from dataclasses import replace

import redis

from spark_bull.core.errors import OptionError
from spark_bull.core.keys import shard_number
from spark_bull.core.options.urls import urls_of
from spark_bull.core.store.servers import Node, Place, Servers
from spark_bull.core.store.settings import RedisSettings


class ShardServers:
    """Has the methods of Servers. Shard n is on the server n modulo their number; other keys are on the first server.

    Thread-safe. A server is found when it is needed first, so that a lost one does not affect calls to the others.
    """

    is_cluster = False
    is_divided = True

    def __init__(self, settings: RedisSettings) -> None:
        self._servers = [Servers(replace(settings, url=url)) for url in urls_of(settings.url)]
        self._lost = set(range(len(self._servers)))

    def at(self, place: Place) -> redis.Redis:
        """The client of a server. Raises redis-py's errors if it can't be found, OptionError for a cluster."""
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
