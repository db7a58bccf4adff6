"""The same flows, added by Node under one prefix and by us under another one, and all keys of all queues compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from redis import Redis

from spark_bull.queue.bull_queue import BullQueue
from tests.support.dump import PRIVATE, UUID, Dump, Window, difference, dump, escaped, is_job, normalise
from tests.support.lives import Hours
from tests.support.node_peer import NodePeer
from tests.support.peers import Peer

QUEUES = ("a", "b", "c")


@dataclass
class FlowPair:
    """Two sides under two prefixes: `left` is Node's, `ours` is ours. Ids that are chosen at random are compared by the
    member `n` of the payload, which must be different for each job.
    """

    peer: Peer
    nodes: tuple[NodePeer, NodePeer]
    prefixes: tuple[str, str]
    client: Redis
    url: str
    window: Window = field(default_factory=Window)

    def __post_init__(self) -> None:
        self.queues = {
            name: BullQueue(name, url=self.url, prefix=self.prefixes[1], protocol="bullmq", bullmq_version=self.version)
            for name in QUEUES
        }
        for node in self.nodes:
            for queue in QUEUES:
                node.call("counts", queue=queue)

    @property
    def version(self) -> str:
        """The major version of BullMQ."""
        return self.peer.alias.partition("-")[2].partition(".")[0]

    def close(self) -> None:
        self.renew()
        for queue in self.queues.values():
            queue.close()

    def renew(self) -> None:
        """Continues with empty queues."""
        for prefix in self.prefixes:
            for key in self.client.scan_iter(match=f"{escaped(prefix)}:*", count=1000):
                if not key.endswith(b":meta"):
                    self.client.delete(key)
        self.window = Window()

    def in_both(self, cmd: str, **arguments: Any) -> None:
        """Node does this on both sides. "<prefix>" in an argument becomes the prefix of the side."""
        for node, prefix in zip(self.nodes, self.prefixes, strict=True):
            node.call(cmd, **on_side(arguments, prefix))

    def differences(self) -> list[str]:
        left, ours = (self._side(prefix) for prefix in self.prefixes)
        return difference(left, ours)

    def _side(self, prefix: str) -> dict[str, Any]:
        raw = {queue: dump(self.client, prefix, queue) for queue in QUEUES}
        renamed = {f"{prefix}:": "<prefix>:", **_names(raw)}
        normal: dict[str, Any] = {}
        for queue, keys in raw.items():
            for name, key in normalise(keys, self.window, Hours).items():
                if name.startswith(PRIVATE):
                    continue
                value = _without_version(key.value) if name == "meta" else key.value
                normal[_renamed(f"{queue}:{name}", renamed)] = {
                    key.type: _sorted(name, key.type, _renamed(value, renamed)),
                    "expires": key.expires,
                }
        return normal


def on_side(value: Any, prefix: str) -> Any:
    """The value with the prefix of a side in place of "<prefix>"."""
    return _renamed(value, {"<prefix>": prefix})


def _names(raw: dict[str, Dump]) -> dict[str, str]:
    """Names for the ids of jobs, which are random: `n` of the payload."""
    jobs = ((name, key) for keys in raw.values() for name, key in keys.items() if is_job(key) and UUID.fullmatch(name))
    return {name: f"<job {_payload(key.value['data']).get('n')}>" for name, key in jobs}


def _payload(text: str) -> dict[str, Any]:
    parsed = json.loads(text)
    return parsed if isinstance(parsed, dict) else {}


def _renamed(value: Any, names: dict[str, str]) -> Any:
    text = json.dumps(value)
    for old, new in names.items():
        text = text.replace(old, new)
    # Ids of jobs that were not added.
    return json.loads(UUID.sub("<dropped job>", text) if len(names) > 1 else text)


def _sorted(name: str, kind: str, value: Any) -> Any:
    # Members of equal scores are in the order of their ids, which are random.
    return sorted(value) if kind == "set" or name == "waiting-children" else value


def _without_version(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "version"}


def shown(found: Sequence[str], most: int = 25) -> str:
    return "\n".join(found[:most])
