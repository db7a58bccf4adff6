"""Checks of the Redis server, and of the rights of its user for the verbs of docs/access.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import join
from typing import Any, Final

from spark_bull.core.clock import epoch_ms
from spark_bull.core.errors import PermissionDenied
from spark_bull.core.keys import QueueKeys
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.server import NO_EVICTION
from spark_bull.core.store.servers import name_and_version
from spark_bull.ops.cli.doctor.finding import Finding, number_of, ok, problem, some, unchecked, warning
from spark_bull.ops.cli.doctor.verb_commands import COMMANDS

#: Used share of the memory.
_MUCH, _TOO_MUCH = 0.8, 0.95
#: Difference of the clocks, ms.
_SKEW_MS: Final = 1_000
_LARGE_SKEW_MS: Final = 10_000
#: Number of calls of TIME, of which the quickest counts.
_SAMPLES: Final = 5


@dataclass(frozen=True)
class Server:
    """A Redis that answers. info: the reply of INFO, empty without permission for it."""

    connection: Connection
    info: Mapping[str, Any]
    prefix: str


def server_version(server: Server) -> Iterator[Finding]:
    """The version of the server; with one that is too old, there is no connection."""
    name, version = name_and_version(server.info)
    yield ok(f"{name} {version} at {server.connection.where}")


def persistence(server: Server) -> Iterator[Finding]:
    """Whether jobs survive a restart of Redis."""
    info = server.info
    failed = [
        name
        for name in ("rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status")
        if info.get(name, "ok") != "ok"
    ]
    if failed:
        yield problem(f"the last save failed ({', '.join(failed)})", "check the free disk space and the log of Redis")
    if info.get("aof_enabled"):
        yield ok("AOF is on")
        return
    advice = "set appendonly yes in redis.conf, and run: redis-cli CONFIG SET appendonly yes"
    # A replica copies what its primary has, also after a restart before the fail-over.
    replicas = int(info.get("connected_slaves", 0))
    also = f", also on its {number_of(replicas, 'replica')} unless one becomes the primary before" if replicas else ""
    try:
        snapshots = config(server.connection, "save").get("save", "")
    except PermissionDenied:
        yield warning("AOF is off; whether there are RDB snapshots could not be checked (CONFIG GET is denied)", advice)
        return
    if snapshots:
        what = f"AOF is off: jobs since the last RDB snapshot (save {snapshots}) are lost in a crash{also}"
        yield warning(what, advice)
    else:
        yield problem(f"neither AOF nor RDB snapshots: all jobs are lost when Redis restarts{also}", advice)


def eviction(server: Server) -> Iterator[Finding]:
    """Whether Redis may delete keys of queues to free memory."""
    policy = server.info.get("maxmemory_policy")
    if policy is None:
        yield unchecked("INFO says no maxmemory_policy")
    elif policy != NO_EVICTION:
        yield problem(
            f"maxmemory-policy is {policy}: Redis may delete jobs",
            "set it in redis.conf, and run: redis-cli CONFIG SET maxmemory-policy noeviction",
        )
    else:
        yield ok("maxmemory-policy is noeviction")
    evicted = int(server.info.get("evicted_keys", 0))
    if evicted:
        yield problem(
            f"Redis has evicted {number_of(evicted, 'key')} since its start; jobs of queues may be lost",
            "raise maxmemory, or use a Redis of its own for the queues",
        )


def memory(server: Server) -> Iterator[Finding]:
    """How much memory is left."""
    used, limit = int(server.info["used_memory"]), int(server.info.get("maxmemory", 0))
    total = limit or int(server.info.get("total_system_memory", 0))
    if not total:
        yield ok(f"{_mib(used)} used, no maxmemory")
        return
    found = f"{_mib(used)} of {_mib(total)} used ({'maxmemory' if limit else 'the memory of the machine'})"
    advice = "raise maxmemory, or remove finished jobs: spark-bull clean QUEUE --grace 1d"
    if used >= _TOO_MUCH * total:
        yield problem(found, advice)
    elif used >= _MUCH * total:
        yield warning(found, advice)
    else:
        yield ok(found)


def replication(server: Server) -> Iterator[Finding]:
    """Whether this is a primary, and its replicas follow."""
    info = server.info
    if info["role"] == "slave":
        primary = f"{info.get('master_host')}:{info.get('master_port')}"
        link = "" if info.get("master_link_status") == "up" else ", to which its connection is down"
        yield problem(f"a read-only replica of {primary}{link}", f"use the primary: --url redis://{primary}")
        return
    replicas = [info[name] for name in info if name.startswith("slave") and isinstance(info[name], dict)]
    behind = [f"{r['ip']}:{r['port']}" for r in replicas if r.get("state") != "online"]
    if behind:
        yield warning(f"replicas that are not online: {', '.join(behind)}", "check the log of these replicas")
    else:
        yield ok(f"a primary with {number_of(len(replicas), 'replica')}")


def clock(server: Server, now_ms: Callable[[], float] = epoch_ms) -> Iterator[Finding]:
    """The difference between the clocks of this machine and of Redis, corrected by half the round trip."""
    samples = []
    for _ in range(_SAMPLES):
        before = now_ms()
        redis_ms = server.connection.now_ms()
        after = now_ms()
        samples.append((after - before, redis_ms - (before + after) / 2))
    round_trip, skew = min(samples)
    found = f"this machine is {_seconds(abs(skew))} {'behind' if skew > 0 else 'ahead of'} Redis"
    certain = abs(skew) - round_trip / 2
    advice = "synchronise the clocks with NTP: workers of Node compute times of jobs with the clock of their machine"
    if certain > _LARGE_SKEW_MS:
        yield problem(found, advice)
    elif certain > _SKEW_MS:
        yield warning(found, advice)
    else:
        yield ok(f"{found}, with a round trip of {_seconds(round_trip)}")


def config(connection: Connection, pattern: str) -> dict[str, str]:
    """The settings whose names match a glob. Raises PermissionDenied without the right for CONFIG GET."""
    reply = connection.call("CONFIG", "GET", pattern)
    # A map in RESP3, a list of names and values in RESP2.
    pairs = reply.items() if isinstance(reply, Mapping) else zip(reply[::2], reply[1::2], strict=True)
    return {_decoded(key): _decoded(value) for key, value in pairs}


def _decoded(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"


def _seconds(ms: float) -> str:
    return f"{ms / 1_000:,.3f} s"


#: The verbs that a user may have.
VERBS: Final = tuple(verb for verb in COMMANDS if verb not in ("all", "cluster", "doctor"))
#: Commands without which a verb works, but lacks something.
_OPTIONAL: Final = frozenset(
    {"info", "client|list", "client|unblock", "config|get", "multi", "command|info", "cluster|info"}
)
#: Part of Redis' message for a command; those for keys and channels lack it.
_OF_COMMAND: Final = "to run the"


def rights(server: Server, verbs: Sequence[str]) -> Iterator[Finding]:
    """Whether the user may send the commands of verbs, on keys of the prefix."""
    key = QueueKeys("doctor", server.prefix)["meta"]
    needed = ("all", *(["cluster"] if server.connection.is_cluster else []), *verbs)
    names = sorted({name for verb in needed for name in COMMANDS[verb].split()})
    denials = server.connection.denials(names, key)
    if _OF_COMMAND not in denials.get("get", _OF_COMMAND):
        yield problem(f"the user may not use keys such as {key}", granting(server.connection, [f"~{server.prefix}:*"]))
        return
    missing = {verb: _denied(verb, denials) for verb in needed}
    if not any(missing.values()):
        yield ok(f"the user has the rights for {', '.join(verbs)}")
        return
    by_number = Counter({verb: len(denied) for verb, denied in missing.items() if denied})
    for verb, number in by_number.items():
        denied = missing[verb]
        shown = some([f"+{name}" for name in denied])
        finding = warning if verb in verbs else problem
        what = {"all": "everything", "cluster": "a cluster"}.get(verb, verb)
        yield finding(
            f"the user lacks {number_of(number, 'command')} for {what}: {shown}",
            (f"leave {what} out with --rights, or " if verb in verbs else "")
            + granting(server.connection, [f"+{name}" for name in denied]),
        )


def granting(connection: Connection, rules: Sequence[str]) -> str:
    """The advice to give the user further rights."""
    user = connection.arguments.get("username") or "default"
    return f"as an administrator: {join(['redis-cli', 'ACL', 'SETUSER', user, *rules])}"


def _denied(verb: str, denials: dict[str, str]) -> list[str]:
    names = [name for name in COMMANDS[verb].split() if name not in _OPTIONAL]
    return [name for name in names if _OF_COMMAND in denials.get(name, "")]
