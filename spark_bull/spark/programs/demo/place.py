"""The queue of the demo, on one server or several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from spark_bull.core.keys import shard
from spark_bull.core.queue.bull_queue import BullQueue

QUEUE: Final = "flights"


@dataclass(frozen=True)
class Place:
    """The queue of the demo: on one server, or with a shard on each of several."""

    urls: list[str]

    @property
    def options(self) -> dict[str, str]:
        """The options of Spark for the queue."""
        if len(self.urls) == 1:
            return {"url": self.urls[0], "queue": QUEUE}
        return {"shardUrls": " ".join(self.urls), "shards": str(len(self.urls)), "queue": QUEUE}

    @property
    def shown(self) -> str:
        """The options as Python shows them, with the first URL only."""
        shards = f""".option("shards", {len(self.urls)})""" if len(self.urls) > 1 else ""
        return f""".option("queue", "{QUEUE}"){shards}"""

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of a Worker."""
        if len(self.urls) == 1:
            return {"url": self.urls[0]}
        return {"shard_urls": " ".join(self.urls), "shards": len(self.urls)}

    def queues(self) -> list[BullQueue]:
        """The queue, or its shards, each by its own server."""
        names = [shard(QUEUE, at) for at in range(len(self.urls))] if len(self.urls) > 1 else [QUEUE]
        return [BullQueue(name, url=url) for name, url in zip(names, self.urls, strict=True)]
