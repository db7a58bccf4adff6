"""Temporary states in which Redis refuses calls, and how a test begins and ends them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from redis import Redis
from redis.exceptions import ResponseError

from tests.support.ports import UNUSED_PORT
from tests.support.wait import wait_until


@dataclass(frozen=True)
class PassingState:
    """`begin` and `end` are called with a client that has all rights; `config`: the configuration of the server."""

    begin: Callable[[Redis], None]
    end: Callable[[Redis], None]
    config: dict[str, str] = field(default_factory=dict)


def _few_replicas(client: Redis) -> None:
    client.config_set("min-replicas-to-write", 1)


def _enough_replicas(client: Redis) -> None:
    client.config_set("min-replicas-to-write", 0)


def _be_replica(client: Redis) -> None:
    """Becomes a replica of a server that does not exist."""
    client.execute_command("REPLICAOF", "127.0.0.1", UNUSED_PORT)


def _be_stale_replica(client: Redis) -> None:
    client.config_set("replica-serve-stale-data", "no")
    _be_replica(client)


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


#: A cluster that lacks a slot refuses all calls.
_A_SLOT = 0


def _lack_a_slot(client: Redis) -> None:
    client.execute_command("CLUSTER", "DELSLOTS", _A_SLOT)
    wait_until(lambda: not is_cluster_ready(client), "the cluster to be down")


def _have_all_slots(client: Redis) -> None:
    client.execute_command("CLUSTER", "ADDSLOTS", _A_SLOT)
    wait_until(lambda: is_cluster_ready(client), "the cluster to be ready")


def become_cluster(client: Redis) -> None:
    """A server with `cluster-enabled yes` becomes a cluster of one node."""
    client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
    wait_until(lambda: is_cluster_ready(client), "the cluster to be ready")


def is_cluster_ready(client: Redis) -> bool:
    return b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO", NEVER_DECODE=True)


STATES = {
    "NOREPLICAS": PassingState(_few_replicas, _enough_replicas),
    "READONLY": PassingState(_be_replica, _be_primary),
    "MASTERDOWN": PassingState(_be_stale_replica, _be_primary),
    "MISCONF": PassingState(_fail_to_save, _save),
    "BUSY": PassingState(_run_endless_script, _kill_script),
    "CLUSTERDOWN": PassingState(
        _lack_a_slot, _have_all_slots, {"cluster-enabled": "yes", "cluster-allow-reads-when-down": "no"}
    ),
}


def error_replies(client: Redis) -> int:
    """The number of error replies of this server, including those within scripts."""
    return int(client.info("stats")["total_error_replies"])
