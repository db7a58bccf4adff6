"""Kinds of Redis: with the rights of docs/access.md, in a passing state, in a container, a cluster, with Sentinels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, Final

from redis import Redis
from redis.crc import key_slot
from redis.exceptions import ResponseError

from spark_bull.core.embedded import EmbeddedRedis, redis_server
from tests.support.network import UNUSED_PORT
from tests.support.wait import wait_until

USER: Final = "spark"
PASSWORD: Final = "secret"
#: Rights that are needed beside the rights of verbs.
_PLACES: Final = frozenset({"cluster", "sentinel"})
_PAGE: Final = Path(__file__).parents[2] / "docs" / "access.md"


def rules(*verbs: str, prefix: str = "test-*", place: str = "") -> str:
    """The rights of these verbs in docs/access.md, by default of all verbs, as ACL rules. place: cluster, or none.

    Of Bull 3 and 4, the events of the queue q with the prefix test-p can be read.
    """
    rows = re.findall(r"^- ([a-z]+): `([^`]+)`$", _PAGE.read_text(), re.MULTILINE)
    wanted = {place, *(verbs or {verb for verb, _ in rows} - _PLACES)}
    allowed = {command for verb, commands in rows if verb in wanted for command in commands.split()}
    (channels,) = re.findall(r"`(&waiting@[^`]+)`", _PAGE.read_text())
    (patterns,) = re.findall(r"`(&bull:mail:[^`]+)`", _PAGE.read_text())
    channels += " " + patterns.replace("bull:mail", "test-p:q")
    return f"~{prefix} resetchannels &{prefix} {channels} {' '.join(sorted(allowed))}"


@dataclass(frozen=True)
class PassingState:
    """`begin` and `end` are called with a client that has all rights; `config`: the configuration of the server."""

    begin: Callable[[Redis], object]
    end: Callable[[Redis], object]
    config: dict[str, str] = field(default_factory=dict)


def _need_replicas(count: int) -> Callable[[Redis], object]:
    return lambda client: client.config_set("min-replicas-to-write", count)


def _be_replica(client: Redis) -> None:
    """Becomes a replica of a server that does not exist."""
    client.execute_command("REPLICAOF", "127.0.0.1", UNUSED_PORT)


def _be_primary(client: Redis) -> None:
    client.execute_command("REPLICAOF", "NO", "ONE")


def _fail_to_save(client: Redis) -> None:
    """Creates a folder at the path of the dump file."""
    _dump_of(client).mkdir()
    client.config_set("save", "3600 1000000")
    client.execute_command("BGSAVE")
    wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", "Redis to fail to save")


def _save(client: Redis) -> None:
    client.config_set("save", "")
    _dump_of(client).rmdir()


def _dump_of(client: Redis) -> Path:
    return Path(client.config_get("dir")["dir"]) / "dump.rdb"


def _run_endless_script(client: Redis) -> None:
    client.config_set("lua-time-limit", 10)

    def run() -> None:
        # On a separate connection: the pool opens another one while a thread uses the first.
        with suppress(ResponseError):
            client.eval("while true do end", 0)

    Thread(target=run, daemon=True).start()
    wait_until(lambda: _refusal(client).startswith("BUSY"), "Redis to be busy")


def _kill_script(client: Redis) -> None:
    client.execute_command("SCRIPT", "KILL")
    wait_until(lambda: not _refusal(client), "the script to end")


def _refusal(client: Redis) -> str:
    try:
        client.ping()
    except ResponseError as error:
        return str(error)
    return ""


SLOTS = 16_384
_OK = b"cluster_state:ok"
#: A cluster that lacks a slot refuses all calls.
_A_SLOT = 0


def _lack_a_slot(client: Redis) -> None:
    client.execute_command("CLUSTER", "DELSLOTS", _A_SLOT)
    wait_until(lambda: not is_cluster_ready(client), "the cluster to be down")


def _add_slots(client: Redis, *slots: int) -> None:
    client.execute_command("CLUSTER", "ADDSLOTS", *slots)
    wait_until(lambda: is_cluster_ready(client), "the cluster to be ready")


def become_cluster(client: Redis) -> None:
    """A server with `cluster-enabled yes` becomes a cluster of one node."""
    _add_slots(client, *range(SLOTS))


def is_cluster_ready(client: Redis) -> bool:
    return _OK in client.execute_command("CLUSTER", "INFO", NEVER_DECODE=True)


STATES = {
    "NOREPLICAS": PassingState(_need_replicas(1), _need_replicas(0)),
    "READONLY": PassingState(_be_replica, _be_primary),
    "MASTERDOWN": PassingState(_be_replica, _be_primary, {"replica-serve-stale-data": "no"}),
    "MISCONF": PassingState(_fail_to_save, _save),
    "BUSY": PassingState(_run_endless_script, _kill_script),
    "CLUSTERDOWN": PassingState(
        _lack_a_slot,
        lambda client: _add_slots(client, _A_SLOT),
        {"cluster-enabled": "yes", "cluster-allow-reads-when-down": "no"},
    ),
}


def error_replies(client: Redis) -> int:
    """The number of error replies of this server, including those within scripts."""
    return int(client.info("stats")["total_error_replies"])


IMAGE = "redis:7.2-alpine"
_PORT = 6379


@contextmanager
def redis_container() -> Iterator[str]:
    """Starts a container that ends with the block; returns its URL."""
    # Its import takes half a second, which tests with another Redis need not spend.
    from testcontainers.community.redis import RedisContainer

    with RedisContainer(IMAGE) as container:
        yield f"redis://{container.get_container_host_ip()}:{container.get_exposed_port(_PORT)}/0"


#: Kinds of Redis with which parts of the suite run again.
KINDS = ("acl", "cluster", "sentinel")
#: A lost primary is replaced after this time.
NODE_TIMEOUT_MS = 3_000
#: For nodes that nothing replaces: a busy machine may not look like a lost one.
PATIENT_MS = 60_000


class RedisCluster:
    """`primaries` servers with an equal share of the slots each, and `replicas` replicas of each.

    announced: the ports that primaries name instead of their own.
    """

    def __init__(
        self,
        primaries: int = 3,
        replicas: int = 0,
        config: Mapping[str, str] | None = None,
        announced: Sequence[int] = (),
    ) -> None:
        timeout_ms = NODE_TIMEOUT_MS if replicas else PATIENT_MS
        own = {"cluster-enabled": "yes", "cluster-node-timeout": str(timeout_ms), **(config or {})}
        ports = [{"cluster-announce-port": str(port)} for port in announced] or [{}] * primaries
        self.primaries = [EmbeddedRedis(own | port) for port in ports]
        self.replicas = [EmbeddedRedis(own) for _ in range(primaries * replicas)]
        self._stack = ExitStack()

    def __enter__(self) -> RedisCluster:
        for server in self.servers:
            self._stack.enter_context(server)
        bounds = [SLOTS * number // len(self.primaries) for number in range(len(self.primaries) + 1)]
        for server, first, end in zip(self.primaries, bounds, bounds[1:], strict=False):
            ask(server, "CLUSTER", "ADDSLOTS", *range(first, end))
        for number, server in enumerate(self.servers):
            # The epochs of nodes must differ, or they take time to agree.
            ask(server, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            ask(self.primaries[0], "CLUSTER", "MEET", "127.0.0.1", server.port)
        wait_until(lambda: all(map(self._knows_all, self.servers)), "the nodes to have met")
        for number, server in enumerate(self.replicas):
            primary = self.primaries[number % len(self.primaries)]
            ask(server, "CLUSTER", "REPLICATE", ask(primary, "CLUSTER", "MYID"))
        wait_until(lambda: all(map(self.is_complete, self.servers)), "the cluster to be ready")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def servers(self) -> list[EmbeddedRedis]:
        return [*self.primaries, *self.replicas]

    @property
    def url(self) -> str:
        return self.primaries[0].url

    def home(self, key: str) -> EmbeddedRedis:
        """The server that has the slot of a key now."""
        asked = next(server for server in self.servers if server.running)
        slot = key_slot(key.encode())
        for first, last, (_, port, *_), *_ in ask(asked, "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(server for server in self.servers if server.port == port)
        raise LookupError(f"no node has slot {slot}")

    def replace_primary(self, key: str) -> EmbeddedRedis:
        """Kills the primary of a key when its replica has what it has; returns it when the replica has its place."""
        old = self.home(key)
        with Redis.from_url(old.url) as client:
            client.set(f"{key}:replicated", 1)
            wait_until(lambda: client.wait(1, 1_000), "the replica to have all writes")
        old.kill()
        running = [server for server in self.servers if server.running]
        wait_until(lambda: self.home(key) is not old and self.is_complete(running[0]), "a fail-over")
        return old

    def is_complete(self, server: EmbeddedRedis) -> bool:
        """Whether a node serves, and knows the primaries of all slots and all replicas that run."""
        slots = ask(server, "CLUSTER", "SLOTS")
        known = sum(len(nodes) - 1 for _, _, *nodes in slots)
        running = sum(one.running for one in self.servers) - len(self.primaries)
        # Without `cluster-require-full-coverage`, a node is ready before it knows which node has which slots.
        complete = sum(last - first + 1 for first, last, *_ in slots) == SLOTS
        return _OK in ask(server, "CLUSTER", "INFO") and complete and known >= running

    def _knows_all(self, server: EmbeddedRedis) -> bool:
        info = ask(server, "CLUSTER", "INFO")
        return _OK in info and b"cluster_known_nodes:%d\r" % len(self.servers) in info


def ask(server: EmbeddedRedis, *command: object) -> Any:
    """The reply of a server as it comes."""
    with Redis.from_url(server.url) as client:
        client.response_callbacks.clear()
        return client.execute_command(*command)


class Sentinels:
    """A primary, a replica, and a Sentinel that replaces a lost primary.

    password: the Sentinel's. config: of primary and replica. watcher: the user of the Sentinel's clients.
    """

    NAME = "main"

    def __init__(
        self, folder: Path, password: str = "", config: Mapping[str, str] | None = None, watcher: str = ""
    ) -> None:
        # Redis is a Sentinel under this name.
        program = folder / "redis-sentinel"
        program.symlink_to(redis_server())
        of_server = {"appendonly": "yes", "repl-diskless-sync-delay": "0", **(config or {})}
        self.servers = [EmbeddedRedis(of_server) for _ in range(2)]
        own = {"sentinel": f"monitor {self.NAME} 127.0.0.1 {self.servers[0].port} 1"}
        own |= {name: value for name, value in {"requirepass": password, "user": watcher}.items() if value}
        self.sentinel = EmbeddedRedis(own, executable=program)
        self._stack = ExitStack()

    def __enter__(self) -> Sentinels:
        primary, replica = (self._stack.enter_context(server) for server in self.servers)
        ask(replica, "REPLICAOF", "127.0.0.1", primary.port)
        wait_until(lambda: b"master_link_status:up" in ask(replica, "INFO", "replication"), "the replica to follow")
        # A Sentinel that starts earlier looks for replicas once in 10 s.
        self._stack.enter_context(self.sentinel)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self.sentinel.port}/{self.NAME}/0"

    @property
    def primary(self) -> EmbeddedRedis:
        _, port = ask(self.sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.NAME)
        return next(server for server in self.servers if server.port == int(port))

    def has_replica(self) -> bool:
        """Whether the Sentinel knows a replica that it can make the primary."""
        _, _, online = ask(self.primary, "ROLE")
        return bool(ask(self.sentinel, "SENTINEL", "REPLICAS", self.NAME) and online)

    def begin_fail_over(self) -> bool:
        """Lets the replica take the place of the primary; whether the Sentinel knows the replica well enough."""
        try:
            ask(self.sentinel, "SENTINEL", "FAILOVER", self.NAME)
        except ResponseError:
            return False
        return True

    def replace_primary(self) -> EmbeddedRedis:
        """Kills the primary; returns it when the replica has its place."""
        wait_until(self.has_replica, "the Sentinel to know the replica")
        old = self.primary
        # Before, a busy machine may not look like a lost primary.
        ask(self.sentinel, "SENTINEL", "SET", self.NAME, "down-after-milliseconds", NODE_TIMEOUT_MS)
        old.kill()
        wait_until(lambda: self.primary is not old and ask(self.primary, "ROLE")[0] == b"master", "a fail-over")
        return old
