"""The faults of the table: what each needs, and how it is injected once while the processes work."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from redis import Redis

from spark_bull.core.embedded import EmbeddedRedis
from tests.proof.actors import Actor, NodeWorker
from tests.support.network import Proxy, forward
from tests.support.redis_servers import STATES, Sentinels

#: How long a state in which Redis refuses calls lasts, s.
REFUSES_S = 2.0
#: How long Redis is suspended, s.
SUSPENDED_S = 10.0
HOUR_MS = 3_600_000
#: Bytes after which a connection is cut, at most. The texts of scripts, of up to 90 kB, must get through sometimes.
MOST_BYTES = 600_000


@dataclass
class Site:
    """The servers and processes of a cell. url: for the processes. primary: a client with all rights."""

    url: str
    server: EmbeddedRedis
    random: Random
    actors: dict[str, Actor | NodeWorker] = field(default_factory=dict)
    watched: Sentinels | None = None
    #: What is set when the faults are over.
    heal: Callable[[], None] = lambda: None

    @property
    def primary(self) -> Redis:
        return Redis.from_url((self.watched.primary if self.watched else self.server).url)


@dataclass(frozen=True)
class Fault:
    """inject: called `times` times. config: of the server. inherent: why a cell may have numbers nevertheless.

    place: further settings of the place of the processes. needs: sentinel, proxy or node.
    """

    name: str
    inject: Callable[[Site], None]
    times: int = 3
    config: Mapping[str, str] = field(default_factory=dict)
    place: Mapping[str, object] = field(default_factory=dict)
    needs: str = ""
    inherent: str = ""


def _kill(actor: str) -> Callable[[Site], None]:
    return lambda site: site.actors[actor].kill()


def _kill_redis(site: Site) -> None:
    site.server.kill()
    site.server.start()


def _suspend(site: Site) -> None:
    os.kill(site.server.pid, signal.SIGSTOP)
    time.sleep(SUSPENDED_S)
    os.kill(site.server.pid, signal.SIGCONT)


def _fill(site: Site) -> None:
    with site.primary as client:
        client.config_set("maxmemory", 1)
        time.sleep(REFUSES_S)
        client.config_set("maxmemory", 0)


def _refuse(state: str) -> Callable[[Site], None]:
    def inject(site: Site) -> None:
        with site.primary as client:
            STATES[state].begin(client)
            time.sleep(REFUSES_S)
            STATES[state].end(client)

    return inject


def _command(*command: str) -> Callable[[Site], None]:
    def inject(site: Site) -> None:
        with site.primary as client:
            client.execute_command(*command)

    return inject


def _promote(site: Site) -> None:
    """Kills the primary; its replica, which lags, takes its place."""
    site.watched.replace_primary().start()


def _nothing(site: Site) -> None:
    """The fault is there all the time."""


ALWAYS = {"appendonly": "yes", "appendfsync": "always"}
EVERY_SECOND = {"appendonly": "yes", "appendfsync": "everysec"}
LAGS = "what the replica had not got is lost in Redis"

FAULTS = {
    fault.name: fault
    for fault in (
        Fault("driver killed", _kill("driver"), 6),
        Fault("executor killed", _kill("worker"), 4),
        Fault("reader killed", _kill("reader"), 4),
        Fault("services killed", _kill("keeper"), 4),
        Fault("Node worker killed", _kill("worker"), 2, needs="node"),
        Fault("Redis killed, AOF always", _kill_redis, config=ALWAYS),
        Fault("Redis killed, AOF everysec", _kill_redis, config=EVERY_SECOND),
        Fault("Redis suspended 10 s", _suspend, 1),
        Fault("OOM", _fill),
        *(Fault(name, _refuse(name)) for name in ("READONLY", "NOREPLICAS", "MISCONF", "BUSY")),
        Fault("SCRIPT FLUSH", _command("SCRIPT", "FLUSH"), 8),
        Fault("CLIENT KILL", _command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"), 8),
        Fault("replica promoted", _promote, 2, needs="sentinel", inherent=LAGS),
        Fault("connections cut", _nothing, 6, needs="proxy"),
        Fault("zombie attempts", _nothing, 1, place={"zombies": True}),
        Fault("clock of an executor +1 h", _nothing, 1, place={"clock_ms": HOUR_MS}),
    )
}


@contextmanager
def site_of(fault: Fault, random: Random, folder: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        if fault.needs == "sentinel":
            watched = stack.enter_context(Sentinels(folder))
            yield Site(watched.url, watched.servers[0], random, watched=watched)
            return
        server = stack.enter_context(EmbeddedRedis(fault.config))
        if fault.needs == "proxy":
            proxy = stack.enter_context(CuttingProxy(server.port, random, MOST_BYTES))
            site = Site(proxy.url, server, random)
            site.heal = lambda: setattr(proxy, "most", 0)
            yield site
            return
        yield Site(server.url, server, random)


class CuttingProxy(Proxy):
    """most: the bytes after which a connection is cut, at most; 0: none is cut any more."""

    def __init__(self, target: int, random: Random, most: int) -> None:
        super().__init__(target)
        self.random, self.most, self.cuts = random, most, 0

    def carry(self, client: socket.socket) -> None:
        left = self.random.randint(1, self.most) if self.most else 0

        def passed(data: bytes, _: bool) -> bytes:
            nonlocal left
            if self.most and len(data) > left:
                self.cuts += 1
                return data[:left]
            left -= len(data)
            return data

        with client, suppress(OSError):
            forward(client, self.target, passed=passed)
