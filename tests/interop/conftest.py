"""A Node library, and our queue `q` of the same dialect; the Spark session of tests/spark."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_bull.core.queue.bull_queue import BullQueue
from tests.spark.conftest import bull, spark
from tests.support.node import NodePeer, Peer

__all__ = ["bull", "spark"]


@pytest.fixture
def theirs(peer: Peer, node: Callable[..., NodePeer], prefix: str) -> NodePeer:
    return node(peer.alias, prefix=prefix)


@pytest.fixture
def queue(peer: Peer, open_queue: Callable[..., BullQueue]) -> BullQueue:
    return open_queue(protocol=peer.dialect)
