"""What happens to the hosts while one application works: each fault returns what the table says beside its name."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tests.proof.hosts.cluster import Application, Cluster

Fault = Callable[[Cluster, Application], str]


def _cut(host: str, seconds: float) -> Fault:
    def inject(cluster: Cluster, _: Application) -> str:
        with cluster.hosts[host].cut_from(cluster.hosts["redis"]):
            time.sleep(seconds)
        return ""

    return inject


FAULTS: Final[dict[str, Fault]] = {
    "executor host cut from Redis, 5 s": _cut("worker1", 5),
}
