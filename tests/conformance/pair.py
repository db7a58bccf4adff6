"""The same jobs in two queues: a Node worker processes one queue, ours the other; then all keys are compared."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from redis import Redis

from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.run.services.promoter import Promoter
from tests.support.dump import Dump, Window, comparable, difference, dump
from tests.support.node import NodePeer, Peer
from tests.support.wait import wait_until
from tests.support.worker import OurWorker, settled

#: Intended differences: the start of the package name, a pattern of sentences, and the reason.
KNOWN = [
    ("bull-1.0.0", r"\d+\.(failedReason|lockAcquired): only right", "Bull 1.1 and 2 write them, 1.0 ignores them"),
    ("bull-1", r"\d+:logs: only right", "Bull 1 has no logs; ours have the key of later versions"),
    ("bullmq", r".*pending dependencies", "the wording of the message differs"),
]
SIDES = ("left", "right")


class Pair:
    """Two queues with the same jobs: Node processes `left`, we process `right`."""

    def __init__(self, peer: Peer, node: NodePeer, client: Redis, url: str, prefix: str) -> None:
        self.peer, self.node, self.client, self.url, self.prefix = peer, node, client, url, prefix
        self.window = Window()
        self.queues = {
            side: BullQueue(f"{side}-{prefix}", url=url, prefix=prefix, protocol=peer.dialect) for side in SIDES
        }

    def close(self) -> None:
        for queue in self.queues.values():
            queue.close()

    def by_node(self, cmd: str, **arguments: Any) -> None:
        """Node does this in both queues."""
        for queue in self.queues.values():
            self.node.call(cmd, queue=queue.name, **arguments)

    def add(self, jobs: list[dict[str, Any]]) -> None:
        for one in jobs:
            self.by_node("add", jobs=[one])

    def live(self, chunk_size: int = 1) -> None:
        for side, whose in zip(SIDES, ("Node's", "our"), strict=True):
            with self.working(side, chunk_size) as queue:
                wait_until(lambda queue=queue: settled(queue), f"{whose} worker to finish")

    @contextmanager
    def working(self, side: str, chunk_size: int = 1) -> Iterator[BullQueue]:
        """A worker processes the queue, one job at a time; ours claims `chunk_size` jobs at once."""
        queue = self.queues[side]
        if side == "left":
            with self.node_working(queue):
                yield queue
            return
        promoter = Promoter(self.url, [queue.name], prefix=self.prefix, protocol=self.peer.dialect, rescue=False)
        with promoter, OurWorker(queue.handle, chunk_size=chunk_size):
            yield queue

    @contextmanager
    def node_working(self, queue: BullQueue, **options: Any) -> Iterator[None]:
        """Node's worker processes the queue, one job at a time."""
        self.node.call("process", queue=queue.name, concurrency=1, **options)
        yield
        self.node.call("stop", queue=queue.name)

    def differences(self, normal: Callable[[Dump, Window], Dump] = comparable) -> list[str]:
        """The differences that are not known."""
        left, right = (
            normal(_without_name(dump(self.client, self.prefix, queue.name), queue.name), self.window)
            for queue in self.queues.values()
        )
        known = [pattern for package, pattern, _ in KNOWN if self.peer.alias.startswith(package)]
        if normal is not comparable:
            known = []
        return [found for found in difference(left, right) if not any(re.match(pattern, found) for pattern in known)]


def _without_name(raw: Dump, name: str) -> Dump:
    """Replaces the name of the queue, which is part of values that refer to parents and children."""
    return {
        key: replace(one, value=json.loads(json.dumps(one.value).replace(name, "<queue>"))) for key, one in raw.items()
    }
